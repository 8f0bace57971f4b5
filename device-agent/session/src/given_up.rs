//! What a guest gives up for good, told by the calls that do so before they are made: the
//! processor's time-stamp counter, and all system calls but `read`, `write` and `exit`.

use memgate_ffi::{process, stack};
use memgate_tracker::cost;
use memgate_wire::{ErrorCode, ErrorFrame, Frame};

use crate::recording;
use crate::session::{SESSION, begin};

/// What is written of a process that goes on in SECCOMP's strict mode.
const STRICT: &str = "it went into SECCOMP's strict mode, which forbids the system calls that recording needs; \
                      measure what runs before, or leave the mode out for the gate";

/// The time-stamp counter is not read any more, by the clocks neither.
pub fn gives_up_counter() {
    if let Some(_work) = begin()
        && let Some(session) = SESSION.lock().as_mut()
    {
        session.clock.look();
    }
    process::read_clocks_coarsely();
    cost::give_up();
}

/// Recording ends: tables that grow would end the thread. It is not known whether the call will
/// succeed, and afterwards it is too late.
pub fn gives_up_system_calls() {
    gives_up_counter();
    if let Some(_work) = begin() {
        stack::with_room(end_recording);
    }
}

fn end_recording() {
    let Some(mut session) = SESSION.lock().take_if(|session| session.is_this_process()) else { return };
    recording::stop();
    session.append(&Frame::Error(ErrorFrame { code: ErrorCode::Blind, text: STRICT.to_owned() }));
    session.flush();
    // The words stay mapped: another thread that is still in a hook may be publishing.
    core::mem::forget(session);
}
