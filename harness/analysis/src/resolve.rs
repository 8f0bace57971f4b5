//! Where symbols come in: the caller knows files and debug information, this crate does not.

use memgate_model::Frame;

use crate::record::ProcessRecord;

/// Turns the raw stacks of a record into frames with functions and lines.
pub trait Resolve {
    /// The stack whose innermost node is `stack`, in the module lists of `record`. A stack of which
    /// nothing is known has no frames; an address without a symbol is a frame with its module and
    /// offset.
    fn frames(&mut self, record: &ProcessRecord, stack: u32) -> ResolvedStack;
}

/// A stack with its symbols.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolvedStack {
    /// Innermost first, inlined functions before the function they were inlined into.
    pub frames: Vec<Frame>,
    /// It could not be unwound to its root.
    pub truncated: bool,
}
