//! Values of single options, read and checked.

use std::time::Duration;

use memgate_config::Until;
use memgate_model::LeakKind;

pub(super) fn leak_id(typed: &str) -> Result<String, String> {
    let hash = LeakKind::of_id(typed).and_then(|_known| typed.get(3..));
    match hash {
        Some(hash) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => Ok(typed.to_owned()),
        _ => Err("ids of leaks look like n1-5f1c09a2b47d1e03".to_owned()),
    }
}

pub(super) fn accepting_reason(typed: &str) -> Result<String, String> {
    let reason = typed.trim();
    if reason.is_empty() {
        Err("say why the leak is accepted".to_owned())
    } else if reason.trim_matches(['.', '…']).is_empty() {
        Err(format!("write why the leak is accepted in place of `{reason}`"))
    } else {
        Ok(typed.to_owned())
    }
}

pub(super) fn last_day(typed: &str) -> Result<Until, String> {
    match typed {
        "never" => Ok(Until::Never),
        _ => typed
            .parse()
            .map(Until::Date)
            .map_err(|_none| "write a date such as 2027-03-01, or `never`".to_owned()),
    }
}

/// `250ms`, `60s`, `5m`, as in memgate.yaml.
pub(super) fn duration(typed: &str) -> Result<Duration, String> {
    let digits = typed.len() - typed.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = typed.split_at(digits);
    let milliseconds = match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60_000),
        _ => None,
    };
    let value = number.parse::<u64>().ok().zip(milliseconds).and_then(|(n, unit)| n.checked_mul(unit));
    match value {
        Some(milliseconds) if milliseconds > 0 => Ok(Duration::from_millis(milliseconds)),
        _ => Err("write 250ms, 60s or 5m".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::PathBuf;

    use super::*;
    use crate::cli::{BaselineCommand, Command, RunArgs};

    fn parse(line: &str) -> Result<Command, String> {
        crate::cli::parse(line.split(' ').map(OsString::from))
            .map(|typed| typed.command)
            .map_err(|e| e.render().to_string())
    }

    fn run(line: &str) -> RunArgs {
        match parse(line) {
            Ok(Command::Run(request)) => request,
            other => panic!("`{line}` gave {other:?}"),
        }
    }

    #[test]
    fn everything_behind_the_dashes_belongs_to_the_program() {
        let request = run("memgate run --filter A.* -- ./tests --filter B --suite x");
        assert_eq!(request.filter.as_deref(), Some("A.*"));
        assert_eq!(request.program, ["./tests", "--filter", "B", "--suite", "x"]);
        assert!(request.suites.is_empty() && !request.no_confirm);
    }

    #[test]
    fn durations_carry_their_unit() {
        for (typed, milliseconds) in [("250ms", 250), ("60s", 60_000), ("5m", 300_000)] {
            let request = run(&format!("memgate run --timeout {typed} -- x"));
            assert_eq!(request.timeout, Some(Duration::from_millis(milliseconds)), "{typed}");
        }
        for typed in ["60", "s", "0s", "-1s", "1h", "99999999999999999999s", "18446744073709551615m"] {
            let error = parse(&format!("memgate run --timeout={typed} -- x")).unwrap_err();
            assert!(error.contains("write 250ms, 60s or 5m"), "{typed}: {error}");
        }
    }

    /// What a user reads, to be read from top to bottom.
    #[test]
    fn wrong_command_lines_are_told_with_the_reason() {
        let lines = [
            "memgate rnu -- ./tests",
            "memgate run ./tests",
            "memgate run --iterations 1 -- ./tests",
            "memgate run --timeout 60 -- ./tests",
            "memgate run --hunt soon -- ./tests",
            "memgate run --hunt 10m --no-confirm -- ./tests",
            "memgate run --target [ -- ./tests",
            "memgate run --device emulator-5554 -- ./tests",
            "memgate run --devices some",
            "memgate report --format pdf",
            "memgate report one two",
            "memgate waive n1-5f1c09a2b47d1e03 --reason r",
            "memgate waive n1-5f1c09a2b47d1e03 --reason … --until never",
            "memgate waive n1-5f1c09a2b47d1e03 --reason ... --until never",
            "memgate waive --reason r --until never",
            "memgate waive n1-5f1c09a2b47d1e03 --all --reason r --until never",
            "memgate waive leak --reason r --until never",
            "memgate waive n1-5f1c09a2b47d1e03 --reason r --until soon",
            "memgate waive n1-5f1c09a2b47d1e03 --reason r --until 2027-02-30",
            "memgate malloc-debug",
            "memgate malloc-debug a.bin --info-size 144",
            "memgate malloc-debug a.bin --sidecar b --info-size 1 --backtrace-size 1",
        ];
        let told = lines.map(|line| match parse(line) {
            Ok(command) => panic!("{line} is {command:?}"),
            Err(why) => format!("$ {line}\n{}\n", why.trim_end()),
        });
        insta::assert_snapshot!(told.join("\n"));
    }

    #[test]
    fn a_waiver_may_last_for_ever_or_until_a_day() {
        for (until, want) in
            [("never", Until::Never), ("2027-03-01", Until::Date(jiff::civil::date(2027, 3, 1)))]
        {
            let line =
                format!("memgate waive n1-5f1c09a2b47d1e03 --reason known --until {until} --owner @maps");
            match parse(&line) {
                Ok(Command::Waive(waive)) => {
                    assert_eq!((waive.until, waive.owner.as_deref()), (want, Some("@maps")));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn the_last_session_is_meant_where_none_is_named() {
        let Ok(Command::Report(report)) = parse("memgate report") else { panic!("not a report") };
        assert_eq!(report.session, PathBuf::from(".memgate/latest"));
        let Ok(Command::Baseline(BaselineCommand::Accept(accept))) = parse("memgate baseline accept") else {
            panic!("not accept")
        };
        assert_eq!(accept.session, PathBuf::from(".memgate/latest"));
    }

    #[test]
    fn the_command_line_is_well_formed() {
        crate::cli::command().debug_assert();
    }
}
