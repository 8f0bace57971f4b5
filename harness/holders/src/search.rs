//! Finds paths from roots to blocks, and blocks without a path.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use memgate_wire::native_holders::HeldState;

use crate::blocks::Blocks;
use crate::memory::{Memory, Reader};
use crate::roots::Roots;
use crate::{Limits, NotSearched};

const UNSEEN: u32 = u32::MAX;
/// Flag in the word of a block's parent: the other bits are the number of a hit.
const HIT: u32 = 1 << 31;
/// Maximum number of reported steps of a path: those at its root and those at its block.
const MOST_STEPS: usize = 16;

/// The holders of blocks of one allocation site. One result for the state of most of its blocks, and one more, with 0
/// `blocks`, for each other state in which blocks are lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Its stack.
    pub stack: u32,
    /// How many blocks it has.
    pub blocks: u64,
    /// The state of most of them, or of those that are lost.
    pub state: HeldState,
    /// How many are in this state.
    pub of_state: u64,
    /// The root that leads to one of them, and the address of the word in it; `None`: they are lost.
    pub root: Option<(usize, u64)>,
    /// The blocks on the path. The one nearest to the root (or the lost one) comes first.
    pub way: Vec<Step>,
}

/// Blocks of one site; each refers to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Their stack.
    pub stack: u32,
    /// Bytes of the first.
    pub size: u64,
    /// How many.
    pub count: u64,
}

/// A word of a root that points at a block.
struct Hit {
    root: u32,
    at: u64,
}

struct Search<'a> {
    blocks: &'a Blocks,
    /// The pointers of block `i` are `edges[first_edge[i]..first_edge[i + 1]]`.
    first_edge: Vec<u32>,
    edges: Vec<u32>,
    hits: Vec<Hit>,
    /// For each block the block before it on its path, or [`HIT`] and a number, or [`UNSEEN`].
    parents: Vec<u32>,
    /// For each block, the hit at the start of its path.
    origins: Vec<u32>,
    /// The blocks that were reached, the nearest first.
    seen: Vec<u32>,
}

/// Finds what holds the blocks of the `wanted` sites, given by their stacks. `go_on` is called from time to time.
///
/// # Errors
/// The search would need too much memory, or take too long.
pub fn search(
    memory: &dyn Memory,
    blocks: &Blocks,
    roots: &Roots,
    wanted: &BTreeSet<u32>,
    limits: Limits,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Vec<Site>, NotSearched> {
    let (first_edge, edges) = pointers(memory, blocks, limits, go_on)?;
    let count = blocks.len();
    let mut search = Search {
        blocks,
        first_edge,
        edges,
        hits: Vec::new(),
        parents: vec![UNSEEN; count],
        origins: vec![UNSEEN; count],
        seen: Vec::new(),
    };
    let mut reader = Reader::new(memory);
    for numbers in roots.turns() {
        let from = search.seen.len();
        for number in numbers {
            search.look_into(&mut reader, roots, number, go_on)?;
        }
        search.walk(from);
    }
    let lost = search.lost(wanted);
    Ok(search.sites(roots, wanted, &lost))
}

/// Every pointer from one block to another.
fn pointers(
    memory: &dyn Memory,
    blocks: &Blocks,
    limits: Limits,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<(Vec<u32>, Vec<u32>), NotSearched> {
    let mut reader = Reader::new(memory);
    let (mut first_edge, mut edges) = (Vec::with_capacity(blocks.len() + 1), Vec::new());
    for block in 0..blocks.len() {
        let first = edges.len();
        first_edge.push(u32::try_from(first).map_err(|_e| NotSearched::Edges(limits.edges))?);
        let own = number(block);
        let done = reader.words(blocks.range(block), go_on, |_, value| {
            let Some(to) = blocks.at(value).map(number).filter(|to| *to != own) else { return };
            let known = edges.get(first..).is_some_and(|edges: &[u32]| edges.last() == Some(&to));
            if !known && edges.len() < limits.edges {
                edges.push(to);
            }
        });
        if !done {
            return Err(NotSearched::Time);
        }
        if edges.len() >= limits.edges {
            return Err(NotSearched::Edges(limits.edges));
        }
    }
    first_edge.push(u32::try_from(edges.len()).map_err(|_e| NotSearched::Edges(limits.edges))?);
    Ok((first_edge, edges))
}

/// There are fewer than 2³¹ blocks.
fn number(block: usize) -> u32 {
    u32::try_from(block).unwrap_or(UNSEEN)
}

impl Search<'_> {
    fn look_into(
        &mut self,
        reader: &mut Reader<'_>,
        roots: &Roots,
        root: usize,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), NotSearched> {
        let Self { blocks, hits, parents, origins, seen, .. } = self;
        for range in roots.ranges(root) {
            let done = reader.words(range, go_on, |at, value| {
                let Some(block) = blocks.at(value) else { return };
                let Some(parent) = parents.get_mut(block).filter(|parent| **parent == UNSEEN) else { return };
                let hit = number(hits.len());
                *parent = HIT | hit;
                if let Some(origin) = origins.get_mut(block) {
                    *origin = hit;
                }
                hits.push(Hit { root: number(root), at });
                seen.push(number(block));
            });
            if !done {
                return Err(NotSearched::Time);
            }
        }
        Ok(())
    }

    /// Continues from the blocks that were reached, beginning with number `from`. Blocks of one site that refer to each
    /// other, such as the nodes of a list, are one step, however many they are. Otherwise a stray number that points
    /// into the middle of a list would be nearer to most of the list than the list's head.
    fn walk(&mut self, from: usize) {
        // Blocks that are reached without a step come first; blocks that are one step away come after them.
        let (mut now, mut next) = (self.seen.split_off(from), Vec::new());
        let mut is_waiting = vec![false; if now.is_empty() { 0 } else { self.blocks.len() }];
        while !now.is_empty() {
            let mut at = 0;
            while let Some(block) = now.get(at).copied() {
                at += 1;
                let stack = self.blocks.stack(block as usize);
                let origin = self.origins.get(block as usize).copied().unwrap_or(UNSEEN);
                for edge in self.edges_of(block as usize) {
                    let Some(to) = self.edges.get(edge).copied() else { break };
                    let Some(waits) = is_waiting.get_mut(to as usize) else { continue };
                    let is_same = stack != 0 && self.blocks.stack(to as usize) == stack;
                    let Some(parent) = self.parents.get_mut(to as usize) else { continue };
                    if *parent != UNSEEN && !(*waits && is_same) {
                        continue;
                    }
                    *parent = block;
                    *waits = !is_same;
                    if let Some(own) = self.origins.get_mut(to as usize) {
                        *own = origin;
                    }
                    if is_same { now.push(to) } else { next.push(to) }
                }
            }
            self.seen.append(&mut now);
            // Some of these blocks were reached without a step meanwhile.
            now.extend(next.drain(..).filter(|block| {
                is_waiting.get_mut(*block as usize).is_some_and(|waits| std::mem::replace(waits, false))
            }));
        }
    }

    fn edges_of(&self, block: usize) -> std::ops::Range<usize> {
        let at = |index: usize| self.first_edge.get(index).copied().unwrap_or(0) as usize;
        at(block)..at(block + 1)
    }

    fn targets(&self, block: usize) -> &[u32] {
        self.edges.get(self.edges_of(block)).unwrap_or_default()
    }

    /// The state of every block of a wanted site that was not reached. Indirectly lost blocks get the block before
    /// them as their parent.
    fn lost(&mut self, wanted: &BTreeSet<u32>) -> HashMap<u32, HeldState> {
        let mut states = HashMap::new();
        let unseen: Vec<u32> =
            (0..number(self.blocks.len())).filter(|block| self.is_unseen(*block)).collect();
        if !unseen.iter().any(|block| wanted.contains(&self.blocks.stack(*block as usize))) {
            return states;
        }
        let mut referred: Vec<bool> = vec![false; self.blocks.len()];
        for block in &unseen {
            for to in self.targets(*block as usize).to_vec() {
                if let Some(referred) = referred.get_mut(to as usize) {
                    *referred = true;
                }
            }
        }
        let is_referred = |block: &&u32| referred.get(**block as usize).copied().unwrap_or(false);
        for block in unseen.iter().filter(|block| !is_referred(block)) {
            states.insert(*block, HeldState::Lost);
        }
        let from = self.seen.len();
        for block in unseen.iter().filter(|block| !is_referred(block)) {
            self.takes(*block);
        }
        self.walk(from);
        // The remaining blocks are in cycles, or reached only from cycles.
        let left: Vec<u32> = unseen.iter().copied().filter(|block| self.is_unseen(*block)).collect();
        let heads = cycles(&left, |block| self.targets(block as usize), |block| self.is_unseen(block));
        for block in &heads {
            states.insert(*block, HeldState::LostCycle);
        }
        let from = self.seen.len();
        for block in heads {
            self.takes(block);
        }
        self.walk(from);
        for block in unseen {
            states.entry(block).or_insert(HeldState::IndirectlyLost);
        }
        states
    }

    fn is_unseen(&self, block: u32) -> bool {
        self.parents.get(block as usize) == Some(&UNSEEN)
    }

    /// A lost block begins a path, like a word of a root.
    fn takes(&mut self, block: u32) {
        let hit = number(self.hits.len());
        self.hits.push(Hit { root: UNSEEN, at: 0 });
        if let Some(parent) = self.parents.get_mut(block as usize) {
            *parent = HIT | hit;
        }
        if let Some(origin) = self.origins.get_mut(block as usize) {
            *origin = hit;
        }
        self.seen.push(block);
    }

    fn sites(&self, roots: &Roots, wanted: &BTreeSet<u32>, lost: &HashMap<u32, HeldState>) -> Vec<Site> {
        #[derive(Default)]
        struct Counted {
            blocks: u64,
            states: BTreeMap<HeldState, u64>,
            /// By state and first word of the path: the number of blocks, and the nearest block.
            by_origin: BTreeMap<(HeldState, u32), (u64, u32)>,
        }
        let mut sites: BTreeMap<u32, Counted> = BTreeMap::new();
        // The nearest come first; all blocks are in the list now.
        for block in &self.seen {
            let stack = self.blocks.stack(*block as usize);
            if !wanted.contains(&stack) {
                continue;
            }
            let state = lost.get(block).copied().unwrap_or(HeldState::Reachable);
            let origin = match state {
                // Each of them begins its own path.
                HeldState::Lost | HeldState::LostCycle => UNSEEN,
                HeldState::Reachable | HeldState::IndirectlyLost => {
                    self.origins.get(*block as usize).copied().unwrap_or(UNSEEN)
                }
            };
            let site = sites.entry(stack).or_default();
            site.blocks += 1;
            *site.states.entry(state).or_default() += 1;
            site.by_origin.entry((state, origin)).or_insert((0, *block)).0 += 1;
        }
        let group = |origin: u32| roots.group(self.hits.get(origin as usize)?.root as usize);
        // The path of the blocks of one state that have most in common.
        let nearest = |site: &Counted, state: HeldState| {
            let of_state: Vec<_> = site.by_origin.iter().filter(|((s, _), _)| *s == state).collect();
            // Each block may be held by its own word, maybe in a thread of its own. The main thread's stack may also
            // hold one of them.
            let mut of_group = BTreeMap::new();
            for ((_, origin), (count, _)) in &of_state {
                *of_group.entry(group(*origin)).or_insert(0) += count;
            }
            // If several have the same count, the first one found is used.
            let (_, (_, block)) = of_state.into_iter().max_by_key(|((_, origin), (count, _))| {
                (of_group.get(&group(*origin)).copied(), *count, !*origin)
            })?;
            Some(*block)
        };
        let told = |(stack, site): (u32, Counted)| {
            let most = site.states.iter().max_by_key(|(_, count)| **count).map(|(state, _)| *state);
            let of = |(state, of_state): (&HeldState, &u64)| {
                let is_most = most == Some(*state);
                if !is_most && *state == HeldState::Reachable {
                    return None;
                }
                let (root, way) = self.way_to(nearest(&site, *state)?);
                let blocks = if is_most { site.blocks } else { 0 };
                Some(Site { stack, blocks, state: *state, of_state: *of_state, root, way })
            };
            let mut told: Vec<Site> = site.states.iter().filter_map(of).collect();
            told.sort_by_key(|site| site.blocks == 0);
            told
        };
        sites.into_iter().flat_map(told).collect()
    }

    /// The root of a block's path, and the blocks before it.
    fn way_to(&self, block: u32) -> (Option<(usize, u64)>, Vec<Step>) {
        let mut way: Vec<Step> = Vec::new();
        let mut at = self.parents.get(block as usize).copied().unwrap_or(UNSEEN);
        while at & HIT == 0 {
            let (stack, size) = (self.blocks.stack(at as usize), self.blocks.size(at as usize));
            match way.last_mut() {
                Some(step) if step.stack == stack => {
                    step.count += 1;
                    step.size = size;
                }
                _ => way.push(Step { stack, size, count: 1 }),
            }
            at = self.parents.get(at as usize).copied().unwrap_or(UNSEEN);
        }
        way.reverse();
        if way.len() > MOST_STEPS {
            way.drain(MOST_STEPS / 2..way.len() - MOST_STEPS / 2);
        }
        let hit = self.hits.get((at & !HIT) as usize).filter(|hit| hit.root != UNSEEN);
        (hit.map(|hit| (hit.root as usize, hit.at)), way)
    }
}

/// Finds, among the blocks `left`, those in cycles that nothing outside of the cycle refers to. Another block of `left`
/// refers to each of these blocks.
fn cycles<'a>(left: &[u32], targets: impl Fn(u32) -> &'a [u32], is_left: impl Fn(u32) -> bool) -> Vec<u32> {
    let visited = components(left, &targets, &is_left);
    let component = |block: u32| visited.get(&block).map_or(UNSEEN, |block| block.component);
    let mut referred: BTreeSet<u32> = BTreeSet::new();
    for block in left {
        let others = targets(*block).iter().filter(|to| is_left(**to)).map(|to| component(*to));
        referred.extend(others.filter(|other| *other != component(*block)));
    }
    left.iter().copied().filter(|block| !referred.contains(&component(*block))).collect()
}

/// A block in Tarjan's algorithm.
#[derive(Clone, Copy)]
struct Visited {
    index: u32,
    low: u32,
    /// Number of its strongly connected component; `UNSEEN`: not known yet.
    component: u32,
}

/// The strongly connected component of each block that the blocks `left` reach. Tarjan's algorithm, without recursion.
fn components<'a>(
    left: &[u32],
    targets: impl Fn(u32) -> &'a [u32],
    is_left: impl Fn(u32) -> bool,
) -> HashMap<u32, Visited> {
    let mut nodes: HashMap<u32, Visited> = HashMap::with_capacity(left.len());
    let (mut next, mut components) = (0, 0);
    let mut open: Vec<u32> = Vec::new();
    for start in left {
        if nodes.contains_key(start) {
            continue;
        }
        let mut calls: Vec<(u32, usize)> = vec![(*start, 0)];
        while let Some((block, edge)) = calls.last_mut() {
            let block = *block;
            if *edge == 0 {
                nodes.entry(block).or_insert_with(|| {
                    open.push(block);
                    next += 1;
                    Visited { index: next, low: next, component: UNSEEN }
                });
            }
            let to = targets(block).get(*edge).copied();
            *edge += 1;
            let Some(to) = to else {
                calls.pop();
                let Some(node) = nodes.get(&block).copied() else { continue };
                if node.low == node.index {
                    while let Some(member) = open.pop() {
                        if let Some(member) = nodes.get_mut(&member) {
                            member.component = components;
                        }
                        if member == block {
                            break;
                        }
                    }
                    components += 1;
                }
                if let Some(caller) = calls.last().and_then(|(caller, _)| nodes.get_mut(caller)) {
                    caller.low = caller.low.min(node.low);
                }
                continue;
            };
            if !is_left(to) {
                continue;
            }
            match nodes.get(&to).copied() {
                None => calls.push((to, 0)),
                Some(known) if known.component == UNSEEN => {
                    if let Some(node) = nodes.get_mut(&block) {
                        node.low = node.low.min(known.index);
                    }
                }
                Some(_) => {}
            }
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::tests::Image;
    use crate::roots::{Root, RootKind, Turn};

    /// Blocks of 32 bytes at 0x10000, 0x10020…, by number; `pointers` from one to another. Roots are at 0x100
    /// (variables), 0x200 (the main thread's stack), 0x280 and 0x2a0 (those of others), and 0x300 (mapped memory).
    struct Made {
        image: Image,
        blocks: Vec<(u64, u64, u32)>,
    }

    fn block(number: u64) -> u64 {
        0x10000 + 32 * number
    }

    impl Made {
        fn new(stacks: &[u32]) -> Self {
            let mut image = Image::default();
            image.put(0x100, &[0; 8]);
            image.put(0x200, &[0; 8]);
            image.put(0x280, &[0; 8]);
            image.put(0x300, &[0; 8]);
            let blocks: Vec<_> = (0..).zip(stacks).map(|(i, stack)| (block(i), 24, *stack)).collect();
            for (start, ..) in &blocks {
                image.put(*start, &[0; 4]);
            }
            Self { image, blocks }
        }

        fn points(mut self, from: u64, word: u64, to: u64) -> Self {
            self.image.put(block(from) + 8 * word, &[to]);
            self
        }

        fn root(mut self, at: u64, to: u64) -> Self {
            self.image.put(at, &[to]);
            self
        }

        #[track_caller]
        fn found(self, wanted: u32) -> Site {
            let [site] = <[Site; 1]>::try_from(self.all_found(wanted)).unwrap();
            site
        }

        fn all_found(self, wanted: u32) -> Vec<Site> {
            let blocks = Blocks::of(self.blocks).unwrap();
            let root = |range, kind, turn| Root { ranges: vec![range], kind, turn };
            let roots = Roots::of(vec![
                root(0x100..0x140, RootKind::Static(0), Turn::Variables),
                root(0x200..0x240, RootKind::Stack(0), Turn::Stacks),
                root(0x280..0x2a0, RootKind::Stack(1), Turn::Stacks),
                root(0x2a0..0x2c0, RootKind::Stack(2), Turn::Stacks),
                root(0x300..0x340, RootKind::Mapped { name: String::new() }, Turn::Mapped),
            ]);
            let wanted = BTreeSet::from([wanted]);
            let limits = Limits::default();
            search(&self.image, &blocks, &roots, &wanted, limits, &mut || true).unwrap()
        }
    }

    fn step(stack: u32, count: u64) -> Step {
        Step { stack, size: 24, count }
    }

    #[test]
    fn the_shortest_way_is_told_through_interior_pointers() {
        let made = Made::new(&[1, 2, 3, 9]).root(0x108, block(0) + 8).points(0, 1, block(1) + 23);
        let site = made.points(1, 0, block(2)).points(2, 2, block(3)).points(1, 2, block(3) + 1).found(9);
        assert_eq!(site.state, HeldState::Reachable);
        assert_eq!((site.root, site.way), (Some((0, 0x108)), vec![step(1, 1), step(2, 1)]));
    }

    #[test]
    fn a_pointer_to_the_end_of_a_block_and_one_from_free_memory_hold_nothing() {
        let mut made = Made::new(&[9]).root(0x108, block(0) + 24);
        made.image.put(0x10000 + 32 * 7, &[block(0)]);
        assert_eq!(made.found(9).state, HeldState::Lost);
    }

    #[test]
    fn a_list_is_one_step_however_long_it_is() {
        let count = 50_000;
        let mut made = Made::new(&vec![5; count]).root(0x100, block(0));
        for i in 1..count as u64 {
            made = made.points(i - 1, 0, block(i));
        }
        let last = made.blocks.len() - 1;
        made.blocks[last].2 = 9;
        let site = made.found(9);
        assert_eq!((site.root, site.way), (Some((0, 0x100)), vec![step(5, count as u64 - 1)]));
    }

    #[test]
    fn what_a_variable_leads_to_is_not_the_stacks() {
        let site =
            Made::new(&[1, 9]).root(0x200, block(1)).root(0x110, block(0)).points(0, 0, block(1)).found(9);
        assert_eq!((site.root, site.way.len()), (Some((0, 0x110)), 1));
        let site = Made::new(&[1, 9]).root(0x200, block(1)).root(0x110, block(0)).found(9);
        assert_eq!(site.root, Some((1, 0x200)));
    }

    /// Like words in the stacks of ended threads; one of the blocks is also held by a live stack.
    #[test]
    fn where_most_blocks_of_a_site_are_held_is_told_though_each_is_held_by_a_word_of_its_own() {
        let made = Made::new(&[9, 9, 9]).root(0x208, block(0)).root(0x308, block(1)).root(0x310, block(2));
        assert_eq!(made.found(9).root, Some((4, 0x308)));
        let made = Made::new(&[9, 9, 9]).root(0x208, block(0)).root(0x210, block(1)).root(0x310, block(2));
        assert_eq!(made.found(9).root, Some((1, 0x208)));
        let in_threads =
            Made::new(&[9, 9, 9]).root(0x208, block(0)).root(0x288, block(1)).root(0x2a8, block(2));
        assert_eq!(in_threads.found(9).root, Some((2, 0x288)), "most are in threads of their own");
    }

    #[test]
    fn what_is_lost_is_told_from_what_is_lost_with_it_and_from_cycles() {
        let chain =
            || Made::new(&[1, 2, 3]).points(0, 0, block(1)).points(1, 0, block(2)).points(2, 1, block(2));
        assert_eq!(chain().found(1).state, HeldState::Lost);
        let site = chain().found(3);
        assert_eq!(
            (site.state, site.root, site.way),
            (HeldState::IndirectlyLost, None, vec![step(1, 1), step(2, 1)])
        );
        let cycle =
            || Made::new(&[1, 2, 3]).points(0, 0, block(1)).points(1, 0, block(0)).points(1, 1, block(2));
        assert_eq!(
            (cycle().found(1).state, cycle().found(2).state),
            (HeldState::LostCycle, HeldState::LostCycle)
        );
        let site = cycle().found(3);
        assert_eq!((site.state, site.way.len()), (HeldState::IndirectlyLost, 1));
        let behind = Made::new(&[1, 2, 3, 4]).points(0, 0, block(1)).points(1, 0, block(0));
        let behind = behind.points(1, 1, block(2)).points(2, 0, block(3)).points(3, 0, block(2));
        assert_eq!(behind.found(4).state, HeldState::IndirectlyLost, "one cycle behind another");
    }

    /// A stray number that points into the middle of a long list is nearer to the nodes after that place.
    #[test]
    fn a_list_is_held_by_its_head() {
        let mut made = Made::new(&[[1, 2].as_slice(), &[9; 100]].concat());
        made =
            made.root(0x100, block(0)).points(0, 0, block(1)).points(1, 0, block(50)).root(0x120, block(2));
        for i in 3..102 {
            made = made.points(i - 1, 0, block(i));
        }
        let site = made.found(9);
        assert_eq!((site.root, site.way), (Some((0, 0x120)), Vec::new()));
    }

    #[test]
    fn most_blocks_of_a_site_tell_what_it_is() {
        let stale = Made::new(&[9; 10]).root(0x100, block(3)).root(0x108, block(4));
        let site = stale.found(9);
        assert_eq!((site.state, site.of_state, site.blocks), (HeldState::Lost, 8, 10));
        let mut kept = Made::new(&[9, 9, 9, 9, 1]).root(0x100, block(0)).root(0x108, block(4));
        for i in 1..3 {
            kept = kept.points(4, i - 1, block(i));
        }
        let site = kept.all_found(9).remove(0);
        assert_eq!((site.state, site.of_state, site.root), (HeldState::Reachable, 3, Some((0, 0x108))));
    }

    /// Regression: a site had the state of most of its blocks only, so a few lost ones among many that are held were
    /// not seen.
    #[test]
    fn lost_blocks_are_told_apart_from_those_of_their_site_that_are_held() {
        let held = || Made::new(&[9; 5]).root(0x100, block(0)).root(0x108, block(1)).root(0x110, block(2));
        let told = |made: Made| {
            let sites = made.all_found(9);
            sites.iter().map(|site| (site.state, site.of_state, site.blocks)).collect::<Vec<_>>()
        };
        assert_eq!(told(held()), [(HeldState::Reachable, 3, 5), (HeldState::Lost, 2, 0)]);
        let with_it = held().points(3, 0, block(4));
        let states =
            [(HeldState::Reachable, 3, 5), (HeldState::Lost, 1, 0), (HeldState::IndirectlyLost, 1, 0)];
        assert_eq!(told(with_it), states);
    }

    #[test]
    fn limits_and_time_end_it() {
        let blocks = || Blocks::of(Made::new(&[1, 2]).blocks).unwrap();
        let made = || Made::new(&[1, 2]).points(0, 0, block(1)).image;
        let (roots, wanted) = (Roots::of(Vec::new()), BTreeSet::from([1]));
        let few = Limits { edges: 1, ..Limits::default() };
        let ended = search(&made(), &blocks(), &roots, &wanted, few, &mut || true);
        assert_eq!(ended.unwrap_err(), NotSearched::Edges(1));
        let late = search(&made(), &blocks(), &roots, &wanted, Limits::default(), &mut || false);
        assert_eq!(late.unwrap_err(), NotSearched::Time);
    }
}
