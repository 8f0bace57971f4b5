//! The screen of a JVM suite: rounds of all its test classes in one virtual machine, compared with
//! one another.
//!
//! A first execution always grows (classes, literals, reflection data), so nothing is concluded from the
//! first two. A window that changes nothing at all in the third is no suspect. From then on the end of a
//! window is compared with its end a round before. A window is suspect as long as the same class grows in it
//! in every round, by more than is allowed, and there is more of it at this window's end than a round before:
//! what the rest of the round gives back is no growth. It may give back once what the warm-up left, and hide
//! a leak: in the first comparison that excuses nothing, and a window that changed something is compared
//! twice. A window that is not suspect need not run again ([`RoundsWatch::is_done`]), so later rounds are of
//! suspects alone.
//!
//! What others leave may be freed within a window, and hide its growth:
//! - What the window before left is freed here. Where another window ran before than in the last round, the two
//!   ends are not compared.
//! - If less is freed than the window before added, the rest may be of either: both are suspect.
//! - If exactly as much is freed as this window leaks, nothing seems to grow. So the window behind a suspect runs
//!   as often as the suspect, and is confirmed if the suspect does not grow alone ([`JavaSuspect::behind`]).
//! - Another test may free something late: one round without growth is excused if the window freed objects of
//!   another class. For counters one round is always excused.
//! - The virtual machine frees some of its own arrays and strings, now and then: after the rounds of a suspect, one
//!   round with less of them is excused.
//!
//! Where memory runs out in a round ([`RoundsWatch::is_exhausted`]) the rounds end. What grew so
//! far is suspect, with the class in whose window it ran out and those that could not be compared:
//! a leak may be that large.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use memgate_model::{Area, Kind, Metric, Per, format_amount, format_bytes, format_count};
use memgate_wire::Outcome;

use super::findings::LITERAL_BYTES;
use super::names::{is_filler, is_literal, is_of_project, project_of};
use super::out_of_memory::error;
use super::record::Exhaustion;
use super::series::{Count, Heap, values};
use crate::native;
use crate::policy::{GatePolicy, smallest_limit};
use crate::record::{ProcessRecord, Unit, Window};
use crate::stats::float;

/// Rounds before the first that is looked at.
const WARM_UP: u32 = 2;
/// Rounds of a suspect.
const ROUNDS_OF_SUSPECTS: u32 = 8;
/// Rounds over the tests of one class. Each runs in all of them, measured or not: a test may need the one before it.
const ROUNDS_OF_TESTS: u32 = 6;
/// Rounds of a suspect that may have left but literals, and the time after which it had enough of
/// them.
pub const ROUNDS_OF_LITERALS: u32 = 40;
const LITERALS_NS: u64 = 5_000_000_000;
/// How many a round resolves at most.
const LITERALS_OF_A_ROUND: f64 = 12.0;
/// Classes a suspect names in words.
const NAMED: usize = 3;

/// What grows like objects do, where it is limited.
fn counters() -> impl Iterator<Item = Metric> {
    Metric::of(Area::Java, &[Kind::Held, Kind::Loaded]).chain([Metric::OsFds])
}

/// Those that were read.
type Counters = BTreeMap<Metric, f64>;

/// A test class, or a test, to look at alone.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JavaSuspect {
    /// The test class, or the id of the test.
    pub suite: String,
    /// Classes that grow in it, the most bytes first; empty where only threads, buffers and the
    /// like do.
    pub classes: Vec<String>,
    /// What grew, in words: `12 × com.example.Tile, 24 × byte[]`; empty: the rounds ended before
    /// that could be told.
    pub why: String,
    /// Those of `classes` that the test class before it may have left instead.
    pub may_be_of_before: BTreeSet<String>,
    /// Classes and counters of which the rounds added something in all, though not each of them.
    pub added: (Vec<String>, Vec<Metric>),
    /// The round in which memory ran out, and what filled the heap.
    pub ran_out: Option<String>,
    /// Who is suspect instead, if this one does not grow alone: in each round the next window may free what this one
    /// left, and leak as much.
    pub behind: Option<Box<JavaSuspect>>,
}

impl JavaSuspect {
    /// What the rounds saw: `12 × com.example.Tile in each of the last rounds`.
    #[must_use]
    pub fn seen(&self) -> String {
        let grew = (!self.why.is_empty()).then(|| format!("{} in each of the last rounds", self.why));
        match (grew, &self.ran_out) {
            (Some(grew), None) => grew,
            (Some(grew), Some(ran_out)) => format!("{grew}, until {ran_out}"),
            (None, ran_out) => ran_out.clone().unwrap_or_default(),
        }
    }

    /// Did any of these classes grow in the rounds of its test class? Where the rounds told of
    /// nothing, nothing speaks against it.
    pub(crate) fn saw_any<'a>(&self, mut classes: impl Iterator<Item = &'a str>) -> bool {
        self.told_nothing() || classes.any(|class| self.added.0.iter().any(|grew| grew == class))
    }

    /// Did this counter grow in the rounds?
    pub(crate) fn saw_counter(&self, metric: Metric) -> bool {
        self.told_nothing() || !counters().any(|counter| counter == metric) || self.added.1.contains(&metric)
    }

    /// Classes of the project among those that grew in each of the last rounds, and that the test class before did
    /// not leave.
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

    /// Is this the test class behind it, or a test of that one?
    pub(crate) fn is_before(&self, id: &str) -> bool {
        let rest = self.behind.as_ref().and_then(|behind| id.strip_prefix(behind.suite.as_str()));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    pub(crate) fn told_nothing(&self) -> bool {
        self.why.is_empty() && self.added.0.is_empty() && self.added.1.is_empty()
    }
}

/// Suspects of the launcher's rounds, in the order they ran. `suite` is the name thresholds know.
///
/// # Errors
/// When the rounds tell nothing; a fragment that fits after "the rounds were not measured: ".
pub fn screen_rounds(
    record: &ProcessRecord,
    suite: &str,
    policy: &GatePolicy,
) -> Result<Vec<JavaSuspect>, String> {
    suspects(record, suite, policy, Unit::Class)
}

/// Ids of tests of a class that grew in rounds over them.
///
/// # Errors
/// As [`screen_rounds`].
pub fn growing_tests(
    record: &ProcessRecord,
    suite: &str,
    policy: &GatePolicy,
) -> Result<Vec<String>, String> {
    Ok(suspects(record, suite, policy, Unit::Test)?.into_iter().map(|suspect| suspect.suite).collect())
}

fn suspects(
    record: &ProcessRecord,
    suite: &str,
    policy: &GatePolicy,
    unit: Unit,
) -> Result<Vec<JavaSuspect>, String> {
    let mut watch = RoundsWatch::new(policy, suite, unit);
    watch.observe(record);
    let mut suspects = watch.suspects(record)?;
    let native = native::suspects(record, suite, policy, unit);
    for (id, why) in native.into_iter().filter(|(id, _)| !watch.failing.contains(id)) {
        match suspects.iter_mut().find(|known| known.suite == id) {
            Some(known) if known.why.is_empty() => known.why = why,
            Some(known) => known.why = format!("{}, {why}", known.why),
            // No Java class is suspect, or the suspect would be known.
            None => suspects.extend(
                watch
                    .windows
                    .get(&id)
                    .map(|java| JavaSuspect { classes: Vec::new(), ..suspect(&id, java, &[why], None) }),
            ),
        }
    }
    Ok(suspects)
}

/// Test classes that fail in the rounds that are compared, for another reason than that memory ran
/// out: nothing is known of what they leave.
pub(crate) fn failing(record: &ProcessRecord) -> BTreeSet<&str> {
    let failed = record.windows.iter().filter(|w| class_failed(w) && w.iteration >= WARM_UP);
    failed.filter(|w| out_of_memory(record, w).is_none()).map(|w| w.suite.as_str()).collect()
}

fn out_of_memory<'a>(record: &'a ProcessRecord, window: &Window) -> Option<&'a Exhaustion> {
    let end_ns = if window.end_ns == 0 { u64::MAX } else { window.end_ns };
    error(record, window.start_ns, end_ns)
}

/// Tests that failed in the warm-up and were left out from then on, all invocations together: their
/// class, and [`base_of`] their names. One that found no memory is not among them: what filled the
/// heap is looked for.
#[must_use]
pub fn left_out(record: &ProcessRecord) -> BTreeSet<(String, String)> {
    let full = record.windows.iter().filter(|w| class_failed(w) && out_of_memory(record, w).is_some());
    let full: BTreeSet<(&str, u32)> = full.map(|w| (w.suite.as_str(), w.iteration)).collect();
    let tests = record.windows.iter().filter(|w| has_failed(w) && !w.test.is_empty());
    let tests = tests.filter(|w| !full.contains(&(w.suite.as_str(), w.iteration)));
    tests.map(|w| (w.suite.clone(), base_of(&w.test).to_owned())).collect()
}

/// Tests that the launcher told as skipped, or missing, in the last round of the warm-up: their
/// class and their names. Of a class in which nothing runs later on, the name is empty.
pub(crate) fn skipped(record: &ProcessRecord) -> BTreeSet<(&str, &str)> {
    let skipped = record.windows.iter().filter(|w| w.outcome == Some(Outcome::Skipped));
    let told = skipped.filter(|w| w.test.is_empty() == (w.iteration >= WARM_UP));
    told.map(|w| (w.suite.as_str(), w.test.as_str())).collect()
}

/// The name of a test without the number of an invocation, as the launcher leaves it out:
/// `scroll(int)[2]` is `scroll(int)`.
#[must_use]
pub fn base_of(test: &str) -> &str {
    let base = test.split('[').next().unwrap_or(test);
    base.strip_suffix("()").unwrap_or(base)
}

/// Watches the rounds, end by end.
#[derive(Debug)]
pub struct RoundsWatch {
    suite: String,
    unit: Unit,
    policy: GatePolicy,
    /// Windows of the record that were looked at.
    seen: usize,
    heap: Heap,
    /// The figures of every class, at the ends where they changed.
    history: HashMap<Arc<str>, Vec<(usize, Count)>>,
    /// Ends with a histogram, and the counters at the last of them.
    ends: usize,
    counters: Counters,
    /// The test class that ended last, of those that change something, what the last window added, and whether that
    /// was more than is allowed.
    last: String,
    added_last: BTreeMap<Arc<str>, Delta>,
    grew_last: bool,
    /// Whatever ended last.
    previous: String,
    windows: BTreeMap<String, Compared>,
    /// Test classes in the order they ran.
    order: Vec<String>,
    /// All that ran so far, measured or not.
    known: BTreeSet<String>,
    failing: BTreeSet<String>,
    /// Memory ran out first in the window of this test class; in which round, and with what the
    /// heap was full.
    ran_out: Option<(String, String)>,
}

/// The rounds of one test class.
#[derive(Debug, Default)]
struct Compared {
    /// Measured ends, the number of the last of them, and the round it was in.
    times: usize,
    end: usize,
    round: u32,
    /// Time within it.
    spent_ns: u64,
    /// The test class that ended before it, of those that change something.
    before: String,
    /// What ended right before it in the first round after the warm-up, and whether that added anything in the last
    /// one.
    behind: String,
    follows_growth: bool,
    /// The first round after the warm-up changed nothing.
    still: bool,
    /// The last one changed nothing.
    rests: bool,
    /// Rounds that were compared with the one before.
    rounds: usize,
    /// Classes that grew in each of these.
    grown: BTreeMap<Arc<str>, Grown>,
    /// Classes that grew in the window in the first of these, and not over the round.
    given_back: BTreeMap<Arc<str>, Grown>,
    /// What the window added to counters in the first of these.
    first: Counters,
    /// The first of these is the last, and something changed in it.
    may_hide: bool,
    /// Classes of which the window gave something back in the first of these.
    gave_back: BTreeSet<Arc<str>>,
    /// What they added in all.
    added: BTreeMap<Arc<str>, Delta>,
    added_to_counters: Counters,
    /// Counters at the last end.
    counters: Counters,
    /// The least that a round added to them, and the least but for that one round: it may have hidden a leak.
    lowest: Counters,
    least: Counters,
}

/// What each round added of one class that grew in all of them.
#[derive(Debug)]
struct Grown {
    deltas: Vec<Delta>,
    how: How,
    /// In one round it did not grow, while something was given back that may have hidden it.
    fell: bool,
    /// The window before may have left it.
    may_be_of_before: bool,
}

/// Which figures rose each time. Each counts by itself: some strings and arrays come and go while a large
/// one stays.
#[derive(Debug, Clone, Copy)]
struct How {
    instances: bool,
    bytes: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Delta {
    instances: f64,
    bytes: f64,
}

impl RoundsWatch {
    /// For the rounds of `suite`, which run these.
    #[must_use]
    pub fn new(policy: &GatePolicy, suite: &str, unit: Unit) -> Self {
        Self {
            suite: suite.to_owned(),
            unit,
            policy: policy.clone(),
            seen: 0,
            heap: Heap::default(),
            history: HashMap::new(),
            ends: 0,
            last: String::new(),
            added_last: BTreeMap::new(),
            grew_last: false,
            previous: String::new(),
            counters: Counters::new(),
            windows: BTreeMap::new(),
            order: Vec::new(),
            known: BTreeSet::new(),
            failing: BTreeSet::new(),
            ran_out: None,
        }
    }

    /// Looks at the windows that are new in the record.
    pub fn observe(&mut self, record: &ProcessRecord) {
        let new = self.seen;
        self.seen = record.windows.len();
        for window in record.windows.iter().skip(new) {
            if !self.unit.is(window) {
                self.heap_of(record, window);
                continue;
            }
            if has_failed(window) {
                self.has_failed(record, window);
            }
            self.window(record, window);
            let unit = self.unit.of(window);
            self.known.insert(unit.clone());
            // One that changes nothing may be left out.
            if !self.windows.get(&unit).is_some_and(|compared| compared.still) {
                self.last = unit;
            }
        }
    }

    fn has_failed(&mut self, record: &ProcessRecord, window: &Window) {
        match out_of_memory(record, window) {
            // In the warm-up its tests that fail are left out from then on.
            None if window.iteration < WARM_UP => {}
            None => {
                self.failing.insert(self.unit.of(window));
            }
            Some(why) => {
                let round = window.iteration.saturating_add(1);
                let told = || format!("memory ran out in round {round}: {}", why.described());
                self.ran_out.get_or_insert_with(|| (self.unit.of(window), told()));
            }
        }
    }

    /// Did memory run out? Then the rounds that follow tell nothing.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.ran_out.is_some()
    }

    /// Was this test class measured often enough to tell whether it is a suspect, or that it cannot be
    /// judged? A test, which goes on running beside others that grow, has to change nothing: what it
    /// changes unmeasured would count to the next one.
    #[must_use]
    pub fn is_done(&self, suite: &str, test: &str) -> bool {
        let id = self.unit.id(suite, test);
        let compared = self.windows.get(&id).filter(|compared| compared.is_told());
        let limit = |metric| smallest_limit(&self.policy, &self.suite, &id, metric, Per::Iteration);
        let may_be_literals = |c: &Compared| c.may_be_literals() && c.grown_counters(limit).next().is_none();
        let enough = |c: &Compared| c.round + 1 >= ROUNDS_OF_SUSPECTS && !may_be_literals(c);
        let quiet = |c: &Compared| !c.may_hide && self.why(&id, c).is_empty() && !self.is_behind_a_suspect(c);
        match self.unit {
            Unit::Class => self.failing.contains(&id) || compared.is_some_and(|c| enough(c) || quiet(c)),
            Unit::Test => compared.is_some_and(|c| c.rests && quiet(c)),
        }
    }

    /// May what the window before leaves hide what this one does? Whether that one grows is not known at first.
    fn is_behind_a_suspect(&self, compared: &Compared) -> bool {
        let before = self.windows.get(&compared.behind).filter(|_| self.unit == Unit::Class);
        let grows = |before: &Compared| before.rounds == 0 || !self.why(&compared.behind, before).is_empty();
        compared.follows_growth && compared.round + 1 < ROUNDS_OF_SUSPECTS && before.is_some_and(grows)
    }

    /// Was each test of the class measured often enough? `done`: ids of those that are measured no more.
    #[must_use]
    pub fn is_over(&self, done: &BTreeSet<String>) -> bool {
        let ran = |id: &String| {
            let rounds = self.windows.get(id).map_or(0, |compared| compared.round + 1);
            done.contains(id) || self.failing.contains(id) || rounds >= ROUNDS_OF_TESTS
        };
        self.unit == Unit::Test && !self.windows.is_empty() && self.known.iter().all(ran)
    }

    /// Did it run as often as a suspect?
    #[must_use]
    pub fn ran_like_a_suspect(&self, suite: &str, test: &str) -> bool {
        let id = self.unit.id(suite, test);
        self.windows.get(&id).is_some_and(|compared| compared.round + 1 >= ROUNDS_OF_SUSPECTS)
    }

    /// Is the warm-up over?
    #[must_use]
    pub fn is_warm(&self) -> bool {
        !self.windows.is_empty()
    }

    fn window(&mut self, record: &ProcessRecord, window: &Window) {
        let at = self.ends;
        let Some(deltas) = self.heap_of(record, window) else { return };
        let read = |metric| Some((metric, values(&[window], metric).first().copied()?));
        let counters: Counters = counters().filter_map(read).collect();
        let grows = self.grows(&self.unit.of(window), &deltas, &counters);
        let before = std::mem::replace(&mut self.added_last, deltas.clone());
        let follows_growth = std::mem::replace(&mut self.grew_last, grows);
        let previous = std::mem::replace(&mut self.previous, self.unit.of(window));
        if window.iteration < WARM_UP || self.ran_out.is_some() {
            return;
        }
        let still = window.outcome == Some(Outcome::Passed)
            && self.is_still(&self.unit.of(window), &deltas, &counters);
        let of_both = deltas
            .iter()
            .filter_map(|(class, delta)| Some((Arc::clone(class), delta.less_gone(*before.get(class)?)?)))
            .collect();
        self.compare(window, at, (deltas, of_both), &counters);
        self.windows.entry(self.unit.of(window)).and_modify(|compared| {
            compared.still = if compared.times == 1 { still } else { compared.still };
            compared.rests = still;
            if compared.times == 1 {
                compared.behind = previous;
            }
            compared.follows_growth = follows_growth;
        });
        self.counters = counters;
    }

    /// Did a window add an object, or more to a counter than is allowed?
    fn grows(&self, unit: &str, deltas: &BTreeMap<Arc<str>, Delta>, counters: &Counters) -> bool {
        let over = |metric| {
            let limit = smallest_limit(&self.policy, &self.suite, unit, metric, Per::Iteration);
            limit.zip(added(&self.counters, counters, metric)).is_some_and(|(limit, added)| added > limit)
        };
        deltas.values().any(|delta| delta.in_window().is_any()) || self::counters().any(over)
    }

    /// Did a window change nothing, or add to counters no more than is allowed? What it gives back may be what another
    /// needs it for, or hide what it leaves.
    fn is_still(&self, unit: &str, deltas: &BTreeMap<Arc<str>, Delta>, counters: &Counters) -> bool {
        let within = |metric| {
            // Who looks at a process may not see its descriptors, at no time.
            if metric == Metric::OsFds && !counters.contains_key(&metric) {
                return true;
            }
            let limit = smallest_limit(&self.policy, &self.suite, unit, metric, Per::Iteration);
            let added = added(&self.counters, counters, metric);
            limit.is_none_or(|limit| added.is_some_and(|added| (0.0..=limit).contains(&added)))
        };
        !deltas.values().any(|delta| delta.is_change()) && self::counters().all(within)
    }

    /// What the window added to each class, as the heap is known now; `None`: it was not counted.
    fn heap_of(&mut self, record: &ProcessRecord, window: &Window) -> Option<BTreeMap<Arc<str>, Delta>> {
        let java = record.java.as_ref()?;
        if !window.java.as_ref().is_some_and(|java| java.histogram) {
            return None;
        }
        let (at, history) = (self.ends, &mut self.history);
        let mut deltas = BTreeMap::<Arc<str>, Delta>::new();
        self.heap.apply(window, |class, was, now| {
            let Some(name) = java.classes.get(&class).filter(|name| !is_filler(name)) else { return };
            let steps = history.entry(Arc::clone(name)).or_default();
            let before = steps.last().map_or(Count::default(), |(_, count)| *count);
            let live = Count {
                instances: before.instances.saturating_sub(was.instances).saturating_add(now.instances),
                bytes: before.bytes.saturating_sub(was.bytes).saturating_add(now.bytes),
            };
            match steps.last_mut() {
                Some((end, count)) if *end == at => *count = live,
                _ => steps.push((at, live)),
            }
            let delta = deltas.entry(Arc::clone(name)).or_default();
            delta.instances += float(now.instances) - float(was.instances);
            delta.bytes += float(now.bytes) - float(was.bytes);
        });
        self.ends += 1;
        Some(deltas)
    }

    /// `of_both`: where less went in the window than the one before had added, what both left.
    fn compare(
        &mut self,
        window: &Window,
        at: usize,
        (mut deltas, of_both): (BTreeMap<Arc<str>, Delta>, BTreeMap<Arc<str>, Delta>),
        now: &Counters,
    ) {
        let (history, before) = (&self.history, &self.counters);
        let unit = self.unit.of(window);
        let limit = |metric| smallest_limit(&self.policy, &self.suite, &unit, metric, Per::Iteration);
        let compared = self.windows.entry(unit.clone()).or_insert_with(|| {
            self.order.push(unit.clone());
            Compared::default()
        });
        if compared.times > 0 && compared.before == self.last {
            deltas.extend(of_both.iter().map(|(class, delta)| (Arc::clone(class), *delta)));
            let height = |class: &Arc<str>, end| height(history.get(class).map_or(&[], Vec::as_slice), end);
            for (class, delta) in &deltas {
                let added = compared.added.entry(Arc::clone(class)).or_default();
                added.instances += delta.instances;
                added.bytes += delta.bytes;
            }
            let how = |class: &Arc<str>, delta| how(delta, height(class, compared.end), height(class, at));
            let fell = |class: &Arc<str>, delta: Delta| {
                let (was, is) = (height(class, compared.end), height(class, at));
                delta.falls() || is.instances < was.instances || is.bytes < was.bytes
            };
            compared.may_hide = compared.rounds == 0 && deltas.values().any(|delta| delta.is_change());
            let gives_back: BTreeSet<Arc<str>> = deltas
                .iter()
                .filter(|(_, delta)| delta.falls())
                .map(|(class, _)| Arc::clone(class))
                .collect();
            if compared.rounds == 0 {
                compared.gave_back = gives_back;
                let grew = deltas.into_iter().filter(|(_, delta)| delta.in_window().is_any());
                let (grown, given_back): (Vec<_>, Vec<_>) = grew
                    .map(|(class, delta)| {
                        let how = how(&class, delta);
                        let may_be_of_before = of_both.contains_key(&class);
                        (class, Grown { deltas: vec![delta], how, fell: false, may_be_of_before })
                    })
                    .partition(|(_, grown)| grown.how.is_any());
                compared.grown = grown.into_iter().collect();
                compared.given_back = given_back.into_iter().collect();
            } else {
                for (class, mut grown) in std::mem::take(&mut compared.given_back) {
                    grown.how = grown.added_first();
                    compared.grown.insert(class, grown);
                }
                // What the first comparison may have hidden.
                let mut late = BTreeMap::new();
                if compared.rounds == 1 && !compared.gave_back.is_empty() {
                    let is_known = |class: &Arc<str>| {
                        compared.grown.contains_key(class) || compared.gave_back.contains(class)
                    };
                    for (class, delta) in deltas.iter().filter(|(class, _)| !is_known(class)) {
                        let how = how(class, *delta);
                        let may_be_of_before = of_both.contains_key(class);
                        let grown = Grown { deltas: vec![*delta; 2], how, fell: true, may_be_of_before };
                        late.insert(Arc::clone(class), grown);
                    }
                }
                let is_suspect = compared.round + 1 >= ROUNDS_OF_SUSPECTS;
                for (class, grown) in &mut compared.grown {
                    let delta = deltas.get(class).copied().unwrap_or_default();
                    let now = how(class, delta);
                    let is_hidden = !gives_back.is_empty() && !gives_back.contains(class) && !now.is_any();
                    let may_hide = is_hidden || is_suspect && fell(class, delta);
                    if may_hide && !grown.fell {
                        grown.fell = true;
                        grown.deltas.extend(grown.deltas.last().copied());
                        continue;
                    }
                    grown.how.instances &= now.instances;
                    grown.how.bytes &= now.bytes;
                    grown.deltas.push(delta);
                }
                compared.grown.append(&mut late);
            }
            compared.grown.retain(|_, grown| grown.how.is_any());
            compared.compare_counters(before, now, limit);
            compared.rounds += 1;
        }
        compared.times += 1;
        compared.end = at;
        compared.round = window.iteration;
        compared.spent_ns = compared.spent_ns.saturating_add(window.end_ns.saturating_sub(window.start_ns));
        compared.before.clone_from(&self.last);
        compared.counters.clone_from(now);
    }

    /// What grew in each round by more than is allowed, in words.
    fn why(&self, class: &str, compared: &Compared) -> Vec<String> {
        if compared.rounds == 0 {
            return Vec::new();
        }
        // In a class that grew by more than is allowed each test that grew at all is confirmed: it is judged by a limit
        // of its own, and what it leaves is none of the class's.
        let limit = |metric| {
            let limit = smallest_limit(&self.policy, &self.suite, class, metric, Per::Iteration)?;
            Some(if self.unit == Unit::Test { 0.0 } else { limit })
        };
        let mut why = objects(&compared.ranked(), limit);
        why.extend(compared.grown_counters(limit).map(|(metric, least)| format_amount(metric, least)));
        why
    }

    /// Who is suspect, when the rounds are over.
    ///
    /// # Errors
    /// When the rounds tell nothing; a fragment that fits after "the rounds were not measured: ".
    pub fn suspects(&self, record: &ProcessRecord) -> Result<Vec<JavaSuspect>, String> {
        if let Some(why) = crate::measured::unmeasured(record, None) {
            return Err(why);
        }
        if let Some(damage) = &record.damaged {
            return Err(format!("their recording is damaged: {damage}"));
        }
        // JUnit or the launcher may have found no memory to go on with.
        let broken_off = record.open.iter().find_map(|open| {
            let (round, why) =
                (open.window.iteration.saturating_add(1), out_of_memory(record, &open.window)?);
            Some((
                self.unit.of(&open.window),
                format!("memory ran out in round {round}: {}", why.described()),
            ))
        });
        if let Some((class, why)) = self.ran_out.clone().or(broken_off) {
            return Ok(self.suspects_until(record, &class, &why));
        }
        let Some(last) = self.windows.values().map(|compared| compared.round).max() else {
            return Err("there is no class histogram behind their warm-up".to_owned());
        };
        let missing =
            |class: &str, round: u32| Err(format!("round {} has no end of {class}", round.saturating_add(1)));
        let units =
            record.windows.iter().filter(|window| self.unit.is(window)).map(|window| self.unit.of(window));
        let mut judged = units.filter(|unit| !self.failing.contains(unit));
        if let Some(unit) = judged.find(|unit| !self.windows.contains_key(unit)) {
            return missing(&unit, WARM_UP);
        }
        let mut suspects = Vec::new();
        for class in self.order.iter().filter(|class| !self.failing.contains(*class)) {
            let Some(compared) = self.windows.get(class) else { continue };
            let why = self.why(class, compared);
            let enough = last.min(ROUNDS_OF_SUSPECTS - 1);
            let open = !compared.is_told() || !why.is_empty() && compared.round < enough;
            if open {
                return missing(class, compared.round.saturating_add(1));
            }
            if !why.is_empty() {
                suspects.push(suspect(class, compared, &why, None));
            }
        }
        let known: BTreeSet<String> = suspects.iter().map(|suspect| suspect.suite.clone()).collect();
        for suspect in &mut suspects {
            suspect.behind = self.behind(suspect, &known).map(Box::new);
        }
        Ok(suspects)
    }

    /// Who is suspect if this one does not grow alone.
    fn behind(&self, suspect: &JavaSuspect, known: &BTreeSet<String>) -> Option<JavaSuspect> {
        let mut others = self.order.iter().filter(|id| !known.contains(*id) && !self.failing.contains(*id));
        let is_next = |id: &&String| self.windows.get(*id).is_some_and(|next| next.behind == suspect.suite);
        let next = others.find(is_next)?;
        let grown = self.windows.get(&suspect.suite)?;
        let limit =
            |metric| smallest_limit(&self.policy, &self.suite, &suspect.suite, metric, Per::Iteration);
        let counters = grown.grown_counters(limit).map(|(metric, _)| metric).collect();
        Some(JavaSuspect {
            suite: next.clone(),
            may_be_of_before: suspect.classes.iter().cloned().collect(),
            why: format!("{} here or in {}", suspect.why, suspect.suite),
            // Nothing else grew in its window.
            added: (suspect.classes.clone(), counters),
            behind: None,
            ..suspect.clone()
        })
    }

    /// Who is suspect when memory ran out in the window of `exhausted`: what grew so far, and what
    /// could not be compared.
    fn suspects_until(&self, record: &ProcessRecord, exhausted: &str, ran_out: &str) -> Vec<JavaSuspect> {
        let mut suspects: Vec<JavaSuspect> = Vec::new();
        let open = record.open.iter().map(|open| &open.window);
        let is_whole_class = |window: &Window| self.unit == Unit::Test && window.test.is_empty();
        for window in record.windows.iter().chain(open).filter(|window| !is_whole_class(window)) {
            let class = &self.unit.of(window);
            let known = suspects.iter().any(|suspect| suspect.suite == *class);
            if known || class.is_empty() || self.failing.contains(class) {
                continue;
            }
            let nothing = Compared::default();
            let compared = self.windows.get(class).unwrap_or(&nothing);
            let why = self.why(class, compared);
            if class == exhausted || compared.rounds == 0 || !why.is_empty() {
                suspects.push(suspect(class, compared, &why, Some(ran_out.to_owned())));
            }
        }
        suspects
    }
}

/// What was added to a counter, where it was read both times.
fn added(before: &Counters, now: &Counters, metric: Metric) -> Option<f64> {
    Some(now.get(&metric)? - before.get(&metric)?)
}

fn suspect(class: &str, compared: &Compared, why: &[String], ran_out: Option<String>) -> JavaSuspect {
    let ranked = compared.ranked();
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
        ran_out,
        behind: None,
    }
}

impl Compared {
    /// Can it be told whether it grows?
    fn is_told(&self) -> bool {
        self.still || self.rounds > 0
    }

    /// Counters that grew in each round by more than is allowed, but for one.
    fn grown_counters(&self, limit: impl Fn(Metric) -> Option<f64>) -> impl Iterator<Item = (Metric, f64)> {
        let least = self.least.iter().map(|(metric, least)| (*metric, *least));
        least.filter(move |(metric, least)| limit(*metric).is_some_and(|limit| *least > limit))
    }

    /// What the window added to the counters since `before`, and the round since its end.
    fn compare_counters(&mut self, before: &Counters, now: &Counters, limit: impl Fn(Metric) -> Option<f64>) {
        for metric in counters() {
            let added = |before| added(before, now, metric).unwrap_or(0.0);
            let (in_window, in_round) = (added(before), added(&self.counters));
            let added = in_window.min(in_round);
            let lowest = self.lowest.entry(metric).or_insert(f64::INFINITY);
            let least = self.least.entry(metric).or_insert(f64::INFINITY);
            match self.rounds {
                0 => {
                    self.first.insert(metric, in_window);
                    let may_hide = |limit| in_window > limit && in_round <= limit || in_window < 0.0;
                    self.may_hide |= limit(metric).is_some_and(may_hide);
                    (*lowest, *least) = (added, added);
                }
                1 => {
                    let first = self.first.get(&metric).copied().unwrap_or_default();
                    (*lowest, *least) = (first.min(added), first.max(added));
                }
                _ => {
                    *least = least.min(added.max(*lowest));
                    *lowest = lowest.min(added);
                }
            }
            *self.added_to_counters.entry(metric).or_default() += in_window;
        }
    }

    /// Is it too early to tell whether more grew than literals?
    fn may_be_literals(&self) -> bool {
        let few = |(class, grown): (&Arc<str>, &Grown)| {
            let least = grown.least();
            is_literal(class) && least.instances <= LITERALS_OF_A_ROUND && least.bytes <= LITERAL_BYTES
        };
        self.round + 1 < ROUNDS_OF_LITERALS && self.spent_ns < LITERALS_NS && self.grown.iter().all(few)
    }

    /// The classes that grew, those with most bytes first.
    fn ranked(&self) -> Vec<(&Arc<str>, &Grown)> {
        let mut ranked: Vec<_> = self.grown.iter().collect();
        ranked.sort_by(|a, b| b.1.least().bytes.total_cmp(&a.1.least().bytes));
        ranked
    }
}

impl Grown {
    /// What the round that added least has added; 0 for a figure that did not rise each time.
    fn least(&self) -> Delta {
        let least = |of: fn(&Delta) -> f64| self.deltas.iter().map(of).fold(f64::INFINITY, f64::min);
        Delta {
            instances: if self.how.instances { least(|d| d.instances) } else { 0.0 },
            bytes: if self.how.bytes { least(|d| d.bytes) } else { 0.0 },
        }
    }

    /// What the window added in the first round.
    fn added_first(&self) -> How {
        self.deltas.first().copied().unwrap_or_default().in_window()
    }

    /// What a round added of what there was more of each time.
    fn added(&self, round: usize) -> Delta {
        let delta = self.deltas.get(round).copied().unwrap_or_default();
        Delta {
            instances: if self.how.instances { delta.instances } else { 0.0 },
            bytes: if self.how.bytes { delta.bytes } else { 0.0 },
        }
    }
}

/// The figures of a class at one end.
fn height(steps: &[(usize, Count)], end: usize) -> Count {
    let later = steps.partition_point(|(at, _)| *at <= end);
    later.checked_sub(1).and_then(|at| steps.get(at)).map_or(Count::default(), |(_, count)| *count)
}

fn has_failed(window: &Window) -> bool {
    window.outcome == Some(Outcome::Failed)
}

/// Added by the window itself, and not given back by the rest of the round.
fn how(delta: Delta, before: Count, now: Count) -> How {
    let in_window = delta.in_window();
    How {
        instances: in_window.instances && now.instances > before.instances,
        bytes: in_window.bytes && now.bytes > before.bytes,
    }
}

impl How {
    const fn is_any(self) -> bool {
        self.instances || self.bytes
    }
}

impl Delta {
    fn is_change(self) -> bool {
        self.instances != 0.0 || self.bytes != 0.0
    }

    fn falls(self) -> bool {
        self.instances < 0.0 || self.bytes < 0.0
    }

    /// What it and the window before added together, where it gave back less than that one had added.
    fn less_gone(self, before: Self) -> Option<Self> {
        let of_both = |now: f64, before: f64| if now < 0.0 { (now + before).max(now) } else { now };
        let both = Self {
            instances: of_both(self.instances, before.instances),
            bytes: of_both(self.bytes, before.bytes),
        };
        (self.falls() && both.in_window().is_any()).then_some(both)
    }

    /// What the window added, whatever the rest of the round did.
    fn in_window(self) -> How {
        How { instances: self.instances > 0.0, bytes: self.bytes > 0.0 }
    }
}

/// Did a class fail? Its tests that did are told apart.
fn class_failed(window: &Window) -> bool {
    has_failed(window) && window.test.is_empty()
}

/// The classes in words, where all together are more than is allowed in each round.
fn objects(grown: &[(&Arc<str>, &Grown)], limit: impl Fn(Metric) -> Option<f64>) -> Vec<String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::java::dsl::Jvm;

    type Body = Box<dyn Fn(&mut Jvm, u32)>;

    /// Six rounds of three classes, of which the second does this.
    fn suspects(body: &Body) -> Vec<(String, Vec<String>, String)> {
        let mut jvm = Jvm::new();
        for round in 0..6 {
            jvm.window("FirstTest", "", round, |jvm| {
                jvm.set("byte[]", 100, 9000 + 10 * u64::from(round % 2))
            });
            jvm.window("SecondTest", "", round, |jvm| body(jvm, round));
            jvm.window("ThirdTest", "", round, |_| ());
        }
        let found = screen_rounds(&jvm.end(), "loaders", &GatePolicy::default()).expect("six rounds");
        found.into_iter().map(|s| (s.suite, s.classes, s.why)).collect()
    }

    /// Rounds over the tests of a class, with the orders of the harness: how often each of them was measured, and
    /// which of them grow.
    fn rounds_of_tests(
        policy: &GatePolicy,
        tests: &[&str],
        body: impl Fn(&mut Jvm, &str, u32),
    ) -> (Vec<u32>, Vec<String>) {
        let (mut jvm, mut observer) = (Jvm::new(), crate::observer::Observer::new());
        let mut watch = RoundsWatch::new(policy, "loaders", Unit::Test);
        let (mut done, mut measured) = (BTreeSet::new(), vec![0; tests.len()]);
        'rounds: for round in 0..ROUNDS_OF_LITERALS {
            for (at, test) in tests.iter().enumerate() {
                let id = format!("PageTest.{test}");
                if round < WARM_UP || done.contains(&id) {
                    jvm.unmeasured("PageTest", test, round, |jvm| body(jvm, test, round));
                } else {
                    jvm.window("PageTest", test, round, |jvm| body(jvm, test, round));
                    measured[at] += 1;
                }
                jvm.frames.drain(..).for_each(|(frame, t_ns)| observer.push(frame, t_ns));
                watch.observe(observer.record());
                if watch.is_done("PageTest", test) {
                    done.insert(id);
                }
                if watch.is_over(&done) {
                    break 'rounds;
                }
            }
        }
        (measured, growing_tests(&observer.into_record(), "loaders", policy).expect("enough rounds"))
    }

    #[test]
    fn rounds_over_tests_tell_which_of_them_grow() {
        let body = |jvm: &mut Jvm, test: &str, round: u32| match test {
            "keeps" => jvm.add("com.example.Tile", 2, 24),
            "warms" => jvm.add("com.example.Tile", u64::from(round < 3), 24),
            "toggles" => jvm.set("byte[]", 100, 9000 + 10 * u64::from(round % 2)),
            _ => {}
        };
        let tests = ["first", "opens", "keeps", "warms", "toggles"];
        let (measured, growing) = rounds_of_tests(&GatePolicy::default(), &tests, body);
        assert_eq!(growing, ["PageTest.keeps"]);
        assert_eq!(measured, [2, 1, 4, 2, 4], "before the first nothing was counted");
        let limit = |metric| crate::policy::Limit::fail(metric, 1e6, "memgate.yaml:7");
        let defaults = [Metric::JavaLiveObjects, Metric::JavaLiveBytes].map(limit).into();
        let generous = GatePolicy { defaults, ..GatePolicy::default() };
        assert_eq!(rounds_of_tests(&generous, &tests, body).1, ["PageTest.keeps"], "whatever it is allowed");
    }

    /// All of them rest at once; what one does that is measured no more makes no other one suspect that rests.
    #[test]
    fn rounds_over_tests_of_which_none_grows_are_over_soon() {
        let policy = GatePolicy::default();
        assert_eq!(rounds_of_tests(&policy, &["first", "opens"], |_, _, _| ()), (vec![3, 1], Vec::new()));
        let late = |jvm: &mut Jvm, test: &str, round: u32| {
            if test == "opens" && round >= 3 {
                jvm.add("com.example.Tile", 2, 24);
            }
            if test == "keeps" {
                jvm.add("com.example.Page", 2, 24);
            }
        };
        let (_, growing) = rounds_of_tests(&policy, &["first", "opens", "closes", "keeps"], late);
        assert_eq!(growing, ["PageTest.keeps"]);
    }

    #[test]
    fn only_what_grows_in_each_of_the_last_three_rounds_is_suspect() {
        let cases: Vec<(&str, Body, Option<&str>)> = vec![
            ("nothing", Box::new(|_, _| ()), None),
            (
                "every round",
                Box::new(|jvm, _| jvm.add("com.example.Tile", 2, 24)),
                Some("2 × com.example.Tile"),
            ),
            (
                "the first three rounds",
                Box::new(|jvm, r| {
                    if r < 3 {
                        jvm.add("com.example.Tile", 2, 24)
                    }
                }),
                None,
            ),
            (
                "every other round",
                Box::new(|jvm, r| {
                    if r % 2 == 0 {
                        jvm.add("com.example.Tile", 2, 24)
                    }
                }),
                None,
            ),
            (
                "the last three rounds",
                Box::new(|jvm, r| {
                    if r >= 3 {
                        jvm.add("com.example.Tile", u64::from(r), 24)
                    }
                }),
                Some("3 × com.example.Tile"),
            ),
            (
                "an array that doubles in every round",
                Box::new(|jvm, r| jvm.set("int[]", 1, 64 << r)),
                Some("256 B more of int[]"),
            ),
            ("a thread", Box::new(|jvm, r| jvm.threads.push(format!("w{r}"))), Some("1 Java thread")),
            (
                "direct buffers",
                Box::new(|jvm, _| jvm.direct_bytes += 4096),
                Some("4.0 KiB of direct buffers"),
            ),
            ("global references, without a limit", Box::new(|jvm, _| jvm.jni_globals += 1), None),
            (
                "another lambda in every round",
                Box::new(|jvm, r| jvm.add(&format!("A$$Lambda${r}/0x0{r}"), 1, 16)),
                Some("1 × A$$Lambda"),
            ),
        ];
        for (what, body, why) in cases {
            let found = suspects(&body);
            let whys: Vec<_> = found.iter().map(|(suite, _, why)| (suite.as_str(), why.as_str())).collect();
            assert_eq!(whys, why.map(|why| ("SecondTest", why)).into_iter().collect::<Vec<_>>(), "{what}");
        }
    }

    #[test]
    fn a_test_that_fails_in_the_warm_up_is_left_out_and_its_class_is_compared() {
        let mut jvm = Jvm::new();
        for round in 0..8 {
            jvm.window("LeakTest", "", round, |jvm| {
                jvm.tiles(3);
                jvm.outcome = if round == 1 { Outcome::Failed } else { Outcome::Passed };
            });
            if round == 1 {
                jvm.window("LeakTest", "once()[2]", round, |jvm| jvm.outcome = Outcome::Failed);
            }
        }
        let record = jvm.end();
        assert_eq!(screen_rounds(&record, "loaders", &GatePolicy::default()).map(|s| s.len()), Ok(1));
        assert_eq!(failing(&record), BTreeSet::new());
        assert_eq!(left_out(&record), BTreeSet::from([("LeakTest".to_owned(), "once".to_owned())]));
    }

    #[test]
    fn what_the_rest_of_the_round_gives_back_is_no_growth() {
        let mut jvm = Jvm::new();
        for round in 0..6 {
            jvm.window("FillTest", "", round, |jvm| jvm.add("com.example.Tile", 7, 24));
            jvm.window("EmptyTest", "", round, |jvm| jvm.remove("com.example.Tile", 7, 24));
        }
        assert_eq!(screen_rounds(&jvm.end(), "loaders", &GatePolicy::default()), Ok(Vec::new()));
    }

    /// The orders of the harness: what is known to be no suspect does not run again.
    #[test]
    fn later_rounds_are_of_suspects_alone() {
        let policy = GatePolicy::default();
        let mut jvm = Jvm::new();
        let mut observer = crate::observer::Observer::new();
        let mut watch = RoundsWatch::new(&policy, "loaders", Unit::Class);
        let mut left = vec!["FirstTest", "LeakTest", "StillTest", "FillTest", "EmptyTest"];
        let mut ran = Vec::new();
        for round in 0..8 {
            ran.push(left.len());
            left.retain(|class| {
                jvm.window(class, "", round, |jvm| match *class {
                    // What it leaves goes within the next window, whichever that is.
                    "FirstTest" => jvm.set("byte[]", 500, 50_000),
                    "LeakTest" => {
                        jvm.set("byte[]", 100, 10_000);
                        jvm.tiles(3);
                    }
                    "StillTest" => (),
                    "FillTest" => jvm.add("com.example.Page", 7, 24),
                    _ => jvm.remove("com.example.Page", 7, 24),
                });
                jvm.frames.drain(..).for_each(|(frame, t_ns)| observer.push(frame, t_ns));
                watch.observe(observer.record());
                !watch.is_done(class, "")
            });
        }
        assert_eq!(ran, [5, 5, 5, 5, 5, 2, 2, 2], "the last two: the suspect, and what runs behind it");
        let found = watch.suspects(observer.record()).expect("eight rounds");
        assert_eq!(found.len(), 1);
        assert!(found[0].why.contains("3 × com.example.Tile"), "{}", found[0].why);
        assert_eq!(Ok(found), screen_rounds(&observer.into_record(), "loaders", &policy), "read again");
    }

    /// What the warm-up left goes late, and the leaking class has run behind that only once.
    #[test]
    fn what_goes_once_within_a_round_hides_no_leak() {
        let policy = GatePolicy::default();
        let mut jvm = Jvm::new();
        let mut observer = crate::observer::Observer::new();
        let mut watch = RoundsWatch::new(&policy, "kit", Unit::Class);
        let mut left = vec!["LeakTest", "CleanTest"];
        let mut ran = Vec::new();
        let names = ["java.lang.String", "byte[]", "java.util.HashMap$Node"];
        names.iter().for_each(|name| jvm.add(name, 20, 32));
        for round in 0..8 {
            ran.push(left.len());
            left.retain(|class| {
                jvm.window(class, "", round, |jvm| {
                    for name in names {
                        match (*class, round) {
                            ("LeakTest", _) => jvm.add(name, 1, 32),
                            (_, 2) => jvm.remove(name, 2, 32),
                            _ => {}
                        }
                    }
                    if *class == "LeakTest" {
                        jvm.threads.push(format!("worker-{round}"));
                    } else if round == 2 {
                        jvm.threads.drain(1..3);
                    }
                });
                jvm.frames.drain(..).for_each(|(frame, t_ns)| observer.push(frame, t_ns));
                watch.observe(observer.record());
                !watch.is_done(class, "")
            });
        }
        assert_eq!(ran, [2, 2, 2, 2, 1, 1, 1, 1], "CleanTest changed nothing in the fourth round");
        let found = watch.suspects(observer.record()).expect("eight rounds");
        let whys: Vec<_> = found.iter().map(|s| (s.suite.as_str(), s.why.as_str())).collect();
        let why = "1 × byte[], 1 × java.lang.String, 1 × java.util.HashMap$Node, 1 Java thread";
        assert_eq!(whys, [("LeakTest", why)]);
    }

    /// Rounds of a class as long as it is not done, and what is suspected.
    fn rounds_of(body: impl Fn(&mut Jvm, u32)) -> (u32, Option<String>) {
        let mut jvm = Jvm::new();
        let mut observer = crate::observer::Observer::new();
        let mut watch = RoundsWatch::new(&GatePolicy::default(), "kit", Unit::Class);
        jvm.add("com.example.Late", 20, 32);
        jvm.add("com.example.Tile", 20, 24);
        let last = (0..ROUNDS_OF_LITERALS).find(|&round| {
            jvm.window("PoolTest", "", round, |jvm| body(jvm, round));
            jvm.frames.drain(..).for_each(|(frame, t_ns)| observer.push(frame, t_ns));
            watch.observe(observer.record());
            watch.is_done("PoolTest", "")
        });
        let suspects = watch.suspects(observer.record()).expect("all rounds");
        (last.map_or(ROUNDS_OF_LITERALS, |last| last + 1), suspects.into_iter().next().map(|s| s.why))
    }

    /// An object of the same class, or a thread of an earlier test, goes late: in that round there are no more of them.
    #[test]
    fn what_another_test_gives_back_late_hides_no_leak() {
        for hidden in 3..8 {
            let objects = rounds_of(|jvm, round| match round == hidden {
                true => jvm.remove("com.example.Late", 1, 32),
                false => jvm.add("com.example.Tile", 1, 24),
            });
            assert_eq!(objects, (8, Some("1 × com.example.Tile".to_owned())), "round {hidden}");
            if hidden == 3 {
                continue;
            }
            let threads = rounds_of(|jvm, round| {
                if round != hidden {
                    jvm.threads.push(format!("worker-{round}"));
                }
            });
            assert_eq!(
                threads,
                (8, Some("1 Java thread".to_owned())),
                "round {hidden}, as soon as of objects"
            );
        }
        let now_and_then = rounds_of(|jvm, round| match round % 2 {
            0 => jvm.remove("com.example.Late", 1, 32),
            _ => jvm.add("com.example.Tile", 1, 24),
        });
        assert_eq!(now_and_then, (7, None));
    }

    /// Rounds of a class that leaves some strings in each of them until one leaves none, and what
    /// is suspected.
    fn rounds_of_strings(each: u64, until: u32, other: bool, round_ms: u64) -> (u32, Option<String>) {
        let policy = GatePolicy::default();
        let mut jvm = Jvm::new();
        let mut observer = crate::observer::Observer::new();
        let mut watch = RoundsWatch::new(&policy, "loaders", Unit::Class);
        let rounds = (0..ROUNDS_OF_LITERALS).find(|&round| {
            jvm.window("EmptyTest", "", round, |jvm| {
                jvm.wait(round_ms);
                if round < until {
                    jvm.add("java.lang.String", each, 24);
                    jvm.add("byte[]", each, 40);
                    jvm.add("com.example.Tile", u64::from(other), 24);
                }
            });
            jvm.frames.drain(..).for_each(|(frame, t_ns)| observer.push(frame, t_ns));
            watch.observe(observer.record());
            watch.is_done("EmptyTest", "")
        });
        let suspects = watch.suspects(observer.record()).expect("all rounds");
        (rounds.map_or(ROUNDS_OF_LITERALS, |last| last + 1), suspects.into_iter().next().map(|s| s.why))
    }

    #[test]
    fn two_rounds_warm_up() {
        let mut jvm = Jvm::new();
        let mut observer = crate::observer::Observer::new();
        let mut watch = RoundsWatch::new(&GatePolicy::default(), "loaders", Unit::Class);
        for round in 0..3 {
            assert!(!watch.is_warm(), "before round {round}");
            jvm.window("EmptyTest", "", round, |_| ());
            jvm.frames.drain(..).for_each(|(frame, t_ns)| observer.push(frame, t_ns));
            watch.observe(observer.record());
        }
        assert!(watch.is_warm());
    }

    #[test]
    fn a_few_strings_have_to_grow_for_longer() {
        let why = |count| Some(format!("{count} × byte[], {count} × java.lang.String"));
        assert_eq!(rounds_of_strings(2, 20, false, 10), (21, None), "the compiler came late");
        assert_eq!(rounds_of_strings(2, 99, false, 10), (40, why(2)), "a cache of strings");
        assert_eq!(rounds_of_strings(13, 99, false, 10), (8, why(13)), "too many");
        let (rounds, said) = rounds_of_strings(2, 99, true, 10);
        assert_eq!((rounds, said.is_some()), (8, true), "another class, too");
        assert_eq!(rounds_of_strings(2, 99, false, 700), (10, why(2)), "slow tests");
    }

    /// 24 rounds of five arrays each, and then the virtual machine gave back twenty of its own: that passed.
    #[test]
    fn what_the_machine_gives_back_once_hides_no_leak_of_arrays() {
        let found = |falls: &[u32], in_test: &str| {
            let mut jvm = Jvm::new();
            for round in 0..ROUNDS_OF_LITERALS {
                for test in ["BuffersTest", "OtherTest"] {
                    jvm.window(test, "", round, |jvm| {
                        if test == "BuffersTest" {
                            jvm.add("byte[]", 5, 720);
                        }
                        if test == in_test && falls.contains(&round) {
                            jvm.remove("byte[]", 24, 205);
                        }
                    });
                }
            }
            screen_rounds(&jvm.end(), "loaders", &GatePolicy::default()).map(|suspects| suspects.len())
        };
        for test in ["BuffersTest", "OtherTest"] {
            assert_eq!(found(&[], test), Ok(1));
            assert_eq!(found(&[28], test), Ok(1), "in {test}");
            assert_eq!(found(&[20, 28], test), Ok(0), "what comes and goes is no leak");
            assert_eq!(found(&[5], test), Ok(0), "nor what goes before it is known for one");
        }
    }

    /// Objects with finalizers go within the next window: 98 less there, of which two stayed.
    #[test]
    fn a_leak_in_whose_window_something_of_the_one_before_goes_is_suspect() {
        let suspects = |leaks: [u64; 2]| {
            let mut jvm = Jvm::new();
            for round in 0..ROUNDS_OF_SUSPECTS {
                jvm.window("com.example.FinalizedTest", "", round, |jvm| {
                    jvm.add("com.example.Tile", 100 + leaks[0], 24)
                });
                jvm.window("com.example.TilesTest", "", round, |jvm| {
                    jvm.add("com.example.Tile", leaks[1], 24);
                    jvm.remove("com.example.Tile", 100, 24);
                });
                jvm.window("com.example.OtherTest", "", round, |jvm| jvm.add("com.example.Tile", 1, 24));
                jvm.window("com.example.LastTest", "", round, |jvm| jvm.remove("com.example.Tile", 1, 24));
            }
            let suspects = screen_rounds(&jvm.end(), "loaders", &GatePolicy::default()).unwrap();
            let told = |s: JavaSuspect| (s.suite.clone(), s.why.clone(), s.keeps_classes_of_project());
            suspects.into_iter().map(told).collect::<Vec<_>>()
        };
        let suspect = |suite: &str, count: u32, own: bool| {
            (suite.to_owned(), format!("{count} × com.example.Tile"), own)
        };
        let behind = suspect("com.example.OtherTest", 1, true);
        assert_eq!(suspects([0, 0]), []);
        let first = suspect("com.example.FinalizedTest", 100, true);
        assert_eq!(suspects([0, 2]), [first, suspect("com.example.TilesTest", 2, false), behind.clone()]);
        let first = suspect("com.example.FinalizedTest", 102, true);
        assert_eq!(
            suspects([2, 0]),
            [first, suspect("com.example.TilesTest", 2, false), behind],
            "or it was of the first"
        );
    }

    /// One object of a test goes within the next one, which keeps another: each round adds nothing there.
    #[test]
    fn what_runs_behind_a_suspect_is_suspect_if_that_one_does_not_grow_alone() {
        let mut jvm = Jvm::new();
        let mut observer = crate::observer::Observer::new();
        let mut watch = RoundsWatch::new(&GatePolicy::default(), "kit", Unit::Class);
        let mut done = BTreeMap::<&str, u32>::new();
        for round in 0..ROUNDS_OF_SUSPECTS {
            for class in ["com.example.PassesTest", "com.example.KeepsTest", "com.example.OtherTest"] {
                if done.contains_key(class) {
                    continue;
                }
                jvm.window(class, "", round, |jvm| {
                    if class == "com.example.PassesTest" {
                        jvm.add("com.example.Tile", 1, 24);
                    }
                });
                jvm.frames.drain(..).for_each(|(frame, t_ns)| observer.push(frame, t_ns));
                watch.observe(observer.record());
                if watch.is_done(class, "") {
                    done.insert(class, round + 1);
                }
            }
        }
        assert_eq!(
            done,
            BTreeMap::from([
                ("com.example.PassesTest", ROUNDS_OF_SUSPECTS),
                ("com.example.KeepsTest", ROUNDS_OF_SUSPECTS),
                ("com.example.OtherTest", WARM_UP + 1),
            ])
        );
        let suspects = watch.suspects(observer.record()).expect("all rounds");
        let [suspect] = suspects.as_slice() else { panic!("{suspects:#?}") };
        assert_eq!(suspect.suite, "com.example.PassesTest");
        let behind = suspect.behind.as_deref().expect("a class behind");
        assert_eq!(behind.suite, "com.example.KeepsTest");
        assert_eq!(
            behind.seen(),
            "1 × com.example.Tile here or in com.example.PassesTest in each of the last rounds"
        );
        assert_eq!(behind.added, (vec!["com.example.Tile".to_owned()], Vec::new()));
        assert!(!behind.keeps_classes_of_project() && suspect.is_before("com.example.KeepsTest.keeps"));
    }

    /// A test class hands one on, of which objects tell nothing, and the next one keeps as much as it closes.
    #[test]
    fn what_runs_behind_a_suspect_is_suspect_for_counters_and_strings_too() {
        type Change = fn(&mut Jvm);
        let of_jni: (Change, Change) = (|jvm| jvm.jni_globals += 1, |jvm| jvm.jni_globals -= 1);
        let of_strings: (Change, Change) =
            (|jvm| jvm.add("java.lang.String", 1, 24), |jvm| jvm.remove("java.lang.String", 1, 24));
        let limits = vec![
            crate::policy::Limit::fail(Metric::JavaJniGlobals, 0.0, "x"),
            crate::policy::Limit::fail(Metric::JavaLiveBytes, 0.0, "x"),
        ];
        let policy = GatePolicy { defaults: limits, ..GatePolicy::default() };
        for ((take, give), classes, counters) in [
            (of_jni, vec![], vec![Metric::JavaJniGlobals]),
            (of_strings, vec!["java.lang.String".to_owned()], vec![]),
        ] {
            let mut jvm = Jvm::new();
            let mut observer = crate::observer::Observer::new();
            let mut watch = RoundsWatch::new(&policy, "kit", Unit::Class);
            let mut left = vec!["com.example.PassesTest", "com.example.KeepsTest", "com.example.OtherTest"];
            for round in 0..ROUNDS_OF_LITERALS {
                left.retain(|class| {
                    jvm.window(class, "", round, |jvm| match *class {
                        "com.example.PassesTest" => take(jvm),
                        "com.example.KeepsTest" => {
                            take(jvm);
                            if round > 0 {
                                give(jvm);
                            }
                        }
                        _ => {}
                    });
                    jvm.frames.drain(..).for_each(|(frame, t_ns)| observer.push(frame, t_ns));
                    watch.observe(observer.record());
                    !watch.is_done(class, "")
                });
            }
            let suspects = watch.suspects(observer.record()).expect("all rounds");
            let [suspect] = suspects.as_slice() else { panic!("{suspects:#?}") };
            let behind = suspect.behind.as_deref().expect("a class behind");
            assert_eq!(
                (suspect.suite.as_str(), behind.suite.as_str()),
                ("com.example.PassesTest", "com.example.KeepsTest")
            );
            assert_eq!(behind.added, (classes, counters));
        }
    }

    /// Two threads of an earlier test end in the first round that is looked at, and in the first that is compared.
    #[test]
    fn threads_that_end_once_hide_no_leak_of_a_thread() {
        for hidden in [2, 3] {
            let found = rounds_of(|jvm, round| {
                match round {
                    0 => jvm.threads.extend(["late-1".to_owned(), "late-2".to_owned()]),
                    _ if round == hidden => jvm.threads.retain(|name| !name.starts_with("late")),
                    _ => {}
                }
                jvm.threads.push(format!("worker-{round}"));
            });
            assert_eq!(found, (8, Some("1 Java thread".to_owned())), "in round {hidden}");
        }
    }

    #[test]
    fn rounds_that_break_off_are_not_measured() {
        let mut jvm = Jvm::new();
        for round in 0..3 {
            jvm.window("FirstTest", "", round, |_| ());
        }
        let why = |jvm: Jvm| screen_rounds(&jvm.cut(), "loaders", &GatePolicy::default());
        assert_eq!(why(jvm), Err("round 4 has no end of FirstTest".to_owned()));
        let mut jvm = Jvm::new();
        for round in 0..7 {
            jvm.window("LeakTest", "", round, |jvm| jvm.tiles(3));
            if round < 5 {
                jvm.window("OtherTest", "", round, |jvm| jvm.add("com.example.Page", 1, 24));
            }
        }
        assert_eq!(why(jvm), Err("round 6 has no end of OtherTest".to_owned()));
        assert_eq!(why(Jvm::new()), Err("there is no class histogram behind their warm-up".to_owned()));
    }

    #[test]
    fn a_limit_is_for_all_classes_of_a_window_together() {
        let mut jvm = Jvm::new();
        for round in 0..6 {
            jvm.window("ManyTest", "", round, |jvm| {
                (0..10).for_each(|i| jvm.add(&format!("com.example.C{}", char::from(b'A' + i)), 3, 32));
            });
        }
        let record = jvm.end();
        for (objects, bytes, suspects) in [(29.0, 1e9, 1), (30.0, 960.0, 0), (30.0, 959.0, 1)] {
            let defaults = vec![
                crate::policy::Limit::fail(Metric::JavaLiveObjects, objects, "x"),
                crate::policy::Limit::fail(Metric::JavaLiveBytes, bytes, "x"),
            ];
            let policy = GatePolicy { defaults, ..GatePolicy::default() };
            assert_eq!(
                screen_rounds(&record, "loaders", &policy).map(|s| s.len()),
                Ok(suspects),
                "{objects} {bytes}"
            );
        }
    }
}
