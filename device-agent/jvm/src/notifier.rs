//! Patches JUnit 4's notifier as it is loaded, so that it reports its tests to the agent.

use memgate_classfile::{Call, Place, insert_calls};
use memgate_session as session;
use memgate_wire::LogLevel;

/// The class that listeners and patches call, in the jar on the boot class path.
const HOOKS: &str = "io/memgate/agent/Hooks";
/// The class to which JUnit 4 reports the events of its tests.
pub(crate) const CLASS: &str = "org/junit/runner/notification/RunNotifier";
const CALLS: [Call<'static>; 4] = [
    // The call comes after all other listeners at the start, and before them at the end, so that the window is tight.
    Call {
        method: "fireTestStarted",
        descriptor: "(Lorg/junit/runner/Description;)V",
        place: Place::End,
        class: HOOKS,
        callee: "junit4Started",
    },
    Call {
        method: "fireTestFinished",
        descriptor: "(Lorg/junit/runner/Description;)V",
        place: Place::Start,
        class: HOOKS,
        callee: "junit4Finished",
    },
    Call {
        method: "fireTestFailure",
        descriptor: "(Lorg/junit/runner/notification/Failure;)V",
        place: Place::Start,
        class: HOOKS,
        callee: "junit4Failed",
    },
    Call {
        method: "fireTestAssumptionFailed",
        descriptor: "(Lorg/junit/runner/notification/Failure;)V",
        place: Place::Start,
        class: HOOKS,
        callee: "junit4Assumed",
    },
];

/// The class with calls to [`HOOKS`] in it; `None`: it is not JUnit 4's notifier, or cannot be
/// changed.
pub(crate) fn patched(name: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    if name != CLASS {
        return None;
    }
    let [started, finished, ..] = CALLS;
    let without_failures = |why| {
        let what = "JUnit 4 does not tell which tests fail: failing ones are listed as passed";
        session::log(LogLevel::Warn, &format!("{what}: {CLASS}: {why}"));
        insert_calls(bytes, &[started, finished])
    };
    match insert_calls(bytes, &CALLS).or_else(without_failures) {
        Ok(changed) => Some(changed),
        Err(why) => {
            session::log(LogLevel::Warn, &format!("JUnit 4's {CLASS} is left alone: {why}"));
            None
        }
    }
}
