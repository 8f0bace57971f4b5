//! One time that a Java virtual machine ran out of memory, or its heap was above its limit.

use memgate_model::{Frame, format_bytes};

use super::names::is_own;
use crate::stats::float;

/// One `OutOfMemoryError`, or the heap above its limit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exhaustion {
    /// When.
    pub t_ns: u64,
    /// What the virtual machine says: `Java heap space`; or which limit it is above.
    pub what: String,
    /// No error: the heap is above its limit.
    pub limit: bool,
    /// Used heap, bytes.
    pub heap_used: Option<u64>,
    /// The largest it may become.
    pub heap_max: Option<u64>,
    /// Classes with most bytes: name, instances, bytes.
    pub classes: Vec<(String, u64, u64)>,
    /// Where most of what was sampled was allocated, innermost first.
    pub frames: Vec<Frame>,
    /// What held the heap, in the words of who looked into the dump; empty: nobody did.
    pub held: String,
    /// The heap dump.
    pub dump: Option<String>,
}

impl Exhaustion {
    /// In words.
    pub(crate) fn described(&self) -> String {
        let bytes = |bytes: u64| format_bytes(float(bytes));
        let kind = if self.limit { "" } else { "OutOfMemoryError: " };
        let mut text = format!("{kind}{}", self.what);
        if let (Some(used), Some(max)) = (self.heap_used, self.heap_max) {
            text += &format!(", {} of {} used", bytes(used), bytes(max));
        }
        let classes: Vec<String> = self
            .classes
            .iter()
            .map(|(class, count, size)| format!("{count} × {class} ({})", bytes(*size)))
            .collect();
        if !classes.is_empty() {
            text += &format!(", most by {}", classes.join(", "));
        }
        let own = self.frames.iter().find(|f| f.function.as_deref().is_some_and(is_own));
        if let Some(frame) = own.or(self.frames.first()) {
            let place = match (&frame.file, frame.line) {
                (Some(file), Some(line)) => format!("({file}:{line})"),
                _ => String::new(),
            };
            text += &format!(", most allocated at {}{place}", frame.function.as_deref().unwrap_or("?"));
        }
        if !self.held.is_empty() {
            text += &format!("; {}", self.held);
        }
        if let Some(dump) = &self.dump {
            text += &format!("; heap dump: {dump}");
        }
        text
    }
}
