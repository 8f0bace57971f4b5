//! What every runner stands on: a command with the agent inside, followed to its end.
//!
//! Data flow: [`Job`] → [`supervise`] starts it and records → the frames of each process become a
//! record, and its [`Orders`] answer at each end of a test ([`orders`]) → [`RunState`] knows which
//! test is open since when → [`Done`]. [`again`] is what tests share that memgate repeats by
//! itself, [`Budget`] the time they have. Only this folder runs tests on this machine
//! (`suite` lists them); no module of it knows a framework.

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
pub(super) use budget::Budget;
pub(super) use context::{Context, Stopped};
pub(super) use interrupt::Interrupts;
pub(super) use kept::KeptFiles;
pub(super) use news::News;
pub(super) use orders::{CopyAtMainEnd, Last, MakeOrders, Orders, Settle, Watch, of_programs, test_id};
pub(super) use state::{Clocked, Finished, Limit, Overdue, RunState};
pub(super) use supervise::{Done, Job, at, supervise};
pub(super) use users::{launch, ran_tests, status, typed};
