//! The only module that converts the configuration into the policy of the gate: `analysis` does not know the
//! configuration.

use std::collections::HashMap;

use jiff::civil::Date;
use memgate_analysis::{
    Bound, FollowPolicy, FramePattern, GatePolicy, Limit, NamePattern, Rule, TestPattern, TextPattern,
    Waiver, WaiverMatch,
};
use memgate_config::{Baseline, FrameGlob, MeasureJava, Threshold, Until, WaiverTarget};
use memgate_model::{Level, Per};
use memgate_reports::{readable, short};

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
                WaiverMatch::Frame(FramePattern::new(glob.text(), move |frame| names_frame(&compiled, frame)))
            }
            WaiverTarget::Class(glob) => WaiverMatch::Class(text_pattern(glob)),
            WaiverTarget::Holder(glob) => WaiverMatch::Holder(text_pattern(glob)),
        },
        test: waiver.test.clone().map(|glob| {
            TestPattern::new(glob.text().to_owned(), move |suite, test| glob.matches(suite, test))
        }),
        reason: waiver.reason.clone(),
        owner: waiver.owner.clone(),
        up_to: waiver.up_to,
        until: match waiver.until {
            Until::Date(last) => Some(last.to_string()),
            Until::Never => None,
        },
    }
}

/// Does the pattern name `module!function`, or the function as a report writes it? A title names it without name space
/// and parameters, so that a pattern with a wildcard would match too much there.
fn names_frame(glob: &FrameGlob, frame: &str) -> bool {
    let (module, function) = frame.split_once('!').unwrap_or(("", frame));
    if function.is_empty() {
        return glob.matches(module, None);
    }
    let names = |function: &str| glob.matches(module, Some(function));
    // Java's names are written as they are.
    names(function)
        || !module.is_empty() && (names(&readable(function)) || glob.is_name() && names(&short(function)))
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

#[cfg(test)]
mod tests {
    use memgate_model::Metric;

    use super::super::samples::{YAML, settings, world};
    use super::*;

    fn limit(policy: &GatePolicy, suite: &str, test: &str, metric: Metric, per: Per) -> Vec<(Bound, String)> {
        policy.limits(suite, test, metric, per).into_iter().map(|l| (l.bound, l.source.to_string())).collect()
    }

    #[test]
    fn the_first_entry_that_names_test_and_metric_wins_whatever_it_is_per() {
        let policy = policy(&settings(YAML), false, world().today);
        let bytes = Metric::NativeLiveBytes;
        for (suite, test, per, want) in [
            ("engine", "MapCache.scroll", Per::Test, Some(65536.0)),
            ("engine", "MapCache.scroll", Per::Iteration, None),
            ("engine", "Noisy.one", Per::Iteration, None),
            ("other", "Noisy.one", Per::Iteration, None),
            ("engine", "Other.x", Per::Iteration, Some(7.0)),
            ("other", "Other.x", Per::Iteration, Some(100.0)),
        ] {
            let found = limit(&policy, suite, test, bytes, per);
            let bounds: Vec<Bound> = found.into_iter().map(|(bound, _)| bound).collect();
            assert_eq!(
                bounds,
                want.map(Bound::Absolute).into_iter().collect::<Vec<_>>(),
                "{suite}::{test} {per:?}"
            );
        }
        assert!(limit(&policy, "engine", "A.b", Metric::OsFds, Per::Iteration).is_empty(), "switched off");
        let threads = limit(&policy, "engine", "A.b", Metric::OsThreads, Per::Iteration);
        assert_eq!(
            threads,
            [(Bound::Absolute(0.0), "default".to_owned())],
            "and what is not named keeps its default"
        );
    }

    #[test]
    fn relative_limits_need_an_accepted_figure() {
        let mut settings = settings(YAML);
        let rss = |settings: &Settings| {
            limit(&policy(settings, false, world().today), "engine", "", Metric::OsRss, Per::Suite)
        };
        assert!(rss(&settings).is_empty());
        let without = policy(&settings, false, world().today);
        assert!(
            without.lacks_figure("engine", "", Metric::OsRss, Per::Suite),
            "no baseline at all is said, too"
        );
        let json = r#"{"schema_version":1,"suites":{"engine":{"metrics":{"os.rss":{"value":1000.0,"per":"suite"}}}}}"#;
        settings.baseline = Some(Baseline::from_json(json).unwrap());
        let found = rss(&settings);
        assert_eq!(found.len(), 1);
        assert!(matches!(found[0].0, Bound::Absolute(limit) if (limit - 1100.0).abs() < 1e-6), "{found:?}");
        let policy = policy(&settings, false, world().today);
        let lacks = |suite: &str| policy.lacks_figure(suite, "", Metric::OsRss, Per::Suite);
        assert!(!lacks("engine") && lacks("another"), "a baseline without the suite is no limit, and said");
    }

    #[test]
    fn a_frame_that_is_copied_from_a_report_names_its_function_and_no_other() {
        let grow = "engine!tiles::(anonymous namespace)::Cache::grow(std::__cxx11::basic_string<char, \
                    std::char_traits<char>, std::allocator<char> > const&)";
        for (pattern, frame, is_named) in [
            ("tiles::Cache::grow", grow, true),
            ("engine!tiles::Cache::grow", grow, true),
            ("tiles::(anonymous namespace)::Cache::grow(std::string const&)", grow, true),
            ("tiles::Cache::*", grow, false),
            ("grow", grow, false),
            ("other!tiles::Cache::grow", grow, false),
            ("tiles::Cache::grow", "engine!tiles::Cache::grown()", false),
            ("a test", "!com.example.Tests.this is a test", false),
            ("libdriver.so!*", "libdriver.so!", true),
        ] {
            let yaml = format!(
                "version: 1\nproject: p\nsuites:\n  a: {{ run: [a] }}\n\
                 waivers:\n  - {{ frame: '{pattern}', reason: r, until: never }}\n"
            );
            let policy = policy(&settings(&yaml), false, world().today);
            let WaiverMatch::Frame(waiver) = &policy.waivers[0].matches else { panic!("{pattern}") };
            assert_eq!(waiver.is_match(frame), is_named, "{pattern} for {frame}");
        }
    }

    #[test]
    fn waivers_keep_who_why_and_until_when() {
        let policy = policy(&settings(YAML), false, world().today);
        let texts: Vec<String> =
            policy.waivers.iter().map(|w| format!("{:?} {:?}", w.matches, w.until)).collect();
        assert_eq!(texts.len(), 2);
        assert!(texts[0].contains("FcInit") && texts[0].ends_with("None"), "{texts:?}");
        assert!(texts[1].contains("n1-5f1c09a2b47d1e03") && texts[1].contains("2027-03-01"), "{texts:?}");
        assert_eq!(policy.waivers[1].owner.as_deref(), Some("@maps"));
        assert_eq!(policy.today, "2026-11-21");
    }
}
