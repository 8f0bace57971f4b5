//! The common base of all runners: runs a command with the agent inside and follows it until it ends.
//!
//! Data flow: [`Job`] → [`supervise`] starts it and records → the frames of each process become a record, and its
//! [`Orders`] reply at the end of each test ([`orders`]) → [`RunState`] knows which test is open since when → [`Done`].
//! [`again`] has the common code for tests that memgate itself repeats, [`Budget`] their time. Only this folder runs
//! tests on this machine (`suite` lists them); no module of it knows a test framework.

mod again;
mod budget;
mod context;
mod interrupt;
mod kept;
mod news;
mod orders;
mod state;
mod supervise;
mod users;

pub(super) use again::{
    cannot_run_again, elapsed, forget, keep_output, no_room, options_of, outcome, silent,
};
pub(super) use budget::{Budget, Waited};
pub(super) use context::{Context, Stopped};
pub(super) use interrupt::Interrupts;
pub(super) use kept::KeptFiles;
pub(super) use news::News;
pub(super) use orders::{
    CopyAtMainEnd, Last, MakeOrders, Orders, Rest, Screening, Settle, Watch, of_programs, test_id,
};
pub(super) use state::{Clocked, Finished, Limit, Overdue, RunState};
pub(super) use supervise::{Done, Job, at, supervise};
pub(super) use users::{launch, ran_tests, status, typed};
