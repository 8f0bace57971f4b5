//! Handles rights that a guest gives up permanently: the processor's time-stamp counter, or system calls (all but
//! `read`, `write` and `exit`, or those that its own filter refuses). Each function is called before the guest's call
//! that gives up a right.

use memgate_ffi::{process, stack};
use memgate_tracker::cost;
use memgate_wire::{ErrorCode, ErrorFrame, Frame};

use crate::filter::{self, Step};
#[cfg(not(target_os = "android"))]
use crate::mappings;
use crate::recording;
use crate::session::{SESSION, begin, is_recorded};

/// The error of a process that enters SECCOMP's strict mode.
const STRICT: &str = "it went into SECCOMP's strict mode, which forbids the system calls that recording needs; \
                      measure what runs before, or leave the mode out for the gate";

/// The error of a process that goes on under a filter.
const FILTER: &str = "it installed a filter of system calls (SECCOMP) that refuses futex, mmap or munmap, which recording \
                      needs; measure what runs before, or let the filter allow them for the gate";

/// From now on no code reads the time-stamp counter, not even for the clocks.
pub fn gives_up_counter() {
    if let Some(_work) = begin()
        && let Some(session) = SESSION.lock().as_mut()
    {
        session.clock.look();
    }
    process::read_clocks_coarsely();
    cost::give_up();
}

/// The guest is about to enter strict mode, so recording ends: a growing table would end the thread. It is not known
/// whether the guest's call will succeed, but after it, it would be too late.
pub fn goes_strict() {
    gives_up_counter();
    gives_up_system_calls(STRICT);
}

/// Recording ends if the filter that is about to be installed refuses the calls of hooks.
pub fn filters(length: usize, step: impl Fn(usize) -> Step) {
    #[cfg(not(target_os = "android"))]
    if !filter::allows_segments(length, &step) {
        mappings::hide_segments();
    }
    if recording::asks_the_kernel() && !filter::allows_hooks(length, step) {
        gives_up_system_calls(FILTER);
    }
}

fn gives_up_system_calls(why: &str) {
    match begin() {
        Some(_work) => stack::with_room(|| end_recording(why)),
        // A forked child may not be recorded, but it still has hooks.
        None if !is_recorded() => recording::ask_the_kernel_no_more(),
        None => {}
    }
}

fn end_recording(why: &str) {
    let Some(mut session) = SESSION.lock().take_if(|session| session.is_this_process()) else { return };
    recording::stop();
    recording::ask_the_kernel_no_more();
    session.append(&Frame::Error(ErrorFrame { code: ErrorCode::Blind, text: why.to_owned() }));
    session.flush();
    // The words stay mapped: another thread that is still in a hook may be publishing.
    core::mem::forget(session);
}
