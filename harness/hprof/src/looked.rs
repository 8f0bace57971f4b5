//! Selects which leaking objects get a path of their own when there are very many.
//!
//! Data flow: leaking objects in the order in which a search reached them → all of them; or, if there are too many, the
//! first of each crowd, with objects from each kind of place first → the other objects of a crowd are counted with its
//! first.
//!
//! A crowd is a set of elements of one collection: all their paths are the same except for the element, and so are
//! their fingerprints. Without this, the crowd of one leak would hide all other leaks. A kind of place is the classes
//! of the nearest holders: 5,000 threads that hold a leaking object each do not hide a leak elsewhere.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::bits::Bits;
use crate::follow::{Follow, Held, Via};
use crate::graph::{Graph, Kind};

/// Maximum number of objects whose paths are computed.
pub(crate) const MOST_PATHS: usize = 2000;

/// Maximum number of labels per object.
pub(crate) const MOST_LABELS: usize = 64;

/// Maximum number of objects per crowd, if there are more than [`MOST_PATHS`] in total. Also the maximum per kind of
/// place that are chosen before others.
const MOST_OF_A_CROWD: u32 = 64;
/// Number of nearest holders that define the kind of place of an object.
const NEAREST: usize = 16;

/// A wanted object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) object: u32,
    /// Bytes of everything that only such objects hold and that this one reaches first; and the number of objects.
    pub(crate) bytes: u64,
    pub(crate) objects: u64,
    /// Other wanted objects that only this one holds.
    pub(crate) also_retains: Others,
    /// Other wanted objects with their own paths that reach it.
    pub(crate) retained_by: Others,
    /// Other objects in the same collection whose paths were not computed.
    pub(crate) beside: Beside,
}

/// Objects that are only counted, and everything that only such objects hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Beside {
    /// How many, by class.
    pub(crate) classes: BTreeMap<String, u64>,
    pub(crate) instances: u64,
    pub(crate) bytes: u64,
    pub(crate) objects: u64,
}

/// The first of some objects, and how many more there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Others {
    pub(crate) first: Vec<u32>,
    pub(crate) more: u64,
}

impl Others {
    pub(crate) fn push(&mut self, object: u32) {
        if self.first.len() < MOST_LABELS {
            self.first.push(object);
        } else {
            self.more += 1;
        }
    }
}

/// The selected objects.
pub(crate) struct Looked {
    pub(crate) found: Vec<Found>,
    /// How many more objects there are that belong to no crowd of the selected ones.
    pub(crate) more: u64,
    /// The objects that belong to a crowd.
    crowded: Bits,
    /// Crowds by their holder.
    crowds: HashMap<u32, Crowd>,
    /// The objects that get a path; `None`: all.
    chosen: Option<Bits>,
}

#[derive(Default)]
struct Crowd {
    looked_at: u32,
    /// Index of its first object in `found`.
    first: Option<usize>,
}

impl Looked {
    /// `holder`: the object before a leaking one on the path to it; none if a root holds it.
    pub(crate) fn at(follow: &Follow<'_>, leaking: &[u32], holder: impl Fn(u32) -> Option<u32>) -> Self {
        let mut looked =
            Self { found: Vec::new(), more: 0, crowded: Bits::new(0), crowds: HashMap::new(), chosen: None };
        if leaking.len() > MOST_PATHS {
            looked.find_crowds(follow, leaking, &holder);
            looked.choose(follow, leaking, &holder);
        }
        for object in leaking {
            looked.look_at(*object, holder(*object));
        }
        looked
    }

    fn find_crowds(&mut self, follow: &Follow<'_>, leaking: &[u32], holder: &impl Fn(u32) -> Option<u32>) {
        let mut wanted = Bits::new(follow.graph.len());
        for object in leaking {
            wanted.set(*object);
        }
        let mut holders: Vec<u32> = leaking.iter().filter_map(|object| holder(*object)).collect();
        holders.sort_unstable();
        let crowds = holders.chunk_by(|a, b| a == b).filter(|held| held.len() > MOST_OF_A_CROWD as usize);
        self.crowded = Bits::new(follow.graph.len());
        for crowd in crowds {
            let by = crowd[0];
            self.crowds.insert(by, Crowd::default());
            follow.each(by, |held| {
                // If there are several references, the first one counts, so `wanted` is asked once.
                if wanted.has(held.object) && holder(held.object) == Some(by) && held.via != Via::Inner {
                    wanted.clear(held.object);
                    if is_element(&held) {
                        self.crowded.set(held.object);
                    }
                }
            });
        }
    }

    /// Chooses the objects that get a path: first some of each kind of place, then others.
    fn choose(&mut self, follow: &Follow<'_>, leaking: &[u32], holder: &impl Fn(u32) -> Option<u32>) {
        let (mut chosen, mut room) = (Bits::new(follow.graph.len()), MOST_PATHS);
        let mut of_place: HashMap<u64, u32> = HashMap::new();
        for some_of_each in [true, false] {
            for object in leaking.iter().copied() {
                if room == 0 {
                    break;
                }
                let crowd = self.crowd(object, holder(object)).and_then(|by| self.crowds.get_mut(&by));
                if chosen.has(object)
                    || crowd.as_ref().is_some_and(|crowd| crowd.looked_at >= MOST_OF_A_CROWD)
                {
                    continue;
                }
                if some_of_each {
                    let count = of_place.entry(place_of(follow.graph, object, holder)).or_default();
                    if *count >= MOST_OF_A_CROWD {
                        continue;
                    }
                    *count += 1;
                }
                if let Some(crowd) = crowd {
                    crowd.looked_at += 1;
                }
                chosen.set(object);
                room -= 1;
            }
        }
        self.chosen = Some(chosen);
    }

    fn look_at(&mut self, object: u32, holder: Option<u32>) {
        let is_chosen = self.chosen.as_ref().is_none_or(|chosen| chosen.has(object));
        let place = self.found.len();
        match self.crowd(object, holder).and_then(|by| self.crowds.get_mut(&by)) {
            Some(crowd) if is_chosen => {
                crowd.first.get_or_insert(place);
            }
            // The object is counted with the first of its crowd.
            Some(Crowd { first: Some(_), .. }) => return,
            None if is_chosen => {}
            _ => {
                self.more += 1;
                return;
            }
        }
        self.found.push(Found { object, ..Found::default() });
    }

    fn crowd(&self, object: u32, holder: Option<u32>) -> Option<u32> {
        holder.filter(|_| !self.crowds.is_empty() && self.crowded.has(object))
    }

    /// The index in `found` of the first object in the crowd of this object.
    pub(crate) fn first_beside(&self, object: u32, holder: Option<u32>) -> Option<usize> {
        self.crowds.get(&self.crowd(object, holder)?)?.first
    }
}

/// The kind of place of an object: the classes of its nearest holders. Holders of one class in a row are a chain,
/// however long.
fn place_of(graph: &Graph, object: u32, holder: &impl Fn(u32) -> Option<u32>) -> u64 {
    let mut place = DefaultHasher::new();
    let mut before = None;
    for object in std::iter::successors(Some(object), |object| holder(*object)).take(NEAREST) {
        let class = match graph.kind(object) {
            Kind::Of(class) => (0, class),
            Kind::Class(class) => (1, class),
            Kind::Primitives(_) | Kind::Unknown => (2, 0),
        };
        if before.replace(class) != Some(class) {
            class.hash(&mut place);
        }
    }
    place.finish()
}

/// Is the path the same for every element?
const fn is_element(held: &Held) -> bool {
    held.library.is_none()
        && matches!(held.via, Via::Element | Via::ElementOf(_) | Via::Item(_) | Via::Key | Via::Value(_))
}
