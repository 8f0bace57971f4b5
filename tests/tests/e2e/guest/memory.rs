//! The agent runs out of memory while the program continues with what it has: the program survives, and the
//! stream and the gate report it.

use memgate_model::Verdict;
use memgate_wire::{ErrorCode, Frame};

use crate::guest::life::{Driven, Guest, gate, program};

#[track_caller]
fn drive(name: &str, arguments: &[&str]) -> Driven {
    let driven = Guest::new(&format!("memory-{name}"), &program("memory"), arguments).drive().ends_with(0);
    assert!(driven.stdout.ends_with("done\n"), "{}", driven.stdout);
    driven
}

#[test]
fn no_memory_for_the_table_stacks_threads_or_the_snapshot_ends_the_recording_and_not_the_program() {
    for (what, code, text) in [
        ("table", ErrorCode::OutOfTable, "no memory for the table of live allocations"),
        ("stacks", ErrorCode::OutOfTable, "no memory, or no number, for another call stack"),
        ("threads", ErrorCode::OutOfMemory, "no memory for the state of a thread or a snapshot"),
        ("snapshot", ErrorCode::OutOfMemory, "no memory for the state of a thread or a snapshot"),
    ] {
        let driven = drive(what, &[what]);
        let stream = driven.main(&program("memory"));
        let [error] = stream.errors()[..] else { panic!("{what}: {:?}", stream.errors()) };
        assert_eq!(error.code, code, "{what}");
        assert!(error.text.starts_with(&format!("recording stopped: {text}; ")), "{}", error.text);
        assert!(stream.goodbye().is_some(), "{what}");

        let run = gate(&format!("memory-{what}"), &program("memory"), &[what]);
        run.ends_with(2)
            .says("not measured: recording stopped: no memory")
            .says("raise its limit of memory (ulimit -v");
        assert_eq!(run.report().verdict, Verdict::Error, "{run}");
    }
}

/// Regression: the program ended with SIGABRT, because a failed allocation in Rust aborts the process.
#[test]
fn wherever_in_the_snapshot_the_memory_ends_the_program_lives() {
    for more in [0, 100_000, 400_000, 1_500_000, 3_000_000, 6_000_000, 12_000_000, 20_000_000, 28_000_000] {
        let bytes = more.to_string();
        let driven = drive(&format!("snapshot-{more}"), &["snapshot, a little", &bytes]);
        let stream = driven.main(&program("memory"));
        let whole = stream.goodbye().is_some() && stream.errors().is_empty();
        let kept: u64 = (41..91).map(|size| stream.kept(size)).sum();
        // Recorded in full, or an error, or a spool that could not grow and says so in its first page.
        assert!(!whole || kept == 200_000, "{more}: {kept} blocks and no word about the others");
    }
}

#[test]
fn a_fork_without_memory_for_the_agent_gives_a_child_as_ever() {
    let driven = drive("fork", &["fork"]);
    assert!(driven.stdout.starts_with("child as it should\n"), "{}", driven.stdout);
}

#[test]
fn a_program_with_hardly_any_memory_from_its_beginning_runs_recorded_or_not() {
    // With a lower limit the loader itself fails; the agent needs half a megabyte more.
    for limit in (16..24).map(|n| n * 1_000_000) {
        let driven = drive(&format!("start-{limit}"), &["start", &limit.to_string()]);
        let started = driven
            .mains(&program("memory"))
            .find(|s| s.hello.arguments.get(1).is_some_and(|a| a == "started"));
        let Some(stream) = started else { continue };
        let stopped = stream
            .frames
            .iter()
            .any(|f| matches!(f, Frame::Error(e) if e.text.contains("recording stopped")));
        assert!(stopped || stream.goodbye().is_some_and(|bye| bye.counters.frees == 1), "{limit}");
    }
}
