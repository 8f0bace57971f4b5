//! `thresholds`: the largest allowed figures.

mod file;

use std::collections::BTreeMap;

use memgate_model::{LeakKind, Metric, Per, Unit};

pub(crate) use self::file::ThresholdsFile;
use self::file::{EntryAt, EntryFile, LimitFile, MetricName, OverrideFile, PerFile};
use crate::read::{At, Reader};
use crate::source::{Place, Span};
use crate::value::amount::{Amount, LimitOrOff, Quantity};
use crate::value::glob::TestGlob;

/// The largest allowed figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// This figure, in the metric's unit.
    Absolute(u64),
    /// The figure of the baseline plus this much.
    AboveBaseline(u64),
    /// The figure of the baseline plus this many percent.
    PercentAboveBaseline(f64),
}

impl Limit {
    /// The largest allowed figure; `None`: the limit is relative, and there is no baseline.
    #[must_use]
    pub fn resolve(self, baseline: Option<f64>) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a limit above 2⁵³ bytes is no limit")]
        match self {
            Self::Absolute(limit) => Some(limit as f64),
            Self::AboveBaseline(more) => baseline.map(|figure| figure + more as f64),
            Self::PercentAboveBaseline(percent) => baseline.map(|figure| figure * (1.0 + percent / 100.0)),
        }
    }
}

/// The limits of one metric: `fail`, `warn`, or both.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    /// The limited metric.
    pub metric: Metric,
    /// Scope of the figure.
    pub per: Per,
    /// More than this fails.
    pub fail: Option<Limit>,
    /// More than this is a warning.
    pub warn: Option<Limit>,
    /// Position in the configuration.
    pub place: Place,
}

impl Threshold {
    /// The metric may not grow.
    const fn zero(metric: Metric) -> Self {
        let (per, fail) = (Per::Iteration, Some(Limit::Absolute(0)));
        Self { metric, per, fail, warn: None, place: Place::Default }
    }
}

/// Other limits for some tests.
#[derive(Debug, Clone, PartialEq)]
pub struct Override {
    /// The tests.
    pub tests: TestGlob,
    /// Their limits; `None`: switched off.
    pub limits: BTreeMap<Metric, Option<Threshold>>,
    /// Position in the configuration.
    pub place: Place,
}

/// One rule of the thresholds: a metric, the tests, and the limits.
#[derive(Debug, Clone, Copy)]
pub struct Rule<'t> {
    /// The tests; `None`: all.
    pub tests: Option<&'t TestGlob>,
    /// The limited metric.
    pub metric: Metric,
    /// The limits; `None`: switched off.
    pub threshold: Option<&'t Threshold>,
}

/// All thresholds, defaults included.
#[derive(Debug, Clone, PartialEq)]
pub struct Thresholds {
    overrides: Vec<Override>,
    /// Thresholds of tests to which no override applies.
    general: BTreeMap<Metric, Threshold>,
    /// Thresholds of suites as a whole, in addition to those of tests.
    of_suites: BTreeMap<Metric, Threshold>,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            overrides: Vec::new(),
            general: Metric::zero_by_default().map(|metric| (metric, Threshold::zero(metric))).collect(),
            of_suites: BTreeMap::new(),
        }
    }
}

impl Thresholds {
    /// Lets no leak of this kind pass in any test; other limits stay.
    pub fn forbid(&mut self, kind: LeakKind) {
        for metric in Metric::ALL.into_iter().filter(|metric| metric.leaks() == Some(kind)) {
            self.overrides.iter_mut().for_each(|entry| drop(entry.limits.remove(&metric)));
            self.general.insert(metric, Threshold::zero(metric));
        }
    }

    /// The threshold for a metric of one test, per iteration or per execution.
    #[must_use]
    pub fn for_test(&self, suite: &str, test: &str, metric: Metric) -> Option<&Threshold> {
        self.rules()
            .filter(|rule| rule.threshold.is_none_or(|threshold| threshold.per != Per::Suite))
            .find(|rule| rule.metric == metric && rule.tests.is_none_or(|tests| tests.matches(suite, test)))?
            .threshold
    }

    /// The thresholds of suites as a whole.
    pub fn for_suite(&self) -> impl Iterator<Item = &Threshold> {
        self.of_suites.values()
    }

    /// All rules, in their order of precedence: the first rule that applies to a metric of a test, or of a suite as a
    /// whole, counts.
    pub fn rules(&self) -> impl Iterator<Item = Rule<'_>> {
        let overrides = self.overrides.iter().flat_map(|entry| {
            entry.limits.iter().map(|(metric, threshold)| Rule {
                tests: Some(&entry.tests),
                metric: *metric,
                threshold: threshold.as_ref(),
            })
        });
        let general = self.general.values().chain(self.of_suites.values()).map(|threshold| Rule {
            tests: None,
            metric: threshold.metric,
            threshold: Some(threshold),
        });
        overrides.chain(general)
    }

    /// The entries of `tests`, in their order.
    #[must_use]
    pub fn overrides(&self) -> &[Override] {
        &self.overrides
    }

    /// Is any limit relative to the baseline?
    #[must_use]
    pub fn need_baseline(&self) -> bool {
        let relative = |limit: &Limit| !matches!(limit, Limit::Absolute(_));
        self.rules()
            .filter_map(|rule| rule.threshold)
            .any(|threshold| threshold.fail.iter().chain(&threshold.warn).any(relative))
    }

    pub(crate) fn check(file: ThresholdsFile, reader: &mut Reader<'_>) -> Self {
        let ThresholdsFile { entries, tests } = file;
        let mut thresholds = Self::default();
        for (metric, threshold) in check_entries(entries, false, reader) {
            match threshold {
                // A limit per suite does not limit what a test leaves.
                Some(threshold) if threshold.per == Per::Suite => {
                    thresholds.of_suites.insert(metric, threshold)
                }
                Some(threshold) => thresholds.general.insert(metric, threshold),
                None => thresholds.general.remove(&metric),
            };
        }
        for OverrideFile { tests, entries, place } in tests {
            let limits = check_entries(entries, true, reader).into_iter().collect();
            thresholds.overrides.push(Override { tests, limits, place });
        }
        thresholds
    }
}

fn check_entries(
    entries: Vec<EntryAt>,
    of_tests: bool,
    reader: &mut Reader<'_>,
) -> Vec<(Metric, Option<Threshold>)> {
    let mut checked = Vec::new();
    for entry in entries {
        let EntryAt { metric, name_span, value, value_span } = entry;
        let place = reader.place(&name_span);
        let found = reader.found.len();
        let parts = parts(metric, value, &value_span, of_tests, reader);
        if reader.found.len() == found {
            let MetricName(metric) = metric;
            let threshold = parts.map(|(per, fail, warn)| Threshold { metric, per, fail, warn, place });
            checked.push((metric, threshold));
        }
    }
    checked
}

type Parts = (Per, Option<Limit>, Option<Limit>);

/// Checks the parts of a threshold. `None`: it is switched off.
fn parts(
    metric: MetricName,
    value: EntryFile,
    span: &Span,
    of_tests: bool,
    reader: &mut Reader<'_>,
) -> Option<Parts> {
    let LimitFile { fail, limit, warn, per, against } = match value {
        EntryFile::Short(LimitOrOff::Off) => return None,
        EntryFile::Short(LimitOrOff::Limit(amount)) => {
            let at = At { value: amount, span: span.clone() };
            let limit = check_limit(metric, &at, false, reader);
            return Some((Per::Iteration, limit, None));
        }
        EntryFile::Table(file) => file,
    };
    let fail = fail_or_limit(fail, limit, reader);
    if fail.is_none() && warn.is_none() && !reader.has_error_below(span) {
        reader
            .error(span, format!("the threshold of `{}` has no limit", metric.name()))
            .label("expected `fail` or `warn`")
            .hint(Some("write `{ fail: 64 KiB }`, or `off` for no threshold"));
    }
    let relative = against.is_some();
    let checked_fail = fail.as_ref().and_then(|amount| check_limit(metric, amount, relative, reader));
    let checked_warn = warn.as_ref().and_then(|amount| check_limit(metric, amount, relative, reader));
    if let (Some(Limit::Absolute(fails)), Some(Limit::Absolute(warns)), Some(failing), Some(warning)) =
        (checked_fail, checked_warn, &fail, &warn)
        && warns >= fails
    {
        reader
            .error(&warning.span, "this warning is never given")
            .label("not below the limit that fails")
            .context(&failing.span, "fails here already")
            .hint(Some("make `warn` smaller than `fail`"));
    }
    Some((check_per(per, of_tests, reader), checked_fail, checked_warn))
}

/// `limit` is another name of `fail`.
fn fail_or_limit(
    fail: Option<At<Amount>>,
    limit: Option<At<Amount>>,
    reader: &mut Reader<'_>,
) -> Option<At<Amount>> {
    if let (Some(fail), Some(limit)) = (&fail, &limit) {
        reader
            .error(&limit.span, "`limit` and `fail` mean the same")
            .label("again here")
            .context(&fail.span, "first here")
            .hint(Some("keep one of them"));
    }
    fail.or(limit)
}

fn check_per(per: Option<At<PerFile>>, of_tests: bool, reader: &mut Reader<'_>) -> Per {
    match per {
        None | Some(At { value: PerFile::Iteration, .. }) => Per::Iteration,
        Some(At { value: PerFile::Test, .. }) => Per::Test,
        Some(At { value: PerFile::Suite, span }) => {
            if of_tests {
                reader
                    .error(&span, "a limit for some tests cannot be per suite")
                    .label("a suite has one figure for all its tests")
                    .hint(Some("write `per: test` or `per: iteration`, or move it out of `tests`"));
            }
            Per::Suite
        }
    }
}

fn check_limit(
    metric: MetricName,
    at: &At<Amount>,
    relative: bool,
    reader: &mut Reader<'_>,
) -> Option<Limit> {
    let At { value: Amount { added, quantity }, span } = at;
    if matches!(quantity, Quantity::Size(_)) && metric.unit() == Unit::Count {
        reader
            .error(span, format!("`{}` counts things, not bytes", metric.name()))
            .label("this is a size")
            .hint(Some("write a plain number"));
        return None;
    }
    match (*quantity, added, relative) {
        (Quantity::Number(number) | Quantity::Size(number), false, _) => Some(Limit::Absolute(number)),
        (Quantity::Number(number) | Quantity::Size(number), true, true) => Some(Limit::AboveBaseline(number)),
        (Quantity::Percent(percent), true, true) => Some(Limit::PercentAboveBaseline(percent)),
        (Quantity::Percent(_), false, _) => {
            reader
                .error(span, "a percentage must be added to something")
                .label("percent of what?")
                .hint(Some("write `+10%` together with `against: baseline`"));
            None
        }
        (_, true, false) => {
            reader
                .error(span, "this limit is relative, but does not say to what")
                .label("added to what?")
                .hint(Some("write a table: `{ fail: +10%, against: baseline }`"));
            None
        }
    }
}
