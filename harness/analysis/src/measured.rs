//! Finds tests and processes that could not be measured, and why. They never pass.

use memgate_model::{Outcome, Verdict, format_number_of};
use memgate_wire::{ErrorCode, GoodbyeReason, Outcome as Ended, WIRE_VERSION};

use crate::input::{Ending, ProcessInput};
use crate::own_tests::never_ended;
use crate::record::{ProcessRecord, Window};

pub(crate) const SIGKILL: i32 = 9;

/// At most this many threads are named when a process hung or died.
const MAX_THREADS: usize = 6;

/// Why a record, or one window of it, cannot be judged. `None`: it was measured.
pub(crate) fn unmeasured(record: &ProcessRecord, window: Option<&Window>) -> Option<String> {
    if let Some(hello) = &record.hello {
        if hello.wire_version > WIRE_VERSION {
            let (theirs, agent) = (hello.wire_version, &hello.agent_version);
            return Some(format!("not measured: agent {agent} writes version {theirs} of the stream"));
        }
        if let Some(blind) = &hello.blind {
            return Some(format!("not measured: {blind}"));
        }
    } else {
        return Some("not measured: nothing readable was recorded".to_owned());
    }
    let until_ns = window.map_or(u64::MAX, |w| w.end_ns);
    let stopped = |code| {
        use ErrorCode::{BadOption, Blind, Carrier, OutOfMemory, OutOfTable};
        matches!(code, BadOption | Blind | Carrier | OutOfMemory | OutOfTable)
    };
    if let Some(seen) = record.errors.iter().find(|e| stopped(e.error.code) && e.t_ns <= until_ns) {
        return Some(format!("not measured: {}", seen.error.text));
    }
    let window = window?;
    if window.open_tests > 1 {
        let tests = window.open_tests;
        return Some(format!(
            "not measured: {tests} tests ran at the same time, what each left cannot be told apart"
        ));
    }
    let why = match (window.start_sequence, window.end_sequence) {
        (0, 1..) => "its program reported its end without its start",
        _ => "part of what was recorded at its end is missing",
    };
    window.incomplete.then(|| format!("not measured: {why}"))
}

/// When a process ended although it should have continued.
#[derive(Debug, Clone, Copy)]
pub(crate) enum When {
    /// While a test ran.
    InATest,
    /// After a test, before its goodbye.
    AfterATest,
}

/// How a process broke off: the outcome for the test, and a text.
pub(crate) fn broken_off(process: &ProcessInput, when: When) -> (Outcome, String) {
    let record = &process.record;
    if let Some(goodbye) = &record.goodbye {
        let how = match (when, goodbye.reason) {
            (_, GoodbyeReason::Stopped) => "memgate stopped its process",
            (When::InATest, GoodbyeReason::QuickExit) => "the test ended its process with _exit",
            (When::InATest, GoodbyeReason::Exit) => "the test ended its process with exit",
            (When::InATest, GoodbyeReason::Exec) => "the test replaced its process by another program",
            (When::AfterATest, GoodbyeReason::QuickExit) => {
                "its process ended with _exit, and not all tests have run"
            }
            (When::AfterATest, GoodbyeReason::Exit) => {
                "its process ended with exit, and not all tests have run"
            }
            (When::AfterATest, GoodbyeReason::Exec) => {
                "its process became another program, and not all tests have run"
            }
        };
        return (Outcome::Crashed, how.to_owned());
    }
    let at = threads(record, matches!(process.ending, Ending::TimedOut(_)));
    let when = match when {
        When::InATest => "in the middle of it",
        When::AfterATest => "without a word",
    };
    match (process.ending, &record.damaged) {
        (Ending::TimedOut(limit), _) => {
            (Outcome::TimedOut, format!("still running after {} s{at}", limit.as_secs_f64()))
        }
        (Ending::Signalled(signal), _) => {
            (Outcome::Crashed, format!("its process was ended by signal {signal}{}{at}", signal_name(signal)))
        }
        // The test did nothing wrong as far as known; only its recording is broken.
        (_, Some(damage)) => (Outcome::Passed, format!("not measured: its recording breaks off: {damage}")),
        // The process is the test and exited with 0. Nothing shows that it failed, nor what it left.
        (Ending::Exited(0), None) if record.windows.is_empty() && record.open.is_empty() => {
            let how = "not measured: its process became another program (exec), or ended past the C library; \
                       measure the other program, or let it end by exit";
            (Outcome::Passed, how.to_owned())
        }
        (Ending::Exited(status), None) => {
            (Outcome::Crashed, format!("its process ended {when}, with status {status}{at}"))
        }
        (Ending::Unknown, None) => (Outcome::Crashed, format!("its process ended {when}{at}")),
    }
}

/// The exit status of a process, if known. A signal counts as 128 plus its number, as in a shell.
pub(crate) fn status(process: &ProcessInput) -> Option<i32> {
    match process.ending {
        Ending::Exited(status) => Some(status),
        Ending::Signalled(signal) => Some(128 + signal),
        Ending::TimedOut(_) => None,
        Ending::Unknown => process.record.goodbye.as_ref().and_then(|g| g.status),
    }
}

/// Why the repetitions of a test cannot be judged: an error, or a warning if the test itself cannot be repeated.
pub(crate) fn unusable(again: &ProcessInput, id: &str) -> Option<(Verdict, String)> {
    let record = &again.record;
    let windows: Vec<_> = record.windows_of(id).collect();
    let ended = |outcome| windows.iter().any(|w| w.outcome == Some(outcome));
    if ended(Ended::Failed) {
        return Some((Verdict::Warn, "it fails when it runs alone, again and again".to_owned()));
    }
    if ended(Ended::Skipped) {
        let why = "it is skipped when it runs alone, again and again: an assumption of it does not hold then";
        return Some((Verdict::Warn, why.to_owned()));
    }
    let error = |why| Some((Verdict::Error, why));
    if let Some(why) = unmeasured(record, None)
        .or_else(|| windows.iter().find_map(|w| unmeasured(record, Some(w))))
        .or_else(|| record.damaged.clone())
    {
        return error(why);
    }
    if let Some(open) = record.open.iter().find(|open| never_ended(record, open)) {
        let id = &open.id;
        return error(format!(
            "{id} was open meanwhile, and its program never reported its end (MemgateTestEnd)"
        ));
    }
    if !record.open.is_empty() || record.goodbye.is_none() {
        let (_, how) = broken_off(again, When::InATest);
        let why = format!("after {} {how}", format_number_of(windows.len(), "iteration"));
        // Memgate ended it, or the kernel did because memory ran out: the test may leak that much.
        let is_ended_by_others = record.goodbye.as_ref().is_some_and(|g| g.reason == GoodbyeReason::Stopped)
            || again.ending == Ending::Signalled(SIGKILL);
        return match windows.len() {
            // It ran once as in the screen. What it left prevents a second run.
            1 | 2 if !is_ended_by_others => {
                Some((Verdict::Warn, format!("it cannot be repeated in one process: {why}")))
            }
            _ => error(why),
        };
    }
    match windows.len() {
        0 => error("no iteration of it was recorded".to_owned()),
        1 | 2 => Some((Verdict::Warn, "it cannot be repeated in one process".to_owned())),
        _ => None,
    }
}

/// Where the threads were: all of a process that `hung`, otherwise those that waited.
fn threads(record: &ProcessRecord, hung: bool) -> String {
    let waits = |t: &memgate_wire::ThreadEntry| !["", "0"].contains(&t.waits_in.as_str());
    let place = |t: &memgate_wire::ThreadEntry| match waits(t) {
        true => format!("{} in {}", t.name, t.waits_in),
        false => t.name.clone(),
    };
    let telling: Vec<_> = record.last_threads.iter().filter(|t| hung || waits(t)).collect();
    let named: Vec<_> = telling.iter().take(MAX_THREADS).map(|t| place(t)).collect();
    if named.is_empty() {
        return String::new();
    }
    let more = telling.len() - named.len();
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("; last seen: {}{rest}", named.join(", "))
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        15 => " (SIGTERM)",
        _ => "",
    }
}
