//! The System V segments that this process has made and that were not removed. They outlive the process.
//!
//! Data flow: `shmget` returned a segment → [`given`] keeps its number and the stack of the call. At a boundary
//! [`each`] asks the kernel which of them this process made and which still exist, because another process may have
//! made or removed them.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use memgate_ffi::process::{self, Segment};

/// Linux's default limit per machine (`kernel.shmmni`).
const MOST: usize = 4096;

/// `number + 1 32 | stack 32` each; 0: none.
static GIVEN: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];
/// All cells from this index on are 0.
static USED: AtomicUsize = AtomicUsize::new(0);

fn used() -> impl Iterator<Item = &'static AtomicU64> {
    GIVEN.iter().take(most())
}

/// This segment was given to the caller with this stack. Returns false if there is no room to note it.
pub(crate) fn given(segment: c_int, stack: u32) -> bool {
    let number = u64::from(segment.cast_unsigned()).wrapping_add(1);
    if used().any(|cell| cell.load(Ordering::Relaxed) >> 32 == number) {
        return true;
    }
    let word = number << 32 | u64::from(stack);
    let takes =
        |cell: &AtomicU64| cell.compare_exchange(0, word, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    let place = GIVEN.iter().position(takes);
    if let Some(place) = place {
        USED.fetch_max(place.wrapping_add(1), Ordering::AcqRel);
    }
    place.is_some()
}

/// Upper bound of the number of known segments.
pub(crate) fn most() -> usize {
    USED.load(Ordering::Acquire)
}

/// Visits stack and bytes of segments that this process made and that were not removed (a segment that is marked for
/// removal counts as removed). Forgets all others.
pub(crate) fn each(mut visit: impl FnMut(u32, usize)) {
    for cell in used() {
        let word = cell.load(Ordering::Relaxed);
        let number = (word >> 32).checked_sub(1).and_then(|number| c_int::try_from(number).ok());
        let Some(number) = number else { continue };
        if let Some(Segment { bytes, is_own: true, is_removed: false }) = process::segment(number) {
            #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
            visit(word as u32, bytes);
        } else {
            // If another thread was given a segment in between, its cell holds another word.
            _ = cell.compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}
