//! The command that runs one test again, as it was run.

use memgate_model::{RunReport, TestReport};

/// `memgate run --filter MapCache.scroll -- build/engine_tests`; `None`: the run was no `memgate
/// run`, or the process is the test, so that it is the whole of the run anyway.
pub(crate) fn command(report: &RunReport, runner: &str, test: &TestReport) -> Option<String> {
    let typed = &report.origin.as_ref()?.command;
    let (program, arguments) = typed.split_first()?;
    if runner == "command" || arguments.first().is_none_or(|first| first != "run") {
        return None;
    }
    // A hunt is for the night.
    const REPLACED: [&str; 2] = ["--filter", "--hunt"];
    let own = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    let (own, tests) = arguments.split_at(own);
    let mut command = vec![name_of(program), "run".to_owned(), "--filter".to_owned(), quoted(&test.id)];
    let mut own = own.iter().skip(1);
    while let Some(argument) = own.next() {
        if REPLACED.contains(&argument.as_str()) {
            own.next();
        } else if !REPLACED.iter().any(|option| argument.starts_with(&format!("{option}="))) {
            command.push(quoted(argument));
        }
    }
    command.extend(tests.iter().map(|argument| quoted(argument)));
    Some(command.join(" "))
}

/// `memgate`, where it was called by its path too.
fn name_of(program: &str) -> String {
    let name = program.rsplit('/').next().unwrap_or(program);
    if name.is_empty() { "memgate".to_owned() } else { quoted(name) }
}

/// As a shell takes it for one word.
fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        return argument.to_owned();
    }
    format!("'{}'", argument.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use memgate_model::Origin;

    use super::*;
    use crate::sample;

    #[test]
    fn one_test_is_run_as_all_were() {
        let mut report = sample::leak();
        let test = TestReport { id: "Tiles/Loader.loads/3".to_owned(), ..sample::test("") };
        assert_eq!(command(&report, "gtest", &test), None, "nobody knows the command");
        for (typed, again) in [
            (
                "/usr/bin/memgate run -- build/t --x",
                Some("memgate run --filter Tiles/Loader.loads/3 -- build/t --x"),
            ),
            (
                "memgate run --hunt 10m --suite engine --filter A.*",
                Some("memgate run --filter Tiles/Loader.loads/3 --suite engine"),
            ),
            (
                "memgate run --filter=A.* -- ctest -R it's",
                Some(r"memgate run --filter Tiles/Loader.loads/3 -- ctest -R 'it'\''s'"),
            ),
            (
                "memgate run -- sh --filter x",
                Some("memgate run --filter Tiles/Loader.loads/3 -- sh --filter x"),
            ),
            ("memgate demo", None),
        ] {
            let typed = typed.split(' ').map(str::to_owned).collect();
            report.origin = Some(Origin { command: typed, ..Origin::default() });
            assert_eq!(command(&report, "gtest", &test).as_deref(), again);
            assert_eq!(command(&report, "command", &test), None);
        }
        let evil = TestReport { id: "a; rm -rf $(x)".to_owned(), ..test };
        report.origin =
            Some(Origin { command: ["memgate", "run"].map(str::to_owned).to_vec(), ..Origin::default() });
        assert_eq!(command(&report, "gtest", &evil).unwrap(), "memgate run --filter 'a; rm -rf $(x)'");
    }
}
