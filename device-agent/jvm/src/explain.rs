//! Finds who holds the grown objects: the shortest path from a root to each survivor.
//!
//! Data flow: [`explain`] gets the instances that a survivor search found, in an environment with its own tags →
//! searches the paths to them ([`ReferencePaths`]), and names the objects on the paths ([`Names`]). Instances, objects,
//! passes and time are bounded. If a search is cut, the answer says why.

use std::collections::BTreeMap;

use jni::Env;
use jni::objects::JObject;
use memgate_jvmti::{Jvmti, ReferenceKind};
use memgate_wire::java::{HolderKind, HolderLink, HolderPath, UNHELD};

use super::graph::{Edge, From, Lost};
use super::machine::Live;
use super::names::{Names, with_classes};
use super::reference_paths::{ReferencePaths, Walked};
use super::survivors::Survivors;

/// Maximum number of paths reported per class.
const MAX_PATHS: usize = 16;
/// Maximum number of references in a reported path.
const MAX_LINKS: usize = 40;
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

/// Finds who holds the instances of these classes that the survivor search found, in a heap with these `live` objects.
/// Tags of this environment are numbers of classes, threads and objects on the paths.
pub(super) fn explain(
    env: &mut Env<'_>,
    jvmti: Jvmti<'_>,
    wanted: &[String],
    survivors: &Survivors<'_>,
    live: &[Live],
) -> Vec<Found> {
    with_classes(env, jvmti, |env, classes| {
        let mut reference_paths = ReferencePaths::new(env, jvmti, classes, wanted, live);
        reference_paths.take(env, jvmti, &survivors.instances);
        let threads = mark_threads(env, jvmti, &mut reference_paths);
        let walked = reference_paths.walk(jvmti, classes);
        let names = Names { jvmti, classes, fields: BTreeMap::new() };
        let mut answer = Answer { reference_paths, walked, names, threads };
        let count = |name: &str| survivors.counts.get(name).copied().unwrap_or(0);
        wanted.iter().map(|name| answer.found(env, name, count(name))).collect()
    })
}

/// Numbers the threads; returns their names.
fn mark_threads(env: &mut Env<'_>, jvmti: Jvmti<'_>, reference_paths: &mut ReferencePaths) -> Vec<String> {
    let names = env.with_local_frame(LOCAL_REFERENCES, |env| -> Result<_, jni::errors::Error> {
        let threads: Vec<JObject<'_>> = jvmti.threads(env).unwrap_or_default();
        reference_paths.mark_threads(jvmti, &threads);
        Ok(threads.iter().map(|thread| jvmti.thread_name(env, thread).unwrap_or_default()).collect())
    });
    names.unwrap_or_default()
}

/// The paths found, and the names of the objects on them.
struct Answer<'a, 'l> {
    reference_paths: ReferencePaths,
    walked: Walked,
    names: Names<'a, 'l>,
    /// Names of the threads by number.
    threads: Vec<String>,
}

impl Answer<'_, '_> {
    fn found(&mut self, env: &mut Env<'_>, class: &str, instances: u64) -> Found {
        let mut paths: Vec<HolderPath> = Vec::new();
        let mut open = 0_u64;
        let mut too_long = None;
        for i in 0..self.reference_paths.instances.len() {
            let Some(&instance) = self.reference_paths.instances.get(i) else { break };
            if self.names.class(self.reference_paths.class(instance)) != class {
                continue;
            }
            let links = match self.steps(instance) {
                Ok(steps) => self.links(env, &steps),
                Err(Lost::TooLong) => {
                    too_long = Some("the way is too long");
                    continue;
                }
                Err(Lost::NoRoot) => {
                    open = open.saturating_add(1);
                    continue;
                }
            };
            match paths.iter_mut().find(|path| path.links == links) {
                Some(path) => path.instances = path.instances.saturating_add(1),
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
            cut: self.walked.cut.or(too_long).or(unheld).map(str::to_owned),
        }
    }

    /// The path from the root to an instance. Steps from an object to another of its class (the `next` of a list or
    /// of a hash bucket) are left out: their number depends on chance. An object and its class are one step.
    fn steps(&self, instance: usize) -> Result<Vec<Edge>, Lost> {
        let mut path = self.reference_paths.path(&self.walked.last, instance)?;
        path.retain(|edge| match edge.kind {
            ReferenceKind::Class => false,
            ReferenceKind::Field(_) => edge.class != self.reference_paths.class(edge.to),
            _ => true,
        });
        path.reverse();
        if path.len() > MAX_LINKS { Err(Lost::TooLong) } else { Ok(path) }
    }

    fn links(&mut self, env: &mut Env<'_>, path: &[Edge]) -> Vec<HolderLink> {
        let mut links = Vec::new();
        for edge in path {
            if let ReferenceKind::StackLocal(tag, _) | ReferenceKind::JniLocal(tag, _) = edge.kind
                && let Some(thread) =
                    self.reference_paths.thread(tag).and_then(|thread| self.threads.get(thread))
            {
                links.push(link(
                    HolderKind::Thread,
                    thread.clone(),
                    String::new(),
                    "java.lang.Thread".to_owned(),
                ));
            }
            links.extend(self.thread_local(env, edge));
            links.push(self.link(env, edge));
        }
        links
    }

    /// The static field with the `ThreadLocal` whose value this reference holds. The thread holds the value, but the
    /// field tells where the value comes from.
    fn thread_local(&mut self, env: &mut Env<'_>, edge: &Edge) -> Option<HolderLink> {
        let (From::Node(entry), ReferenceKind::Field(_)) = (edge.from, edge.kind) else { return None };
        let local = self.reference_paths.local_of(entry)?;
        let path = self.reference_paths.path(&self.walked.last, local).ok()?;
        let field = path.first()?;
        matches!(field.kind, ReferenceKind::StaticField(_)).then(|| self.link(env, field))
    }

    fn link(&mut self, env: &mut Env<'_>, edge: &Edge) -> HolderLink {
        let class = self.names.class(self.reference_paths.class(edge.to)).to_owned();
        let nothing = String::new;
        let from = match (edge.kind, edge.from) {
            (ReferenceKind::StaticField(_), From::Node(class)) => {
                From::Class(self.reference_paths.class(class))
            }
            (_, from) => from,
        };
        let (kind, owner, name) = match (edge.kind, from) {
            (ReferenceKind::StaticField(index), From::Class(owner)) => {
                let (declared_by, name) = self.names.field(env, owner, index);
                (HolderKind::Static, declared_by, name)
            }
            (ReferenceKind::ClassLoader, _) => {
                (HolderKind::ClassLoader, self.names.class(edge.class).to_owned(), nothing())
            }
            (ReferenceKind::Field(index), _) => {
                let (declared_by, name) = self.names.field(env, edge.class, index);
                let owner = self.names.class(edge.class).to_owned();
                // Deobfuscation finds a renamed field by the class that declares it.
                let name = if declared_by == owner { name } else { format!("{declared_by}.{name}") };
                (HolderKind::Field, owner, name)
            }
            (ReferenceKind::ArrayElement(_), _) => {
                (HolderKind::Array, self.names.class(edge.class).to_owned(), "[x]".to_owned())
            }
            (ReferenceKind::JniGlobal, _) => (HolderKind::JniGlobal, nothing(), nothing()),
            (ReferenceKind::Thread, _) => {
                let thread =
                    self.reference_paths.thread_at(edge.to).and_then(|thread| self.threads.get(thread));
                (HolderKind::Thread, thread.cloned().unwrap_or_default(), nothing())
            }
            (ReferenceKind::StackLocal(_, frame), _) => {
                let (owner, name) = self.names.frame(env, frame);
                (HolderKind::Stack, owner, name)
            }
            (ReferenceKind::JniLocal(_, method), _) => {
                (HolderKind::JniLocal, self.names.declaring(env, method), self.names.method(method))
            }
            (ReferenceKind::Monitor, _) => (HolderKind::Monitor, nothing(), nothing()),
            (ReferenceKind::SystemClass, _) => (HolderKind::SystemClass, nothing(), nothing()),
            _ => (HolderKind::VirtualMachine, nothing(), nothing()),
        };
        link(kind, owner, name, class)
    }
}

fn link(kind: HolderKind, owner: String, name: String, class: String) -> HolderLink {
    HolderLink { kind, owner, name, class }
}
