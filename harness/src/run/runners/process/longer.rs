//! Runs with many repetitions, for a program that keeps more with each of a few: a bounded cache is then full.
//!
//! Single runs, each with four times as many repetitions, show how many the program can make in a short time; then a
//! series of runs up to this number is judged ([`memgate_analysis`] chooses it). A program whose time grows faster than
//! its repetitions takes too long in such a run, which is ended: the numbers below it are used.

use std::time::Duration;

use memgate_analysis::{ENOUGH_BYTES, ProcessRecord};

use super::{Ran, Work, run};
use crate::run::engine::{Budget, Context, Finished, Stopped};

/// The runs of a series.
const RUNS: u32 = 6;
/// The time of all runs of a series, measured in runs of the longest one, with the run that showed its time.
const SERIES: u32 = 5;
/// By how much the repetitions rise.
const FACTOR: u32 = 4;
/// More repetitions show nothing new.
const MOST: u32 = 6144;
/// How long the repetitions of one run may take, unless more are asked for.
const SHORT: Duration = Duration::from_millis(500);
/// A run may take so many times as long as expected, and a little more, because the machine may be busy.
const PATIENCE: u32 = 4;
const LEAST_PATIENCE: Duration = Duration::from_secs(3);
/// Most descriptors and threads that a run may keep: a process may have no more than 1,024.
const MOST_HANDLES: u64 = 256;

/// How quick a program is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    /// The time that each run takes, however few its repetitions are.
    start: Duration,
    /// The time of one repetition.
    repetition: Duration,
}

impl Pace {
    /// From the times of the runs with few repetitions.
    pub(super) fn of(times: &[Duration]) -> Self {
        // The longest run may have made a copy.
        let [first, .., last, _] = times else { return Self::default() };
        let [few, .., many, _] = super::COUNTS;
        // On a busy machine, one of them may have taken much longer than it needs.
        let at_most = times.iter().zip(super::COUNTS).map(|(time, n)| *time / n).min().unwrap_or_default();
        let repetition = at_most.min(last.saturating_sub(*first) / (many - few));
        Self { start: first.saturating_sub(repetition * few), repetition }
    }

    fn run(self, n: u32) -> Duration {
        self.start.saturating_add(self.repetition.saturating_mul(n))
    }

    /// After a run that took so long.
    fn after(self, n: u32, took: Duration) -> Self {
        Self { repetition: took.saturating_sub(self.start) / n, ..self }
    }
}

/// Adds the runs.
pub(super) async fn add(
    context: &mut Context<'_>,
    work: &Work<'_>,
    runs: &mut Vec<(u64, Finished)>,
    pace: Pace,
    budget: &Budget,
    show: &mut dyn FnMut(u64),
) -> Result<(), Stopped> {
    let shown = runs.len() as u64;
    let asked = context.plan.policy.iterations.next_multiple_of(RUNS);
    let (mut longest, mut pace) = (super::COUNTS[super::COUNTS.len() - 1], pace);
    let first = longest;
    loop {
        let [(_, few), .., (_, most)] = &runs[..] else { return Ok(()) };
        let kept = Kept::between(&few.record, &most.record);
        let Some(next) = next(longest, pace, asked, budget.left()) else { break };
        if !kept.allows(next / longest + 1) {
            break;
        }
        let limit = patience(pace, next, budget.left());
        let ran = run(context, work, next, limit, false, &mut || show(shown)).await?;
        let took = ran.took;
        if !keep(runs, next, ran) {
            break;
        }
        (longest, pace) = (next, pace.after(next, took));
    }
    if longest == first {
        return Ok(());
    }
    for part in 1..=RUNS {
        let n = longest / RUNS * part;
        let limit = patience(pace, n, budget.left());
        let ran = run(context, work, n, limit, part == RUNS, &mut || show(shown)).await?;
        if !keep(runs, n, ran) {
            break;
        }
    }
    Ok(())
}

/// Adds a run. Returns whether it ended as it should.
fn keep(runs: &mut Vec<(u64, Finished)>, n: u32, ran: Ran) -> bool {
    let Some(process) = ran.process else { return false };
    let is_whole = ran.exit.is_success() && process.record.end.is_some();
    // A run with few repetitions that breaks now does not replace the one that decides.
    if is_whole || n > super::COUNTS[super::COUNTS.len() - 1] {
        runs.push((u64::from(n), process));
    }
    is_whole
}

/// How many repetitions the next run makes, if it and its series may take so long.
fn next(longest: u32, pace: Pace, asked: u32, left: Duration) -> Option<u32> {
    let most = MOST.max(asked);
    let by_factor = longest.saturating_mul(FACTOR).min(most);
    let is_short = |n: u32| pace.repetition.saturating_mul(n) <= SHORT;
    let n = if is_short(by_factor) || by_factor <= asked { by_factor } else { asked };
    (n > longest && pace.run(n).saturating_mul(SERIES) <= left).then_some(n)
}

/// How long a run of `n` repetitions may take, in whole seconds.
fn patience(pace: Pace, n: u32, left: Duration) -> Duration {
    let patience = pace.run(n).saturating_mul(PATIENCE).saturating_add(LEAST_PATIENCE);
    Duration::from_secs(patience.min(left).as_secs() + 1)
}

/// What is left more by many repetitions than by few.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Kept {
    bytes: u64,
    handles: u64,
    /// Blocks that are no bytes.
    blocks: u64,
    /// System V segments stay in the system.
    segments: u64,
}

impl Kept {
    fn between(few: &ProcessRecord, many: &ProcessRecord) -> Self {
        let more = |of: fn(&ProcessRecord) -> u64| of(many).saturating_sub(of(few));
        Self {
            bytes: more(live_bytes).max(more(mapped_bytes)),
            handles: more(handles),
            blocks: more(live_blocks),
            segments: more(segments),
        }
    }

    /// Does the system have room for `times` as much? If nothing is kept, more repetitions are of no use.
    fn allows(self, times: u32) -> bool {
        let fits = |kept: u64, most: u64| kept.saturating_mul(u64::from(times)) <= most;
        self != Self::default()
            && self.segments == 0
            && fits(self.bytes, ENOUGH_BYTES)
            && fits(self.handles, MOST_HANDLES)
    }
}

/// What exit handlers free was there at the end of `main`.
fn live_bytes(record: &ProcessRecord) -> u64 {
    let ends = record.end.iter().chain(&record.main_end);
    ends.map(|end| end.counters.live_bytes()).max().unwrap_or_default()
}

fn live_blocks(record: &ProcessRecord) -> u64 {
    let ends = record.end.iter().chain(&record.main_end);
    ends.map(|end| end.counters.live_allocations()).max().unwrap_or_default()
}

fn mapped_bytes(record: &ProcessRecord) -> u64 {
    let mapped = record.end.iter().chain(&record.main_end).filter_map(|end| end.mapped.as_ref());
    mapped.map(memgate_analysis::Mapped::total).max().unwrap_or_default()
}

fn segments(record: &ProcessRecord) -> u64 {
    let mapped = record.end.iter().filter_map(|end| end.mapped.as_ref());
    mapped.map(memgate_analysis::Mapped::segments).max().unwrap_or_default()
}

fn handles(record: &ProcessRecord) -> u64 {
    let os = record.end.iter().chain(&record.main_end).filter_map(|end| end.os.as_ref());
    os.map(|os| os.fd_count().saturating_add(os.thread_count())).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENOUGH: Duration = Duration::from_secs(60);

    #[test]
    fn a_quick_program_repeats_thousands_of_times_and_a_slow_one_no_more_than_asked() {
        let up_to = |repetition: Duration, asked: u32, left: Duration| {
            let pace = Pace { repetition, ..Pace::default() };
            std::iter::successors(Some(24), |longest| next(*longest, pace, asked, left)).collect::<Vec<_>>()
        };
        let (us, ms) = (Duration::from_micros(1), Duration::from_millis(1));
        assert_eq!(up_to(us, 12, ENOUGH), [24, 96, 384, 1536, 6144]);
        assert_eq!(up_to(ms, 12, ENOUGH), [24, 96, 384]);
        assert_eq!(up_to(100 * ms, 12, ENOUGH), [24]);
        assert_eq!(up_to(100 * ms, 102, ENOUGH), [24, 96, 102], "--iterations 100");
        assert_eq!(up_to(100 * ms, 102, ENOUGH / 2), [24], "measure.confirm_budget");
        assert_eq!(up_to(us, 100_002, ENOUGH).last(), Some(&100_002));
    }

    /// A busy machine starts a large program in half a second. Its repetitions are still quick.
    #[test]
    fn the_time_in_which_a_program_starts_is_not_that_of_its_repetitions() {
        let ms = Duration::from_millis(1);
        let pace = Pace::of(&super::super::COUNTS.map(|n| 500 * ms + ms * n / 10));
        assert_eq!((pace.start, pace.repetition), (500 * ms, ms / 10));
        assert_eq!(next(24, pace, 12, ENOUGH), Some(96));
        assert_eq!(pace.after(96, 548 * ms).repetition, ms / 2);
        let one_late = [40, 42, 44, 46, 900, 50].map(|took| ms * took);
        assert_eq!(next(24, Pace::of(&one_late), 12, ENOUGH), Some(96));
        assert_eq!(next(24, pace, 12, Duration::from_secs(2)), None, "five runs take 2.5 s");
    }

    #[test]
    fn no_run_keeps_more_than_the_system_has() {
        let kept = Kept { bytes: 20 * 333, blocks: 20, ..Kept::default() };
        assert!(kept.allows(256));
        assert!(!Kept { bytes: 20 << 20, ..kept }.allows(16));
        assert!(Kept { handles: 20, ..kept }.allows(5), "96 repetitions");
        assert!(!Kept { handles: 92, ..kept }.allows(5), "384");
        assert!(!Kept { segments: 1, ..kept }.allows(2));
        assert!(!Kept::default().allows(2), "nothing grows");
    }
}
