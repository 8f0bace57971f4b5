//! Counts the containers of a dump and the objects that each holds. A ledger remains when the dump is deleted.
//!
//! Data flow: roots, [`Follow`] → one breadth-first search that gives each object the *place* where it is first
//! reached: the chain of classes and references from a root, without objects → for each container its elements, by
//! class, at its place → [`Ledger`].
//!
//! A place is the same in every dump of a program, whatever the addresses of its objects, so ledgers can be compared. A
//! chain of objects of one class (`Node.next → Node`) is one place, and so is a tree.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::analysis::{Heap, Work, root_name};
use crate::bits::Bits;
use crate::follow::{Collections, Via};
use crate::graph::Kind;
use crate::ids::{NONE, index, number};
use crate::read::{Progress, ReadError};
use crate::rules::Rules;
use crate::search::{Sizes, begin};
use crate::text::printable;

/// Version of the ledger format.
pub const LEDGER_VERSION: u32 = 1;
/// Maximum number of distinct places; later ones count for the place that holds them.
const MOST_PLACES: usize = 1 << 20;
/// Maximum number of pairs of a place and an element class; later ones are missing, and the ledger says so.
const MOST_HOLDINGS: usize = 1 << 21;
/// Longest chain of places.
const DEEPEST: u16 = 200;
/// A class that occurs again by the same reference within this many places above is a tree.
const RECURSION: usize = 4;
/// Maximum length of a place's text; a longer text is no valid name.
const LONGEST_NAME: usize = 1 << 16;

/// Containers of a dump.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    /// [`LEDGER_VERSION`].
    pub schema_version: u32,
    /// When the dump was written, in milliseconds since 1970; 0: unknown.
    pub milliseconds: u64,
    /// Objects that a root reaches.
    pub objects: u64,
    /// A part of the dump was missing, or it has more containers than are counted.
    pub truncated: bool,
    /// Places, each after the one that holds it.
    pub places: Vec<Place>,
    /// Objects held at each place.
    pub holds: Vec<Holding>,
}

/// A place of objects: the place that holds it, and the reference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The place that holds it; `None` for a root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// `com.acme.Shop.byId`, `static com.acme.Shop.instance`, `[x]`, `key`, `<Java Local>`; for a root, the kind of the
    /// root.
    pub by: String,
    /// Class of its objects; `class X` for a class object.
    pub class: String,
}

/// How many objects of a class the containers of a place hold together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holding {
    /// The place.
    pub place: u32,
    /// Class of the elements.
    pub class: String,
    /// How many.
    pub count: u64,
    /// Their own bytes, together.
    pub bytes: u64,
}

/// Why a file is no valid ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// It has another version.
    #[error("it is a ledger of version {0}, and version {LEDGER_VERSION} is read")]
    Version(u32),
    /// A place or its contents are not valid.
    #[error("it is no ledger: place {0} makes no sense")]
    Place(usize),
}

impl Ledger {
    /// Checks a ledger that was read from a file.
    ///
    /// # Errors
    /// It has another version, or refers to places that are missing.
    pub fn check(&self) -> Result<(), LedgerError> {
        if self.schema_version != LEDGER_VERSION {
            return Err(LedgerError::Version(self.schema_version));
        }
        let is_long = |text: &str| text.len() > LONGEST_NAME;
        for (at, place) in self.places.iter().enumerate() {
            let has_no_parent = place.parent.is_some_and(|parent| index(parent) >= at);
            if has_no_parent || is_long(&place.by) || is_long(&place.class) {
                return Err(LedgerError::Place(at));
            }
        }
        let lost =
            self.holds.iter().find(|held| index(held.place) >= self.places.len() || is_long(&held.class));
        lost.map_or(Ok(()), |held| Err(LedgerError::Place(index(held.place))))
    }
}

impl Heap {
    /// Counts the objects that the dump's containers hold.
    ///
    /// # Errors
    /// The dump cannot be read any more.
    pub fn ledger(&self, rules: &Rules, progress: Progress<'_>) -> Result<Ledger, ReadError> {
        let work = Work::new(self, rules, Collections::All, progress)?;
        let walk = Walk::new(self, &work);
        Ok(walk.run(rules, progress).ledger())
    }

    /// Counts all objects that a root reaches, each at its place, for [`crate::changes`].
    ///
    /// # Errors
    /// The dump cannot be read any more.
    pub fn places(&self, rules: &Rules, progress: Progress<'_>) -> Result<Ledger, ReadError> {
        let work = Work::new(self, rules, Collections::All, progress)?;
        let walk = Walk::new(self, &work);
        Ok(walk.run(rules, progress).of_everything())
    }
}

/// How a place is reached from the place above it, without names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum By {
    Root(u8),
    /// Field of a class, by the id of its name.
    Field(u32, u64),
    /// Class, and index among its static references.
    Static(u32, usize),
    Element,
    Key,
    Local,
    /// The class of an instance, its loader, its superclass, its signers, its protection domain.
    Class,
    Loader,
    Above,
    Signers,
    Domain,
}

/// A place while objects are walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Step {
    parent: u32,
    by: By,
    class: u32,
}

/// Marks class objects, as opposed to instances of the class.
const OF_CLASS: u32 = 1 << 30;
/// Marks arrays of primitives, by type.
const OF_PRIMITIVES: u32 = 1 << 29;
const UNKNOWN: u32 = u32::MAX;

type Held = HashMap<(u32, u32), (u64, u64)>;

struct Walk<'a> {
    heap: &'a Heap,
    work: &'a Work<'a>,
    sizes: Sizes,
    steps: Vec<(Step, u16)>,
    known: HashMap<Step, u32>,
    places: Vec<u32>,
    seen: Bits,
    queue: VecDeque<u32>,
    /// References that keep classes, followed when nothing else is left: the place above, the reference, and the
    /// object.
    classes: VecDeque<(u32, By, u32)>,
    waiting: Bits,
    elements: Held,
    /// Keys count if a map has no values, or all its values are one object.
    keys: Held,
    /// By place: the only value of its maps; [`NONE`]: there are several.
    values: HashMap<u32, u32>,
    too_many: bool,
}

impl<'a> Walk<'a> {
    fn new(heap: &'a Heap, work: &'a Work<'a>) -> Self {
        let objects = heap.graph.len();
        Self {
            heap,
            work,
            sizes: Sizes::new(&heap.dump, &heap.graph),
            steps: Vec::new(),
            known: HashMap::new(),
            places: vec![NONE; objects],
            seen: Bits::new(objects),
            queue: VecDeque::new(),
            classes: VecDeque::new(),
            waiting: Bits::new(objects),
            elements: Held::new(),
            keys: Held::new(),
            values: HashMap::new(),
            too_many: false,
        }
    }

    fn run(mut self, rules: &Rules, progress: Progress<'_>) -> Self {
        let Heap { dump, graph, .. } = self.heap;
        for begin in begin(dump, graph, rules, &self.work.device) {
            if self.seen.set(begin.object) {
                let step = Step { parent: NONE, by: By::Root(begin.tag), class: self.class(begin.object) };
                let place = self.place(step);
                self.places[index(begin.object)] = place;
                self.queue.push_back(begin.object);
            }
        }
        let mut done = 0_u64;
        while let Some(object) = self.next() {
            done += 1;
            if done.is_multiple_of(1 << 18) {
                progress("containers", done, Some(graph.len() as u64));
            }
            self.walk(object);
        }
        self
    }

    fn next(&mut self) -> Option<u32> {
        while self.queue.is_empty() {
            let (place, by, object) = self.classes.pop_front()?;
            if self.seen.set(object) {
                self.places[index(object)] = self.inside(place, by, self.class(object));
                self.queue.push_back(object);
            }
        }
        self.queue.pop_front()
    }

    fn walk(&mut self, object: u32) {
        let place = self.places[index(object)];
        let work = self.work;
        let mut value: Option<u32> = None;
        work.follow.each(object, |held| {
            let class = self.class(held.object);
            if let Via::Value(_) = held.via {
                value = Some(if value.is_none_or(|value| value == held.object) { held.object } else { NONE });
            }
            let by = match held.via {
                // Parts of a collection are neither its elements nor on the path to them.
                Via::Inner => {
                    if self.seen.set(held.object) {
                        self.places[index(held.object)] = place;
                    }
                    return;
                }
                Via::Field(slot) => {
                    let Kind::Of(of) = self.heap.graph.kind(object) else { return };
                    let slot = &self.heap.graph.layout(of).slots[slot];
                    By::Field(slot.class, slot.name)
                }
                Via::Static(at) => By::Static(self.class(object) & !OF_CLASS, at),
                Via::Class | Via::Loader | Via::Above | Via::Signers | Via::Domain => {
                    if !self.seen.has(held.object) && self.waiting.set(held.object) {
                        let by = match held.via {
                            Via::Class => By::Class,
                            Via::Loader => By::Loader,
                            Via::Signers => By::Signers,
                            Via::Domain => By::Domain,
                            _ => By::Above,
                        };
                        self.classes.push_back((place, by, held.object));
                    }
                    return;
                }
                Via::Local => By::Local,
                Via::Key => By::Key,
                Via::Element | Via::ElementOf(_) | Via::Item(_) | Via::Value(_) => By::Element,
            };
            match by {
                By::Element => self.count((place, class), held.object, false),
                By::Key => self.count((place, class), held.object, true),
                _ => {}
            }
            if !self.seen.set(held.object) {
                return;
            }
            let inside = self.inside(place, by, class);
            if inside == place && matches!(by, By::Field(..)) {
                self.count((place, class), held.object, false);
            }
            self.places[index(held.object)] = inside;
            if !work.follow.is_leaf(held.object) {
                self.queue.push_back(held.object);
            }
        });
        if let Some(value) = value {
            let of_place = self.values.entry(place).or_insert(value);
            if *of_place != value {
                *of_place = NONE;
            }
        }
    }

    /// Counts each object at its own place.
    fn of_everything(mut self) -> Ledger {
        (self.elements, self.keys) = (Held::new(), Held::new());
        for object in (0..self.places.len()).map(number) {
            let place = self.places[index(object)];
            if place != NONE {
                self.count((place, self.class(object)), object, false);
            }
        }
        self.ledger()
    }

    fn count(&mut self, at: (u32, u32), object: u32, is_key: bool) {
        let bytes = self.sizes.of(&self.heap.graph, object);
        let held = if is_key { &mut self.keys } else { &mut self.elements };
        if held.len() >= MOST_HOLDINGS && !held.contains_key(&at) {
            self.too_many = true;
            return;
        }
        let sum = held.entry(at).or_default();
        *sum = (sum.0 + 1, sum.1.saturating_add(bytes));
    }

    /// The place of an object that an object at `place` holds: a new one, or a place above if the object is a part of
    /// a chain or a tree.
    fn inside(&mut self, place: u32, by: By, class: u32) -> u32 {
        let (of, depth) = self.steps[index(place)];
        if matches!(by, By::Field(..)) && of.class == class || depth == DEEPEST {
            return place;
        }
        let mut above = place;
        for _ in 0..RECURSION {
            let Step { parent, by: its, class: of } = self.steps[index(above)].0;
            if its == by && of == class && by != By::Element {
                return above;
            }
            if parent == NONE {
                break;
            }
            above = parent;
        }
        self.place(Step { parent: place, by, class })
    }

    fn place(&mut self, step: Step) -> u32 {
        if let Some(place) = self.known.get(&step) {
            return *place;
        }
        if self.steps.len() >= MOST_PLACES && step.parent != NONE {
            return step.parent;
        }
        let depth = if step.parent == NONE { 0 } else { self.steps[index(step.parent)].1 + 1 };
        let place = number(self.steps.len());
        self.steps.push((step, depth));
        self.known.insert(step, place);
        place
    }

    fn class(&self, object: u32) -> u32 {
        match self.heap.graph.kind(object) {
            Kind::Of(class) => class,
            Kind::Class(class) => class | OF_CLASS,
            Kind::Primitives(kind) => u32::from(kind) | OF_PRIMITIVES,
            Kind::Unknown => UNKNOWN,
        }
    }

    fn class_name(&self, class: u32) -> String {
        let of =
            |class: u32| self.heap.dump.classes.get(index(class)).map_or("?", |class| class.name.as_str());
        match class {
            UNKNOWN => "?".to_owned(),
            class if class & OF_CLASS != 0 => format!("class {}", printable(of(class & !OF_CLASS))),
            class if class & OF_PRIMITIVES != 0 => {
                crate::text::array_name((class & 0xff).to_le_bytes()[0]).to_owned()
            }
            class => printable(of(class)),
        }
    }

    fn by_name(&self, by: By) -> String {
        let dump = &self.heap.dump;
        match by {
            By::Root(tag) => root_name(tag).to_owned(),
            By::Field(class, name) => format!("{}.{}", self.class_name(class), printable(&dump.name(name))),
            By::Static(class, at) => {
                let statics = dump.classes.get(index(class)).map_or(&[][..], |class| &class.statics);
                let field = statics.iter().filter(|field| field.kind == 2).nth(at);
                let name = field.map_or_else(|| "?".to_owned(), |field| printable(&dump.name(field.name)));
                format!("static {}.{name}", self.class_name(class))
            }
            By::Element => "[x]".to_owned(),
            By::Key => "key".to_owned(),
            By::Local => "<Java Local>".to_owned(),
            By::Class => "<class>".to_owned(),
            By::Loader => "<loader>".to_owned(),
            By::Signers => "<signers>".to_owned(),
            By::Domain => "<domain>".to_owned(),
            By::Above => "<super>".to_owned(),
        }
    }

    /// Keeps only places that hold something, and the places on the path to them.
    fn ledger(self) -> Ledger {
        let mut elements: BTreeMap<(u32, u32), (u64, u64)> =
            self.elements.iter().map(|(at, sum)| (*at, *sum)).collect();
        // A map with one value for several keys is a set: `newKeySet`, `newSetFromMap`, `TreeSet`.
        for (place, value) in self.values.iter().filter(|(_, value)| **value != NONE) {
            let at = (*place, self.class(*value));
            if elements.get(&at).is_some_and(|(count, _)| *count > 1) {
                elements.remove(&at);
            }
        }
        let has_values = |place: u32| elements.range((place, 0)..=(place, u32::MAX)).next().is_some();
        let keys = self.keys.iter().filter(|((place, _), _)| !has_values(*place));
        let mut all = elements.clone();
        all.extend(keys);
        let mut needed = vec![false; self.steps.len()];
        for (place, _) in all.keys() {
            let mut at = *place;
            while at != NONE && !std::mem::replace(&mut needed[index(at)], true) {
                at = self.steps[index(at)].0.parent;
            }
        }
        let mut numbers = vec![NONE; self.steps.len()];
        let mut places = Vec::new();
        for (at, (step, _)) in self.steps.iter().enumerate().filter(|(at, _)| needed[*at]) {
            numbers[at] = number(places.len());
            let parent = (step.parent != NONE).then(|| numbers[index(step.parent)]);
            places.push(Place { parent, by: self.by_name(step.by), class: self.class_name(step.class) });
        }
        let mut holds = BTreeMap::<(u32, String), (u64, u64)>::new();
        for ((place, class), (count, bytes)) in all {
            // Classes of several loaders may have the same name.
            let sum = holds.entry((numbers[index(place)], self.class_name(class))).or_default();
            *sum = (sum.0 + count, sum.1.saturating_add(bytes));
        }
        let holds = holds.into_iter();
        Ledger {
            schema_version: LEDGER_VERSION,
            milliseconds: self.heap.dump.header.milliseconds,
            objects: self.seen.count(),
            truncated: self.too_many || self.heap.dump.odd.truncated() || self.heap.graph.odd.truncated(),
            places,
            holds: holds
                .map(|((place, class), (count, bytes))| Holding { place, class, count, bytes })
                .collect(),
        }
    }
}
