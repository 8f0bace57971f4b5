//! From frames to verdicts: deltas, growth, leak groups, signatures, the judge.
//!
//! Data flow: [`Observer`] turns the frames of one process into a [`ProcessRecord`] (windows, survivors, samples of the
//! operating system). [`screen`] names the suspects: tests that left something. While a suspect runs again, alone,
//! [`Confirmation`] decides when enough iterations have been seen. JVM suites are screened in rounds
//! ([`screen_rounds`]) and confirmed class by class ([`JavaConfirmation`]). Native allocations of an app's own
//! libraries are checked separately (`native`). [`judge`] checks all records of a run against a [`GatePolicy`] and
//! returns the report. [`Resolve`] supplies symbols.
//!
//! `docs/verdicts.md` states the rules; `growth` implements the central one. Everything here is a pure function: it
//! uses no file, clock, environment or thread.
#![forbid(unsafe_code)]

mod beneath;
mod by_turns;
mod company;
mod confirm;
#[cfg(test)]
mod dsl;
mod groups;
mod growth;
mod hunt;
mod input;
mod java;
mod judge;
mod looks;
mod measured;
mod native;
mod native_holders;
mod observer;
mod os_names;
mod own_tests;
mod policy;
mod random_names;
mod range;
mod rare;
mod record;
mod repetition;
mod resolve;
mod sampling;
mod screen;
mod signature;
mod stacks;
pub mod stats;

pub use company::{Company, company, company_of_setup};
pub use confirm::{Confirmation, ENOUGH_BYTES, HuntTime, Next};
pub use hunt::{Candidate, Hunted, candidates, hunted, rarest_after};
pub use input::{ConfirmationInput, Ending, JavaInput, ProcessInput, Repetition, RunInput, SuiteInput};
pub use java::{
    ClassWindow, Exhaustion, Followed, JavaConfirmation, JavaHunt, JavaHunted, JavaNames, JavaRecord,
    JavaSnapshot, JavaSuspect, JavaWindow, Left, NarrowedTests, ROUNDS_OF_LITERALS, Rare, RoundsWatch,
    base_of, class_windows, classes_to_explain, followed, grew_in_company, growing_tests, grows_beside,
    java_hunted, left_out, ran_out_of_memory, screen_rounds,
};
pub use judge::judge;
pub use looks::must_be_screened_again;
pub use native::{NativeConfirmation, leaves_native, own_libraries};
pub use native_holders::stacks_that_grew;
pub use observer::{Limits, Observer};
pub use policy::{
    Bound, FollowPolicy, FramePattern, GatePolicy, Limit, NamePattern, Review, Rule, TestPattern,
    TextPattern, Waiver, WaiverMatch,
};
pub use record::{
    CurveSample, Mapped, Names, OpenTest, OsName, OsState, ProcessEnd, ProcessRecord, SeenError, StackStep,
    Unclear, Unit, Window,
};
pub use resolve::{Resolve, ResolvedStack, Variable};
pub use screen::{ENOUGH_REPETITIONS, Suspect, causes_first, screen};
pub use stacks::{complete, wanting};
