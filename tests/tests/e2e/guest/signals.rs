//! Signals and cancellation during allocation.

use std::process::Command;

use memgate_e2e::say;

use crate::guest::rules::{alike, alike_with, compiled, program};

#[test]
fn a_handler_that_allocates_in_the_midst_of_a_hook_does_not_spoil_the_books() {
    let path = program("guest_signals");
    let bump = compiled("guest_bump", "libguest_bump.so", &["-shared", "-fPIC", "-fno-builtin"]);
    let run = alike_with("rules-handlers", |preload, options| {
        let mut command = Command::new(&path);
        command.arg("handlers").env("MEMGATE_AGENT_OPTIONS", options);
        // After the agent: the next allocator in the chain.
        command.env("LD_PRELOAD", format!("{preload}:{}", bump.display()));
        command
    });
    let (interrupted, inside) = (run.figures("#", " interrupted").1, run.figures("#", " of them").1);
    assert!(inside >= 5, "the agent itself was interrupted: {}", run.told);
    say(&format!("handlers: {interrupted} interruptions, {inside} in the agent"));
    assert!(!run.stopped());
    run.agrees();
}

#[test]
fn threads_stopped_anywhere_do_not_stop_the_others() {
    let run = alike("rules-stopped", "guest_signals", &["stopped"]);
    assert!(run.told.contains("stops: 60"), "{}", run.told);
    let c = &run.goodbye().counters;
    assert!(c.allocations > 1000 && c.unknown_frees == 0, "{c:?}");
}

/// Regression: the child of a fork in a thread with a pending cancellation ended before its first line,
/// because the agent's `open` was a cancellation point.
#[test]
fn nothing_becomes_a_cancellation_point() {
    let run = alike("rules-cancelled", "guest_signals", &["cancelled"]);
    for line in ["the child's status: 7", "cancelled: 1", "reached: 4"] {
        assert!(run.told.contains(line), "{}", run.told);
    }
    assert_eq!(run.streams.len(), 2);
    // A thread with a pending cancellation left by `_exit`, and the goodbye was written.
    assert_eq!(run.goodbye().status, Some(8));
}
