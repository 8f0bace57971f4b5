//! Java virtual machines on this machine: how they load the agent ([`options`]), and what stands in
//! for it where none may be loaded ([`agentless`], over [`attach`], speaking through [`spool`]).

pub mod agentless;
pub mod attach;
pub mod options;
mod spool;
