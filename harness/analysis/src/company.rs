//! A suspect that behaves differently alone, and so must be repeated together with the tests around it in the screen.
//!
//! Running alone gives a wrong result in two cases. The test leaves nothing of what the screen saw, because it needs an
//! earlier test. Or it grows by blocks that a later test would free (they are handed over). Repeating the tests of the
//! process in their order shows both.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use memgate_wire::setup::{BEHIND_ALL, OF_ALL};
use memgate_wire::{Outcome, SnapshotRecord};

use crate::confirm::{Confirmation, Next};
use crate::groups::{Held, OsKind, Places, Series, held, held_at_ends, series, smallest_block};
use crate::growth::{Allowed, Finding, judge_exact};
use crate::policy::GatePolicy;
use crate::random_names::RandomNames;
use crate::rare;
use crate::record::{Mapped, OsState, ProcessRecord, Window, sum};
use crate::resolve::ByAddress;
use crate::screen::{ENOUGH_REPETITIONS, left_too_much};
use crate::stats::{add, float};

/// A run in company ends after this many executions of tests, to keep its record small.
const MOST_WINDOWS: usize = 100_000;
/// It ends when the whole process has grown by this much.
const ENOUGH_BYTES: u64 = 256 << 20;
/// It ends at this many new descriptors or threads: a process may be limited to 1,024.
const ENOUGH_HANDLES: u64 = 1 << 9;
/// A slow suite is repeated for this many times the usual minimum time, so that a rare leak shows.
const PATIENCE: u32 = 3;

/// The tests to repeat together with `test`, in their order, so that it behaves as it did in `screened`. `None`: it
/// behaves the same alone, or it has no company.
#[must_use]
pub fn company(
    policy: &GatePolicy,
    suite: &str,
    test: &str,
    screened: &ProcessRecord,
    alone: &ProcessRecord,
) -> Option<Vec<String>> {
    let failed = |w: &Window| w.outcome.is_some_and(|outcome| outcome != Outcome::Passed);
    let few = alone.windows_of(test).count() < ENOUGH_REPETITIONS;
    if few || alone.damaged.is_some() || alone.windows_of(test).any(failed) {
        return None;
    }
    // Set-ups run with their tests.
    let windows: Vec<&Window> = screened.windows.iter().filter(|w| !w.is_setup()).collect();
    let at = windows.iter().position(|w| w.is(test) && left_too_much(w, suite, test, policy).is_some())?;
    let last = if is_unlike(screened, windows[at], alone, test) {
        at
    } else if Confirmation::new(policy, suite, test).grows(alone) {
        last_late_free(&windows, at)?
    } else {
        return None;
    };
    let mut tests: Vec<String> = Vec::new();
    for window in &windows[..=last] {
        let id = window.id();
        if !tests.contains(&id) {
            tests.push(id);
        }
    }
    (tests.len() > 1).then_some(tests)
}

/// The tests to repeat together with a set-up that was repeated with only one of them: all of its suite (or of the
/// process). `None`: alone it leaves what it left in `screened`, and nothing else grows that another test might have
/// freed.
#[must_use]
pub fn company_of_setup(
    policy: &GatePolicy,
    suite: &str,
    setup: &str,
    screened: &ProcessRecord,
    alone: &ProcessRecord,
) -> Option<Vec<String>> {
    let is_suspect = |w: &&Window| w.is(setup) && left_too_much(w, suite, setup, policy).is_some();
    let window = screened.windows.iter().find(is_suspect)?;
    if missing(screened, window, alone, setup).is_empty() && !grows_elsewhere(policy, screened, window, alone)
    {
        return None;
    }
    let is_of_all = [OF_ALL, BEHIND_ALL].contains(&window.test.as_str());
    let mut tests: Vec<String> = Vec::new();
    for window in screened.windows.iter().filter(|w| !w.is_setup() && (is_of_all || w.suite == window.suite))
    {
        let id = window.id();
        if !tests.contains(&id) {
            tests.push(id);
        }
    }
    (tests.len() > 1).then_some(tests)
}

/// Does anything grow alone at a place where `window` left nothing?
fn grows_elsewhere(
    policy: &GatePolicy,
    screened: &ProcessRecord,
    window: &Window,
    alone: &ProcessRecord,
) -> bool {
    let names = RandomNames::between([screened], [alone]);
    let (mut here, mut there) = (ByAddress, ByAddress);
    let (mut here, mut there) = (names.over(&mut here), names.over(&mut there));
    let left = held(&window.survivors, &mut Places::new(screened, &mut here));
    let left: BTreeSet<String> = left.iter().map(|group| group.place.id.clone()).collect();
    let grows = |group: &Series| {
        let Series { bytes, block, .. } = group;
        let (warm_up, confidence) = (policy.warm_up as usize, policy.confidence);
        judge_exact(bytes, Allowed { limit: 0.0, block: *block, warm_up, confidence }).finding
            == Finding::Grows
    };
    let all = series(&window.id(), &mut Places::new(alone, &mut there));
    all.iter().any(|group| !left.contains(&group.place.id) && grows(group))
}

/// Did `window` leave something that `test` never held at an end when it ran alone?
fn is_unlike(screened: &ProcessRecord, window: &Window, alone: &ProcessRecord, test: &str) -> bool {
    !missing(screened, window, alone, test).is_empty() || missing_os(window, alone, test).next().is_some()
}

/// Survivors of `window` at places where `test` never held as many allocations when it ran alone.
pub(crate) fn missing(
    screened: &ProcessRecord,
    window: &Window,
    alone: &ProcessRecord,
    test: &str,
) -> Vec<SnapshotRecord> {
    let names = RandomNames::between([screened], [alone]);
    let (mut here, mut there) = (ByAddress, ByAddress);
    let (mut here, mut there) = (names.over(&mut here), names.over(&mut there));
    let known = held_at_ends(test, &mut Places::new(alone, &mut there));
    let mut places = Places::new(screened, &mut here);
    let left = held(&window.survivors, &mut places);
    let is_missing = |group: &&Held| group.noted > known.get(&group.place.id).copied().unwrap_or_default();
    let ids: BTreeSet<String> = left.iter().filter(is_missing).map(|group| group.place.id.clone()).collect();
    window.survivors.iter().filter(|record| ids.contains(&places.of(record.stack).id)).copied().collect()
}

/// Survivors of `screened` as seen in `together`: their live bytes and allocations at the ends of `test`, the largest
/// number of allocations, and the smallest block size that changed.
pub(crate) struct Seen {
    pub(crate) bytes: Vec<f64>,
    pub(crate) counts: Vec<f64>,
    pub(crate) most: f64,
    pub(crate) block: f64,
}

/// See [`Seen`].
pub(crate) fn seen_again(
    screened: &ProcessRecord,
    records: &[SnapshotRecord],
    together: &ProcessRecord,
    test: &str,
) -> Seen {
    let names = RandomNames::between([screened], [together]);
    let (mut here, mut there) = (ByAddress, ByAddress);
    let (mut here, mut there) = (names.over(&mut here), names.over(&mut there));
    let mut places = Places::new(screened, &mut here);
    let ids: BTreeSet<String> = records.iter().map(|record| places.of(record.stack).id.clone()).collect();
    let mut places = Places::new(together, &mut there);
    let all = held_at_ends(test, &mut places);
    let most = all.iter().filter(|(id, _)| ids.contains(*id)).map(|(_, count)| *count).sum();
    let none = vec![0.0; together.windows_of(test).count()];
    let mut seen = Seen { bytes: none.clone(), counts: none, most, block: 0.0 };
    let grown: Vec<Series> =
        series(test, &mut places).into_iter().filter(|s| ids.contains(&s.place.id)).collect();
    for series in &grown {
        add(&mut seen.bytes, &series.bytes);
        add(&mut seen.counts, &series.counts);
    }
    seen.block = smallest_block(&grown);
    seen
}

/// Kinds of handles (descriptors, threads, mappings) of which `window` left more than `test` ever opened alone, and how
/// many it left.
pub(crate) fn missing_os<'a>(
    window: &'a Window,
    alone: &'a ProcessRecord,
    test: &'a str,
) -> impl Iterator<Item = (OsKind, f64)> + 'a {
    OsKind::ALL.into_iter().filter_map(move |kind| {
        let opened = |w: &Window| {
            let (start, end) = kind.at_start(w).zip(kind.at_end(w))?;
            Some(float(sum(end)) - float(sum(start)))
        };
        let most = alone.windows_of(test).filter_map(opened).max_by(f64::total_cmp)?;
        let left = opened(window)?;
        (left > 0.0 && left > most).then_some((kind, left))
    })
}

/// The last window after `at` in which something older than the window was freed, unmapped or closed, or directly
/// before which that happened.
fn last_late_free(windows: &[&Window], at: usize) -> Option<usize> {
    let old = |i: &usize| {
        let (before, window) = (windows[*i - 1], windows[*i]);
        let freed = window.survivors_known && frees_older(window);
        let open = |state: Option<&OsState>| state.map(|os| (os.fd_count(), os.thread_count()));
        let ends = [&before.os_end, &window.os_start, &window.os_end].map(|state| open(state.as_ref()));
        let closed = ends.windows(2).any(|pair| {
            let [Some(before), Some(after)] = *pair else { return false };
            after.0 < before.0 || after.1 < before.1
        });
        let mapped = [&before.mapped_end, &window.mapped_start, &window.mapped_end];
        let mapped = mapped.map(|mapped| mapped.as_ref().map(Mapped::total));
        let unmapped =
            mapped.windows(2).any(|pair| matches!(*pair, [Some(before), Some(after)] if after < before));
        closed || unmapped || freed || window.start.live_allocations() < before.end.live_allocations()
    };
    (at + 1..windows.len()).rev().find(old)
}

/// Did the window free blocks that are older than it?
fn frees_older(window: &Window) -> bool {
    let (start, end) = (&window.start, &window.end);
    if window.interval.is_none() {
        return start.live_allocations().saturating_add(window.survivor_count) > end.live_allocations();
    }
    // The agent rounds each block that it counts.
    let rounded = window.survivor_count.saturating_add(1);
    start.live_bytes().saturating_add(window.left_bytes()) > end.live_bytes().saturating_add(rounded)
}

/// Watches tests that are repeated together.
#[derive(Debug)]
pub struct Company {
    /// The suspects, and how often each has ended.
    ends: BTreeMap<String, usize>,
    iterations: usize,
    unchanged: usize,
    min_run: Duration,
    /// Time limit of the run.
    most: Duration,
    looked_at: usize,
}

impl Company {
    /// For these suspects. `most` is the time limit.
    #[must_use]
    pub fn new(policy: &GatePolicy, suspects: &[String], most: Duration) -> Self {
        Self {
            ends: suspects.iter().map(|test| (test.clone(), 0)).collect(),
            iterations: (policy.warm_up as usize).saturating_add(policy.iterations.max(2) as usize),
            unchanged: rare::executions_for(policy.rarest_leak),
            min_run: policy.min_run,
            most,
            looked_at: 0,
        }
    }

    /// Is this test one of the suspects?
    #[must_use]
    pub fn is_suspect(&self, test: &str) -> bool {
        self.ends.contains_key(test)
    }

    /// Must be called after each end of a test.
    pub fn observe(&mut self, record: &ProcessRecord, elapsed: Duration) -> Next {
        for window in record.windows.get(self.looked_at..).unwrap_or_default() {
            if let Some(ends) = self.ends.get_mut(&window.id()) {
                *ends += 1;
            }
        }
        self.looked_at = record.windows.len();
        let live = |window: Option<&Window>| window.map_or(0, |w| w.end.live_bytes());
        let grown = live(record.windows.last()).saturating_sub(live(record.windows.first()));
        let opened = |of: fn(&OsState) -> u64| {
            let at_end = |window: &Window| window.os_end.as_ref().map(of);
            let first = record.windows.first().and_then(at_end).unwrap_or_default();
            record.windows.last().and_then(at_end).unwrap_or_default().saturating_sub(first)
        };
        let runs_out = opened(OsState::fd_count).max(opened(OsState::thread_count)) > ENOUGH_HANDLES;
        let least = self.ends.values().copied().min().unwrap_or(0);
        let rare_would_show = least > self.unchanged && elapsed >= self.min_run;
        let enough = least >= self.iterations
            && (rare_would_show || elapsed >= self.min_run * PATIENCE || grown > ENOUGH_BYTES);
        let cut =
            elapsed >= self.most || self.looked_at >= MOST_WINDOWS || record.damaged.is_some() || runs_out;
        if enough || cut { Next::Stop } else { Next::Continue }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dsl::Process;
    use crate::observer::Observer;

    /// Three tests; `body` is the second.
    fn screened(body: impl Fn(&mut Process), behind: impl Fn(&mut Process)) -> ProcessRecord {
        let mut p = Process::screen();
        p.run("A.before", 0, |_| ());
        p.run("A.suspect", 0, body);
        p.run("A.behind", 0, behind);
        p.run("A.last", 0, |_| ());
        p.end()
    }

    fn alone(body: impl Fn(&mut Process, u32)) -> ProcessRecord {
        let mut p = Process::confirm();
        (0..20).for_each(|i| p.run("A.suspect", i, |p| body(p, i)));
        p.end()
    }

    /// As [`alone`], but only the first execution leaves something.
    fn first_alone(body: impl Fn(&mut Process)) -> ProcessRecord {
        alone(|p, i| {
            if i == 0 {
                body(p)
            }
        })
    }

    fn of(screened: &ProcessRecord, alone: &ProcessRecord) -> Option<Vec<String>> {
        company(&GatePolicy::default(), "engine", "A.suspect", screened, alone)
    }

    #[test]
    fn what_is_not_seen_alone_needs_the_tests_before_it() {
        let leak = screened(|p| p.alloc(1, 37, 2), |_| ());
        let before = Some(vec!["A.before".to_owned(), "A.suspect".to_owned()]);
        assert_eq!(of(&leak, &alone(|_, _| ())), before);
        assert_eq!(of(&leak, &first_alone(|p| p.alloc(2, 37, 2))), before, "another place");
        assert_eq!(of(&leak, &first_alone(|p| p.alloc(1, 37, 1))), before, "less of it");
        assert_eq!(of(&leak, &first_alone(|p| p.alloc(1, 41, 2))), None, "as many, of another size");
        let descriptor = screened(|p| p.fds.push("/tmp/log"), |_| ());
        assert_eq!(of(&descriptor, &alone(|_, _| ())), before);
        assert_eq!(of(&descriptor, &first_alone(|p| p.fds.push("/tmp/log"))), None);
        let mut once = Process::confirm();
        once.run("A.suspect", 0, |_| ());
        assert_eq!(of(&leak, &once.end()), None, "it cannot be repeated");
        let mut only = Process::screen();
        only.run("A.suspect", 0, |p| p.alloc(1, 37, 2));
        assert_eq!(of(&only.end(), &alone(|_, _| ())), None, "nothing ran before it");
    }

    #[test]
    fn what_grows_alone_needs_the_tests_that_may_free_it() {
        let leaks = || alone(|p, _| p.alloc(1, 37, 1));
        let until = |last: usize| {
            let all = ["A.before", "A.suspect", "A.behind", "A.last"];
            Some(all[..=last].iter().map(|test| (*test).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of(&screened(|p| p.alloc(1, 37, 1), |_| ()), &leaks()), None, "nothing is freed later");
        assert_eq!(of(&screened(|p| p.alloc(1, 37, 1), |p| p.free(1, 37, 1)), &leaks()), until(2));
        let swaps = |p: &mut Process| {
            p.free(1, 37, 1);
            p.alloc(2, 37, 1);
        };
        assert_eq!(
            of(&screened(|p| p.alloc(1, 37, 1), swaps), &leaks()),
            until(2),
            "as much as before, but other"
        );
        let opens = alone(|p, _| p.fds.push("/tmp/log"));
        let closes = |p: &mut Process| p.fds.truncate(3);
        assert_eq!(of(&screened(|p| p.fds.push("/tmp/log"), closes), &opens), until(2));
        let mut between = Process::screen();
        between.run("A.suspect", 0, |p| p.alloc(1, 37, 1));
        between.free(1, 37, 1);
        between.run("A.behind", 0, |_| ());
        let tests = of(&between.end(), &leaks()).unwrap();
        assert_eq!(tests, ["A.suspect", "A.behind"], "freed by the end of a suite, say");
    }

    /// Executions of the suspect until a run in company ends.
    fn stops_after(iteration_ms: u64, most: Duration, leak: u64) -> usize {
        let mut p = Process::confirm();
        let mut observer = Observer::new();
        let mut company = Company::new(&GatePolicy::default(), &["A.suspect".to_owned()], most);
        for i in 0..10_000 {
            for test in ["A.before", "A.suspect"] {
                p.run(test, i, |p| p.alloc(1, leak, 1));
                p.pass_to(&mut observer);
                let elapsed = Duration::from_millis(iteration_ms * u64::from(i + 1));
                if company.observe(observer.record(), elapsed) == Next::Stop {
                    return observer.record().windows_of("A.suspect").count();
                }
            }
        }
        panic!("never stops")
    }

    #[test]
    fn company_is_kept_until_a_rare_leak_would_have_shown_or_its_time_is_over() {
        let long = Duration::from_secs(1000);
        assert_eq!(stops_after(10, long, 1), 199);
        assert_eq!(stops_after(50, long, 1), 91);
        assert_eq!(stops_after(100, long, 1), 59);
        assert_eq!(stops_after(1000, long, 1), 13);
        assert_eq!(stops_after(1000, Duration::from_secs(5), 1), 4);
        assert_eq!(stops_after(1, long, 40 << 20), 13, "it leaks too much");
    }
}
