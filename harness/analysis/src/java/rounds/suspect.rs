//! Suspects of the rounds: test classes or tests, and a description of their growth.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use memgate_model::{Metric, format_bytes, format_count};

use super::compared::{Compared, Delta, Grown};
use super::{ROUNDS_OF_SUSPECTS, WARM_UP, counters};
use crate::java::names::{is_literal, is_of_project, is_own, project_of};
use crate::java::series::{grown, histograms, values};
use crate::record::{ProcessRecord, Window};

/// Rounds of a suspect that are compared.
const COMPARED_ROUNDS: usize = (ROUNDS_OF_SUSPECTS - WARM_UP) as usize;
/// Most classes to name in the text.
const NAMED: usize = 3;

/// A test class, or a test, that must be repeated alone.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JavaSuspect {
    /// The test class, or the id of the test.
    pub suite: String,
    /// Classes that grow in it, the most bytes first. Empty if only counters such as threads and buffers grow.
    pub classes: Vec<String>,
    /// Text for what grew: `12 × com.example.Tile, 24 × byte[]`. Empty if the rounds ended too early.
    pub why: String,
    /// Classes of `classes` that the test class before it may have left instead.
    pub may_be_of_before: BTreeSet<String>,
    /// Classes and counters that increased over all rounds together, even if not in each of them.
    pub added: (Vec<String>, Vec<Metric>),
    /// The fewest instances by which each class of `classes` grew in a round.
    pub least: BTreeMap<String, f64>,
    /// The round in which memory ran out, and what filled the heap.
    pub ran_out: Option<String>,
    /// The suspect to use if this one, or some of its objects, does not grow alone: in each round the next window may
    /// free what this one left, and leak as much.
    pub behind: Option<Box<JavaSuspect>>,
}

impl JavaSuspect {
    /// Description of its growth: `12 × com.example.Tile in each of the last rounds`.
    #[must_use]
    pub fn seen(&self) -> String {
        let grew = (!self.why.is_empty()).then(|| format!("{} in each of the last rounds", self.why));
        match (grew, &self.ran_out) {
            (Some(grew), None) => grew,
            (Some(grew), Some(ran_out)) => format!("{grew}, until {ran_out}"),
            (None, ran_out) => ran_out.clone().unwrap_or_default(),
        }
    }

    /// Did objects or counters grow in its rounds that do not grow alone? Then the next window may have left them, even
    /// if something else grows alone. `alone` is the process that repeated it.
    #[must_use]
    pub fn grew_more_than(&self, alone: &ProcessRecord) -> bool {
        let Some(test) = alone.windows.last().map(Window::id) else { return false };
        let warm_up = usize::try_from(WARM_UP).unwrap_or_default();
        // In most executions: what comes now and then is not what came in each of the rounds.
        let rises = |of: &[f64]| {
            let steps = || of.windows(2).skip(warm_up);
            2 * steps().filter(|step| step[1] > step[0]).count() > steps().count()
        };
        let grown = grown(alone, &test, warm_up);
        let grew_alone = |class: &String| {
            let of_class = grown.iter().find(|grew| grew.class == *class);
            is_literal(class) || of_class.is_some_and(|grew| rises(&grew.instances) || rises(&grew.bytes))
        };
        let windows: Vec<&Window> = alone.windows_of(&test).collect();
        let rose_alone = |counter: &Metric| rises(&values(&windows, *counter));
        !(self.classes.iter().all(grew_alone) && self.added.1.iter().all(rose_alone))
    }

    /// A class of the project or a library that grew by more instances in each round than in most executions alone:
    /// some may be of another test class, in whose window it frees as many as it keeps. `alone` is the process that
    /// repeated it; `None` also if it ran too few executions to compare.
    #[must_use]
    pub fn kept_by_another(&self, alone: &ProcessRecord) -> Option<String> {
        let test = alone.windows.last().map(Window::id).filter(|_| self.ran_out.is_none())?;
        let warm_up = usize::try_from(WARM_UP).unwrap_or_default();
        if histograms(alone, &test).len() <= warm_up + COMPARED_ROUNDS {
            return None;
        }
        let grown = grown(alone, &test, warm_up);
        let usual = |class: &str| {
            let series = grown.iter().find(|grew| grew.class == class);
            let steps = series.map_or(&[][..], |series| &series.instances).windows(2).skip(warm_up);
            // As many as there are rounds: a cache that filled in the rounds may be full later.
            let mut steps: Vec<f64> = steps.map(|step| step[1] - step[0]).take(COMPARED_ROUNDS).collect();
            steps.sort_by(f64::total_cmp);
            steps.get(steps.len() / 2).copied().unwrap_or(0.0)
        };
        let grew = self.least.iter().filter(|(class, _)| is_own(class));
        grew.into_iter().find(|(class, least)| **least > usual(class)).map(|(class, _)| class.clone())
    }

    /// Did any of these classes grow in the rounds of its test class? Also true if the rounds gave no information.
    pub(crate) fn saw_any<'a>(&self, mut classes: impl Iterator<Item = &'a str>) -> bool {
        self.told_nothing() || classes.any(|class| self.added.0.iter().any(|grew| grew == class))
    }

    /// Did this counter grow in the rounds?
    pub(crate) fn saw_counter(&self, metric: Metric) -> bool {
        self.told_nothing() || !counters().any(|counter| counter == metric) || self.added.1.contains(&metric)
    }

    /// Classes of the project that grew in each of the last rounds and were not left by the test class before.
    pub(crate) fn classes_of_project(&self) -> impl Iterator<Item = &str> {
        let project = project_of(&self.suite);
        let own = self.classes.iter().filter(|class| !self.may_be_of_before.contains(*class));
        own.map(String::as_str).filter(move |class| is_of_project(class, &project))
    }

    /// Did classes of the project grow in each of the last rounds?
    #[must_use]
    pub fn keeps_classes_of_project(&self) -> bool {
        self.classes_of_project().next().is_some()
    }

    pub(crate) fn told_nothing(&self) -> bool {
        self.why.is_empty() && self.added.0.is_empty() && self.added.1.is_empty()
    }
}

pub(super) fn suspect(
    class: &str,
    compared: &Compared,
    why: &[String],
    ran_out: Option<String>,
) -> JavaSuspect {
    let ranked = compared.ranked();
    let least = ranked.iter().map(|(name, grown)| (name.to_string(), grown.least().instances)).collect();
    let classes = ranked.iter().map(|(name, _)| name.to_string()).collect();
    let of_before = ranked.iter().filter(|(_, grown)| grown.may_be_of_before);
    let may_be_of_before = of_before.map(|(name, _)| name.to_string()).collect();
    let more = |(_, added): &(&Arc<str>, &Delta)| added.instances > 0.0 || added.bytes > 0.0;
    let added = compared.added.iter().filter(more).map(|(name, _)| name.to_string()).collect();
    let counters = compared.added_to_counters.iter().filter(|(_, added)| **added > 0.0);
    let added = (added, counters.map(|(metric, _)| *metric).collect());
    JavaSuspect {
        suite: class.to_owned(),
        classes,
        may_be_of_before,
        why: why.join(", "),
        added,
        least,
        ran_out,
        behind: None,
    }
}

/// Texts for the classes, if all of them together exceed what is allowed in each round.
pub(super) fn objects(grown: &[(&Arc<str>, &Grown)], limit: impl Fn(Metric) -> Option<f64>) -> Vec<String> {
    let rounds = grown.first().map_or(0, |(_, grown)| grown.deltas.len());
    let all = |of: fn(&Delta) -> f64| {
        let sum = |round: usize| grown.iter().map(|(_, g)| of(&g.added(round))).sum::<f64>();
        (0..rounds).map(sum).fold(f64::INFINITY, f64::min)
    };
    let over = |metric, value: f64| limit(metric).is_some_and(|limit| value > limit);
    if rounds == 0
        || !over(Metric::JavaLiveObjects, all(|d| d.instances))
            && !over(Metric::JavaLiveBytes, all(|d| d.bytes))
    {
        return Vec::new();
    }
    let named = grown.iter().take(NAMED).map(|(class, grown)| match grown.least() {
        Delta { instances, .. } if instances > 0.0 => format!("{} × {class}", format_count(instances)),
        Delta { bytes, .. } => format!("{} more of {class}", format_bytes(bytes)),
    });
    let rest = grown.len().saturating_sub(NAMED);
    let more = (rest > 0).then(|| format!("{rest} more classes"));
    named.chain(more).collect()
}
