//! Boundaries of a Java virtual machine: what was measured becomes frames before the boundary.

use std::collections::BTreeMap;

use memgate_ffi::process;
use memgate_wire::java::{ClassCount, ClassName, Classes, HeapHistogram, HistogramScope, Holders, JvmInfo};
use memgate_wire::spool::order;
use memgate_wire::{BoundaryKind, ErrorCode, ErrorFrame, Frame, Outcome, ProcessRole};

use super::stream::{Known, Offers, Session};
use super::{OWN, SESSION, TESTS, Waiting, Work, at_exit, begin, is_confirming, publish, reach};
use crate::jvm::{Live, Measured};
use crate::options::Options;

/// Records of a frame: names of classes are written apart, so that they are small.
const RECORDS_PER_PART: usize = 16_384;
const NAMES_PER_FRAME: usize = 2048;
/// Windows in a row in which a class has to grow to be worth an explanation.
const GROWING_TIMES: u32 = 3;

/// What the stream already knows of classes.
#[derive(Default)]
pub(super) struct KnownClasses {
    ids: BTreeMap<String, u32>,
    /// The last histogram: instances and bytes by class.
    last: BTreeMap<u32, (u64, u64)>,
    /// Classes that grew in the last histograms: in how many in a row, and by how many bytes in them all.
    growing: BTreeMap<u32, (u32, u64)>,
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

/// A test or a window ended; returns the orders of the harness.
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
        session.close_window(suite, test);
        Waiting::of(session, BoundaryKind::TestEnd)
    };
    let waited = waiting.is_some();
    match waiting.and_then(|w| w.wait()) {
        Some(bits) => bits,
        // A confirming run repeats its test until it is told to stop: without a harness that would be for ever.
        None if waited && is_confirming() => order::STOP,
        None => 0,
    }
}

/// The classes that grew in each of the last windows, those with most bytes first.
pub(crate) fn java_growing(most: usize) -> Vec<String> {
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
    growing.truncate(most);
    let name = |(_, id): (u64, u32)| {
        classes.ids.iter().find(|(_, known)| **known == id).map(|(name, _)| name.clone())
    };
    growing.into_iter().filter_map(name).collect()
}

/// Something could not be measured.
pub(crate) fn fails(why: &str) {
    let Some(_work) = begin() else { return };
    if let Some(session) = SESSION.lock().as_mut() {
        session.append(&Frame::Error(ErrorFrame { code: ErrorCode::Other, text: why.to_owned() }));
        session.flush();
    }
}

impl Session {
    /// The differences to the last histogram, and the state, as frames of the boundary that comes next.
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
        let mut state = measured.state.clone();
        state.boundary = boundary;
        self.append(&Frame::JavaState(state));
    }
}

impl KnownClasses {
    /// Classes that have no number yet, and the records that differ from the last histogram.
    fn differences(&mut self, live: &[Live]) -> (Vec<ClassName>, Vec<ClassCount>) {
        let mut names = Vec::new();
        let mut now: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for class in live {
            let id = match self.ids.get(&class.class) {
                Some(&id) => id,
                None => {
                    let id = u32::try_from(self.ids.len()).unwrap_or(u32::MAX).saturating_add(1);
                    self.ids.insert(class.class.clone(), id);
                    names.push(ClassName { id, name: class.class.clone() });
                    id
                }
            };
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
            if instances > before {
                let &(times, grown) = self.growing.get(&id).unwrap_or(&(0, 0));
                growing.insert(id, (times + 1, grown.saturating_add(bytes.saturating_sub(bytes_before))));
            }
        }
        self.growing = growing;
        self.last = now;
        (names, records)
    }
}
