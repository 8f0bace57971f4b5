//! From the frames of JVMs to the report. Bytes 0 to 3 set how they are run. Each hello begins a process: the
//! first is the build's own, the second runs the rounds, the others repeat the suspects.
//!
//! Besides not crashing: a class that was not measured in the rounds does not pass.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::judged::{Named, SUITE, ending, is_sound, names, policy, records, run_of};
use crate::sealed;
use memgate_analysis::{ConfirmationInput, JavaConfirmation, JavaInput, ProcessInput, judge, screen_rounds};
use memgate_model::{BoundaryQuality, Runner, Verdict};

/// Bytes before the frames.
pub(crate) const PREFIX: usize = 4;

/// Runs one input.
///
/// # Panics
/// When a checked property does not hold; this is a finding.
pub fn run(data: &[u8]) {
    let Some((&[how, end, tuning, more], stream)) = data.split_first_chunk::<PREFIX>() else { return };
    let mut records = records(&sealed(stream)).into_iter();
    let Some(own) = records.next() else { return };
    let rounds = records.next();
    let policy = policy(tuning, more);
    let screened = rounds.as_ref().map(|record| screen_rounds(record, SUITE, &policy));
    let measured = matches!(screened, Some(Ok(_)));
    let mut confirmations = BTreeMap::new();
    for suspect in screened.and_then(Result::ok).unwrap_or_default() {
        let confirmation = match (how & 3, records.next()) {
            (0..3, Some(record)) => {
                let mut live = JavaConfirmation::new(&policy, SUITE, &suspect.suite);
                let _next = live.observe(&record, Duration::from_secs(1), Duration::ZERO);
                let _grew = live.leaks();
                ConfirmationInput::Repeated(std::sync::Arc::new(ProcessInput {
                    record,
                    ending: ending(end >> 3),
                }))
            }
            (3, _) => ConfirmationInput::Broken("it broke".to_owned()),
            _ => continue,
        };
        confirmations.insert(suspect.suite, confirmation);
    }
    let mut resolve = Named(names(&own));
    let process = |record| ProcessInput { record, ending: ending(end) };
    let java = JavaInput { rounds: rounds.into_iter().map(process).collect(), ..JavaInput::default() };
    let kind = (Runner::Junit, BoundaryQuality::Class);
    let input = run_of(kind, process(own), Some(java), confirmations);
    let report = judge(&input, &policy, &mut resolve);
    assert!(report.verdict != Verdict::Pass || measured, "what no rounds measured passes: {report:?}");
    is_sound(&report);
}
