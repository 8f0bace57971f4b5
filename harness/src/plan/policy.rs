//! The only module that converts the configuration into the policy of the gate: `analysis` does not know the
//! configuration.

use std::collections::HashMap;

use jiff::civil::Date;
use memgate_analysis::{
    Bound, FollowPolicy, FramePattern, GatePolicy, Limit, NamePattern, Rule, TestPattern, TextPattern,
    Waiver, WaiverMatch,
};
use memgate_config::{Baseline, MeasureJava, Threshold, Until, WaiverTarget};
use memgate_model::{Level, Per};

use super::Settings;

/// The rules for judging a run.
#[must_use]
pub fn policy(settings: &Settings, ignore_test_failures: bool, today: Date) -> GatePolicy {
    let config = &settings.config;
    let default = GatePolicy::default();
    GatePolicy {
        follow: follow(&config.measure.java),
        warm_up: config.measure.warm_up,
        iterations: config.measure.iterations,
        max_iterations: default.max_iterations.max(config.measure.iterations),
        rarest_leak: config.measure.rarest_leak,
        iteration_cap: default
            .iteration_cap
            .max(config.measure.iterations.saturating_add(config.measure.warm_up)),
        confidence: config.measure.confidence,
        unconfirmed: config.measure.unconfirmed,
        ignore_test_failures,
        rules: rules(settings),
        // Every limit is a rule, including the built-in ones: see `rules`.
        defaults: Vec::new(),
        waivers: config.waivers.iter().map(waiver).collect(),
        today: today.to_string(),
        ..default
    }
}

fn rules(settings: &Settings) -> Vec<Rule> {
    let rule = |entry: memgate_config::Rule<'_>| {
        let tests = entry.tests.cloned();
        let matches = NamePattern::new(move |name| {
            let (suite, test) = name.split_once("::").unwrap_or(("", name));
            tests.as_ref().is_none_or(|glob| glob.matches(suite, test))
        });
        let baseline = settings.baseline.as_ref();
        let (of_tests, limits) =
            entry.threshold.map(|threshold| limits_of(threshold, &matches, baseline)).unwrap_or_default();
        Rule { metric: entry.metric, matches, of_tests, limits }
    };
    settings.config.thresholds.rules().map(rule).collect()
}

/// The limits of one threshold: for each test of the baseline if they are relative, and for all others.
fn limits_of(
    threshold: &Threshold,
    tests: &NamePattern,
    baseline: Option<&Baseline>,
) -> (HashMap<String, Vec<Limit>>, Vec<Limit>) {
    let limits = |figure: Option<f64>| {
        [(threshold.fail, Level::Fail), (threshold.warn, Level::Warn)]
            .into_iter()
            .filter_map(|(limit, level)| {
                Some((limit?.resolve(figure).map_or(Bound::NoFigure, Bound::Absolute), level))
            })
            .map(|(bound, level)| Limit {
                metric: threshold.metric,
                per: threshold.per,
                bound,
                level,
                source: (&threshold.place).into(),
            })
            .collect::<Vec<_>>()
    };
    let relative = [threshold.fail, threshold.warn].into_iter().flatten().any(|l| l.resolve(None).is_none());
    let accepted =
        baseline.filter(|_| relative).map(|baseline| accepted(baseline, threshold)).unwrap_or_default();
    let of_tests = accepted.into_iter().filter(|(name, _)| tests.is_match(name));
    (of_tests.map(|(name, figure)| (name, limits(Some(figure)))).collect(), limits(None))
}

/// The accepted figures that a threshold compares with, by full test name.
fn accepted(baseline: &Baseline, threshold: &Threshold) -> Vec<(String, f64)> {
    let Threshold { metric, per, .. } = *threshold;
    let mut figures = Vec::new();
    for (suite, accepted) in &baseline.suites {
        if per == Per::Suite {
            figures.extend(baseline.suite_figure(suite, metric).map(|figure| (format!("{suite}::"), figure)));
        } else {
            figures.extend(accepted.tests.keys().filter_map(|test| {
                let figure = baseline.test_figure(suite, test, metric, per)?;
                Some((format!("{suite}::{test}"), figure))
            }));
        }
    }
    figures
}

fn waiver(waiver: &memgate_config::Waiver) -> Waiver {
    Waiver {
        matches: match &waiver.target {
            WaiverTarget::Leak(id) => WaiverMatch::Leak(id.clone()),
            WaiverTarget::Frame(glob) => {
                let compiled = glob.clone();
                WaiverMatch::Frame(FramePattern::new(glob.text(), move |frame| {
                    let (module, function) = frame.split_once('!').unwrap_or(("", frame));
                    compiled.matches(module, (!function.is_empty()).then_some(function))
                }))
            }
            WaiverTarget::Class(glob) => WaiverMatch::Class(text_pattern(glob)),
            WaiverTarget::Holder(glob) => WaiverMatch::Holder(text_pattern(glob)),
        },
        test: waiver.test.clone().map(|glob| {
            TestPattern::new(glob.text().to_owned(), move |suite, test| glob.matches(suite, test))
        }),
        reason: waiver.reason.clone(),
        owner: waiver.owner.clone(),
        until: match waiver.until {
            Until::Date(last) => Some(last.to_string()),
            Until::Never => None,
        },
    }
}

fn text_pattern(glob: &memgate_config::Glob) -> TextPattern {
    let compiled = glob.clone();
    TextPattern::new(glob.text(), move |text| compiled.matches(text))
}

/// How followed objects are grouped.
pub(crate) fn follow(java: &MeasureJava) -> FollowPolicy {
    let default = FollowPolicy::default();
    FollowPolicy {
        sites: java.follow_sites as usize,
        ignore: java.blame_ignore.clone().unwrap_or(default.ignore),
        target: java.blame_target.clone(),
    }
}
