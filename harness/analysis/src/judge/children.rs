//! Children that a program forks. They are not judged, so what they leave is reported.
//!
//! Some frameworks run each test in a child (Check). Such a program itself has nothing alive at its end.

use memgate_model::{BoundaryQuality, Metric, Per, format_bytes, format_counted};
use memgate_wire::{Counters, GoodbyeReason};

use super::context::JudgeContext;
use crate::input::SuiteInput;
use crate::policy::smallest_limit;
use crate::record::ProcessRecord;
use crate::stats::float;

/// Buffer sizes that glibc allocates for a stream on first use: for a file or pipe, and for a terminal.
const STREAM_BUFFERS: [u64; 2] = [4096, 1024];

/// Text on memory that forked children of a plain program left, if it is more than the program itself may leave.
pub(super) fn left(context: &JudgeContext<'_>, suite: &SuiteInput) -> Option<String> {
    if suite.boundary != BoundaryQuality::Process || suite.java.is_some() {
        return None;
    }
    let own: Vec<(u64, u64)> = suite.screen.iter().filter_map(|process| own(&process.record)).collect();
    let sum = |of: fn(&(u64, u64)) -> u64| float(own.iter().map(of).fold(0, u64::saturating_add));
    let (bytes, count) = (sum(|own| own.0), sum(|own| own.1));
    let is_too_much = |(metric, value)| {
        let limit = smallest_limit(context.policy, &suite.name, &suite.name, metric, Per::Iteration);
        limit.is_some_and(|limit| value > limit)
    };
    let metrics = [(Metric::NativeLiveBytes, bytes), (Metric::NativeLiveAllocations, count)];
    metrics.into_iter().any(is_too_much).then(|| {
        let (children, whose) = match own.len() {
            1 => ("a child".to_owned(), "its"),
            several => (format!("{several} children"), "their"),
        };
        format!(
            "not judged: {children} that it forked ended with {} in {} of {whose} own alive; to have tests judged that \
             run in a child, run them without a fork (Check: CK_FORK=no)",
            format_bytes(bytes),
            format_counted(count, "allocation")
        )
    })
}

/// Bytes and blocks that a forked child had at its end in addition to those of its parent, if any. The stream of a
/// child has only counters: there may be thousands of children.
fn own(record: &ProcessRecord) -> Option<(u64, u64)> {
    let becomes_another = record.goodbye.as_ref().is_some_and(|bye| bye.reason == GoodbyeReason::Exec);
    if record.is_main() || becomes_another {
        return None;
    }
    let (start, end) = (record.start?, record.end.as_ref()?.counters);
    let more = |of: fn(&Counters) -> u64| of(&end).saturating_sub(of(&start));
    let own = (more(Counters::live_bytes), more(Counters::live_allocations));
    let is_stream_buffer = own.1 == 1 && STREAM_BUFFERS.contains(&own.0);
    (own.1 > 0 && !is_stream_buffer).then_some(own)
}
