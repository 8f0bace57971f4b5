//! Boundaries of a Java virtual machine: what was measured becomes frames before the boundary.

use std::collections::BTreeMap;

use memgate_ffi::process;
use memgate_wire::java::{
    ClassCount, ClassName, Classes, HeapHistogram, HistogramScope, Holders, JavaExhausted, JavaObjects,
    JavaSite, JavaSites, JavaStacks, JavaState, JvmInfo, ObjectBorn, ObjectFreed,
};
use memgate_wire::options::Options;
use memgate_wire::spool::order;
use memgate_wire::{BoundaryKind, ErrorCode, ErrorFrame, Event, Frame, Outcome, ProcessRole};

use super::stream::{Known, Offers, Session};
use super::{OWN, SESSION, TESTS, Waiting, Work, at_exit, begin, is_confirming, publish, reach};
use crate::carrier::Meeting;
use crate::jvm::{Alive, ClassNumber, Exhausted, Follow, Happened, Live, Measured, Site, Sites};

/// Records of a frame: names of classes are written apart, so that they are small.
const RECORDS_PER_PART: usize = 16_384;
const NAMES_PER_FRAME: usize = 2048;
const OBJECTS_PER_FRAME: usize = 4096;
/// Windows in a row in which a class has to grow to be worth an explanation.
const GROWING_TIMES: u32 = 3;

/// What the stream already knows of classes.
#[derive(Default)]
pub(super) struct KnownClasses {
    ids: BTreeMap<String, u32>,
    /// The last histogram: instances and bytes by class.
    last: BTreeMap<u32, (u64, u64)>,
    /// Classes that grew in the last histograms: in how many in a row, and by how many bytes in
    /// them all.
    growing: BTreeMap<u32, (u32, u64)>,
    /// Classes of followed objects, and how many lost events were told.
    followed: BTreeMap<ClassNumber, u32>,
    told_lost: Option<u64>,
}

/// The virtual machine is ready: opens the stream.
pub(crate) fn start_java(options: Options) {
    open(options, None);
}

/// The virtual machine cannot be measured: says so, and nothing more.
pub(crate) fn java_is_blind(options: Options, why: &str) {
    open(options, Some(why.to_owned()));
}

fn open(options: Options, blind: Option<String>) {
    let _work = Work::new();
    // Preloaded as well: one process has one stream.
    if SESSION.lock().is_some() {
        return;
    }
    if !process::at_exit(at_exit) || !OWN.set() {
        return;
    }
    let offers = Offers { blind, java: true, ..Offers::default() };
    let Some(session) = Session::open(options, ProcessRole::Main, offers, Known::default()) else { return };
    publish(&session);
    *SESSION.lock() = Some(session);
    reach(BoundaryKind::ProcessStart, "", "", None);
}

/// What reports the tests is known now, and with it the class path they run with.
pub(crate) fn java_info(info: JvmInfo) {
    let Some(_work) = begin() else { return };
    if let Some(session) = SESSION.lock().as_mut() {
        session.append(&Frame::JvmInfo(info));
        session.flush();
    }
}

/// A test of the build's own run: nothing is measured and nobody has orders, so the guest does not
/// stand still.
pub(crate) fn java_passes(kind: BoundaryKind, suite: &str, test: &str, outcome: Option<Outcome>) {
    let Some(_work) = begin() else { return };
    TESTS.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
    if let Some(session) = SESSION.lock().as_mut() {
        if kind == BoundaryKind::TestEnd {
            session.append_java_modules();
        }
        session.boundary(kind, suite, test, outcome);
        if kind == BoundaryKind::TestEnd {
            session.close_window(suite, test);
        }
    }
}

/// A test or a window ended; returns the orders of the harness. Where these are to settle a window
/// that was measured, it stays open: its second end comes without a measurement of Java's.
pub(crate) fn java_test_ends(
    suite: &str,
    test: &str,
    outcome: Option<Outcome>,
    measured: Option<&Measured>,
) -> u32 {
    let Some(_work) = begin() else { return 0 };
    TESTS.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
    let waiting = {
        let mut guard = SESSION.lock();
        let Some(session) = guard.as_mut() else { return 0 };
        if let Some(measured) = measured {
            session.append_measured(measured);
        }
        session.boundary(BoundaryKind::TestEnd, suite, test, outcome);
        Waiting::of(session, BoundaryKind::TestEnd)
    };
    let waited = waiting.is_some();
    let orders = match waiting.and_then(|w| w.wait()) {
        Some(bits) => bits,
        // A confirming run repeats its test until it is told to stop: without a harness that would
        // be for ever.
        None if waited && is_confirming() => order::STOP,
        None => 0,
    };
    let ends_again = measured.is_some() && orders & order::SETTLE != 0;
    if let Some(session) = SESSION.lock().as_mut().filter(|_| !ends_again) {
        session.close_window(suite, test);
    }
    orders
}

/// The classes that grew in each of the last windows, those with most bytes first: `own` of the
/// project that tests with `suite`, `most` of all others, and as many more that are not the JDK's
/// as there are less of the project.
pub(crate) fn java_growing(suite: &str, most: usize, own: usize) -> Vec<String> {
    let Some(_work) = begin() else { return Vec::new() };
    let guard = SESSION.lock();
    let Some(classes) = guard.as_ref().map(|session| &session.classes) else { return Vec::new() };
    let mut growing: Vec<(u64, u32)> = classes
        .growing
        .iter()
        .filter(|(_, (times, _))| *times >= GROWING_TIMES)
        .map(|(&id, &(_, bytes))| (bytes, id))
        .collect();
    growing.sort_unstable_by(|a, b| b.cmp(a));
    let names: BTreeMap<u32, &String> = classes.ids.iter().map(|(name, id)| (*id, name)).collect();
    let name = |(_, id): (u64, u32)| names.get(&id).copied().cloned();
    let package = package_of(suite);
    let is_project = |name: &String| !package.is_empty() && name.starts_with(&package);
    let (mut chosen, others): (Vec<String>, Vec<String>) =
        growing.into_iter().filter_map(name).partition(is_project);
    chosen.truncate(own);
    let left = own.saturating_sub(chosen.len());
    let mut others = others.into_iter();
    chosen.extend(others.by_ref().take(most));
    chosen.extend(others.filter(|name| !is_of_the_jdk(name)).take(left));
    chosen
}

/// The first two parts of the package of a test class: what the project's own classes begin with.
fn package_of(suite: &str) -> String {
    let package = suite.rsplit_once('.').map_or("", |(package, _)| package);
    package.split('.').filter(|part| !part.is_empty()).take(2).map(|part| format!("{part}.")).collect()
}

/// Arrays of primitive types and everything in a package of the JDK, or of Android as Robolectric
/// brings it.
fn is_of_the_jdk(class: &str) -> bool {
    const PACKAGES: [&str; 10] = [
        "java.",
        "javax.",
        "jdk.",
        "sun.",
        "com.sun.",
        "android.",
        "com.android.",
        "dalvik.",
        "libcore.",
        "org.robolectric.",
    ];
    let primitive = !class.contains('.') && class.starts_with(|c: char| c.is_lowercase());
    primitive || PACKAGES.iter().any(|package| class.starts_with(package))
}

/// Something could not be measured.
pub(crate) fn fails(why: &str) {
    let Some(_work) = begin() else { return };
    if let Some(session) = SESSION.lock().as_mut() {
        session.append(&Frame::Error(ErrorFrame { code: ErrorCode::Other, text: why.to_owned() }));
        session.flush();
    }
}

/// Something happened that has a name.
pub(crate) fn java_event(name: &str, detail: &str) {
    let Some(_work) = begin() else { return };
    if let Some(session) = SESSION.lock().as_mut() {
        session.append(&Frame::Event(Event { name: name.to_owned(), detail: detail.to_owned() }));
        session.flush();
    }
}

/// Out of memory: what was seen at that moment.
pub(crate) fn java_exhausted(exhausted: &Exhausted) {
    let Some(_work) = begin() else { return };
    if let Some(session) = SESSION.lock().as_mut() {
        session.append_exhausted(exhausted);
        session.flush();
    }
}

/// Used bytes of the heap, between boundaries. A thread of the guest's: where another one is
/// writing, the point is left out.
pub(crate) fn java_heap(used: u64) {
    let Some(_work) = begin() else { return };
    if let Some(session) = SESSION.try_lock().as_deref_mut().and_then(Option::as_mut) {
        session.append(&Frame::JavaState(JavaState { heap_used: Some(used), ..JavaState::default() }));
        session.flush();
    }
}

/// Where orders come from that are no answer to a boundary.
pub(crate) fn java_channel() -> Option<Meeting> {
    let _work = begin()?;
    SESSION.lock().as_ref().map(|session| session.carrier.meeting())
}

/// Writes what happened to followed objects. `wait`: also if another thread has the session at this
/// moment.
pub(crate) fn java_objects(follow: &Follow, sites: &Sites, wait: bool) {
    let Some(_work) = begin() else { return };
    let mut guard = if wait { Some(SESSION.lock()) } else { SESSION.try_lock() };
    if let Some(session) = guard.as_deref_mut().and_then(Option::as_mut) {
        session.append_objects(follow, sites);
    }
}

impl Session {
    /// The differences to the last histogram, and the state, as frames of the boundary that comes
    /// next.
    fn append_measured(&mut self, measured: &Measured) {
        let boundary = self.sequence + 1;
        self.boundary_ns += measured.state.boundary_ns;
        let scope = if self.classes.last.is_empty() { HistogramScope::All } else { HistogramScope::Changes };
        let (names, records) = self.classes.differences(&measured.live);
        for chunk in names.chunks(NAMES_PER_FRAME) {
            self.append(&Frame::Classes(Classes { classes: chunk.to_vec() }));
        }
        // A heap that is as it was is told too: no histogram at all means that none could be taken.
        let nothing: &[ClassCount] = &[];
        let parts =
            if records.is_empty() { vec![nothing] } else { records.chunks(RECORDS_PER_PART).collect() };
        for (part, chunk) in (0..).zip(parts) {
            let records = chunk.to_vec();
            self.append(&Frame::HeapHistogram(HeapHistogram { boundary, part, scope, records }));
        }
        for found in &measured.found {
            let Some(&class) = self.classes.ids.get(&found.class) else { continue };
            self.append(&Frame::Holders(Holders {
                boundary,
                class,
                instances: found.instances,
                paths: found.paths.clone(),
                cut: found.cut.clone(),
            }));
        }
        self.append_sites(boundary, &measured.alive);
        let mut state = measured.state.clone();
        state.boundary = boundary;
        self.append(&Frame::JavaState(state));
    }

    fn append_exhausted(&mut self, exhausted: &Exhausted) {
        self.append_java_stacks(&exhausted.alive.stacks);
        let classes = exhausted.classes.iter().map(|live| ClassCount {
            class: self.class_id(&live.class),
            instances: live.instances,
            bytes: live.bytes,
        });
        let classes = classes.collect();
        let sites = exhausted.alive.sites.iter().map(|site| JavaSite {
            stack: site.node,
            class: self.class_id(&site.class),
            samples: site.samples,
            bytes: site.bytes,
        });
        let sites = sites.collect();
        self.append(&Frame::JavaExhausted(JavaExhausted {
            what: exhausted.what.clone(),
            flags: exhausted.flags,
            heap_used: exhausted.heap_used,
            heap_max: exhausted.heap_max,
            classes,
            sites,
            dump: exhausted.dump.clone(),
        }));
    }

    /// Everything that happened to followed objects since the last time, behind the classes and
    /// stacks it needs.
    fn append_objects(&mut self, follow: &Follow, sites: &Sites) {
        let base_ns = process::monotonic_ns();
        loop {
            let mut frame = JavaObjects { base_ns, lost: follow.lost(), born: Vec::new(), freed: Vec::new() };
            // What happened meanwhile is for the next time: the writer is a thread of the guest's.
            for _ in 0..OBJECTS_PER_FRAME {
                match follow.next() {
                    Some(Happened::Born { object, class, node, bytes, at_ns }) => {
                        frame.base_ns = frame.base_ns.min(at_ns);
                        let class = self.followed_class(sites, class);
                        frame.born.push(ObjectBorn { object, class, stack: node, bytes, after_ns: at_ns });
                    }
                    Some(Happened::Freed { object, at_ns }) => {
                        frame.base_ns = frame.base_ns.min(at_ns);
                        frame.freed.push(ObjectFreed { object, after_ns: at_ns });
                    }
                    None => break,
                }
            }
            let events = frame.born.len() + frame.freed.len();
            let told_lost = self.classes.told_lost.replace(frame.lost) == Some(frame.lost);
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
            self.append_java_stacks(&sites.stacks.untold(frame.born.iter().map(|born| born.stack)));
            self.append(&Frame::JavaObjects(frame));
            self.flush();
            if events < OBJECTS_PER_FRAME {
                return;
            }
        }
    }

    fn followed_class(&mut self, sites: &Sites, class: ClassNumber) -> u32 {
        if let Some(&id) = self.classes.followed.get(&class) {
            return id;
        }
        let id = self.class_id(&sites.classes.name(class).unwrap_or_default());
        self.classes.followed.insert(class, id);
        id
    }

    /// The number of a class in this stream, which is told where it is new.
    fn class_id(&mut self, name: &str) -> u32 {
        let (id, is_new) = self.classes.id(name);
        if is_new {
            self.append(&Frame::Classes(Classes { classes: vec![ClassName { id, name: name.to_owned() }] }));
        }
        id
    }

    /// Where samples that are alive were allocated, behind the stacks they need.
    fn append_sites(&mut self, boundary: u32, alive: &Alive) {
        self.append_java_stacks(&alive.stacks);
        let site = |site: &Site| {
            let class = *self.classes.ids.get(&site.class)?;
            Some(JavaSite { stack: site.node, class, samples: site.samples, bytes: site.bytes })
        };
        let records: Vec<JavaSite> = alive.sites.iter().filter_map(site).collect();
        for chunk in records.chunks(RECORDS_PER_PART) {
            self.append(&Frame::JavaSites(JavaSites { boundary, records: chunk.to_vec() }));
        }
    }

    /// Methods and nodes, methods first, in frames that are not too long.
    fn append_java_stacks(&mut self, stacks: &JavaStacks) {
        for methods in stacks.methods.chunks(NAMES_PER_FRAME) {
            self.append(&Frame::JavaStacks(JavaStacks { methods: methods.to_vec(), nodes: Vec::new() }));
        }
        for nodes in stacks.nodes.chunks(RECORDS_PER_PART) {
            self.append(&Frame::JavaStacks(JavaStacks { methods: Vec::new(), nodes: nodes.to_vec() }));
        }
    }
}

impl KnownClasses {
    /// The number of a class, and whether it is new.
    fn id(&mut self, name: &str) -> (u32, bool) {
        if let Some(&id) = self.ids.get(name) {
            return (id, false);
        }
        let id = u32::try_from(self.ids.len()).unwrap_or(u32::MAX).saturating_add(1);
        self.ids.insert(name.to_owned(), id);
        (id, true)
    }

    /// Classes that have no number yet, and the records that differ from the last histogram.
    fn differences(&mut self, live: &[Live]) -> (Vec<ClassName>, Vec<ClassCount>) {
        let mut names = Vec::new();
        let mut now: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for class in live {
            let (id, is_new) = self.id(&class.class);
            if is_new {
                names.push(ClassName { id, name: class.class.clone() });
            }
            // The same name comes once per class loader.
            let sum = now.entry(id).or_default();
            sum.0 = sum.0.saturating_add(class.instances);
            sum.1 = sum.1.saturating_add(class.bytes);
        }
        let gone = self.last.keys().filter(|id| !now.contains_key(id)).map(|&id| (id, (0, 0)));
        let changed = now.iter().filter(|(id, figures)| self.last.get(id) != Some(figures));
        let records = changed
            .map(|(&id, &figures)| (id, figures))
            .chain(gone)
            .map(|(class, (instances, bytes))| ClassCount { class, instances, bytes })
            .collect();
        let mut growing = BTreeMap::new();
        for (&id, &(instances, bytes)) in &now {
            let &(before, bytes_before) = self.last.get(&id).unwrap_or(&(0, 0));
            // Of strings and arrays some come and go while a large one stays.
            if instances > before || bytes > bytes_before {
                let &(times, grown) = self.growing.get(&id).unwrap_or(&(0, 0));
                growing.insert(id, (times + 1, grown.saturating_add(bytes.saturating_sub(bytes_before))));
            }
        }
        self.growing = growing;
        self.last = now;
        (names, records)
    }
}
