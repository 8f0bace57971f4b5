//! Follow mode: reports every allocation of chosen classes, and the end of each of these objects.
//!
//! Data flow: sampling at interval 0 shows every allocation. An object of a chosen class gets a number as its tag
//! ([`Follow::born`]) → the virtual machine reports the tags of collected objects ([`Follow::freed`]) → both events go
//! into a [`Ring`] → a thread that fills a part of the ring writes the events into the stream, unless another thread is
//! writing. No thread waits for room: an event without room is counted as lost. At a boundary a heap walk counts the
//! followed objects that are alive, and the agent waits for the ends of all others ([`Follow::catch_up`]).
//!
//! An observer may pause, resume and reset through a word of the control page. Each allocation reads that word
//! ([`Follow::goes_on`]).

use std::collections::BTreeMap;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use jni::Env;
use jni::objects::JObject;
use memgate_ffi::lock::Lock;
use memgate_ffi::process;
use memgate_ffi::shared::{futex_wait, futex_wake};
use memgate_jvmti::{HeapFilter, Jvmti, Visit};
use memgate_session as session;
use memgate_wire::Frame;
use memgate_wire::java::{JavaObjects, ObjectBorn, ObjectFreed};
use memgate_wire::options::FollowOptions;
use memgate_wire::spool::follow::{BEGINS, EVENT, PAUSED, PAUSES, RESET, RESUMES, is_reset};

use super::classes::ClassNumber;
use super::frames::{self, Frames};
use super::ring::{Ring, WORDS};
use super::sites::Sites;

/// Number of events after which the ring is written into the stream.
const PER_WRITING: u64 = 2048;
const OBJECTS_PER_FRAME: usize = 4096;

/// Tag of the first followed object.
const FOLLOWED: i64 = 1 << 60;

/// Longest wait for the virtual machine to report ends. It does so in its own thread soon after a collection, and
/// within this time even on the busiest machine.
const LATEST: Duration = Duration::from_secs(60);

/// State of follow mode.
pub(crate) struct Follow {
    options: FollowOptions,
    ring: Ring,
    /// Number of objects of chosen classes that were seen, and of those that were taken.
    seen: AtomicU64,
    taken: AtomicU64,
    lost: AtomicU64,
    /// Number of objects that got their tag, and of those of them that are gone.
    tagged: AtomicU64,
    gone: AtomicU64,
    /// Changes with every end while a thread waits for ends; and the number of waiting threads.
    ends: AtomicU32,
    waiting: AtomicU32,
    /// Whether the beginning was reported.
    begun: Once,
    /// The last order.
    obeyed: AtomicU32,
    /// Locked only by the thread that holds the session.
    told: Lock<Told>,
}

/// The data about followed objects that the stream already contains: the numbers of their classes, and the reported
/// number of lost events.
#[derive(Default)]
struct Told {
    /// The process of that stream.
    process: u32,
    classes: BTreeMap<ClassNumber, u32>,
    lost: Option<u64>,
}

/// What happened to a followed object.
#[derive(Debug, Clone, Copy)]
enum Happened {
    /// It was allocated.
    Born { object: u64, class: ClassNumber, node: u32, bytes: u64, at_ns: u64 },
    /// It is gone.
    Freed { object: u64, at_ns: u64 },
}

impl Follow {
    pub(crate) fn new(options: FollowOptions) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            options,
            ring: Ring::new(),
            seen: zero(),
            taken: zero(),
            lost: zero(),
            tagged: zero(),
            gone: zero(),
            ends: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            begun: Once::new(),
            obeyed: AtomicU32::new(0),
            told: Lock::new(Told::default()),
        }
    }

    /// Obeys new orders. Returns false if objects that are allocated now are not taken.
    pub(crate) fn goes_on(&self, sites: &Sites) -> bool {
        let Some(channel) = sites.channel() else { return true };
        self.begun.call_once(|| session::event(EVENT, BEGINS));
        let order = channel.follow_order();
        let before = self.obeyed.load(Ordering::Acquire);
        if order != before {
            let first = self.obeyed.compare_exchange(before, order, Ordering::AcqRel, Ordering::Relaxed);
            if first.is_ok() {
                self.obey(before, order, sites);
                channel.follow_obeyed(order);
            }
        }
        order & PAUSED == 0
    }

    fn obey(&self, before: u32, order: u32, sites: &Sites) {
        // Events from before the order are written to the stream before it.
        self.write_down(sites);
        if is_reset(before, order) {
            session::event(EVENT, RESET);
        }
        match (before & PAUSED, order & PAUSED) {
            (0, PAUSED) => session::event(EVENT, PAUSES),
            (PAUSED, 0) => session::event(EVENT, RESUMES),
            _ => {}
        }
    }

    /// An object of a chosen class is allocated, in this thread.
    pub(crate) fn born(
        &self,
        env: &Env<'_>,
        (sites, jvmti): (&Sites, Jvmti<'_>),
        object: &JObject<'_>,
        class: ClassNumber,
        bytes: u64,
    ) {
        if bytes < self.options.at_least
            || !self.seen.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.options.every)
        {
            return;
        }
        let number = self.taken.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if number > self.options.at_most {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let node = sites.own_stack(env);
        let tag = FOLLOWED.saturating_add(number.cast_signed());
        // The end of an object without a tag is never reported.
        if jvmti.set_tag(object, tag).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.tagged.fetch_add(1, Ordering::Relaxed);
        let class_and_node = u64::from(class.0) << 32 | u64::from(node);
        self.put([number << 1, class_and_node, bytes, process::monotonic_ns()], sites);
    }

    /// An object is gone. May call neither JNI nor JVMTI.
    pub(crate) fn freed(&self, tag: i64, sites: &Sites) {
        if let Ok(number) = u64::try_from(tag.saturating_sub(FOLLOWED)) {
            self.put([number << 1 | 1, 0, 0, process::monotonic_ns()], sites);
            // Counted only after its event is in the queue, or lost.
            self.gone.fetch_add(1, Ordering::SeqCst);
            if self.waiting.load(Ordering::SeqCst) > 0 {
                self.ends.fetch_add(1, Ordering::SeqCst);
                futex_wake(&self.ends);
            }
        }
    }

    fn put(&self, event: [u64; WORDS], sites: &Sites) {
        let number = self.ring.push(event).or_else(|| {
            self.write_down_if_free(sites);
            self.ring.push(event)
        });
        match number {
            Some(number) if number % PER_WRITING == PER_WRITING - 1 => {
                self.write_down_if_free(sites);
            }
            Some(_) => {}
            None => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The next event. Called only by the thread that holds the session.
    fn next(&self) -> Option<Happened> {
        let [object, class_and_node, bytes, at_ns] = self.ring.pop()?;
        if object & 1 == 1 {
            return Some(Happened::Freed { object: object >> 1, at_ns });
        }
        let class = ClassNumber(u16::try_from(class_and_node >> 32).unwrap_or(0));
        let node = u32::try_from(class_and_node & 0xffff_ffff).unwrap_or(0);
        Some(Happened::Born { object: object >> 1, class, node, bytes, at_ns })
    }

    /// Writes all events into the stream.
    pub(crate) fn write_down(&self, sites: &Sites) {
        frames::write(|frames| self.append_to(frames, sites));
    }

    /// The same, unless another thread is writing.
    fn write_down_if_free(&self, sites: &Sites) {
        frames::try_write(|frames| self.append_to(frames, sites));
    }

    /// Appends all events of followed objects since the last call, after the classes and stacks they need.
    fn append_to(&self, frames: &mut Frames<'_>, sites: &Sites) {
        let told = &mut *self.told.lock();
        if told.process != frames.process() {
            *told = Told { process: frames.process(), ..Told::default() };
        }
        let base_ns = process::monotonic_ns();
        loop {
            let mut frame = JavaObjects {
                base_ns,
                lost: self.lost.load(Ordering::Relaxed),
                born: Vec::new(),
                freed: Vec::new(),
            };
            // The size of a frame is limited. A call ends after a frame that is not full and leaves later events for
            // the next call, because the writer is a thread of the guest.
            for _ in 0..OBJECTS_PER_FRAME {
                match self.next() {
                    Some(Happened::Born { object, class, node, bytes, at_ns }) => {
                        frame.base_ns = frame.base_ns.min(at_ns);
                        let class = told.class(frames, sites, class);
                        frame.born.push(ObjectBorn { object, class, stack: node, bytes, after_ns: at_ns });
                    }
                    Some(Happened::Freed { object, at_ns }) => {
                        frame.base_ns = frame.base_ns.min(at_ns);
                        frame.freed.push(ObjectFreed { object, after_ns: at_ns });
                    }
                    None => break,
                }
            }
            let events = frame.born.len().saturating_add(frame.freed.len());
            let told_lost = told.lost.replace(frame.lost) == Some(frame.lost);
            if events == 0 && told_lost {
                return;
            }
            for at in frame
                .born
                .iter_mut()
                .map(|b| &mut b.after_ns)
                .chain(frame.freed.iter_mut().map(|f| &mut f.after_ns))
            {
                *at = at.saturating_sub(frame.base_ns);
            }
            frames.append_stacks(&sites.stacks.untold(frame.born.iter().map(|born| born.stack)));
            frames.append(&Frame::JavaObjects(frame));
            frames.flush();
            if events < OBJECTS_PER_FRAME {
                return;
            }
        }
    }

    /// Waits until the virtual machine has reported all pending ends, and writes all events.
    ///
    /// Switching the event off and on would report them at once, but can block HotSpot (17 and 25) forever: HotSpot's
    /// thread that reports ends then waits for ours without stopping for a safepoint, while ours stops for a safepoint.
    pub(crate) fn catch_up(&self, jvmti: Jvmti<'_>, sites: &Sites) {
        let (tagged, newest) = (self.tagged.load(Ordering::Acquire), self.taken.load(Ordering::Acquire));
        let mut alive = 0_u64;
        let walked = jvmti.iterate(HeapFilter::Untagged, None, &mut |_, _, tag| {
            let number = u64::try_from((*tag).saturating_sub(FOLLOWED)).unwrap_or(0);
            alive = alive.saturating_add(u64::from((1..=newest).contains(&number)));
            Visit::Beside
        });
        if walked.is_err() || !self.are_gone(tagged.saturating_sub(alive)) {
            session::fails("the virtual machine does not tell which followed objects are gone");
        }
        self.write_down(sites);
    }

    /// Waits until `expected` objects are gone. Returns false if they were not in time.
    fn are_gone(&self, expected: u64) -> bool {
        let until_ns =
            process::monotonic_ns().saturating_add(u64::try_from(LATEST.as_nanos()).unwrap_or(u64::MAX));
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let all = loop {
            let seen = self.ends.load(Ordering::SeqCst);
            let left_ns = until_ns.saturating_sub(process::monotonic_ns());
            let all = self.gone.load(Ordering::SeqCst) >= expected;
            if all || left_ns == 0 {
                break all;
            }
            futex_wait(&self.ends, seen, Some(Duration::from_nanos(left_ns)));
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        all
    }
}

impl Told {
    fn class(&mut self, frames: &mut Frames<'_>, sites: &Sites, class: ClassNumber) -> u32 {
        if let Some(&id) = self.classes.get(&class) {
            return id;
        }
        let id = frames.class_id(&sites.classes.name(class).unwrap_or_default());
        self.classes.insert(class, id);
        id
    }
}
