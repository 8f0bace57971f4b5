//! Decides whether this virtual machine runs tests. Build tools, compilers and daemons of the same build load the agent
//! too (its option travels in the environment) and must not notice it.

use memgate_jvmti::Jvmti;
use memgate_wire::hotspot;

/// The main class or jar, and its arguments.
pub(crate) fn command(jvmti: Jvmti<'_>) -> String {
    jvmti.system_property(c"sun.java.command").unwrap_or_default()
}

/// Does this command run tests? `line` is the command line of the process, a zero byte after each
/// word.
pub(crate) fn runs_tests(command: &str, line: &[u8]) -> bool {
    let line = String::from_utf8_lossy(line);
    let main = main_of(command, &line);
    main == hotspot::LAUNCHER || hotspot::runs_tests(main, command)
}

/// The main class or jar of a command. The blanks in a command do not show where its words end: the name of a folder
/// may contain blanks. The command line of the process shows it, unless the words are in an argument file.
fn main_of<'a>(command: &'a str, line: &'a str) -> &'a str {
    let words: Vec<&str> = line.split('\0').filter(|word| !word.is_empty()).collect();
    let is_command = |at: &usize| words.get(*at..).is_some_and(|rest| rest.join(" ") == command);
    let told = (0..words.len()).find(is_command).and_then(|at| words.get(at)).copied();
    told.unwrap_or_else(|| command.split_whitespace().next().unwrap_or_default())
}

/// The native agent that a command line (words with a zero byte after each) loads besides ours, which has the options
/// `ours`. Debuggers and agents of the virtual machine itself do not count: they do not sample allocations.
pub(crate) fn other_agent(line: &[u8], ours: &str) -> Option<String> {
    const PLAIN: [&str; 4] = ["jdwp", "hprof", "instrument", "management_agent"];
    let words = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    words
        .filter_map(|word| {
            let named = word.strip_prefix("-agentlib:").or_else(|| word.strip_prefix("-agentpath:"))?;
            let (name, options) = named.split_once('=').unwrap_or((named, ""));
            (!PLAIN.contains(&name) && options != ours).then(|| name.to_owned())
        })
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profiler_is_another_agent_and_a_debugger_is_none() {
        for (words, other) in [
            (&["java", "-agentlib:jdwp=server=y", "-agentpath:/c/a.so=/s/0001.options", "Main"][..], None),
            (
                &["java", "-agentpath:/p/libasyncProfiler.so=start,event=alloc"],
                Some("/p/libasyncProfiler.so"),
            ),
            (&["java", "-agentlib:profiler"], Some("profiler")),
            (&["java", "-javaagent:/m/mockito.jar"], None),
        ] {
            assert_eq!(other_agent(&line(words), "/s/0001.options").as_deref(), other, "{words:?}");
        }
    }

    #[test]
    fn test_workers_are_told_from_the_rest_of_a_build() {
        for (command, runs) in [
            (
                "/p/target/surefire/surefirebooter-20261121162134567_3.jar /p/target/surefire 2026-11-21T16-21-34_485-jvmRun1",
                true,
            ),
            ("org.apache.maven.surefire.booter.ForkedBooter /tmp x", true),
            ("worker.org.gradle.process.internal.worker.GradleWorkerMain 'Gradle Test Executor 1'", true),
            ("worker.org.gradle.process.internal.worker.GradleWorkerMain 'Gradle Compiler Daemon 1'", false),
            ("junit-platform-console-standalone-1.11.4.jar execute --scan-class-path", true),
            ("/opt/junit-platform-console-standalone-1.11.4.jar execute", true),
            ("org.junit.runner.JUnitCore com.example.ATest", true),
            ("io.memgate.launcher.Main /tmp/plan", true),
            ("org.codehaus.plexus.classworlds.launcher.Launcher -q test", false),
            ("org.gradle.launcher.daemon.bootstrap.GradleDaemon 8.5", false),
            ("com.example.Main org.junit.runner.JUnitCore", false),
            ("", false),
        ] {
            assert_eq!(runs_tests(command, b""), runs, "{command}");
        }
    }

    #[test]
    fn a_blank_in_a_folders_name_ends_no_word() {
        let booter = "/my p/target/surefire/surefirebooter-1.jar";
        for (words, runs) in [
            (&["/jdk/bin/java", "-jar", booter, "/my p/target/surefire", "run 1"][..], true),
            (&["java", "-cp", "/my p", "com.example.Main", booter], false),
            (&["java", "-jar", "my lib/junit-platform-console-1.11.4.jar"], true),
            (&["java", "-jar", "/x junit-platform-console.jar/app.jar"], false),
        ] {
            let is_main = |word: &&str| word.ends_with(".jar") || word.starts_with("com.");
            let command: Vec<&str> = words.iter().copied().skip_while(|word| !is_main(word)).collect();
            assert_eq!(runs_tests(&command.join(" "), &line(words)), runs, "{words:?}");
        }
    }

    fn line(words: &[&str]) -> Vec<u8> {
        words.join("\0").into_bytes()
    }
}
