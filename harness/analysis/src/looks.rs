//! Tests between two samples ("looks") of descriptors and threads, where the process waits for the harness only now and
//! then.
//!
//! Data flow: a sample at a boundary is a look ([`Looks::at`]). It is compared by number with the look before and with
//! the handles that the agent reported as new at this boundary. When all looks are known, each window gets the look
//! before it as its start and the look after it as its end ([`Looks::share`]). If only reported handles are new, all
//! tests but the last left nothing. If others are new, any of the tests may have left them: [`must_be_screened_again`].
//! [`is_unseen`] marks a window with no later look.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::mem;

use memgate_model::Metric;
use memgate_wire::{FdEntry, OsSample};

use crate::policy::{GatePolicy, is_limited};
use crate::record::{OsName, OsState, ProcessRecord, Unclear, Window};
use crate::stats::float;

/// The looks at one process, by the sequence number of their boundary.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    at: BTreeMap<u32, Look>,
    /// Descriptors and threads in the last look, by number.
    fds: HashMap<u32, (String, OsName)>,
    threads: HashMap<u32, (String, OsName)>,
}

#[derive(Debug)]
struct Look {
    state: OsState,
    /// State without the handles that the agent reported at this boundary. `None`: it reported none.
    before: Option<OsState>,
    /// Other new handles since the look before.
    unclear: Unclear,
}

/// The names of descriptors and of threads, in the order of their sample.
pub(crate) type Named = (Vec<OsName>, Vec<OsName>);

impl Looks {
    pub(crate) fn len(&self) -> usize {
        self.at.len()
    }

    /// Compares a sample with the look before it. `told`: numbers of the descriptors and threads that the agent
    /// reported at its boundary. Returns the state without these, if there are any.
    pub(crate) fn compare(
        &mut self,
        sample: &OsSample,
        (fds, threads): &Named,
        told: (&HashSet<u32>, &HashSet<u32>),
    ) -> (Unclear, Option<Named>) {
        let fds = sample.fds.iter().map(|fd| (fd.fd, fd.target.as_str())).zip(fds);
        let (fds_before, unclear_fds) = since(&mut self.fds, fds, told.0);
        // A thread may change its own name, so names are not compared.
        let threads = sample.threads.iter().map(|thread| (thread.id, "")).zip(threads);
        let (threads_before, unclear_threads) = since(&mut self.threads, threads, told.1);
        let is_told = !told.0.is_empty() || !told.1.is_empty();
        let unclear = Unclear { fds: unclear_fds, threads: unclear_threads };
        (unclear, is_told.then_some((fds_before, threads_before)))
    }

    /// Does a sample between boundaries show only what the last look showed? Then it also counts as a look for the
    /// tests that have ended by then.
    pub(crate) fn is_calm(&self, sample: &OsSample) -> bool {
        let is_known =
            |fd: &FdEntry| self.fds.get(&fd.fd).is_some_and(|(target, _)| target == without_mark(&fd.target));
        !self.at.is_empty()
            && sample.fds.iter().all(is_known)
            && sample.threads.iter().all(|thread| self.threads.contains_key(&thread.id))
    }

    /// Stores such a sample after this boundary.
    pub(crate) fn learn_calm(&mut self, boundary: u32, state: &OsState) {
        let look = || Look { state: state.clone(), before: None, unclear: Unclear::default() };
        self.at.entry(boundary).or_insert_with(look);
    }

    pub(crate) fn learn(&mut self, boundary: u32, state: OsState, before: Option<OsState>, unclear: Unclear) {
        let known = self.at.get(&boundary).map_or_else(Unclear::default, |look| look.unclear);
        self.at.insert(boundary, Look { state, before, unclear: unclear.plus(known) });
    }

    /// Gives each window of a test without a look of its own the look before it and the look after it.
    pub(crate) fn share(&self, windows: &mut [Window]) {
        let sums = self.sums();
        for window in windows.iter_mut().filter(|window| !window.is_setup()) {
            let (start, end) = (window.start_sequence, window.end_sequence);
            let own_end = window.os_end.is_some();
            let mut is_exact = start != 0;
            if window.os_start.is_none() && start != 0 {
                let last = self.at.range(..=start).next_back();
                let is_right_before = last.is_some_and(|(at, _)| at.saturating_add(1) >= start);
                // New unreported handles in the first look at the test may belong to an earlier test.
                let first = self.at.range(start..=end.max(start)).next().filter(|_| !is_right_before);
                let then =
                    first.and_then(|(at, look)| look.before.as_ref().or((*at < end).then_some(&look.state)));
                is_exact = is_right_before || then.is_some();
                window.started_unseen = !is_right_before;
                window.os_start = then.or(last.map(|(_, look)| &look.state)).cloned();
            }
            let mut last = end;
            if !own_end && let Some((at, look)) = self.at.range(end.saturating_add(1)..).next() {
                window.os_end = Some(look.before.as_ref().unwrap_or(&look.state).clone());
                last = *at;
                // No other test ran in between.
                is_exact &= end.checked_add(1) == Some(last);
            } else {
                is_exact &= own_end;
            }
            if !is_exact {
                let until = |boundary: u32| {
                    sums.range(..=boundary).next_back().map_or_else(Unclear::default, |(_, sum)| *sum)
                };
                window.shared_look = Some(until(last.max(start)).less(until(start)));
            }
        }
    }

    /// Sums of new unreported handles up to each look.
    fn sums(&self) -> BTreeMap<u32, Unclear> {
        let mut sum = Unclear::default();
        let sums = self.at.iter().map(|(at, look)| {
            sum = sum.plus(look.unclear);
            (*at, sum)
        });
        sums.collect()
    }
}

/// Returns the state before the reported handles (`told`) changed, and the number of new handles that were not
/// reported.
fn since<'a>(
    known: &mut HashMap<u32, (String, OsName)>,
    now: impl Iterator<Item = ((u32, &'a str), &'a OsName)>,
    told: &HashSet<u32>,
) -> (Vec<OsName>, u64) {
    let mut before = mem::take(known);
    let (mut were, mut unclear) = (Vec::new(), 0);
    for ((number, target), name) in now {
        let target = without_mark(target);
        let old = before.remove(&number);
        if told.contains(&number) {
            were.extend(old.map(|(_, name)| name));
        } else {
            unclear += u64::from(old.is_none_or(|(old, _)| old != target));
            were.push(name.clone());
        }
        known.insert(number, (target.to_owned(), name.clone()));
    }
    // Handles that were closed at this boundary were in that state, too.
    were.extend(told.iter().filter_map(|number| before.remove(number)).map(|(_, name)| name));
    (were, unclear)
}

/// A target is the same after its file was removed.
fn without_mark(target: &str) -> &str {
    target.strip_suffix(" (deleted)").unwrap_or(target)
}

/// Did a descriptor or thread appear between two looks that enclose several tests? Then only a screen that looks after
/// each test shows which test left it.
#[must_use]
pub fn must_be_screened_again(record: &ProcessRecord) -> bool {
    let unclear = |window: &Window| window.shared_look.is_some_and(|unclear| unclear != Unclear::default());
    record.windows.iter().any(unclear)
}

/// The amount of a metric that a test left, if its looks are shared with other tests. `None`: unknown.
pub(crate) fn left(unclear: Unclear, metric: Metric) -> Option<f64> {
    match metric {
        Metric::OsFds => Some(float(unclear.fds)),
        Metric::OsThreads => Some(float(unclear.threads)),
        _ => None,
    }
}

/// Why a test without a look at its end is run again.
pub(crate) const UNSEEN: &str =
    "nobody looked at the descriptors and threads that it left: its process ended first";

/// Did the process end after this test without a later look?
pub(crate) fn is_unseen(window: &Window) -> bool {
    window.shared_look.is_some() && window.os_start.is_some() && window.os_end.is_none()
}

/// Why `window` cannot be checked against limits of resident memory. `None`: it can, or there are none.
pub(crate) fn unmeasured_resident(
    window: &Window,
    suite: &str,
    test: &str,
    policy: &GatePolicy,
) -> Option<String> {
    let metric =
        [Metric::OsRss, Metric::OsPss].into_iter().find(|metric| is_limited(policy, suite, test, *metric))?;
    (window.shared_look.is_some() || window.started_unseen).then(|| {
        format!("not measured: {metric} was not looked at after each test when this was recorded; run it again with this limit")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn state(fds: &[OsName]) -> OsState {
        let fds = crate::os_names::count(fds.iter().cloned());
        let fds = fds.into_iter().map(|(name, count)| (name, count.into())).collect();
        OsState { fds: Arc::new(fds), ..OsState::default() }
    }

    /// A look at a boundary: open descriptors by number and target. The agent reported those in `told`.
    fn look(looks: &mut Looks, boundary: u32, fds: &[(u32, &str)], told: &[u32]) -> OsState {
        let fds: Vec<_> =
            fds.iter().map(|(fd, target)| FdEntry { fd: *fd, target: (*target).to_owned() }).collect();
        let names: Vec<_> = fds.iter().map(|fd| OsName { name: fd.target.clone(), stack: 0 }).collect();
        let sample = OsSample { boundary, fds, ..OsSample::default() };
        let named = (names, Vec::new());
        let told = told.iter().copied().collect();
        let (unclear, before) = looks.compare(&sample, &named, (&told, &HashSet::new()));
        let now = state(&named.0);
        looks.learn(boundary, now.clone(), before.map(|(fds, _)| state(&fds)), unclear);
        now
    }

    fn window(start: u32, end: u32) -> Window {
        Window { start_sequence: start, end_sequence: end, ..Window::default() }
    }

    /// Two tests without a look, and a third with one.
    fn shared(before: &[(u32, &str)], after: &[(u32, &str)], told: &[u32]) -> ProcessRecord {
        let mut looks = Looks::default();
        look(&mut looks, 1, before, &[]);
        let end = look(&mut looks, 7, after, told);
        let last = Window { os_end: Some(end), ..window(6, 7) };
        let mut record =
            ProcessRecord { windows: vec![window(2, 3), window(4, 5), last], ..ProcessRecord::default() };
        looks.share(&mut record.windows);
        record
    }

    fn fds(state: Option<&OsState>) -> u64 {
        state.unwrap().fd_count()
    }

    #[test]
    fn nothing_was_left_between_two_looks_that_show_the_same() {
        let record = shared(&[(3, "log")], &[(3, "log")], &[]);
        assert!(!must_be_screened_again(&record));
        assert!(record.windows.iter().all(|w| w.shared_look.is_some() && fds(w.os_end.as_ref()) == 1));
    }

    #[test]
    fn what_came_by_nobody_knows_whom_is_screened_again() {
        for (before, after, why) in [
            (&[(3, "log")][..], &[(3, "log"), (4, "log")][..], "one more"),
            (&[(3, "a"), (4, "b")], &[(3, "a"), (5, "a")], "what one closed does not hide what another left"),
            (&[(3, "a"), (4, "a")], &[(3, "a"), (5, "a")], "nor under the same name"),
            (&[(3, "a")], &[(3, "b")], "nor under the same number"),
        ] {
            let record = shared(before, after, &[]);
            assert!(must_be_screened_again(&record), "{why}");
            assert!(
                record.windows.iter().all(|w| left(w.shared_look.unwrap(), Metric::OsFds) == Some(1.0)),
                "{why}"
            );
        }
    }

    #[test]
    fn what_is_known_to_have_come_by_the_last_is_its_own() {
        let record = shared(&[], &[(3, "log")], &[3]);
        assert!(!must_be_screened_again(&record));
        let [first, second, last] = &record.windows[..] else { panic!() };
        assert_eq!([&first.os_end, &second.os_end, &last.os_start].map(|state| fds(state.as_ref())), [0; 3]);
        assert!(last.shared_look.is_none() && fds(last.os_end.as_ref()) == 1);
    }

    #[test]
    fn what_is_opened_again_under_its_number_did_not_come() {
        let record = shared(&[(1, "out")], &[(1, "out")], &[1]);
        assert!(!must_be_screened_again(&record));
        let last = &record.windows[2];
        assert_eq!((fds(last.os_start.as_ref()), fds(last.os_end.as_ref())), (1, 1));
    }

    #[test]
    fn what_a_test_opened_is_its_own_when_it_ends_twice() {
        let mut looks = Looks::default();
        look(&mut looks, 1, &[], &[]);
        look(&mut looks, 5, &[(3, "log")], &[3]);
        let end = look(&mut looks, 6, &[(3, "log")], &[]);
        let mut windows = [window(2, 3), Window { os_end: Some(end), ..window(4, 6) }];
        looks.share(&mut windows);
        let [first, last] = &windows;
        assert_eq!((first.shared_look, fds(first.os_end.as_ref())), (Some(Unclear::default()), 0));
        assert_eq!((last.shared_look, fds(last.os_start.as_ref())), (None, 0));
    }

    #[test]
    fn what_came_before_the_first_look_at_a_test_may_be_an_earlier_ones() {
        let mut looks = Looks::default();
        look(&mut looks, 1, &[], &[]);
        // A mark of the program, within the second test.
        look(&mut looks, 5, &[(3, "raw")], &[]);
        let end = look(&mut looks, 6, &[(3, "raw"), (4, "log")], &[4]);
        let mut windows = [window(2, 3), Window { os_end: Some(end), ..window(4, 6) }];
        looks.share(&mut windows);
        let [first, last] = &windows;
        assert_eq!(first.shared_look, Some(Unclear { fds: 1, threads: 0 }));
        assert_eq!((last.shared_look, fds(last.os_start.as_ref()), fds(last.os_end.as_ref())), (None, 1, 2));
    }

    #[test]
    fn a_test_alone_between_two_looks_is_judged_by_them() {
        let mut looks = Looks::default();
        look(&mut looks, 1, &[], &[]);
        look(&mut looks, 4, &[(3, "raw")], &[]);
        let mut windows = [window(2, 3)];
        looks.share(&mut windows);
        let [only] = &windows;
        assert_eq!((only.shared_look, only.started_unseen), (None, false));
        assert_eq!((fds(only.os_start.as_ref()), fds(only.os_end.as_ref())), (0, 1));
    }

    #[test]
    fn what_the_last_test_closed_was_there_when_it_began() {
        let record = shared(&[(3, "old log")], &[(4, "log")], &[3, 4]);
        assert!(!must_be_screened_again(&record));
        let last = &record.windows[2];
        assert_eq!((fds(last.os_start.as_ref()), fds(last.os_end.as_ref())), (1, 1));
    }

    #[test]
    fn a_file_that_was_removed_is_the_same() {
        assert!(!must_be_screened_again(&shared(&[(3, "/tmp/x")], &[(3, "/tmp/x (deleted)")], &[])));
    }

    #[test]
    fn a_window_that_ends_before_it_begins_is_no_panic() {
        let mut looks = Looks::default();
        look(&mut looks, 4, &[], &[]);
        for (start, end) in [(5, 3), (u32::MAX, 0), (u32::MAX, u32::MAX), (0, 9)] {
            looks.share(&mut [window(start, end)]);
        }
    }

    #[test]
    fn a_sample_that_shows_nothing_new_is_a_look() {
        let mut looks = Looks::default();
        let sample = |fds: &[u32]| {
            let open = |fd: &u32| FdEntry { fd: *fd, target: "log".to_owned() };
            OsSample { fds: fds.iter().map(open).collect(), ..OsSample::default() }
        };
        assert!(!looks.is_calm(&sample(&[])), "nobody has looked");
        look(&mut looks, 1, &[(3, "log"), (4, "log")], &[]);
        assert!(
            looks.is_calm(&sample(&[3, 4])) && looks.is_calm(&sample(&[4])) && !looks.is_calm(&sample(&[5]))
        );
    }

    #[test]
    fn a_test_after_the_last_look_is_unseen() {
        let mut looks = Looks::default();
        look(&mut looks, 1, &[], &[]);
        let mut windows = [window(2, 3)];
        looks.share(&mut windows);
        assert!(is_unseen(&windows[0]));
    }
}
