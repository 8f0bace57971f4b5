//! Reports what fills the heap at an `OutOfMemoryError`, or when the heap is above the limit.
//!
//! The virtual machine reports the error in the thread that finds no room, before it throws. One heap walk counts the
//! classes, only the first time and with a time limit; it allocates nothing in the Java heap. If a dump was requested,
//! the virtual machine itself writes it just before, by its own option. A heap above the limit is no error yet: a
//! separate thread looks at it ([`look_beside`]), and the allocating thread goes on.

use std::sync::atomic::{AtomicBool, Ordering};

use jni::Env;
use memgate_ffi::heap;
use memgate_jvmti::{HeapFilter, OwnJvmti, Visit, raw};
use memgate_session as session;
use memgate_wire::Frame;
use memgate_wire::java::{ClassCount, JavaExhausted, JavaSite};

use super::frames::{self, Frames};
use super::limit::Limit;
use super::machine::Live;
use super::names::name_of;
use super::sites::{Site, Sites};
use super::vm;

/// Room that a full report needs in the agent's heap: names, stacks, and their frames.
const ROOM: usize = 256 << 10;
/// Room that a report of only the error needs.
const LITTLE_ROOM: usize = 4 << 10;
/// Maximum number of classes and of sites that are reported.
const MOST: usize = 10;
/// Limit for the processor time of the walk.
const MAX_CPU_NS: u64 = 5_000_000_000;
const LOCAL_REFERENCES: usize = 1 << 16;

/// Whether there was no room even to report the error. Then the next boundary reports it.
static UNTOLD: AtomicBool = AtomicBool::new(false);

/// The extent of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Everything,
    ThatItHappened,
    Nothing,
}

impl Told {
    fn with(has_room: impl Fn(usize) -> bool) -> Self {
        match (has_room(ROOM), has_room(LITTLE_ROOM)) {
            (true, _) => Self::Everything,
            (false, true) => Self::ThatItHappened,
            (false, false) => Self::Nothing,
        }
    }
}

/// The extent of a report for which there is room now.
fn room() -> Told {
    let told = Told::with(|bytes| heap::HEAP.has_room(bytes));
    UNTOLD.fetch_or(told == Told::Nothing, Ordering::Relaxed);
    told
}

/// Is there room to report that memory ran out? Otherwise the next boundary reports it.
pub(crate) fn has_room() -> bool {
    room() != Told::Nothing
}

/// At a boundary: reports an error for which there was no room before.
pub(crate) fn catch_up() {
    if UNTOLD.load(Ordering::Relaxed)
        && heap::HEAP.has_room(LITTLE_ROOM)
        && UNTOLD.swap(false, Ordering::Relaxed)
    {
        session::fails("memory ran out, and there was none to say so at once: what filled it is not known");
    }
}

/// The findings.
pub(crate) struct Exhausted {
    pub(crate) what: String,
    pub(crate) flags: u32,
    pub(crate) heap_used: Option<u64>,
    pub(crate) heap_max: Option<u64>,
    pub(crate) classes: Vec<Live>,
    pub(crate) sites: Vec<Site>,
    pub(crate) dump: Option<String>,
}

/// Starts a thread that looks at the heap and ends. Returns false if no thread could be started.
pub(crate) fn look_beside(env: &Env<'_>, look: impl FnOnce(&mut Env<'_>) + Send + 'static) -> bool {
    let Ok(machine) = env.get_java_vm() else { return false };
    let thread = std::thread::Builder::new().name("memgate-heap".to_owned());
    let started = thread.spawn(move || {
        let work = |env: &mut Env<'_>| -> Result<(), jni::errors::Error> {
            look(env);
            Ok(())
        };
        // A virtual machine that is ending accepts no more threads.
        let _told_so_far = machine.attach_current_thread_for_scope(work);
    });
    started.is_ok()
}

impl Exhausted {
    /// A report that the heap is above the limit. The contents of the heap are not known yet.
    pub(crate) fn told(what: &str, used: u64, max: u64) -> Self {
        Self {
            what: what.to_owned(),
            flags: 0,
            heap_used: Some(used),
            heap_max: Some(max),
            classes: Vec::new(),
            sites: Vec::new(),
            dump: None,
        }
    }

    /// Takes the figures; `closely`: walks the heap too.
    pub(crate) fn now(
        env: &mut Env<'_>,
        (flags, what): (u32, &str),
        sites: Option<&Sites>,
        closely: bool,
    ) -> Self {
        let closely = closely && heap::HEAP.has_room(ROOM);
        Self {
            what: what.to_owned(),
            flags,
            heap_used: vm::heap_used(env),
            heap_max: vm::heap_max(env),
            classes: if closely { largest(env).unwrap_or_default() } else { Vec::new() },
            sites: sites.filter(|_| closely).map(|sites| sites.largest(MOST)).unwrap_or_default(),
            dump: None,
        }
    }

    /// Writes as much into the stream as there is memory for, because a failed allocation would end the guest.
    pub(crate) fn tell(mut self, sites: Option<&Sites>) {
        frames::write(|frames| {
            // Checked before any stack is marked as reported.
            match room() {
                Told::Everything => {}
                Told::ThatItHappened => (self.classes, self.sites) = (Vec::new(), Vec::new()),
                Told::Nothing => return,
            }
            self.append_to(frames, sites);
        });
    }

    fn append_to(&self, frames: &mut Frames<'_>, sites: Option<&Sites>) {
        if let Some(sites) = sites.filter(|_| !self.sites.is_empty()) {
            frames.append_stacks(&sites.stacks.untold(self.sites.iter().map(|site| site.node)));
        }
        let classes = self.classes.iter().map(|live| ClassCount {
            class: frames.class_id(&live.class),
            instances: live.instances,
            bytes: live.bytes,
        });
        let classes = classes.collect();
        let sites = self.sites.iter().map(|site| JavaSite {
            stack: site.node,
            class: frames.class_id(&site.class),
            samples: site.samples,
            bytes: site.bytes,
        });
        let sites = sites.collect();
        frames.append(&Frame::JavaExhausted(JavaExhausted {
            what: self.what.clone(),
            flags: self.flags,
            heap_used: self.heap_used,
            heap_max: self.heap_max,
            classes,
            sites,
            dump: self.dump.clone(),
        }));
    }
}

/// The classes with most bytes; `None`: they could not be counted in time.
fn largest(env: &mut Env<'_>) -> Option<Vec<Live>> {
    let own = OwnJvmti::new(env)?;
    let jvmti = own.get();
    jvmti.add_capabilities(&[raw::CAN_TAG_OBJECTS]).ok()?;
    let mut limit = Limit::of(MAX_CPU_NS);
    let counted = env.with_local_frame(LOCAL_REFERENCES, |env| -> Result<_, jni::errors::Error> {
        let Ok(classes) = jvmti.loaded_classes(env) else { return Ok(None) };
        for (number, class) in (1..).zip(&classes) {
            // Classes without a number are not counted.
            let _left_out = jvmti.set_tag(class, number);
        }
        let mut counts: Vec<(usize, u64, u64)> = Vec::new();
        if counts.try_reserve_exact(classes.len()).is_err() {
            return Ok(None);
        }
        counts.extend((0..classes.len()).map(|class| (class, 0, 0)));
        let mut late = false;
        let walked = jvmti.iterate(HeapFilter::ClassUntagged, None, &mut |class, bytes, _| {
            let place = usize::try_from(class.saturating_sub(1)).ok();
            if let Some((_, instances, sum)) = place.and_then(|place| counts.get_mut(place)) {
                *instances = instances.saturating_add(1);
                *sum = sum.saturating_add(bytes);
            }
            late = limit.is_late();
            if late { Visit::Abort } else { Visit::Beside }
        });
        if walked.is_err() || late {
            return Ok(None);
        }
        counts.sort_unstable_by_key(|&(class, _, bytes)| (core::cmp::Reverse(bytes), class));
        let live = |&(class, instances, bytes): &(usize, u64, u64)| {
            Some(Live { class: name_of(jvmti, classes.get(class)?), instances, bytes })
        };
        Ok(Some(counts.iter().take(MOST).filter_map(live).collect()))
    });
    counted.ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_little_room_it_is_told_without_what_fills_the_heap() {
        for (room, told) in [
            (ROOM, Told::Everything),
            (ROOM - 1, Told::ThatItHappened),
            (LITTLE_ROOM, Told::ThatItHappened),
            (LITTLE_ROOM - 1, Told::Nothing),
        ] {
            assert_eq!(Told::with(|bytes| bytes <= room), told, "{room}");
        }
    }
}
