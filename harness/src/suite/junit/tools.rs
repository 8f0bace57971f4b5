//! Tools that start Java virtual machines for tests: Maven, Gradle, `java` itself, and how to control each.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::super::inspect::{Kind, Program};
use crate::hotspot::options::TOOL_OPTIONS;

/// Programs that run tests in Java virtual machines.
const TOOLS: [&str; 5] = ["mvn", "mvnw", "gradle", "gradlew", "java"];

/// Whether this command starts virtual machines that may run tests, judging by its name.
#[must_use]
pub fn starts_jvms(typed: &str, program: &Program) -> bool {
    let names = [Path::new(typed), program.path.as_path()].map(|path| path.file_name().unwrap_or_default());
    let is_java = matches!(program.kind, Kind::Elf(_) | Kind::Script { .. });
    is_java && names.iter().any(|name| TOOLS.iter().any(|tool| name == tool))
}

/// Whether it is the virtual machine itself.
#[must_use]
pub fn is_java(typed: &str) -> bool {
    Path::new(typed).file_name() == Some(OsStr::new("java"))
}

/// Whether it is Gradle. Its daemon may already run, with an environment of its own.
#[must_use]
pub fn is_gradle(command: &[OsString]) -> bool {
    ["gradle", "gradlew"].map(OsStr::new).contains(&tool(command))
}

/// Whether it is a build tool that can exclude test classes.
#[must_use]
pub fn is_build_tool(command: &[OsString]) -> bool {
    is_gradle(command) || ["mvn", "mvnw"].map(OsStr::new).contains(&tool(command))
}

fn tool(command: &[OsString]) -> &OsStr {
    command.first().map(Path::new).and_then(Path::file_name).unwrap_or_default()
}

/// A task may then have no test, which Gradle treats as an error unless configured otherwise.
const MAY_BE_EMPTY: &str = "\
        if (test.metaClass.hasProperty(test, 'failOnNoDiscoveredTests')) test.failOnNoDiscoveredTests = false
        if (test.filter.metaClass.hasProperty(test.filter, 'failOnNoMatchingTests')) test.filter.failOnNoMatchingTests = false
";

/// An init script that adds `options` to the virtual machines of all test tasks. It also forces the tasks to run,
/// because tests that are up to date, or come from the build cache, would record nothing.
#[must_use]
pub fn gradle_script(options: &str) -> String {
    let options = quoted(options);
    for_all_tests(&format!(
        "\
        test.outputs.upToDateWhen {{ false }}
        test.outputs.doNotCacheIf('memgate measures it') {{ true }}
        test.doFirst {{ task ->
            def given = task.environment['{TOOL_OPTIONS}']
            task.environment('{TOOL_OPTIONS}', (given ? given + ' ' : '') + '{options}')
        }}
"
    ))
}

/// An init script with which all test tasks run only the tests of a glob. (Gradle applies its own `--tests` to one
/// task, and the task fails if it has no such test.)
#[must_use]
pub fn gradle_selects(glob: &str) -> String {
    let glob = quoted(&glob.replace('#', "."));
    for_all_tests(&format!(
        "{MAY_BE_EMPTY}        test.doFirst {{ task -> task.testNameIncludePatterns = ['{glob}'] }}\n"
    ))
}

/// An init script with which all test tasks exclude the classes listed in a file.
#[must_use]
pub fn gradle_leaves_out(list: &Path) -> String {
    let list = quoted(&list.display().to_string());
    for_all_tests(&format!(
        "        new File('{list}').eachLine {{ test.exclude(it + '.class', it + '$*.class') }}\n{MAY_BE_EMPTY}"
    ))
}

/// An init script with statements for each `test` task. It works with Gradle 4 and later, also with the configuration
/// cache.
fn for_all_tests(statements: &str) -> String {
    format!(
        "\
allprojects {{
    def change = {{ test ->
{statements}    }}
    def tests = tasks.withType(Test)
    tests.metaClass.respondsTo(tests, 'configureEach') ? tests.configureEach(change) : tests.all(change)
}}
"
    )
}

/// The text of a Groovy string between single quotes.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\'', "\\'")
}

/// `command` with an init script.
#[must_use]
pub fn with_gradle_script(command: &[OsString], script: &Path) -> Vec<OsString> {
    let (program, arguments) = command.split_at(command.len().min(1));
    program
        .iter()
        .cloned()
        .chain(["--init-script".into(), script.into()])
        .chain(arguments.iter().cloned())
        .collect()
}

/// Maven's command that runs only the tests of a glob, `com.example.TileCacheTest.evicts` or `*.TileCacheTest`. (For
/// Gradle, [`gradle_selects`].)
///
/// # Errors
/// When the tool supports no filter; a fragment after "failed to …".
pub fn filtered(command: &[OsString], glob: &str) -> Result<Vec<OsString>, String> {
    let added = match tool(command).to_string_lossy().as_ref() {
        "mvn" | "mvnw" => vec![
            format!("-Dtest={}", surefire_pattern(glob)),
            // A module of a reactor may have none of these tests. The second name is that of Surefire 2.
            "-Dsurefire.failIfNoSpecifiedTests=false".to_owned(),
            "-DfailIfNoTests=false".to_owned(),
        ],
        other => return Err(format!("pass a filter on to `{other}`: select the tests in its own arguments")),
    };
    Ok(command.iter().cloned().chain(added.into_iter().map(OsString::from)).collect())
}

/// Surefire needs `#` between class and method. Classes begin with a capital letter. A `,` or `+` in the name of a
/// method would begin another pattern.
fn surefire_pattern(glob: &str) -> String {
    let is_class = |name: &str| {
        let last = name.rsplit(['.', '$']).next().unwrap_or_default();
        last.starts_with(char::is_uppercase) && !name.contains(',')
    };
    let mut splits = glob.match_indices('.').map(|(at, dot)| (&glob[..at], &glob[at + dot.len()..]));
    let is_split =
        |(class, method): &(&str, &str)| is_class(class) && !method.starts_with(char::is_uppercase);
    match splits.rfind(is_split) {
        Some((class, method)) if !glob.contains('#') => {
            // A list of patterns has no blanks.
            format!("{class}#{}", method.replace(", ", "? ").replace(" + ", " ? "))
        }
        _ => glob.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradle_is_told_by_a_script_before_its_own_arguments() {
        let command = ["./gradlew".into(), "test".into()];
        assert!(is_gradle(&command) && !is_gradle(&["mvn".into()]) && !is_gradle(&[]));
        let with = with_gradle_script(&command, Path::new("/s/0001.gradle"));
        assert_eq!(with, ["./gradlew", "--init-script", "/s/0001.gradle", "test"]);
        let script = gradle_script("\"-agentpath:/c d/a.so=/s/o\"");
        assert!(script.contains("+ '\"-agentpath:/c d/a.so=/s/o\"')"), "{script}");
        assert!(gradle_script("it's").contains("'it\\'s'"));
        assert!(gradle_leaves_out(Path::new("/s/it's")).contains("new File('/s/it\\'s')"));
        assert!(
            is_build_tool(&command) && is_build_tool(&["mvn".into()]) && !is_build_tool(&["java".into()])
        );
    }

    #[test]
    fn each_tool_is_told_of_a_filter_in_its_own_way() {
        for (glob, pattern) in [
            ("com.example.TileCacheTest", "com.example.TileCacheTest"),
            ("com.example.TileCacheTest.evicts", "com.example.TileCacheTest#evicts"),
            ("TileCacheTest.*", "TileCacheTest#*"),
            ("com.example.*", "com.example.*"),
            ("TileCacheTest#evicts", "TileCacheTest#evicts"),
            ("ATest$Inner.evicts", "ATest$Inner#evicts"),
            ("com.Example.net.ATest.evicts", "com.Example.net.ATest#evicts"),
            ("ATest.a,BTest", "ATest#a,BTest"),
            ("ATest.a+b", "ATest#a+b"),
            ("com.example.ATest,com.example.BTest", "com.example.ATest,com.example.BTest"),
            // Names of Kotlin's tests.
            ("v.KotTest.keeps 1.5 items, each + all", "v.KotTest#keeps 1.5 items? each ? all"),
        ] {
            assert_eq!(surefire_pattern(glob), pattern);
        }
        assert!(gradle_selects("ATest#a's").contains("task.testNameIncludePatterns = ['ATest.a\\'s']"));
        assert!(filtered(&["java".into()], "A").unwrap_err().contains("`java`"));
    }

    #[test]
    fn tools_of_java_are_known_by_name() {
        let script = |path: &str| Program {
            path: path.into(),
            kind: Kind::Script { interpreter: "/bin/sh".into() },
            privileged: false,
        };
        for (typed, path, is) in [
            ("mvn", "/usr/share/maven/bin/mvn", true),
            ("./gradlew", "/p/gradlew", true),
            ("/opt/jdk/bin/java", "/opt/jdk/bin/java", true),
            ("ctest", "/usr/bin/ctest", false),
            ("./mvn.sh", "/p/mvn.sh", false),
        ] {
            assert_eq!(starts_jvms(typed, &script(path)), is, "{typed}");
        }
    }
}
