//! Exact survivors: objects allocated in one window and alive after the next.
//!
//! Data flow: the harness names classes ([`SurvivorSearch::asked`]) → [`SurvivorSearch::begin`] numbers all classes and
//! marks the instances of the named ones as old; the first window runs → [`SurvivorSearch::goes_on`] marks the
//! instances without a mark as born in it; the second window runs, in which objects die that each execution only
//! replaces (a thread's last buffer, a provider that is registered again) → [`SurvivorSearch::end`] collects the
//! instances marked as born. If no instance of a class survived, it visits the instances once more and takes the new
//! ones, because each window may replace a table or a text by a larger one. The marks belong to an environment that
//! then ends, because many marks would slow down every later look at an object.

use std::collections::BTreeMap;

use jni::Env;
use jni::objects::JObject;
use memgate_jvmti::{Error, OwnJvmti, raw};
use memgate_session as session;
use memgate_wire::LogLevel;
use memgate_wire::reply::ClassNumbers;

use super::chosen::Chosen;
use super::explain::{Found, explain};
use super::frames::names_of;
use super::machine::Live;
use super::names::{Known, name_of, with_classes};
use super::survivors::Survivors;

/// Maximum number of instances of one class whose holders are searched.
const MAX_INSTANCES: u64 = 256;
/// Maximum number of born instances for which references to all are affordable. If there are more, only some are
/// requested, after one more walk over the heap.
const MAX_REFERENCES: u64 = 1 << 13;

/// Mark of an instance that existed before; lower tags are the numbers of classes.
const OLD: i64 = 1 << 40;
/// Mark of an instance that was born in the first window.
const BORN: i64 = OLD + 1;
/// Marks of instances that the search wants: born in the first window, and new.
const SURVIVED: i64 = OLD + 2;
const NEW: i64 = OLD + 3;

/// A survivor search between its begin and its end.
pub(crate) struct SurvivorSearch {
    jvmti: OwnJvmti,
    /// Names of the classes that are explained.
    wanted: Vec<String>,
    /// Instances that were born in the first window, once it is over.
    born: Option<u64>,
}

impl SurvivorSearch {
    /// Begins a search, because the harness asks who holds the instances of these classes.
    pub(crate) fn asked(env: &mut Env<'_>, classes: Option<&ClassNumbers>) -> Option<Self> {
        let Some(classes) = classes else {
            let why = "who holds what grew was not looked for: the harness is older than this agent and names no classes";
            session::log(LogLevel::Warn, why);
            return None;
        };
        Self::begin(env, names_of(classes)?)
    }

    /// Marks the existing instances. `None` if the virtual machine gives no environment for the search, or refuses the
    /// walk.
    pub(crate) fn begin(env: &mut Env<'_>, wanted: Vec<String>) -> Option<Self> {
        let search = Self { jvmti: environment(env)?, wanted, born: None };
        // Without these marks, everything would seem to be new.
        search.mark(env, OLD)?;
        Some(search)
    }

    /// A window is over. Returns whether the search goes on in the next one.
    pub(crate) fn goes_on(&mut self, env: &mut Env<'_>) -> bool {
        let first = self.born.is_none();
        if first {
            self.born = Some(self.mark(env, BORN).unwrap_or(0));
        }
        first
    }

    /// Marks the instances that have no mark; returns how many. `None` if the virtual machine refuses the walk.
    /// Instances that cannot be marked count as new, and their holders are reported too.
    fn mark(&self, env: &mut Env<'_>, mark: i64) -> Option<u64> {
        with_classes(env, self.jvmti.get(), |_, classes| {
            let mut marked = 0_u64;
            Chosen::new(classes, &self.wanted).visit(self.jvmti.get(), &mut |_, tag| {
                // A class keeps its number.
                if *tag == 0 {
                    *tag = mark;
                    marked = marked.saturating_add(1);
                }
            });
            Some(marked)
        })
    }

    /// The classes that are explained.
    pub(crate) fn wanted(&self) -> &[String] {
        &self.wanted
    }

    /// Finds the survivors and their holders, in a heap with these `live` objects.
    pub(crate) fn end(self, env: &mut Env<'_>, live: &[Live]) -> Vec<Found> {
        let few = self.born.filter(|born| *born <= MAX_REFERENCES);
        // Some of these instances survived and some are new, hence the factor 2.
        let looked_at = (self.wanted.len() as u64).saturating_mul(2 * MAX_INSTANCES);
        let room = few.unwrap_or(0).saturating_add(looked_at).saturating_add(16);
        let room = usize::try_from(room).unwrap_or(0);
        let found = env.with_local_frame(room, |env| -> Result<_, jni::errors::Error> {
            let asked = few.and_then(|_| self.survivors(env).ok());
            let mut survivors = asked.unwrap_or_default();
            let rest = |name: &&String| !survivors.counts.contains_key(*name);
            let rest: Vec<String> = self.wanted.iter().filter(rest).cloned().collect();
            if !rest.is_empty() {
                self.look_at(env, &rest, &mut survivors);
            }
            let Self { jvmti, wanted, .. } = self;
            drop(jvmti);
            let Some(jvmti) = environment(env) else { return Ok(Vec::new()) };
            Ok(explain(env, jvmti.get(), &wanted, &survivors, live))
        });
        found.unwrap_or_default()
    }

    /// The instances marked as born.
    fn survivors<'l>(&self, env: &mut Env<'l>) -> Result<Survivors<'l>, Error> {
        let mut survivors = Survivors::default();
        let Survivors { instances, counts } = &mut survivors;
        self.ask(env, &[BORN], |name, _, object| {
            let count = counts.entry(name.to_owned()).or_insert(0);
            *count = (*count).saturating_add(1);
            if *count <= MAX_INSTANCES {
                instances.push(object);
            }
        })?;
        Ok(survivors)
    }

    /// Visits all instances of these classes, to find survivors and new ones.
    fn look_at<'l>(&self, env: &mut Env<'l>, names: &[String], survivors: &mut Survivors<'l>) {
        let jvmti = self.jvmti.get();
        // Counts by name, because several classes may have the same name.
        let mut counts = vec![[0_u64; 2]; names.len()];
        with_classes(env, jvmti, |_, classes| {
            let place = |(known, _): &(Known, _)| names.iter().position(|name| *name == known.name);
            let places: Vec<Option<usize>> = classes.iter().map(place).collect();
            Chosen::new(classes, names).visit(jvmti, &mut |class, tag| {
                let (kind, mark) = match *tag {
                    BORN => (0, SURVIVED),
                    0 => (1, NEW),
                    _ => return,
                };
                let class = usize::try_from(class).ok().and_then(|number| number.checked_sub(1));
                let place = class.and_then(|class| *places.get(class)?);
                let counts = place.and_then(|place| counts.get_mut(place));
                let Some(count) = counts.and_then(|counts| counts.get_mut(kind)) else { return };
                *count = (*count).saturating_add(1);
                if *count <= MAX_INSTANCES {
                    *tag = mark;
                }
            });
        });
        let mut looked_for: BTreeMap<&str, (i64, u64)> = BTreeMap::new();
        for (name, [survived, new]) in names.iter().zip(counts).filter(|(_, counts)| *counts != [0; 2]) {
            looked_for.insert(name, if survived > 0 { (SURVIVED, survived) } else { (NEW, new) });
        }
        let mut instances = Vec::new();
        let asked = self.ask(env, &[SURVIVED, NEW], |name, mark, object| {
            if looked_for.get(name).is_some_and(|(wanted, _)| *wanted == mark) {
                instances.push(object);
            }
        });
        // A class without a count means that its holders are not known.
        if asked.is_ok() {
            survivors.instances.append(&mut instances);
            let counts = looked_for.into_iter().map(|(name, (_, count))| (name.to_owned(), count));
            survivors.counts.extend(counts);
        }
    }

    /// The objects with these marks, with the names of their classes.
    fn ask<'l>(
        &self,
        env: &mut Env<'l>,
        marks: &[i64],
        mut take: impl FnMut(&str, i64, JObject<'l>),
    ) -> Result<(), Error> {
        let mut names: BTreeMap<i64, String> = BTreeMap::new();
        for (object, mark) in self.jvmti.get().objects_with_tags(env, marks)? {
            let Ok(class) = env.get_object_class(&object) else { continue };
            let number = self.jvmti.get().tag(&class).unwrap_or(0);
            let name = names.entry(number).or_insert_with(|| name_of(self.jvmti.get(), &class));
            env.delete_local_ref(class);
            take(name, mark, object);
        }
        Ok(())
    }
}

fn environment(env: &Env<'_>) -> Option<OwnJvmti> {
    let jvmti = OwnJvmti::new(env)?;
    // Without tags, no path is found. Without the other capabilities, frames have no lines.
    let wanted = [raw::CAN_TAG_OBJECTS, raw::CAN_GET_SOURCE_FILE_NAME, raw::CAN_GET_LINE_NUMBERS];
    let _refused = jvmti.get().add_capabilities(&wanted);
    Some(jvmti)
}
