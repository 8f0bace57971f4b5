//! Follows a fork: the child keeps its copy of the live table and writes a stream of its own.
//!
//! Data flow: before the fork all locks are taken, so that the child finds the state consistent → both sides release
//! them → the child opens its stream ([`follow_fork`]), or stays silent.

use memgate_ffi::calm::SignalsHeld;
use memgate_ffi::lock::Lock;
use memgate_ffi::{heap, stack};
use memgate_tracker::thread::Inside;
use memgate_wire::options::{Detail, Options};
use memgate_wire::{BoundaryKind, Event, Frame, ProcessRole};

use super::{OWN, SESSION, Work, publish};
use crate::carrier::Carrier;
#[cfg(not(target_os = "android"))]
use crate::mappings;
use crate::recording::{self, TRACKER};
use crate::stream::{Offers, Session};
use crate::{handles, leak_info};

/// Room that the agent's heap must have in a forked child. Without it nothing is recorded, and the harness reports
/// this. A failed allocation of the agent would end the guest.
const CHILD_ROOM: usize = 128 << 10;

/// The signals of the forking thread, blocked as long as it holds the locks.
static FORKING: Lock<Option<SignalsHeld>> = Lock::new(None);

/// A fork in a signal handler that interrupted the agent's own work cannot take the agent's locks, so its child stays
/// silent. Signals are held back while the locks are held, because a handler of the guest that ends the process would
/// wait for these locks forever.
pub(super) extern "C" fn before_fork() {
    if !Inside::now() {
        let held = SignalsHeld::new();
        SESSION.raw().acquire();
        *FORKING.lock() = Some(held);
        leak_info::raw_lock().acquire();
        heap::HEAP.lock().acquire();
    }
}

pub(super) extern "C" fn after_fork_in_parent() {
    if !Inside::now() {
        heap::HEAP.lock().release();
        leak_info::raw_lock().release();
        let _held = FORKING.lock().take();
        SESSION.raw().release();
    }
}

/// The child keeps its copy of the table and gets its own stream; the parent's pages are not touched. The loader must
/// not be called here, because another thread of the parent may have held its lock.
pub(super) extern "C" fn after_fork_in_child() {
    TRACKER.after_fork();
    handles::after_fork();
    #[cfg(not(target_os = "android"))]
    mappings::after_fork();
    if Inside::now() {
        recording::stop();
        return;
    }
    heap::HEAP.lock().release();
    leak_info::raw_lock().release();
    let _held = FORKING.lock().take();
    SESSION.raw().release();
    let _work = Work::new();
    stack::with_room(follow_fork);
}

/// Opens the child's own stream.
fn follow_fork() {
    let Some(mut parent) = SESSION.lock().take() else { return };
    if !heap::HEAP.has_room(CHILD_ROOM) {
        recording::stop();
        return;
    }
    let options = Options { complaints: Vec::new(), ..parent.options.clone() };
    // A confirming run needs only the process that repeats the test.
    let followed = matches!(parent.carrier, Carrier::Spool(_)) && options.detail == Detail::Survivors;
    let known = core::mem::take(&mut parent.known);
    let offers = Offers { native: true, java: false, framework: None, ..parent.offers.clone() };
    // Dropping it unmaps the child's view of the parent's spool. It closes nothing, because nothing is open.
    drop(parent);
    let child = if followed { Session::open(options, ProcessRole::ForkChild, offers, known) } else { None };
    let Some(mut child) = child.filter(|_| OWN.set()) else {
        recording::stop();
        return;
    };
    publish(&child);
    child.append(&Frame::Event(Event { name: "fork".to_owned(), detail: String::new() }));
    child.append_boundary(BoundaryKind::ProcessStart, ("", ""), None, (0, 0));
    child.flush();
    *SESSION.lock() = Some(child);
}
