//! Decides which boundaries wait for the harness.
//!
//! Data flow: at a boundary that waits the harness looks at descriptors and threads ([`Looks::happened`]). As long as
//! that look is valid ([`Looks::stands`]), tests begin without another look, and if the harness allows it they also end
//! without one. A look is valid while each boundary directly follows the previous one, and the hooks saw no new handle.
//! Ends without a look are counted. The harness looks again after a number of them, and before code outside a test
//! runs.

use memgate_ffi::process;

/// This many tests may end between two looks. If one of them left something that the hooks did not see, it is not known
/// which.
const MOST_UNSEEN: u32 = 16;

/// The last look, and the events since then.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    last: Option<Look>,
    /// Number of tests that have ended since then.
    unseen: u32,
}

#[derive(Debug)]
struct Look {
    ns: u64,
    /// The last boundary for which the look is valid.
    through: u32,
}

impl Looks {
    /// The harness looked at this boundary. `settled`: nothing that existed before can still disappear by itself.
    pub(crate) fn happened(&mut self, boundary: u32, settled: bool) {
        self.unseen = 0;
        self.last = settled.then(|| Look { ns: process::monotonic_ns(), through: boundary });
    }

    /// Code outside a test runs now: the last look is no longer valid.
    pub(crate) fn expire(&mut self) {
        self.last = None;
    }

    /// Have tests ended that the harness has not looked at?
    pub(crate) fn is_due(&self) -> bool {
        self.unseen > 0
    }

    /// Is the last look valid for this boundary too? The boundary must directly follow those for which it is valid.
    pub(crate) fn stands(&mut self, boundary: u32, lasts_ns: u64) -> bool {
        let stands = |look: &&mut Look| {
            look.through.checked_add(1) == Some(boundary)
                && process::monotonic_ns().saturating_sub(look.ns) < lasts_ns
        };
        let Some(look) = self.last.as_mut().filter(stands) else { return false };
        look.through = boundary;
        true
    }

    /// Like [`Looks::stands`], for the end of a test. If the look is valid, the harness does not look at that end.
    pub(crate) fn stands_for_end(&mut self, boundary: u32, lasts_ns: u64) -> bool {
        let stands = self.unseen.saturating_add(1) < MOST_UNSEEN && self.stands(boundary, lasts_ns);
        self.unseen = self.unseen.saturating_add(u32::from(stands));
        stands
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: u64 = u64::MAX;

    #[test]
    fn a_look_stands_for_the_boundaries_right_after_it() {
        let mut looks = Looks::default();
        assert!(!looks.stands(1, LONG), "nobody has looked");
        looks.happened(4, true);
        assert!(!looks.stands(6, LONG), "something came in between");
        assert!(looks.stands(5, LONG) && looks.stands_for_end(6, LONG) && looks.is_due());
        assert!(!looks.stands(7, 0), "too long ago");
        looks.happened(7, true);
        assert!(!looks.is_due() && looks.stands(8, LONG));
        looks.expire();
        assert!(!looks.stands(9, LONG));
        looks.happened(10, false);
        assert!(!looks.stands(11, LONG), "a thread may still be on its way out");
    }

    #[test]
    fn only_so_many_tests_end_without_a_look() {
        let mut looks = Looks::default();
        looks.happened(0, true);
        let unseen = (1..100).take_while(|boundary| looks.stands_for_end(*boundary, LONG)).count();
        assert_eq!(unseen + 1, MOST_UNSEEN as usize);
    }
}
