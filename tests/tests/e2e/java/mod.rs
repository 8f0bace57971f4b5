//! Java: the agent in a virtual machine, the builds that start one, and what the tests are told.

mod agent;
mod builds;
pub(crate) mod verdicts;
