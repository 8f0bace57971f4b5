//! The screen of a JVM suite: runs rounds of all its test classes in one virtual machine and compares them.
//!
//! A first execution always grows (classes, literals, reflection data), so the first two rounds are ignored. A window
//! that changes nothing in the third round is no suspect. From then on, the end of a window is compared with its end
//! one round before.
//!
//! A window is suspect if, in every round, the same class grows in it by more than is allowed, and has more objects at
//! its end than one round before. So what the other windows of the round free is no growth. They may free once what the
//! warm-up left, and so hide a leak. Therefore the first comparison does not clear a window that changed something: it
//! is compared twice. A window that is no suspect need not run again ([`RoundsWatch::is_done`]), so later rounds
//! contain only suspects.
//!
//! Objects of other windows may be freed within a window and hide its growth:
//! - Objects of the window before are freed here. If another window ran before than in the last round, the two ends are
//!   not compared.
//! - If less is freed than the window before added, the remaining objects may come from either: both are suspect.
//! - If exactly as much is freed as this window leaks, nothing seems to grow. So the window after a suspect runs as
//!   often as the suspect, and is confirmed if the suspect, or some of its objects, does not grow alone
//!   ([`JavaSuspect::behind`]). This does not apply if only strings and arrays grow: the virtual machine makes and
//!   frees these by itself.
//! - Another test may free something late. One round without growth is excused if the window freed objects of another
//!   class. For counters one round is always excused.
//! - The virtual machine frees some of its own arrays and strings now and then. After the rounds of a suspect, one
//!   round with fewer of them is excused.
//!
//! The rounds end if memory runs out ([`RoundsWatch::is_exhausted`]). Suspects are then: windows that grew so far, the
//! class in whose window memory ran out, and those that could not be compared. A leak may be that large.

mod compared;
mod suspect;
#[cfg(test)]
mod tests;
mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use memgate_model::{Area, Kind, Metric, Per, format_amount};
use memgate_wire::Outcome;

use self::compared::{Added, Compared, Delta, History, added};
pub use self::suspect::JavaSuspect;
use self::suspect::{objects, suspect};
pub use self::told::{base_of, left_out};
pub(crate) use self::told::{failing, skipped};
use self::told::{has_failed, out_of_memory};
use super::names::{is_filler, is_literal};
use super::series::{Count, Heap, values};
use crate::native;
use crate::policy::{GatePolicy, smallest_limit};
use crate::record::{ProcessRecord, Unit, Window};
use crate::stats::float;

/// Rounds before the first one that counts.
pub(super) const WARM_UP: u32 = 2;
/// Rounds of a suspect.
const ROUNDS_OF_SUSPECTS: u32 = 8;
/// Rounds over the tests of one class. All tests run in each round, measured or not: a test may need the one before it.
const ROUNDS_OF_TESTS: u32 = 6;
/// Rounds of a suspect that may have left only literals.
pub const ROUNDS_OF_LITERALS: u32 = 40;

/// Counters that are judged like objects, if they have a limit.
fn counters() -> impl Iterator<Item = Metric> {
    Metric::of(Area::Java, &[Kind::Held, Kind::Loaded]).chain([Metric::OsFds])
}

/// Does a decrease show that something was freed? The virtual machine unloads classes at any time.
fn falls_tell(counter: Metric) -> bool {
    counter.kind() != Kind::Loaded
}

/// A collector that frees nothing: all that tests make would count as a leak.
const NO_COLLECTOR: &str = "Epsilon";

/// Counters that were read.
type Counters = BTreeMap<Metric, f64>;

/// Suspects of the launcher's rounds, in the order they ran. `suite` is the name that thresholds use.
///
/// # Errors
/// If the rounds give no result. The text is a fragment that fits after "the rounds were not measured: ".
pub fn screen_rounds(
    record: &ProcessRecord,
    suite: &str,
    policy: &GatePolicy,
) -> Result<Vec<JavaSuspect>, String> {
    let mut watch = RoundsWatch::new(policy, suite, Unit::Class);
    watch.observe(record);
    suspects(&watch, record)
}

/// Tests of a class after rounds over them: their ids.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NarrowedTests {
    /// They grew.
    pub growing: Vec<String>,
    /// They did not, but may have freed as much as they kept: the test before grew, or they changed something in each
    /// round.
    pub doubtful: Vec<String>,
}

/// The tests of a class that grew in rounds over them, and those that may have.
///
/// # Errors
/// As [`screen_rounds`].
pub fn growing_tests(
    record: &ProcessRecord,
    suite: &str,
    policy: &GatePolicy,
) -> Result<NarrowedTests, String> {
    let mut watch = RoundsWatch::new(policy, suite, Unit::Test);
    watch.observe(record);
    let growing = suspects(&watch, record)?.into_iter().map(|suspect| suspect.suite);
    let growing: Vec<String> = growing.collect();
    // The first one ran right after the last one of the round before.
    let last_grows = watch.order.last().is_some_and(|last| growing.contains(last));
    let follows = |before: &String| growing.contains(before) || before.is_empty() && last_grows;
    let may_hide = |compared: &Compared| !compared.rests || follows(&compared.behind);
    let is_told = |id: &String| growing.contains(id) || watch.failing.contains(id);
    let is_doubtful = |id: &&String| !is_told(id) && watch.windows.get(*id).is_some_and(may_hide);
    let doubtful = watch.order.iter().filter(is_doubtful).cloned().collect();
    Ok(NarrowedTests { growing, doubtful })
}

fn suspects(watch: &RoundsWatch, record: &ProcessRecord) -> Result<Vec<JavaSuspect>, String> {
    let RoundsWatch { suite, policy, unit, .. } = watch;
    let mut suspects = watch.suspects(record)?;
    let native = native::suspects(record, suite, policy, *unit);
    for (id, why) in native.into_iter().filter(|(id, _)| !watch.failing.contains(id)) {
        match suspects.iter_mut().find(|known| known.suite == id) {
            Some(known) if known.why.is_empty() => known.why = why,
            Some(known) => known.why = format!("{}, {why}", known.why),
            // None of its Java classes grew: otherwise it would be among the suspects.
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

/// Watches the rounds, end by end.
#[derive(Debug)]
pub struct RoundsWatch {
    suite: String,
    unit: Unit,
    policy: GatePolicy,
    /// Windows of the record that were read.
    seen: usize,
    heap: Heap,
    history: History,
    /// Number of ends with a histogram, and the counters at the last of them.
    ends: usize,
    counters: Counters,
    /// The last test class that changed something. What the last window added, and whether that was more than is
    /// allowed.
    last: String,
    added_last: BTreeMap<Arc<str>, Delta>,
    grew_last: bool,
    /// The last unit, whether or not it changed something.
    previous: String,
    windows: BTreeMap<String, Compared>,
    /// Test classes in the order they ran.
    order: Vec<String>,
    /// All units that ran so far, measured or not.
    known: BTreeSet<String>,
    failing: BTreeSet<String>,
    /// The test class in whose window memory first ran out, and a text with the round and what filled the heap.
    ran_out: Option<(String, String)>,
}

impl RoundsWatch {
    /// For the rounds of `suite`, which consist of these units.
    #[must_use]
    pub fn new(policy: &GatePolicy, suite: &str, unit: Unit) -> Self {
        Self {
            suite: suite.to_owned(),
            unit,
            policy: policy.clone(),
            seen: 0,
            heap: Heap::default(),
            history: History::new(),
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

    /// Reads the windows that are new in the record.
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
            // A unit that changes nothing may be left out.
            if !self.windows.get(&unit).is_some_and(|compared| compared.still) {
                self.last = unit;
            }
        }
    }

    fn has_failed(&mut self, record: &ProcessRecord, window: &Window) {
        match out_of_memory(record, window) {
            // Tests that fail in the warm-up are left out from then on.
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

    /// Did memory run out? Then later rounds show nothing.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.ran_out.is_some()
    }

    /// Is it known whether this test class is a suspect, or that it cannot be judged? A single test continues to run,
    /// unmeasured, with others that grow. So it is done only if it changes nothing: its changes would count for the
    /// next test.
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

    /// May objects of the window before hide what this one leaves? At first it is unknown whether the window before
    /// grows.
    fn is_behind_a_suspect(&self, compared: &Compared) -> bool {
        let before = self.windows.get(&compared.behind).filter(|_| self.unit == Unit::Class);
        let grows = |before: &Compared| {
            before.rounds == 0
                || self.grows_beyond_literals(&compared.behind, before)
                    && !self.why(&compared.behind, before).is_empty()
        };
        compared.follows_growth && compared.round + 1 < ROUNDS_OF_SUSPECTS && before.is_some_and(grows)
    }

    /// Did anything but literals grow? The virtual machine makes and frees literals by itself, in any class.
    fn grows_beyond_literals(&self, id: &str, compared: &Compared) -> bool {
        let limit = |metric| smallest_limit(&self.policy, &self.suite, id, metric, Per::Iteration);
        compared.grown.keys().any(|class| !is_literal(class))
            || compared.grown_counters(limit).next().is_some()
    }

    /// Was each test of the class measured often enough? `done`: ids of tests that are no longer measured.
    #[must_use]
    pub fn is_over(&self, done: &BTreeSet<String>) -> bool {
        let ran = |id: &String| {
            let rounds = self.windows.get(id).map_or(0, |compared| compared.round + 1);
            done.contains(id) || self.failing.contains(id) || rounds >= ROUNDS_OF_TESTS
        };
        self.unit == Unit::Test && !self.windows.is_empty() && self.known.iter().all(ran)
    }

    /// Did it run as often as a suspect must?
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
        self.compare(window, at, Added { deltas, of_both }, &counters);
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

    /// Did a window add an object that is no literal, or increase a counter by more than is allowed?
    fn grows(&self, unit: &str, deltas: &BTreeMap<Arc<str>, Delta>, counters: &Counters) -> bool {
        let over = |metric| {
            let limit = smallest_limit(&self.policy, &self.suite, unit, metric, Per::Iteration);
            limit.zip(added(&self.counters, counters, metric)).is_some_and(|(limit, added)| added > limit)
        };
        let grows = |(class, delta): (&Arc<str>, &Delta)| delta.in_window().is_any() && !is_literal(class);
        deltas.iter().any(grows) || self::counters().any(over)
    }

    /// Did a window change nothing, and increase counters by no more than is allowed? What it frees counts as a change:
    /// another window may depend on it, or it may hide what this window leaves.
    fn is_still(&self, unit: &str, deltas: &BTreeMap<Arc<str>, Delta>, counters: &Counters) -> bool {
        let within = |metric| {
            // The harness may be unable to see the descriptors of this process at all.
            if metric == Metric::OsFds && !counters.contains_key(&metric) {
                return true;
            }
            let limit = smallest_limit(&self.policy, &self.suite, unit, metric, Per::Iteration);
            let added = added(&self.counters, counters, metric);
            let within = |limit, added| added <= limit && !(added < 0.0 && falls_tell(metric));
            limit.is_none_or(|limit| added.is_some_and(|added| within(limit, added)))
        };
        !deltas.values().any(|delta| delta.is_change()) && self::counters().all(within)
    }

    /// What the window added to each class. Updates the known heap. `None`: the window has no histogram.
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

    /// Compares the end of a window with its end one round before, if the same window ran before both.
    fn compare(&mut self, window: &Window, at: usize, added: Added, counters: &Counters) {
        let unit = self.unit.of(window);
        let limit = |metric| smallest_limit(&self.policy, &self.suite, &unit, metric, Per::Iteration);
        let compared = self.windows.entry(unit.clone()).or_insert_with(|| {
            self.order.push(unit.clone());
            Compared::default()
        });
        if compared.times > 0 && compared.before == self.last {
            compared.compare(at, &self.history, added);
            compared.compare_counters(&self.counters, counters, limit);
            compared.rounds += 1;
        }
        compared.has_ended(window, at, &self.last, counters);
    }

    /// Texts for what grew in each round by more than is allowed.
    fn why(&self, class: &str, compared: &Compared) -> Vec<String> {
        if compared.rounds == 0 {
            return Vec::new();
        }
        // In a class that grew by more than is allowed, each test that grew at all is confirmed: it is judged by its
        // own limit, and what it leaves does not belong to the class.
        let limit = |metric| {
            let limit = smallest_limit(&self.policy, &self.suite, class, metric, Per::Iteration)?;
            Some(if self.unit == Unit::Test { 0.0 } else { limit })
        };
        let mut why = objects(&compared.ranked(), limit);
        why.extend(compared.grown_counters(limit).map(|(metric, least)| format_amount(metric, least)));
        why
    }

    /// The suspects after all rounds.
    ///
    /// # Errors
    /// If the rounds give no result. The text is a fragment that fits after "the rounds were not measured: ".
    pub fn suspects(&self, record: &ProcessRecord) -> Result<Vec<JavaSuspect>, String> {
        if let Some(why) = crate::measured::unmeasured(record, None) {
            return Err(why);
        }
        if let Some(damage) = &record.damaged {
            return Err(format!("their recording is damaged: {damage}"));
        }
        let jvm = record.java.as_ref().and_then(|java| java.jvm.as_ref());
        if jvm.is_some_and(|jvm| jvm.collector == NO_COLLECTOR) {
            return Err("this virtual machine frees no object (-XX:+UseEpsilonGC): choose another collector"
                .to_owned());
        }
        // JUnit or the launcher may have had too little memory to continue.
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

    /// The suspect to use if this one does not grow alone.
    fn behind(&self, suspect: &JavaSuspect, known: &BTreeSet<String>) -> Option<JavaSuspect> {
        let mut others = self.order.iter().filter(|id| !known.contains(*id) && !self.failing.contains(*id));
        let is_next = |id: &&String| self.windows.get(*id).is_some_and(|next| next.behind == suspect.suite);
        let next = others.find(is_next)?;
        let grown = self.windows.get(&suspect.suite)?;
        if !self.grows_beyond_literals(&suspect.suite, grown) {
            return None;
        }
        let limit =
            |metric| smallest_limit(&self.policy, &self.suite, &suspect.suite, metric, Per::Iteration);
        let counters = grown.grown_counters(limit).map(|(metric, _)| metric).collect();
        Some(JavaSuspect {
            suite: next.clone(),
            may_be_of_before: suspect.classes.iter().cloned().collect(),
            why: format!("{} here or in {}", suspect.why, suspect.suite),
            // Nothing else grew in its window.
            added: (suspect.classes.clone(), counters),
            least: BTreeMap::new(),
            behind: None,
            ..suspect.clone()
        })
    }

    /// The suspects if memory ran out in the window of `exhausted`: those that grew so far, and those that could not be
    /// compared.
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
