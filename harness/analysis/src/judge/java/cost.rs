//! The cost of screening a JVM suite, as a multiple of the suite's own duration. It is computed from the streams, so
//! judging them again gives the same result.
//!
//! The suite's own duration is the time of the build's own virtual machines from their first test to their last,
//! without the boundaries. Screening adds these boundaries, and the rounds with their virtual machine.

use std::time::Duration;

use memgate_model::ScreenCost;

use crate::input::ProcessInput;
use crate::record::ProcessRecord;

/// `None`: nothing was added, or there is no duration to compare with.
pub(in crate::judge) fn cost(build: &[ProcessInput], rounds: &[ProcessInput]) -> Option<ScreenCost> {
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

/// 0 for a process that was killed: it reports no cost.
fn at_boundaries(record: &ProcessRecord) -> u64 {
    record.goodbye.as_ref().map_or(0, |goodbye| goodbye.cost.boundary_ns)
}
