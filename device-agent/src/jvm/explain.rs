//! Who holds what grew: exact survivors of one more window, and the shortest way from a root to them.
//!
//! Data flow: [`Hunt::begin`] numbers all classes and marks the instances of the grown ones as old; one more window runs; [`Hunt::end`]
//! finds the instances without a mark, has the references to them walked backwards ([`Ways`]), and names what lies on the ways
//! ([`Names`]). Only grown classes and what lies on the ways carry tags, never the whole heap, and the tags are those of an
//! environment that ends with the hunt. Instances, objects on the way, passes and time are bounded; the answer says where it was cut.

use std::collections::BTreeMap;

use jni::Env;
use jni::objects::JObject;
use memgate_jvmti::{OwnJvmti, ReferenceKind, raw};
use memgate_wire::java::{HolderLink, HolderPath, UNHELD};

use super::chosen::Chosen;
use super::names::{Names, with_classes};
use super::ways::{Edge, From, OLD, Walked, Ways};

/// Classes that are explained at most: those with most bytes, and of the project's own some more.
pub(crate) const MAX_CLASSES: usize = 24;
pub(crate) const MAX_OWN_CLASSES: usize = 24;
/// Ways told per class.
const MAX_PATHS: usize = 5;
/// Room for a reference to every thread.
const LOCAL_REFERENCES: usize = 1 << 12;

/// Holders of one class, as they go into the stream.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) class: String,
    pub(crate) instances: u64,
    pub(crate) paths: Vec<HolderPath>,
    pub(crate) cut: Option<String>,
}

/// Between the two halves.
pub(crate) struct Hunt {
    jvmti: OwnJvmti,
    /// Names of the classes that are explained.
    wanted: Vec<String>,
}

impl Hunt {
    /// Marks what is there now. `None`: the virtual machine gives no environment for it.
    pub(crate) fn begin(env: &mut Env<'_>, wanted: Vec<String>) -> Option<Self> {
        let jvmti = OwnJvmti::new(env)?;
        // Where tags are refused no way is found, without the others frames have no lines.
        let wanted_capabilities =
            [raw::CAN_TAG_OBJECTS, raw::CAN_GET_SOURCE_FILE_NAME, raw::CAN_GET_LINE_NUMBERS];
        let _refused = jvmti.add_capabilities(&wanted_capabilities);
        with_classes(env, *jvmti, |_, classes| {
            // What cannot be marked counts as new, and its holders are told too.
            Chosen::new(classes, &wanted).visit(*jvmti, &mut |_, tag| *tag = OLD);
        });
        Some(Self { jvmti, wanted })
    }

    /// The classes that are explained.
    pub(crate) fn wanted(&self) -> &[String] {
        &self.wanted
    }

    /// Finds what came since, and who holds it.
    pub(crate) fn end(self, env: &mut Env<'_>) -> Vec<Found> {
        let jvmti = *self.jvmti;
        with_classes(env, jvmti, |env, classes| {
            let mut ways = Ways::with_room(jvmti, classes.len());
            let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
            let new = ways.take_new(jvmti, &Chosen::new(classes, &self.wanted));
            for ((known, _), count) in classes.iter().zip(new.iter().skip(1)) {
                *counts.entry(&known.name).or_insert(0) += count;
            }
            let threads = self.mark_threads(env, &mut ways);
            let walked = ways.walk_back(jvmti, classes);
            let names = Names { jvmti, classes, fields: BTreeMap::new() };
            let mut answer = Answer { ways, walked, names, threads };
            let explain =
                |name: &String| answer.found(env, name, counts.get(name.as_str()).copied().unwrap_or(0));
            self.wanted.iter().map(explain).collect()
        })
    }

    /// Numbers the threads; returns their names.
    fn mark_threads(&self, env: &mut Env<'_>, ways: &mut Ways) -> Vec<String> {
        let jvmti = *self.jvmti;
        let names = env.with_local_frame(LOCAL_REFERENCES, |env| -> Result<_, jni::errors::Error> {
            let threads: Vec<JObject<'_>> = jvmti.threads(env).unwrap_or_default();
            ways.mark_threads(jvmti, &threads);
            Ok(threads.iter().map(|thread| jvmti.thread_name(env, thread).unwrap_or_default()).collect())
        });
        names.unwrap_or_default()
    }
}

/// What was found, and what it is called.
struct Answer<'a, 'l> {
    ways: Ways,
    walked: Walked,
    names: Names<'a, 'l>,
    /// Names of the threads by number.
    threads: Vec<String>,
}

impl Answer<'_, '_> {
    fn found(&mut self, env: &mut Env<'_>, class: &str, instances: u64) -> Found {
        let mut paths: Vec<HolderPath> = Vec::new();
        let mut open = 0;
        for i in 0..self.ways.instances {
            if self.ways.nodes.get(i).is_none_or(|node| self.names.class(node.class) != class) {
                continue;
            }
            let Some(way) = self.ways.way(&self.walked.last, i) else {
                open += 1;
                continue;
            };
            let links = self.links(env, &way);
            match paths.iter_mut().find(|path| path.links == links) {
                Some(path) => path.instances += 1,
                None => paths.push(HolderPath { instances: 1, links }),
            }
        }
        paths.sort_by_key(|path| (core::cmp::Reverse(path.instances), path.links.len()));
        paths.truncate(MAX_PATHS);
        let unheld = (open > 0 && paths.is_empty()).then_some(UNHELD);
        Found {
            class: class.to_owned(),
            instances,
            paths,
            cut: self.walked.cut.or(unheld).map(str::to_owned),
        }
    }

    /// From the root on. A step from an object to another of its class (the `next` of a list or of a hash bucket) is left out: how many
    /// there are depends on chance.
    fn links(&mut self, env: &mut Env<'_>, way: &[Edge]) -> Vec<HolderLink> {
        let mut links = Vec::new();
        for edge in way.iter().rev() {
            if let ReferenceKind::StackLocal(tag, _) | ReferenceKind::JniLocal(tag, _) = edge.kind
                && let Some(thread) = self.ways.thread(tag).and_then(|thread| self.threads.get(thread))
            {
                links.push(link("thread", thread.clone(), String::new(), "java.lang.Thread".to_owned()));
            }
            links.push(self.link(env, edge));
        }
        // An object and its class are one step.
        links.retain(|link| link.kind != "class" && (link.kind != "field" || link.owner != link.class));
        links
    }

    fn link(&mut self, env: &mut Env<'_>, edge: &Edge) -> HolderLink {
        let node = self.ways.nodes.get(edge.to);
        let class = self.names.class(node.map_or(0, |node| node.class)).to_owned();
        let nothing = String::new;
        let (kind, owner, name) = match (edge.kind, edge.from) {
            (ReferenceKind::StaticField(index), From::Class(owner)) => {
                let (declared_by, name) = self.names.field(env, owner, index);
                ("static", declared_by, name)
            }
            (ReferenceKind::ClassLoader, _) => {
                ("class loader", self.names.class(edge.class).to_owned(), nothing())
            }
            (ReferenceKind::Class, _) => ("class", nothing(), nothing()),
            (ReferenceKind::Field(index), _) => {
                let (declared_by, name) = self.names.field(env, edge.class, index);
                let owner = self.names.class(edge.class).to_owned();
                // Whoever gives a renamed field its own name back knows it by the class that declares it.
                let name = if declared_by == owner { name } else { format!("{declared_by}.{name}") };
                ("field", owner, name)
            }
            (ReferenceKind::ArrayElement(_), _) => {
                ("array", self.names.class(edge.class).to_owned(), "[x]".to_owned())
            }
            (ReferenceKind::JniGlobal, _) => ("jni global", nothing(), nothing()),
            (ReferenceKind::Thread, _) => {
                let thread = node.and_then(|node| self.threads.get(node.thread?));
                ("thread", thread.cloned().unwrap_or_default(), nothing())
            }
            (ReferenceKind::StackLocal(_, frame), _) => {
                let (owner, name) = self.names.frame(env, frame);
                ("stack", owner, name)
            }
            (ReferenceKind::JniLocal(_, method), _) => {
                ("jni local", self.names.declaring(env, method), self.names.method(method))
            }
            (ReferenceKind::Monitor, _) => ("monitor", nothing(), nothing()),
            (ReferenceKind::SystemClass, _) => ("system class", nothing(), nothing()),
            _ => ("virtual machine", nothing(), nothing()),
        };
        link(kind, owner, name, class)
    }
}

fn link(kind: &str, owner: String, name: String, class: String) -> HolderLink {
    HolderLink { kind: kind.to_owned(), owner, name, class }
}
