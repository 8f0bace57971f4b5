//! The user's own run of a command: started as the user would, with the exit status a shell gives.

use std::io::IsTerminal as _;

use memgate_analysis::ProcessRecord;
use memgate_launch::{Environment, Exit, Launch, Stream};

use crate::plan::PlannedSuite;

/// The command as the user would run it. The only difference: it is not in the foreground, so that Ctrl-C reaches only
/// memgate. Therefore it cannot read from the terminal.
pub(in crate::run) fn launch(planned: &PlannedSuite, filter: Option<&str>) -> Launch {
    let (program, arguments) =
        planned.command.split_first().map(|(p, a)| (p.clone(), a.to_vec())).unwrap_or_default();
    let mut launch = Launch::new(program, arguments);
    launch.directory.clone_from(&planned.directory);
    let mut set = planned.environment.clone();
    set.extend(filter.map(|filter| ("GTEST_FILTER".into(), filter.into())));
    launch.environment = Environment::Inherit { set, remove: planned.secrets.clone() };
    launch.stdin = if std::io::stdin().is_terminal() { Stream::Null } else { Stream::Inherit };
    launch
}

/// The exit status as a shell gives it.
pub(in crate::run) fn status(exit: Exit) -> i32 {
    match exit {
        Exit::Code(code) => code,
        Exit::Signal { number, .. } => 128 + number,
    }
}

pub(in crate::run) fn typed(planned: &PlannedSuite) -> String {
    planned.command.first().map(|program| program.to_string_lossy().into_owned()).unwrap_or_default()
}

pub(in crate::run) fn ran_tests(record: &ProcessRecord) -> bool {
    !record.windows.is_empty() || !record.open.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_told_as_a_shell_tells_it() {
        assert_eq!(status(Exit::Code(8)), 8);
        assert_eq!(status(Exit::Signal { number: 11, core_dumped: false }), 139);
    }
}
