//! The rounds of one test class: what each round added, and what grew in all of them.
//!
//! Data flow: what a window added ([`Added`]), and the figures of each class at its end and one round before
//! ([`Round`]) → the classes that grew in every comparison ([`Grown`]), and the smallest increase of each counter.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use memgate_model::Metric;

use super::{Counters, ROUNDS_OF_LITERALS, ROUNDS_OF_SUSPECTS, counters, falls_tell};
use crate::java::names::is_literal;
use crate::java::one_class::LITERAL_BYTES;
use crate::java::series::Count;
use crate::record::Window;

/// A suspect that may have left only literals has run often enough after this time.
const LITERALS_NS: u64 = 5_000_000_000;
/// Most literals that a round resolves.
const LITERALS_OF_A_ROUND: f64 = 12.0;

/// The rounds of one test class.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// Number of measured ends, number of the last end, and its round.
    pub(super) times: usize,
    end: usize,
    pub(super) round: u32,
    /// Total time in its windows.
    spent_ns: u64,
    /// The last test class before it that changes something.
    pub(super) before: String,
    /// The unit that ended right before it in the first round after the warm-up. Whether the unit before it grew in the
    /// last round.
    pub(super) behind: String,
    pub(super) follows_growth: bool,
    /// The first round after the warm-up changed nothing.
    pub(super) still: bool,
    /// The last round changed nothing.
    pub(super) rests: bool,
    /// Number of rounds that were compared with the round before.
    pub(super) rounds: usize,
    /// Classes that grew in each comparison.
    pub(super) grown: BTreeMap<Arc<str>, Grown>,
    /// Classes that grew in the window in the first comparison, but not over the whole round.
    given_back: BTreeMap<Arc<str>, Grown>,
    /// What the window added to counters in the first comparison.
    first: Counters,
    /// Only one comparison was made, and something changed in it.
    pub(super) may_hide: bool,
    /// Classes of which the window freed something in the first comparison.
    gave_back: BTreeSet<Arc<str>>,
    /// Sum of what all rounds added.
    pub(super) added: BTreeMap<Arc<str>, Delta>,
    pub(super) added_to_counters: Counters,
    /// Counters at the last end.
    counters: Counters,
    /// The smallest increase of each counter in a round, and the second smallest: one round may have hidden a leak.
    lowest: Counters,
    least: Counters,
}

/// What each round added to a class that grew in all of them.
#[derive(Debug)]
pub(super) struct Grown {
    pub(super) deltas: Vec<Delta>,
    how: How,
    /// It did not grow in one round, while something was freed that may have hidden its growth.
    fell: bool,
    /// It may belong to the window before.
    pub(super) may_be_of_before: bool,
}

/// Which figures rose each time. Each figure counts by itself: small strings and arrays come and go while a large one
/// stays.
#[derive(Debug, Clone, Copy)]
pub(super) struct How {
    instances: bool,
    bytes: bool,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Delta {
    pub(super) instances: f64,
    pub(super) bytes: f64,
}

/// The figures of every class, at the ends where they changed.
pub(super) type History = HashMap<Arc<str>, Vec<(usize, Count)>>;

/// What a window added to each class.
pub(super) struct Added {
    pub(super) deltas: BTreeMap<Arc<str>, Delta>,
    /// What this window and the one before left together, for classes of which this one freed less than the other had
    /// added.
    pub(super) of_both: BTreeMap<Arc<str>, Delta>,
}

/// One comparison.
struct Round<'a> {
    /// The end one round before, and this end.
    ends: [usize; 2],
    history: &'a History,
    /// What the window added; and what it and the window before left together, for objects that may come from either.
    deltas: BTreeMap<Arc<str>, Delta>,
    of_both: BTreeMap<Arc<str>, Delta>,
    /// Classes of which the window freed something.
    gives_back: BTreeSet<Arc<str>>,
}

impl Round<'_> {
    /// The figures of a class at both ends.
    fn heights(&self, class: &Arc<str>) -> [Count; 2] {
        let steps = self.history.get(class).map_or(&[][..], Vec::as_slice);
        self.ends.map(|end| height(steps, end))
    }

    /// Growth within the window that the rest of the round did not free.
    fn how(&self, class: &Arc<str>, delta: Delta) -> How {
        let [before, now] = self.heights(class);
        let in_window = delta.in_window();
        How {
            instances: in_window.instances && now.instances > before.instances,
            bytes: in_window.bytes && now.bytes > before.bytes,
        }
    }

    /// Did it decrease, in the window or over the round?
    fn fell(&self, class: &Arc<str>, delta: Delta) -> bool {
        let [before, now] = self.heights(class);
        delta.falls() || now.instances < before.instances || now.bytes < before.bytes
    }

    /// True if it does not grow while the window frees objects of other classes, perhaps in a late release.
    fn is_hidden(&self, class: &Arc<str>, how: How) -> bool {
        !self.gives_back.is_empty() && !self.gives_back.contains(class) && !how.is_any()
    }

    /// A class with what these rounds added to it.
    fn grown(&self, class: &Arc<str>, deltas: Vec<Delta>, fell: bool) -> Grown {
        let how = self.how(class, deltas.last().copied().unwrap_or_default());
        Grown { deltas, how, fell, may_be_of_before: self.of_both.contains_key(class) }
    }
}

impl Compared {
    /// Is it known whether it grows?
    pub(super) fn is_told(&self) -> bool {
        self.still || self.rounds > 0
    }

    /// Compares end number `at` of its window with the end one round before.
    pub(super) fn compare(&mut self, at: usize, history: &History, added: Added) {
        let Added { mut deltas, of_both } = added;
        deltas.extend(of_both.iter().map(|(class, delta)| (Arc::clone(class), *delta)));
        for (class, delta) in &deltas {
            let added = self.added.entry(Arc::clone(class)).or_default();
            added.instances += delta.instances;
            added.bytes += delta.bytes;
        }
        let gives_back = deltas.iter().filter(|(_, delta)| delta.falls());
        let gives_back = gives_back.map(|(class, _)| Arc::clone(class)).collect();
        let round = Round { ends: [self.end, at], history, deltas, of_both, gives_back };
        self.may_hide = self.rounds == 0 && round.deltas.values().any(|delta| delta.is_change());
        if self.rounds == 0 {
            self.compare_first(round);
        } else {
            self.compare_further(&round);
        }
        self.grown.retain(|_, grown| grown.how.is_any());
    }

    fn compare_first(&mut self, round: Round<'_>) {
        let grew = round.deltas.iter().filter(|(_, delta)| delta.in_window().is_any());
        let grew = grew.map(|(class, delta)| (Arc::clone(class), round.grown(class, vec![*delta], false)));
        (self.grown, self.given_back) = grew.partition(|(_, grown)| grown.how.is_any());
        self.gave_back = round.gives_back;
    }

    fn compare_further(&mut self, round: &Round<'_>) {
        for (class, mut grown) in std::mem::take(&mut self.given_back) {
            grown.how = grown.added_first();
            self.grown.insert(class, grown);
        }
        let mut late = self.hidden_at_first(round);
        let is_suspect = self.round + 1 >= ROUNDS_OF_SUSPECTS;
        for (class, grown) in &mut self.grown {
            let delta = round.deltas.get(class).copied().unwrap_or_default();
            let how = round.how(class, delta);
            let may_hide = round.is_hidden(class, how) || is_suspect && round.fell(class, delta);
            if may_hide && !grown.fell {
                grown.fell = true;
                grown.deltas.extend(grown.deltas.last().copied());
                continue;
            }
            grown.how.instances &= how.instances;
            grown.how.bytes &= how.bytes;
            grown.deltas.push(delta);
        }
        self.grown.append(&mut late);
    }

    /// Classes that grow in the second comparison and may have been hidden in the first one by what the window freed.
    fn hidden_at_first(&self, round: &Round<'_>) -> BTreeMap<Arc<str>, Grown> {
        if self.rounds != 1 || self.gave_back.is_empty() {
            return BTreeMap::new();
        }
        let is_new = |class: &Arc<str>| !self.grown.contains_key(class) && !self.gave_back.contains(class);
        let new = round.deltas.iter().filter(|(class, _)| is_new(class));
        new.map(|(class, delta)| (Arc::clone(class), round.grown(class, vec![*delta; 2], true))).collect()
    }

    /// Stores an end of its window, after that of `before`, whether or not it was compared.
    pub(super) fn has_ended(&mut self, window: &Window, at: usize, before: &str, counters: &Counters) {
        self.times += 1;
        self.end = at;
        self.round = window.iteration;
        self.spent_ns = self.spent_ns.saturating_add(window.end_ns.saturating_sub(window.start_ns));
        before.clone_into(&mut self.before);
        self.counters.clone_from(counters);
    }

    /// Counters that grew by more than is allowed in each round but one.
    pub(super) fn grown_counters(
        &self,
        limit: impl Fn(Metric) -> Option<f64>,
    ) -> impl Iterator<Item = (Metric, f64)> {
        let least = self.least.iter().map(|(metric, least)| (*metric, *least));
        least.filter(move |(metric, least)| limit(*metric).is_some_and(|limit| *least > limit))
    }

    /// Compares counters: what the window added since `before`, and what the round added since the window's last end.
    pub(super) fn compare_counters(
        &mut self,
        before: &Counters,
        now: &Counters,
        limit: impl Fn(Metric) -> Option<f64>,
    ) {
        for metric in counters() {
            let added = |before| added(before, now, metric).unwrap_or(0.0);
            let (in_window, in_round) = (added(before), added(&self.counters));
            let added = in_window.min(in_round);
            let lowest = self.lowest.entry(metric).or_insert(f64::INFINITY);
            let least = self.least.entry(metric).or_insert(f64::INFINITY);
            match self.rounds {
                0 => {
                    self.first.insert(metric, in_window);
                    let may_hide = |limit| {
                        in_window > limit && in_round <= limit || in_window < 0.0 && falls_tell(metric)
                    };
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

    /// Is it still unknown whether anything but literals grew?
    pub(super) fn may_be_literals(&self) -> bool {
        let few = |(class, grown): (&Arc<str>, &Grown)| {
            let least = grown.least();
            is_literal(class) && least.instances <= LITERALS_OF_A_ROUND && least.bytes <= LITERAL_BYTES
        };
        self.round + 1 < ROUNDS_OF_LITERALS && self.spent_ns < LITERALS_NS && self.grown.iter().all(few)
    }

    /// The classes that grew, the most bytes first.
    pub(super) fn ranked(&self) -> Vec<(&Arc<str>, &Grown)> {
        let mut ranked: Vec<_> = self.grown.iter().collect();
        ranked.sort_by(|a, b| b.1.least().bytes.total_cmp(&a.1.least().bytes));
        ranked
    }
}

impl Grown {
    /// The smallest increase over the rounds; 0 for a figure that did not rise each time.
    pub(super) fn least(&self) -> Delta {
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

    /// What a round added, of the figures that rose each time.
    pub(super) fn added(&self, round: usize) -> Delta {
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

impl How {
    pub(super) const fn is_any(self) -> bool {
        self.instances || self.bytes
    }
}

impl Delta {
    pub(super) fn is_change(self) -> bool {
        self.instances != 0.0 || self.bytes != 0.0
    }

    fn falls(self) -> bool {
        self.instances < 0.0 || self.bytes < 0.0
    }

    /// What this window and the one before added together, if this one freed less than the one before had added.
    pub(super) fn less_gone(self, before: Self) -> Option<Self> {
        let of_both = |now: f64, before: f64| if now < 0.0 { (now + before).max(now) } else { now };
        let both = Self {
            instances: of_both(self.instances, before.instances),
            bytes: of_both(self.bytes, before.bytes),
        };
        (self.falls() && both.in_window().is_any()).then_some(both)
    }

    /// What the window added, regardless of the rest of the round.
    pub(super) fn in_window(self) -> How {
        How { instances: self.instances > 0.0, bytes: self.bytes > 0.0 }
    }
}

/// Increase of a counter, if it was read both times.
pub(super) fn added(before: &Counters, now: &Counters, metric: Metric) -> Option<f64> {
    Some(now.get(&metric)? - before.get(&metric)?)
}
