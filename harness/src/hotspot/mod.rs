//! Java virtual machines on this machine: how they load the agent ([`options`]), and the replacement where no agent may
//! be loaded ([`agentless`], which uses [`attach`] and writes through [`spool`]).

pub mod agentless;
pub mod attach;
pub mod options;
mod spool;
