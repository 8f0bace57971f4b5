//! The windows of a stream: tests that have begun and not ended, and code that runs around tests.

use memgate_wire::BoundaryKind;

use crate::recording::TRACKER;
use crate::setups::{Around, SetUpReport};
use crate::snapshot;
use crate::stream::{Session, Window};

impl Session {
    /// The open window that this thread means: its own one with that name, otherwise the newest.
    pub(crate) fn window(&self, suite: &str, test: &str) -> Option<usize> {
        let thread = memgate_tracker::sys::thread_pointer();
        let is_named = |w: &Window| w.suite == suite && w.test == test;
        let own = self.windows.iter().rposition(|w| w.thread == thread && is_named(w));
        own.or_else(|| self.windows.iter().rposition(is_named))
    }

    /// A test ended: its window closes. Windows of the same name that the same thread began and never ended also close.
    /// The same test in another thread stays open. Returns true for the window of a set-up or tear-down that had ended
    /// before.
    pub(crate) fn close_window(&mut self, suite: &str, test: &str) -> bool {
        let window = self.window(suite, test).and_then(|i| self.windows.get(i));
        let Some((thread, is_setup)) = window.map(|w| (w.thread, w.born.is_some())) else { return false };
        self.windows.retain(|w| w.thread != thread || w.suite != suite || w.test != test);
        self.take_stacks();
        is_setup
    }

    /// If another run takes the stacks of suspects' survivors, this run takes stacks only outside tests, to see whether
    /// the framework made a block for itself.
    pub(crate) fn take_stacks(&self) {
        if self.offers.stacks_later {
            TRACKER.take_stacks(self.windows.iter().all(|w| w.born.is_some()));
        }
    }

    /// A new epoch begins. If the count restarts, an open window no longer belongs to an epoch: at its end all live
    /// blocks count as its own. The only effect is that its test may be confirmed without need.
    pub(crate) fn next_epoch(&mut self) -> u32 {
        if TRACKER.starts_again_next() {
            let is_its_own = self.offers.is_its_own;
            if !self.setups.remember(|born| snapshot::count_born(born, is_its_own)) {
                self.gives_up();
            }
            self.leavers.forget();
        }
        let epoch = TRACKER.begin_epoch();
        self.epoch = epoch;
        for window in self.windows.iter_mut().filter(|w| w.epoch > epoch) {
            window.epoch = 0;
        }
        epoch
    }

    pub(crate) fn set_up_begins(&mut self, around: Around) {
        if !self.options.setups.is_empty() {
            let epoch = self.next_epoch();
            self.setups.begins(around, epoch);
        }
    }

    pub(crate) fn set_up_ends(&mut self, around: Around) {
        let epoch = self.next_epoch();
        self.setups.ends(around, epoch);
    }

    pub(crate) fn set_up_is_over(&mut self) {
        if self.setups.is_in_set_up() {
            let epoch = self.next_epoch();
            self.setups.set_ups_end(epoch);
        }
    }

    pub(crate) fn test_is_reported(&mut self) {
        if self.setups.has_since_test() {
            let epoch = self.next_epoch();
            self.setups.test_ended(epoch);
        }
    }

    pub(crate) fn tear_down_begins(&mut self, around: Around) {
        if around == Around::Environments {
            self.append_freed();
        }
        if self.setups.is_open(around) {
            let epoch = self.next_epoch();
            self.setups.tear_down_begins(around, epoch);
        }
    }

    /// After the tear-down: returns the windows to report.
    pub(crate) fn torn_down(&mut self, around: Around) -> Vec<SetUpReport> {
        let is_its_own = self.offers.is_its_own;
        let wanted = (self.options.detail, self.options.setups.as_str());
        self.setups.torn_down(around, wanted, |born| snapshot::count_born(born, is_its_own))
    }

    /// Opens the window of a set-up that was torn down; its end follows.
    pub(crate) fn begin_report(&mut self, report: &SetUpReport) {
        let SetUpReport { suite, name, born } = report;
        self.windows.push(Window::around_tests(suite, name, born.clone()));
        self.append_boundary(BoundaryKind::TestStart, (suite, name), None, (0, 0));
        self.flush();
    }
}
