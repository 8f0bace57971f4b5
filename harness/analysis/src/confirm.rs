//! Decides when a test that is repeated alone has run often enough.
//!
//! It never stops before the iterations that the policy asks for.
//!
//! It reports a one-time cost when nothing has changed since the warm-up: for so many iterations that a rare leak would
//! have shown, or for as long as a leak is watched. It reports a leak only after that time, because a bounded cache
//! that is still filling grows by the same amount in every iteration. Between these it continues until every series is
//! decided or the limits are reached.
//!
//! A hunt ([`Confirmation::hunting`]) continues for its given time instead, and longer while something that rose may
//! rise again.

use std::time::Duration;

use memgate_model::{Frame, Kind, Metric};
use memgate_wire::{Counters, Outcome};

use crate::groups::{self, OsKind, Places};
use crate::growth::{Finding, Growth, is_over_exactly, judge_exact, judge_series};
use crate::policy::GatePolicy;
use crate::record::{Mapped, OsState, ProcessRecord, Window, sum};
use crate::repetition::{RepetitionLimits, limited, next_look};
use crate::resolve::{ByAddress, Resolve, ResolvedStack};
use crate::screen::os_value;
use crate::stats::float;

/// A test that has grown by this much is repeated no further. When the memory of the machine or its container is full,
/// allocations fail, and growth would seem to stop.
pub const ENOUGH_BYTES: u64 = 256 << 20;

/// The same for the number of mappings: a process may have some 65,000.
const ENOUGH_MAPPINGS: u64 = 1 << 14;

/// The same for System V segments: they stay when the process ends, and a system usually allows 4,096.
const ENOUGH_SEGMENTS: u64 = 64;

/// The same for threads: a container may not allow many more.
const ENOUGH_THREADS: u64 = 1 << 10;

/// Usual limit of descriptors, if the real one is unknown.
const USUAL_DESCRIPTORS: u64 = 1 << 10;

/// Limit on the executions of a hunt, to keep the stream of a very fast test small.
pub(crate) const HUNTED_EXECUTIONS: usize = 5000;

/// How long a hunt repeats one test. The start of its process counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HuntTime {
    /// While nothing grows, or while growth is certain.
    pub share: Duration,
    /// While growth is undecided.
    pub most: Duration,
}

/// Watches the repetitions of one test.
#[derive(Debug)]
pub struct Confirmation {
    test: String,
    limits: Vec<(Metric, f64)>,
    run: RepetitionLimits,
    hunt: Option<HuntTime>,
    /// Windows of the record that were read.
    looked_at: usize,
    /// Ends of the test among them. `first` and `last` are the counters at the first and the last end.
    ends: usize,
    first: Option<Counters>,
    last: Option<Counters>,
    last_os: Option<OsState>,
    /// Descriptors and threads that the last execution added.
    opened: (u64, u64),
    /// Limit of descriptors for the process.
    descriptors: u64,
    /// Mappings at the first end and at the last end.
    first_mapped: Option<Mapped>,
    last_mapped: Option<Mapped>,
    failed: bool,
    /// Iteration that last changed anything.
    changed: usize,
    next_check: usize,
}

/// Whether to repeat the test again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Another iteration is needed.
    Continue,
    /// Something grows, and the agent must report who holds it. Only [`crate::JavaConfirmation`] returns this, once or
    /// twice.
    Explain,
    /// Enough is known, or more iterations would not help.
    Stop,
}

impl Confirmation {
    /// For the test `test` of `suite`.
    #[must_use]
    pub fn new(policy: &GatePolicy, suite: &str, test: &str) -> Self {
        let run = RepetitionLimits::of(policy);
        Self {
            test: test.to_owned(),
            limits: limited(policy, suite, test, |_| true),
            run: RepetitionLimits { cap: run.cap.max(run.unchanged.saturating_add(1)), ..run },
            hunt: None,
            looked_at: 0,
            ends: 0,
            first: None,
            last: None,
            last_os: None,
            opened: (0, 0),
            descriptors: USUAL_DESCRIPTORS,
            first_mapped: None,
            last_mapped: None,
            failed: false,
            changed: 0,
            next_check: 0,
        }
    }

    /// Sets the limit of descriptors for its process.
    #[must_use]
    pub fn with_descriptors(self, descriptors: u64) -> Self {
        Self { descriptors, ..self }
    }

    /// Runs for this time instead of stopping when enough is known.
    #[must_use]
    pub fn hunting(mut self, time: HuntTime) -> Self {
        self.hunt = Some(time);
        self.run.cap = HUNTED_EXECUTIONS;
        self
    }

    /// Must be called after each end of the test (after its OS sample, if there is one). `elapsed` is the time since
    /// the first iteration began; in a hunt, since its process was started.
    pub fn observe(&mut self, record: &ProcessRecord, elapsed: Duration) -> Next {
        for window in record.windows.get(self.looked_at..).unwrap_or_default() {
            if window.is(&self.test) {
                self.look_at(window);
            }
        }
        self.looked_at = record.windows.len();
        if self.enough(record, elapsed) { Next::Stop } else { Next::Continue }
    }

    fn look_at(&mut self, window: &Window) {
        self.ends += 1;
        self.failed |= window.outcome.is_some_and(|o| o != Outcome::Passed);
        let live = |c: &Counters| (c.live_bytes(), c.live_allocations());
        let same = self.last.as_ref().is_some_and(|last| live(last) == live(&window.end))
            && window.changes.is_empty()
            && self.same_os(window.os_end.as_ref())
            && self.last_mapped == window.mapped_end;
        if !same {
            self.changed = self.ends;
        }
        self.first.get_or_insert(window.end);
        self.last = Some(window.end);
        if self.first_mapped.is_none() {
            self.first_mapped.clone_from(&window.mapped_end);
        }
        self.last_mapped.clone_from(&window.mapped_end);
        self.opened = match (&self.last_os, &window.os_end) {
            (Some(last), Some(now)) => {
                let more = |of: fn(&OsState) -> u64| of(now).saturating_sub(of(last));
                (more(OsState::fd_count), more(OsState::thread_count))
            }
            _ => (0, 0),
        };
        self.last_os = window.os_end.clone().or(self.last_os.take());
    }

    /// Would a few more executions use up all descriptors or threads? Then none can be opened, and growth would seem to
    /// stop.
    fn runs_out(&self) -> bool {
        let Some(last) = &self.last_os else { return false };
        // If `most` or more were open before the last execution, the real limit is evidently higher.
        let is_near = |count: u64, opened: u64, most: u64| {
            let before = count.saturating_sub(opened);
            opened > 0 && before < most && count.saturating_add(opened.saturating_mul(2)) >= most
        };
        let (descriptors, threads) = self.opened;
        is_near(last.fd_count(), descriptors, self.descriptors)
            || is_near(last.thread_count(), threads, ENOUGH_THREADS)
    }

    /// Resident memory always changes a little; only its slope counts.
    fn same_os(&self, now: Option<&OsState>) -> bool {
        match (&self.last_os, now) {
            (Some(last), Some(now)) => last.holds_the_same(now),
            _ => true,
        }
    }

    fn enough(&mut self, record: &ProcessRecord, elapsed: Duration) -> bool {
        let is_most = self.ends >= self.run.cap;
        if self.failed || record.damaged.is_some() || is_most && self.hunt.is_some() {
            return true;
        }
        if self.hunt.is_some_and(|hunt| elapsed >= hunt.most) {
            return true;
        }
        if self.runs_out() {
            return true;
        }
        if self.ends < self.run.fewest {
            return false;
        }
        if self.grown_bytes() > ENOUGH_BYTES
            || self.grown(|mapped| sum(&mapped.counts)) > ENOUGH_MAPPINGS
            || self.grown(Mapped::segments) > ENOUGH_SEGMENTS
        {
            return true;
        }
        if let Some(hunt) = self.hunt {
            return self.hunted_enough(record, elapsed, hunt);
        }
        if !self.has_changed() {
            return is_most || self.ends - self.changed >= self.run.unchanged || elapsed >= self.run.min_run;
        }
        let is_due = self.ends >= self.next_check && (is_most || elapsed >= self.run.min_run);
        if !is_due && self.ends != self.run.cap {
            return self.ends >= self.run.patient_cap();
        }
        self.next_check = next_look(self.ends);
        let growths = self.growths(record);
        let paused = growths.iter().any(|g| g.paused);
        // Beyond the cap, only if nothing else has failed the test already.
        let all_paused = growths.iter().all(|g| g.paused || g.finding == Finding::Still);
        let has_more = !is_most || all_paused && self.ends < self.run.patient_cap();
        if paused && has_more && elapsed < self.run.patience() {
            return false;
        }
        let decided = growths.iter().all(|g| g.finding != Finding::Open);
        decided || self.ends >= self.run.most || is_most
    }

    /// Did anything change after the warm-up?
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.changed > self.run.warm_up.max(1)
    }

    fn hunted_enough(&mut self, record: &ProcessRecord, elapsed: Duration, hunt: HuntTime) -> bool {
        if self.changed <= 1 {
            return elapsed >= hunt.share;
        }
        if self.ends < self.next_check {
            return false;
        }
        self.next_check = next_look(self.ends);
        let growths = self.growths(record);
        let open = growths.iter().any(|g| g.paused || g.finding == Finding::Open);
        let grows = growths.iter().any(|g| g.finding == Finding::Grows);
        !open && elapsed >= if grows { self.run.min_run } else { hunt.share }
    }

    /// Did it run as often as the policy asks for before a verdict?
    #[must_use]
    pub const fn ran_its_least(&self) -> bool {
        self.ends >= self.run.fewest
    }

    /// Are the repetitions in this record enough?
    #[must_use]
    pub fn is_known(mut self, record: &ProcessRecord, elapsed: Duration) -> bool {
        self.observe(record, elapsed) == Next::Stop
    }

    /// The same for repetitions in a user's own run. A few executions cannot distinguish a rare leak from a one-time
    /// cost, nor a leak from a cache that is filling.
    #[must_use]
    pub fn is_known_from_screen(self, record: &ProcessRecord) -> bool {
        let test = self.test.clone();
        let mut windows = record.windows_of(&test);
        let Some(first) = windows.next() else { return false };
        let end_ns = windows.last().unwrap_or(first).end_ns;
        self.is_known(record, Duration::from_nanos(end_ns.saturating_sub(first.start_ns)))
    }

    /// May anything that has a limit grow in this record?
    pub(crate) fn may_grow(&self, record: &ProcessRecord) -> bool {
        self.growths(record).iter().any(|growth| growth.finding != Finding::Still)
    }

    /// Does anything that has a limit grow in this record?
    pub(crate) fn grows(&self, record: &ProcessRecord) -> bool {
        self.growths(record).iter().any(|growth| growth.finding == Finding::Grows)
    }

    fn grown_bytes(&self) -> u64 {
        let live = |counters: &Option<Counters>| counters.as_ref().map_or(0, Counters::live_bytes);
        live(&self.last).saturating_sub(live(&self.first)).max(self.grown(Mapped::total))
    }

    fn grown(&self, of: impl Fn(&Mapped) -> u64) -> u64 {
        let of = |mapped: &Option<Mapped>| mapped.as_ref().map_or(0, &of);
        of(&self.last_mapped).saturating_sub(of(&self.first_mapped))
    }

    /// Every series that the verdict will use, with single stacks instead of their later groups.
    fn growths(&self, record: &ProcessRecord) -> Vec<Growth> {
        let windows: Vec<_> = record.windows_of(&self.test).collect();
        let states = groups::os_states(&windows);
        let mut by_stack = ByStack;
        let groups = groups::series(&self.test, &mut Places::new(record, &mut by_stack));
        let block = groups::smallest_block(&groups);
        let mut growths = Vec::new();
        for &(metric, limit) in &self.limits {
            // Only the test opens and allocates. Resident memory depends on the system as well.
            let resident = metric.kind() == Kind::Resident;
            let mut judge = |values: &[f64], block: f64| {
                let allowed = self.run.allowed(limit, block);
                let judge = if resident { judge_series } else { judge_exact };
                growths.push(judge(values, allowed));
            };
            match metric {
                Metric::NativeLiveBytes => {
                    judge(&groups::totals(&windows, Counters::live_bytes), block);
                    let open = groups.iter().filter(|g| !is_over_exactly(&g.bytes, self.run.warm_up));
                    open.for_each(|g| judge(&g.bytes, g.block));
                }
                Metric::NativeLiveAllocations => {
                    judge(&groups::totals(&windows, Counters::live_allocations), 1.0);
                }
                Metric::NativeMappedBytes => {
                    let values: Vec<_> =
                        windows.iter().filter_map(|w| Some(float(w.mapped_end.as_ref()?.total()))).collect();
                    if !values.is_empty() {
                        judge(&values, OsKind::Mapping.block());
                    }
                }
                _ => {
                    let values: Vec<_> = states.iter().filter_map(|os| os_value(os, metric)).collect();
                    if !values.is_empty() {
                        judge(&values, if resident { 0.0 } else { 1.0 });
                    }
                }
            }
        }
        growths
    }
}

/// Growth can be judged without symbols.
struct ByStack;

impl Resolve for ByStack {
    fn frames(&mut self, record: &ProcessRecord, stack: u32) -> ResolvedStack {
        // A library that is closed and loaded again allocates with another stack each time.
        if record.modules.len() > 1 {
            return ByAddress.frames(record, stack);
        }
        let frame = Frame { offset: u64::from(stack), ..Frame::default() };
        ResolvedStack { frames: vec![frame], truncated: false }
    }
}

#[cfg(test)]
mod tests {
    use memgate_wire::{Frame as Wired, MappedKind, Module, Modules, StackNode, Stacks};

    use super::*;
    use crate::dsl::Process;
    use crate::observer::Observer;

    /// Iterations until it stops. Each iteration takes this long.
    fn stops_after(iteration_ms: u64, body: impl Fn(&mut Process, u32)) -> usize {
        stops(&GatePolicy::default(), iteration_ms, body)
    }

    fn stops(policy: &GatePolicy, iteration_ms: u64, body: impl Fn(&mut Process, u32)) -> usize {
        let mut p = Process::confirm();
        let mut observer = Observer::new();
        let mut confirmation = Confirmation::new(policy, "engine", "A.a");
        for i in 0..10_000 {
            p.run("A.a", i, |p| body(p, i));
            p.pass_to(&mut observer);
            let elapsed = Duration::from_millis(iteration_ms * u64::from(i + 1));
            if confirmation.observe(observer.record(), elapsed) == Next::Stop {
                return i as usize + 1;
            }
        }
        panic!("never stops")
    }

    #[test]
    fn a_one_time_cost_is_told_when_a_rare_leak_would_have_shown_or_after_two_seconds() {
        let once = |p: &mut Process, i: u32| {
            if i == 0 {
                p.alloc(1, 12 * 1024, 1)
            }
        };
        assert_eq!(stops_after(1, once), 91);
        assert_eq!(stops_after(20, once), 91);
        assert_eq!(stops_after(100, once), 20);
        assert_eq!(stops_after(1000, once), 13);
        assert_eq!(stops_after(1, |_, _| ()), 91);
    }

    /// A cost that settles within the warm-up counts like a one-time cost.
    #[test]
    fn a_cost_of_the_first_executions_takes_no_longer_than_one_of_the_first() {
        let at = |last: u32| {
            stops_after(1, move |p, i| {
                if i <= last {
                    p.alloc(1, 96, 1)
                }
            })
        };
        assert_eq!((at(0), at(1), at(2)), (91, 92, 93));
        assert!(at(3) > 1000, "{}", at(3));
    }

    /// Regression: each of its stacks was a leak of its own. Judging them took so long that the process no longer
    /// waited for the order to copy itself, so the leak had no holder.
    #[test]
    fn a_leak_of_a_library_that_each_execution_loads_again_is_one_leak() {
        let mut p = Process::confirm();
        for i in 0..60_u32 {
            let start = 0x10_0000 * u64::from(i + 1);
            let path = "/srv/plugin.so".to_owned();
            let module = Module { start, end: start + 0x1000, bias: start, path, build_id: Vec::new() };
            p.frame(Wired::Modules(Modules { generation: i, modules: vec![module] }));
            let nodes = vec![StackNode { id: 100 + i, parent: 0, pc: start + 0x40 }];
            p.frame(Wired::Stacks(Stacks { generation: i, nodes }));
            p.run("A.a", i, |p| p.alloc(100 + i, 48, 1));
        }
        let growths = Confirmation::new(&GatePolicy::default(), "engine", "A.a").growths(&p.end());
        let found: Vec<_> = growths.iter().filter(|growth| growth.finding != Finding::Still).collect();
        let slopes: Vec<_> = found.iter().map(|growth| (growth.slope.slope, growth.paused)).collect();
        assert_eq!(slopes, [(48.0, false); 2], "the total, and one group");
    }

    #[test]
    fn a_run_that_was_cut_short_is_not_known() {
        let policy = GatePolicy::default();
        let known = |executions: u32, ms: u64| {
            let mut p = Process::confirm();
            for i in 0..executions {
                p.run("A.a", i, |p| p.alloc(1, 37, 1));
            }
            Confirmation::new(&policy, "engine", "A.a").is_known(&p.end(), Duration::from_millis(ms))
        };
        assert!(!known(4, 4000), "too few executions");
        assert!(!known(500, 500), "a cache that is filling would look alike");
        assert!(known(200, 2000));
    }

    /// Regression test: five executions of a user's own `--gtest_repeat` were enough to report a one-time cost.
    #[test]
    fn what_a_user_repeats_a_few_times_is_not_known() {
        let policy = GatePolicy::default();
        let known = |executions: u32, leaks: u32| {
            let mut p = Process::screen();
            for i in 0..executions {
                p.run("A.a", i, |p| {
                    if i < leaks {
                        p.alloc(1, 37, 1)
                    }
                });
            }
            Confirmation::new(&policy, "engine", "A.a").is_known_from_screen(&p.end())
        };
        assert!(!known(5, 1) && !known(20, 1), "a rarer leak may come");
        assert!(!known(20, 20), "a cache that is filling would look alike");
        assert!(known(91, 1));
        assert!(!known(0, 0), "it did not run");
    }

    /// Executions of 1 ms until a hunt ends: one second, or three at most.
    fn hunt_stops(body: impl Fn(&mut Process, u32)) -> usize {
        let mut p = Process::confirm();
        let mut observer = Observer::new();
        let time = HuntTime { share: Duration::from_secs(1), most: Duration::from_secs(3) };
        let mut hunt = Confirmation::new(&GatePolicy::default(), "engine", "A.a").hunting(time);
        for i in 0..10_000 {
            p.run("A.a", i, |p| body(p, i));
            p.pass_to(&mut observer);
            if hunt.observe(observer.record(), Duration::from_millis(u64::from(i + 1))) == Next::Stop {
                return i as usize + 1;
            }
        }
        panic!("never stops")
    }

    #[test]
    fn a_hunt_takes_its_share_and_more_while_something_may_rise_again() {
        let chunks = |at: &'static [u32]| {
            hunt_stops(move |p, i| {
                if at.contains(&i) {
                    p.alloc(1, 65_536, 1)
                }
            })
        };
        assert_eq!(chunks(&[]), 1000);
        assert_eq!(chunks(&[0]), 1000, "a one-time cost");
        assert!((1000..1130).contains(&chunks(&[0, 20])), "and what came to rest");
        assert_eq!(chunks(&[900]), 3000, "as long as it may");
        let leak = hunt_stops(|p, i| {
            if i % 250 == 249 {
                p.alloc(1, 65_536, 1)
            }
        });
        assert!((2000..2300).contains(&leak), "a leak is known after two seconds: {leak}");
    }

    #[test]
    fn what_was_asked_for_is_a_minimum() {
        let policy = GatePolicy { iterations: 200, max_iterations: 200, ..GatePolicy::default() };
        assert_eq!(stops(&policy, 1, |_, _| ()), 203);
        assert_eq!(stops(&policy, 1000, |_, _| ()), 203);
        let policy = GatePolicy { rarest_leak: 1000, ..GatePolicy::default() };
        assert_eq!(stops(&policy, 0, |_, _| ()), 4604, "the cap gives way");
    }

    /// The last of a few steps is long ago: more may come, or none.
    #[test]
    fn what_may_be_a_rare_leak_is_watched_longer_than_a_cache_that_is_full() {
        let steps = |at: &'static [u32]| {
            stops_after(40, move |p, i| {
                if at.contains(&i) {
                    p.alloc(1, 37, 1)
                }
            })
        };
        let rare = steps(&[0, 9, 21]);
        assert!((60..75).contains(&rare), "{rare}");
        let cache = steps(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert!((50..60).contains(&cache), "{cache}");
    }

    #[test]
    fn a_leak_takes_ten_iterations_and_two_seconds() {
        let leak = |p: &mut Process, _: u32| p.alloc(1, 37, 1);
        assert_eq!(stops_after(1, leak), 2000);
        assert_eq!(stops_after(10, leak), 200);
        assert_eq!(stops_after(1000, leak), 13);
    }

    #[test]
    fn a_fast_cache_that_has_just_filled_up_is_watched_until_it_is_settled() {
        let ring = |entries: u32| {
            stops_after(0, move |p, i| {
                if i < entries {
                    p.alloc(1, 37, 1)
                }
            })
        };
        assert!((2000..2400).contains(&ring(900)), "{}", ring(900));
        assert!((3300..3900).contains(&ring(1490)), "{}", ring(1490));
        assert_eq!(ring(1900), 2000, "it still fills up");
        let beside_a_leak = stops_after(0, |p, i| {
            p.alloc(2, 24, 1);
            if i < 1490 {
                p.alloc(1, 37, 1)
            }
        });
        assert_eq!(beside_a_leak, 2000, "it fails anyway");
        let leak = stops_after(0, |p, i| {
            if i % 2 == 0 {
                p.alloc(1, 37, 1)
            }
        });
        assert_eq!(leak, 2000);
    }

    #[test]
    fn a_large_leak_is_not_repeated_until_memory_ends() {
        assert_eq!(stops_after(1, |p, _| p.alloc(1, 20 << 20, 1)), 14);
        assert_eq!(stops_after(1, |p, _| p.alloc(1, 1 << 30, 1)), 13);
    }

    #[test]
    fn segments_that_outlive_the_process_are_not_made_until_there_are_no_more() {
        let kept =
            |kind| stops_after(1, move |p, i| p.mapped(7, kind, u64::from(i) + 1, 4096 * (u64::from(i) + 1)));
        assert_eq!(kept(MappedKind::Unremoved), 66, "of 4096 on most systems");
        assert_eq!(kept(MappedKind::Segment), 2000, "detached when the process ends");
    }

    #[test]
    fn descriptors_and_threads_are_not_repeated_until_there_are_no_more() {
        let opens =
            |count: usize| move |p: &mut Process, _: u32| (0..count).for_each(|_| p.fds.push("/tmp/log"));
        assert_eq!(stops_after(1, opens(1)), 1019, "of 1024, three are open");
        assert_eq!(stops_after(1, opens(40)), 24);
        assert_eq!(stops_after(1, opens(300)), 2, "one more, and there may be none left");
        assert_eq!(
            stops_after(1, |p, i| if i == 0 {
                opens(900)(p, i)
            }),
            91,
            "a one-time cost"
        );
        assert!(stops_after(1, |p, _| (0..30).for_each(|_| p.threads.push("worker"))) < 40);
        let others = |p: &mut Process, i: u32| match i {
            0 => (0..1100).for_each(|_| p.threads.push("pool")),
            _ => p.threads.push("worker"),
        };
        assert!(stops_after(20, others) >= 100, "it has more than that anyway");
    }

    #[test]
    fn a_leak_in_every_third_iteration_is_not_taken_for_a_one_time_cost() {
        let third = |p: &mut Process, i: u32| {
            if i.is_multiple_of(3) {
                p.alloc(1, 37, 1)
            }
        };
        assert!(stops_after(10, third) >= 200);
    }

    #[test]
    fn a_descriptor_or_a_thread_more_is_a_change() {
        assert!(stops_after(10, |p, _| p.fds.push("/tmp/log")) >= 200);
        assert!(stops_after(10, |p, _| p.threads.push("worker")) >= 200);
    }

    /// The cache is full after 80 iterations of 25 ms: 2 s. It is watched until it has been flat for long enough.
    #[test]
    fn a_cache_that_has_just_filled_up_is_watched_longer() {
        let lru = |p: &mut Process, i: u32| {
            p.alloc(1, 56, 5);
            if i >= 70 {
                p.free(1, 56, 5);
            }
        };
        let iterations = stops_after(20, lru);
        assert!((150..200).contains(&iterations), "{iterations}");
    }

    #[test]
    fn a_slow_undecided_test_is_given_up_at_forty() {
        // A new high now and then without falling back: neither clearly a trend nor clearly none.
        let wander = [5, 3, 8, 1, 9, 4, 2, 7, 6, 3, 8, 2, 5, 1, 9, 4];
        let body = |p: &mut Process, i: u32| {
            let level = wander[i as usize % 16] + u64::from(i / 12);
            p.alloc(1, level * 1000 + u64::from(i), 1);
            if i > 0 {
                let before = wander[(i as usize - 1) % 16] + u64::from((i - 1) / 12);
                p.free(1, before * 1000 + u64::from(i - 1), 1);
            }
        };
        let iterations = stops_after(1000, body);
        assert!((13..=43).contains(&iterations), "{iterations}");
    }

    #[test]
    fn a_test_that_fails_alone_is_not_repeated() {
        let mut p = Process::confirm().outcome(Outcome::Failed);
        p.run("A.a", 0, |_| ());
        let mut confirmation = Confirmation::new(&GatePolicy::default(), "engine", "A.a");
        assert_eq!(confirmation.observe(&p.cut(), Duration::ZERO), Next::Stop);
    }
}
