//! Chooses how a command is measured, from the kind of its program. Starts nothing, but reports the decision.

use std::ffi::OsStr;
use std::path::Path;

use memgate_config::Runner;
use memgate_wire::options::Target;

use crate::agent::text;
use crate::plan::PlannedSuite;
use crate::suite::{Kind, Program, junit};

/// How a command is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// The program is a GoogleTest executable: one suite.
    Direct,
    /// The program starts the measured executables: each is a suite.
    Tree,
    /// The program starts Java virtual machines; those that run tests are measured.
    Jvm,
    /// The program is a Java virtual machine; its whole run is the test.
    JvmProcess,
    /// The process is the test.
    Process,
}

/// A decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) mode: Mode,
    /// The processes in which the agent becomes active.
    pub(super) targets: Vec<Target>,
    /// One line for the user.
    pub(super) text: String,
}

/// Folders of the system's programs, which are never tested.
const SYSTEM: [&str; 5] = ["/usr", "/bin", "/sbin", "/lib", "/snap"];

/// Decides for `suite`, whose program is `program`.
pub(super) fn choose(suite: &PlannedSuite, program: &Program) -> Choice {
    let typed = suite.command.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mode = mode(suite, program, &typed);
    let globs = suite.targets.iter().cloned().map(Target::Glob);
    let itself = || Target::Executable(text(&program.path));
    let (targets, text): (Vec<Target>, String) = match mode {
        Mode::Direct => (vec![itself()], format!("{typed}: a GoogleTest executable")),
        Mode::Tree => {
            let also = if suite.targets.is_empty() {
                String::new()
            } else {
                format!(" or match {}", suite.targets.join(", "))
            };
            let text = format!("{typed}: measuring the executables below it that contain GoogleTest{also}");
            (std::iter::once(Target::GoogleTest).chain(globs).collect(), text)
        }
        Mode::Jvm => (
            Vec::new(),
            format!("{typed}: measuring the Java virtual machines below it that run JUnit tests"),
        ),
        Mode::JvmProcess => (Vec::new(), format!("{typed}: a Java program, the virtual machine is the test")),
        Mode::Process if tells_tests(suite, program) => {
            (vec![itself()], format!("{typed}: a program that reports its own tests (memgate.h)"))
        }
        Mode::Process if suite.targets.is_empty() => {
            let judged = match suite.repeating {
                Some(_) => "; {n} is the number of repetitions",
                None => {
                    "; its growth is judged if {n} stands for the argument that repeats its work: --count={n}"
                }
            };
            (vec![itself()], format!("{typed}: a plain program, the process is the test{judged}"))
        }
        Mode::Process => {
            let text =
                format!("{typed}: plain programs ({}), each process is a test", suite.targets.join(", "));
            (globs.collect(), text)
        }
    };
    Choice { mode, targets, text }
}

/// Whether the tests are those that the program reports itself.
pub(super) fn tells_tests(suite: &PlannedSuite, program: &Program) -> bool {
    suite.targets.is_empty() && program.tells_tests() && !is_the_test(suite)
}

/// Is the whole plain program one test, even if it reports tests of its own?
pub(super) fn is_the_test(suite: &PlannedSuite) -> bool {
    suite.runner == Runner::Command || suite.repeating.is_some()
}

/// Whether Java virtual machines are measured.
pub(in crate::run) fn is_java(suite: &PlannedSuite, program: &Program) -> bool {
    matches!(choose(suite, program).mode, Mode::Jvm | Mode::JvmProcess)
}

fn mode(suite: &PlannedSuite, program: &Program, typed: &str) -> Mode {
    let starts_others = !matches!(program.kind, Kind::Elf(_)) || is_tool(program, typed);
    let repeats = suite.targets.is_empty() && suite.repeating.is_some();
    match suite.runner {
        Runner::Auto | Runner::Command if repeats && junit::is_java(typed) => Mode::JvmProcess,
        Runner::Command => Mode::Process,
        Runner::Junit => Mode::Jvm,
        Runner::Auto if suite.targets.is_empty() && junit::starts_jvms(typed, program) => Mode::Jvm,
        _ if program.is_gtest() && suite.targets.is_empty() => Mode::Direct,
        _ if starts_others || !suite.targets.is_empty() => Mode::Tree,
        Runner::Gtest => Mode::Direct,
        Runner::Auto => Mode::Process,
    }
}

/// Whether it is a program of the system, or one found by its name alone: ctest, make, cargo, sh.
fn is_tool(program: &Program, typed: &str) -> bool {
    !typed.contains('/') || SYSTEM.iter().any(|folder| program.path.starts_with(folder))
}

/// Advice for a program into which the agent cannot see; empty: there is none.
pub(super) fn remedy(program: &Program) -> &'static str {
    use crate::suite::Linkage;
    match &program.kind {
        _ if program.privileged => "run a copy of it without set-user-id bits and file capabilities",
        Kind::Elf(elf) if !elf.native => {
            "run it on the machine it is built for, with a memgate of that machine"
        }
        Kind::Elf(elf) => match elf.linkage {
            Linkage::Static => {
                "link it dynamically for the gate, without -static (its own libraries may stay static)"
            }
            Linkage::Musl => "build it for glibc for the gate",
            Linkage::Glibc | Linkage::OtherInterpreter(_) => "build it for the system's own dynamic linker",
        },
        Kind::Script { .. } | Kind::Other => "",
    }
}

/// The `PATH` in which the suite's program is searched.
pub(in crate::run) fn search_path(suite: &PlannedSuite) -> Option<std::ffi::OsString> {
    let own = suite.environment.iter().find(|(name, _)| name == OsStr::new("PATH"));
    own.map(|(_, path)| path.clone()).or_else(|| std::env::var_os("PATH"))
}

/// The folder in which a relative path of the suite's program starts.
pub(in crate::run) fn start_folder<'a>(suite: &'a PlannedSuite, here: &'a Path) -> &'a Path {
    suite.directory.as_deref().unwrap_or(here)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::suite::{Elf, Evidence, Linkage};

    fn elf(path: &str, gtest: Option<Evidence>) -> Program {
        let kind = Kind::Elf(Elf { gtest, tells_tests: false, linkage: Linkage::Glibc, native: true });
        Program { path: path.into(), kind, privileged: false }
    }

    fn suite(typed: &str, runner: Runner, targets: &[&str]) -> PlannedSuite {
        PlannedSuite {
            name: None,
            command: vec![typed.into()],
            repeating: None,
            directory: None,
            environment: Vec::new(),
            secrets: Vec::new(),
            runner,
            targets: targets.iter().map(|&t| t.to_owned()).collect(),
            timeout: Duration::from_secs(60),
            mapping: Vec::new(),
            heap: None,
        }
    }

    #[test]
    fn what_a_program_is_decides_how_it_is_measured() {
        use Runner::{Auto, Command, Gtest, Junit};
        let script = Program {
            path: "/p/run_all.sh".into(),
            kind: Kind::Script { interpreter: "/bin/sh".into() },
            privileged: false,
        };
        let mvn = Program { path: "/usr/share/maven/bin/mvn".into(), ..script.clone() };
        let own = "/p/build/tests";
        for (typed, program, runner, targets, want) in [
            ("build/tests", elf(own, Some(Evidence::Symbol)), Auto, &[][..], Mode::Direct),
            ("build/tests", elf(own, Some(Evidence::OnlyText)), Auto, &[], Mode::Direct),
            ("build/replay", elf("/p/build/replay", None), Auto, &[], Mode::Process),
            ("build/driver", elf("/p/build/driver", None), Auto, &["*/t_*"], Mode::Tree),
            ("build/tests", elf(own, None), Gtest, &[], Mode::Direct),
            ("build/tests", elf(own, Some(Evidence::Symbol)), Command, &[], Mode::Process),
            ("ctest", elf("/usr/bin/ctest", None), Auto, &[], Mode::Tree),
            ("/usr/bin/make", elf("/usr/bin/make", None), Auto, &[], Mode::Tree),
            ("cargo", elf("/home/me/.cargo/bin/cargo", None), Auto, &[], Mode::Tree),
            ("./run_all.sh", script.clone(), Auto, &[], Mode::Tree),
            ("./run_all.sh", script, Junit, &[], Mode::Jvm),
            ("mvn", mvn.clone(), Auto, &[], Mode::Jvm),
            ("mvn", mvn, Auto, &["*/t_*"], Mode::Tree),
        ] {
            let choice = choose(&suite(typed, runner, targets), &program);
            assert_eq!(choice.mode, want, "{typed} {runner:?}");
            assert!(choice.text.starts_with(typed), "{}", choice.text);
        }
    }

    #[test]
    fn a_program_that_reports_its_own_tests_is_not_called_the_test() {
        let Kind::Elf(elf) = elf("/p/build/kv", None).kind else { unreachable!() };
        let kind = Kind::Elf(Elf { tells_tests: true, ..elf });
        let program = Program { path: "/p/build/kv".into(), kind, privileged: false };
        let choice = choose(&suite("build/kv", Runner::Auto, &[]), &program);
        assert_eq!(choice.text, "build/kv: a program that reports its own tests (memgate.h)");
        let whole = choose(&suite("build/kv", Runner::Command, &[]), &program);
        assert!(whole.text.contains("the process is the test"), "{}", whole.text);
    }

    #[test]
    fn a_java_program_that_repeats_its_work_is_measured_as_a_virtual_machine() {
        let java = elf("/usr/lib/jvm/17/bin/java", None);
        let repeats = |runner| PlannedSuite {
            repeating: Some(vec!["java".into(), "Replay".into(), "{n}".into()]),
            ..suite("java", runner, &[])
        };
        for (runner, want) in [
            (Runner::Auto, Mode::JvmProcess),
            (Runner::Command, Mode::JvmProcess),
            (Runner::Junit, Mode::Jvm),
        ] {
            assert_eq!(choose(&repeats(runner), &java).mode, want, "{runner:?}");
        }
        assert_eq!(choose(&suite("java", Runner::Auto, &[]), &java).mode, Mode::Jvm);
    }

    #[test]
    fn the_agent_wakes_up_only_where_it_is_wanted() {
        let direct = choose(&suite("./t", Runner::Auto, &[]), &elf("/p/t", Some(Evidence::Symbol)));
        assert_eq!(direct.targets, [Target::Executable("/p/t".into())]);
        let tree = choose(&suite("ctest", Runner::Auto, &["*/x"]), &elf("/usr/bin/ctest", None));
        assert_eq!(tree.targets, [Target::GoogleTest, Target::Glob("*/x".into())]);
    }

    #[test]
    fn every_kind_of_blindness_has_a_remedy() {
        for linkage in [Linkage::Static, Linkage::Musl, Linkage::OtherInterpreter("/lib/x.so".into())] {
            let kind = Kind::Elf(Elf { gtest: None, tells_tests: false, linkage, native: true });
            let program = Program { path: "/p/t".into(), kind, privileged: false };
            assert!(program.blind().is_some() && !remedy(&program).is_empty(), "{program:?}");
        }
    }
}
