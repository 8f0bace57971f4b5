//! Parses HotSpot's text answers to `GC.class_histogram`, `Thread.print` and `VM.metaspace`:
//!
//! ```text
//!  num     #instances         #bytes  class name (module)
//! -------------------------------------------------------
//!    1:         12345        1234567  [B (java.base@17.0.15)
//! Total         13456        2345678
//! ```
//!
//! Lines of another form are skipped, because headings differ between releases. A histogram that was cut off has no
//! total. The agent reads these answers in the guest; without an agent, the harness reads them.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

/// Main class of memgate's own launcher.
pub const LAUNCHER: &str = "io.memgate.launcher.Main";

/// Main classes and jars of test workers, and the text that their command must also contain.
const WORKERS: [(&str, &str); 6] = [
    ("org.apache.maven.surefire.booter.ForkedBooter", ""),
    // Surefire's booter jar, whose manifest names the class above.
    ("surefirebooter", ""),
    ("worker.org.gradle.process.internal.worker.GradleWorkerMain", "Gradle Test Executor"),
    ("org.junit.platform.console.ConsoleLauncher", ""),
    ("junit-platform-console", ""),
    ("org.junit.runner.JUnitCore", ""),
];

/// Does a virtual machine with this main class or jar, and this command, run tests? The agent and the harness use the
/// same rule.
#[must_use]
pub fn runs_tests(main: &str, command: &str) -> bool {
    let file = main.rsplit('/').next().unwrap_or_default();
    WORKERS.iter().any(|(worker, also)| {
        let is_jar = file.ends_with(".jar") && file.starts_with(worker);
        (main == *worker || is_jar) && command.contains(also)
    })
}

/// The main class or jar that makes a process a test worker; `None`: it is no test worker. `words`: its command line.
#[must_use]
pub fn worker<'a>(executable: &str, words: &'a [String]) -> Option<&'a str> {
    let is_java = executable.rsplit('/').next() == Some("java");
    // The words are not joined, because a guest's class path may be long.
    let is_worker = |word: &&str| words.iter().any(|argument| runs_tests(word, argument));
    words.iter().map(String::as_str).filter(|_| is_java).find(is_worker)
}

/// Live instances of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassInstances {
    /// As the source names it: `java.lang.String[]`.
    pub class: String,
    /// Instances.
    pub instances: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The classes of a histogram; `None`: it is no histogram, or was cut off.
#[must_use]
pub fn class_histogram(text: &str) -> Option<Vec<ClassInstances>> {
    let last = text.lines().rev().find(|line| !line.trim().is_empty())?;
    if !last.trim_start().starts_with("Total") {
        return None;
    }
    Some(text.lines().filter_map(class).collect())
}

/// The name is the remaining line, because names in Kotlin may have blanks (`TileTest$keeps a tile$1`).
fn class(line: &str) -> Option<ClassInstances> {
    let (number, rest) = line.split_once(':')?;
    number.trim_start().parse::<u32>().ok()?;
    let (instances, rest) = rest.trim_start().split_once(' ')?;
    let (bytes, rest) = rest.trim_start().split_once(' ')?;
    let (name, rest) = (rest.trim(), rest.trim().strip_suffix(')'));
    let name = rest.and_then(|rest| rest.rsplit_once(" (")).map_or(name, |(name, _module)| name);
    let (instances, bytes) = (instances.parse().ok()?, bytes.parse().ok()?);
    (!name.is_empty()).then(|| ClassInstances { class: class_name(name), instances, bytes })
}

/// A class as the source names it: `[Ljava.lang.String;` is `java.lang.String[]`.
#[must_use]
pub fn class_name(internal: &str) -> String {
    let element = internal.trim_start_matches('[');
    let dimensions = internal.len().saturating_sub(element.len());
    if dimensions == 0 {
        return internal.to_owned();
    }
    let name = match element {
        "B" => "byte",
        "C" => "char",
        "D" => "double",
        "F" => "float",
        "I" => "int",
        "J" => "long",
        "S" => "short",
        "Z" => "boolean",
        other => other.strip_prefix('L').and_then(|o| o.strip_suffix(';')).unwrap_or(other),
    };
    // Arrays have 255 dimensions at most.
    [name, &"[]".repeat(dimensions.min(255))].concat()
}

/// The number after a label: `JNI global refs: 12, weak refs: 0`.
#[must_use]
pub fn number_behind(text: &str, label: &str) -> Option<u64> {
    let figure = text.split_once(label)?.1.trim_start();
    figure.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Names of the Java threads in a thread dump: from lines that begin with a quote and contain a thread's number.
#[must_use]
pub fn thread_names(dump: &str) -> Vec<String> {
    let name = |line: &str| {
        let (name, rest) = line.strip_prefix('"')?.rsplit_once('"')?;
        rest.trim_start().starts_with('#').then(|| name.to_owned())
    };
    dump.lines().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HISTOGRAM: &str = " num     #instances         #bytes  class name (module)\n\
        -------------------------------------------------------\n\
        \x20  1:         12345        1234567  [B (java.base@17.0.15)\n\
        \x20  2:             3             72  com.example.Loader$$Lambda/0x00007f3c1c001000\n\
        \x20  3:             2             48  [[Lcom.example.Tile;\n\
        \x20  4:             1             16  com.example.TileTest$keeps a tile (big)$1\n\
        \x20  5:             1             16  com.example.Mine (com.example@1.0)\n\
        Total         12352        1234719\n";

    #[test]
    fn a_test_worker_is_known_by_its_command_line() {
        let java = "/usr/lib/jvm/17/bin/java";
        let gradle = "worker.org.gradle.process.internal.worker.GradleWorkerMain";
        for (executable, line, want) in [
            (
                java,
                "java -cp a.jar:b.jar org.junit.runner.JUnitCore com.example.ATest",
                Some("org.junit.runner.JUnitCore"),
            ),
            (
                java,
                "java -jar /p/target/surefire/surefirebooter-1.jar /p",
                Some("/p/target/surefire/surefirebooter-1.jar"),
            ),
            (
                java,
                "java @/tmp/classpath.txt worker.org.gradle.process.internal.worker.GradleWorkerMain Gradle_Test_Executor_1",
                Some(gradle),
            ),
            (
                java,
                "java worker.org.gradle.process.internal.worker.GradleWorkerMain Gradle_Compiler_Daemon_1",
                None,
            ),
            (java, "java -cp a.jar com.example.Main", None),
            ("/bin/dash", "sh -c java org.junit.runner.JUnitCore", None),
        ] {
            let words: Vec<String> = line.split(' ').map(|word| word.replace('_', " ")).collect();
            assert_eq!(worker(executable, &words), want, "{line}");
        }
    }

    #[test]
    fn classes_are_named_as_the_source_does() {
        let classes = class_histogram(HISTOGRAM).unwrap();
        let told: Vec<_> = classes.iter().map(|c| (c.class.as_str(), c.instances, c.bytes)).collect();
        assert_eq!(
            told,
            [
                ("byte[]", 12345, 1_234_567),
                ("com.example.Loader$$Lambda/0x00007f3c1c001000", 3, 72),
                ("com.example.Tile[][]", 2, 48),
                ("com.example.TileTest$keeps a tile (big)$1", 1, 16),
                ("com.example.Mine", 1, 16)
            ]
        );
    }

    #[test]
    fn a_histogram_that_was_cut_off_is_none() {
        for end in 0..HISTOGRAM.find("Total").unwrap() {
            assert_eq!(class_histogram(&HISTOGRAM[..end]), None, "{end}");
        }
        assert_eq!(class_histogram("Unknown diagnostic command\n"), None);
    }

    #[test]
    fn threads_and_numbers_are_found_in_a_thread_dump() {
        let dump = "Full thread dump OpenJDK 64-Bit Server VM (17.0.15+6 mixed mode):\n\n\
            \"main\" #1 prio=5 os_prio=0 cpu=61.2ms tid=0x00007f nid=0x2 runnable\n\
            \x20  java.lang.Thread.State: RUNNABLE\n\n\
            \"a \"quoted\" name\" #12 [77] daemon prio=5 waiting\n\n\
            \"VM Thread\" os_prio=0 cpu=1.2ms tid=0x00007f nid=0x9 runnable\n\n\
            JNI global refs: 12, weak refs: 0\n";
        assert_eq!(thread_names(dump), ["main", "a \"quoted\" name"]);
        assert_eq!(number_behind(dump, "JNI global refs:"), Some(12));
        assert_eq!(number_behind(dump, "metaspace:"), None);
    }
}
