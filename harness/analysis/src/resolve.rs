//! Interface for symbols: the caller reads files and debug information; this crate does not.

use memgate_model::Frame;
use memgate_wire::Module;

use crate::record::{ProcessRecord, StackStep};

/// Turns the raw stacks of a record into frames with functions and lines.
pub trait Resolve {
    /// The stack whose innermost node is `stack`, in the module lists of `record`. An unknown stack has no frames. An
    /// address without a symbol becomes a frame with its module and offset.
    fn frames(&mut self, record: &ProcessRecord, stack: u32) -> ResolvedStack;

    /// The functions at a return address, innermost first. Empty if unknown.
    fn functions(&mut self, _record: &ProcessRecord, _pc: u64) -> Vec<Frame> {
        Vec::new()
    }

    /// The variable at an offset in the address space of a module's file, or at an offset in its block of thread-local
    /// variables.
    fn variable(&mut self, _module: &Module, _offset: u64, _thread_local: bool) -> Option<Variable> {
        None
    }

    /// The name of a module's file.
    fn file_name(&self, path: &str) -> String {
        path.rsplit('/').next().unwrap_or(path).to_owned()
    }
}

/// A variable with static storage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Variable {
    /// Its name, qualified by its name spaces or by the function in which it is static.
    pub name: String,
    /// Offset within the variable.
    pub into: u64,
    /// File and line of its declaration.
    pub place: Option<(String, u32)>,
}

/// A stack with its symbols.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolvedStack {
    /// Innermost first, inlined functions before the function they were inlined into.
    pub frames: Vec<Frame>,
    /// The stack could not be unwound to its root.
    pub truncated: bool,
}

/// Frames without symbols. In two records of the same build, addresses in modules identify a place.
pub(crate) struct ByAddress;

impl Resolve for ByAddress {
    fn frames(&mut self, record: &ProcessRecord, stack: u32) -> ResolvedStack {
        let (steps, truncated) = record.stack(stack);
        let frame = |step: StackStep| {
            let modules = record.modules(step.generation);
            let of = modules.iter().find(|m| (m.start..m.end).contains(&step.pc.saturating_sub(1)));
            Frame {
                module: of.map_or_else(String::new, |m| m.path.clone()),
                offset: of.map_or(step.pc, |m| step.pc.saturating_sub(m.bias)),
                ..Frame::default()
            }
        };
        ResolvedStack { frames: steps.into_iter().map(frame).collect(), truncated }
    }
}
