//! An `OutOfMemoryError`, or a heap above the limit: what fills it at this moment.
//!
//! The virtual machine tells in the thread that finds no room, before it throws. Classes are
//! counted in one walk over the heap, the first time only and for a bounded time: nothing is
//! allocated in the Java heap for it. A dump, where one was asked for, is written by the virtual
//! machine itself just before, by its own option. Above the limit nothing is lost yet: a thread of
//! its own looks ([`look_beside`]), and the one that allocates goes on.

use jni::Env;
use memgate_ffi::heap;
use memgate_jvmti::{HeapFilter, OwnJvmti, Visit, raw};
use memgate_wire::Frame;
use memgate_wire::java::{ClassCount, JavaExhausted, JavaSite};

use super::frames::{self, Frames};
use super::limit::Limit;
use super::machine::Live;
use super::names::name_of;
use super::sites::{Alive, Sites};
use super::vm;

/// Room in the agent's heap for what is told: names, stacks, and their frames.
const ROOM: usize = 256 << 10;
/// Classes and sites that are told.
const MOST: usize = 10;
/// Processor time of the walk.
const MAX_CPU_NS: u64 = 5_000_000_000;
const LOCAL_REFERENCES: usize = 1 << 16;

/// What was found.
pub(crate) struct Exhausted {
    pub(crate) what: String,
    pub(crate) flags: u32,
    pub(crate) heap_used: Option<u64>,
    pub(crate) heap_max: Option<u64>,
    pub(crate) classes: Vec<Live>,
    pub(crate) alive: Alive,
    pub(crate) dump: Option<String>,
}

/// Starts a thread that looks at the heap and ends. False: there is none to be had.
pub(crate) fn look_beside(env: &Env<'_>, look: impl FnOnce(&mut Env<'_>) + Send + 'static) -> bool {
    let Ok(machine) = env.get_java_vm() else { return false };
    let thread = std::thread::Builder::new().name("memgate-heap".to_owned());
    let started = thread.spawn(move || {
        let work = |env: &mut Env<'_>| -> Result<(), jni::errors::Error> {
            look(env);
            Ok(())
        };
        // A virtual machine that ends meanwhile lets nobody in any more.
        let _told_so_far = machine.attach_current_thread_for_scope(work);
    });
    started.is_ok()
}

impl Exhausted {
    /// Above the limit: nobody has looked yet.
    pub(crate) fn told(what: &str, used: u64, max: u64) -> Self {
        Self {
            what: what.to_owned(),
            flags: 0,
            heap_used: Some(used),
            heap_max: Some(max),
            classes: Vec::new(),
            alive: Alive::default(),
            dump: None,
        }
    }

    /// Looks around; `closely`: at the heap too.
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
            alive: sites.filter(|_| closely).map(|sites| sites.largest(MOST)).unwrap_or_default(),
            dump: None,
        }
    }

    /// Writes it into the stream, if there is memory for that: what asks for it in vain ends the
    /// guest.
    pub(crate) fn tell(&self) {
        if heap::HEAP.has_room(ROOM) {
            frames::write(|frames| self.append_to(frames));
        }
    }

    fn append_to(&self, frames: &mut Frames<'_>) {
        frames.append_stacks(&self.alive.stacks);
        let classes = self.classes.iter().map(|live| ClassCount {
            class: frames.class_id(&live.class),
            instances: live.instances,
            bytes: live.bytes,
        });
        let classes = classes.collect();
        let sites = self.alive.sites.iter().map(|site| JavaSite {
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
            // What has no number is not counted.
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
