//! From frames to the report: observer, screen, judge, and every reporter. Bytes 0 to 3 set how the process
//! is run. Each hello begins a process: the first is the screen's, the others repeat its suspects.
//!
//! Besides not crashing: a test that was not measured to its end never passes.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::judged::{Named, SUITE, ending, is_sound, names, policy, records, run_of};
use crate::sealed;
use memgate::suite::gtest::{self, Repeat};
use memgate_analysis::{
    Confirmation, ConfirmationInput, ProcessInput, ProcessRecord, Repetition, complete, judge, screen,
    wanting,
};
use memgate_model::{BoundaryQuality, Runner, Verdict};
use memgate_wire::GoodbyeReason;

/// Bytes before the frames.
pub(crate) const PREFIX: usize = 4;

/// Runs one input.
///
/// # Panics
/// When a checked property does not hold; this is a finding.
pub fn run(data: &[u8]) {
    let Some((&[how, end, tuning, more], stream)) = data.split_first_chunk::<PREFIX>() else { return };
    let mut records = records(&sealed(stream));
    if records.is_empty() {
        return;
    }
    let mut repeated = records.split_off(1).into_iter();
    let boundary = [BoundaryQuality::Exact, BoundaryQuality::Process][usize::from(how & 1)];
    let policy = policy(tuning, more);
    let mut first = records.remove(0);
    let others: Vec<&ProcessRecord> = repeated.as_slice().iter().collect();
    (1..=others.len()).for_each(|runs| complete(&mut first, &others[..runs]));
    let _wanting = wanting(&first, SUITE, &policy);
    if let Some(hello) = &first.hello {
        let _again = gtest::confirm(hello, None, "*", Repeat::Times(3));
        let _suite = gtest::SuiteId::of(hello).to_string();
    }
    let suspects = screen(&[&first], SUITE, &policy);
    let mut confirmations = BTreeMap::new();
    for suspect in suspects {
        let confirmation = match (more >> 2 & 3, repeated.next()) {
            (0 | 1, Some(record)) => {
                let mut live = Confirmation::new(&policy, SUITE, &suspect.test);
                let _next = live.observe(&record, Duration::from_secs(1));
                ConfirmationInput::Repeated(std::sync::Arc::new(ProcessInput {
                    record,
                    ending: ending(end >> 3),
                }))
            }
            (2, Some(record)) => {
                let runs = [Some(record), repeated.next(), repeated.next()];
                let run = |(i, record): (usize, ProcessRecord)| Repetition {
                    n: u64::from(how) << (i * 20),
                    process: ProcessInput { record, ending: ending(end >> 3) },
                };
                ConfirmationInput::Lengths(runs.into_iter().flatten().enumerate().map(run).collect())
            }
            (3, _) => ConfirmationInput::Broken("it broke".to_owned()),
            _ => continue,
        };
        confirmations.insert(
            if boundary == BoundaryQuality::Process { SUITE.to_owned() } else { suspect.test },
            confirmation,
        );
    }
    let whole = first.hello.as_ref().is_some_and(|hello| hello.blind.is_none())
        && first.goodbye.is_some()
        && first.damaged.is_none();
    let became_another = first.goodbye.as_ref().is_some_and(|g| g.reason == GoodbyeReason::Exec);
    let is_main = first.is_main();
    let mut resolve = Named(names(&first));
    let screen = ProcessInput { record: first, ending: ending(end) };
    let input = run_of((Runner::Gtest, boundary), screen, None, confirmations);
    let report = judge(&input, &policy, &mut resolve);
    if report.verdict == Verdict::Pass && report.exit_code == 0 {
        assert!(
            whole && is_main && !became_another,
            "what was not measured to its end passes: whole {whole}, main {is_main}, exec {became_another}: {report:?}"
        );
        assert!(report.suites.iter().any(|suite| !suite.tests.is_empty()), "no test is never a pass");
    }
    is_sound(&report);
}
