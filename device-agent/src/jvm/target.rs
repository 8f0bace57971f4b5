//! Is this virtual machine one that runs tests? Build tools, compilers and daemons of the same build load the agent too (the option
//! travels in the environment) and must not notice it.

use memgate_jvmti::Jvmti;

/// Main classes of test workers, and what else their command tells.
const WORKERS: [(&str, &str); 7] = [
    ("org.apache.maven.surefire.booter.ForkedBooter", ""),
    // Surefire's booter jar, whose manifest names the class above.
    ("surefirebooter", ""),
    ("worker.org.gradle.process.internal.worker.GradleWorkerMain", "Gradle Test Executor"),
    ("org.junit.platform.console.ConsoleLauncher", ""),
    ("junit-platform-console", ""),
    ("org.junit.runner.JUnitCore", ""),
    ("io.memgate.launcher.Main", ""),
];

/// What the command line says.
pub(crate) fn command(jvmti: Jvmti) -> String {
    jvmti.system_property(c"sun.java.command").unwrap_or_default()
}

/// Does this command run tests?
pub(crate) fn runs_tests(command: &str) -> bool {
    let main = command.split_whitespace().next().unwrap_or_default();
    let file = main.rsplit('/').next().unwrap_or_default();
    WORKERS.iter().any(|(worker, also)| {
        let is_jar = file.ends_with(".jar") && file.starts_with(worker);
        (main == *worker || is_jar) && command.contains(also)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(runs_tests(command), runs, "{command}");
        }
    }
}
