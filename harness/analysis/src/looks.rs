//! Tests between two looks at descriptors and threads: where the process waits for the harness only now and then.
//!
//! Data flow: a sample of a boundary is a look ([`Looks::learn`]), with what it shows less what is known to have come
//! by that boundary → once all are known, each window begins with the look before it and ends with the one after it
//! ([`Looks::share`]). Between two looks that show the same nothing was left. Where they differ, nobody knows by whom:
//! [`must_be_screened_again`]. A window that no look came after says so: [`is_unseen`].

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::record::{Names, OsName, OsState, ProcessRecord, Window};
use crate::stats::float;

/// The looks at one process, by the number of their boundary.
#[derive(Debug, Default)]
pub(crate) struct Looks(BTreeMap<u32, Look>);

#[derive(Debug)]
struct Look {
    state: OsState,
    /// Without what came by this boundary, and not by the one before.
    before: Option<OsState>,
}

impl Looks {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn learn(&mut self, boundary: u32, state: OsState, before: Option<OsState>) {
        self.0.insert(boundary, Look { state, before });
    }

    /// Gives each window of a test the look before and the look after it, where it has none of its own.
    pub(crate) fn share(&self, windows: &mut [Window]) {
        for window in windows.iter_mut().filter(|window| !window.is_setup()) {
            let end = window.end_sequence;
            let own = window.os_end.is_some();
            let came = self.0.get(&end).filter(|_| own).and_then(|look| look.before.as_ref());
            if window.os_start.is_none() && window.start_sequence != 0 {
                let last = self.0.range(..=window.start_sequence).next_back();
                let is_right_before =
                    last.is_some_and(|(at, _)| at.saturating_add(1) >= window.start_sequence);
                window.shares_look = !is_right_before && came.is_none();
                window.os_start = came.or(last.map(|(_, look)| &look.state)).cloned();
            }
            if !own {
                let next = self.0.range(end.saturating_add(1)..).next();
                window.shares_look = true;
                window.os_end = next.map(|(_, look)| look.before.as_ref().unwrap_or(&look.state)).cloned();
            }
        }
    }
}

/// Did a descriptor or a thread come between two looks, by one of several tests? Then only a screen that looks at
/// each tells which.
#[must_use]
pub fn must_be_screened_again(record: &ProcessRecord) -> bool {
    let came = |window: &Window| {
        let looks = window.os_start.as_ref().zip(window.os_end.as_ref());
        looks.is_some_and(|(start, end)| {
            came(&start.fds, &end.fds) > 0.0 || came(&start.threads, &end.threads) > 0.0
        })
    };
    record.windows.iter().any(|window| window.shares_look && came(window))
}

/// How many there are of each name that there were not before. What others closed meanwhile does not count.
pub(crate) fn came(start: &Names, end: &Names) -> f64 {
    if Arc::ptr_eq(start, end) {
        return 0.0;
    }
    let before: BTreeMap<&OsName, u64> = start.iter().map(|(name, count)| (name, *count)).collect();
    let more = end.iter().map(|(name, count)| count.saturating_sub(before.get(name).copied().unwrap_or(0)));
    float(more.sum())
}

/// Why a test is run again that nobody looked at.
pub(crate) const UNSEEN: &str =
    "its process ended before anybody looked at the descriptors and threads that it left";

/// Did the process end, after this test and before anybody looked at it?
pub(crate) fn is_unseen(window: &Window) -> bool {
    window.shares_look && window.os_start.is_some() && window.os_end.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(fds: &[(&str, u64)]) -> OsState {
        let name = |name: &str| OsName { name: name.to_owned(), stack: 0 };
        let fds = fds.iter().map(|(fd, count)| (name(fd), *count)).collect();
        OsState { fds: Arc::new(fds), ..OsState::default() }
    }

    fn window(start: u32, end: u32) -> Window {
        Window { start_sequence: start, end_sequence: end, ..Window::default() }
    }

    /// Two tests that were not looked at and a third that was, with what the looks before and after show.
    fn shared(before: &OsState, after: OsState, less: Option<OsState>) -> ProcessRecord {
        let mut looks = Looks::default();
        looks.learn(1, before.clone(), None);
        looks.learn(7, after.clone(), less);
        let last = Window { os_end: Some(after), ..window(6, 7) };
        let mut record =
            ProcessRecord { windows: vec![window(2, 3), window(4, 5), last], ..ProcessRecord::default() };
        looks.share(&mut record.windows);
        record
    }

    #[test]
    fn nothing_was_left_between_two_looks_that_show_the_same() {
        let state = open(&[("log", 1)]);
        let record = shared(&state, state.clone(), None);
        assert!(!must_be_screened_again(&record));
        assert!(record.windows.iter().all(|w| w.shares_look && w.os_end == Some(state.clone())));
    }

    #[test]
    fn what_came_by_nobody_knows_whom_is_screened_again() {
        let record = shared(&open(&[("log", 1)]), open(&[("log", 2)]), None);
        assert!(must_be_screened_again(&record));
        // What one closed does not hide what another left.
        let record = shared(&open(&[("a", 1), ("b", 1)]), open(&[("a", 2)]), None);
        assert!(must_be_screened_again(&record));
    }

    #[test]
    fn what_is_known_to_have_come_by_the_last_is_its_own() {
        let (none, log) = (open(&[]), open(&[("log", 1)]));
        let record = shared(&none, log.clone(), Some(none.clone()));
        assert!(!must_be_screened_again(&record));
        let [first, second, last] = &record.windows[..] else { panic!() };
        assert_eq!(
            [&first.os_end, &second.os_end, &last.os_start],
            [&Some(none.clone()), &Some(none.clone()), &Some(none)]
        );
        assert!(!last.shares_look && last.os_end == Some(log));
    }

    #[test]
    fn a_test_after_the_last_look_is_unseen() {
        let mut looks = Looks::default();
        looks.learn(1, open(&[]), None);
        let mut windows = [window(2, 3)];
        looks.share(&mut windows);
        assert!(is_unseen(&windows[0]));
    }
}
