//! Threads of a dump: their stacks, and the objects that their local variables hold.
//!
//! Data flow: roots that are threads → stacks by serial, locals by frame → one pass for names.

use std::collections::{BTreeMap, HashMap, HashSet};

use memgate_model::stable_class_name;
use schemars::JsonSchema;
use serde::Serialize;

use crate::analysis::Heap;
use crate::contents::{Contents, Wanted};
use crate::graph::Kind;
use crate::index::Frame;
use crate::read::{Progress, ReadError};
use crate::text::{class_name, printable, shortened};

/// Largest number of locals that are reported for one frame.
const MOST_LOCALS: usize = 50;
/// Largest number of bytes in the texts of all frames; further frames are shown as `?`.
const MOST_TEXT: usize = 128 << 20;

/// A thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Thread {
    /// Id of the thread object.
    pub id: u64,
    /// Class of the thread object.
    pub class: String,
    /// Name of the thread; `null`: unknown.
    pub name: Option<String>,
    /// State of the thread, as in `java.lang.Thread.State`; `null`: the dump does not contain it.
    pub state: Option<&'static str>,
    /// Frames, innermost first.
    pub frames: Vec<StackFrame>,
    /// Objects in local variables of frames that the dump does not contain. Android's dumps contain no frames.
    pub locals: Vec<Local>,
}

/// A frame of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StackFrame {
    /// Class and method: `java.lang.Object.wait`.
    pub method: String,
    /// Source file and line: `Object.java:338`; otherwise `native`, the file alone, `unknown source` or `unknown`.
    pub place: String,
    /// Objects in local variables of the frame.
    pub locals: Vec<Local>,
}

/// An object that a local variable holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Local {
    /// Object id.
    pub id: u64,
    /// Class of the object; for a class object `class com.acme.Cache`.
    pub class: String,
}

impl Heap {
    /// All threads that have an object, in the order of the dump.
    ///
    /// # Errors
    /// The dump cannot be read any more.
    pub fn threads(&self, progress: Progress<'_>) -> Result<Vec<Thread>, ReadError> {
        let Self { file, dump, graph } = self;
        let mut locals: HashMap<u32, BTreeMap<u32, Vec<Local>>> = HashMap::new();
        for root in dump.roots.iter().filter(|root| [0x02, 0x03].contains(&root.tag)) {
            let Some(object) = dump.object(root.id) else { continue };
            let of = locals.entry(root.thread).or_default().entry(root.frame).or_default();
            let what = if matches!(graph.kind(object), Kind::Class(_)) { "class " } else { "" };
            let class = format!("{what}{}", printable(graph.class_name(dump, object)));
            let local = Local { id: root.id, class };
            if of.len() < MOST_LOCALS && !of.contains(&local) {
                of.push(local);
            }
        }
        // A stack belongs to one thread: a second thread with the same serial gets no stack.
        let mut by_thread: HashMap<u32, &Vec<u64>> =
            dump.traces.values().map(|trace| (trace.thread, &trace.frames)).collect();
        let mut met = HashSet::new();
        let threads: Vec<(u32, u32)> = dump
            .roots
            .iter()
            .filter(|root| root.tag == 0x08)
            .filter_map(|root| Some((dump.object(root.id)?, root.thread)))
            .filter(|thread| met.insert(*thread))
            .collect();
        let mut wanted = Wanted::default();
        for (object, _) in &threads {
            if let Some(name) = graph.field(dump, *object, "name") {
                wanted.text(dump, graph, name);
            }
        }
        let contents = Contents::read(file, dump, wanted, progress)?;
        let mut room = MOST_TEXT;
        let told = threads.into_iter().map(|(object, serial)| {
            let mut of = locals.remove(&serial).unwrap_or_default();
            let ids = by_thread.remove(&serial).map_or(&[][..], |frames| frames.as_slice());
            let frames = (0_u32..).zip(ids).map(|(at, id)| {
                let mut frame = self.frame(dump.frames.get(id).filter(|_| room > 0));
                room = room.saturating_sub(frame.method.len() + frame.place.len());
                frame.locals = of.remove(&at).unwrap_or_default();
                frame
            });
            let frames = frames.collect();
            let name = graph.field(dump, object, "name").and_then(|name| contents.text(dump, graph, name));
            Thread {
                id: dump.id(object),
                class: printable(graph.class_name(dump, object)),
                name: name.map(|name| printable(&shortened(name))),
                state: self.state(object),
                frames,
                locals: of.into_values().flatten().collect(),
            }
        });
        Ok(told.collect())
    }

    fn frame(&self, frame: Option<&Frame>) -> StackFrame {
        let dump = &self.dump;
        let Some(frame) = frame else {
            return StackFrame { method: "?".to_owned(), place: "unknown".to_owned(), locals: Vec::new() };
        };
        let [method, _, source] = frame.names;
        let class = dump.serials.get(&frame.class).and_then(|id| self.dump.class_named(*id));
        // Like the class names of objects. Only virtual machines with such names write frames.
        let class = class.map_or_else(|| "?".to_owned(), |name| stable_class_name(&class_name(name)));
        let source = dump.string(source);
        let place = match (frame.line, source) {
            (-3, _) => "native".to_owned(),
            (line, Some(source)) if line > 0 => format!("{source}:{line}"),
            (_, Some(source)) => source.to_owned(),
            (_, None) => "unknown source".to_owned(),
        };
        let method = format!("{class}.{}", dump.name(method));
        StackFrame { method: printable(&method), place: printable(&place), locals: Vec::new() }
    }

    fn state(&self, thread: u32) -> Option<&'static str> {
        let Self { dump, graph, .. } = self;
        let of = |object| graph.number(dump, object, "threadStatus");
        let status = of(thread).or_else(|| of(graph.field(dump, thread, "holder")?))?;
        // The bits of JVMTI's thread state.
        Some(match status {
            bits if bits & 0x4 != 0 => "RUNNABLE",
            bits if bits & 0x400 != 0 => "BLOCKED",
            bits if bits & 0x10 != 0 => "WAITING",
            bits if bits & 0x20 != 0 => "TIMED_WAITING",
            bits if bits & 0x2 != 0 => "TERMINATED",
            bits if bits & 0x1 == 0 => "NEW",
            _ => "RUNNABLE",
        })
    }
}
