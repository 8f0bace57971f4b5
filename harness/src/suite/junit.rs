//! JUnit in Java virtual machines: which commands start them, which virtual machines form one suite, and how its tests
//! run again.
//!
//! The data that the screening pass recorded of a worker (its hello, its own report, its environment) become the
//! command line of memgate's launcher: the same `java`, flags, class path, directory, environment and system
//! properties, and a plan of what to run.

mod command_line;
mod configurations;
pub mod sources;
mod tools;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use memgate_analysis::ROUNDS_OF_LITERALS;
use memgate_launch::{Environment, Launch};
use memgate_wire::Hello;
use memgate_wire::hotspot;
use memgate_wire::java::JvmInfo;

pub use self::command_line::JavaCommand;
use self::configurations::without_fork;
pub use self::configurations::{Configuration, Configured, configurations};
pub use self::tools::{
    filtered, gradle_leaves_out, gradle_script, gradle_selects, is_build_tool, is_gradle, is_java,
    starts_jvms, with_gradle_script,
};
use crate::agent::OPTIONS_VARIABLE;
use crate::hotspot::options::{TOOL_OPTIONS, without_option};

/// Options that only the launcher's virtual machine has, not the worker's. Soft references are not reported as leaks.
/// Reflection and method handles do not become generated classes after some calls (for a method handle 127,
/// `MethodHandleStatics`). A collection leaves no gaps, which it would fill with arrays of its own. The optimising
/// compiler is disabled, because it resolves all literals of a class, and loads the classes in the signature of each
/// method that it compiles, however late (`CompileBroker::compile_method`). If memory runs out, the virtual machine
/// goes on: a test whose leak fills the heap could not be judged otherwise.
const ADDED: [&str; 7] = [
    "-XX:SoftRefLRUPolicyMSPerMB=0",
    "-Dsun.reflect.inflationThreshold=2147483647",
    "-Djava.lang.invoke.MethodHandle.CUSTOMIZE_THRESHOLD=-1",
    "-XX:MarkSweepDeadRatio=0",
    "-XX:TieredStopAtLevel=1",
    "-XX:-ExitOnOutOfMemoryError",
    "-XX:-CrashOnOutOfMemoryError",
];

/// The JDK keeps a connection of `HttpURLConnection` for five seconds after its last use, one for each port: if a test
/// starts its own server, each execution would add one. Switched off unless the build sets it.
const KEEPS_CONNECTIONS: &str = "http.keepAlive";

/// Variables with further options of a virtual machine.
const VARIABLES: [&str; 3] = [TOOL_OPTIONS, "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"];

/// Prefixes of the system properties that the virtual machine itself sets.
const STANDARD: [&str; 16] = [
    "awt.",
    "file.",
    "ftp.",
    "http.",
    "java.",
    "jdk.",
    "line.",
    "memgate.",
    "native.",
    "os.",
    "path.",
    "socksNonProxyHosts",
    "stderr.",
    "stdout.",
    "sun.",
    "user.",
];
/// Properties that the virtual machine reads before any code of the build runs, or that it owns. Setting one later has
/// less effect than an option would have.
const AT_START: [&str; 17] = [
    "file.encoding",
    "file.separator",
    "java.class.path",
    "java.home",
    "java.security.manager",
    "java.system.class.loader",
    "java.vm.",
    "jdk.module.",
    "line.",
    "memgate.",
    "native.",
    "os.",
    "path.",
    "stderr.",
    "stdout.",
    "sun.jnu.",
    "user.dir",
];
/// Reported like a system property: the names of those set after the virtual machine started.
const SET_LATER: &str = "memgate.set.later";
/// The build's parameters for the JUnit Platform: the launcher reads them from system properties.
const PARAMETER: &str = "memgate.parameter.";
/// Surefire's notes about the class path. They are long, and differ from the launcher's class path.
const CLASS_PATH_NOTES: [&str; 2] = ["surefire.real.class.path", "surefire.test.class.path"];
/// The real class path of a worker whose own class path is only a jar that refers to it.
pub const WORKER_CLASS_PATH: &str = "memgate.worker.class.path";

const LISTENER_JAR: &str = "/memgate-junit-platform.jar";

/// Maximum number of rounds of a test class that is not suspect: two rounds warm up, and the ends of the others are
/// compared.
pub const ROUNDS: u32 = 4;

/// A suite: virtual machines with the same directory, class path and task, if the build configures them alike
/// (`configurations`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JvmSuiteId {
    /// Their working directory; for folders of single forks, the module.
    pub directory: String,
    /// Class path, followed by the module path.
    pub class_path: Vec<String>,
    /// Gradle's task, unless it is `test` or not known.
    pub task: Option<String>,
}

/// A test class, or one test of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Name of the class.
    pub class: String,
    /// Name of the test as reported by its listener; empty: the whole class.
    pub test: String,
    /// For a whole class, the tests that the build ran; empty: all.
    pub only: Vec<String>,
}

/// A virtual machine to be started again.
#[derive(Debug, Clone, Copy)]
pub struct Worker<'a> {
    /// How it was started.
    pub hello: &'a Hello,
    /// Its own report.
    pub jvm: &'a JvmInfo,
    /// Its environment.
    pub environment: &'a [(OsString, OsString)],
    /// The option of ours in that environment.
    pub our_option: &'a OsStr,
    /// The agent is preloaded as well: native memory of libraries outside the JDK is judged.
    pub native: bool,
}

impl JvmSuiteId {
    /// The suite a virtual machine belongs to.
    #[must_use]
    pub fn of(hello: &Hello, jvm: &JvmInfo) -> Self {
        let mut class_path = class_path(jvm);
        class_path.extend(jvm.module_path.iter().cloned());
        let task = gradle_task(jvm).filter(|task| *task != "test").map(str::to_owned);
        Self { directory: without_fork(&hello.working_directory), class_path, task }
    }

    /// A suite of which only the folder is known.
    #[must_use]
    pub fn of_folder(directory: String) -> Self {
        Self { directory, class_path: Vec::new(), task: None }
    }
}

impl Selection {
    /// One test.
    #[must_use]
    pub fn one(class: &str, test: &str) -> Self {
        Self { class: class.to_owned(), test: test.to_owned(), only: Vec::new() }
    }

    /// The tests of a class that the build ran: it may have excluded others.
    #[must_use]
    pub fn class(class: &str, tests: &[String]) -> Self {
        Self { class: class.to_owned(), test: String::new(), only: tests.to_vec() }
    }

    /// A class. If it has one test, that test is the more exact selection.
    #[must_use]
    pub fn whole(class: &str, tests: &[String]) -> Self {
        match tests {
            [test] => Self::one(class, test),
            tests => Self::class(class, tests),
        }
    }

    /// Its name in windows and tests.
    #[must_use]
    pub fn id(&self) -> String {
        if self.test.is_empty() { self.class.clone() } else { format!("{}.{}", self.class, self.test) }
    }

    /// Whether a plan can name it.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        !self.class.is_empty() && !has_line_break(&self.class) && !has_line_break(&self.test)
    }

    /// A name is the rest of a line: Kotlin's names have blanks (`MapTest$when the map is open`).
    fn lines(&self) -> String {
        if !self.test.is_empty() {
            return format!("class {}\ntest {}\n", self.class, self.test);
        }
        // If a name does not fit on a line, no test is left out.
        let only = if self.only.iter().any(|test| has_line_break(test)) { &[] } else { self.only.as_slice() };
        let only: String = only.iter().map(|test| format!("only {test}\n")).collect();
        format!("class {}\n{only}", self.class)
    }
}

fn has_line_break(text: &str) -> bool {
    text.contains(['\n', '\r'])
}

/// The launcher's plan for rounds over these classes or tests, each with `executions` executions in a window. On
/// request, the launcher leaves some out.
#[must_use]
pub fn rounds<'a>(units: impl IntoIterator<Item = &'a Selection>, executions: u32) -> String {
    let lines: String = units.into_iter().map(Selection::lines).collect();
    format!("mode rounds {ROUNDS_OF_LITERALS} {}\n{lines}", executions.max(1))
}

/// How many executions of a selection one window has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batch {
    /// This many, at least 1.
    Of(u32),
    /// As many as the first window had in this time.
    Lasting(Duration),
}

/// The launcher's plan that repeats one selection until told to stop.
#[must_use]
pub fn repeat(selection: &Selection, batch: Batch) -> String {
    let mode = match batch {
        Batch::Of(executions) => format!("repeat {}", executions.max(1)),
        Batch::Lasting(time) => format!("hunt {}", time.as_millis()),
    };
    format!("mode {mode}\n{}", selection.lines())
}

/// Why a virtual machine cannot be started again with its tests.
#[must_use]
pub fn obstacle(jvm: &JvmInfo) -> Option<String> {
    let told = |name: &str| jvm.properties.iter().any(|(known, _)| known == name);
    if jvm.command.contains("surefirebooter") && !told(WORKER_CLASS_PATH) {
        return Some(
            "the class path of Surefire's worker could not be read: its booter jar was gone".to_owned(),
        );
    }
    jvm.home.is_empty().then(|| "it did not tell where its Java is".to_owned())
}

/// The start of memgate's launcher: a short command, and the options for the file that it names. A class path may be
/// longer than the limit of a command line.
#[derive(Debug)]
pub struct Again {
    /// The command.
    pub launch: Launch,
    /// The content for `options_file`.
    pub options: String,
}

/// Starts memgate's launcher like `worker`, with these additional options, and our jars before its class path.
#[must_use]
pub fn launcher(
    worker: Worker<'_>,
    our_options: &[String],
    our_jars: &[PathBuf],
    plan: &Path,
    options_file: &Path,
) -> Again {
    let Worker { hello, jvm, environment, our_option, native: _ } = worker;
    let mut options = own_options(jvm, environment);
    if jvm.command.contains("surefire") && !options.iter().any(|a| a == "-ea" || a == "-da") {
        // Surefire itself enables assertions, not through an option.
        options.push("-ea".into());
    }
    options.extend(ADDED.map(str::to_owned));
    if !jvm.properties.iter().any(|(name, _)| name == KEEPS_CONNECTIONS) {
        options.push(format!("-D{KEEPS_CONNECTIONS}=false"));
    }
    options.extend(builds_properties(jvm, &options));
    options.extend_from_slice(our_options);
    let mut paths: Vec<String> = our_jars.iter().map(|jar| jar.to_string_lossy().into_owned()).collect();
    paths.extend(class_path(jvm));
    options.extend(["-cp".into(), paths.join(":")]);
    let mut file = OsString::from("@");
    file.push(options_file);
    let mut launch =
        Launch::new(Path::new(&jvm.home).join("bin/java"), [file, hotspot::LAUNCHER.into(), plan.into()]);
    launch.directory = Some(PathBuf::from(&hello.working_directory)).filter(|d| d.is_absolute());
    launch.environment = Environment::Exactly(without_ours(environment, our_option));
    Again { launch, options: argument_file(&options) }
}

/// Whether this command runs tests, by the agent's own rule.
#[must_use]
pub fn runs_tests(JavaCommand { main, command, .. }: &JavaCommand) -> bool {
    hotspot::runs_tests(main, command)
}

/// The text of an argument file of `java`: one quoted argument a line.
fn argument_file(arguments: &[String]) -> String {
    let mut text = String::new();
    for argument in arguments {
        text.push('"');
        for c in argument.chars() {
            match c {
                '"' => text.push_str("\\\""),
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                other => text.push(other),
            }
        }
        text.push_str("\"\n");
    }
    text
}

/// The options of a virtual machine, without those from its environment, and without agents of tools.
fn own_options(jvm: &JvmInfo, environment: &[(OsString, OsString)]) -> Vec<String> {
    let mut options = jvm.vm_arguments.clone();
    for (_, value) in environment.iter().filter(|(name, _)| VARIABLES.iter().any(|v| name == v)) {
        for given in split_options(&value.to_string_lossy()) {
            if let Some(at) = options.iter().position(|option| *option == given) {
                options.remove(at);
            }
        }
    }
    options.retain(|option| !is_left_out(option));
    options
}

/// Splits the options in a variable like the virtual machine does, and takes their quotes away.
fn split_options(value: &str) -> Vec<String> {
    let unquoted = |written: &str| {
        let mut option = String::new();
        let mut quote = None;
        for c in written.chars() {
            match quote {
                Some(open) if open == c => quote = None,
                None if is_quote(c) => quote = Some(c),
                _ => option.push(c),
            }
        }
        option
    };
    let options = written_options(value).into_iter().map(unquoted);
    options.filter(|option| !option.is_empty()).collect()
}

/// The options in a variable as they are written there, with their quotes: white space of the C locale, outside of
/// quotes, is between them.
fn written_options(value: &str) -> Vec<&str> {
    let mut quote = None;
    let between = |c: char| {
        match quote {
            Some(open) if open == c => quote = None,
            None if is_quote(c) => quote = Some(c),
            None => return matches!(c, ' ' | '\t'..='\r'),
            Some(_) => {}
        }
        false
    };
    value.split(between).filter(|written| !written.is_empty()).collect()
}

/// Whether the virtual machine takes this character for a quote.
const fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'')
}

/// The task that Gradle (6 or later) started this worker for. Its temporary folder is `build/tmp/TASK/work`.
fn gradle_task(jvm: &JvmInfo) -> Option<&str> {
    let (_, folder) = jvm.properties.iter().find(|(name, _)| name == "org.gradle.internal.worker.tmpdir")?;
    Path::new(folder).parent()?.file_name()?.to_str()
}

/// The entries of the class path of the tests, without those that the agent added.
fn class_path(jvm: &JvmInfo) -> Vec<String> {
    let told = jvm.properties.iter().find(|(name, _)| name == WORKER_CLASS_PATH);
    let mut paths: Vec<String> = match told {
        Some((_, paths)) => paths.split(':').filter(|path| !path.is_empty()).map(str::to_owned).collect(),
        None => jvm.class_path.clone(),
    };
    paths.retain(|path| !path.ends_with(LISTENER_JAR));
    paths.extend(console_class_path(jvm));
    paths
}

/// The additional class path of JUnit's console launcher.
fn console_class_path(jvm: &JvmInfo) -> Vec<String> {
    const OPTIONS: [&str; 4] = ["--class-path", "--classpath", "-classpath", "-cp"];
    // The class path is a jar that is run; its folder may have blanks in its name.
    let jar =
        jvm.class_path.first().and_then(|jar| Some((jar.as_str(), jvm.command.strip_prefix(jar.as_str())?)));
    let Some((main, rest)) = jar.or_else(|| jvm.command.split_once(char::is_whitespace)) else {
        return Vec::new();
    };
    if !main.contains("junit-platform-console") && !main.ends_with("ConsoleLauncher") {
        return Vec::new();
    }
    let mut words = rest.split_whitespace();
    let mut paths = Vec::new();
    while let Some(word) = words.next() {
        let (option, value) =
            word.split_once('=').map_or((word, None), |(option, value)| (option, Some(value)));
        if OPTIONS.contains(&option) {
            let value = value.or_else(|| words.next()).unwrap_or_default();
            paths.extend(value.split([':', ';']).filter(|path| !path.is_empty()).map(str::to_owned));
        }
    }
    paths
}

fn without_ours(environment: &[(OsString, OsString)], our_option: &OsStr) -> Vec<(OsString, OsString)> {
    let kept = environment.iter().filter(|(name, _)| name != OPTIONS_VARIABLE);
    kept.filter_map(|(name, value)| {
        let value = if name == TOOL_OPTIONS { without_option(value, our_option)? } else { value.clone() };
        let value = if VARIABLES.iter().any(|v| name == v) { without_tools(value)? } else { value };
        Some((name.clone(), value))
    })
    .collect()
}

/// The value of one of [`VARIABLES`] without the options of tools; `None`: it had no others. The others stay as they
/// are written. A value that is not UTF-8 stays whole.
fn without_tools(value: OsString) -> Option<OsString> {
    let Some(text) = value.to_str() else { return Some(value) };
    let written = written_options(text);
    let is_kept = |written: &&str| !split_options(written).iter().any(|option| is_of_a_tool(option));
    let kept: Vec<&str> = written.iter().copied().filter(is_kept).collect();
    match (kept.len() == written.len(), kept.is_empty()) {
        (true, _) => Some(value),
        (false, true) => None,
        (false, false) => Some(kept.join(" ").into()),
    }
}

/// The system properties that the build set, as options after those it gave. A property that it set later, as Surefire
/// does, replaces an option.
fn builds_properties(jvm: &JvmInfo, options: &[String]) -> Vec<String> {
    let given = |name: &str| {
        options.iter().any(|a| a.strip_prefix("-D").is_some_and(|d| d.split('=').next() == Some(name)))
    };
    let set = set_by_build(jvm).filter(|(name, _, is_later)| *is_later || !given(name));
    set.map(|(name, value, _)| format!("-D{name}={value}")).collect()
}

/// Names and values of the system properties that the build set, and whether it set them later.
fn set_by_build(jvm: &JvmInfo) -> impl Iterator<Item = (&str, &str, bool)> {
    let later = jvm.properties.iter().find(|(name, _)| name == SET_LATER);
    let later: Vec<&str> = later.map(|(_, names)| names.lines().collect()).unwrap_or_default();
    let is_any = |of: &[&str], name: &str| of.iter().any(|start| name.starts_with(start));
    let is_the_builds = move |name: &str, is_later: bool| {
        let may_be = !is_any(&STANDARD, name) || is_later && !is_any(&AT_START, name);
        (may_be || name.starts_with(PARAMETER)) && !CLASS_PATH_NOTES.contains(&name) && !name.contains('=')
    };
    jvm.properties.iter().filter_map(move |(name, value)| {
        let is_later = later.contains(&name.as_str());
        is_the_builds(name, is_later).then_some((name.as_str(), value.as_str(), is_later))
    })
}

/// Whether an option of the command line is dropped: those of tools, and those that the launcher has itself.
fn is_left_out(option: &str) -> bool {
    const OF_THE_LAUNCHER: [&str; 3] = ["-Djava.class.path=", "-Dsun.java.", "-Djdk.module.main"];
    OF_THE_LAUNCHER.iter().any(|start| option.starts_with(start))
        || !option.starts_with('-')
        || is_of_a_tool(option)
}

/// Whether an option is dropped wherever the build gives it: debuggers and profilers, what would write the build's
/// recordings, logs, heap dumps and coverage again, commands for the end of memory.
fn is_of_a_tool(option: &str) -> bool {
    const NOT_OURS: [&str; 10] = [
        "-agentlib:",
        "-agentpath:",
        "-Xrun",
        "-Xdebug",
        "-XX:StartFlightRecording",
        "-Xlog:",
        "-Xloggc:",
        "-XX:OnOutOfMemoryError=",
        "-XX:+HeapDump",
        "-XX:HeapDumpPath=",
    ];
    // JaCoCo; Kover, which was the agent of IntelliJ.
    const OF_COVERAGE: [&str; 3] = ["jacoco", "kover", "intellij-coverage"];
    let is_of_coverage = |agent: &str| {
        let jar = agent.split('=').next().unwrap_or(agent);
        let name = jar.rsplit('/').next().unwrap_or(jar);
        OF_COVERAGE.iter().any(|tool| name.contains(tool))
    };
    NOT_OURS.iter().any(|start| option.starts_with(start))
        || option.strip_prefix("-javaagent:").is_some_and(is_of_coverage)
}

#[cfg(test)]
mod tests {
    use memgate_wire::Runtime;

    use super::*;

    fn hello() -> Hello {
        Hello {
            pid: 7,
            runtime: Runtime::HotSpot,
            executable: "/jdk/bin/java".into(),
            working_directory: "/p/tiles".into(),
            ..Hello::default()
        }
    }

    pub(super) fn jvm(properties: &[(&str, &str)]) -> JvmInfo {
        JvmInfo {
            vm: String::new(),
            version: "17".into(),
            home: "/jdk".into(),
            collector: "G1".into(),
            command: "/p/target/surefire/surefirebooter.jar x".into(),
            vm_arguments: Vec::new(),
            class_path: vec!["/p/classes".into(), "/m/junit.jar".into()],
            module_path: Vec::new(),
            properties: properties.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect(),
            listener: "junit4".into(),
        }
    }

    #[test]
    fn what_the_console_launcher_loads_besides_is_on_the_class_path() {
        for (command, paths) in [
            (
                "/m/junit-platform-console-standalone-1.11.4.jar execute --class-path build/a:/b.jar --scan-class-path",
                &["build/a", "/b.jar"][..],
            ),
            ("org.junit.platform.console.ConsoleLauncher -cp=x --classpath y", &["x", "y"]),
            ("org.junit.runner.JUnitCore --class-path x", &[]),
            ("/m/junit-platform-console-standalone.jar --scan-class-path", &[]),
        ] {
            let jvm = JvmInfo { command: command.to_owned(), class_path: Vec::new(), ..jvm(&[]) };
            assert_eq!(class_path(&jvm), paths, "{command}");
        }
    }

    #[test]
    fn the_worker_is_started_again_as_it_was() {
        let options = [
            "-Du=1",
            "-agentpath:/a.so=/o",
            "-Dtext=two words",
            "-Xmx1g",
            "--add-opens=java.base/java.lang=ALL-UNNAMED",
            "--module-path=/p/modules",
            "-Da=1",
            "-Db=given",
            "-agentlib:jdwp=server=y",
            "-javaagent:/m/org.jacoco.agent.jar=x",
            "-javaagent:/m/kover-jvm-agent-0.9.1.jar=file:/p/kover.args",
            "-javaagent:/kover-demo/mockito.jar",
            "-XX:StartFlightRecording=filename=/p/tests.jfr",
            "-Xlog:gc*:file=/p/gc.log",
            "-XX:+ExitOnOutOfMemoryError",
            "-XX:OnOutOfMemoryError=kill -9 %p",
            "-XX:+HeapDumpOnOutOfMemoryError",
            "-XX:HeapDumpPath=/p/dumps",
            "-Djava.class.path=/x.jar",
        ];
        let properties = [
            ("a", "1"),
            ("u", "1"),
            ("basedir", "/p"),
            ("java.home", "/jdk"),
            ("java.class.path", "/p/booter.jar"),
            ("user.timezone", "UTC"),
            ("user.home", "/h"),
            ("b", "later"),
            ("memgate.set.later", "java.class.path\nuser.timezone\nb\n"),
            ("memgate.parameter.junit.jupiter.x", "true"),
            ("note", "a\\b \"c\"\n"),
            ("surefire.test.class.path", "long"),
        ];
        let jvm =
            JvmInfo { vm_arguments: options.iter().map(|&o| o.to_owned()).collect(), ..jvm(&properties) };
        // Options of tools are left out here, too; the others stay as they are written.
        let recorded = "-Du=1 -XX:StartFlightRecording=filename='/p/two words.jfr' -agentpath:/a.so=/o";
        let opened = "\"-XX:+HeapDumpOnOutOfMemoryError\" --add-opens a/b=ALL-UNNAMED -Xlog:gc";
        let environment: [(OsString, OsString); 5] = [
            ("JAVA_TOOL_OPTIONS".into(), recorded.into()),
            ("_JAVA_OPTIONS".into(), "'-Dtext=two words'".into()),
            ("JDK_JAVA_OPTIONS".into(), opened.into()),
            ("GRADLE_OPTS".into(), "-Xlog:gc".into()),
            ("HOME".into(), "/h".into()),
        ];
        let hello = hello();
        let our_option = "-agentpath:/a.so=/o".as_ref();
        let worker =
            Worker { hello: &hello, jvm: &jvm, environment: &environment, our_option, native: false };
        let Again { launch, options } = launcher(
            worker,
            &["-agentpath:/a.so=/o2".into()],
            &["/c/l.jar".into()],
            Path::new("/s/plan"),
            Path::new("/s/0001.arguments"),
        );
        insta::assert_snapshot!(options, @r#"
        "-Xmx1g"
        "--add-opens=java.base/java.lang=ALL-UNNAMED"
        "--module-path=/p/modules"
        "-Da=1"
        "-Db=given"
        "-javaagent:/kover-demo/mockito.jar"
        "-XX:+ExitOnOutOfMemoryError"
        "-ea"
        "-XX:SoftRefLRUPolicyMSPerMB=0"
        "-Dsun.reflect.inflationThreshold=2147483647"
        "-Djava.lang.invoke.MethodHandle.CUSTOMIZE_THRESHOLD=-1"
        "-XX:MarkSweepDeadRatio=0"
        "-XX:TieredStopAtLevel=1"
        "-XX:-ExitOnOutOfMemoryError"
        "-XX:-CrashOnOutOfMemoryError"
        "-Dhttp.keepAlive=false"
        "-Du=1"
        "-Dbasedir=/p"
        "-Duser.timezone=UTC"
        "-Db=later"
        "-Dmemgate.parameter.junit.jupiter.x=true"
        "-Dnote=a\\b \"c\"\n"
        "-agentpath:/a.so=/o2"
        "-cp"
        "/c/l.jar:/p/classes:/m/junit.jar"
        "#);
        assert_eq!(launch.arguments, ["@/s/0001.arguments", "io.memgate.launcher.Main", "/s/plan"]);
        assert_eq!((launch.program, launch.directory), ("/jdk/bin/java".into(), Some("/p/tiles".into())));
        let want = [
            ("JAVA_TOOL_OPTIONS".into(), "-Du=1".into()),
            ("_JAVA_OPTIONS".into(), "'-Dtext=two words'".into()),
            ("JDK_JAVA_OPTIONS".into(), "--add-opens a/b=ALL-UNNAMED".into()),
            ("GRADLE_OPTS".into(), "-Xlog:gc".into()),
            ("HOME".into(), "/h".into()),
        ];
        assert_eq!(launch.environment, Environment::Exactly(want.to_vec()));
        assert_eq!(without_tools("-Xlog:gc -Xdebug".into()), None, "the variable had nothing else");
    }

    #[test]
    fn a_worker_whose_class_path_is_a_jar_tells_what_is_behind_it() {
        let jvm = jvm(&[(WORKER_CLASS_PATH, "/p/classes:/m/launcher.jar:/c/memgate-junit-platform.jar")]);
        let id = JvmSuiteId::of(&hello(), &jvm);
        assert_eq!(id.class_path, ["/p/classes", "/m/launcher.jar"]);
    }

    #[test]
    fn a_gradle_worker_belongs_to_its_task() {
        let task = |folder| {
            let jvm = jvm(&[("org.gradle.internal.worker.tmpdir", folder)]);
            JvmSuiteId::of(&hello(), &jvm).task
        };
        assert_eq!(task("/p/app/build/tmp/integrationTest/work"), Some("integrationTest".to_owned()));
        assert_eq!(task("/p/app/build/tmp/test/work"), None);
        assert_eq!(task(""), None);
    }

    #[test]
    fn plans_are_lines() {
        let class = Selection::class("a.ATest", &["scroll(int)[1]".into(), "x".into()]);
        let test = Selection::one("a.ATest", "scroll(int)[2]");
        assert_eq!(rounds([&class], 1), "mode rounds 40 1\nclass a.ATest\nonly scroll(int)[1]\nonly x\n");
        assert_eq!(repeat(&test, Batch::Of(1)), "mode repeat 1\nclass a.ATest\ntest scroll(int)[2]\n");
        assert_eq!((class.id(), test.id()), ("a.ATest".into(), "a.ATest.scroll(int)[2]".into()));
        assert!(test.is_plain() && Selection::one("a.ATest$when it is open", "is clean").is_plain());
        assert!(!Selection::one("a.ATest", "a\nb").is_plain() && !Selection::one("a\nTest", "b").is_plain());
        let odd = Selection::class("a.ATest", &["a\nb".into(), "x".into()]);
        assert_eq!(
            repeat(&odd, Batch::Lasting(Duration::from_millis(100))),
            "mode hunt 100\nclass a.ATest\n",
            "everything runs"
        );
    }
}
