//! Context of all judgements.

use crate::growth::Allowed;
use crate::policy::{GatePolicy, Waivers};
use crate::resolve::Resolve;

/// Context of all judgements.
pub(super) struct JudgeContext<'a> {
    pub(super) policy: &'a GatePolicy,
    pub(super) waivers: Waivers<'a>,
    pub(super) resolve: &'a mut dyn Resolve,
}

/// Allows no growth after a warm-up. With few iterations the warm-up is shortened, so that most of them count.
pub(super) fn allowed(policy: &GatePolicy, iterations: usize, block: f64) -> Allowed {
    let warm_up = (policy.warm_up as usize).min(iterations / 3);
    Allowed { limit: 0.0, block, warm_up, confidence: policy.confidence }
}
