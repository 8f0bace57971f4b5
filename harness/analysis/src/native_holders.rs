//! Holders of a native leak, as steps with names.
//!
//! Data flow: a repeated test grows → [`stacks_that_grew`] names the allocation sites to search → the harness searches
//! a copy of the process (`memgate-holders`) and writes raw steps (`memgate_wire::native_holders`) → the record →
//! [`Holding`] assigns them to leak groups by their place in the code and resolves variables and functions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use memgate_model::{Frame, Hold, HolderStep, Leak, OtherHold, Reach, format_number_of};
use memgate_wire::native_holders::{HeldBlocks, HeldLink, HeldState, NativeHolders};

use crate::groups::Places;
use crate::record::ProcessRecord;
use crate::resolve::{Resolve, Variable};

/// Maximum number of sites to search: those that grew most.
const MOST_SITES: usize = 4096;
/// Maximum number of holders of one leak that are kept. Blocks of other holders are counted without a holder.
const MOST_OTHERS: usize = 32;
/// First windows, which may leave one-time allocations.
const WARM_UP: usize = 3;

/// Stacks with more live bytes at the end of the record than after its first windows, the largest growth first. If the
/// process is the test: all stacks with live blocks at the end of `main`.
#[must_use]
pub fn stacks_that_grew(record: &ProcessRecord) -> Vec<u32> {
    if let Some(end) = record.main_end.as_ref().filter(|_| record.windows.is_empty()) {
        let mut alive: BTreeMap<u32, u64> = BTreeMap::new();
        for left in &end.survivors {
            *alive.entry(left.stack).or_default() += left.size.max(1).saturating_mul(left.count);
        }
        return largest_first(alive);
    }
    let warm_up = WARM_UP.min(record.windows.len() / 3);
    let mut now: HashMap<(u32, u64), u64> = HashMap::new();
    let mut grown: BTreeMap<u32, i128> = BTreeMap::new();
    for (index, window) in record.windows.iter().enumerate() {
        for change in &window.changes {
            let before = now.insert((change.stack, change.size), change.count).unwrap_or(0);
            if index >= warm_up {
                let more = i128::from(change.count) - i128::from(before);
                *grown.entry(change.stack).or_default() += more * i128::from(change.size.max(1));
            }
        }
    }
    grown.retain(|_, more| *more > 0);
    largest_first(grown)
}

fn largest_first<N: Ord>(bytes: BTreeMap<u32, N>) -> Vec<u32> {
    let mut stacks: Vec<(N, u32)> = bytes.into_iter().map(|(stack, bytes)| (bytes, stack)).collect();
    stacks.sort_unstable_by(|a, b| b.cmp(a));
    stacks.into_iter().map(|(_, stack)| stack).take(MOST_SITES).collect()
}

/// How many blocks of each stack the tests of a program lost, if its blocks were searched at the end of `main`: no
/// pointer to them is left, in none of its threads.
///
/// A variable of `main` cannot be seen after its end, and what it held is no leak. So only code counts that a test
/// framework called: that call is over, and few tests keep something in a variable of `main`.
pub(crate) fn lost_by_tests(record: &ProcessRecord, places: &mut Places<'_>) -> BTreeMap<u32, u64> {
    let Some(found) = record.native_holders.as_ref().filter(|found| found.unseen_registers == 0) else {
        return BTreeMap::new();
    };
    let is_lost = |held: &&HeldBlocks| match (held.state, held.path.first()) {
        (HeldState::Lost | HeldState::LostCycle, _) => places.of(held.stack).in_test,
        (HeldState::IndirectlyLost, Some(HeldLink::Blocks { stack, .. })) => {
            places.of(*stack).in_test && places.of(held.stack).in_test
        }
        _ => false,
    };
    let mut lost = BTreeMap::<u32, u64>::new();
    for held in found.held.iter().filter(is_lost) {
        let count = lost.entry(held.stack).or_default();
        *count = count.saturating_add(held.of_state);
    }
    lost
}

/// Holders of the groups of a record, by the ids of their places. Different stacks may have the same place.
pub(crate) struct Holding<'a> {
    record: &'a ProcessRecord,
    found: Option<&'a NativeHolders>,
    by_place: BTreeMap<String, Vec<&'a HeldBlocks>>,
}

impl<'a> Holding<'a> {
    pub(crate) fn new(record: &'a ProcessRecord, resolve: &mut dyn Resolve) -> Self {
        let found = record.native_holders.as_ref();
        let mut by_place: BTreeMap<String, Vec<&HeldBlocks>> = BTreeMap::new();
        if let Some(found) = found {
            let mut places = Places::new(record, resolve);
            // The state of most blocks of a stack says what it is.
            for held in found.held.iter().filter(|held| held.blocks > 0) {
                by_place.entry(places.of(held.stack).id.clone()).or_default().push(held);
            }
            // Blocks with the same root show the path of the stack with most blocks.
            by_place.values_mut().for_each(|all| all.sort_by_key(|held| Reverse(held.blocks)));
        }
        Self { record, found, by_place }
    }

    /// Adds the holder to a leak of one place, if holders were searched.
    pub(crate) fn tell(&self, leak: &mut Leak, resolve: &mut dyn Resolve) {
        let place = leak.id.clone();
        self.tell_of([place.as_str()], leak, resolve);
    }

    /// The same for a leak of these places.
    pub(crate) fn tell_of<'p>(
        &self,
        places: impl IntoIterator<Item = &'p str>,
        leak: &mut Leak,
        resolve: &mut dyn Resolve,
    ) {
        let Some(found) = self.found else { return };
        let all: Vec<&HeldBlocks> =
            places.into_iter().filter_map(|place| self.by_place.get(place)).flatten().copied().collect();
        if all.is_empty() {
            let why = found
                .not_searched
                .clone()
                .unwrap_or_else(|| "none of its blocks was there at the time".to_owned());
            let note = Some(why);
            leak.hold =
                Some(Hold { reach: Reach::NotSearched, of_reach: 0, blocks: 0, note, others: Vec::new() });
            return;
        }
        let mut others: Vec<OtherHold> = Vec::new();
        for held in &all {
            let (reach, holder) = self.holder(held, resolve);
            let root =
                |holder: &[HolderStep]| holder.first().map(|step| (step.kind.clone(), step.owner.clone()));
            match others.iter_mut().find(|known| known.reach == reach && root(&known.holder) == root(&holder))
            {
                Some(known) => known.blocks = known.blocks.saturating_add(held.of_state),
                None => others.push(OtherHold { reach, blocks: held.of_state, holder }),
            }
        }
        others.sort_by_key(|held| Reverse(held.blocks));
        for OtherHold { reach, blocks, .. } in others.split_off(others.len().min(MOST_OTHERS)) {
            match others.iter_mut().skip(1).find(|known| known.reach == reach && known.holder.is_empty()) {
                Some(known) => known.blocks = known.blocks.saturating_add(blocks),
                None => others.push(OtherHold { reach, blocks, holder: Vec::new() }),
            }
        }
        let OtherHold { reach, blocks: of_reach, holder } = others.remove(0);
        let unseen = u64::from(found.unseen_registers);
        let note = (reach != Reach::Reachable && unseen > 0)
            .then(|| format!("the registers of {} were not seen", format_number_of(unseen, "other thread")));
        let blocks = all.iter().map(|held| held.blocks).fold(0, u64::saturating_add);
        leak.hold = Some(Hold { reach, of_reach, blocks, note, others });
        leak.holder = holder;
    }

    /// State and path of most blocks of one stack.
    fn holder(&self, held: &HeldBlocks, resolve: &mut dyn Resolve) -> (Reach, Vec<HolderStep>) {
        let mut steps: Vec<HolderStep> = held.path.iter().map(|link| self.step(link, resolve)).collect();
        let reach = match held.state {
            HeldState::Reachable => Reach::Reachable,
            HeldState::Lost => Reach::Lost,
            HeldState::LostCycle => Reach::LostCycle,
            HeldState::IndirectlyLost => Reach::IndirectlyLost,
        };
        if reach == Reach::IndirectlyLost
            && let Some(first) = steps.first_mut()
        {
            first.kind = "lost block".to_owned();
        }
        (reach, steps)
    }

    fn step(&self, link: &HeldLink, resolve: &mut dyn Resolve) -> HolderStep {
        match link {
            HeldLink::Static { module, offset } => {
                let variable = self.variable(module, *offset, false, resolve);
                of_variable("static", &resolve.file_name(module), *offset, variable)
            }
            HeldLink::ThreadLocal { thread, module, offset } => {
                let variable = self.variable(module, *offset, true, resolve);
                let step = of_variable("thread-local", &resolve.file_name(module), *offset, variable);
                HolderStep { class: joined(&step.class, &format!("of thread {thread}")), ..step }
            }
            HeldLink::Stack { thread, pc } => {
                let function = resolve.functions(self.record, *pc).into_iter().find(|frame| !frame.inlined);
                let at = function.as_ref().and_then(|frame| frame.file.as_deref().zip(frame.line));
                HolderStep {
                    kind: "stack".to_owned(),
                    owner: function.as_ref().and_then(|frame| frame.function.clone()).unwrap_or_default(),
                    name: at.map(|(file, line)| short(file, line)).unwrap_or_default(),
                    class: format!("of thread {thread}"),
                }
            }
            HeldLink::ThreadData { thread } => HolderStep {
                kind: "thread data".to_owned(),
                class: format!("of thread {thread}"),
                ..HolderStep::default()
            },
            HeldLink::Mapped { name } => {
                HolderStep { kind: "mapped memory".to_owned(), owner: name.clone(), ..HolderStep::default() }
            }
            HeldLink::Blocks { stack: 0, size, count } => HolderStep {
                kind: "block".to_owned(),
                class: format!("{}{size} B", times(*count)),
                ..HolderStep::default()
            },
            HeldLink::Blocks { stack, size, count } => {
                let place = Places::new(self.record, resolve).of(*stack);
                // A stripped library names only what it exports.
                let named = place.frames.iter().find(|frame| frame.function.is_some());
                let frame = named.or(place.frames.first());
                let at = frame.and_then(|frame| frame.file.as_deref().zip(frame.line));
                let unnamed = |frame: &Frame| format!("{}+{:#x}", frame.module, frame.offset);
                let owner = |frame: &Frame| frame.function.clone().unwrap_or_else(|| unnamed(frame));
                HolderStep {
                    kind: "block".to_owned(),
                    owner: frame.map(owner).unwrap_or_default(),
                    name: at.map(|(file, line)| short(file, line)).unwrap_or_default(),
                    class: format!("{}{size} B", times(*count)),
                }
            }
        }
    }

    fn variable(
        &self,
        module: &str,
        offset: u64,
        thread_local: bool,
        resolve: &mut dyn Resolve,
    ) -> Option<Variable> {
        let mut all = self.record.modules.values().flatten();
        resolve.variable(all.rfind(|m| m.path == module)?, offset, thread_local)
    }
}

fn of_variable(kind: &str, file: &str, offset: u64, variable: Option<Variable>) -> HolderStep {
    let Some(Variable { name, into, place }) = variable else {
        let owner = format!("{file}+{offset:#x}");
        return HolderStep { kind: kind.to_owned(), owner, ..HolderStep::default() };
    };
    HolderStep {
        kind: kind.to_owned(),
        owner: name,
        name: place.map_or_else(|| file.to_owned(), |(file, line)| short(&file, line)),
        class: if into == 0 { String::new() } else { format!("+{into}") },
    }
}

fn times(count: u64) -> String {
    if count > 1 { format!("{count} × ") } else { String::new() }
}

fn joined(a: &str, b: &str) -> String {
    if a.is_empty() { b.to_owned() } else { format!("{a} {b}") }
}

/// `registry.cc:12`.
fn short(file: &str, line: u32) -> String {
    format!("{}:{line}", file.rsplit('/').next().unwrap_or(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dsl::{Process, frame};
    use crate::groups::{held, series};
    use crate::judge::tests::waiver;
    use crate::observer::Observer;
    use crate::policy::{GatePolicy, TextPattern, WaiverMatch, Waivers};
    use crate::resolve::ResolvedStack;
    use memgate_wire::{Frame, Module, SnapshotRecord};

    /// All stacks were taken in one function, each on the line of its number.
    struct OneFunction;

    impl Resolve for OneFunction {
        fn frames(&mut self, _: &ProcessRecord, stack: u32) -> ResolvedStack {
            let at = memgate_model::Frame { line: Some(stack), ..frame("engine_tests", "add(int)") };
            ResolvedStack { frames: vec![at], truncated: false }
        }

        fn variable(&mut self, _: &Module, _: u64, _: bool) -> Option<Variable> {
            None
        }
    }

    /// 12 executions; each leaves two blocks of 8 B on line 1 and one of 4 KiB on line 2.
    fn two_lines() -> ProcessRecord {
        let mut p = Process::confirm();
        for i in 0..12 {
            p.run("A.a", i, |p| {
                p.alloc(1, 8, 2);
                p.alloc(2, 4096, 1);
            });
        }
        p.end()
    }

    #[test]
    fn the_line_of_a_leak_is_the_first_of_those_that_leak_much() {
        let record = two_lines();
        let all = series("A.a", &mut Places::new(&record, &mut OneFunction));
        let lines: Vec<_> = all.iter().map(|group| group.place.frames[0].line).collect();
        assert_eq!(lines, [Some(2)]);
        let survivor = |stack, size, count| SnapshotRecord { stack, size, count };
        let all =
            held(&[survivor(1, 8, 2), survivor(2, 4096, 1)], &mut Places::new(&record, &mut OneFunction));
        assert_eq!((all.len(), all[0].place.frames[0].line), (1, Some(2)));
        // A structure and a larger part of it.
        let all =
            held(&[survivor(2, 144, 1), survivor(1, 96, 1)], &mut Places::new(&record, &mut OneFunction));
        assert_eq!((all.len(), all[0].place.frames[0].line), (1, Some(1)));
    }

    /// Regression: only the stack with most blocks was looked at, so a waiver for its holder also covered the others.
    #[test]
    fn every_line_of_a_leak_counts_for_its_holder_and_for_a_waiver() {
        let told = |second: HeldBlocks| {
            let mut record = two_lines();
            let path = vec![HeldLink::Static { module: "engine_tests".to_owned(), offset: 16 }];
            let first = HeldBlocks { stack: 1, blocks: 24, state: HeldState::Reachable, of_state: 24, path };
            record.native_holders =
                Some(NativeHolders { held: vec![first, second], ..NativeHolders::default() });
            let place = Places::new(&record, &mut OneFunction).of(1);
            let mut leak = Leak { id: place.id.clone(), ..Leak::default() };
            Holding::new(&record, &mut OneFunction).tell(&mut leak, &mut OneFunction);
            let policy = GatePolicy {
                waivers: vec![waiver(
                    WaiverMatch::Holder(TextPattern::new("cache", |owner| owner == "engine_tests+0x10")),
                    None,
                )],
                ..GatePolicy::default()
            };
            Waivers::new(&policy).cover(&mut leak, &[]);
            let is_waived = leak.waiver.is_some();
            (leak, is_waived)
        };
        let second = |state, path| HeldBlocks { stack: 2, blocks: 12, state, of_state: 12, path };
        let (leak, is_waived) = told(second(HeldState::Lost, Vec::new()));
        let hold = leak.hold.unwrap();
        assert_eq!((hold.reach, hold.of_reach, hold.blocks, is_waived), (Reach::Reachable, 24, 36, false));
        let lost = OtherHold { reach: Reach::Lost, blocks: 12, holder: Vec::new() };
        assert_eq!((hold.others, leak.holder[0].owner.as_str()), (vec![lost], "engine_tests+0x10"));
        let at = |offset| vec![HeldLink::Static { module: "engine_tests".to_owned(), offset }];
        let (leak, is_waived) = told(second(HeldState::Reachable, at(16)));
        let hold = leak.hold.unwrap();
        assert_eq!((hold.of_reach, hold.blocks, hold.others.len(), is_waived), (36, 36, 0, true));
        let (leak, is_waived) = told(second(HeldState::Reachable, at(32)));
        assert_eq!(
            (leak.hold.unwrap().others[0].holder[0].owner.as_str(), is_waived),
            ("engine_tests+0x20", false)
        );
    }

    #[test]
    fn the_holders_of_one_leak_are_bounded_and_no_block_is_forgotten() {
        let mut record = two_lines();
        let held = (1..=100_u32).map(|stack| HeldBlocks {
            stack,
            blocks: 2,
            state: HeldState::Reachable,
            of_state: 1,
            path: vec![HeldLink::Static { module: "engine_tests".to_owned(), offset: u64::from(stack) }],
        });
        record.native_holders = Some(NativeHolders { held: held.collect(), ..NativeHolders::default() });
        let place = Places::new(&record, &mut OneFunction).of(1);
        let mut leak = Leak { id: place.id.clone(), ..Leak::default() };
        Holding::new(&record, &mut OneFunction).tell(&mut leak, &mut OneFunction);
        let hold = leak.hold.unwrap();
        assert_eq!((hold.of_reach, hold.blocks, hold.others.len()), (1, 200, MOST_OTHERS));
        let last = hold.others.last().unwrap();
        assert!(last.holder.is_empty(), "no waiver covers blocks of unknown holders");
        assert_eq!(hold.others.iter().map(|other| other.blocks).sum::<u64>(), 99);
    }

    /// A library that names only what it exports. Its second stack has no name at all.
    struct Stripped;

    impl Resolve for Stripped {
        fn frames(&mut self, _: &ProcessRecord, stack: u32) -> ResolvedStack {
            let inner = memgate_model::Frame { offset: 0x40, ..frame("libtiles.so", "") };
            let exported = (stack == 1).then(|| frame("libtiles.so", "tiles_open"));
            ResolvedStack { frames: [inner].into_iter().chain(exported).collect(), truncated: false }
        }
    }

    #[test]
    fn a_block_of_a_stripped_library_is_named_by_the_first_function_that_is_known_or_by_its_place() {
        let record = two_lines();
        let holding = Holding::new(&record, &mut Stripped);
        let owner =
            |stack| holding.step(&HeldLink::Blocks { stack, size: 40, count: 1 }, &mut Stripped).owner;
        assert_eq!([owner(1), owner(2), owner(0)], ["tiles_open", "libtiles.so+0x40", ""]);
    }

    #[test]
    fn sites_that_grew_after_the_warm_up_are_looked_for_the_largest_first() {
        let (mut p, mut observer) = (Process::confirm(), Observer::new());
        for i in 0..12 {
            p.run("A.a", i, |p| {
                p.alloc(1, 16, 1);
                p.alloc(2, 400, 1);
                if i < 2 {
                    p.alloc(3, 1000, 1);
                }
                p.alloc(4, 32, 1);
                p.free(4, 32, 1);
            });
        }
        p.pass_to(&mut observer);
        assert_eq!(stacks_that_grew(observer.record()), [2, 1]);
    }

    #[test]
    fn parts_of_one_search_are_one() {
        let held =
            |stack| HeldBlocks { stack, blocks: 1, state: HeldState::Lost, of_state: 1, path: Vec::new() };
        let mut observer = Observer::new();
        for stack in [1, 2] {
            let part = NativeHolders { held: vec![held(stack)], ..NativeHolders::default() };
            observer.push(Frame::NativeHolders(part), 0);
        }
        let held = &observer.record().native_holders.as_ref().unwrap().held;
        assert_eq!(held.iter().map(|held| held.stack).collect::<Vec<_>>(), [1, 2]);
    }
}
