//! Stack capture: walk from the top to a remembered frame, prove that the rest of the stack is unchanged, reuse its id.
//!
//! A thread remembers its last stack, root first, together with every memory slot that an unwinder would read on the
//! way to the root (return addresses; saved fp and CFA words if a frame further out depends on them). If a new walk
//! arrives at a remembered (sp, pc[, fp]) and all slots from there on still hold their values, a fresh walk would find
//! exactly the same frames. The slots are compared from the innermost outward, and only while they agree. So memory is
//! read only where a fresh walk would read it: stacks that were switched away or unmapped are not touched.
//!
//! Most stacks differ from the previous one only in some return addresses: another call in the same function, or a
//! sibling function with a frame of the same shape. If the new address has the same unwind rule as the old one, a fresh
//! walk would continue exactly like the last one. So the remembered address is replaced and the comparison continues.
//!
//! `shortcuts.rs` runs first: it looks for an earlier walk from the same registers.
#![cfg_attr(
    not(test),
    expect(
        clippy::arithmetic_side_effects,
        reason = "places in arrays of fixed size and addresses of a stack, in every allocation"
    )
)]

use crate::arch::{Arch, Below, Native};
use crate::bounds::Bounds;
use crate::cfi::{Cfa, Return, Room, Rule, SavedFp};
pub use crate::context::{Context, Registers};
use crate::counters::bump;
use crate::rules::{Shape, Step};
use crate::shortcuts::{Check, Junction, Shortcuts};
pub use crate::stacks::TRUNCATED_PC;
use crate::stacks::{Node, extend_hash, root_hash};
use crate::sync::sized;
use crate::sys::without_signature;
use crate::thread_counters::ThreadCounters;

/// A deeper stack keeps its innermost frames and is marked as cut.
pub const MAX_FRAMES: usize = sized(512, 4);

type ReturnBelow = <Native as Arch>::Below;

const CHECKS_PER_FRAME: usize = 3;
/// A remembered frame.
#[derive(Clone, Copy)]
#[repr(C)]
struct Remembered {
    sp: usize,
    hash: u64,
    fp: usize,
    pc: usize,
    shape: Shape,
    node: u32,
    /// Number of checks of this frame and of all frames further out.
    checks: u16,
    needs_fp: bool,
    /// Position of its return address, below the next frame's stack pointer.
    ra: ReturnBelow,
}

/// A frame that the current walk found.
#[derive(Clone, Copy)]
#[repr(C)]
struct Walked {
    sp: usize,
    pc: usize,
    fp: usize,
    shape: Shape,
    /// CFA; 0 if the frame has no caller.
    cfa: usize,
    /// Position of the return address below the CFA.
    ra: ReturnBelow,
    /// Address of the saved fp; 0 if fp is unchanged.
    fp_at: usize,
    /// Address from which the CFA was read; 0 if it was computed.
    cfa_at: usize,
    uses_fp: bool,
}

/// Scratch memory for stacks, in the thread's state. All-zero means that nothing is remembered.
#[repr(C)]
pub struct Scratch {
    remembered: usize,
    generation: u32,
    /// Does the remembered stack begin with a truncation mark?
    cut: bool,
    frames: [Remembered; MAX_FRAMES + 2],
    checks: [Check; CHECKS_PER_FRAME * (MAX_FRAMES + 2)],
    walked: [Walked; MAX_FRAMES + 2],
    shortcuts: Shortcuts,
    room: Room,
}

/// Outcome of a walk: the number of frames it found, and the number of remembered frames that follow.
struct Found {
    fresh: usize,
    reused: usize,
    /// Whether the walk crossed a frame whose slots are not remembered (signal handler, PLT).
    forget: bool,
}

/// Takes the stack of the calling thread and returns its id; 0: no memory was left for it.
///
/// The registers are separate arguments, so that they are passed in registers.
#[inline(never)]
pub fn capture(
    pc: usize,
    sp: usize,
    fp: usize,
    scratch: &mut Scratch,
    context: &Context,
    counters: &ThreadCounters,
) -> u32 {
    let at = Registers { pc, sp, fp };
    let generation = context.rules.generation();
    if scratch.generation != generation {
        scratch.generation = generation;
        scratch.remembered = 0;
    }
    if let Some(id) = scratch.short_cut(at) {
        if scratch.cut {
            bump(&counters.truncated, 1);
        }
        return id;
    }
    let walked = match scratch.meets(scratch.remembered, at, context) {
        // Most captures: no frame is walked.
        Ok(()) => None,
        Err(depth) => {
            scratch.remembered = depth;
            let found = scratch.walk(at, context);
            if found.fresh + found.reused > MAX_FRAMES {
                bump(&counters.truncated, 1);
                return scratch.intern_cut(&found, context);
            }
            scratch.remember(&found);
            Some(found)
        }
    };
    let id = scratch.id_of_top(context);
    if scratch.cut {
        bump(&counters.truncated, 1);
    }
    if let Some(found) = walked {
        if found.forget {
            scratch.remembered = 0;
        } else if id != 0 {
            scratch.keep_shortcut(at, &found, id);
        }
    }
    id
}

/// Drops the unwind rules of unloaded objects. If stacks are taken, the loader's own allocations trigger this check
/// instead.
#[cold]
pub(crate) fn look_for_unloading(scratch: &mut Scratch, context: &Context) {
    if context.rules.objects_gone(&mut scratch.room) {
        context.rules.next_generation();
    }
}

impl Scratch {
    /// The stack from these registers, if an earlier walk started there and leads to a remembered frame that is proven
    /// unchanged. Changes nothing.
    #[inline(always)]
    fn short_cut(&self, at: Registers) -> Option<u32> {
        if self.remembered > 0 && self.frame(self.remembered - 1).sp == at.sp {
            return None;
        }
        let (to, id) = self.shortcuts.find(at, self.generation)?;
        if to.depth > self.remembered {
            return None;
        }
        let met = self.frame(to.depth - 1);
        let same = met.sp == to.sp && met.hash == to.hash && (!met.needs_fp || met.fp == to.fp);
        (same && self.first_changed(usize::from(met.checks)).is_none()).then_some(id)
    }

    /// Keeps a walk that met the remembered stack.
    #[inline(always)]
    fn keep_shortcut(&mut self, at: Registers, found: &Found, id: u32) {
        // The junction is one frame further out than the frame where the walk met the remembered stack: that frame may
        // hold another return address in the next stack.
        let Some(depth) = found.reused.checked_sub(1).filter(|depth| *depth > 0) else { return };
        let (met, top) = (self.frame(depth - 1), self.frame(self.remembered - 1));
        let (from, to, needs_fp) = (usize::from(met.checks), usize::from(top.checks), top.needs_fp);
        let junction = Junction { depth, sp: met.sp, fp: met.fp, hash: met.hash };
        // SAFETY: counts never exceed the checks written, and frames further in have more of them.
        let checks = unsafe { self.checks.get_unchecked(from..to) };
        self.shortcuts.keep(at, needs_fp, self.generation, junction, checks, id);
    }

    /// Treats the innermost of the first `depth` remembered frames, which has the walk's sp and fp, as the frame with
    /// this address, and proves the frames further out. Frames of the same shape get their present addresses, and all
    /// changed frames get new hashes. `Err`: the walk must continue by rules; this many remembered frames lie further
    /// out.
    #[inline(always)]
    fn amend(&mut self, depth: usize, pc: usize, context: &Context) -> Result<(), usize> {
        let top = self.frame(depth - 1);
        let mut unchecked = usize::from(top.checks);
        // Index of the outermost frame with another address.
        let mut same = depth;
        if top.pc != pc {
            same -= 1;
            if !self.replace(same, pc, context) {
                return Err(same);
            }
        }
        while let Some(check) = self.first_changed(unchecked) {
            let mut callee = same.min(depth - 1);
            while callee > 0 && usize::from(self.frame(callee - 1).checks) > check {
                callee -= 1;
            }
            // SAFETY: counts never exceed the checks written.
            let slot = unsafe { self.checks.get_unchecked_mut(check) };
            // SAFETY: the slots further in hold what a fresh walk would find, so it would read this
            // one too.
            slot.value = unsafe { (slot.address as *const usize).read() };
            let (address, pc) = (slot.address, without_signature(slot.value));
            // A slot that is not a return address holds a register.
            if callee == 0
                || address != self.frame(callee - 1).sp.wrapping_sub(self.frame(callee).ra.bytes())
                || !self.replace(callee - 1, pc, context)
            {
                return Err(callee);
            }
            (same, unchecked) = (callee - 1, check);
        }
        self.rehash(same, depth);
        Ok(())
    }

    /// Gives a remembered frame another return address, if the address has the same shape.
    #[inline(always)]
    fn replace(&mut self, index: usize, pc: usize, context: &Context) -> bool {
        let rule = context.rules.step(pc, &mut self.room);
        // SAFETY: callers pass the index of a remembered frame.
        let frame = unsafe { self.frames.get_unchecked_mut(index) };
        let alike = rule.has(frame.shape);
        if alike {
            frame.pc = pc;
        }
        alike
    }

    /// Recomputes the hashes of the frames from index `first` up to `depth`: they, or frames further out, have changed.
    #[inline(always)]
    fn rehash(&mut self, first: usize, depth: usize) {
        let mut hash = match first {
            0 => root_hash(self.generation),
            n => self.frame(n - 1).hash,
        };
        for i in first..depth {
            // SAFETY: callers pass no more than the remembered frames.
            let frame = unsafe { self.frames.get_unchecked_mut(i) };
            hash = extend_hash(hash, frame.pc as u64);
            (frame.hash, frame.node) = (hash, 0);
        }
    }

    /// Has the walk, with these registers, reached one of the first `depth` remembered frames, so that only addresses
    /// differ from there on? `Err`: the number of remembered frames that the walk may still meet.
    #[inline(always)]
    fn meets(&mut self, mut depth: usize, at: Registers, context: &Context) -> Result<(), usize> {
        while depth > 0 && self.frame(depth - 1).sp < at.sp {
            depth -= 1;
        }
        if depth == 0 {
            return Err(0);
        }
        let frame = self.frame(depth - 1);
        if frame.sp != at.sp || frame.needs_fp && frame.fp != at.fp {
            return Err(depth);
        }
        let met = self.amend(depth, at.pc, context);
        // Frames further in may have new addresses and old hashes.
        self.remembered = met.err().unwrap_or(depth);
        met
    }

    #[inline(always)]
    fn walk(&mut self, at: Registers, context: &Context) -> Found {
        let Registers { mut pc, mut sp, mut fp } = at;
        let mut bounds = Bounds::of(sp, &context.layout());
        let (mut fresh, mut candidate, mut forget) = (0, self.remembered, false);
        // `candidate` is the number of remembered frames that the walk may still meet. The innermost of them is
        // candidate - 1.
        loop {
            if fresh > 0 {
                match self.meets(candidate, Registers { pc, sp, fp }, context) {
                    Ok(()) => return Found { fresh, reused: self.remembered, forget },
                    Err(depth) => candidate = depth,
                }
            }
            if fresh > MAX_FRAMES {
                return Found { fresh, reused: 0, forget };
            }
            let rule = context.rules.step(pc, &mut self.room);
            // Filled in place, field by field: a copy would read 16 bytes that were just written as two words, which
            // stalls the processor.
            // SAFETY: the walk stops at MAX_FRAMES + 1 frames.
            let frame = unsafe { self.walked.get_unchecked_mut(fresh) };
            (frame.sp, frame.fp, frame.pc, frame.shape, frame.cfa_at) = (sp, fp, pc, rule.shape(), 0);
            let next = match rule.plain() {
                // Nearly every frame takes this branch. It needs no jump table, whose target the processor would have
                // to guess.
                Some(plain) => {
                    frame.uses_fp = plain.from_fp;
                    frame.cfa = if plain.from_fp { fp } else { sp }.wrapping_add(plain.cfa);
                    frame.ra = ReturnBelow::new(plain.ra);
                    frame.fp_at = if plain.fp == 0 { 0 } else { frame.cfa.wrapping_sub(plain.fp) };
                    frame.caller(&mut bounds)
                }
                None => {
                    (frame.cfa, frame.fp_at, frame.uses_fp) = (0, 0, false);
                    let innermost = fresh == 0;
                    frame.other_caller(
                        rule.step(),
                        innermost,
                        &mut bounds,
                        context,
                        &mut forget,
                        &mut self.room,
                    )
                }
            };
            fresh += 1;
            match next {
                Caller::Frame(registers) => Registers { pc, sp, fp } = registers,
                Caller::None => return Found { fresh, reused: 0, forget },
                Caller::Unknown => {
                    self.walked_mut(fresh - 1).cfa = 0;
                    // A pseudo-frame that no walk can meet, because no stack pointer has this value.
                    *self.walked_mut(fresh) = Walked {
                        sp: usize::MAX,
                        fp: 0,
                        pc: TRUNCATED_PC,
                        shape: Shape::OTHER,
                        cfa: 0,
                        ra: ReturnBelow::new(0),
                        fp_at: 0,
                        cfa_at: 0,
                        uses_fp: false,
                    };
                    return Found { fresh: fresh + 1, reused: 0, forget };
                }
            }
        }
    }

    /// Index of the innermost of the first `count` checks whose slot has changed.
    #[inline(always)]
    fn first_changed(&self, count: usize) -> Option<usize> {
        let mut i = count;
        while i > 0 {
            i -= 1;
            // SAFETY: counts never exceed the checks written.
            let check = unsafe { self.checks.get_unchecked(i) };
            // SAFETY: all slots further in still hold their values, so a fresh walk would read this
            // one too.
            if unsafe { (check.address as *const usize).read() } != check.value {
                return Some(i);
            }
        }
        None
    }

    /// Adds the fresh frames after the reused ones.
    #[inline(always)]
    fn remember(&mut self, found: &Found) {
        let mut depth = found.reused;
        let (mut hash, mut checks) = match depth {
            0 => (root_hash(self.generation), 0),
            d => (self.frame(d - 1).hash, usize::from(self.frame(d - 1).checks)),
        };
        for i in (0..found.fresh).rev() {
            // SAFETY: `fresh` frames were walked.
            let w = unsafe { self.walked.get_unchecked(i) };
            let (sp, fp, pc, shape) = (w.sp, w.fp, w.pc, w.shape);
            let (cfa, ra, fp_at, cfa_at, uses_fp) = (w.cfa, w.ra, w.fp_at, w.cfa_at, w.uses_fp);
            hash = extend_hash(hash, pc as u64);
            let mut outer_needs_fp = false;
            if depth > 0 {
                let outer = self.frame(depth - 1);
                let (outer_pc, outer_fp) = (outer.pc, outer.fp);
                outer_needs_fp = outer.needs_fp;
                if cfa != 0 {
                    // The slot that an unwinder reads first is pushed last, because checks are compared from the end.
                    if fp_at != 0 && outer_needs_fp {
                        self.push_check(&mut checks, fp_at, outer_fp);
                    }
                    self.push_return(&mut checks, cfa - ra.bytes(), outer_pc);
                    if cfa_at != 0 {
                        self.push_check(&mut checks, cfa_at, cfa);
                    }
                }
            } else if cfa != 0 {
                // A zero return address marks the root: another stack may have a caller here.
                self.push_return(&mut checks, cfa - ra.bytes(), 0);
                if cfa_at != 0 {
                    self.push_check(&mut checks, cfa_at, cfa);
                }
            }
            // SAFETY: `capture` keeps fresh + reused within MAX_FRAMES.
            let frame = unsafe { self.frames.get_unchecked_mut(depth) };
            (frame.sp, frame.fp, frame.pc, frame.shape) = (sp, fp, pc, shape);
            (frame.hash, frame.node) = (hash, 0);
            (frame.checks, frame.ra) = (checks as u16, ra);
            frame.needs_fp = uses_fp || (fp_at == 0 && outer_needs_fp);
            depth += 1;
        }
        if found.reused == 0 {
            // The walk reached its end, so it found at least one frame.
            self.cut = self.walked_mut(found.fresh - 1).pc == TRUNCATED_PC;
        }
        self.remembered = depth;
    }

    #[inline(always)]
    fn push_check(&mut self, count: &mut usize, address: usize, value: usize) {
        // SAFETY: there is room for three checks per frame.
        unsafe { *self.checks.get_unchecked_mut(*count) = Check { address, value } };
        *count += 1;
    }

    /// Adds the slot of a return address, which may also hold a signature.
    #[inline(always)]
    fn push_return(&mut self, count: &mut usize, address: usize, pc: usize) {
        let value = if cfg!(target_arch = "aarch64") {
            // SAFETY: the walk has just read this slot.
            unsafe { (address as *const usize).read() }
        } else {
            pc
        };
        self.push_check(count, address, value);
    }

    #[inline(always)]
    fn id_of_top(&mut self, context: &Context) -> u32 {
        let depth = self.remembered;
        if depth == 0 {
            return 0;
        }
        let top = self.frame(depth - 1);
        if top.node != 0 {
            return top.node;
        }
        match context.store.find(top.hash) {
            Some(id) => {
                // SAFETY: depth >= 1 frames are remembered.
                unsafe { self.frames.get_unchecked_mut(depth - 1).node = id };
                id
            }
            None => self.store_frames(depth, context),
        }
    }

    /// Stores the frames further in than the innermost stored one. Returns the id of the whole stack, 0: no memory.
    #[cold]
    #[inline(never)]
    fn store_frames(&mut self, depth: usize, context: &Context) -> u32 {
        let (mut parent, mut from) = (0, depth);
        while from > 0 {
            let frame = self.frame(from - 1);
            let id = if frame.node != 0 { Some(frame.node) } else { context.store.find(frame.hash) };
            if let Some(id) = id {
                parent = id;
                break;
            }
            from -= 1;
        }
        for i in from..depth {
            let frame = self.frame(i);
            let node = Node { parent, generation: self.generation, pc: frame.pc as u64 };
            let Some(id) = context.store.store(frame.hash, node) else { return 0 };
            // SAFETY: `i` < depth frames are remembered.
            unsafe { self.frames.get_unchecked_mut(i).node = id };
            parent = id;
        }
        parent
    }

    /// Interns a stack deeper than MAX_FRAMES: its innermost frames after a truncation mark. The remembered stack does
    /// not change.
    #[cold]
    #[inline(never)]
    fn intern_cut(&mut self, found: &Found, context: &Context) -> u32 {
        let fresh = found.fresh.min(MAX_FRAMES);
        let reused = (MAX_FRAMES - fresh).min(found.reused);
        let mut hash = root_hash(self.generation);
        let mut parent = 0;
        let outermost = (0..reused).rev().map(|i| found.reused - 1 - i);
        let mut add = |pc: usize| {
            hash = extend_hash(hash, pc as u64);
            let stored = context.store.find(hash);
            parent = match stored {
                Some(id) => id,
                None => {
                    context.store.store(hash, Node { parent, generation: self.generation, pc: pc as u64 })?
                }
            };
            Some(parent)
        };
        let mut id = add(TRUNCATED_PC);
        for i in outermost {
            id = id.and_then(|_| add(self.frame(i).pc));
        }
        for i in (0..fresh).rev() {
            // SAFETY: `fresh` frames were walked.
            let pc = unsafe { self.walked.get_unchecked(i) }.pc;
            id = id.and_then(|_| add(pc));
        }
        id.unwrap_or(0)
    }

    #[inline(always)]
    fn frame(&self, i: usize) -> &Remembered {
        // SAFETY: callers pass i < remembered <= MAX_FRAMES.
        unsafe { self.frames.get_unchecked(i) }
    }

    #[inline(always)]
    fn walked_mut(&mut self, i: usize) -> &mut Walked {
        // SAFETY: the walk stops at MAX_FRAMES + 1 frames and adds at most one pseudo-frame.
        unsafe { self.walked.get_unchecked_mut(i) }
    }
}

enum Caller {
    Frame(Registers),
    None,
    Unknown,
}

impl Walked {
    #[inline(always)]
    fn caller(&self, bounds: &mut Bounds) -> Caller {
        // Nearly every frame: one bounds check for both words.
        let ra_at = self.cfa.wrapping_sub(self.ra.bytes());
        if bounds.hold(self.sp, self.cfa)
            && (!Native::RA_ANYWHERE || ra_at >= self.sp)
            && (self.fp_at == 0 || self.fp_at >= self.sp)
            && self.fp_at < self.cfa
        {
            // SAFETY: the words from `sp` to `cfa` are mapped, and both addresses lie there.
            let word = |address: usize| unsafe { (address as *const usize).read() };
            let pc = without_signature(word(ra_at));
            let fp = if self.fp_at == 0 { self.fp } else { word(self.fp_at) };
            return if pc == 0 { Caller::None } else { Caller::Frame(Registers { pc, sp: self.cfa, fp }) };
        }
        self.far_caller(bounds)
    }

    #[cold]
    #[inline(never)]
    fn far_caller(&self, bounds: &mut Bounds) -> Caller {
        if self.cfa <= self.sp {
            return Caller::Unknown;
        }
        let Some(pc) = bounds.read(self.cfa.wrapping_sub(self.ra.bytes()), self.sp) else {
            return Caller::Unknown;
        };
        let pc = without_signature(pc);
        let fp = if self.fp_at == 0 {
            self.fp
        } else {
            match bounds.read(self.fp_at, self.sp).or_else(|| bounds.read_below(self.fp_at, self.sp)) {
                Some(saved) => saved,
                None => return Caller::Unknown,
            }
        };
        if pc == 0 { Caller::None } else { Caller::Frame(Registers { pc, sp: self.cfa, fp }) }
    }

    #[cold]
    #[inline(never)]
    fn other_caller(
        &mut self,
        step: Step,
        innermost: bool,
        bounds: &mut Bounds,
        context: &Context,
        forget: &mut bool,
        room: &mut Room,
    ) -> Caller {
        match step {
            Step::AtFp { below } => {
                self.uses_fp = true;
                self.cfa_at = self.fp.wrapping_sub(below);
                self.ra = ReturnBelow::new(8);
                self.fp_at = self.fp;
                self.cfa = bounds.read(self.cfa_at, self.sp).unwrap_or(0);
                self.caller(bounds)
            }
            Step::End => Caller::None,
            Step::Unknown => self.unknown_caller(bounds, context, forget),
            Step::Slow => self.slow_caller(bounds, context, forget, room),
            Step::Loader => {
                if innermost {
                    // Not remembered, so that the next allocation from here is checked as well.
                    *forget = true;
                    if context.rules.objects_gone(room) {
                        context.rules.next_generation();
                    }
                } else if let Some(rule) = context.rules.exact(self.pc, room) {
                    context.rules.loader_calls(self.pc, rule);
                }
                self.slow_caller(bounds, context, forget, room)
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn slow_caller(
        &mut self,
        bounds: &mut Bounds,
        context: &Context,
        forget: &mut bool,
        room: &mut Room,
    ) -> Caller {
        match context.rules.exact(self.pc, room) {
            Some(Rule::Frame { cfa, fp, ra }) => {
                self.cfa = match cfa {
                    Cfa::Sp(offset) => self.sp.wrapping_add_signed(offset as isize),
                    Cfa::Fp(offset) => {
                        self.uses_fp = true;
                        self.fp.wrapping_add_signed(offset as isize)
                    }
                    Cfa::AtFp(offset) => {
                        self.uses_fp = true;
                        self.cfa_at = self.fp.wrapping_add_signed(offset as isize);
                        bounds.read(self.cfa_at, self.sp).unwrap_or(0)
                    }
                };
                self.fp_at = match fp {
                    SavedFp::Same => 0,
                    SavedFp::AtCfa(offset) => self.cfa.wrapping_add_signed(offset as isize),
                    SavedFp::AtFp(offset) => {
                        self.uses_fp = true;
                        self.fp.wrapping_add_signed(offset as isize)
                    }
                };
                match ra {
                    Return::AtCfa(offset) => self.caller_at(offset, bounds),
                    Return::InLink => self.leaf_caller(bounds),
                }
            }
            Some(Rule::Plt { from }) => {
                *forget = true;
                self.ra = ReturnBelow::new(8);
                self.cfa = self.sp + 8 + if (self.pc - 1) & 15 >= usize::from(from) { 8 } else { 0 };
                self.caller(bounds)
            }
            Some(Rule::Signal { sp, fp, ra }) => {
                *forget = true;
                let mut at = |offset: i64| bounds.read(self.sp.wrapping_add_signed(offset as isize), self.sp);
                let (Some(sp), Some(fp), Some(pc)) = (at(sp), at(fp), at(ra)) else {
                    return Caller::Unknown;
                };
                interrupted(Registers { pc, sp, fp }, bounds, context)
            }
            Some(Rule::End) => Caller::None,
            Some(Rule::Unknown) | None => self.unknown_caller(bounds, context, forget),
        }
    }

    /// The caller by a return address at CFA + offset.
    fn caller_at(&mut self, offset: i64, bounds: &mut Bounds) -> Caller {
        match offset.checked_neg().map(u32::try_from) {
            Some(Ok(below)) if below >= 8 && below % 8 == 0 => {
                self.ra = ReturnBelow::new(below as usize);
                self.caller(bounds)
            }
            _ => Caller::Unknown,
        }
    }

    /// The caller of a function that has not saved its return address. Such a function is on a stack only if a signal
    /// interrupted it. (Slots of such a stack are not remembered.)
    #[cfg(target_arch = "aarch64")]
    fn leaf_caller(&mut self, bounds: &mut Bounds) -> Caller {
        let Some(pc) = bounds.take_link(self.sp).filter(|_| self.cfa >= self.sp) else {
            return Caller::Unknown;
        };
        let saved = if self.fp_at == 0 { Some(self.fp) } else { bounds.read(self.fp_at, self.sp) };
        let Some(fp) = saved else { return Caller::Unknown };
        let sp = core::mem::take(&mut self.cfa);
        Caller::Frame(Registers { pc, sp, fp })
    }

    #[cfg(not(target_arch = "aarch64"))]
    const fn leaf_caller(&self, _: &mut Bounds) -> Caller {
        Caller::Unknown
    }

    /// On arm64, an address without a rule may be the return address of a signal handler.
    #[cfg(target_arch = "aarch64")]
    fn unknown_caller(&self, bounds: &mut Bounds, context: &Context, forget: &mut bool) -> Caller {
        use crate::arch::aarch64::{SIGNAL_FRAME, is_signal_return};

        if !is_signal_return(self.pc) {
            return Caller::Unknown;
        }
        *forget = true;
        let [Some(fp), Some(link), Some(sp), Some(pc)] =
            SIGNAL_FRAME.map(|offset| bounds.read(self.sp.wrapping_add(offset), self.sp))
        else {
            return Caller::Unknown;
        };
        let caller = interrupted(Registers { pc, sp, fp }, bounds, context);
        bounds.link = [sp, link];
        caller
    }

    #[cfg(not(target_arch = "aarch64"))]
    const fn unknown_caller(&self, _: &mut Bounds, _: &Context, _: &mut bool) -> Caller {
        Caller::Unknown
    }
}

/// The frame that a signal interrupted.
fn interrupted(at: Registers, bounds: &mut Bounds, context: &Context) -> Caller {
    *bounds = Bounds::of(at.sp, &context.layout());
    bounds.interrupted = true;
    // The interrupted instruction itself, in the form of a return address: one byte further.
    Caller::Frame(Registers { pc: at.pc.wrapping_add(1), ..at })
}

const _: () = assert!(size_of::<Check>() == 16 && size_of::<Remembered>() == 48);
