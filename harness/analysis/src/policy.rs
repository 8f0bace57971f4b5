//! The policy of the gate: how to measure, what is allowed, what is waived. It knows no YAML and no globs: the caller
//! compiles its configuration into these types.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use memgate_model::{
    BaseLeaks, FixedWaiver, HolderStep, Kind, Known, Leak, LeakKind, Level, Metric, Per, Threshold,
    ThresholdSource, WaiverReport, WaiverState,
};

use crate::signature::id_of_test;

/// How to measure and what is allowed.
#[derive(Debug, Clone)]
pub struct GatePolicy {
    /// First iterations, which do not count.
    pub warm_up: u32,
    /// Iterations after warm-up before anything may be decided.
    pub iterations: u32,
    /// An undecided question is given up after this many iterations, unless [`Self::min_run`] has not passed.
    pub max_iterations: u32,
    /// A test must be repeated for at least this long before a leak is reported.
    pub min_run: Duration,
    /// A one-time cost is reported after [`Self::min_run`], or earlier when a leak in one of so many executions would
    /// have been missed with a probability of at most 1 %.
    pub rarest_leak: u32,
    /// Upper bound of iterations: keeps the stream of a very fast test small.
    pub iteration_cap: u32,
    /// Confidence of the slope's interval, two-sided.
    pub confidence: f64,
    /// Level of growth that could not be confirmed.
    pub unconfirmed: Level,
    /// Failing tests of the user do not decide the exit code.
    pub ignore_test_failures: bool,
    /// Rules for tests by name. For each metric of a test, the first match decides.
    pub rules: Vec<Rule>,
    /// Limits for metrics without a matching rule.
    pub defaults: Vec<Limit>,
    /// Known leaks.
    pub waivers: Vec<Waiver>,
    /// How tracked Java objects are summed up.
    pub follow: FollowPolicy,
    /// Today, ISO 8601 (`2026-11-21`).
    pub today: String,
    /// The base with which the run is compared. `None`: this is no review, or known leaks fail it like others.
    pub review: Option<Review>,
    /// Leaks that are fixed according to the history, each with the commit that fixed it; and the level of a waiver for
    /// such a leak.
    pub fixed: (BTreeMap<String, String>, Level),
}

/// The base with which a review is compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Review {
    /// The base. A base without a commit has no leaks.
    pub base: BaseLeaks,
    /// How leaks of the base are treated.
    pub known: Known,
}

/// How tracked Java objects are summed up. The lists contain class names, or prefixes followed by `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowPolicy {
    /// Maximum number of allocation sites, and of allocating classes, in the report.
    pub sites: usize,
    /// Classes that are never blamed.
    pub ignore: Vec<String>,
    /// The only classes that are blamed. Empty: all classes that are not ignored.
    pub target: Vec<String>,
}

impl Default for FollowPolicy {
    fn default() -> Self {
        let ignore = ["java.*", "javax.*", "jdk.*", "sun.*", "com.sun.*"].map(str::to_owned).to_vec();
        Self { sites: 100, ignore, target: Vec::new() }
    }
}

impl Default for GatePolicy {
    /// No growth at all is allowed for native bytes, Java objects and buffers, descriptors and
    /// threads.
    fn default() -> Self {
        let zero = |metric| Limit::fail(metric, 0.0, ThresholdSource::Default);
        Self {
            warm_up: 3,
            iterations: 10,
            max_iterations: 40,
            min_run: Duration::from_secs(2),
            rarest_leak: 20,
            iteration_cap: 2000,
            confidence: 0.99,
            unconfirmed: Level::Warn,
            ignore_test_failures: false,
            rules: Vec::new(),
            defaults: Metric::zero_by_default().map(zero).collect(),
            waivers: Vec::new(),
            follow: FollowPolicy::default(),
            today: String::new(),
            review: None,
            fixed: (BTreeMap::new(), Level::Warn),
        }
    }
}

impl GatePolicy {
    /// Limits of `metric` per `per` for a test. There are several if a warning and a failure have limits of their own.
    #[must_use]
    pub fn limits(&self, suite: &str, test: &str, metric: Metric, per: Per) -> Vec<&Limit> {
        let applies = |l: &&Limit| l.metric == metric && l.per == per && l.allows().is_some();
        // This runs for every test and metric.
        let name = || format!("{suite}::{test}");
        let chosen = if self.rules.is_empty() { None } else { self.chosen(&name(), metric, per) };
        chosen.unwrap_or(&self.defaults).iter().filter(applies).collect()
    }

    /// True if limits on descriptors and threads concern only what each test left, and resident memory has no limit.
    /// Then the screen need not sample at the end of every test.
    #[must_use]
    pub fn allows_looks_now_and_then(&self) -> bool {
        let allows = |limit: &Limit| match limit.metric {
            Metric::OsFds | Metric::OsThreads => limit.per == Per::Iteration,
            Metric::OsRss | Metric::OsPss => false,
            _ => true,
        };
        let of_rule = |rule: &Rule| rule.of_tests.values().flatten().chain(&rule.limits).all(allows);
        self.defaults.iter().all(allows) && self.rules.iter().all(of_rule)
    }

    /// The limits of the first rule for this metric of a test. `None`: no rule matches. A rule for all tests of a class
    /// (`Class.*`) also applies to the class as a whole. Limits of a suite and limits of its tests do not replace each
    /// other.
    fn chosen(&self, name: &str, metric: Metric, per: Per) -> Option<&[Limit]> {
        let rule = self.rule(name, metric, per)?;
        Some(rule.of_tests.get(name).unwrap_or(&rule.limits))
    }

    fn rule(&self, name: &str, metric: Metric, per: Per) -> Option<&Rule> {
        let all_of_it = format!("{name}.*");
        let matches = |rule: &&Rule| rule.matches.is_match(name) || rule.matches.is_match(&all_of_it);
        let of_suite = |rule: &Rule| rule.limits.iter().any(|limit| limit.per == Per::Suite);
        let rules = self.rules.iter().filter(|rule| rule.metric == metric);
        rules.filter(|rule| of_suite(rule) == (per == Per::Suite)).find(matches)
    }

    /// Is what a test leaves per iteration compared with the baseline?
    #[must_use]
    pub fn is_relative(&self, suite: &str, test: &str, metric: Metric) -> bool {
        let name = format!("{suite}::{test}");
        self.rule(&name, metric, Per::Iteration).is_some_and(|rule| {
            let lacks = |limit: &Limit| limit.per == Per::Iteration && limit.bound == Bound::NoFigure;
            rule.limits.iter().any(lacks)
        })
    }

    /// Does the first rule for this metric compare with a figure that is missing in the baseline?
    #[must_use]
    pub fn lacks_figure(&self, suite: &str, test: &str, metric: Metric, per: Per) -> bool {
        let chosen = self.chosen(&format!("{suite}::{test}"), metric, per).unwrap_or_default();
        chosen.iter().any(|limit| limit.per == per && limit.bound == Bound::NoFigure)
    }
}

/// The thresholds of a metric.
pub(crate) fn thresholds(
    policy: &GatePolicy,
    suite: &str,
    test: &str,
    metric: Metric,
    per: Per,
) -> Vec<Threshold> {
    let limits = policy.limits(suite, test, metric, per);
    let mut thresholds: Vec<Threshold> = limits.into_iter().filter_map(Limit::threshold).collect();
    // If a warning and a failure both lack their figure, they are equal.
    thresholds.dedup();
    thresholds
}

/// The smallest threshold of a metric.
pub(crate) fn smallest_limit(
    policy: &GatePolicy,
    suite: &str,
    test: &str,
    metric: Metric,
    per: Per,
) -> Option<f64> {
    thresholds(policy, suite, test, metric, per).into_iter().map(|t| t.limit).min_by(f64::total_cmp)
}

/// Is a metric of a test limited, per iteration or per execution?
pub(crate) fn is_limited(policy: &GatePolicy, suite: &str, test: &str, metric: Metric) -> bool {
    [Per::Iteration, Per::Test].iter().any(|per| smallest_limit(policy, suite, test, metric, *per).is_some())
}

/// Thresholds for the tests that its pattern matches.
#[derive(Debug, Clone)]
pub struct Rule {
    /// The limited metric.
    pub metric: Metric,
    /// The tests to which it applies.
    pub matches: NamePattern,
    /// Limits for tests with a figure in the baseline, by `suite::Test.name`, if the rule is relative to the baseline.
    pub of_tests: HashMap<String, Vec<Limit>>,
    /// Limits for all other tests. Empty: anything is allowed.
    pub limits: Vec<Limit>,
}

/// Matches tests by name.
#[derive(Clone)]
pub struct NamePattern(Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl NamePattern {
    /// `matches` gets `suite::Test.name`.
    pub fn new(matches: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(matches))
    }

    /// Does the pattern match this test?
    #[must_use]
    pub fn is_match(&self, name: &str) -> bool {
        (self.0)(name)
    }
}

impl fmt::Debug for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NamePattern")
    }
}

/// One limit.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    /// The limited metric.
    pub metric: Metric,
    /// The scope: per iteration, test or suite.
    pub per: Per,
    /// The allowed amount.
    pub bound: Bound,
    /// The level if it is exceeded.
    pub level: Level,
    /// Where the limit is defined.
    pub source: ThresholdSource,
}

impl Limit {
    /// Fails if one more iteration adds more than `limit`.
    #[must_use]
    pub fn fail(metric: Metric, limit: f64, source: impl Into<ThresholdSource>) -> Self {
        Self {
            metric,
            per: Per::Iteration,
            bound: Bound::Absolute(limit),
            level: Level::Fail,
            source: source.into(),
        }
    }

    /// The allowed amount in the metric's unit, and the level if it is exceeded. `None`: there is nothing to compare
    /// with.
    ///
    /// If the baseline has no figure for what a test must not keep, 0 is allowed and more is a warning. So a new leak
    /// is seen and confirmed, and a baseline can be made from the run.
    fn allows(&self) -> Option<(f64, Level)> {
        match self.bound {
            Bound::Absolute(limit) => Some((limit, self.level)),
            Bound::NoFigure => {
                let kept = !matches!(self.metric.kind(), Kind::Loaded | Kind::Traffic);
                (kept && self.per == Per::Iteration).then_some((0.0, Level::Warn))
            }
        }
    }

    fn threshold(&self) -> Option<Threshold> {
        let (limit, level) = self.allows()?;
        let source = match self.bound {
            Bound::Absolute(_) => self.source.clone(),
            Bound::NoFigure => format!("{} has no figure in the baseline", self.source).into(),
        };
        Some(Threshold { limit, level, source })
    }
}

/// The allowed amount.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// This much, in the metric's unit.
    Absolute(f64),
    /// Relative to a figure that is missing in the baseline.
    NoFigure,
}

/// A known leak that does not fail the build for now.
#[derive(Debug, Clone)]
pub struct Waiver {
    /// The leaks that it covers.
    pub matches: WaiverMatch,
    /// The tests in which it applies. `None`: all.
    pub test: Option<TestPattern>,
    /// The reason of the waiver.
    pub reason: String,
    /// The owner of the waiver.
    pub owner: Option<String>,
    /// Last day on which it is valid, ISO 8601. `None`: never expires.
    pub until: Option<String>,
    /// Largest amount that it covers, as [`Leak::amount`]. `None`: any amount.
    pub up_to: Option<f64>,
}

impl Waiver {
    /// Has it expired?
    #[must_use]
    pub fn expired(&self, today: &str) -> bool {
        self.until.as_deref().is_some_and(|until| until < today)
    }

    fn covers(&self, amount: f64) -> bool {
        self.up_to.is_none_or(|up_to| amount <= AS_MUCH * up_to)
    }

    fn text(&self) -> String {
        let what = match &self.matches {
            WaiverMatch::Leak(id) => format!("leak {id}"),
            WaiverMatch::Frame(pattern) => format!("frame {}", pattern.text),
            WaiverMatch::Class(pattern) => format!("class {}", pattern.0.text),
            WaiverMatch::Holder(pattern) => format!("holder {}", pattern.0.text),
        };
        match &self.test {
            Some(test) => format!("{what} in {}", test.text),
            None => what,
        }
    }
}

/// Tests in which a waiver applies.
#[derive(Clone)]
pub struct TestPattern {
    text: String,
    matches: Arc<IsTest>,
}

/// Does it apply to this suite and this test?
type IsTest = dyn Fn(&str, &str) -> bool + Send + Sync;

impl TestPattern {
    /// `text` is what the user wrote; `matches` gets a suite and a test of it.
    pub fn new(
        text: impl Into<String>,
        matches: impl Fn(&str, &str) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { text: text.into(), matches: Arc::new(matches) }
    }
}

impl fmt::Debug for TestPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TestPattern({:?})", self.text)
    }
}

/// What a waiver matches.
#[derive(Debug, Clone)]
pub enum WaiverMatch {
    /// A leak by its id.
    Leak(String),
    /// Leaks with a matching frame.
    Frame(FramePattern),
    /// Leaks of a Java class: native suites have none.
    Class(TextPattern),
    /// Leaks by a step of their holder path: `owner.name` in Java, otherwise the variable or function.
    Holder(TextPattern),
}

/// Matches leaks by one of their frames.
#[derive(Clone)]
pub struct FramePattern {
    text: String,
    matches: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

impl FramePattern {
    /// `text` is what the user wrote. `matches` gets `module!function`: as the report shows it, and with the normalised
    /// names of the signature.
    pub fn new(text: impl Into<String>, matches: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self { text: text.into(), matches: Arc::new(matches) }
    }

    /// Does it name this `module!function`?
    #[must_use]
    pub fn is_match(&self, frame: &str) -> bool {
        (self.matches)(frame)
    }
}

impl fmt::Debug for FramePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FramePattern({:?})", self.text)
    }
}

/// Matches the name of a class or a step of a holder path.
#[derive(Debug, Clone)]
pub struct TextPattern(FramePattern);

impl TextPattern {
    /// `text` is what the user wrote. `matches` gets the class, or the names of a step.
    pub fn new(text: impl Into<String>, matches: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(FramePattern::new(text, matches))
    }

    fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    fn holds(&self, step: &HolderStep, leak: LeakKind) -> bool {
        step.names(leak).iter().any(|name| self.is_match(name))
    }
}

/// Tolerance: two figures of the same growth may differ slightly, for example alone and in its class.
pub(crate) const AS_MUCH: f64 = 1.05;

/// A block of unknown origin.
fn has_no_stack(leak: &Leak) -> bool {
    leak.kind == LeakKind::Native && leak.frames.is_empty()
}

/// Are these a leak of a test and the same leak of its class? Without a stack, each has an id of its own.
pub(crate) fn is_same_leak(a: &Leak, b: &Leak) -> bool {
    a.id == b.id || has_no_stack(a) && has_no_stack(b)
}

/// The waivers of one run, and how often each was used.
#[derive(Debug)]
pub(crate) struct Waivers<'a> {
    policy: &'a GatePolicy,
    used: Vec<u32>,
    /// Waivers that name a leak of this run, also one that another waiver covers, that exceeds their limit, or that
    /// they covered until they expired.
    named: BTreeSet<usize>,
    /// Suite and test that are being judged.
    test: (String, String),
    /// Executions in each of its windows. Limits of waivers are per execution.
    executions: f64,
    /// In a class as a whole: leaks of its tests that waivers accept.
    of_its_tests: Vec<Leak>,
}

impl<'a> Waivers<'a> {
    pub(crate) fn new(policy: &'a GatePolicy) -> Self {
        let used = vec![0; policy.waivers.len()];
        Self {
            policy,
            used,
            named: BTreeSet::new(),
            test: (String::new(), String::new()),
            executions: 1.0,
            of_its_tests: Vec::new(),
        }
    }

    /// Sets the test to which the next leaks belong.
    pub(crate) fn enter(&mut self, suite: &str, test: &str) {
        self.test = (suite.to_owned(), test.to_owned());
        self.executions = 1.0;
        self.of_its_tests.clear();
    }

    /// Each window of the test has this many executions.
    pub(crate) const fn windows_of(&mut self, executions: f64) {
        self.executions = executions;
    }

    /// The same for a class as a whole. Its tests left `leaks` when they ran alone.
    pub(crate) fn enter_class<'t>(
        &mut self,
        suite: &str,
        class: &str,
        leaks: impl IntoIterator<Item = &'t Leak>,
    ) {
        self.enter(suite, class);
        self.of_its_tests.extend(leaks.into_iter().filter(|leak| leak.waiver.is_some()).cloned());
    }

    /// The id of a leak in this test. Without a stack the origin is unknown, so the id is unique to the test: a waiver
    /// for one such leak must not cover another.
    pub(crate) fn id_here(&self, leak: &Leak) -> String {
        let (suite, test) = &self.test;
        if has_no_stack(leak) { id_of_test(suite, test) } else { leak.id.clone() }
    }

    /// Gives the leak the reason of the first valid waiver that covers it, and counts its use.
    pub(crate) fn cover(&mut self, leak: &mut Leak, frame_names: &[String]) {
        let named = self.find(leak, frame_names);
        self.tell(leak, named, Waiver::covers);
    }

    /// The same for a leak that was not repeated: it may have left more in its only execution than in others, so the
    /// limits of waivers do not count.
    pub(crate) fn cover_any_amount(&mut self, leak: &mut Leak, frame_names: &[String]) {
        let named = self.find(leak, frame_names);
        self.tell(leak, named, |_, _| true);
    }

    fn find(&self, leak: &Leak, frame_names: &[String]) -> Vec<usize> {
        let here = self.id_here(leak);
        let hit = |waiver: &Waiver| match &waiver.matches {
            WaiverMatch::Leak(id) => here == *id,
            // Without a stack, different calls are one leak: no name stands for all of them.
            WaiverMatch::Frame(pattern) => {
                !has_no_stack(leak) && frame_names.iter().any(|name| pattern.is_match(name))
            }
            WaiverMatch::Class(_) => false,
            WaiverMatch::Holder(pattern) => {
                let holds = |steps: &[HolderStep]| steps.iter().any(|step| pattern.holds(step, leak.kind));
                let others = leak.hold.iter().flat_map(|hold| &hold.others);
                holds(&leak.holder) && others.into_iter().all(|other| holds(&other.holder))
            }
        };
        self.naming(hit)
    }

    /// The same for a leak of Java objects.
    pub(crate) fn cover_java(&mut self, leak: &mut Leak) {
        let named = self.find_java(leak);
        self.tell(leak, named, Waiver::covers);
    }

    fn find_java(&self, leak: &Leak) -> Vec<usize> {
        let calls = |pattern: &FramePattern| {
            let functions = leak.frames.iter().filter_map(|frame| frame.function.as_deref());
            functions.into_iter().any(|function| pattern.is_match(&format!("!{function}")))
        };
        let hit = |waiver: &Waiver| match &waiver.matches {
            WaiverMatch::Leak(id) => *id == leak.id,
            WaiverMatch::Frame(pattern) => calls(pattern),
            WaiverMatch::Class(pattern) => leak.class.as_deref().is_some_and(|class| pattern.is_match(class)),
            WaiverMatch::Holder(pattern) => leak.holder.iter().any(|step| pattern.holds(step, leak.kind)),
        };
        self.naming(hit)
    }

    /// `named`: the waivers that name the leak.
    fn tell(&mut self, leak: &mut Leak, mut named: Vec<usize>, covers: impl Fn(&Waiver, f64) -> bool) {
        let waivers = &self.policy.waivers;
        self.named.extend(named.iter().copied());
        named.retain(|index| !waivers[*index].expired(&self.policy.today));
        let amount = leak.amount() / self.executions;
        let accepted = match named.iter().find(|index| covers(&waivers[**index], amount)) {
            Some(index) => {
                self.used[*index] += 1;
                Some(waivers[*index].reason.clone())
            }
            None => {
                let is_limited = named.iter().any(|index| waivers[*index].up_to.is_some());
                self.accepted_of_its_tests(leak, is_limited)
            }
        };
        leak.waiver = accepted.or(leak.waiver.take());
        let limits = named.iter().filter_map(|index| waivers[*index].up_to);
        leak.waived_up_to = limits.reduce(f64::max).filter(|_| leak.waiver.is_none());
    }

    /// In a class: the reason why its tests may leave this much of the leak.
    fn accepted_of_its_tests(&self, leak: &Leak, is_limited: bool) -> Option<String> {
        let same = || self.of_its_tests.iter().filter(|known| is_same_leak(known, leak));
        // An array may be assigned to different leaks in the class and in the test that leaves it.
        let amount = |leak: &Leak| match leak.count_per_iteration {
            0.0 => leak.bytes_per_iteration,
            count => count,
        };
        let within = |of: &dyn Fn(&Leak) -> f64| of(leak) <= AS_MUCH * same().map(of).sum::<f64>();
        // What limits of waivers compare counts, too.
        let is_all = within(&amount) && (within(&Leak::amount) || !is_limited);
        same().next().filter(|_| is_all)?.waiver.clone()
    }

    /// The numbers of the waivers that apply to this test and hit, also of expired ones.
    fn naming(&self, hit: impl Fn(&Waiver) -> bool) -> Vec<usize> {
        let (suite, test) = &self.test;
        let here = |w: &Waiver| w.test.as_ref().is_none_or(|pattern| (pattern.matches)(suite, test));
        let all = self.policy.waivers.iter().enumerate();
        all.filter(|(_, waiver)| here(waiver) && hit(waiver)).map(|(index, _)| index).collect()
    }

    /// Set if the waived leak is fixed and this run did not see it either.
    fn fixed(&self, waiver: &Waiver, is_named: bool) -> Option<FixedWaiver> {
        let (fixed, level) = &self.policy.fixed;
        let WaiverMatch::Leak(id) = &waiver.matches else { return None };
        let by = fixed.get(id).filter(|_| !is_named)?;
        Some(FixedWaiver { by: by.clone(), level: *level })
    }

    /// The state of every waiver. In a partial run, a waiver that matched nothing may still be needed.
    pub(crate) fn report(&self, partial: bool) -> Vec<WaiverReport> {
        let state = |waiver: &Waiver, is_named: bool| {
            if waiver.expired(&self.policy.today) {
                WaiverState::Expired
            } else if is_named || partial {
                WaiverState::InForce
            } else {
                WaiverState::Unused
            }
        };
        let told = |(index, (waiver, &used)): (usize, (&Waiver, &u32))| {
            let is_named = self.named.contains(&index);
            WaiverReport {
                matches: waiver.text(),
                state: state(waiver, is_named),
                reason: waiver.reason.clone(),
                owner: waiver.owner.clone(),
                until: waiver.until.clone().unwrap_or_else(|| "never".to_owned()),
                used,
                named: is_named,
                fixed: self.fixed(waiver, is_named),
            }
        };
        self.policy.waivers.iter().zip(&self.used).enumerate().map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::tests::waiver;

    fn limited(up_to: f64) -> GatePolicy {
        let waiver = Waiver { up_to: Some(up_to), ..waiver(WaiverMatch::Leak("j1-a".to_owned()), None) };
        GatePolicy { waivers: vec![waiver], ..GatePolicy::default() }
    }

    fn leak(bytes: f64) -> Leak {
        let kind = LeakKind::Java;
        Leak {
            id: "j1-a".to_owned(),
            kind,
            bytes_per_iteration: bytes,
            count_per_iteration: 1.0,
            ..Leak::default()
        }
    }

    fn covered(waivers: &mut Waivers<'_>, bytes: f64) -> (bool, Option<f64>) {
        let mut leak = leak(bytes);
        waivers.cover_java(&mut leak);
        (leak.waiver.is_some(), leak.waived_up_to)
    }

    #[test]
    fn the_limit_of_a_waiver_is_for_one_execution_of_many_in_a_window() {
        let policy = limited(2.0);
        let mut waivers = Waivers::new(&policy);
        waivers.enter("unit", "ATest.a");
        assert_eq!(covered(&mut waivers, 24.0), (false, Some(2.0)));
        waivers.windows_of(30.0);
        assert_eq!(covered(&mut waivers, 24.0), (true, None));
    }

    #[test]
    fn a_class_leaks_as_much_as_its_tests_together_and_not_as_many_larger_objects() {
        let policy = limited(200.0);
        let mut waivers = Waivers::new(&policy);
        let mut of_test = leak(100.0);
        waivers.cover_java(&mut of_test);
        let of_tests = vec![of_test; 3];
        for (bytes, count, is_covered) in [(300.0, 3.0, true), (1e6, 3.0, false), (300.0, 9.0, false)] {
            waivers.enter_class("unit", "ATest", &of_tests);
            let mut of_class = Leak { count_per_iteration: count, ..leak(bytes) };
            waivers.cover_java(&mut of_class);
            assert_eq!(of_class.waiver.is_some(), is_covered, "{bytes} B in {count}");
        }
    }

    #[test]
    fn an_entry_for_all_tests_of_a_class_is_for_the_class_too() {
        let rule = |prefix: &'static str, limit: f64| Rule {
            metric: Metric::JavaLiveObjects,
            matches: NamePattern::new(move |name| name.starts_with(prefix)),
            of_tests: HashMap::new(),
            limits: vec![Limit::fail(Metric::JavaLiveObjects, limit, "memgate.yaml:3")],
        };
        let rules =
            vec![rule("unit::com.example.TileTest.evicts", 7.0), rule("unit::com.example.TileTest.", 9.0)];
        let policy = GatePolicy { rules, ..GatePolicy::default() };
        let limit =
            |test: &str| smallest_limit(&policy, "unit", test, Metric::JavaLiveObjects, Per::Iteration);
        for (test, allowed) in
            [("TileTest", 9.0), ("TileTest.evicts", 7.0), ("TileTest.loads", 9.0), ("TileTests", 0.0)]
        {
            assert_eq!(limit(&format!("com.example.{test}")), Some(allowed), "{test}");
        }
    }
}
