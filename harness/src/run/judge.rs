//! Makes the report from facts and records. This works the same for a run that has just ended and for an old one.

use std::path::Path;
use std::sync::Arc;

use memgate_analysis::GatePolicy;
use memgate_model::RunReport;

use super::resolve::Symbols;
use crate::names::Mappings;
use crate::origin;
use crate::reading::{self, Records};
use crate::session::facts::Facts;

/// Judges a run. Missing records are read from `frames`; stream names may also be absolute paths.
#[must_use]
pub fn judge(
    facts: &Facts,
    mut at_hand: Records,
    frames: &Path,
    policy: &GatePolicy,
    symbols: &mut Symbols,
    names: &Arc<Mappings>,
) -> RunReport {
    let input = facts.input(|stream| {
        at_hand.remove(stream).unwrap_or_else(|| reading::read_followed(&frames.join(stream), names))
    });
    let mut report = memgate_analysis::judge(&input, policy, symbols);
    if !facts.root.is_empty() {
        origin::relative_files(&mut report, &facts.root);
    }
    report
}
