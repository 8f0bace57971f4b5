//! Context of all judgements.

use crate::growth::Allowed;
use crate::own_tests::AllOrigins;
use crate::policy::{GatePolicy, Waivers};
use crate::record::ProcessRecord;
use crate::resolve::Resolve;

/// Context of all judgements.
pub(super) struct JudgeContext<'a> {
    pub(super) policy: &'a GatePolicy,
    pub(super) waivers: Waivers<'a>,
    pub(super) resolve: &'a mut dyn Resolve,
    /// Those of the last two runs for which they were needed: the screen, and the second run of the program.
    origins: Option<([*const ProcessRecord; 2], AllOrigins)>,
}

impl<'a> JudgeContext<'a> {
    pub(super) fn new(policy: &'a GatePolicy, resolve: &'a mut dyn Resolve) -> Self {
        Self { policy, waivers: Waivers::new(policy), resolve, origins: None }
    }

    pub(super) fn origins(&mut self, screened: &ProcessRecord, again: &ProcessRecord) -> &AllOrigins {
        let runs: [*const ProcessRecord; 2] = [screened, again];
        let known = self.origins.take().filter(|(of, _)| *of == runs);
        &self.origins.insert(known.unwrap_or_else(|| (runs, AllOrigins::of(screened, again)))).1
    }
}

/// Allows no growth after a warm-up. With few iterations the warm-up is shortened, so that most of them count.
pub(super) fn allowed(policy: &GatePolicy, iterations: usize, block: f64) -> Allowed {
    let warm_up = (policy.warm_up as usize).min(iterations / 3);
    Allowed { limit: 0.0, block, warm_up, confidence: policy.confidence }
}
