//! Java virtual machines on this machine: how they load the agent ([`options`]), and the replacement where no agent may
//! be loaded ([`agentless`], which uses [`attach`] and writes through [`spool`]).

pub(crate) mod agentless;
pub(crate) mod attach;
pub(crate) mod options;
mod spool;
