//! Leak groups: allocations with one signature, at one moment or over the iterations of a test.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use memgate_model::Metric;
use memgate_wire::SnapshotRecord;

use crate::record::{Names, OsName, OsState, ProcessEnd, ProcessRecord, Window, total_bytes};
use crate::resolve::Resolve;
use crate::sampling::weight;
use crate::signature::{Place, place};
use crate::stats::float;

/// Sizes of the allocations in a group. Only whether they differ is needed.
pub(crate) type Sizes = BTreeSet<u64>;

/// How many different sizes of a group are stored: two are enough to show that they differ.
const MAX_SIZES: usize = 2;

/// Places of the stacks of one record. Every stack is resolved once.
pub(crate) struct Places<'a> {
    pub(crate) record: &'a ProcessRecord,
    resolve: &'a mut dyn Resolve,
    known: HashMap<u32, Rc<Place>>,
}

impl<'a> Places<'a> {
    pub(crate) fn new(record: &'a ProcessRecord, resolve: &'a mut dyn Resolve) -> Self {
        Self { record, resolve, known: HashMap::new() }
    }

    pub(crate) fn of(&mut self, stack: u32) -> Rc<Place> {
        let (record, resolve) = (self.record, &mut self.resolve);
        let place = self.known.entry(stack).or_insert_with(|| Rc::new(place(&resolve.frames(record, stack))));
        Rc::clone(place)
    }

    /// Where descriptors or threads were opened; `None` if unknown.
    pub(crate) fn of_handle(&mut self, stack: u32) -> Option<Rc<Place>> {
        (stack != 0).then(|| self.of(stack)).filter(|place| !place.frames.is_empty())
    }
}

/// Memory of one signature at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) place: Rc<Place>,
    pub(crate) bytes: f64,
    pub(crate) count: f64,
    /// Allocations that were recorded: all of them, unless sampled.
    pub(crate) noted: f64,
    pub(crate) sizes: Sizes,
}

/// Snapshot records by signature, largest first.
pub(crate) fn held(records: &[SnapshotRecord], places: &mut Places<'_>) -> Vec<Held> {
    let interval = places.record.interval();
    let mut by_place = BTreeMap::<String, Vec<&SnapshotRecord>>::new();
    for record in records.iter().filter(|r| r.count > 0) {
        by_place.entry(places.of(record.stack).id.clone()).or_default().push(record);
    }
    let of_one = |records: Vec<&SnapshotRecord>| {
        let bytes = |record: &SnapshotRecord| float(total_bytes(std::slice::from_ref(record)));
        let leading = leading(records.iter().map(|record| (record.stack, bytes(record))));
        let mut group =
            Held { place: places.of(leading), bytes: 0.0, count: 0.0, noted: 0.0, sizes: Sizes::new() };
        for record in records {
            let weight = interval.map_or(1.0, |interval| weight(record.size, interval));
            group.bytes += bytes(record) * weight;
            group.count += float(record.count) * weight;
            group.noted += float(record.count);
            remember(&mut group.sizes, record.size);
        }
        group
    };
    let mut groups: Vec<_> = by_place.into_values().map(of_one).collect();
    groups.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
    groups
}

/// The stack that is shown for a group: the first that has at least half as many bytes as the largest. Stacks with the
/// same project functions may differ in lines. A structure is allocated before its parts.
fn leading(parts: impl Iterator<Item = (u32, f64)>) -> u32 {
    let mut stacks = BTreeMap::<u32, f64>::new();
    parts.for_each(|(stack, bytes)| *stacks.entry(stack).or_default() += bytes);
    let most = stacks.values().copied().fold(f64::NEG_INFINITY, f64::max);
    // Nothing may have grown.
    let enough = most.min(most / 2.0);
    stacks.into_iter().find(|(_, bytes)| *bytes >= enough).map_or(0, |(stack, _)| stack)
}

/// One signature over the iterations of a test.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub(crate) place: Rc<Place>,
    pub(crate) bytes: Vec<f64>,
    pub(crate) counts: Vec<f64>,
    /// Sizes with more allocations at the end than after the first iteration.
    pub(crate) sizes: Sizes,
    /// The smallest size that changed.
    pub(crate) block: f64,
    /// Changes of each stack and size, ordered by stack.
    pub(crate) parts: Vec<Part>,
    /// If it has several places: the others, the one that holds most first.
    pub(crate) others: Vec<Rc<Place>>,
}

/// Changes of one stack and size.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) stack: u32,
    size: u64,
    steps: Steps,
}

impl Series {
    /// The sum of these parts over this many iterations.
    pub(crate) fn of(place: Rc<Place>, iterations: usize, parts: Vec<Part>) -> Self {
        let none = || vec![0.0; iterations];
        let mut series = Self {
            place,
            bytes: none(),
            counts: none(),
            sizes: Sizes::new(),
            block: f64::INFINITY,
            parts: Vec::new(),
            others: Vec::new(),
        };
        parts.iter().for_each(|part| series.add(part));
        Self { parts, ..series }
    }

    /// The sum of several places, with the stack of the one that holds most; `None` of none.
    pub(crate) fn together(mut places: Vec<Self>) -> Option<Self> {
        // The least that it held in the last third: another place may only come and go, with larger blocks.
        let held = |series: &Self| {
            let lately = series.bytes.get(series.bytes.len() / 3 * 2..).unwrap_or_default();
            lately.iter().copied().fold(f64::INFINITY, f64::min)
        };
        let grown = |series: &Self| series.parts.iter().map(Part::grown).sum::<f64>();
        places.sort_by(|a, b| held(b).total_cmp(&held(a)).then_with(|| grown(b).total_cmp(&grown(a))));
        let iterations = places.first()?.bytes.len();
        let (all, parts): (Vec<_>, Vec<_>) = places.into_iter().map(|it| (it.place, it.parts)).unzip();
        let (first, others) = all.split_first()?;
        Some(Self { others: others.to_vec(), ..Self::of(Rc::clone(first), iterations, parts.concat()) })
    }

    /// All of its places.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Place> {
        std::iter::once(&self.place).chain(&self.others).map(AsRef::as_ref)
    }

    fn add(&mut self, part: &Part) {
        let Part { size, steps, .. } = part;
        let ends = steps.iter().skip(1).map(|(at, _)| *at).chain([self.bytes.len()]);
        for (&(from, count), to) in steps.iter().zip(ends) {
            for i in from..to {
                self.bytes[i] += float(*size) * float(count);
                self.counts[i] += float(count);
            }
        }
        if part.grown() > 0.0 {
            remember(&mut self.sizes, *size);
        }
        self.block = self.block.min(float(*size));
    }
}

/// The names that several places have in common, for waivers.
pub(crate) fn common_names(place: &Place, others: &[Rc<Place>]) -> Vec<String> {
    let is_common = |name: &&String| others.iter().all(|place| place.names.contains(name));
    place.names.iter().filter(is_common).cloned().collect()
}

impl Part {
    /// Bytes that it has more at the end than after the first iteration. Blocks without bytes count as one each.
    fn grown(&self) -> f64 {
        let first = self.steps.first().filter(|(at, _)| *at == 0).map_or(0, |(_, count)| *count);
        let last = self.steps.last().map_or(0, |(_, count)| *count);
        (float(last) - float(first)) * float(self.size.max(1))
    }
}

/// Live counts of one (stack, size): iteration and count of each change.
type Steps = Vec<(usize, u64)>;

/// Groups whose live bytes changed after the first end of the test, from the `Changes` of all its ends.
pub(crate) fn series(test: &str, places: &mut Places<'_>) -> Vec<Series> {
    series_of(test, places, |_| true)
}

/// The same, for chosen stacks only.
pub(crate) fn series_of(test: &str, places: &mut Places<'_>, chosen: impl FnMut(u32) -> bool) -> Vec<Series> {
    let steps = steps(places.record, test, chosen);
    grouped(steps, places)
}

/// Where a test may add blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    /// In its windows.
    Inside,
    /// From its end to the end of the next window.
    After,
}

/// The same, without what other tests add and free: the running sum of what `test` added.
pub(crate) fn own_series(
    test: &str,
    doing: Doing,
    places: &mut Places<'_>,
    chosen: impl FnMut(u32) -> bool,
) -> Vec<Series> {
    let steps = own_steps(places.record, test, doing, chosen);
    grouped(steps, places)
}

fn grouped((steps, iterations): (HashMap<(u32, u64), Steps>, usize), places: &mut Places<'_>) -> Vec<Series> {
    let mut groups = BTreeMap::<String, Vec<Part>>::new();
    let changed = |(_, s): &((u32, u64), Steps)| s.len() > 1 || s[0].0 > 0;
    let mut changing: Vec<_> = steps.into_iter().filter(changed).collect();
    changing.sort_unstable_by_key(|(key, _)| *key);
    for ((stack, size), steps) in changing {
        groups.entry(places.of(stack).id.clone()).or_default().push(Part { stack, size, steps });
    }
    let of_one = |parts: Vec<Part>| {
        let leading = leading(parts.iter().map(|part| (part.stack, part.grown())));
        Series::of(places.of(leading), iterations, parts)
    };
    groups.into_values().map(of_one).collect()
}

/// The largest number of allocations that each group had at an end of the test.
pub(crate) fn held_at_ends(test: &str, places: &mut Places<'_>) -> BTreeMap<String, f64> {
    let mut most = BTreeMap::<String, f64>::new();
    let mut all: Vec<_> = steps(places.record, test, |_| true).0.into_iter().collect();
    all.sort_unstable_by_key(|(key, _)| *key);
    for ((stack, _), steps) in all {
        let count = steps.iter().map(|(_, count)| *count).max().unwrap_or(0);
        if count > 0 {
            *most.entry(places.of(stack).id.clone()).or_default() += float(count);
        }
    }
    most
}

/// The largest number of allocations that one execution of `test` added to each group.
pub(crate) fn added_by_one(test: &str, places: &mut Places<'_>) -> BTreeMap<String, f64> {
    let mut now = HashMap::<(u32, u64), u64>::new();
    let mut most = BTreeMap::<String, f64>::new();
    let record = places.record;
    for window in &record.windows {
        let own = window.is(test);
        let mut added = BTreeMap::<String, u64>::new();
        for change in &window.changes {
            let before = now.insert((change.stack, change.size), change.count).unwrap_or(0);
            if own && change.count > before {
                *added.entry(places.of(change.stack).id.clone()).or_default() += change.count - before;
            }
        }
        for (group, count) in added {
            let known = most.entry(group).or_default();
            *known = known.max(float(count));
        }
    }
    most
}

/// Per group, after the first end of `test`: how many allocations appeared in windows of `test`, and how many went away
/// in windows of other tests.
pub(crate) fn exchanged(test: &str, places: &mut Places<'_>) -> BTreeMap<String, (u64, u64)> {
    let mut now = HashMap::<(u32, u64), u64>::new();
    let mut exchanged = BTreeMap::<String, (u64, u64)>::new();
    let mut counts = false;
    let record = places.record;
    for window in &record.windows {
        let own = window.is(test);
        for change in &window.changes {
            let before = now.insert((change.stack, change.size), change.count).unwrap_or(0);
            if counts {
                let group = exchanged.entry(places.of(change.stack).id.clone()).or_default();
                if own {
                    group.0 += change.count.saturating_sub(before);
                } else {
                    group.1 += before.saturating_sub(change.count);
                }
            }
        }
        counts |= own;
    }
    exchanged
}

/// The smallest size that changed in any group; 0 if none did.
pub(crate) fn smallest_block(series: &[Series]) -> f64 {
    series.iter().map(|s| s.block).min_by(f64::total_cmp).unwrap_or(0.0)
}

/// Applies the changes of every window in turn and stores the state at the ends of `test`. Changes are relative to the
/// window before, whatever test it belongs to.
fn steps(
    record: &ProcessRecord,
    test: &str,
    mut chosen: impl FnMut(u32) -> bool,
) -> (HashMap<(u32, u64), Steps>, usize) {
    let mut all = HashMap::<(u32, u64), Steps>::new();
    let mut iteration = 0;
    for window in &record.windows {
        for change in window.changes.iter().filter(|change| chosen(change.stack)) {
            let steps = all.entry((change.stack, change.size)).or_default();
            match steps.last_mut() {
                Some((at, count)) if *at == iteration => *count = change.count,
                _ => steps.push((iteration, change.count)),
            }
        }
        iteration += usize::from(window.is(test));
    }
    // Changes after the last end of the test belong to no iteration of it.
    all.retain(|_, steps| {
        steps.retain(|(at, _)| *at < iteration);
        !steps.is_empty()
    });
    (all, iteration)
}

/// The same for what `test` alone added. If it freed more, the sum is 0.
fn own_steps(
    record: &ProcessRecord,
    test: &str,
    doing: Doing,
    mut chosen: impl FnMut(u32) -> bool,
) -> (HashMap<(u32, u64), Steps>, usize) {
    let mut now = HashMap::<(u32, u64), u64>::new();
    let mut all = HashMap::<(u32, u64), Steps>::new();
    let (mut iteration, mut is_after) = (0_usize, false);
    for window in &record.windows {
        let own = window.is(test);
        let at = match doing {
            Doing::Inside => own.then_some(iteration),
            Doing::After => is_after.then(|| iteration.saturating_sub(1)),
        };
        for change in window.changes.iter().filter(|change| chosen(change.stack)) {
            let before = now.insert((change.stack, change.size), change.count).unwrap_or(0);
            if let Some(at) = at {
                let steps = all.entry((change.stack, change.size)).or_default();
                let sum = steps.last().map_or(0, |(_, sum)| *sum);
                steps.push((at, (sum + change.count).saturating_sub(before)));
            }
        }
        iteration += usize::from(own);
        is_after = own;
    }
    (all, iteration)
}

fn remember(sizes: &mut Sizes, size: u64) {
    if sizes.len() < MAX_SIZES {
        sizes.insert(size);
    }
}

/// Descriptors, threads or mapped bytes of one name over the iterations of a test.
#[derive(Debug, Clone)]
pub(crate) struct OsSeries {
    pub(crate) name: String,
    pub(crate) counts: Vec<f64>,
    /// The same, by the stack that opened or started them.
    pub(crate) by_stack: BTreeMap<u32, Vec<f64>>,
}

/// Kinds of resources that a process holds outside its allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OsKind {
    Descriptor,
    Thread,
    Mapping,
}

impl OsKind {
    /// All kinds, the most informative first.
    pub(crate) const ALL: [Self; 3] = [Self::Mapping, Self::Descriptor, Self::Thread];

    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::Descriptor => "descriptor",
            Self::Thread => "thread",
            Self::Mapping => "mapping",
        }
    }

    pub(crate) fn metric(self) -> Metric {
        match self {
            Self::Descriptor => Metric::OsFds,
            Self::Thread => Metric::OsThreads,
            Self::Mapping => Metric::NativeMappedBytes,
        }
    }

    /// The smallest possible growth.
    pub(crate) fn block(self) -> f64 {
        match self {
            Self::Descriptor | Self::Thread => 1.0,
            Self::Mapping => 4096.0,
        }
    }

    /// State at the start of a window.
    pub(crate) fn at_start(self, window: &Window) -> Option<&Names> {
        match self {
            Self::Mapping => window.mapped_start.as_ref().map(|mapped| &mapped.bytes),
            _ => self.of_system(window.os_start.as_ref()?),
        }
    }

    /// State at the end of a window.
    pub(crate) fn at_end(self, window: &Window) -> Option<&Names> {
        match self {
            Self::Mapping => window.mapped_end.as_ref().map(|mapped| &mapped.bytes),
            _ => self.of_system(window.os_end.as_ref()?),
        }
    }

    /// State at the end of the process.
    pub(crate) fn at_exit(self, end: &ProcessEnd) -> Option<&Names> {
        match self {
            Self::Mapping => end.mapped.as_ref().map(|mapped| &mapped.bytes),
            _ => self.of_system(end.os.as_ref()?),
        }
    }

    fn of_system(self, os: &OsState) -> Option<&Names> {
        match self {
            Self::Descriptor => Some(&os.fds),
            Self::Thread => Some(&os.threads),
            Self::Mapping => None,
        }
    }
}

/// Counts (or bytes) by name in each state, for names whose count changes.
pub(crate) fn os_series(states: &[&Names]) -> Vec<OsSeries> {
    let mut all = BTreeMap::<&str, OsSeries>::new();
    let none = || vec![0.0; states.len()];
    for (i, state) in states.iter().enumerate() {
        for (OsName { name, stack }, count) in state.iter() {
            let series = all.entry(name).or_insert_with(|| OsSeries {
                name: name.clone(),
                counts: none(),
                by_stack: BTreeMap::new(),
            });
            series.counts[i] += float(*count);
            series.by_stack.entry(*stack).or_insert_with(none)[i] += float(*count);
        }
    }
    all.retain(|_, series| series.counts.windows(2).any(|pair| pair[0] != pair[1]));
    all.into_values().collect()
}

/// Live bytes or allocations at the end of every window.
pub(crate) fn totals(windows: &[&Window], of: fn(&memgate_wire::Counters) -> u64) -> Vec<f64> {
    windows.iter().map(|w| float(of(&w.end))).collect()
}

/// The state at the end of every window that has one.
pub(crate) fn os_states<'a>(windows: &[&'a Window]) -> Vec<&'a OsState> {
    windows.iter().filter_map(|w| w.os_end.as_ref()).collect()
}
