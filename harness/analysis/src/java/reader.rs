//! Assigns Java frames to their boundaries, in bounded memory.
//!
//! A histogram contains only the changes since the one before, so none may be lost. If something does not fit (a part
//! out of order, a class without a name, a boundary that never comes), the record is marked as damaged.

use std::collections::BTreeMap;
use std::sync::Arc;

use memgate_wire::java::{
    ClassCount, Classes, HeapHistogram, HistogramScope, Holders, JavaSites, JavaStacks, JavaState, JvmInfo,
};

use super::names::normalised;
use super::record::{JavaNames, JavaRecord, JavaSnapshot, JavaWindow};
use crate::os_names;

/// Limits on the classes in a stream and on the bytes of their names.
const MAX_CLASSES: usize = 500_000;
const MAX_NAME_BYTES: usize = 64 << 20;
/// Limit on the links of all holder paths.
const MAX_LINKS: usize = 200_000;
/// Limit on methods and stack nodes.
const MAX_NODES: usize = 1_000_000;
/// Limit on boundaries with waiting frames.
const MAX_WAITING: usize = 64;

/// Describes what is wrong with the stream.
type Damage = String;

/// Frames still waiting for their boundary.
#[derive(Debug, Default)]
pub(crate) struct JavaReader {
    waiting: BTreeMap<u32, JavaWindow>,
    /// The boundary of the histogram whose parts are arriving.
    telling: Option<u32>,
    /// Changes at boundaries that do not end a test. They belong to the next end of a test.
    carried: JavaWindow,
    last_threads: JavaNames,
    name_bytes: usize,
    links: usize,
}

impl JavaReader {
    pub(crate) fn jvm(&mut self, record: &mut JavaRecord, info: JvmInfo) {
        record.jvm.get_or_insert(info);
    }

    pub(crate) fn classes(&mut self, record: &mut JavaRecord, classes: Classes) -> Result<(), Damage> {
        for class in classes.classes {
            self.name_bytes = self.name_bytes.saturating_add(class.name.len());
            if record.classes.len() >= MAX_CLASSES || self.name_bytes > MAX_NAME_BYTES {
                return Err(format!("more than {MAX_CLASSES} classes: the rest was not read"));
            }
            let name = Arc::from(normalised(&class.name));
            record.classes.entry(class.id).or_insert(name);
        }
        Ok(())
    }

    /// Stores the records if there is `room` for them. Returns their number.
    pub(crate) fn histogram(
        &mut self,
        record: &JavaRecord,
        part: HeapHistogram,
        room: usize,
    ) -> Result<usize, Damage> {
        let HeapHistogram { boundary, part, scope, records } = part;
        if self.telling.is_some_and(|telling| telling != boundary) {
            return Err(format!("a class histogram of boundary {boundary} inside of another one"));
        }
        if let Some(unknown) = records.iter().find(|r| !record.classes.contains_key(&r.class)) {
            return Err(format!("a class histogram of class {}, which was never named", unknown.class));
        }
        if records.len() > room {
            return Err("more class counts than a record holds: the rest was not read".to_owned());
        }
        self.telling = Some(boundary);
        let waiting = self.waiting(boundary)?;
        if part != waiting.parts {
            return Err(format!("part {part} of a class histogram where part {} was due", waiting.parts));
        }
        waiting.parts += 1;
        waiting.histogram = true;
        waiting.full |= scope == HistogramScope::All;
        let kept = records.len();
        waiting.changes.extend(records);
        Ok(kept)
    }

    /// `room` is the number of thread names that may still be stored. Returns how many were.
    pub(crate) fn state(&mut self, state: &JavaState, room: usize) -> Result<usize, Damage> {
        let mut names = os_names::count(state.thread_names.iter().map(|name| os_names::thread(name)));
        let mut used = 0;
        let thread_names = if *self.last_threads == names {
            Arc::clone(&self.last_threads)
        } else {
            names.truncate(room);
            used = names.len();
            Arc::new(names)
        };
        self.last_threads = Arc::clone(&thread_names);
        let snapshot = JavaSnapshot {
            heap_used: state.heap_used,
            allocated_bytes: state.allocated_bytes,
            threads: state.threads.map(u64::from),
            thread_names,
            classes_loaded: state.classes_loaded,
            metaspace_bytes: state.metaspace_bytes,
            direct_bytes: state.direct_bytes,
            jni_globals: state.jni_globals,
        };
        if state.boundary != 0 {
            self.waiting(state.boundary)?.state = Some(snapshot);
        }
        Ok(used)
    }

    pub(crate) fn stacks(&mut self, record: &mut JavaRecord, stacks: JavaStacks) -> Result<(), Damage> {
        let told = stacks.methods.len().saturating_add(stacks.nodes.len());
        if record.methods.len().saturating_add(record.nodes.len()).saturating_add(told) > MAX_NODES {
            return Err(format!("more than {MAX_NODES} Java methods and stack nodes: the rest was not read"));
        }
        for method in stacks.methods {
            record.methods.entry(method.id).or_insert(method);
        }
        for node in stacks.nodes {
            // A node must come after its parent, and only once. So following parents always ends.
            if node.id != 0 && (node.parent == 0 || record.nodes.contains_key(&node.parent)) {
                record.nodes.entry(node.id).or_insert(node);
            }
        }
        Ok(())
    }

    pub(crate) fn sites(&mut self, sites: JavaSites, room: usize) -> Result<usize, Damage> {
        let kept = sites.records.len().min(room);
        let waiting = self.waiting(sites.boundary)?;
        waiting.sites.extend(sites.records.into_iter().take(kept));
        Ok(kept)
    }

    pub(crate) fn holders(&mut self, record: &JavaRecord, mut holders: Holders) -> Result<(), Damage> {
        if !record.classes.contains_key(&holders.class) {
            return Err(format!("holders of class {}, which was never named", holders.class));
        }
        let told: usize = holders.paths.iter().map(|path| path.links.len()).sum();
        self.links = self.links.saturating_add(told);
        if self.links > MAX_LINKS {
            holders.paths.clear();
            holders.cut = Some("more of them were found than a record holds".to_owned());
        }
        self.waiting(holders.boundary)?.holders.push(holders);
        Ok(())
    }

    fn waiting(&mut self, boundary: u32) -> Result<&mut JavaWindow, Damage> {
        if self.waiting.len() >= MAX_WAITING && !self.waiting.contains_key(&boundary) {
            return Err(format!("more than {MAX_WAITING} boundaries of a Java stream that never came"));
        }
        Ok(self.waiting.entry(boundary).or_default())
    }

    /// Data of the boundary that has come. `ends_test`: a window takes it.
    pub(crate) fn take(&mut self, sequence: u32, ends_test: bool) -> Result<Option<JavaWindow>, Damage> {
        let lost = self.telling.is_some_and(|telling| telling < sequence);
        if self.telling.is_some_and(|telling| telling <= sequence) {
            self.telling = None;
        }
        let taken = self.waiting.remove(&sequence);
        self.waiting = self.waiting.split_off(&sequence);
        if lost {
            return Err("a class histogram whose boundary never came".to_owned());
        }
        let Some(mut window) = taken else { return Ok(None) };
        if !ends_test {
            let changes = JavaWindow { state: None, ..window };
            self.carry(changes);
            return Ok(None);
        }
        if window.histogram && self.carried.histogram {
            let mut carried = std::mem::take(&mut self.carried);
            carried.parts = window.parts;
            carried.settle(window);
            window = carried;
        }
        Ok(Some(window))
    }

    /// Only the latest figures of every class matter.
    fn carry(&mut self, window: JavaWindow) {
        self.carried.settle(window);
        let last: BTreeMap<u32, ClassCount> = self.carried.changes.drain(..).map(|c| (c.class, c)).collect();
        self.carried.changes = last.into_values().collect();
        self.carried.holders.clear();
        self.carried.sites.clear();
    }
}

#[cfg(test)]
mod tests {
    use memgate_wire::java::{HolderKind, HolderLink};
    use memgate_wire::{BoundaryKind, Frame, Outcome};

    use super::*;
    use crate::java::dsl::Jvm;
    use crate::observer::{Limits, Observer};
    use crate::record::ProcessRecord;

    fn read(limits: Limits, frames: Vec<(Frame, u64)>) -> ProcessRecord {
        let mut observer = Observer::with_limits(limits);
        frames.into_iter().for_each(|(frame, t_ns)| observer.push(frame, t_ns));
        observer.into_record()
    }

    fn tiles(iterations: u32) -> Jvm {
        let mut jvm = Jvm::new();
        (0..iterations).for_each(|i| jvm.window("A", "a", i, |jvm| jvm.tiles(12)));
        jvm
    }

    #[test]
    fn a_window_keeps_what_changed_and_the_state() {
        let record = tiles(3).cut();
        assert_eq!(record.damaged, None);
        let last = record.windows[2].java.as_deref().expect("a histogram");
        assert!(last.histogram && !last.full && !record.windows[2].incomplete);
        assert_eq!(last.changes.len(), 5, "classes that did not change are not told again");
        assert_eq!(last.state.as_ref().and_then(|s| s.threads), Some(1));
        let java = record.java.expect("a virtual machine");
        assert_eq!((java.class(2), java.class(99)), (Some("com.example.Tile"), None));
    }

    #[test]
    fn what_changed_at_other_boundaries_belongs_to_the_next_end() {
        let mut frames = tiles(2).frames;
        for (frame, _) in &mut frames {
            if let Frame::Boundary(b) = frame
                && b.iteration == 0
                && b.kind == BoundaryKind::TestEnd
            {
                b.kind = BoundaryKind::Mark;
            }
        }
        let record = read(Limits::default(), frames);
        let java = record.windows[0].java.as_deref().expect("a histogram");
        assert!(java.full, "the first histogram named everything");
        assert_eq!(record.damaged, None);
    }

    /// Everything that a histogram refers to must be in the stream. Missing data would look like growth, or hide it.
    #[test]
    fn a_stream_with_a_gap_is_damaged() {
        let spoiled = |spoil: &dyn Fn(&mut Frame) -> bool| {
            let mut frames = tiles(3).frames;
            frames.retain_mut(|(frame, _)| spoil(frame));
            read(Limits::default(), frames).damaged
        };
        type Spoil<'a> = &'a dyn Fn(&mut Frame) -> bool;
        let cases: Vec<(Spoil<'_>, &str)> = vec![
            (&|f| !matches!(f, Frame::Classes(_)), "which was never named"),
            (
                &|f| !matches!(f, Frame::HeapHistogram(h) if h.part == 0),
                "part 1 of a class histogram where part 0 was due",
            ),
            (
                &|f| !matches!(f, Frame::Boundary(b) if b.iteration == 1 && b.kind == BoundaryKind::TestEnd),
                "whose boundary never came",
            ),
            (
                &|f| {
                    if let Frame::HeapHistogram(h) = f {
                        h.boundary += 4 * h.part;
                    }
                    true
                },
                "inside of another one",
            ),
        ];
        for (spoil, damage) in cases {
            let said = spoiled(spoil);
            assert!(said.as_deref().is_some_and(|said| said.contains(damage)), "{damage}: {said:?}");
        }
        assert_eq!(spoiled(&|_| true), None);
    }

    #[test]
    fn a_stream_that_breaks_off_is_good_up_to_there() {
        let mut frames = tiles(4).frames;
        while frames.len() > 3 {
            frames.pop();
            let record = read(Limits::default(), frames.clone());
            assert!(
                record.damaged.is_none() && record.windows.iter().all(|w| !w.incomplete),
                "{}",
                frames.len()
            );
        }
    }

    #[test]
    fn what_exceeds_the_limits_is_dropped_and_said() {
        let record = read(Limits { records: 9, ..Limits::default() }, tiles(5).frames);
        assert_eq!(
            record.damaged.as_deref(),
            Some("more class counts than a record holds: the rest was not read")
        );
        let kept: usize =
            record.windows.iter().filter_map(|w| w.java.as_ref()).map(|j| j.changes.len()).sum();
        assert!(kept <= 9, "{kept}");
    }

    proptest::proptest! {
        /// Java frames in any order and with any numbers never cause a panic, neither here nor when they are judged.
        #[test]
        fn no_order_of_frames_panics(
            steps in proptest::collection::vec((0_u8..8, 0_u32..5, 0_u32..4, proptest::num::u64::ANY), 0..80)
        ) {
            let mut frames: Vec<(Frame, u64)> = Vec::new();
            for (what, boundary, number, value) in steps {
                let record = ClassCount { class: number, instances: value, bytes: u64::MAX - value };
                let scope = if value % 3 == 0 { HistogramScope::All } else { HistogramScope::Changes };
                let mut jvm = Jvm::new();
                let frame = match what {
                    0 => Frame::Classes(Classes {
                        classes: vec![memgate_wire::java::ClassName { id: number, name: format!("C/0x{number}") }],
                    }),
                    1 | 2 => Frame::HeapHistogram(HeapHistogram {
                        boundary, part: number % 2, scope, records: vec![record; number as usize],
                    }),
                    3 => Frame::JavaState(JavaState {
                        boundary, direct_bytes: Some(value), threads: Some(number), ..JavaState::default()
                    }),
                    4 => {
                        let link = HolderLink {
                            kind: HolderKind::Static, owner: String::new(), name: "[x]".to_owned(), class: "C".to_owned(),
                        };
                        let path = memgate_wire::java::HolderPath {
                            instances: value, links: vec![link; number as usize],
                        };
                        Frame::Holders(Holders { boundary, class: number, instances: value, paths: vec![path], cut: None })
                    }
                    _ => {
                        let kind = if what == 5 { BoundaryKind::TestStart } else { BoundaryKind::TestEnd };
                        jvm.outcome = Outcome::Passed;
                        jvm.boundary(kind, "A", if value % 2 == 0 { "a" } else { "" }, number);
                        let mut last = jvm.frames.pop().map_or(Frame::Classes(Classes { classes: vec![] }), |(f, _)| f);
                        if let Frame::Boundary(b) = &mut last {
                            b.sequence = boundary;
                        }
                        last
                    }
                };
                frames.push((frame, 1));
            }
            let record = read(Limits { records: 40, windows: 20, ..Limits::default() }, frames);
            let policy = crate::policy::GatePolicy::default();
            let _suspects = crate::java::screen_rounds(&record, "s", &policy);
            for test in ["A", "A.a"] {
                let mut confirmation = crate::java::JavaConfirmation::new(&policy, "s", test);
                let _next = confirmation.observe(&record, std::time::Duration::from_secs(9), std::time::Duration::ZERO);
                let findings = crate::java::Findings::of(&record, test, 1, 0.99);
                let _leaks = crate::java::leaks(&record, test, &findings);
            }
        }
    }
}
