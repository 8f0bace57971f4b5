//! Follow mode: every allocation of chosen classes, and the end of each of these objects.
//!
//! Data flow: sampling at interval 0 shows every allocation; one of a chosen class gets a number as
//! its tag ([`Follow::born`]) → the virtual machine tells the tags of collected objects
//! ([`Follow::freed`]) → both go into a [`Ring`] → whoever fills a part of it writes what is there
//! into the stream, if nobody else is writing. Nobody waits for room: what finds none is counted as
//! lost. At a boundary a walk over the heap counts the followed objects that are alive, and the
//! ends of all others are waited for ([`Follow::catch_up`]).
//!
//! Whoever looks on may pause, resume and reset through a word of the control page, which each
//! allocation reads ([`Follow::goes_on`]).

use std::sync::Once;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use jni::Env;
use jni::objects::JObject;
use memgate_ffi::process;
use memgate_ffi::shared::{futex_wait, futex_wake};
use memgate_jvmti::{HeapFilter, Jvmti, Visit};
use memgate_wire::options::FollowOptions;
use memgate_wire::spool::follow::{BEGINS, EVENT, PAUSED, PAUSES, RESET, RESUMES, is_reset};

use super::classes::ClassNumber;
use super::ring::{Ring, WORDS};
use super::sites::Sites;
use crate::session;

/// Events between two times that what has come is written.
const PER_WRITING: u64 = 2048;

/// Tag of the first followed object.
const FOLLOWED: i64 = 1 << 60;

/// The virtual machine tells of ends in a thread of its own, soon after a collection, and on the
/// busiest machine not later than this.
const LATEST: Duration = Duration::from_secs(60);

/// Following as it was asked for.
pub(crate) struct Follow {
    options: FollowOptions,
    ring: Ring,
    /// Objects of chosen classes that were seen, and those that were taken.
    seen: AtomicU64,
    taken: AtomicU64,
    lost: AtomicU64,
    /// Objects that got their tag, and those of them that are gone.
    tagged: AtomicU64,
    gone: AtomicU64,
    /// Moves with every end while somebody waits for ends, and how many wait.
    ends: AtomicU32,
    waiting: AtomicU32,
    /// That it follows was told.
    begun: Once,
    /// The last order.
    obeyed: AtomicU32,
}

/// What happened to a followed object.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Happened {
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
        }
    }

    /// Does what was ordered meanwhile. False: what is allocated now is not taken.
    pub(crate) fn goes_on(&self, sites: &Sites) -> bool {
        let Some(channel) = sites.channel() else { return true };
        self.begun.call_once(|| session::java_event(EVENT, BEGINS));
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
        // What came before stands before it in the stream.
        session::java_objects(self, sites, true);
        if is_reset(before, order) {
            session::java_event(EVENT, RESET);
        }
        match (before & PAUSED, order & PAUSED) {
            (0, PAUSED) => session::java_event(EVENT, PAUSES),
            (PAUSED, 0) => session::java_event(EVENT, RESUMES),
            _ => {}
        }
    }

    /// An object of a chosen class is allocated, in this thread.
    pub(crate) fn born(
        &self,
        env: &Env<'_>,
        (sites, jvmti): (&Sites, Jvmti),
        object: &JObject<'_>,
        class: ClassNumber,
        bytes: u64,
    ) {
        if bytes < self.options.at_least
            || !self.seen.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.options.every)
        {
            return;
        }
        let number = self.taken.fetch_add(1, Ordering::Relaxed) + 1;
        if number > self.options.at_most {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let node = sites.own_stack(env);
        let tag = FOLLOWED + number.cast_signed();
        // Of an object without its number nobody would hear again.
        if jvmti.set_tag(object, tag).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.tagged.fetch_add(1, Ordering::Relaxed);
        let class_and_node = u64::from(class.0) << 32 | u64::from(node);
        self.put([number << 1, class_and_node, bytes, process::monotonic_ns()], sites);
    }

    /// An object is gone. Neither JNI nor JVMTI here.
    pub(crate) fn freed(&self, tag: i64, sites: &Sites) {
        if let Ok(number) = u64::try_from(tag - FOLLOWED) {
            self.put([number << 1 | 1, 0, 0, process::monotonic_ns()], sites);
            // Counted when it is in the queue, or lost.
            self.gone.fetch_add(1, Ordering::SeqCst);
            if self.waiting.load(Ordering::SeqCst) > 0 {
                self.ends.fetch_add(1, Ordering::SeqCst);
                futex_wake(&self.ends);
            }
        }
    }

    fn put(&self, event: [u64; WORDS], sites: &Sites) {
        let number = self.ring.push(event).or_else(|| {
            session::java_objects(self, sites, false);
            self.ring.push(event)
        });
        match number {
            Some(number) if number % PER_WRITING == PER_WRITING - 1 => {
                session::java_objects(self, sites, false);
            }
            Some(_) => {}
            None => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The next thing that happened. For whoever holds the session.
    pub(crate) fn next(&self) -> Option<Happened> {
        let [object, class_and_node, bytes, at_ns] = self.ring.pop()?;
        if object & 1 == 1 {
            return Some(Happened::Freed { object: object >> 1, at_ns });
        }
        let class = ClassNumber(u16::try_from(class_and_node >> 32).unwrap_or(0));
        let node = u32::try_from(class_and_node & 0xffff_ffff).unwrap_or(0);
        Some(Happened::Born { object: object >> 1, class, node, bytes, at_ns })
    }

    /// Events that there was no room for so far, and objects beyond the limit.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Waits until the virtual machine has told the ends it has kept back, and writes everything
    /// down.
    ///
    /// Not by switching the event off and on, which would have it tell them at once: in HotSpot (17
    /// and 25) its own thread that tells of ends waits then for ours without stopping for a
    /// safepoint, ours stops for one, and nothing ever moves again.
    pub(crate) fn catch_up(&self, jvmti: Jvmti, sites: &Sites) {
        let (tagged, newest) = (self.tagged.load(Ordering::Acquire), self.taken.load(Ordering::Acquire));
        let mut alive = 0;
        let walked = jvmti.iterate(HeapFilter::Untagged, None, &mut |_, _, tag| {
            let number = u64::try_from(*tag - FOLLOWED).unwrap_or(0);
            alive += u64::from((1..=newest).contains(&number));
            Visit::Beside
        });
        if walked.is_err() || !self.are_gone(tagged.saturating_sub(alive)) {
            session::fails("the virtual machine does not tell which followed objects are gone");
        }
        session::java_objects(self, sites, true);
    }

    /// Waits until so many objects are gone.
    fn are_gone(&self, expected: u64) -> bool {
        let until_ns = process::monotonic_ns() + u64::try_from(LATEST.as_nanos()).unwrap_or(u64::MAX);
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
