//! The cache of unwind rules: one word per return address, shared by all threads, without a lock.
//!
//! A word is `key of the pc | payload`, both defined by the machine ([`crate::arch`]). A lost race costs a second
//! computation, never a wrong rule: an entry is written as a whole and contains its key. Addresses outside every loaded
//! object are not cached, because a library may be loaded there later. The whole cache is emptied when a library is
//! unloaded.
//!
//! Not every unloading is reported: the C library unloads its own plug-ins, and a library with RTLD_DEEPBIND calls a
//! `dlclose` that is not the agent's. But the loader allocates before it loads a library in the place of another. So
//! the cache keeps a list of the objects whose rules it holds. If the caller of an allocation lies in the loader, the
//! cache checks whether all of them are still loaded.
#![cfg_attr(
    not(test),
    expect(clippy::arithmetic_side_effects, reason = "places in a table whose size is a power of two")
)]

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::arch::{Arch, Native};
use crate::cfi::{self, FindObject, Object, Room, Rule};
pub use crate::rule::{Other, Plain, Step};
use crate::sync::sized;
use crate::sys;

const BITS: u32 = sized(14, 2);
const ENTRIES: usize = (1 << BITS) + 1;
const PAYLOAD_BITS: u32 = Native::PAYLOAD_BITS;
const PAYLOAD_MASK: u32 = (1 << PAYLOAD_BITS) - 1;

/// Maximum number of watched objects.
const OBJECTS: usize = 1024;
/// Marks the entry of an object that is gone.
const GONE: usize = 1;

/// The cache. One lives in a static of the agent; all-zero is empty.
pub struct RuleCache {
    entries: [AtomicU64; ENTRIES],
    find_object: AtomicUsize,
    generation: AtomicU32,
    /// Start of the loader.
    loader: AtomicUsize,
    /// Start addresses of the objects that rules were taken from: a hash table. A duplicate does no harm.
    objects: [AtomicUsize; OBJECTS],
}

/// A rule as the walker uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed(u64);

/// A common rule as a number, to compare two rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape(u32);

impl Shape {
    /// Any rule that is not common. [`Packed::has`] is never true for it.
    pub const OTHER: Self = Self(0);
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

    /// The current module generation, 16 bits.
    #[inline(always)]
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Empties the cache, because a module was unloaded. Returns the new generation.
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
        if bits >> PAYLOAD_BITS == Native::key(pc) {
            return Packed(bits);
        }
        let bits = second.load(Ordering::Relaxed);
        if bits >> PAYLOAD_BITS == Native::key(pc) {
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

    /// Stores the rule of an address in the loader like any other rule, because the loader does not allocate at this
    /// address.
    #[cold]
    #[inline(never)]
    pub fn loader_calls(&self, pc: usize, rule: Rule) {
        self.store(pc, pack::<Native>(rule));
    }

    /// Has any watched object been unloaded? Unloaded objects are not watched any more.
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
        let Some(object) = object else { return Packed(Native::pack_other(Other::Unknown)) };
        if object.start == self.loader.load(Ordering::Relaxed) {
            return self.store(pc, Native::pack_other(Other::Loader));
        }
        self.watch(object.start);
        self.store(pc, pack::<Native>(cfi::rule(&object, pc - 1, room)))
    }

    fn store(&self, pc: usize, payload: u64) -> Packed {
        let [first, second] = self.places(pc);
        let bits = (Native::key(pc) << PAYLOAD_BITS) | payload;
        if bits >> PAYLOAD_BITS == Native::key(pc) {
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
    /// The rule as a number, for comparison.
    #[inline(always)]
    #[must_use]
    pub fn shape(self) -> Shape {
        if self.plain().is_some() { Shape(self.0 as u32 & PAYLOAD_MASK) } else { Shape::OTHER }
    }

    /// Is it a common rule, and this one?
    #[inline(always)]
    #[must_use]
    pub fn has(self, shape: Shape) -> bool {
        self.plain().is_some() && self.0 as u32 & PAYLOAD_MASK == shape.0
    }

    /// The rule, if it is a common one.
    #[inline(always)]
    #[must_use]
    pub fn plain(self) -> Option<Plain> {
        Native::plain(self.0)
    }

    /// The rule, if it is not a common one.
    #[must_use]
    pub fn step(self) -> Step {
        Native::step(self.0)
    }
}

fn pack<M: Arch>(rule: Rule) -> u64 {
    let other = match rule {
        Rule::End => Other::End,
        Rule::Unknown => Other::Unknown,
        Rule::Signal { .. } | Rule::Plt { .. } => Other::Slow,
        Rule::Frame { cfa, fp, ra } => match M::pack(cfa, fp, ra) {
            Some(common) => return common,
            None => Other::Slow,
        },
    };
    M::pack_other(other)
}

#[cfg(test)]
mod tests {
    use core::ffi::c_void;
    use core::sync::atomic::AtomicBool;

    use super::*;
    use crate::arch::aarch64::Aarch64;
    use crate::arch::x86_64::X86_64;
    use crate::cfi::{Cfa, Return, SavedFp};

    static LOADED: AtomicBool = AtomicBool::new(true);
    static IMAGE: [u8; 4096] = [0; 4096];

    /// A lookup that knows one object, while that object is loaded.
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

    /// The unpacked form of a packed rule, for any address.
    #[expect(clippy::panic_in_result_fn, reason = "an error is another kind of rule")]
    fn unpacked<M: Arch>(rule: Rule) -> Result<Plain, Step> {
        let payload = pack::<M>(rule);
        assert_eq!(payload >> M::PAYLOAD_BITS, 0, "{rule:?}");
        let word = payload | u64::MAX << M::PAYLOAD_BITS;
        assert_eq!(M::plain(word), M::plain(payload));
        M::plain(word).ok_or_else(|| M::step(word))
    }

    #[test]
    fn rules_survive_packing() {
        let plain = |from_fp, cfa, fp| Ok(Plain { from_fp, cfa, fp, ra: 8 });
        let frame = |cfa, fp| Rule::Frame { cfa, fp, ra: Return::AtCfa(-8) };
        let cases = [
            (frame(Cfa::Sp(8), SavedFp::Same), plain(false, 8, 0)),
            (frame(Cfa::Sp(16376), SavedFp::AtCfa(-16)), plain(false, 16376, 16)),
            (frame(Cfa::Fp(16), SavedFp::AtCfa(-128)), plain(true, 16, 128)),
            (frame(Cfa::AtFp(-8), SavedFp::AtFp(0)), Err(Step::AtFp { below: 8 })),
            (Rule::End, Err(Step::End)),
            (Rule::Unknown, Err(Step::Unknown)),
            (frame(Cfa::Sp(16384), SavedFp::Same), Err(Step::Slow)),
            (frame(Cfa::Sp(12), SavedFp::Same), Err(Step::Slow)),
            (frame(Cfa::Sp(-8), SavedFp::Same), Err(Step::Slow)),
            (frame(Cfa::Sp(64), SavedFp::AtCfa(-136)), Err(Step::Slow)),
            (frame(Cfa::Sp(64), SavedFp::AtCfa(-8)), Err(Step::Slow)),
            (Rule::Signal { sp: 160, fp: 120, ra: 168 }, Err(Step::Slow)),
        ];
        for (rule, want) in cases {
            assert_eq!(unpacked::<X86_64>(rule), want, "{rule:?}");
        }
    }

    #[test]
    fn rules_of_aarch64_survive_packing() {
        let plain = |from_fp, cfa, fp, ra| Ok(Plain { from_fp, cfa, fp, ra });
        let frame = |cfa, fp, ra| Rule::Frame { cfa, fp, ra: Return::AtCfa(ra) };
        let cases = [
            // GCC: the pair at the bottom of the frame, and the pair above outgoing arguments.
            (frame(Cfa::Sp(4096), SavedFp::AtCfa(-4096), -4088), plain(false, 4096, 4096, 4088)),
            (frame(Cfa::Sp(16368), SavedFp::AtCfa(-16256), -16248), plain(false, 16368, 16256, 16248)),
            (frame(Cfa::Fp(96), SavedFp::AtCfa(-96), -88), plain(true, 96, 96, 88)),
            // LLVM: the pair at the top of the frame, or x30 alone.
            (frame(Cfa::Fp(16), SavedFp::AtCfa(-16), -8), plain(true, 16, 16, 8)),
            (frame(Cfa::Sp(16368), SavedFp::AtCfa(-128), -120), plain(false, 16368, 128, 120)),
            (frame(Cfa::Sp(32), SavedFp::Same, -32), plain(false, 32, 0, 32)),
            // Too large, in the middle, not adjacent, outside the frame.
            (frame(Cfa::Sp(16384), SavedFp::Same, -8), Err(Step::Slow)),
            (frame(Cfa::Sp(8192), SavedFp::Same, -4096), Err(Step::Slow)),
            (frame(Cfa::Sp(64), SavedFp::AtCfa(-32), -8), Err(Step::Slow)),
            (frame(Cfa::Sp(16), SavedFp::Same, -24), Err(Step::Slow)),
            (frame(Cfa::Sp(16), SavedFp::Same, 8), Err(Step::Slow)),
            (Rule::Frame { cfa: Cfa::Sp(0), fp: SavedFp::Same, ra: Return::InLink }, Err(Step::Slow)),
            (Rule::End, Err(Step::End)),
            (Rule::Unknown, Err(Step::Unknown)),
        ];
        for (rule, want) in cases {
            assert_eq!(unpacked::<Aarch64>(rule), want, "{rule:?}");
        }
        // An empty cache entry, which is read for a root's zero address.
        assert!(X86_64::plain(0).is_none() && Aarch64::plain(0).is_none());
        // An address after an interrupted instruction does not fit into a word.
        let fits =
            |pc| Aarch64::key(pc) << Aarch64::PAYLOAD_BITS >> Aarch64::PAYLOAD_BITS == Aarch64::key(pc);
        assert!(fits(0xffff_ffff_fffc) && !fits(0xffff_ffff_fffd) && !fits(1 << 48));
    }
}
