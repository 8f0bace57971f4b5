//! The command that runs one test again, as it was run.

use memgate_model::{RunReport, Runner};

use crate::suite_test::SuiteTest;

/// `memgate run --filter MapCache.scroll -- build/engine_tests`; `None`: the run was not started by `memgate run`,
/// nothing smaller than the run can be selected, or the test would show nothing alone.
pub(crate) fn command(report: &RunReport, at: SuiteTest<'_>) -> Option<String> {
    let typed = &report.origin.as_ref()?.command;
    let (program, arguments) = typed.split_first()?;
    if arguments.first().is_none_or(|first| first != "run") {
        return None;
    }
    let mut command = vec![name_of(program), "run".to_owned()];
    let (suite, selected) = (at.suite, filter(at)?);
    let end = arguments.iter().position(|argument| argument == "--");
    let (own, tests) = arguments.split_at(end.unwrap_or(arguments.len()));
    // memgate itself passes this argument to the programs of a shard.
    let is_shard = own.iter().any(|argument| argument.starts_with("--partition"));
    let tests = if suite.selects_itself && !is_shard {
        selected_by_argument(tests, &selected)?
    } else {
        command.extend(["--filter".to_owned(), quoted(&selected)]);
        tests.to_vec()
    };
    if let Some(tool) = tests.get(1).filter(|_| suite.runner == Runner::Junit) {
        // Only these tools are known to run a part of the tests by a filter.
        let tool = tool.rsplit('/').next().unwrap_or(tool);
        if !["mvn", "mvnw", "gradle", "gradlew"].contains(&tool) {
            return None;
        }
    }
    if end.is_none() {
        // A configured suite with several executables appends their names to its own.
        let name = suite.name.split('/').next().unwrap_or_default();
        command.extend(["--suite".to_owned(), quoted(name)]);
    }
    // These options make no sense for a single test: nobody watches it, and the machine was one of many. A hunt stays:
    // only a hunt repeats a test that left nothing in the screen, and it ends after some thousand executions. The
    // folder of a shard is for `memgate merge`.
    const REPLACED: [&str; 5] = ["--filter", "--suite", "--partition", "--timings", "--output-dir"];
    let replaced = if is_shard { &REPLACED[..] } else { &REPLACED[..4] };
    let mut own = own.iter().skip(1).filter(|argument| *argument != "--live");
    while let Some(argument) = own.next() {
        if replaced.contains(&argument.as_str()) {
            own.next();
        } else if !replaced.iter().any(|option| argument.starts_with(&format!("{option}="))) {
            command.push(quoted(argument));
        }
    }
    command.extend(tests.iter().map(|argument| quoted(argument)));
    Some(command.join(" "))
}

/// The command of tests that are chosen by an argument of their program, which overrides `--filter`. `None`: it is
/// unknown where the argument comes from.
fn selected_by_argument(tests: &[String], selected: &str) -> Option<Vec<String>> {
    let is_filter = |argument: &String| argument.trim_start_matches('-').starts_with("gtest_filter=");
    let replaced = |argument: &String| match is_filter(argument) {
        true => format!("--gtest_filter={selected}"),
        false => argument.clone(),
    };
    tests.iter().any(is_filter).then(|| tests.iter().map(replaced).collect())
}

/// Selects a test, or the smallest group that contains it; `None`: only all tests together can be run.
fn filter(SuiteTest { suite, test }: SuiteTest<'_>) -> Option<String> {
    let id = test.id.as_str();
    if test.is_heap_dump() || test.only_among_others {
        return None;
    }
    let of_template = || id.split('[').next()?.strip_suffix('.');
    match suite.runner {
        Runner::Command => None,
        Runner::Gtest => match id.strip_suffix("()").and_then(|setup| setup.rsplit_once('.')) {
            Some(("Environment", _)) => None,
            Some((of, _)) => Some(format!("{of}.*")),
            None => Some(id.to_owned()),
        },
        Runner::Junit | Runner::Instrumentation if test.is_class => Some(format!("{id}.*")),
        // A test of a parameterised class.
        Runner::Junit if of_template().is_some() => of_template().map(|class| format!("{class}.*")),
        // A scenario of a feature, or a test of a suite in a suite, is not a method.
        Runner::Junit | Runner::Instrumentation if id.contains('/') => None,
        // Selects all parameters of a test method. Names of JUnit 4 contain no types, so a bracket belongs to the name.
        Runner::Junit => id.split(['(', '[']).next().map(str::to_owned),
        Runner::Instrumentation => id.split('[').next().map(str::to_owned),
    }
}

/// `memgate`, even if it was called by its path.
fn name_of(program: &str) -> String {
    let name = program.rsplit('/').next().unwrap_or(program);
    if name.is_empty() { "memgate".to_owned() } else { quoted(name) }
}

/// Quotes an argument so that a shell takes it as one word.
#[must_use]
pub fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        return argument.to_owned();
    }
    format!("'{}'", argument.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use memgate_model::{Origin, SuiteReport, TestReport};

    use super::*;
    use crate::sample;

    #[test]
    fn one_test_is_run_as_all_were() {
        let mut report = sample::leak();
        let suite = SuiteReport { name: "engine/tiles".to_owned(), ..report.suites[0].clone() };
        let test = TestReport { id: "Tiles/Loader.loads/3".to_owned(), ..sample::test("") };
        let at = SuiteTest { suite: &suite, test: &test };
        assert_eq!(command(&report, at), None, "nobody knows the command");
        let filter = "memgate run --filter Tiles/Loader.loads/3";
        for (typed, again) in [
            ("/usr/bin/memgate run -- build/t --x", Some(" -- build/t --x")),
            (
                "memgate run --live --hunt 10m --partition 3/8 --output-dir s/3 --suite a --filter A.* --config x.yaml",
                Some(" --suite engine --hunt 10m --config x.yaml"),
            ),
            ("memgate run --output-dir=o", Some(" --suite engine --output-dir=o")),
            ("memgate run", Some(" --suite engine")),
            ("memgate run --filter=A.* -- ctest -R it's", Some(r" -- ctest -R 'it'\''s'")),
            ("memgate run -- sh --filter x", Some(" -- sh --filter x")),
            ("memgate demo", None),
        ] {
            let typed = typed.split(' ').map(str::to_owned).collect();
            report.origin = Some(Origin { command: typed, ..Origin::default() });
            let again = again.map(|rest| format!("{filter}{rest}"));
            assert_eq!(command(&report, at), again);
        }
    }

    #[test]
    fn a_test_that_its_command_chooses_is_chosen_there() {
        let mut report = sample::leak();
        let suite = SuiteReport { selects_itself: true, ..report.suites[0].clone() };
        let mut again = |typed: &str, id: &str| {
            let command = typed.split(' ').map(str::to_owned).collect();
            report.origin = Some(Origin { command, ..Origin::default() });
            command_of(&report, &suite, id)
        };
        for (typed, id, want) in [
            (
                "memgate run -- ./t --gtest_filter=Map.* -x",
                "Map.Leaks",
                Some("memgate run -- ./t --gtest_filter=Map.Leaks -x"),
            ),
            ("memgate run -- ./check.sh", "Map.Leaks", None),
            ("memgate run", "Map.Leaks", None),
        ] {
            assert_eq!(again(typed, id).as_deref(), want, "{typed}");
        }
    }

    fn command_of(report: &RunReport, suite: &SuiteReport, id: &str) -> Option<String> {
        let test = TestReport { id: id.to_owned(), ..sample::test("") };
        command(report, SuiteTest { suite, test: &test })
    }

    #[test]
    fn the_least_that_runs_a_test_is_selected() {
        let mut report = sample::leak();
        let typed = |program: &str| {
            let command = ["memgate", "run", "--", program].map(str::to_owned).to_vec();
            Some(Origin { command, ..Origin::default() })
        };
        report.origin = typed("./mvnw");
        for (runner, id, is_class, selected) in [
            (Runner::Gtest, "A.b", false, Some("A.b")),
            (Runner::Junit, "k.RunCucumberTest.classpath:k/tiles.feature/5", false, None),
            (Runner::Gtest, "Map.SetUpTestSuite()", false, Some("'Map.*'")),
            (Runner::Gtest, "Environment.SetUp()", false, None),
            (Runner::Gtest, "a; rm -rf $(x)", false, Some("'a; rm -rf $(x)'")),
            (Runner::Junit, "com.example.ATest.b(int)[2]", false, Some("com.example.ATest.b")),
            (Runner::Junit, "com.example.ATest", true, Some("'com.example.ATest.*'")),
            (Runner::Junit, "com.example.ATest.[2]/loads", false, Some("'com.example.ATest.*'")),
            (Runner::Instrumentation, "a.BTest.c[x=1]", false, Some("a.BTest.c")),
            (Runner::Instrumentation, "a.BTest.loads (twice)", false, Some("'a.BTest.loads (twice)'")),
            (Runner::Command, "replay", false, None),
        ] {
            let suite = SuiteReport { runner, ..report.suites[0].clone() };
            let test = TestReport { id: id.to_owned(), is_class, ..sample::test("") };
            let at = SuiteTest { suite: &suite, test: &test };
            let again = selected.map(|selected| format!("memgate run --filter {selected} -- ./mvnw"));
            assert_eq!(command(&report, at), again);
            let among_others = TestReport { only_among_others: true, ..test.clone() };
            let among_others = SuiteTest { test: &among_others, ..at };
            assert_eq!(command(&report, among_others), None, "alone it shows nothing");
            if runner == Runner::Junit {
                let java = RunReport { origin: typed("java"), ..report.clone() };
                assert_eq!(command(&java, at), None, "nobody knows how");
            }
        }
    }
}
