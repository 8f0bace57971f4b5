//! Writes measurements as frames: between boundaries, or before the boundary that ends a window.

use std::collections::BTreeMap;

use memgate_ffi::lock::Lock;
use memgate_session::{self as session, Session};
use memgate_wire::java::{
    ClassCount, ClassName, Classes, HeapHistogram, HistogramScope, Holders, JavaSite, JavaSites, JavaStacks,
    JavaState, NAMES_PER_FRAME, RECORDS_PER_PART,
};
use memgate_wire::reply::{ClassNumbers, MOST_CLASSES, Reply};
use memgate_wire::{Frame, Outcome};

use super::explain::Found;
use super::machine::Live;
use super::sites::{Alive, Site};

/// The measurements at the end of a window.
pub(crate) struct Measured {
    pub(crate) live: Vec<Live>,
    pub(crate) state: JavaState,
    /// Holders of the classes that the harness named, in the second window after its order to explain.
    pub(crate) found: Vec<Found>,
    /// Allocation sites of their live objects.
    pub(crate) alive: Alive,
}

/// Instances and bytes of classes, by their number in the stream.
type Counts = BTreeMap<u32, (u64, u64)>;

/// The classes that the stream already contains. Locked only by the thread that holds the session.
static KNOWN: Lock<KnownClasses> = Lock::new(KnownClasses::of(0));

struct KnownClasses {
    /// The process of that stream: a forked child begins a new stream.
    process: u32,
    ids: BTreeMap<String, u32>,
    /// The last histogram.
    last: Counts,
}

/// The stream, with the classes that it knows.
pub(crate) struct Frames<'a> {
    session: &'a mut Session,
    known: &'a mut KnownClasses,
}

fn frames<R>(session: &mut Session, what: impl FnOnce(&mut Frames<'_>) -> R) -> R {
    let known = &mut *KNOWN.lock();
    if known.process != session.process() {
        *known = KnownClasses::of(session.process());
    }
    what(&mut Frames { session, known })
}

/// Writes frames between boundaries.
pub(crate) fn write(what: impl FnOnce(&mut Frames<'_>)) {
    // Without a stream there is nowhere to report to.
    let _unheard = session::write(|session| frames(session, what));
}

/// The same, unless another thread is writing.
pub(crate) fn try_write(what: impl FnOnce(&mut Frames<'_>)) {
    // The next call writes these events too.
    let _later = session::try_write(|session| frames(session, what));
}

/// A test or a window ended: writes its measurements, and returns the answer of the harness.
pub(crate) fn window_ends(
    (suite, test): (&str, &str),
    outcome: Option<Outcome>,
    measured: Option<&Measured>,
) -> Reply {
    let Some(measured) = measured else { return session::window_ends(suite, test, outcome, None) };
    let mut append = |session: &mut Session| frames(session, |frames| frames.append_measured(measured));
    session::window_ends(suite, test, outcome, Some((measured.state.boundary_ns, &mut append)))
}

/// The names of these classes, in the given order, without those that this stream does not contain. `None`: out of
/// memory.
pub(crate) fn names_of(classes: &ClassNumbers) -> Option<Vec<String>> {
    session::write(|session| frames(session, |frames| frames.known.names_of(classes)))?
}

impl Frames<'_> {
    pub(crate) fn append(&mut self, frame: &Frame) {
        self.session.append(frame);
    }

    /// The process whose stream this is.
    pub(crate) const fn process(&self) -> u32 {
        self.session.process()
    }

    pub(crate) fn flush(&mut self) {
        self.session.flush();
    }

    /// Appends the differences to the last histogram, and the state, as frames of the next boundary.
    fn append_measured(&mut self, measured: &Measured) {
        let boundary = self.session.next_boundary();
        let scope = if self.known.last.is_empty() { HistogramScope::All } else { HistogramScope::Changes };
        let (names, records) = self.known.differences(&measured.live);
        for chunk in names.chunks(NAMES_PER_FRAME) {
            self.append(&Frame::Classes(Classes { classes: chunk.to_vec() }));
        }
        // An unchanged heap is also reported, because a missing histogram means that none could be taken.
        let nothing: &[ClassCount] = &[];
        let parts =
            if records.is_empty() { vec![nothing] } else { records.chunks(RECORDS_PER_PART).collect() };
        for (part, chunk) in (0..).zip(parts) {
            let records = chunk.to_vec();
            self.append(&Frame::HeapHistogram(HeapHistogram { boundary, part, scope, records }));
        }
        for found in &measured.found {
            let Some(&class) = self.known.ids.get(&found.class) else { continue };
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

    /// The number of a class in this stream. A new class is reported.
    pub(crate) fn class_id(&mut self, name: &str) -> u32 {
        let (id, is_new) = self.known.id(name);
        if is_new {
            self.append(&Frame::Classes(Classes { classes: vec![ClassName { id, name: name.to_owned() }] }));
        }
        id
    }

    /// Appends the allocation sites of live samples, after the stacks they need.
    fn append_sites(&mut self, boundary: u32, alive: &Alive) {
        self.append_stacks(&alive.stacks);
        let site = |site: &Site| {
            let class = *self.known.ids.get(&site.class)?;
            Some(JavaSite { stack: site.node, class, samples: site.samples, bytes: site.bytes })
        };
        let records: Vec<JavaSite> = alive.sites.iter().filter_map(site).collect();
        for chunk in records.chunks(RECORDS_PER_PART) {
            self.append(&Frame::JavaSites(JavaSites { boundary, records: chunk.to_vec() }));
        }
    }

    /// Appends methods, then nodes, in frames of limited length.
    pub(crate) fn append_stacks(&mut self, stacks: &JavaStacks) {
        for methods in stacks.methods.chunks(NAMES_PER_FRAME) {
            self.append(&Frame::JavaStacks(JavaStacks { methods: methods.to_vec(), nodes: Vec::new() }));
        }
        for nodes in stacks.nodes.chunks(RECORDS_PER_PART) {
            self.append(&Frame::JavaStacks(JavaStacks { methods: Vec::new(), nodes: nodes.to_vec() }));
        }
    }
}

impl KnownClasses {
    const fn of(process: u32) -> Self {
        Self { process, ids: BTreeMap::new(), last: BTreeMap::new() }
    }

    /// The number of a class, and whether it is new.
    fn id(&mut self, name: &str) -> (u32, bool) {
        if let Some(&id) = self.ids.get(name) {
            return (id, false);
        }
        let id = u32::try_from(self.ids.len()).unwrap_or(u32::MAX).saturating_add(1);
        self.ids.insert(name.to_owned(), id);
        (id, true)
    }

    fn names_of(&self, classes: &ClassNumbers) -> Option<Vec<String>> {
        let mut found = [None; MOST_CLASSES];
        for (name, id) in &self.ids {
            let place = classes.as_slice().iter().position(|number| number == id);
            if let Some(place) = place.and_then(|place| found.get_mut(place)) {
                *place = Some(name);
            }
        }
        let mut names = Vec::new();
        names.try_reserve_exact(MOST_CLASSES).ok()?;
        for name in found.into_iter().flatten() {
            let mut copy = String::new();
            copy.try_reserve_exact(name.len()).ok()?;
            copy.push_str(name);
            names.push(copy);
        }
        Some(names)
    }

    /// Classes that have no number yet, and the records that differ from the last histogram.
    fn differences(&mut self, live: &[Live]) -> (Vec<ClassName>, Vec<ClassCount>) {
        let mut names = Vec::new();
        let mut now = Counts::new();
        for class in live {
            let (id, is_new) = self.id(&class.class);
            if is_new {
                names.push(ClassName { id, name: class.class.clone() });
            }
            // A name occurs once per class loader.
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
        self.last = now;
        (names, records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_named_in_the_order_the_harness_named_them() {
        let mut known = KnownClasses::of(1);
        for name in ["java.lang.String", "byte[]", "com.example.Tile"] {
            known.id(name);
        }
        let names = |numbers: &[u32]| known.names_of(&numbers.iter().copied().collect()).unwrap_or_default();
        assert_eq!(names(&[3, 1]), ["com.example.Tile", "java.lang.String"]);
        assert_eq!(names(&[0, 2, 99]), ["byte[]"], "nobody told the others");
        assert!(names(&[]).is_empty());
    }
}
