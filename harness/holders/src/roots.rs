//! The places outside of its heap where a program holds pointers.

use std::ops::Range;

use memgate_wire::Module;
use memgate_wire::native_holders::ThreadLocalModule;

use crate::blocks::Blocks;
use crate::glibc::{free_lists, is_libc};
use crate::maps::Mapping;
use crate::memory::{Memory, Reader, WORD};
use crate::stacks::control_block;

/// A thread at the moment when the process was copied.
#[derive(Debug, Clone, Default)]
pub struct Thread {
    /// Its id, as stored by the C library.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its stack pointer; `None`: unknown, so the whole stack is read.
    pub stack_pointer: Option<u64>,
    /// Its program counter; 0: unknown.
    pub pc: u64,
    /// Its thread pointer, if known.
    pub thread_pointer: Option<u64>,
}

/// The stopped process.
#[derive(Debug, Clone, Copy)]
pub struct Process<'a> {
    /// Its mappings.
    pub mappings: &'a [Mapping],
    /// Its modules.
    pub modules: &'a [Module],
    /// Its threads, as they were before it was copied.
    pub threads: &'a [Thread],
    /// Its modules with thread-local variables.
    pub thread_local: &'a [ThreadLocalModule],
    /// Whether its allocator is glibc's. If so, memory between blocks in mappings other than its heaps does not belong
    /// to the allocator.
    pub is_glibc: bool,
}

/// Kind of a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootKind {
    /// Static data of a module, by its number.
    Static(usize),
    /// The stack of a thread, by its number.
    Stack(usize),
    /// Thread-local variables of a module that has some.
    ThreadLocal {
        /// Number of the thread.
        thread: usize,
        /// Number in [`Process::thread_local`].
        module: usize,
        /// Their first address.
        start: u64,
    },
    /// The C library's data of a thread, by its number.
    ThreadData(usize),
    /// Memory that was mapped without the allocator.
    Mapped {
        /// Its name in `/proc`.
        name: String,
    },
}

/// Addresses of one kind.
#[derive(Debug, Clone)]
pub struct Root {
    /// The addresses.
    pub ranges: Vec<Range<u64>>,
    /// Their kind.
    pub kind: RootKind,
    /// When it is searched: later roots count only for blocks that no earlier root leads to.
    pub turn: Turn,
}

/// The order in which roots are searched: the most certain holders first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Turn {
    /// Variables.
    Variables,
    /// Stacks: an unused part of a frame may contain a stale value.
    Stacks,
    /// Memory that was mapped without the allocator: its purpose is unknown.
    Mapped,
}

/// All roots of a process.
#[derive(Debug, Default)]
pub struct Roots(Vec<Root>);

/// Bytes of a thread that glibc keeps, from its thread pointer on.
const CONTROL_BYTES: u64 = 0x900;
/// Alignment and maximum size of glibc's heaps for threads.
const HEAP_BYTES: u64 = 64 << 20;
/// Larger mappings are not searched for control blocks.
const LARGE: u64 = 256 << 20;
/// glibc puts a thread's control block at most this far before the end of the stack that it has mapped for the thread.
const NEAR_END: u64 = 64 << 10;
/// Few stacks are larger.
const USUAL_STACK: u64 = 16 << 20;
/// In a control block instead of a thread's id: the thread has ended, or was also joined.
const ENDED: [u32; 2] = [0, u32::MAX];

impl Roots {
    /// Makes roots from these, in the order in which they are searched.
    #[must_use]
    pub fn of(mut roots: Vec<Root>) -> Self {
        roots.sort_by_key(|root| root.turn);
        Self(roots)
    }

    /// The roots of a process with these live blocks.
    #[must_use]
    pub fn find(memory: &dyn Memory, process: &Process<'_>, blocks: &Blocks) -> Self {
        let mut finder = Finder { memory, process, roots: Vec::new() };
        finder.statics();
        let stacks: Vec<Root> =
            (0..process.threads.len()).filter_map(|thread| finder.thread(thread)).collect();
        finder.roots.extend(stacks);
        finder.others(blocks);
        Self::of(finder.roots)
    }

    /// The kind of a root.
    #[must_use]
    pub fn kind(&self, root: usize) -> Option<&RootKind> {
        self.0.get(root).map(|root| &root.kind)
    }

    /// When a root is searched, and whether it is the stack of the main thread.
    pub(crate) fn group(&self, root: usize) -> Option<(Turn, bool)> {
        let Root { kind, turn, .. } = self.0.get(root)?;
        Some((*turn, matches!(kind, RootKind::Stack(thread) if is_first(*thread))))
    }

    pub(crate) fn ranges(&self, root: usize) -> Vec<Range<u64>> {
        self.0.get(root).map_or_else(Vec::new, |root| root.ranges.clone())
    }

    /// The numbers of the roots that are searched together.
    pub(crate) fn turns(&self) -> [Range<usize>; 3] {
        let until = |turn| self.0.partition_point(|root| root.turn <= turn);
        let (variables, stacks) = (until(Turn::Variables), until(Turn::Stacks));
        [0..variables, variables..stacks, stacks..self.0.len()]
    }
}

struct Finder<'a> {
    memory: &'a dyn Memory,
    process: &'a Process<'a>,
    roots: Vec<Root>,
}

impl Finder<'_> {
    fn statics(&mut self) {
        for (number, module) in self.process.modules.iter().enumerate() {
            if is_agent(&module.path) {
                continue;
            }
            let data = self.process.mappings.iter().filter(|m| is_private_data(m));
            let data = data.filter_map(|m| common(&m.range, &(module.start..module.end)));
            let ranges: Vec<_> = data
                .flat_map(|range| {
                    let lists =
                        is_libc(&module.path).then(|| free_lists(self.memory, range.clone())).flatten();
                    without(range, lists.map(|lists| lists.range))
                })
                .collect();
            if !ranges.is_empty() {
                self.roots.push(Root { ranges, kind: RootKind::Static(number), turn: Turn::Variables });
            }
        }
    }

    /// Adds thread-local variables of a thread; returns its stack, which comes after the variables of all threads.
    fn thread(&mut self, number: usize) -> Option<Root> {
        let thread = self.process.threads.get(number)?;
        let mapping = thread.stack_pointer.and_then(|pointer| self.mapping(pointer));
        let main = self.process.mappings.iter().find(|m| m.name == "[stack]");
        let is_main =
            mapping.or(main).is_some_and(|m| m.name == "[stack]") && mapping.is_none_or(|m| Some(m) == main);
        let above = thread.stack_pointer.zip(mapping).map(|(pointer, m)| pointer..m.range.end);
        let block = thread.thread_pointer.or_else(|| {
            let near = above.clone().filter(|_| mapping != main);
            let near = near.and_then(|range| control_block(self.memory, range, |id| id == thread.id));
            near.or_else(|| self.anywhere(thread.id))
        });
        if let Some(block) = block {
            self.thread_local(number, block);
        }
        let stack = match (above, block) {
            // Another thread's stack begins above the control block.
            (Some(above), Some(block)) if above.contains(&block) => above.start..block,
            (Some(above), _) => above,
            (None, Some(block)) if self.mapping(block).is_some() && !is_first(number) => {
                self.mapping(block)?.range.start..block
            }
            (None, _) if is_main && is_first(number) => main?.range.clone(),
            (None, _) => return None,
        };
        Some(Root { ranges: vec![stack], kind: RootKind::Stack(number), turn: Turn::Stacks })
    }

    fn thread_local(&mut self, thread: usize, block: u64) {
        let mut reader = Reader::new(self.memory);
        let vector = reader.word(block.wrapping_add(WORD)).unwrap_or(0);
        for (module, tls) in self.process.thread_local.iter().enumerate() {
            let entry = vector.wrapping_add((2 * WORD).wrapping_mul(tls.number));
            let start = reader.word(entry).filter(|start| self.mapping(*start).is_some());
            let Some(start) = start.filter(|_| vector != 0 && !is_agent(&tls.path)) else { continue };
            let kind = RootKind::ThreadLocal { thread, module, start };
            self.roots.push(Root {
                ranges: one(start..start.saturating_add(tls.bytes)),
                kind,
                turn: Turn::Variables,
            });
        }
        let ranges = one(block..block.saturating_add(CONTROL_BYTES));
        self.roots.push(Root { ranges, kind: RootKind::ThreadData(thread), turn: Turn::Variables });
    }

    /// Adds memory that is neither a module's, nor a stack, nor a heap of the allocator.
    fn others(&mut self, blocks: &Blocks) {
        let known: Vec<Range<u64>> = self.roots.iter().flat_map(|root| root.ranges.iter().cloned()).collect();
        let modules = self.process.modules.iter().map(|module| module.start..module.end);
        // Also the part of a stack below its stack pointer.
        let pointers = self.process.threads.iter().filter_map(|thread| thread.stack_pointer);
        let below = pointers.filter_map(|pointer| self.mapping(pointer).map(|m| m.range.start..pointer));
        let tables = blocks.tables().iter().cloned().chain(self.ended());
        let taken: Vec<Range<u64>> = known.into_iter().chain(modules).chain(below).chain(tables).collect();
        for mapping in self.process.mappings.iter().filter(|m| is_private_data(m)) {
            let is_heap = mapping.name == "[heap]" || self.is_heap(mapping);
            if is_heap || mapping.name.starts_with("[stack") || is_agent(&mapping.name) {
                continue;
            }
            let own = blocks.within(&mapping.range);
            if !own.is_empty() && !self.process.is_glibc {
                continue;
            }
            let mut ranges = vec![mapping.range.clone()];
            for range in taken.iter().cloned().chain(own.map(|block| blocks.range(block))) {
                if common(&range, &mapping.range).is_some() {
                    ranges = ranges.into_iter().flat_map(|left| without(left, Some(range.clone()))).collect();
                }
            }
            if !ranges.is_empty() {
                let kind = RootKind::Mapped { name: mapping.name.clone() };
                self.roots.push(Root { ranges, kind, turn: Turn::Mapped });
            }
        }
    }

    /// The stacks of ended threads, up to their control blocks (which have the threads' results). glibc keeps them for
    /// later threads; nobody may use what is left in them.
    fn ended(&self) -> impl Iterator<Item = Range<u64>> {
        let guarded = self.process.mappings.windows(2).filter_map(|pair| {
            let [guard, stack] = pair else { return None };
            let is_anonymous = |m: &Mapping| !m.of_file && m.name.is_empty();
            let is_guard = !guard.writable && !guard.executable && guard.range.end == stack.range.start;
            let is_both = is_guard && is_private_data(stack) && is_anonymous(guard) && is_anonymous(stack);
            (is_both && !self.is_heap(stack)).then_some(&stack.range)
        });
        guarded.filter_map(|stack| {
            let near_end = stack.end.saturating_sub(NEAR_END).max(stack.start)..stack.end;
            // Other memory may be mapped right behind the stack.
            let usual = stack.start..stack.end.min(stack.start.saturating_add(USUAL_STACK));
            let of = |range| control_block(self.memory, range, |id| ENDED.contains(&id));
            let block = of(near_end).or_else(|| of(usual))?;
            self.has_stack(block, stack).then_some(stack.start..block)
        })
    }

    /// Does this control block have the position of this stack: where it starts with its guard, its bytes, and those of
    /// the guard? (A stack that the program has made itself, and may use for something else, has no guard of glibc's.)
    fn has_stack(&self, block: u64, stack: &Range<u64>) -> bool {
        let mut reader = Reader::new(self.memory);
        let places = (0..CONTROL_BYTES / WORD).map(|word| block.saturating_add(WORD * word));
        let words: Vec<u64> = places.map_while(|at| reader.word(at)).collect();
        words.windows(3).any(|words| {
            let [start, bytes, guard] = *words else { return false };
            let end = start.checked_add(bytes);
            guard != 0
                && start.checked_add(guard) == Some(stack.start)
                && end.is_some_and(|end| (block..=stack.end).contains(&end))
        })
    }

    fn mapping(&self, address: u64) -> Option<&Mapping> {
        self.process.mappings.iter().find(|m| m.range.contains(&address) && m.writable)
    }

    /// The control block of a thread when only its id is known.
    fn anywhere(&self, thread: u32) -> Option<u64> {
        let is_small = |m: &&Mapping| m.range.end - m.range.start <= LARGE;
        let all =
            self.process.mappings.iter().filter(|m| is_private_data(m) && !m.of_file && m.name.is_empty());
        let mut candidates = all.filter(is_small).filter(|m| !self.is_heap(m));
        candidates.find_map(|m| control_block(self.memory, m.range.clone(), |id| id == thread))
    }

    /// Is the mapping one of glibc's heaps for threads? Such a heap begins with the address of its arena, which is near
    /// the start of this or another such heap.
    fn is_heap(&self, mapping: &Mapping) -> bool {
        let arena = || Reader::new(self.memory).word(mapping.range.start);
        mapping.name.is_empty()
            && mapping.range.start.is_multiple_of(HEAP_BYTES)
            && arena().is_some_and(|arena| (0x20..=0x40).contains(&(arena % HEAP_BYTES)))
    }
}

fn one(range: Range<u64>) -> Vec<Range<u64>> {
    vec![range]
}

/// The main thread is listed first.
const fn is_first(thread: usize) -> bool {
    thread == 0
}

fn is_private_data(mapping: &Mapping) -> bool {
    mapping.writable && !mapping.shared
}

/// The agent's own memory holds nothing.
fn is_agent(path: &str) -> bool {
    path.rsplit('/').next().unwrap_or(path).starts_with("libmemgate")
}

fn common(a: &Range<u64>, b: &Range<u64>) -> Option<Range<u64>> {
    let both = a.start.max(b.start)..a.end.min(b.end);
    (!both.is_empty()).then_some(both)
}

fn without(range: Range<u64>, taken: Option<Range<u64>>) -> Vec<Range<u64>> {
    let Some(taken) = taken else { return vec![range] };
    let parts = [range.start..taken.start.min(range.end), taken.end.max(range.start)..range.end];
    parts.into_iter().filter(|part| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::parse_maps;
    use crate::maps::tests::Image;

    /// Regression: an address in the stack of a thread that had ended held a lost block.
    #[test]
    fn what_is_left_in_the_stack_of_an_ended_thread_is_no_root() {
        let maps = parse_maps(
            "5f000-60000 ---p 0 0:0 0\n\
             60000-64000 rw-p 0 0:0 0\n\
             6f000-70000 ---p 0 0:0 0\n\
             70000-74000 rw-p 0 0:0 0\n\
             80000-84000 rw-p 0 0:0 0\n",
        );
        let roots = |thread: u64, stack: [u64; 3]| {
            let mut image = Image::default();
            for at in
                [0x60000..0x64000_u64, 0x70000..0x74000, 0x80000..0x84000].into_iter().flatten().step_by(8)
            {
                image.put(at, &[0]);
            }
            image.put(0x73000, &[0x73000, 0, 0x73000]);
            image.put(0x732d0, &[thread]);
            image.put(0x73690, &stack);
            let process =
                Process { mappings: &maps, modules: &[], threads: &[], thread_local: &[], is_glibc: true };
            let roots = Roots::find(&image, &process, &Blocks::of(Vec::new()).unwrap());
            roots.0.into_iter().flat_map(|root| root.ranges).collect::<Vec<_>>()
        };
        let all = [0x60000..0x64000, 0x70000..0x74000, 0x80000..0x84000];
        let ended = [0x60000..0x64000, 0x73000..0x74000, 0x80000..0x84000];
        let stack = [0x6f000, 0x5000, 0x1000];
        assert_eq!(roots(0, stack), ended);
        assert_eq!(roots(u64::from(u32::MAX), stack), ended, "joined");
        assert_eq!(roots(0, [0x6f000, 0x4a00, 0x1000]), ended, "other memory is mapped right behind it");
        assert_eq!(roots(0, [0x6f000, 0x1000, 0x1000]), all, "it ends before its control block");
        assert_eq!(roots(77, stack), all, "a thread that runs, but was not listed");
        assert_eq!(roots(0, [0x70000, 0x4000, 0]), all, "the program has made this stack");
        assert_eq!(roots(0, [0x6f000, 0x6000, 0x1000]), all, "it does not end there");
    }

    fn module(start: u64, end: u64, path: &str) -> Module {
        Module { start, end, bias: start, path: path.to_owned(), build_id: Vec::new() }
    }

    #[test]
    fn data_stacks_and_thread_local_variables_are_roots_and_free_memory_is_none() {
        let maps = parse_maps(
            "10000-12000 r-xp 0 0:0 7 /bin/app\n\
             12000-13000 rw-p 0 0:0 7 /bin/app\n\
             13000-15000 rw-p 0 0:0 0\n\
             20000-30000 rw-p 0 0:0 0 [heap]\n\
             40000-41000 rw-p 0 0:0 8 /lib/libmemgate_agent.so\n\
             50000-54000 rw-p 0 0:0 0\n\
             60000-61000 rw-p 0 0:0 0\n\
             61000-62000 rw-s 0 0:0 9 /dev/shm/x\n\
             70000-74000 rw-p 0 0:0 0 [stack]\n",
        );
        let mut image = Image::default();
        for range in [0x12000..0x15000, 0x50000..0x54000, 0x60000..0x61000, 0x70000..0x74000] {
            for at in range.step_by(8) {
                image.put(at, &[0]);
            }
        }
        // A thread with stack pointer 0x51000; its control block is at 0x53000, and the vector at 0x53800 has the
        // variables of module 1 at 0x52f00.
        image.put(0x53000, &[0x53000, 0x53800, 0x53000]);
        image.put(0x532d0, &[77]);
        image.put(0x53810, &[0x52f00]);
        let thread =
            |id, sp| Thread { id, name: format!("t{id}"), stack_pointer: Some(sp), ..Thread::default() };
        let process = Process {
            mappings: &maps,
            modules: &[
                module(0x10000, 0x14000, "/bin/app"),
                module(0x40000, 0x41000, "/lib/libmemgate_agent.so"),
            ],
            threads: &[thread(70, 0x71000), thread(77, 0x51000)],
            thread_local: &[ThreadLocalModule { path: "/bin/app".to_owned(), number: 1, bytes: 0x40 }],
            is_glibc: true,
        };
        let blocks = Blocks::of(vec![(0x20010, 16, 1)]).unwrap();
        let roots = Roots::find(&image, &process, &blocks);
        let told: Vec<_> = roots.0.iter().map(|root| (root.kind.clone(), root.ranges.clone())).collect();
        let mapped = RootKind::Mapped { name: String::new() };
        let variables = RootKind::ThreadLocal { thread: 1, module: 0, start: 0x52f00 };
        assert_eq!(
            told,
            [
                (RootKind::Static(0), vec![0x12000..0x13000, 0x13000..0x14000]),
                (variables, one(0x52f00..0x52f40)),
                (RootKind::ThreadData(1), one(0x53000..0x53900)),
                (RootKind::Stack(0), one(0x71000..0x74000)),
                (RootKind::Stack(1), one(0x51000..0x53000)),
                (mapped.clone(), one(0x14000..0x15000)),
                (mapped.clone(), one(0x53900..0x54000)),
                (mapped, one(0x60000..0x61000)),
            ]
        );
    }
}
