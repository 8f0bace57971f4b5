//! Holders of a native leak, as steps with names.
//!
//! Data flow: a repeated test grows → [`stacks_that_grew`] names the allocation sites to search → the harness searches
//! a copy of the process (`memgate-holders`) and writes raw steps (`memgate_wire::native_holders`) → the record →
//! [`Holding`] assigns them to leak groups by their place in the code and resolves variables and functions.

use std::collections::{BTreeMap, HashMap};

use memgate_model::{Hold, HolderStep, Leak, Reach, format_counted};
use memgate_wire::Module;
use memgate_wire::native_holders::{HeldBlocks, HeldLink, HeldState, NativeHolders};

use crate::groups::Places;
use crate::record::ProcessRecord;
use crate::resolve::{Resolve, Variable};

/// Maximum number of sites to search: those that grew most.
const MOST_SITES: usize = 4096;
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

/// Holders of the groups of a record, by the ids of their places.
pub(crate) struct Holding<'a> {
    record: &'a ProcessRecord,
    found: Option<&'a NativeHolders>,
    by_place: BTreeMap<String, &'a HeldBlocks>,
}

impl<'a> Holding<'a> {
    pub(crate) fn new(record: &'a ProcessRecord, resolve: &mut dyn Resolve) -> Self {
        let found = record.native_holders.as_ref();
        let mut by_place: BTreeMap<String, &HeldBlocks> = BTreeMap::new();
        if let Some(found) = found {
            let mut places = Places::new(record, resolve);
            for held in &found.held {
                let known = by_place.entry(places.of(held.stack).id.clone()).or_insert(held);
                // Different stacks may have the same project frames.
                if held.blocks > known.blocks {
                    *known = held;
                }
            }
        }
        Self { record, found, by_place }
    }

    /// Adds the holder to a leak, if holders were searched.
    pub(crate) fn tell(&self, leak: &mut Leak, resolve: &mut dyn Resolve) {
        let Some(found) = self.found else { return };
        let Some(held) = self.by_place.get(&leak.id) else {
            let why = found.not_searched.clone().unwrap_or_else(|| "its blocks were gone by then".to_owned());
            leak.hold = Some(Hold { reach: Reach::NotSearched, of_reach: 0, blocks: 0, note: Some(why) });
            return;
        };
        let reach = match held.state {
            HeldState::Reachable => Reach::Reachable,
            HeldState::Lost => Reach::Lost,
            HeldState::LostCycle => Reach::LostCycle,
            HeldState::IndirectlyLost => Reach::IndirectlyLost,
        };
        let unseen = u64::from(found.unseen_registers);
        let unseen = (reach != Reach::Reachable && unseen > 0).then(|| {
            format!("the registers of {} were not seen", format_counted(as_f64(unseen), "other thread"))
        });
        leak.hold = Some(Hold { reach, of_reach: held.of_state, blocks: held.blocks, note: unseen });
        leak.holder = held.path.iter().map(|link| self.step(link, resolve)).collect();
        if held.state == HeldState::IndirectlyLost
            && let Some(first) = leak.holder.first_mut()
        {
            first.kind = "lost block".to_owned();
        }
    }

    fn step(&self, link: &HeldLink, resolve: &mut dyn Resolve) -> HolderStep {
        match link {
            HeldLink::Static { module, offset } => {
                of_variable("static", module, *offset, self.variable(module, *offset, false, resolve))
            }
            HeldLink::ThreadLocal { thread, module, offset } => {
                let variable = self.variable(module, *offset, true, resolve);
                let step = of_variable("thread-local", module, *offset, variable);
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
                owner: String::new(),
                name: String::new(),
                class: format!("of thread {thread}"),
            },
            HeldLink::Mapped { name } => HolderStep {
                kind: "mapped memory".to_owned(),
                owner: name.clone(),
                name: String::new(),
                class: String::new(),
            },
            HeldLink::Blocks { stack: 0, size, count } => HolderStep {
                kind: "block".to_owned(),
                owner: String::new(),
                name: String::new(),
                class: format!("{}{size} B", times(*count)),
            },
            HeldLink::Blocks { stack, size, count } => {
                let place = Places::new(self.record, resolve).of(*stack);
                let frame = place.frames.first();
                let at = frame.and_then(|frame| frame.file.as_deref().zip(frame.line));
                HolderStep {
                    kind: "block".to_owned(),
                    owner: frame.and_then(|frame| frame.function.clone()).unwrap_or_default(),
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
        let all: Vec<&Module> = self.record.modules.values().flatten().filter(|m| m.path == module).collect();
        resolve.variable(all.last()?, offset, thread_local)
    }
}

fn of_variable(kind: &str, module: &str, offset: u64, variable: Option<Variable>) -> HolderStep {
    let file = module.rsplit('/').next().unwrap_or(module);
    let Some(Variable { name, into, place }) = variable else {
        let owner = format!("{file}+{offset:#x}");
        return HolderStep { kind: kind.to_owned(), owner, name: String::new(), class: String::new() };
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

#[expect(clippy::cast_precision_loss, reason = "a number of threads")]
const fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dsl::Process;
    use crate::observer::Observer;
    use memgate_wire::Frame;

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
        p.frames.drain(..).for_each(|(frame, t_ns)| observer.push(frame, t_ns));
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
