//! Entry of a whole test class: what it leaves, but none of its tests leaves alone.

use std::collections::BTreeMap;

use memgate_model::{
    Area, Leak, LeakKind, Metric, MetricValue, Outcome, Per, TestReport, Threshold, Verdict,
};

use super::screened::Screened;
use super::{class_of, passed};
use crate::input::SuiteInput;
use crate::judge::context::JudgeContext;
use crate::judge::judgement::{Executions, Judgement, applied};
use crate::judge::leaks;
use crate::judge::one_test::TestJudge;
use crate::policy::{is_same_leak, thresholds};
use crate::screen::too_much;

/// A smaller share of a leak is ignored: alone and in its class a test may differ that much.
const LEFT_SHARE: f64 = 0.05;

/// The entry of a class that leaks although none of its tests does so alone, or that was not confirmed.
pub(super) fn entry(
    context: &mut JudgeContext<'_>,
    suite: &SuiteInput,
    class: &str,
    screened: &Screened<'_>,
    runs: &[(String, Executions<'_>)],
    reports: &mut [TestReport],
) -> Option<TestReport> {
    let members: Vec<usize> =
        (0..runs.len()).filter(|i| class_of(&runs[*i].1) == Some(class) && passed(&runs[*i].1)).collect();
    if members.is_empty() {
        return None;
    }
    let repeated: Vec<&TestReport> = members
        .iter()
        .filter(|i| suite.confirmations.contains_key(&runs[**i].0))
        .map(|i| &reports[*i])
        .collect();
    let told =
        members.iter().any(|i| reports[*i].verdict == Verdict::Fail || reports[*i].against_base.is_some());
    let mut judgement = match suite.confirmations.get(class) {
        Some(confirmation) => {
            let leaks = repeated.iter().flat_map(|test| &test.leaks);
            context.waivers.enter_class(&suite.name, class, leaks);
            let mut test =
                TestJudge { context, suite: &suite.name, id: class, judgement: Judgement::default() };
            test.confirmed(suite, confirmation, screened.repeated_for(Some(class)));
            if told {
                test.beside_its_tests(&repeated)?
            } else if is_left_by_its_tests(&test.judgement, &repeated) {
                return None;
            } else if test.judgement.verdict() == Verdict::Pass
                && test.judgement.leaks.iter().all(|leak| is_leak_of(leak, &repeated))
            {
                members.iter().for_each(|i| reports[*i].confirmed = true);
                return None;
            } else {
                test.judgement
            }
        }
        None if told || !repeated.is_empty() => return None,
        None => not_repeated(context, class, screened)?,
    };
    judgement.against_base(context.policy, &suite.name, class);
    let duration_s = members.iter().map(|i| reports[*i].duration_s).sum();
    let entry =
        TestReport { is_class: true, ..judgement.report(class.to_owned(), Outcome::Passed, duration_s) };
    if entry.verdict >= Verdict::Warn && !entry.confirmed {
        for i in members {
            let test = &mut reports[i];
            if test.verdict == Verdict::Pass && !test.confirmed {
                test.verdict = Verdict::NotJudged;
                test.reason = format!("its class grew, and was not confirmed: {class}");
            }
        }
    }
    Some(entry)
}

/// The judgement on a class that was not run alone; `None`: it is no suspect, and was screened.
fn not_repeated(context: &JudgeContext<'_>, class: &str, screened: &Screened<'_>) -> Option<Judgement> {
    let mut judgement = Judgement::default();
    if let Some(suspect) = screened.suspect(Some(class)) {
        judgement.left = suspect.seen();
        judgement.unconfirmed_in_rounds(context.policy, "it was not run alone");
    } else if screened.failing.contains(class) {
        judgement.raise(Verdict::Warn, "not screened: it fails when it is repeated".to_owned());
    } else {
        return None;
    }
    Some(judgement)
}

/// Do the tests of a class list this leak? Waived and allowed leaks are listed too.
fn is_leak_of(leak: &Leak, tests: &[&TestReport]) -> bool {
    tests.iter().flat_map(|test| &test.leaks).any(|known| is_same_leak(known, leak))
}

/// Do its tests alone leave everything that a class leaves above its limits? Then each of them is judged by its own
/// limits.
fn is_left_by_its_tests(class: &Judgement, tests: &[&TestReport]) -> bool {
    let over = |value: &MetricValue| value.threshold.as_ref().is_some_and(|limit| value.value > limit.limit);
    let mut over = class.metrics.iter().filter(|(_, value)| over(value)).peekable();
    over.peek().is_some()
        && over
            .all(|(metric, value)| value.low.is_finite() && value.low <= left_by(tests, *metric, value.per))
}

impl TestJudge<'_, '_> {
    /// If tests of the class fail: the judgement on what the class leaves in addition to them.
    fn beside_its_tests(self, tests: &[&TestReport]) -> Option<Judgement> {
        // If some tests could not be confirmed, their reports say so.
        if !tests.iter().all(|test| test.confirmed) {
            return None;
        }
        let mut rest = self.judgement;
        let (leaks, metrics) = rest.begin_again();
        let names_blocks = leaks.iter().any(|leak| leak.kind == LeakKind::Native);
        rest.leaks = leaks_beside(leaks, tests);
        let keeps = |kind: LeakKind| rest.leaks.iter().any(|leak| leak.kind == kind && leak.waiver.is_none());
        let keeps_objects = keeps(LeakKind::Java);
        // Growth that no leak names may come from any test.
        let has_known_blocks = names_blocks && !keeps(LeakKind::Native);
        let is_exact = is_what_is_left(&rest.leaks, &metrics, tests);
        for (metric, mut of_class) in metrics {
            let by_tests = left_by(tests, metric, of_class.per);
            let is_object = [Metric::JavaLiveBytes, Metric::JavaLiveObjects].contains(&metric);
            if is_object && !is_exact && of_class.low - by_tests <= LEFT_SHARE * of_class.low {
                continue;
            }
            of_class.value -= by_tests;
            of_class.low -= by_tests;
            of_class.high -= by_tests;
            let limits = thresholds(self.context.policy, self.suite, self.id, metric, of_class.per);
            let over: Vec<&Threshold> = limits.iter().filter(|limit| of_class.low > limit.limit).collect();
            let is_known_block = metric.area() == Area::Native && has_known_blocks;
            if over.is_empty() || is_object && !keeps_objects || is_known_block {
                continue;
            }
            for limit in over {
                let figure = too_much(metric, of_class.value, "per iteration", limit.limit);
                rest.raise_figure(limit.level.verdict(), figure, String::new());
            }
            of_class.threshold = applied(&limits, of_class.low);
            rest.metrics.insert(metric, of_class);
        }
        if rest.metrics.is_empty() {
            return None;
        }
        // An array may be assigned to different leaks in the class and in the test that leaves it.
        if let Some(most) = rest.metrics.get(&Metric::JavaLiveBytes).map(|bytes| bytes.value) {
            let bytes = rest.leaks.iter_mut().map(|leak| &mut leak.bytes_per_iteration);
            bytes.for_each(|bytes| *bytes = bytes.min(most));
        }
        rest.remark("none of its tests that ran alone leaves this".to_owned());
        Some(rest)
    }
}

/// Do the leaks that no test has make up the difference between the class and its tests? Larger leaks consist of
/// objects of the tests' leaks, which the class shows in another group. Then longer names or a larger table are the
/// difference.
fn is_what_is_left(leaks: &[Leak], metrics: &BTreeMap<Metric, MetricValue>, tests: &[&TestReport]) -> bool {
    let is_known = |leak: &Leak| {
        tests
            .iter()
            .flat_map(|test| &test.leaks)
            .any(|known| known.id == leak.id || known.class == leak.class)
    };
    let own: Vec<&Leak> = leaks.iter().filter(|leak| !is_known(leak)).collect();
    let left = metrics
        .get(&Metric::JavaLiveBytes)
        .map(|bytes| bytes.value - left_by(tests, Metric::JavaLiveBytes, bytes.per));
    let of_own: f64 = own.iter().map(|leak| leak.bytes_per_iteration).sum();
    !own.is_empty() && left.is_none_or(|left| of_own <= left * (1.0 + LEFT_SHARE))
}

/// Sum of what the tests leave when they run alone.
fn left_by(tests: &[&TestReport], metric: Metric, per: Per) -> f64 {
    let figures = tests.iter().filter_map(|test| test.metrics.get(&metric));
    figures.filter(|figure| figure.per == per).map(|figure| figure.value.max(0.0)).sum()
}

/// Leaks of a class minus what its tests leave of them. Matches the same id first, then the same Java class: a test
/// alone may hold it on another path.
fn leaks_beside(leaks: Vec<Leak>, tests: &[&TestReport]) -> Vec<Leak> {
    let mut told: Vec<Leak> = tests.iter().flat_map(|test| test.leaks.iter().cloned()).collect();
    let mut rest: Vec<(Leak, Leak)> = leaks.into_iter().map(|leak| (leak.clone(), leak)).collect();
    let take = |from: &mut f64, of: &mut f64| {
        let taken = of.min(*from);
        *from -= taken;
        *of -= taken;
    };
    let is_same: [fn(&Leak, &Leak) -> bool; 2] =
        [is_same_leak, |a, b| a.class.is_some() && a.class == b.class];
    for is_same in is_same {
        for (of_class, leak) in &mut rest {
            for known in told.iter_mut().filter(|known| is_same(known, of_class)) {
                take(&mut leak.bytes_per_iteration, &mut known.bytes_per_iteration);
                take(&mut leak.count_per_iteration, &mut known.count_per_iteration);
            }
        }
    }
    let is_left = |of: f64, left: f64| left > LEFT_SHARE * of;
    // A leak with the same id and the same number of objects is the same leak. Its strings and arrays may count in one
    // run and be too irregular in the other.
    let is_known = |leak: &Leak| is_leak_of(leak, tests);
    let is_counted = |leak: &Leak| leak.count_per_iteration > 0.0 && is_known(leak);
    // A block that comes with few executions: how many each test leaves alone is known too vaguely to be subtracted.
    let is_rare = |leak: &Leak| leak.kind == LeakKind::Native && leak.count_per_iteration < 1.0;
    rest.retain(|(of_class, _)| !(is_rare(of_class) && is_known(of_class)));
    rest.retain(|(of_class, leak)| {
        is_left(of_class.count_per_iteration, leak.count_per_iteration)
            || !is_counted(of_class) && is_left(of_class.bytes_per_iteration, leak.bytes_per_iteration)
    });
    let title = |(of_class, leak): (Leak, Leak)| match &leak.class {
        Some(class) if leak.count_per_iteration < of_class.count_per_iteration => {
            Leak { title: leaks::of_objects(class, leak.count_per_iteration), ..leak }
        }
        _ => leak,
    };
    rest.into_iter().map(title).collect()
}

#[cfg(test)]
mod tests {
    use memgate_model::Frame;

    use super::*;

    #[test]
    fn a_rare_block_that_one_of_its_tests_leaves_is_no_leak_of_the_class() {
        let leak = |id: &str, kind: LeakKind, count: f64, bytes: f64| Leak {
            id: id.to_owned(),
            kind,
            frames: vec![Frame::default()],
            count_per_iteration: count,
            bytes_per_iteration: bytes,
            ..Leak::default()
        };
        let beside = |id: &str, kind: LeakKind, count: f64| {
            let mut alone = Judgement::default();
            alone.leaks.push(leak("n1-a", kind, count, 6.4));
            let test = alone.report("ATest.a".to_owned(), Outcome::Passed, 0.0);
            leaks_beside(vec![leak(id, kind, 2.0 * count, 12.2)], &[&test]).len()
        };
        assert_eq!(beside("n1-a", LeakKind::Native, 0.01), 0);
        assert_eq!(beside("n1-b", LeakKind::Native, 0.01), 1, "no test leaves it");
        assert_eq!(beside("n1-a", LeakKind::Native, 1.0), 1, "the class leaves one more each time");
        assert_eq!(beside("n1-a", LeakKind::Java, 0.01), 1);
    }

    #[test]
    fn a_block_without_a_stack_that_one_of_its_tests_leaves_is_no_leak_of_the_class() {
        let leak = |id: &str, count: f64| Leak {
            id: id.to_owned(),
            count_per_iteration: count,
            bytes_per_iteration: count * 100.0,
            ..Leak::default()
        };
        let beside = |of_test: f64, of_class: f64| {
            let mut alone = Judgement::default();
            alone.leaks.push(leak("n1-of-the-test", of_test));
            let test = alone.report("ATest.a".to_owned(), Outcome::Passed, 0.0);
            leaks_beside(vec![leak("n1-of-the-class", of_class)], &[&test]).len()
        };
        assert_eq!(beside(1.0, 1.0), 0);
        assert_eq!(beside(1.0, 2.0), 1);
        assert_eq!(beside(0.30, 0.33), 0, "a rare block");
    }
}
