//! Whether this process's allocations are recorded, and the data about them.
#![expect(unsafe_code, reason = "lets the tracker publish into the pages of a carrier")]

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use memgate_tracker::Tracker;
use memgate_wire::Counters;

/// The exported functions are plain jumps to the next allocator.
pub const DORMANT: u32 = 0;
/// Everything is recorded.
pub const TRACKING: u32 = 1;

/// [`DORMANT`] or [`TRACKING`]; the trampolines look at it first.
pub static MODE: AtomicU32 = AtomicU32::new(DORMANT);

/// The data about this process's allocations.
pub static TRACKER: Tracker = Tracker::new();

/// Is everything recorded?
pub fn is_tracking() -> bool {
    MODE.load(Ordering::Relaxed) == TRACKING
}

/// Begins recording.
pub fn start() {
    MODE.store(TRACKING, Ordering::SeqCst);
}

/// Ends recording: the exported functions are plain jumps again.
pub fn stop() {
    MODE.store(DORMANT, Ordering::SeqCst);
}

static GAVE_UP_SYSTEM_CALLS: AtomicBool = AtomicBool::new(false);

/// May hooks make system calls? They may not if the guest gave up the calls that they need.
#[must_use]
pub fn asks_the_kernel() -> bool {
    !GAVE_UP_SYSTEM_CALLS.load(Ordering::Relaxed)
}

/// From now on hooks make no system calls.
pub(crate) fn ask_the_kernel_no_more() {
    GAVE_UP_SYSTEM_CALLS.store(true, Ordering::Relaxed);
}

/// Lets the tracker publish its counters to the four words this place points at.
pub(crate) fn publish_to(place: &'static AtomicPtr<AtomicU64>) {
    // SAFETY: the place is static; control pages it points at stay mapped until the process ends or
    // the pointer is replaced.
    unsafe { TRACKER.publish_to(core::ptr::from_ref(place).cast_mut()) };
}

/// The counters as they are now.
pub(crate) fn counters() -> Counters {
    let t = TRACKER.totals();
    Counters {
        allocations: t.allocations,
        frees: t.frees,
        allocated_bytes: t.allocated_bytes,
        freed_bytes: t.freed_bytes,
        unknown_frees: t.unknown_frees,
        dropped_frames: 0,
    }
}
