//! Finds where live objects were allocated: a sampled object has its stack in its tag, for its whole life.
//!
//! Data flow: the virtual machine samples an allocation ([`Sites::sampled`], in the allocating thread) → the tag of the
//! object contains its class, its stack and the bytes that it represents ([`Sample`]) → in the windows of a survivor
//! search every allocation of the grown classes is sampled, as far as their volume allows ([`Sites::look_closely`],
//! [`Sites::look_again`]) → [`Sites::alive`] walks the heap once and counts the tags.
//!
//! All data is in the tags, so no event is needed when an object dies. No lock is held across a call into the virtual
//! machine. All agents of a virtual machine share one interval between samples. It is set again at every boundary; if
//! the samples do not match the allocated bytes, another agent has changed it ([`Sites::window_ends`]).

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use jni::Env;
use jni::objects::JObject;
use memgate_jvmti::{Event, HeapFilter, Jvmti, StackFrame, Visit};
use memgate_session as session;
use memgate_session::carrier::Meeting;
use memgate_tracker::sys::thread_pointer;
use memgate_wire::java::JavaStacks;
use memgate_wire::spool::follow::PAUSED;

use super::classes::{ClassNumber, SampledClasses};
use super::stacks::{DEPTH, Stacks};
use super::weight::weight;

/// Maximum number of tags that are counted in one walk.
const MAX_TAGS: usize = 1 << 18;
/// Maximum number of allocations of a window that are all sampled. If there are more, about this number is sampled.
const CLOSE_EVENTS: u64 = 10_000_000;
/// Size of a small object, to estimate the number of allocations from the bytes of the window before.
const SMALL_OBJECT_BYTES: u64 = 32;
/// After a change of the interval, a thread's countdown to its next sample still uses the previous one. Allocating this
/// many intervals ends the countdown for certain.
const COUNTDOWNS: u32 = 16;
const MAX_COUNTDOWN_BYTES: u32 = 16 << 20;
/// Expected number of samples from which on a check is meaningful, and the factor by which the sampled bytes may be
/// wrong.
const ENOUGH_SAMPLES: u64 = 100;
const FOREIGN_FACTOR: u64 = 3;
/// The bytes allocated before the window are not known.
const UNKNOWN: u64 = u64::MAX;

/// State of allocation sampling.
pub(crate) struct Sites {
    jvmti: Jvmti<'static>,
    /// [`Event::VmObjectAlloc`]: comes with every allocation, whatever the interval.
    event: Event,
    pub(crate) stacks: Stacks,
    pub(crate) classes: SampledClasses,
    /// Mean bytes between samples, now and as requested.
    interval: AtomicU32,
    usual: u32,
    /// Allocations are sampled all the time, not only in the windows of a survivor search.
    at_once: bool,
    /// A [`Born`]. During a survivor search only chosen classes are sampled.
    born: AtomicU8,
    /// Bytes that the samples of this window stand for.
    sampled_bytes: AtomicU64,
    /// Bytes that all threads had allocated when this window began, and bytes that they allocated in the previous
    /// window.
    allocated: AtomicU64,
    window_bytes: AtomicU64,
    told_foreign: AtomicBool,
    /// The thread that measures, whose allocations are the agent's.
    measuring: AtomicUsize,
    /// The source of orders, known once the stream is open.
    channel: OnceLock<Meeting>,
}

/// When a sampled object was allocated. A survivor search looks for objects of its first window; if none of a class
/// survived the second window, for objects of the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Born {
    Anytime,
    Late,
    Close,
}

/// A sampled object, as its tag: `1 | born 2 | bytes 16 | class 16 | node 20`, from bit 54 down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sample(i64);

/// Samples of one class and stack that are alive.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    pub(crate) class: String,
    pub(crate) node: u32,
    pub(crate) samples: u64,
    pub(crate) bytes: u64,
}

/// Sites, with the part of their stacks that is not yet in the stream.
#[derive(Debug)]
pub(crate) struct Alive {
    pub(crate) stacks: JavaStacks,
    pub(crate) sites: Vec<Site>,
}

impl Default for Alive {
    fn default() -> Self {
        Self { stacks: JavaStacks { methods: Vec::new(), nodes: Vec::new() }, sites: Vec::new() }
    }
}

impl Sites {
    /// Samples by this event with this mean interval; the caller has the capabilities. Without `at_once`, no allocation
    /// is seen before [`Self::look_closely`], and all of them afterwards: existing threads keep the interval that they
    /// began with (JDK 17).
    pub(crate) fn new(
        jvmti: Jvmti<'static>,
        event: Event,
        interval: u32,
        at_once: bool,
        classes: SampledClasses,
    ) -> Self {
        let interval = if at_once { interval } else { 0 };
        // If refused, the virtual machine's own interval (512 KiB) applies.
        let _as_it_is = jvmti.set_sampling_interval(interval);
        if at_once {
            // Without this event nothing is sampled, and the report has no allocation sites.
            let _no_sites = jvmti.enable(event);
        }
        Self {
            at_once,
            jvmti,
            event,
            stacks: Stacks::new(),
            classes,
            interval: AtomicU32::new(interval),
            usual: interval,
            born: AtomicU8::new(Born::Anytime as u8),
            sampled_bytes: AtomicU64::new(0),
            allocated: AtomicU64::new(UNKNOWN),
            window_bytes: AtomicU64::new(0),
            told_foreign: AtomicBool::new(false),
            measuring: AtomicUsize::new(0),
            channel: OnceLock::new(),
        }
    }

    /// An allocation was sampled, in this thread.
    pub(crate) fn sampled(&self, env: &Env<'_>, object: &JObject<'_>, class: &JObject<'_>, bytes: u64) {
        let stands_for = self.stands_for(bytes);
        self.sampled_bytes.fetch_add(stands_for, Ordering::Relaxed);
        let born = Born::of(self.born.load(Ordering::Relaxed).into());
        if self.is_measuring() || self.is_paused() {
            return;
        }
        let Some(class) = self.classes.number(self.jvmti, class) else { return };
        if born != Born::Anytime && !self.classes.is_chosen(class) {
            return;
        }
        let node = self.own_stack(env);
        // An object without a tag cannot be found again, so one sample is lost.
        let _one_less = self.jvmti.set_tag(object, Sample::new(class, node, stands_for, born).0);
    }

    /// From now on allocations of the calling thread are the agent's, or (`false`) the guest's again.
    pub(crate) fn measuring(&self, on: bool) {
        self.measuring.store(if on { thread_pointer() } else { 0 }, Ordering::Relaxed);
    }

    /// Is the calling thread the one that measures?
    pub(crate) fn is_measuring(&self) -> bool {
        self.measuring.load(Ordering::Relaxed) == thread_pointer()
    }

    /// The source of orders between boundaries; `None` if the stream is not open yet.
    pub(crate) fn channel(&self) -> Option<&Meeting> {
        self.channel.get().or_else(|| {
            let channel = session::channel()?;
            Some(self.channel.get_or_init(|| channel))
        })
    }

    /// Has an observer ordered a pause?
    fn is_paused(&self) -> bool {
        self.channel().is_some_and(|channel| channel.follow_order() & PAUSED != 0)
    }

    /// The bytes that a sampled allocation represents.
    pub(crate) fn stands_for(&self, bytes: u64) -> u64 {
        weight(bytes, self.interval.load(Ordering::Relaxed))
    }

    /// The stack of the calling thread.
    pub(crate) fn own_stack(&self, env: &Env<'_>) -> u32 {
        let mut room = [StackFrame::NONE; DEPTH];
        let frames = self.jvmti.own_stack(&mut room).unwrap_or_default();
        self.stacks.node(env, self.jvmti, frames)
    }

    /// From now on every allocation of these classes is sampled, as far as the volume of a window
    /// allows.
    pub(crate) fn look_closely(&self, env: &mut Env<'_>, classes: &[String]) {
        self.classes.choose_only(classes);
        let expected = self.window_bytes.load(Ordering::Relaxed);
        let all = self.event == Event::VmObjectAlloc || expected <= CLOSE_EVENTS * SMALL_OBJECT_BYTES;
        let interval = if all { 0 } else { u32::try_from(expected / CLOSE_EVENTS).unwrap_or(u32::MAX) };
        let before = self.interval.load(Ordering::Relaxed);
        self.set(if self.at_once { interval.min(before) } else { interval });
        self.born.store(Born::Close as u8, Ordering::Relaxed);
        if !self.at_once {
            let _no_sites = self.jvmti.enable(self.event);
            // A thread notices this when it asks for its next piece of heap to allocate from. A collection makes it
            // ask.
            let _later = self.jvmti.collect();
            return;
        }
        // JDK 17 does not shorten the countdown of a thread. This thread runs the test: an array that we allocate
        // ends its countdown.
        let bytes = before.saturating_mul(COUNTDOWNS).clamp(1, MAX_COUNTDOWN_BYTES);
        let ended = env.with_local_frame(2, |env| {
            env.new_byte_array(usize::try_from(bytes).unwrap_or(0))?;
            Ok::<(), jni::errors::Error>(())
        });
        if ended.is_err() {
            env.exception_clear();
        }
    }

    /// The first window of a survivor search is over, and the second one begins.
    pub(crate) fn look_again(&self) {
        self.born.store(Born::Late as u8, Ordering::Relaxed);
    }

    /// The search is over.
    pub(crate) fn look_as_usual(&self) {
        self.born.store(Born::Anytime as u8, Ordering::Relaxed);
        self.set(if self.at_once { self.usual } else { 0 });
        if !self.at_once {
            // As before: nothing is sampled.
            let _costs_more = self.jvmti.disable(self.event);
        }
    }

    fn set(&self, interval: u32) {
        self.interval.store(interval, Ordering::Relaxed);
        // A refusal is ignored, as in `new`.
        let _as_it_is = self.jvmti.set_sampling_interval(interval);
    }

    /// The first window begins after this many allocated bytes. Not called if the agent was attached late: threads
    /// that exist then are not sampled properly until their countdown is over.
    pub(crate) fn begin(&self, allocated: u64) {
        self.allocated.store(allocated, Ordering::Relaxed);
    }

    /// A window ends; `allocated`: bytes since the start. Sets the interval again. Returns a warning, once, if the
    /// samples do not match the allocated bytes.
    pub(crate) fn window_ends(&self, allocated: u64) -> Option<String> {
        self.set(self.interval.load(Ordering::Relaxed));
        let sampled = self.sampled_bytes.swap(0, Ordering::Relaxed);
        let before = self.allocated.swap(allocated, Ordering::Relaxed);
        let allocated = allocated.saturating_sub(before);
        self.window_bytes.store(allocated, Ordering::Relaxed);
        if !self.at_once || before == UNKNOWN {
            return None;
        }
        let expected = allocated.checked_div(self.usual.into()).unwrap_or(0);
        let off = sampled > allocated.saturating_mul(FOREIGN_FACTOR)
            || sampled.saturating_mul(FOREIGN_FACTOR) < allocated;
        if expected < ENOUGH_SAMPLES || !off || self.told_foreign.swap(true, Ordering::Relaxed) {
            return None;
        }
        Some(format!(
            "another agent changes the interval of sampled allocations: samples stand for {sampled} bytes where {allocated} were \
             allocated; allocation sites may be missing"
        ))
    }

    /// The live samples of these classes: for each class only those of the first window of the search, if there are
    /// any.
    pub(crate) fn alive(&self, classes: &[String]) -> Alive {
        let mut names: BTreeMap<ClassNumber, Option<String>> = BTreeMap::new();
        let mut born: BTreeMap<String, Born> = BTreeMap::new();
        let mut sites: BTreeMap<(String, Born, u32), (u64, u64)> = BTreeMap::new();
        for sample in self.tags() {
            let class = sample.class();
            let name = names.entry(class).or_insert_with(|| self.classes.name(class));
            let Some(name) = name.as_ref().filter(|name| classes.contains(name)) else { continue };
            let best = born.entry(name.clone()).or_insert(Born::Anytime);
            *best = sample.born().max(*best);
            let (samples, bytes) = sites.entry((name.clone(), sample.born(), sample.node())).or_default();
            *samples = (*samples).wrapping_add(1);
            *bytes = (*bytes).wrapping_add(sample.bytes());
        }
        let sites: Vec<Site> = sites
            .into_iter()
            .filter(|((class, when, _), _)| born.get(class) == Some(when))
            .map(|((class, _, node), (samples, bytes))| Site { class, node, samples, bytes })
            .collect();
        let stacks = self.stacks.untold(sites.iter().map(|site| site.node));
        Alive { stacks, sites }
    }

    /// The sites that hold most of the heap, largest first. Memory is short here, so sites without room are left out.
    pub(crate) fn largest(&self, most: usize) -> Vec<Site> {
        let mut samples = self.tags();
        samples.sort_unstable_by_key(|sample| (sample.class(), sample.node()));
        let mut sums: Vec<(Sample, u64, u64)> = Vec::new();
        for same in samples.chunk_by(|a, b| (a.class(), a.node()) == (b.class(), b.node())) {
            let Some(&first) = same.first().filter(|_| sums.try_reserve(1).is_ok()) else { break };
            let bytes = same.iter().fold(0_u64, |sum, sample| sum.saturating_add(sample.bytes()));
            sums.push((first, same.len() as u64, bytes));
        }
        sums.sort_unstable_by_key(|(site, _, bytes)| (core::cmp::Reverse(*bytes), site.class(), site.node()));
        let site = |(site, samples, bytes): (Sample, u64, u64)| {
            Some(Site { class: self.classes.name(site.class())?, node: site.node(), samples, bytes })
        };
        sums.into_iter().filter_map(site).take(most).collect()
    }

    /// The tags of all samples in the heap, or as many as there is room for. The visitor writes into memory that was
    /// reserved before.
    fn tags(&self) -> Vec<Sample> {
        let mut tags = Vec::new();
        if tags.try_reserve_exact(MAX_TAGS).is_err() {
            return tags;
        }
        let _what_was_seen = self.jvmti.iterate(HeapFilter::Untagged, None, &mut |_, _, tag| {
            if tags.len() == tags.capacity() {
                return Visit::Abort;
            }
            tags.extend(Sample::of_tag(*tag));
            Visit::Beside
        });
        tags
    }
}

impl Born {
    const fn of(number: u64) -> Self {
        match number {
            0 => Self::Anytime,
            1 => Self::Late,
            _ => Self::Close,
        }
    }
}

impl Sample {
    const MARK: i64 = 1 << 54;

    fn new(ClassNumber(class): ClassNumber, node: u32, bytes: u64, born: Born) -> Self {
        let born = i64::from(born as u8) << 52;
        Self(Self::MARK | born | i64::from(packed(bytes)) << 36 | i64::from(class) << 20 | i64::from(node))
    }

    const fn of_tag(tag: i64) -> Option<Self> {
        if tag & Self::MARK != 0 { Some(Self(tag)) } else { None }
    }

    const fn bits(self, from: u32, count: u32) -> u64 {
        (self.0.cast_unsigned() >> from) & !(u64::MAX << count)
    }

    fn born(self) -> Born {
        Born::of(self.bits(52, 2))
    }

    fn class(self) -> ClassNumber {
        ClassNumber(u16::try_from(self.bits(20, 16)).unwrap_or(0))
    }

    fn node(self) -> u32 {
        u32::try_from(self.bits(0, 20)).unwrap_or(0)
    }

    fn bytes(self) -> u64 {
        let packed = self.bits(36, 16);
        (packed & 0x7ff) << (packed >> 11) << 3
    }
}

/// Bytes in 16 bits, as a count of eights: 11 bits, shifted by up to 31. Exact for objects up to 16
/// KiB.
fn packed(bytes: u64) -> u16 {
    let eights = bytes.div_ceil(8);
    let shift = u64::BITS.saturating_sub(eights.leading_zeros()).saturating_sub(11).min(31);
    let mantissa = (eights >> shift).min(0x7ff);
    u16::try_from(u64::from(shift) << 11 | mantissa).unwrap_or(u16::MAX)
}
