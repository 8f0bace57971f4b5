//! Where symbols come in: the caller knows files and debug information, this crate does not.

use memgate_model::Frame;
use memgate_wire::Module;

use crate::record::ProcessRecord;

/// Turns the raw stacks of a record into frames with functions and lines.
pub trait Resolve {
    /// The stack whose innermost node is `stack`, in the module lists of `record`. A stack of which
    /// nothing is known has no frames; an address without a symbol is a frame with its module and
    /// offset.
    fn frames(&mut self, record: &ProcessRecord, stack: u32) -> ResolvedStack;

    /// The functions at a return address, innermost first; none where nothing is known.
    fn functions(&mut self, _record: &ProcessRecord, _pc: u64) -> Vec<Frame> {
        Vec::new()
    }

    /// The variable that an offset in the address space of a module's file lies in, or an offset in
    /// its block of thread-local variables.
    fn variable(&mut self, _module: &Module, _offset: u64, _thread_local: bool) -> Option<Variable> {
        None
    }
}

/// A variable with static storage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Variable {
    /// Its name with its name spaces, or with the function that it is static in.
    pub name: String,
    /// Where the offset lies in it.
    pub into: u64,
    /// File and line of its declaration.
    pub place: Option<(String, u32)>,
}

/// A stack with its symbols.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolvedStack {
    /// Innermost first, inlined functions before the function they were inlined into.
    pub frames: Vec<Frame>,
    /// It could not be unwound to its root.
    pub truncated: bool,
}
