//! Windows: a boundary opens or closes one. A second end of the same execution replaces the first one, unless the
//! agent had closed the window in between.

use memgate_wire::{Boundary, Freed, SnapshotRecord};

use super::{MAX_PENDING, Observer, Side};
use crate::java::JavaWindow;
use crate::record::{OpenTest, OsState, ProcessEnd, Window, test_id};

/// How many windows back the first end of an execution is searched when a second end comes.
const SETTLE_REACH: usize = 64;

/// The parts of one snapshot.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub(super) parts: u32,
    pub(super) survivors: Vec<SnapshotRecord>,
    pub(super) changes: Vec<SnapshotRecord>,
    pub(super) has_survivors: bool,
    pub(super) truncated: bool,
}

impl Observer {
    pub(super) fn test_start(&mut self, boundary: Boundary, t_ns: u64) {
        if self.record.open.len() >= MAX_PENDING {
            return self.damage(format!("more than {MAX_PENDING} tests open at once: the rest was not read"));
        }
        if self.record.open.len() + self.record.windows.len() >= self.limits.windows {
            let limit = self.limits.windows;
            return self.damage(format!("more than {limit} executions of tests: the rest was not read"));
        }
        for open in &mut self.record.open {
            open.window.open_tests = open.window.open_tests.max(boundary.open_tests);
        }
        let window = Window {
            iteration: boundary.iteration,
            start_sequence: boundary.sequence,
            start_ns: t_ns,
            start: boundary.counters,
            open_tests: boundary.open_tests,
            os_start: self.samples.remove(&boundary.sequence),
            mapped_start: self.mapped.state.clone(),
            suite: boundary.suite,
            test: boundary.test,
            ..Window::default()
        };
        let id = test_id(&window.suite, &window.test, self.record.java.is_some());
        self.record.open.push(OpenTest { id, window });
    }

    pub(super) fn test_end(
        &mut self,
        boundary: &Boundary,
        snapshot: Snapshot,
        java: Option<JavaWindow>,
        t_ns: u64,
    ) {
        let is_it = |w: &Window| {
            w.iteration == boundary.iteration && w.test == boundary.test && w.suite == boundary.suite
        };
        let settled = self.record.windows.len().saturating_sub(SETTLE_REACH);
        if let Some(at) = self.record.open.iter().rposition(|o| is_it(&o.window)) {
            let mut window = self.record.open.remove(at).window;
            self.window_of.insert(window.start_sequence, (self.record.windows.len(), Side::Start));
            self.window_of.insert(boundary.sequence, (self.record.windows.len(), Side::End));
            self.close(&mut window, boundary, snapshot, java, t_ns);
            self.record.windows.push(window);
        } else if let Some(at) = self.record.windows[settled..].iter().rposition(is_it) {
            // The program reports an end twice (`memgate.h`). The agent had closed the test, so this end has no
            // survivors.
            if usize::try_from(boundary.open_tests).is_ok_and(|open| open <= self.record.open.len()) {
                return;
            }
            // A second end of the same execution: the process has settled meanwhile, and this end counts.
            let at = settled + at;
            self.window_of.insert(boundary.sequence, (at, Side::End));
            let mut window = std::mem::take(&mut self.record.windows[at]);
            self.used.records -= window.survivors.len();
            self.close(&mut window, boundary, snapshot, java, t_ns);
            self.record.windows[at] = window;
        } else if self.record.open.len() + self.record.windows.len() < self.limits.windows {
            let mut window = Window {
                iteration: boundary.iteration,
                start_ns: t_ns,
                start: boundary.counters,
                suite: boundary.suite.clone(),
                test: boundary.test.clone(),
                ..Window::default()
            };
            self.window_of.insert(boundary.sequence, (self.record.windows.len(), Side::End));
            self.close(&mut window, boundary, snapshot, java, t_ns);
            window.incomplete = true;
            self.record.windows.push(window);
        }
    }

    /// Marks windows whose survivors later tests have freed.
    pub(super) fn freed(&mut self, freed: &Freed) {
        for boundary in freed.boundaries.iter().filter(|_| self.record.iterations <= 1) {
            if let Some((at, Side::End)) = self.window_of.get(boundary)
                && let Some(window) = self.record.windows.get_mut(*at)
            {
                window.freed_since |= window.end_sequence == *boundary && !window.is_setup();
            }
        }
    }

    /// The state at the boundary before this one, if a test ended there. The next test begins with this state: such a
    /// process does not stop for a second sample.
    fn seen_before(&self, sequence: u32) -> Option<OsState> {
        let last = self.record.windows.last()?;
        let is_next = last.end_sequence.checked_add(1) == Some(sequence);
        last.os_end.clone().filter(|_| is_next && !last.is_setup())
    }

    /// Fills in the end of a window. Changes are added to those of an earlier end, because they are relative to it.
    fn close(
        &mut self,
        window: &mut Window,
        boundary: &Boundary,
        snapshot: Snapshot,
        java: Option<JavaWindow>,
        t_ns: u64,
    ) {
        if window.os_start.is_none() && window.start_sequence != 0 {
            window.os_start = self.seen_before(window.start_sequence);
        }
        // Some agents count the parts of a class histogram, others do not.
        let with_java = snapshot.parts.saturating_add(java.as_ref().map_or(0, |java| java.parts));
        let complete = [snapshot.parts, with_java].contains(&boundary.snapshot_parts);
        window.incomplete |= snapshot.truncated || !complete;
        match (&mut window.java, java) {
            (Some(before), Some(now)) => before.settle(now),
            (before @ None, Some(now)) => *before = Some(Box::new(now)),
            (_, None) => {}
        }
        let mut changes = snapshot.changes;
        window.end = boundary.counters;
        self.setup.is_watched |= window.is_setup() && !changes.is_empty();
        if window.is_setup() && self.setup.is_watched {
            if window.end_sequence == 0 {
                window.start = self.setup.counters();
            }
            changes = self.setup.own(changes, &snapshot.survivors);
            window.end = self.setup.counters();
        }
        window.end_sequence = boundary.sequence;
        window.end_ns = t_ns;
        window.outcome = boundary.outcome;
        window.open_tests = window.open_tests.max(boundary.open_tests);
        window.survivor_count = boundary.survivors;
        window.interval = self.record.interval();
        window.survivors_known =
            snapshot.has_survivors || (boundary.survivors == 0 && boundary.snapshot_parts == 0);
        window.survivors = snapshot.survivors;
        window.changes.extend(changes);
        let os_end = self.samples.remove(&boundary.sequence);
        // Descriptors, threads and mappings of set-ups cannot be distinguished from those of tests.
        if !window.is_setup() {
            window.os_end = os_end.or(window.os_end.take());
            window.mapped_end = self.mapped.state.clone();
            window.mappings_lost = self.mapped.lost;
        }
    }

    pub(super) fn process_end(&mut self, boundary: &Boundary, snapshot: Snapshot, t_ns: u64) -> ProcessEnd {
        ProcessEnd {
            t_ns,
            counters: boundary.counters,
            incomplete: snapshot.truncated || snapshot.parts != boundary.snapshot_parts,
            survivors: snapshot.survivors,
            survivor_count: boundary.survivors,
            os: self.samples.remove(&boundary.sequence),
            mapped: self.mapped.state.clone(),
            mappings_lost: self.mapped.lost,
        }
    }
}
