//! Finds tests of a screened suite that should have run and did not, or ran too rarely. Each is a problem of its suite,
//! or a warning.

use std::collections::{BTreeMap, BTreeSet};

use memgate_analysis::{ProcessRecord, Window};
use memgate_history::shards::is_disabled;
use memgate_model::format_list;

use super::framework::Suite;
use super::gtest::{LIST_TIMEOUT, listing, reports_its_own_tests};
use crate::exit::chain;
use crate::run::engine::{Context, ran_tests};
use crate::session::facts::problem;
use crate::suite::gtest;

/// Maximum number of named tests that did not run.
const SHOWN_TESTS: usize = 10;

/// Tests that did not run because their process ended early.
pub(super) async fn broken_off(suite: &mut Suite) {
    let ran: BTreeSet<String> = suite
        .processes
        .iter()
        .flat_map(|p| {
            p.record.windows.iter().map(|w| w.id()).chain(p.record.open.iter().map(|open| open.id.clone()))
        })
        .collect();
    let mut problems = Vec::new();
    let breaks_off = |record: &ProcessRecord| !record.open.is_empty() || record.broke_off_between_tests();
    for process in suite.processes.iter().filter(|process| process.is_main() && breaks_off(&process.record)) {
        let ProcessRecord { open, windows, .. } = &process.record;
        let ended = match (open.first(), windows.last()) {
            (Some(open), _) => format!("in {}", open.id),
            (None, Some(window)) => format!("after {}", window.id()),
            (None, None) => "before its first test".to_owned(),
        };
        let unknown = |why: String| {
            Some(format!("the process ended {ended}; which tests did not run is not known: {why}"))
        };
        let missing = if reports_its_own_tests(process) {
            // It would run all its tests again. A test whose end it never reports is told by itself.
            let is_over = process.record.goodbye.is_some();
            if is_over { None } else { unknown("its program reports them itself (memgate.h)".to_owned()) }
        } else {
            match gtest::list_tests(listing(process), LIST_TIMEOUT).await {
                Ok(mut all) => {
                    all.retain(|test| !ran.contains(test) && !is_disabled(test));
                    told(&format!("did not run: the process ended {ended}"), &all)
                }
                Err(why) => unknown(format!("failed to {}", chain(&why))),
            }
        };
        problems.extend(missing.map(|what| problem(&suite.facts.name, what, "")));
    }
    suite.facts.problems.extend(problems);
}

/// Tests that were selected by name but ran in no process, though none ended early. Without visible boundaries there
/// are no names to compare.
pub(super) fn selected(suite: &mut Suite, selected: &[String]) {
    let records = || suite.processes.iter().map(|process| &process.record);
    let seen = |record: &ProcessRecord| record.iterations > 0 || ran_tests(record);
    if !records().any(seen) || records().any(|record| !record.open.is_empty()) {
        return;
    }
    let ran: BTreeSet<String> = records().flat_map(|record| record.windows.iter().map(Window::id)).collect();
    let missing: Vec<&String> =
        selected.iter().filter(|test| !ran.contains(*test) && !is_disabled(test)).collect();
    if !missing.is_empty() {
        let what = format!("{} fell to this shard and did not run", format_list(&missing, SHOWN_TESTS));
        let problem = problem(&suite.facts.name, what, "does the program choose tests itself?");
        suite.facts.problems.push(problem);
    }
}

/// `3 tests did not run (a, b, c)`; `None`: there are none.
pub(super) fn told<Name: AsRef<str>>(what: &str, tests: &[Name]) -> Option<String> {
    match tests {
        [] => None,
        [one] => Some(format!("{} {what}", one.as_ref())),
        more => Some(format!("{} tests {what} ({})", more.len(), format_list(more, SHOWN_TESTS))),
    }
}

/// Warns about tests that were repeated less often than the screening pass requested.
pub(super) fn repetitions(context: &Context<'_>, suite: &Suite) {
    let wanted = context.plan.screen_repetitions;
    let mut executions = BTreeMap::<String, u32>::new();
    for window in suite.processes.iter().flat_map(|process| &process.record.windows) {
        *executions.entry(window.id()).or_default() += 1;
    }
    let less = executions.values().filter(|executions| **executions < wanted).count();
    if less > 0 {
        let name = &suite.facts.name;
        let (tests, fewest) = (executions.len(), executions.values().min().copied().unwrap_or_default());
        context.console.warning(&format!(
            "{name}: the screen executed {less} of {tests} tests fewer than {wanted} times (the fewest: {fewest}): \
             only GoogleTest repeats its tests, and a --gtest_repeat of the command goes first"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_did_not_run_are_named_and_counted() {
        let names: Vec<String> = (0..12).map(|i| format!("A.t{i}")).collect();
        assert_eq!(told("did not run", &names[..0]), None);
        assert_eq!(told("did not run", &names[..1]).unwrap(), "A.t0 did not run");
        let many = told("did not run", &names).unwrap();
        assert!(many.starts_with("12 tests did not run (A.t0, "), "{many}");
        assert!(many.ends_with("A.t9 and 2 more)"), "{many}");
    }
}
