//! Adds stacks to a screen that recorded none. Another process records the stacks of the suspects.
//!
//! Data flow: [`wanting`] names the tests that have survivors without stacks and are judged by them → another process
//! runs these tests again and records stacks → [`complete`] replaces the survivors of the screen by those of that
//! process if both are the same. The record then looks as if the screen had recorded stacks.
//!
//! Survivors are the same if both have as many blocks of each size. If the other process ran the same tests in the same
//! order up to this one, blocks of one size may be a little larger, for example because of a name with a number in it.
//! If two other processes ran the test, they show which stacks leave blocks of another size each time. Such blocks are
//! the same if their number is, and no size is outside of half the smallest and twice the largest. They keep the sizes
//! that the screen saw.
//!
//! If only some sizes have as many blocks, only these get stacks. The others stay without. Such a test does not show
//! alone what it left, so it is repeated with the tests around it. What does not show there either is reported.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use memgate_model::{Metric, Per};
use memgate_wire::{Outcome, SnapshotRecord, StackNode, capability};

use crate::policy::{GatePolicy, smallest_limit};
use crate::record::{Node, ProcessRecord, Window};
use crate::resolve::{ByAddress, Resolve};
use crate::screen::{judged, left_between, left_too_much};

impl ProcessRecord {
    /// Are the stacks recorded by another process?
    #[must_use]
    pub fn takes_stacks_later(&self) -> bool {
        self.offers(capability::STACKS_LATER)
    }

    /// Does any survivor of the window have no stack?
    fn lacks_stacks(&self, window: &Window) -> bool {
        let is_bare = |record: &SnapshotRecord| record.count > 0 && self.stack(record.stack).0.is_empty();
        window.survivors.iter().any(is_bare)
    }
}

/// Tests that left more than a threshold allows and have survivors without stacks, in the order they ran.
#[must_use]
pub fn wanting(record: &ProcessRecord, suite: &str, policy: &GatePolicy) -> Vec<String> {
    let (mut tests, mut seen) = (Vec::new(), HashSet::new());
    if !record.takes_stacks_later() {
        return tests;
    }
    for window in record.windows.iter().filter(|w| !w.is_setup() && judged(record, w)) {
        let test = window.id();
        if is_judged_by_survivors(window, suite, &test, policy)
            && record.lacks_stacks(window)
            && seen.insert(test.clone())
        {
            tests.push(test);
        }
    }
    tests
}

fn is_judged_by_survivors(window: &Window, suite: &str, test: &str, policy: &GatePolicy) -> bool {
    left_too_much(window, suite, test, policy).is_some()
        || [Metric::NativeLiveBytes, Metric::NativeLiveAllocations].into_iter().any(|metric| {
            let left = left_between(window, metric, policy.confidence);
            let limit = smallest_limit(policy, suite, test, metric, Per::Test);
            left.zip(limit).is_some_and(|(left, limit)| left.high > limit)
        })
}

/// Replaces survivors in windows of `record` by those in the last of `runs`, with their stacks, where both left the
/// same. The earlier runs show what differs each time.
pub fn complete(record: &mut ProcessRecord, runs: &[&ProcessRecord]) {
    let Some((from, earlier)) = runs.split_last().filter(|_| record.takes_stacks_later()) else { return };
    let pairs = record.windows.iter().zip(&from.windows);
    let in_order = pairs.take_while(|(a, b)| (&a.suite, &a.test) == (&b.suite, &b.test)).count();
    let Some(mut borrowed) = Borrowed::new(record, from) else { return };
    let (now, before) = (FirstWindows::of(from), earlier.last().map(|run| FirstWindows::of(run)));
    for at in 0..record.windows.len() {
        let window = &record.windows[at];
        if window.is_setup() || window.outcome == Some(Outcome::Failed) || !record.lacks_stacks(window) {
            continue;
        }
        let is_in_order = at < in_order;
        let Some(other) = now.find(window).map(|w| if is_in_order { &from.windows[at] } else { w }) else {
            continue;
        };
        if !is_usable(from, other, window) {
            continue;
        }
        let (here, there) = (sizes(window), sizes(other));
        let earlier = || {
            let run = before.as_ref()?;
            run.find(window).filter(|w| is_usable(run.record, w, window)).map(|w| by_stack(run.record, w))
        };
        let is_same = here == there || is_in_order && is_a_little_larger(&here, &there);
        let random = || Random::of(&here, &earlier()?, &by_stack(from, other));
        let random = if is_same { None } else { random() };
        let is_known = |size: u64| is_same || here.get(&size) == there.get(&size);
        let borrow = |survivor: SnapshotRecord| {
            let stack = borrowed.stack(record, survivor.stack)?;
            Some(SnapshotRecord { stack, ..survivor })
        };
        let is_whole = is_same || random.is_some();
        let known: Vec<SnapshotRecord> = match random {
            Some(random) => random.in_sizes_of_the_screen(from, &other.survivors),
            None => other.survivors.iter().filter(|survivor| is_known(survivor.size)).copied().collect(),
        };
        if let Some(mut survivors) = known.into_iter().map(borrow).collect::<Option<Vec<_>>>() {
            let window = &mut record.windows[at];
            survivors.extend(window.survivors.iter().filter(|_| !is_whole).filter(|s| !is_known(s.size)));
            window.survivors = survivors;
            if is_same {
                window.survivor_count = other.survivor_count;
            }
        }
    }
}

/// Does `other` tell the stacks of all blocks that the test of `window` left there?
fn is_usable(run: &ProcessRecord, other: &Window, window: &Window) -> bool {
    let is_whole = other.survivors_known && !other.incomplete && other.outcome == window.outcome;
    is_whole && !run.lacks_stacks(other)
}

/// The first window of each test in a run.
struct FirstWindows<'a> {
    record: &'a ProcessRecord,
    windows: HashMap<(&'a str, &'a str), &'a Window>,
}

impl<'a> FirstWindows<'a> {
    fn of(record: &'a ProcessRecord) -> Self {
        let mut windows = HashMap::new();
        for window in &record.windows {
            windows.entry((window.suite.as_str(), window.test.as_str())).or_insert(window);
        }
        Self { record, windows }
    }

    fn find(&self, window: &Window) -> Option<&'a Window> {
        self.windows.get(&(window.suite.as_str(), window.test.as_str())).copied()
    }
}

/// The module and address of each step of a stack.
type Stack = Vec<(String, u64)>;
/// Number of blocks of each size, by their stack.
type ByStack = BTreeMap<Stack, BTreeMap<u64, u64>>;

fn stack_of(record: &ProcessRecord, stack: u32) -> Stack {
    let steps = ByAddress.frames(record, stack).frames;
    steps.into_iter().map(|step| (step.module, step.offset)).collect()
}

fn by_stack(record: &ProcessRecord, window: &Window) -> ByStack {
    let mut all = ByStack::new();
    for survivor in window.survivors.iter().filter(|survivor| survivor.count > 0) {
        let stack = stack_of(record, survivor.stack);
        let count = all.entry(stack).or_default().entry(survivor.size).or_default();
        *count = count.saturating_add(survivor.count);
    }
    all
}

/// Blocks that have other sizes in each run.
struct Random {
    /// The stacks that leave them.
    stacks: BTreeSet<Stack>,
    /// Their sizes in the screen, with the number of blocks of each.
    sizes: BTreeMap<u64, u64>,
}

impl Random {
    /// Two runs left as many blocks from each stack, but some of other sizes. `here`: the screen has as many blocks
    /// of its own other sizes, and all the rest. `None`: it does not.
    fn of(here: &BTreeMap<u64, u64>, one: &ByStack, other: &ByStack) -> Option<Self> {
        let count =
            |sizes: &BTreeMap<u64, u64>| sizes.values().fold(0_u64, |sum, count| sum.saturating_add(*count));
        let (mut sizes, mut stacks, mut differing) = (here.clone(), BTreeSet::new(), 0_u64);
        let (mut least, mut most) = (u64::MAX, 0);
        for (stack, first) in one {
            let again = other.get(stack).filter(|again| count(again) == count(first))?;
            if again == first {
                for (size, count) in first {
                    let left = sizes.get(size)?.checked_sub(*count)?;
                    sizes.insert(*size, left);
                }
            } else {
                stacks.insert(stack.clone());
                differing = differing.saturating_add(count(first));
                for size in first.keys().chain(again.keys()) {
                    (least, most) = (least.min(*size), most.max(*size));
                }
            }
        }
        sizes.retain(|_, count| *count > 0);
        let is_near = |size: &u64| *size >= least / 2 && *size <= most.saturating_mul(2);
        let is_same = one.len() == other.len() && count(&sizes) == differing && sizes.keys().all(is_near);
        is_same.then_some(Self { stacks, sizes })
    }

    /// The survivors of the other run, in the sizes that the screen saw: only the stacks are borrowed.
    fn in_sizes_of_the_screen(
        mut self,
        from: &ProcessRecord,
        survivors: &[SnapshotRecord],
    ) -> Vec<SnapshotRecord> {
        let mut all = survivors.to_vec();
        all.sort_by_key(|survivor| survivor.size);
        let mut result = Vec::new();
        for mut survivor in all {
            if !self.stacks.contains(&stack_of(from, survivor.stack)) {
                result.push(survivor);
                continue;
            }
            while survivor.count > 0 {
                let Some((size, left)) = self.sizes.pop_first() else { break };
                let count = survivor.count.min(left);
                result.push(SnapshotRecord { size, count, ..survivor });
                survivor.count -= count;
                if left > count {
                    self.sizes.insert(size, left - count);
                }
            }
        }
        result
    }
}

/// Are the numbers of blocks equal, with blocks of one size being a little larger?
fn is_a_little_larger(here: &BTreeMap<u64, u64>, there: &BTreeMap<u64, u64>) -> bool {
    let only_in = |a: &BTreeMap<u64, u64>, b: &BTreeMap<u64, u64>| -> Vec<(u64, u64)> {
        a.iter().filter(|(size, count)| b.get(size) != Some(count)).map(|(s, c)| (*s, *c)).collect()
    };
    match (only_in(here, there).as_slice(), only_in(there, here).as_slice()) {
        ([(size, count)], [(other, others)]) => {
            count == others && other >= size && other - size <= (size / 8).max(64)
        }
        _ => false,
    }
}

/// Number of blocks of each size that it left.
fn sizes(window: &Window) -> BTreeMap<u64, u64> {
    let mut sizes = BTreeMap::<u64, u64>::new();
    for record in &window.survivors {
        let count = sizes.entry(record.size).or_default();
        *count = count.saturating_add(record.count);
    }
    sizes
}

/// Copies stacks of another process's record, and their modules, under new numbers.
struct Borrowed<'a> {
    from: &'a ProcessRecord,
    next_node: u32,
    next_generation: u32,
    nodes: HashMap<u32, u32>,
    generations: HashMap<u32, u32>,
}

impl<'a> Borrowed<'a> {
    /// `None`: there are no free numbers.
    fn new(record: &ProcessRecord, from: &'a ProcessRecord) -> Option<Self> {
        let last = record.modules.last_key_value().map_or(0, |(generation, _)| *generation);
        Some(Self {
            from,
            next_node: record.stacks.keys().copied().max().unwrap_or(0).checked_add(1)?,
            next_generation: last.checked_add(1)?,
            nodes: HashMap::from([(0, 0)]),
            generations: HashMap::new(),
        })
    }

    /// The number of the stack in `record`.
    fn stack(&mut self, record: &mut ProcessRecord, stack: u32) -> Option<u32> {
        let (mut path, mut id) = (Vec::new(), stack);
        while !self.nodes.contains_key(&id) {
            let node = *self.from.stacks.get(&id)?;
            path.push(node);
            id = node.node.parent;
        }
        let mut parent = *self.nodes.get(&id)?;
        while let Some(Node { node, generation }) = path.pop() {
            let generation = self.generation(record, generation)?;
            let id = self.next_node;
            self.next_node = id.checked_add(1)?;
            record.stacks.insert(id, Node { node: StackNode { id, parent, ..node }, generation });
            self.nodes.insert(node.id, id);
            parent = id;
        }
        Some(parent)
    }

    fn generation(&mut self, record: &mut ProcessRecord, generation: u32) -> Option<u32> {
        if let Some(known) = self.generations.get(&generation) {
            return Some(*known);
        }
        let own = self.next_generation;
        self.next_generation = own.checked_add(1)?;
        record.modules.insert(own, self.from.modules(generation).to_vec());
        record.borrowed_from.get_or_insert(own);
        self.generations.insert(generation, own);
        Some(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dsl::Process;
    use crate::policy::{Bound, Limit};

    /// A screen without stacks: nothing is known of node 41.
    fn bare(run: impl FnOnce(&mut Process)) -> ProcessRecord {
        let mut p = Process::screen().stacks_later();
        run(&mut p);
        p.end()
    }

    fn with_stacks(run: impl FnOnce(&mut Process)) -> ProcessRecord {
        let mut p = Process::screen();
        run(&mut p);
        p.end()
    }

    const BARE: u32 = Process::BARE;

    fn want(record: &ProcessRecord) -> Vec<String> {
        wanting(record, "engine", &GatePolicy::default())
    }

    /// Address of the innermost frame, size and count of what a test left.
    fn left(record: &ProcessRecord, test: &str) -> Vec<(Option<u64>, u64, u64)> {
        let window = record.windows_of(test).next().unwrap();
        let of = |r: &SnapshotRecord| (record.stack(r.stack).0.first().map(|s| s.pc), r.size, r.count);
        let mut left: Vec<_> = window.survivors.iter().map(of).collect();
        left.sort_unstable();
        left
    }

    #[test]
    fn only_what_exceeds_a_limit_is_wanted() {
        let run = |p: &mut Process| {
            p.run("A.clean", 0, |_| ());
            p.run("A.small", 0, |p| p.alloc(BARE, 8, 1));
            p.run("A.leak", 0, |p| p.alloc(BARE, 4096, 2));
            p.run("A.known", 0, |p| p.alloc(3, 4096, 2));
        };
        let record = bare(run);
        assert_eq!(want(&record), ["A.small", "A.leak"]);
        let with = |limit| GatePolicy { defaults: vec![limit], ..GatePolicy::default() };
        let limit = Limit::fail(Metric::NativeLiveBytes, 100.0, "default");
        assert_eq!(wanting(&record, "engine", &with(limit.clone())), ["A.leak"]);
        let limit = Limit { bound: Bound::Absolute(1.0), per: Per::Test, ..limit };
        assert_eq!(wanting(&record, "engine", &with(limit)), ["A.small", "A.leak"], "per test");
        assert_eq!(want(&with_stacks(run)), [""; 0], "cut stacks of a screen that took them");
    }

    #[test]
    fn the_same_blocks_after_other_tests_are_the_same() {
        let mut record = bare(|p| {
            p.run("A.before", 0, |_| ());
            p.run("A.one", 0, |p| p.alloc(BARE, 64, 3));
            p.run("A.other", 0, |p| p.alloc(BARE, 32, 1));
        });
        let again = with_stacks(|p| {
            p.run("A.one", 0, |p| {
                p.alloc(1, 64, 1);
                p.alloc(2, 64, 2);
            });
            p.run("A.other", 0, |p| p.alloc(3, 48, 1));
        });
        complete(&mut record, &[&again]);
        assert_eq!(left(&record, "A.one"), [(Some(0x1001), 64, 1), (Some(0x1002), 64, 2)]);
        assert_eq!(left(&record, "A.other"), [(None, 32, 1)], "another size is another block");
        assert_eq!(want(&record), ["A.other"]);
        let before = format!("{:?}", record.windows);
        complete(&mut record, &[&with_stacks(|p| p.run("A.one", 0, |p| p.alloc(9, 64, 3)))]);
        assert_eq!(format!("{:?}", record.windows), before, "once completed it stays");
    }

    #[test]
    fn after_the_same_tests_it_may_leave_a_little_more_but_no_less_and_nothing_else() {
        let screen = |p: &mut Process| {
            p.run("A.before", 0, |_| ());
            p.run("A.one", 0, |p| {
                p.alloc(BARE, 64, 3);
                p.alloc(BARE, 4096, 1);
            });
        };
        let again = |before: &str, blocks: &[(u64, u64)]| {
            with_stacks(|p| {
                p.run(before, 0, |_| ());
                p.run("A.one", 0, |p| blocks.iter().for_each(|(size, count)| p.alloc(1, *size, *count)));
            })
        };
        for (before, blocks, is_known) in [
            ("A.before", [(64, 3), (4096, 1)], true),
            ("A.before", [(71, 3), (4096, 1)], true),
            ("A.other", [(71, 3), (4096, 1)], false),
            ("A.before", [(71, 3), (4100, 1)], false),
            ("A.before", [(63, 3), (4096, 1)], false),
            ("A.before", [(64, 4), (4096, 1)], false),
            ("A.before", [(64, 3), (16, 1)], false),
            ("A.before", [(64, 3), (9000, 1)], false),
        ] {
            let mut record = bare(screen);
            complete(&mut record, &[&again(before, &blocks)]);
            assert_eq!(left(&record, "A.one")[0].0.is_some(), is_known, "after {before}: {blocks:?}");
            assert_eq!(want(&record).is_empty(), is_known, "after {before}: {blocks:?}");
        }
    }

    #[test]
    fn of_blocks_that_differ_in_part_the_others_have_stacks() {
        let mut record = bare(|p| {
            p.run("A.one", 0, |p| {
                [(64, 3), (24, 1), (700, 1)].into_iter().for_each(|(s, n)| p.alloc(BARE, s, n))
            });
        });
        let again = |last: u64| {
            with_stacks(|p| {
                p.run("A.one", 0, |p| {
                    p.alloc(1, 64, 3);
                    p.alloc(2, 24, 2);
                    p.alloc(3, last, 1);
                });
            })
        };
        complete(&mut record, &[&again(5000)]);
        let known = (Some(0x1001), 64, 3);
        assert_eq!(left(&record, "A.one"), [(None, 24, 1), (None, 700, 1), known]);
        let window = record.windows_of("A.one").next().unwrap();
        assert_eq!(sizes(window), BTreeMap::from([(24, 1), (64, 3), (700, 1)]), "nothing is added or lost");
        assert_eq!(want(&record), ["A.one"]);
        complete(&mut record, &[&again(5000), &again(700)]);
        assert_eq!(left(&record, "A.one"), [(None, 24, 1), known, (Some(0x1003), 700, 1)], "of another run");
    }

    /// A table whose size depends on a random seed.
    #[test]
    fn what_has_another_size_in_each_run_is_known_by_two_runs() {
        let run = |blocks: &[(u32, u64, u64)]| {
            with_stacks(|p| {
                p.run("A.one", 0, |p| blocks.iter().for_each(|(stack, size, n)| p.alloc(*stack, *size, *n)));
            })
        };
        let is_known = |screen: &[(u64, u64)], runs: [&[(u32, u64, u64)]; 2]| {
            let mut record = bare(|p| {
                p.run("A.one", 0, |p| screen.iter().for_each(|(size, n)| p.alloc(BARE, *size, *n)));
            });
            let (one, other) = (run(runs[0]), run(runs[1]));
            let before = sizes(record.windows_of("A.one").next().unwrap());
            complete(&mut record, &[&one]);
            complete(&mut record, &[&one, &other]);
            assert_eq!(
                sizes(record.windows_of("A.one").next().unwrap()),
                before,
                "the figures of the screen stay"
            );
            want(&record).is_empty()
        };
        let (one, other): (&[_], &[_]) = (&[(1, 64, 3), (2, 900, 1)], &[(1, 64, 3), (2, 1200, 1)]);
        assert!(is_known(&[(64, 3), (1700, 1)], [one, other]));
        for (screen, runs, why) in [
            ([(64, 3), (1700, 1)], [one, one], "it has one size"),
            ([(64, 3), (1700, 2)], [one, other], "another block"),
            ([(64, 2), (1700, 1)], [one, other], "fewer of the others"),
            ([(64, 3), (9000, 1)], [one, other], "far larger"),
            ([(64, 3), (1700, 1)], [one, &[(1, 64, 3), (2, 600, 2)]], "a number that changes"),
            ([(64, 3), (1700, 1)], [one, &[(1, 64, 3), (3, 600, 1)]], "from another stack"),
            ([(64, 3), (1700, 1)], [one, &[(1, 64, 3), (2, 600, 1), (3, 8, 1)]], "from one more stack"),
        ] {
            assert!(!is_known(&screen, runs), "{why}");
        }
    }

    #[test]
    fn modules_that_are_borrowed_are_not_those_at_the_end() {
        let mut record = bare(|p| p.run("A.one", 0, |p| p.alloc(BARE, 64, 3)));
        let own = record.last_modules().to_vec();
        complete(&mut record, &[&with_stacks(|p| p.run("A.one", 0, |p| p.alloc(1, 64, 3)))]);
        assert_eq!(left(&record, "A.one"), [(Some(0x1001), 64, 3)]);
        assert_eq!(record.last_modules(), own);
    }
}
