//! Shows the progress of passes over a dump.

use std::cell::RefCell;

use crate::output::{Console, Progress};

/// Progress is reported in units of this many bytes.
const UNIT: u64 = 1 << 20;

/// Shows the current step if it takes longer.
pub(super) struct Watch<'a> {
    console: &'a Console,
    shown: RefCell<Option<(&'static str, Progress<'a>)>>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(console: &'a Console) -> Self {
        Self { console, shown: RefCell::new(None) }
    }

    pub(super) fn console(&self) -> &'a Console {
        self.console
    }

    pub(super) fn passes<T>(&self, work: impl FnOnce(memgate_hprof::read::Progress<'_>) -> T) -> T {
        let done = work(&|step, at, all| self.told(step, at, all));
        *self.shown.borrow_mut() = None;
        done
    }

    fn told(&self, step: &'static str, at: u64, all: Option<u64>) {
        let scale = if all.is_some_and(|all| all < UNIT) { 1 } else { UNIT };
        let mut shown = self.shown.borrow_mut();
        if shown.as_ref().is_none_or(|(before, _)| *before != step) {
            *shown = None;
            let total = all.map(|all| all / scale);
            let title = if scale == 1 { step.to_owned() } else { format!("{step}, MiB") };
            let progress = match total {
                Some(total) => Progress::of_silent_tests(self.console, &title, total),
                None => Progress::beside_tests(self.console, &title, None),
            };
            *shown = Some((step, progress));
        }
        if let Some((_, progress)) = shown.as_mut() {
            progress.update(at / scale, "");
        }
    }
}
