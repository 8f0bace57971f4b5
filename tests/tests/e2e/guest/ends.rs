//! A process ends as it does without the agent, however it ends, and the stream says how complete it is.

use memgate_wire::{BoundaryKind, Frame, GoodbyeReason};

use crate::guest::life::{Driven, Guest, gate, program};

fn drive(how: &str) -> Driven {
    Guest::new(&format!("ends-{}", how.replace(' ', "-")), &program("ends"), &[how]).drive()
}

#[test]
fn an_orderly_end_is_told_with_everything_that_was_alive() {
    use GoodbyeReason::{Exit, QuickExit};
    for (how, status, reason, told) in [
        ("return", 3, Exit, None),
        ("exit", 3, Exit, None),
        ("_exit", 3, QuickExit, Some(3)),
        ("_Exit", 3, QuickExit, Some(3)),
        ("quick_exit", 3, QuickExit, Some(3)),
        ("exit in thread", 5, Exit, None),
        ("_exit in thread", 5, QuickExit, Some(5)),
        ("exit while others allocate", 5, Exit, None),
        ("last thread", 0, Exit, None),
    ] {
        let driven = drive(how).ends_with(status);
        let stream = driven.main(&program("ends"));
        stream.is_exact(&[(4241, 3)]);
        let goodbye = stream.goodbye().unwrap();
        assert_eq!((goodbye.reason, goodbye.status), (reason, told), "{how}");
    }
}

#[test]
fn a_signal_ends_it_as_ever_and_nothing_pretends_to_be_an_orderly_end() {
    for (how, signal) in [("abort", 6), ("kill", 9), ("term", 15), ("segv", 11)] {
        let driven = drive(how).ends_with(-signal);
        let stream = driven.main(&program("ends"));
        assert_eq!(stream.goodbye(), None, "{how}");
        let ended = |f: &Frame| matches!(f, Frame::Boundary(b) if b.kind == BoundaryKind::ProcessEnd);
        assert!(!stream.frames.iter().any(ended), "{how}");
    }
    // The program's own test failed: that sets the exit code, and the report says that nothing was measured.
    let run = gate("killed", &program("ends"), &["kill"]);
    run.ends_with(1).says("SIGKILL");
    assert_eq!(run.report().verdict, memgate_model::Verdict::Error, "{run}");
}

#[test]
fn exit_handlers_that_allocate_are_recorded_to_the_last() {
    let driven = drive("handlers").ends_with(3);
    assert_eq!(driven.stdout.matches("handler").count(), 40);
    // Each handler overwrites the first of the three blocks with a new one, so all old ones are lost.
    driven.main(&program("ends")).is_exact(&[(4241, 3), (4253, 40)]);
}

#[test]
fn thread_key_destructors_that_arm_themselves_again_are_recorded_to_the_last() {
    let driven = drive("destructors").ends_with(3);
    // glibc runs key destructors in four rounds; this program needs three. 800 threads keep one block in
    // each.
    driven.main(&program("ends")).is_exact(&[(4241, 3), (4253, 2400), (71, 0), (33, 0)]);
}
