//! Who holds what grew: exact survivors of one more window, and the shortest way from a root to them.
//!
//! Data flow: [`Hunt::begin`] numbers all classes and marks the instances of the grown ones as old; one more window runs;
//! [`Hunt::goes_on`] marks the instances without a mark as born in it; the next window runs, in which dies what one execution only
//! replaces of another (a thread's last buffer, a provider that is registered anew); [`Hunt::end`] looks for the ways to those that were
//! born and survived ([`Ways`]), and names what lies on the ways ([`Names`]). While tests run only grown classes carry tags; more get some
//! while the ways are looked for, and all tags are those of an environment that ends with the hunt. Instances, objects, passes and
//! time are bounded; the answer says where it was cut.

use std::collections::BTreeMap;

use jni::Env;
use jni::objects::{JClass, JObject};
use memgate_jvmti::{OwnJvmti, ReferenceKind, raw};
use memgate_wire::java::{HolderLink, HolderPath, UNHELD};

use super::chosen::Chosen;
use super::graph::{Edge, From, Lost};
use super::names::{Known, Names, known, with_classes};
use super::vm::Live;
use super::ways::{BORN, OLD, Walked, Ways};

/// Classes that are explained at most: those with most bytes, and of the project's own some more.
pub(crate) const MAX_CLASSES: usize = 24;
pub(crate) const MAX_OWN_CLASSES: usize = 24;
/// Ways told per class.
const MAX_PATHS: usize = 16;
/// References of a way that is told.
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

/// Between its begin and its end.
pub(crate) struct Hunt {
    jvmti: OwnJvmti,
    /// Names of the classes that are explained.
    wanted: Vec<String>,
    /// What was born in its first window is marked.
    is_on: bool,
}

impl Hunt {
    /// Marks what is there now. `None`: the virtual machine gives no environment for it.
    pub(crate) fn begin(env: &mut Env<'_>, wanted: Vec<String>) -> Option<Self> {
        let jvmti = OwnJvmti::new(env)?;
        // Where tags are refused no way is found, without the others frames have no lines.
        let wanted_capabilities =
            [raw::CAN_TAG_OBJECTS, raw::CAN_GET_SOURCE_FILE_NAME, raw::CAN_GET_LINE_NUMBERS];
        let _refused = jvmti.add_capabilities(&wanted_capabilities);
        let hunt = Self { jvmti, wanted, is_on: false };
        hunt.mark(env, OLD);
        Some(hunt)
    }

    /// A window is over. True: the hunt goes on in the next one.
    pub(crate) fn goes_on(&mut self, env: &mut Env<'_>) -> bool {
        let first = !core::mem::replace(&mut self.is_on, true);
        if first {
            self.mark(env, BORN);
        }
        first
    }

    /// Marks the instances that have no mark. What cannot be marked counts as new, and its holders are told too.
    fn mark(&self, env: &mut Env<'_>, mark: i64) {
        with_classes(env, *self.jvmti, |_, classes| {
            // A class keeps its number.
            let mut visit = |_, tag: &mut i64| *tag = if *tag == 0 { mark } else { *tag };
            Chosen::new(classes, &self.wanted).visit(*self.jvmti, &mut visit);
        });
    }

    /// The classes that are explained.
    pub(crate) fn wanted(&self) -> &[String] {
        &self.wanted
    }

    /// Finds what was born and survived, and who holds it, in a heap of these `live` objects.
    pub(crate) fn end(self, env: &mut Env<'_>, live: &[Live]) -> Vec<Found> {
        let jvmti = *self.jvmti;
        with_classes(env, jvmti, |env, classes| {
            let mut ways = Ways::new(jvmti, classes, &self.wanted, live);
            let counts = self.take(classes, &mut ways);
            let threads = self.mark_threads(env, &mut ways);
            let walked = ways.walk(jvmti, classes);
            let names = Names { jvmti, classes, fields: BTreeMap::new() };
            let mut answer = Answer { ways, walked, names, threads };
            let explain =
                |name: &String| answer.found(env, name, counts.get(name.as_str()).copied().unwrap_or(0));
            self.wanted.iter().map(explain).collect()
        })
    }

    /// Takes what was born and survived; of classes of which nothing did what is new: a table or a text may be replaced in each window by
    /// a larger one. Returns how many there are.
    fn take<'a>(&self, classes: &'a [(Known, JClass<'_>)], ways: &mut Ways) -> BTreeMap<&'a str, u64> {
        let [survivors, new] = ways.take(*self.jvmti, &Chosen::new(classes, &self.wanted)).map(|counts| {
            let mut named: BTreeMap<&str, u64> = BTreeMap::new();
            for ((known, _), count) in classes.iter().zip(counts.into_iter().skip(1)) {
                *named.entry(&known.name).or_insert(0) += count;
            }
            named.retain(|_, count| *count > 0);
            named
        });
        ways.look_for(|class, survived| {
            survived || known(classes, class).is_none_or(|known| !survivors.contains_key(known.name.as_str()))
        });
        new.into_iter().chain(survivors).collect()
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
        let mut too_long = None;
        for i in 0..self.ways.instances.len() {
            let Some(&instance) = self.ways.instances.get(i) else { break };
            if self.names.class(self.ways.class(instance)) != class {
                continue;
            }
            let links = match self.steps(instance) {
                Ok(steps) => self.links(env, &steps),
                Err(Lost::TooLong) => {
                    too_long = Some("the way is too long");
                    continue;
                }
                Err(Lost::NoRoot) => {
                    open += 1;
                    continue;
                }
            };
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
            cut: self.walked.cut.or(too_long).or(unheld).map(str::to_owned),
        }
    }

    /// The way to an instance, from the root on. A step from an object to another of its class (the `next` of a list or of a hash bucket) is
    /// left out, for how many there are depends on chance; an object and its class are one step.
    fn steps(&self, instance: usize) -> Result<Vec<Edge>, Lost> {
        let mut way = self.ways.way(&self.walked.last, instance)?;
        way.retain(|edge| match edge.kind {
            ReferenceKind::Class => false,
            ReferenceKind::Field(_) => edge.class != self.ways.class(edge.to),
            _ => true,
        });
        way.reverse();
        if way.len() > MAX_LINKS { Err(Lost::TooLong) } else { Ok(way) }
    }

    fn links(&mut self, env: &mut Env<'_>, way: &[Edge]) -> Vec<HolderLink> {
        let mut links = Vec::new();
        for edge in way {
            if let ReferenceKind::StackLocal(tag, _) | ReferenceKind::JniLocal(tag, _) = edge.kind
                && let Some(thread) = self.ways.thread(tag).and_then(|thread| self.threads.get(thread))
            {
                links.push(link("thread", thread.clone(), String::new(), "java.lang.Thread".to_owned()));
            }
            links.push(self.link(env, edge));
        }
        links
    }

    fn link(&mut self, env: &mut Env<'_>, edge: &Edge) -> HolderLink {
        let class = self.names.class(self.ways.class(edge.to)).to_owned();
        let nothing = String::new;
        let (kind, owner, name) = match (edge.kind, edge.from) {
            (ReferenceKind::StaticField(index), From::Class(owner)) => {
                let (declared_by, name) = self.names.field(env, owner, index);
                ("static", declared_by, name)
            }
            (ReferenceKind::ClassLoader, _) => {
                ("class loader", self.names.class(edge.class).to_owned(), nothing())
            }
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
                let thread = self.ways.thread_at(edge.to).and_then(|thread| self.threads.get(thread));
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
