//! The cache of unwind rules: one word per return address, shared by all threads, without a lock.
//!
//! A word is `pc 47 | kind 2 | cfa/8 11 | fp 4`. A lost race costs a second computation, never a
//! wrong rule: an entry is written whole and carries its key. Addresses outside every loaded object
//! are not remembered, because a library may be loaded there later; everything is forgotten when a
//! library is unloaded.
//!
//! Not every unloading is reported: the C library unloads its own plug-ins, and a library with
//! RTLD_DEEPBIND calls a `dlclose` that is not the agent's. But whoever loads a library in the
//! place of another allocates first, in the loader. So the cache knows the objects whose rules it
//! holds, and where the caller of an allocation lies in the loader, it looks whether all are still
//! there.
#![cfg_attr(
    not(test),
    expect(clippy::arithmetic_side_effects, reason = "places in a table whose size is a power of two")
)]

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::cfi::{self, Cfa, FindObject, Object, Room, Rule, SavedFp};
use crate::sync::sized;
use crate::sys;

const BITS: u32 = sized(14, 2);
const ENTRIES: usize = (1 << BITS) + 1;
const PAYLOAD_BITS: u32 = 17;
const PAYLOAD_MASK: u32 = (1 << PAYLOAD_BITS) - 1;

const KIND_AT_FP: u64 = 0;
const KIND_SP: u64 = 1;
const KIND_FP: u64 = 2;
const KIND_OTHER: u64 = 3;
const OTHER_END: u64 = 0;
const OTHER_UNKNOWN: u64 = 1;
const OTHER_SLOW: u64 = 2;
const OTHER_LOADER: u64 = 3;

/// Objects that can be watched.
const OBJECTS: usize = 1024;
/// The place of an object that is gone.
const GONE: usize = 1;

/// The cache. One lives in a static of the agent; all-zero is empty.
pub struct RuleCache {
    entries: [AtomicU64; ENTRIES],
    find_object: AtomicUsize,
    generation: AtomicU32,
    /// Start of the loader.
    loader: AtomicUsize,
    /// Starts of the objects that rules were taken from: a hash table. One that stands in it twice
    /// does no harm.
    objects: [AtomicUsize; OBJECTS],
}

/// A rule as the walker uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed(u64);

/// The common rules: the CFA is a register plus an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plain {
    /// Is the register fp (else sp)?
    pub from_fp: bool,
    /// Bytes from the register to the CFA.
    pub cfa: usize,
    /// The caller's fp lies this many bytes below the CFA; 0: unchanged.
    pub fp: usize,
}

/// A common rule as a number, to tell whether two are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape(u32);

impl Shape {
    /// Any other rule: the same as none.
    pub const OTHER: Self = Self(0);
}

/// The other rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// CFA = word at fp - `below`; the caller's fp is the word at fp.
    AtFp {
        /// Bytes below fp.
        below: usize,
    },
    /// Outermost frame.
    End,
    /// No rule.
    Unknown,
    /// Ask [`RuleCache::exact`] each time.
    Slow,
    /// An address in the loader: as `Slow`, but ask [`RuleCache::objects_gone`] first if the loader
    /// is what allocates.
    Loader,
}

impl RuleCache {
    /// An empty cache that knows no objects.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            entries: [const { AtomicU64::new(0) }; ENTRIES],
            find_object: AtomicUsize::new(0),
            generation: AtomicU32::new(0),
            loader: AtomicUsize::new(0),
            objects: [const { AtomicUsize::new(0) }; OBJECTS],
        }
    }

    /// Sets the C library's `_dl_find_object`. Without it no address has a rule.
    pub fn set_find_object(&self, find: FindObject) {
        self.find_object.store(find as usize, Ordering::Relaxed);
        let loader = self.object(sys::loader(), &mut Room::new());
        self.loader.store(loader.map_or(0, |object| object.start), Ordering::Relaxed);
    }

    /// The present module generation, 16 bits.
    #[inline(always)]
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Forgets everything: a module was unloaded. Returns the new generation.
    pub fn next_generation(&self) -> u32 {
        let generation = (self.generation.load(Ordering::SeqCst) + 1) & 0xffff;
        self.generation.store(generation, Ordering::SeqCst);
        for entry in &self.entries {
            entry.store(0, Ordering::Relaxed);
        }
        generation
    }

    /// The rule for a return address.
    #[inline(always)]
    pub fn step(&self, pc: usize, room: &mut Room) -> Packed {
        let [first, second] = self.places(pc);
        let bits = first.load(Ordering::Relaxed);
        if bits >> PAYLOAD_BITS == pc as u64 {
            return Packed(bits);
        }
        let bits = second.load(Ordering::Relaxed);
        if bits >> PAYLOAD_BITS == pc as u64 {
            return Packed(bits);
        }
        self.miss(pc, room)
    }

    /// The two entries that may hold an address.
    #[inline(always)]
    fn places(&self, pc: usize) -> [&AtomicU64; 2] {
        let slot = ((pc as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - BITS)) as usize;
        // SAFETY: 14 bits index at most 2^14 - 1.
        let first = unsafe { self.entries.get_unchecked(slot) };
        // SAFETY: there is one entry more.
        let second = unsafe { self.entries.get_unchecked(slot + 1) };
        [first, second]
    }

    /// The loaded object that an address lies in.
    fn object(&self, address: usize, room: &mut Room) -> Option<Object> {
        let find = self.find_object.load(Ordering::Relaxed);
        if find == 0 {
            return None;
        }
        // SAFETY: only `set_find_object` writes the word, and it is not 0.
        let find = unsafe { core::mem::transmute::<usize, FindObject>(find) };
        cfi::find_object(find, address, room)
    }

    /// The rule for a return address, computed now.
    #[cold]
    #[inline(never)]
    pub fn exact(&self, pc: usize, room: &mut Room) -> Option<Rule> {
        let object = self.object(pc.checked_sub(1)?, room)?;
        Some(cfi::rule(&object, pc - 1, room))
    }

    /// Stores the rule of an address in the loader like any other: it is no place where the loader
    /// allocates.
    #[cold]
    #[inline(never)]
    pub fn loader_calls(&self, pc: usize, rule: Rule) {
        self.store(pc, pack(rule));
    }

    /// Is an object gone whose rules were taken? It is not watched any more.
    #[cold]
    #[inline(never)]
    pub fn objects_gone(&self, room: &mut Room) -> bool {
        let mut gone = false;
        for place in &self.objects {
            let start = place.load(Ordering::Relaxed);
            if start > GONE && self.object(start, room).is_none_or(|object| object.start != start) {
                place.store(GONE, Ordering::Relaxed);
                gone = true;
            }
        }
        gone
    }

    fn watch(&self, object: usize) {
        let first = (object >> 12).wrapping_mul(0x9E37_79B1) % OBJECTS;
        for i in 0..OBJECTS {
            let Some(place) = self.objects.get((first + i) % OBJECTS) else { return };
            let known = place.load(Ordering::Relaxed);
            let free = known <= GONE;
            if known == object
                || free && place.compare_exchange(known, object, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            {
                return;
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn miss(&self, pc: usize, room: &mut Room) -> Packed {
        let object = pc.checked_sub(1).and_then(|address| self.object(address, room));
        let Some(object) = object else { return Packed(pack_other(OTHER_UNKNOWN)) };
        if object.start == self.loader.load(Ordering::Relaxed) {
            return self.store(pc, pack_other(OTHER_LOADER));
        }
        self.watch(object.start);
        self.store(pc, pack(cfi::rule(&object, pc - 1, room)))
    }

    fn store(&self, pc: usize, payload: u64) -> Packed {
        let [first, second] = self.places(pc);
        let bits = ((pc as u64) << PAYLOAD_BITS) | payload;
        if bits >> PAYLOAD_BITS == pc as u64 {
            let evicted = first.load(Ordering::Relaxed);
            if evicted != 0 {
                second.store(evicted, Ordering::Relaxed);
            }
            first.store(bits, Ordering::Relaxed);
        }
        Packed(bits)
    }
}

impl Default for RuleCache {
    fn default() -> Self {
        Self::new()
    }
}

impl Packed {
    /// The rule as a number.
    #[inline(always)]
    #[must_use]
    pub const fn shape(self) -> Shape {
        Shape(if self.is_plain() { self.0 as u32 & PAYLOAD_MASK } else { 0 })
    }

    /// Is it a common rule, and this one?
    #[inline(always)]
    #[must_use]
    pub const fn has(self, shape: Shape) -> bool {
        self.is_plain() && self.0 as u32 & PAYLOAD_MASK == shape.0
    }

    #[inline(always)]
    const fn is_plain(self) -> bool {
        let kind = self.kind();
        kind == KIND_SP || kind == KIND_FP
    }

    /// The rule, if it is a common one.
    #[inline(always)]
    #[must_use]
    pub const fn plain(self) -> Option<Plain> {
        if !self.is_plain() {
            return None;
        }
        let fp = match self.0 & 15 {
            0 => 0,
            n => (n as usize + 1) * 8,
        };
        Some(Plain { from_fp: self.kind() == KIND_FP, cfa: self.far(), fp })
    }

    /// The rule, if it is none of the common ones.
    #[must_use]
    pub const fn step(self) -> Step {
        match (self.kind(), self.0 & 15) {
            (KIND_AT_FP, _) => Step::AtFp { below: self.far() },
            (_, OTHER_END) => Step::End,
            (_, OTHER_UNKNOWN) => Step::Unknown,
            (_, OTHER_LOADER) => Step::Loader,
            _ => Step::Slow,
        }
    }

    #[inline(always)]
    const fn kind(self) -> u64 {
        self.0 >> 15 & 3
    }

    #[inline(always)]
    const fn far(self) -> usize {
        (self.0 >> 4 & 0x7ff) as usize * 8
    }
}

const fn pack_other(what: u64) -> u64 {
    (KIND_OTHER << 15) | what
}

fn pack(rule: Rule) -> u64 {
    match rule {
        Rule::End => pack_other(OTHER_END),
        Rule::Unknown => pack_other(OTHER_UNKNOWN),
        Rule::Signal { .. } | Rule::Plt { .. } => pack_other(OTHER_SLOW),
        Rule::Frame { cfa, fp } => pack_frame(cfa, fp).unwrap_or(pack_other(OTHER_SLOW)),
    }
}

fn pack_frame(cfa: Cfa, fp: SavedFp) -> Option<u64> {
    let far = |bytes: i64| {
        u64::try_from(bytes).ok().filter(|b| b % 8 == 0 && b / 8 < 1 << 11).map(|b| (b / 8) << 4)
    };
    let saved = match fp {
        SavedFp::Same => Some(0),
        // 1 to 15 words below the return address, which itself lies one word below the CFA.
        SavedFp::AtCfa(offset) => {
            u64::try_from(-offset).ok().filter(|b| b % 8 == 0 && (16..=128).contains(b)).map(|b| b / 8 - 1)
        }
        SavedFp::AtFp(_) => None,
    };
    match (cfa, fp) {
        (Cfa::AtFp(offset), SavedFp::AtFp(0)) => Some((KIND_AT_FP << 15) | far(-offset)?),
        (Cfa::Sp(offset), _) => Some((KIND_SP << 15) | far(offset)? | saved?),
        (Cfa::Fp(offset), _) => Some((KIND_FP << 15) | far(offset)? | saved?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use core::ffi::c_void;
    use core::sync::atomic::AtomicBool;

    use super::*;

    static LOADED: AtomicBool = AtomicBool::new(true);
    static IMAGE: [u8; 4096] = [0; 4096];

    /// A loader that knows one object, while it is loaded.
    unsafe extern "C" fn find(_: *mut c_void, out: *mut c_void) -> i32 {
        let start = IMAGE.as_ptr() as usize;
        let found = [0, start, start + IMAGE.len(), 0, start + 8];
        // SAFETY: the structure begins with these five words.
        unsafe { out.cast::<[usize; 5]>().write(found) };
        if LOADED.load(Ordering::Relaxed) { 0 } else { -1 }
    }

    #[test]
    fn an_object_that_is_gone_is_noticed_once() {
        let cache = RuleCache::new();
        let room = &mut Room::new();
        cache.set_find_object(find);
        // For the cache the image is not the loader.
        cache.loader.store(0, Ordering::Relaxed);
        assert_eq!(cache.step(IMAGE.as_ptr() as usize + 50, room).step(), Step::Unknown);
        assert!(!cache.objects_gone(room));
        LOADED.store(false, Ordering::Relaxed);
        assert!(cache.objects_gone(room));
        assert!(!cache.objects_gone(room));
    }

    #[test]
    fn more_objects_than_are_watched_do_no_harm() {
        let cache = RuleCache::new();
        for object in 1..=OBJECTS + 10 {
            cache.watch(object * 4096);
        }
        assert!(cache.objects_gone(&mut Room::new()));
        cache.watch(4096);
        assert!(cache.objects_gone(&mut Room::new()));
    }

    #[test]
    fn rules_survive_packing() {
        let plain = |from_fp, cfa, fp| Ok(Plain { from_fp, cfa, fp });
        let cases = [
            (Rule::Frame { cfa: Cfa::Sp(8), fp: SavedFp::Same }, plain(false, 8, 0)),
            (Rule::Frame { cfa: Cfa::Sp(16376), fp: SavedFp::AtCfa(-16) }, plain(false, 16376, 16)),
            (Rule::Frame { cfa: Cfa::Fp(16), fp: SavedFp::AtCfa(-128) }, plain(true, 16, 128)),
            (Rule::Frame { cfa: Cfa::AtFp(-8), fp: SavedFp::AtFp(0) }, Err(Step::AtFp { below: 8 })),
            (Rule::End, Err(Step::End)),
            (Rule::Unknown, Err(Step::Unknown)),
            (Rule::Frame { cfa: Cfa::Sp(16384), fp: SavedFp::Same }, Err(Step::Slow)),
            (Rule::Frame { cfa: Cfa::Sp(12), fp: SavedFp::Same }, Err(Step::Slow)),
            (Rule::Frame { cfa: Cfa::Sp(-8), fp: SavedFp::Same }, Err(Step::Slow)),
            (Rule::Frame { cfa: Cfa::Sp(64), fp: SavedFp::AtCfa(-136) }, Err(Step::Slow)),
            (Rule::Frame { cfa: Cfa::Sp(64), fp: SavedFp::AtCfa(-8) }, Err(Step::Slow)),
            (Rule::Signal { sp: 160, fp: 120, ra: 168 }, Err(Step::Slow)),
        ];
        for (rule, want) in cases {
            let packed = Packed(pack(rule));
            assert_eq!(packed.plain().ok_or_else(|| packed.step()), want, "{rule:?}");
        }
    }
}
