//! What screening a JVM suite cost, as a multiple of what the suite takes alone. Read from the
//! streams, so that it is the same when they are judged again.
//!
//! The suite alone is what the build's own virtual machines needed from their first test to their
//! last, without the boundaries in between. Screening adds these boundaries, and the rounds with
//! the virtual machine they run in.

use std::time::Duration;

use memgate_model::ScreenCost;

use crate::input::ProcessInput;
use crate::record::ProcessRecord;

/// `None`: nothing was added, or there is nothing to compare with.
pub(super) fn cost(build: &[ProcessInput], rounds: &[ProcessInput]) -> Option<ScreenCost> {
    let seconds = |ns: u64| Duration::from_nanos(ns).as_secs_f64();
    let sum = |of: &[ProcessInput], ns: fn(&ProcessRecord) -> u64| {
        of.iter()
            .map(|process| &process.record)
            .filter(|record| record.is_main())
            .map(ns)
            .fold(0, u64::saturating_add)
    };
    let boundaries = sum(build, at_boundaries);
    let added =
        boundaries.saturating_add(sum(rounds, |record| last_end(record).saturating_sub(record.first_ns)));
    let alone = sum(build, between_tests).saturating_sub(boundaries);
    (alone > 0 && added > 0).then(|| {
        let (alone_s, screened_s) = (seconds(alone), seconds(alone.saturating_add(added)));
        ScreenCost { alone_s, screened_s, ratio: screened_s / alone_s }
    })
}

fn last_end(record: &ProcessRecord) -> u64 {
    record.windows.iter().map(|window| window.end_ns).max().unwrap_or(record.first_ns)
}

fn between_tests(record: &ProcessRecord) -> u64 {
    let first = record.windows.iter().map(|window| window.start_ns).min();
    first.map_or(0, |first| last_end(record).saturating_sub(first))
}

/// A process that was killed does not tell.
fn at_boundaries(record: &ProcessRecord) -> u64 {
    record.goodbye.as_ref().map_or(0, |goodbye| goodbye.cost.boundary_ns)
}
