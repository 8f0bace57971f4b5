//! From frames to verdicts: deltas, growth, leak groups, signatures, the judge.
//!
//! Data flow: [`Observer`] turns the frames of one process into a [`ProcessRecord`] (windows,
//! survivors, what the operating system said). [`screen`] names the tests that left something
//! behind. While such a test runs again, alone, [`Confirmation`] says when enough iterations have
//! been seen. JVM suites are screened by rounds ([`screen_rounds`]) and confirmed class by class
//! ([`JavaConfirmation`]); what an app's own libraries allocate is looked at beside (`native`).
//! [`judge`] puts all records of a run against a [`GatePolicy`] and returns the report. Symbols
//! come in through [`Resolve`].
//!
//! The rules are those of `docs/verdicts.md`; `growth` holds the heart of them. Everything here is a function
//! from values to values: no file, clock, environment or thread.
#![forbid(unsafe_code)]

mod beneath;
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
mod policy;
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
pub use confirm::{Confirmation, HuntTime, Next};
pub use hunt::{Candidate, Hunted, candidates, hunted, rarest_after};
pub use input::{ConfirmationInput, Ending, JavaInput, ProcessInput, Repetition, RunInput, SuiteInput};
pub use java::{
    ClassWindow, Exhaustion, Followed, JavaConfirmation, JavaHunt, JavaHunted, JavaNames, JavaRecord,
    JavaSnapshot, JavaSuspect, JavaWindow, Left, ROUNDS_OF_LITERALS, Rare, RoundsWatch, base_of,
    class_windows, classes_to_explain, followed, grew_in_company, growing_tests, java_hunted, left_out,
    ran_out_of_memory, screen_rounds,
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
    CurveSample, Names, OpenTest, OsName, OsState, ProcessEnd, ProcessRecord, SeenError, StackStep, Unclear,
    Unit, Window,
};
pub use resolve::{Resolve, ResolvedStack, Variable};
pub use screen::{Suspect, causes_first, screen};
pub use stacks::{complete, wanting};
