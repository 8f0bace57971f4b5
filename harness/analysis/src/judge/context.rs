//! What every judgement needs.

use crate::growth::Allowed;
use crate::policy::{GatePolicy, Waivers};
use crate::resolve::Resolve;

/// What every judgement needs.
pub(super) struct JudgeContext<'a> {
    pub(super) policy: &'a GatePolicy,
    pub(super) waivers: Waivers<'a>,
    pub(super) resolve: &'a mut dyn Resolve,
}

/// Growth of any size, where so many iterations ran. Of few, most have to count.
pub(super) fn allowed(policy: &GatePolicy, iterations: usize, block: f64) -> Allowed {
    let warm_up = (policy.warm_up as usize).min(iterations / 3);
    Allowed { limit: 0.0, block, warm_up, confidence: policy.confidence }
}
