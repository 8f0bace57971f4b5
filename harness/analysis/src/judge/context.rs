//! What every judgement needs.

use crate::policy::{GatePolicy, Waivers};
use crate::resolve::Resolve;

/// What every judgement needs.
pub(super) struct JudgeContext<'a> {
    pub(super) policy: &'a GatePolicy,
    pub(super) waivers: Waivers<'a>,
    pub(super) resolve: &'a mut dyn Resolve,
}
