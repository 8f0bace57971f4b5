//! A guest under limits: it reaches them and continues as it would alone; the agent's own use of resources
//! has a bound.

use std::process::Command;

use memgate_e2e::{Project, agent, say, skip};
use memgate_wire::Frame;

use crate::guest::rules::{Tracked, alike, alike_with, program};

/// The agent maps at most a quarter of the guest's address span for its table, in steps of 516 KiB. This
/// constant limits all other memory.
const BESIDE_THE_TABLE_KIB: i64 = 6144;
/// Call stacks that `guest_seccomp` makes: more than one chunk of the stack store holds (65,536).
const STACKS: u64 = 1 << 17;

/// Either everything was recorded and the books are exact, or the stream says that recording stopped.
#[track_caller]
fn exact_or_told(run: &Tracked) {
    if !run.stopped() {
        run.agrees();
    }
}

#[test]
fn a_guest_that_runs_out_of_address_space_or_data_goes_on() {
    for which in ["as", "data"] {
        exact_or_told(&alike(&format!("rules-{which}"), "guest_limits", &[which]));
    }
}

#[test]
fn refused_requests_leave_the_books_exact() {
    let run = alike("rules-refusals", "guest_limits", &["refusals"]);
    assert!(!run.stopped());
    run.agrees();
}

#[test]
fn a_limit_on_file_sizes_is_no_signal_and_no_failure() {
    for (bytes, streams) in [("0", 1), ("20000", 2)] {
        let run = alike(&format!("rules-fsize-{bytes}"), "guest_limits", &["fsize", bytes]);
        assert!(run.told.contains("child: 7") && run.told.contains("signals: 0"), "{}", run.told);
        // The open stream of the parent needs no more file size; a child may be unable to create its stream.
        assert_eq!(run.streams.len(), streams);
        run.agrees();
    }
}

#[test]
fn four_descriptors_are_enough() {
    let run = alike("rules-nofile", "guest_limits", &["nofile"]);
    assert!(run.told.contains("the fourth: 3") && run.told.contains("child: 7"), "{}", run.told);
    run.agrees();
}

#[test]
fn limits_from_before_the_start_change_nothing() {
    // With the last two limits, the agent cannot write a file: it does not record, and the guest does not notice.
    let limits =
        [("-n 4", 1), ("-v 80000", 1), ("-d 40000", 1), ("-s 256", 1), ("-l 0", 1), ("-f 0", 0), ("-f 8", 0)];
    let path = program("guest_calls");
    for (limit, streams) in limits {
        let run = alike_with(&format!("rules-ulimit{}", limit.replace(' ', "")), |preload, options| {
            let mut command = Command::new("sh");
            let script = format!("ulimit {limit} && LD_PRELOAD=$1 exec \"$0\"");
            command
                .args(["-c", &script, path.to_str().unwrap(), preload])
                .env("MEMGATE_AGENT_OPTIONS", options);
            command
        });
        assert_eq!(run.streams.len(), streams, "ulimit {limit}");
        assert!(run.told.contains("free: errno 4711"), "ulimit {limit}: {}", run.told);
    }
}

#[test]
fn locked_memory_stays_within_its_bound() {
    let run = alike("rules-memlock", "guest_limits", &["memlock", "0"]);
    if run.told.contains("not possible here") {
        skip("no privilege to lock all memory");
        return;
    }
    let (plain, tracked) = run.figures("# locked", " KiB");
    let most = plain + plain / 4 + BESIDE_THE_TABLE_KIB;
    assert!(tracked <= most, "{tracked} KiB are locked, {plain} plain");
    say(&format!("locked: {plain} KiB plain, {tracked} KiB tracked, bound {most} KiB"));
    run.agrees();
}

#[test]
fn a_limit_on_locked_memory_leaves_the_guest_alive() {
    // 8 MiB, the default on many systems: half of it is the guest's, half the agent's.
    let run = alike("rules-memlock-limit", "guest_limits", &["memlock", "8388608"]);
    if run.told.contains("not possible here") {
        skip("less than 8 MiB may be locked here");
        return;
    }
    exact_or_told(&run);
}

#[test]
fn a_hook_makes_no_system_call_that_malloc_would_not_make() {
    for end in ["exit", "_exit", "exit_group"] {
        let run = alike(&format!("rules-seccomp-{end}"), "guest_seccomp", &[end]);
        assert!(run.told.contains("locked up"));
        if end != "exit_group" {
            let cost = &run.goodbye().cost;
            assert!(cost.stack_nodes >= STACKS, "the stores grew under the filter: {cost:?}");
            assert!(!run.stopped());
        }
    }
}

#[test]
fn every_system_call_of_a_guest_seen_from_outside() {
    let path = program("guest_descriptors");
    let run = alike_with("rules-descriptors", |preload, options| {
        let mut command = Command::new(&path);
        // The tracer preloads the agent, only into the guest.
        command.args(["trace", preload]).env_remove("LD_PRELOAD").env("MEMGATE_AGENT_OPTIONS", options);
        command
    });
    if run.told.contains("not possible here") {
        skip("no permission to trace");
        return;
    }
    assert!(run.told.contains("violations: 0\n") && run.told.contains("threads: 1\n"), "{}", run.told);
    assert_eq!(run.streams.len(), 2, "the guest and its child, under {}", agent().display());
    // The trace includes the agent's descriptors: its spool is open for a moment, at the start and in the child.
    assert!(run.figures("# a descriptor", " system calls").1 >= 4, "{}", run.told);
}

/// The hooks measure time, and every frame has a timestamp.
#[test]
fn a_guest_that_gives_up_the_time_stamp_counter_lives_and_is_recorded() {
    for how in ["prctl", "syscall", "handler", "early", "child"] {
        let run = alike(&format!("rules-counter-{how}"), "guest_gives_up", &["counter", how]);
        assert!(!run.stopped());
        run.agrees();
        let recording_ns = run.goodbye().cost.recording_ns;
        // If the guest gave the counter up before the agent started, nothing was timed: the cost is unknown.
        assert_eq!(recording_ns == 0, how == "early", "{how}: {recording_ns} ns");
    }
}

/// The system calls that recording needs are no longer allowed.
#[test]
fn a_guest_that_gives_up_system_calls_lives_and_says_that_it_is_not_measured() {
    for (what, says) in [("strict", "SECCOMP's strict mode"), ("filter", "refuses futex, mmap or munmap")] {
        gives_up_system_calls(what, says);
    }
}

#[track_caller]
fn gives_up_system_calls(what: &str, says: &str) {
    for how in ["prctl", "syscall", "child"] {
        let run = alike(&format!("rules-{what}-{how}"), "guest_gives_up", &[what, how]);
        assert!(run.told.contains("locked up\n"), "{}", run.told);
        let locked_up = run.streams.last().expect("a stream of each process");
        let error = locked_up.iter().find_map(|frame| match frame {
            Frame::Error(error) => Some(error.text.as_str()),
            _ => None,
        });
        assert!(error.is_some_and(|text| text.contains(says)), "{what} {how}: {error:?}");
        if how == "child" {
            run.agrees();
        }
    }
    let guest = program("guest_gives_up");
    let run = Project::new(what).memgate(&["run", "--", guest.to_str().unwrap(), what, "prctl"]);
    run.says("not measured: it ").says(says).ends_with(1);
}
