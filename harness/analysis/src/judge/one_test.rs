//! One test while it is being judged.

use memgate_model::{Leak, Metric, Per, Threshold};

use super::context::JudgeContext;
use super::judgement::Judgement;
use super::leaks::shown;
use crate::java::JavaLeak;
use crate::policy::{smallest_limit, thresholds};

/// One test and its unfinished verdict. The other files of this folder add the steps to judge it.
pub(super) struct TestJudge<'c, 'p> {
    pub(super) context: &'c mut JudgeContext<'p>,
    pub(super) suite: &'c str,
    pub(super) id: &'c str,
    pub(super) judgement: Judgement,
}

impl<'c, 'p> TestJudge<'c, 'p> {
    /// Begins a test: waivers now apply to its leaks.
    pub(super) fn enter(context: &'c mut JudgeContext<'p>, suite: &'c str, id: &'c str) -> Self {
        context.waivers.enter(suite, id);
        Self { context, suite, id, judgement: Judgement::default() }
    }

    pub(super) fn thresholds(&self, metric: Metric, per: Per) -> Vec<Threshold> {
        thresholds(self.context.policy, self.suite, self.id, metric, per)
    }

    /// Has the rule for a metric a limit per iteration?
    pub(super) fn has_limit(&self, metric: Metric) -> bool {
        !self.context.policy.limits(self.suite, self.id, metric, Per::Iteration).is_empty()
    }

    /// The smallest threshold of a metric per iteration.
    pub(super) fn smallest_limit(&self, metric: Metric) -> Option<f64> {
        smallest_limit(self.context.policy, self.suite, self.id, metric, Per::Iteration)
    }

    /// Does the value exceed what an iteration may leave?
    pub(super) fn is_too_much(&self, metric: Metric, value: f64) -> bool {
        self.smallest_limit(metric).is_some_and(|limit| value > limit)
    }

    /// Lists a leak. `frame_names`: names that waivers of frames must match. Returns whether a waiver covers it.
    pub(super) fn list(&mut self, mut leak: Leak, frame_names: &[String]) -> bool {
        leak.id = self.context.waivers.id_here(&leak);
        self.context.waivers.cover(&mut leak, frame_names);
        self.add(leak)
    }

    /// The same for a leak that was not repeated.
    pub(super) fn list_once(&mut self, mut leak: Leak, frame_names: &[String]) -> bool {
        leak.id = self.context.waivers.id_here(&leak);
        self.context.waivers.cover_any_amount(&mut leak, frame_names);
        self.add(leak)
    }

    fn add(&mut self, leak: Leak) -> bool {
        let is_waived = leak.waiver.is_some();
        self.judgement.leaks.push(leak);
        is_waived
    }

    /// The same for Java objects. Returns the reason of the waiver that covers them.
    pub(super) fn list_java(&mut self, leak: &JavaLeak) -> Option<String> {
        let mut leak = shown(leak);
        self.context.waivers.cover_java(&mut leak);
        let waiver = leak.waiver.clone();
        self.judgement.leaks.push(leak);
        waiver
    }
}

#[cfg(test)]
mod tests {
    use memgate_model::{Frame, LeakKind};

    use super::*;
    use crate::judge::tests::waiver;
    use crate::policy::{FramePattern, GatePolicy, WaiverMatch};
    use crate::resolve::ByAddress;

    /// Regression test: the id that the report showed was that of every leak without a stack, and no waiver matched it.
    #[test]
    fn a_listed_leak_without_a_stack_has_the_id_of_its_test() {
        let policy = GatePolicy::default();
        let (mut resolve, mut shown) = (ByAddress, Vec::new());
        let mut context = JudgeContext::new(&policy, &mut resolve);
        for id in ["ATest.a", "BTest.b"] {
            let mut test = TestJudge::enter(&mut context, "unit", id);
            test.list(Leak { kind: LeakKind::Native, ..Leak::default() }, &[]);
            shown.extend(test.judgement.leaks.into_iter().map(|leak| leak.id));
        }
        assert_ne!(shown[0], shown[1]);
    }

    #[test]
    fn a_waiver_of_a_function_covers_no_leak_without_a_stack() {
        let of_setenv = FramePattern::new("*!setenv", |name| name.ends_with("!setenv"));
        let policy = GatePolicy {
            waivers: vec![waiver(WaiverMatch::Frame(of_setenv), None)],
            ..GatePolicy::default()
        };
        let mut resolve = ByAddress;
        let mut context = JudgeContext::new(&policy, &mut resolve);
        let mut is_waived = |frames| {
            let leak = Leak { kind: LeakKind::Native, frames, ..Leak::default() };
            TestJudge::enter(&mut context, "unit", "ATest.a").list(leak, &["libc.so!setenv".to_owned()])
        };
        assert!(is_waived(vec![Frame::default()]));
        assert!(!is_waived(Vec::new()));
    }
}
