//! Finds containers that grow from dump to dump.
//!
//! Data flow: ledgers of at least three dumps of one program, the oldest first → their places, identified by what holds
//! them → one series per container and class of elements → series that rise between all of the last dumps, without
//! places below another growing one → grouped by the class of the added objects, because several containers may hold
//! the same objects.
//!
//! Two dumps are not enough: a container that is filled once has grown between them too.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use schemars::JsonSchema;
use serde::Serialize;

use crate::ledger::Ledger;

/// Smallest number of dumps.
pub const FEWEST: usize = 3;
/// Number of last steps from dump to dump that must rise; before them the program may warm up.
const STEPS: usize = 3;
/// Containers that grow when the program loads classes.
const IGNORED: [&str; 1] = ["java.lang.ClassLoader.parallelLockMap"];

/// A class whose objects accumulate in some containers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Growing {
    /// Name of the class.
    pub class: String,
    /// Containers that hold the objects, largest growth first.
    pub held_by: Vec<Container>,
}

/// A container, or all containers at one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Container {
    /// The path from a root: each reference, and the class that it leads to.
    pub path: Vec<Link>,
    /// Number of objects of the class in the container, for each dump.
    pub counts: Vec<u64>,
    /// Shallow bytes of these objects, for each dump.
    pub bytes: Vec<u64>,
}

/// A step of the path to a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Link {
    /// Name of the reference; for the first step, the kind of root.
    pub by: String,
    /// Class of the object that the reference leads to; `class X` for a class object.
    pub class: String,
}

impl Container {
    /// Smallest increase of the number of objects in the last steps.
    #[must_use]
    pub fn rise(&self) -> u64 {
        steps(&self.counts).map(|(before, after)| after.saturating_sub(before)).min().unwrap_or(0)
    }

    /// The path to the container from the last static field, such as `static com.acme.Shop.byId: java.util.HashMap`.
    #[must_use]
    pub fn way(&self) -> String {
        // Above a static field the path is not informative: start there.
        let from = self.path.iter().rposition(|link| link.by.starts_with("static ")).unwrap_or(0);
        let told = self.path.iter().enumerate().skip(from).map(|(at, Link { by, class })| match at {
            0 => format!("{class} ({by})"),
            _ => format!("{by}: {class}"),
        });
        told.collect::<Vec<_>>().join(" → ")
    }
}

impl Growing {
    /// Smallest increase per step, of the container that grows most.
    #[must_use]
    pub fn rise(&self) -> u64 {
        self.held_by.iter().map(Container::rise).max().unwrap_or(0)
    }
}

/// The last steps of a series.
fn steps(series: &[u64]) -> impl Iterator<Item = (u64, u64)> + '_ {
    let pairs = series.windows(2).map(|pair| (pair[0], pair[1]));
    let left_out = series.len().saturating_sub(1 + STEPS);
    pairs.skip(left_out)
}

/// Containers that grow by at least `least` objects from dump to dump, largest growth first. `None`: there are fewer
/// than three dumps.
#[must_use]
pub fn growth(ledgers: &[Ledger], least: u64) -> Option<Vec<Growing>> {
    if ledgers.len() < FEWEST {
        return None;
    }
    let all = Merged::of(&ledgers.iter().collect::<Vec<_>>());
    let rises = |series: &Series, least: u64| {
        steps(&series.counts).all(|(before, after)| after >= before.saturating_add(least))
    };
    let growing: Vec<_> = all.series.iter().filter(|(_, series)| rises(series, 1)).collect();
    // A place below a growing container grows with it: it is not reported, however little the container grows.
    let places: BTreeSet<usize> = growing.iter().map(|((place, _), _)| *place).collect();
    let mut by_class = BTreeMap::<&str, Vec<Container>>::new();
    for ((place, class), series) in growing.into_iter().filter(|(_, series)| rises(series, least.max(1))) {
        let path = all.path(*place);
        let above = &path[..path.len() - 1];
        let ignored = || path.iter().any(|at| IGNORED.contains(&all.places[*at].1));
        if above.iter().any(|at| places.contains(at)) || ignored() {
            continue;
        }
        let path = path.iter().map(|at| all.link(*at)).collect();
        let Series { counts, bytes } = series.clone();
        by_class.entry(class).or_default().push(Container { path, counts, bytes });
    }
    let mut growing: Vec<Growing> = by_class
        .into_iter()
        .map(|(class, mut held_by)| {
            held_by.sort_by_key(|container| std::cmp::Reverse(container.rise()));
            Growing { class: class.to_owned(), held_by }
        })
        .collect();
    growing.sort_by_key(|growing| std::cmp::Reverse(growing.rise()));
    Some(growing)
}

/// The places and classes whose objects differ between two dumps of one program, largest change first. Two dumps show
/// what changed, but not what keeps growing.
#[must_use]
pub fn changes(old: &Ledger, new: &Ledger) -> Vec<(String, Container)> {
    let both = [old, new];
    let all = Merged::of(&both);
    let changed = all.series.iter().filter(|(_, series)| {
        series.counts.first() != series.counts.last() || series.bytes.first() != series.bytes.last()
    });
    let mut changes: Vec<(String, Container)> = changed
        .map(|((place, class), Series { counts, bytes })| {
            let path = all.path(*place).into_iter().map(|at| all.link(at)).collect();
            ((*class).to_owned(), Container { path, counts: counts.clone(), bytes: bytes.clone() })
        })
        .collect();
    let size = |values: &[u64]| values.first().zip(values.last()).map(|(old, new)| old.abs_diff(*new));
    changes.sort_by_key(|(_, at)| std::cmp::Reverse((size(&at.bytes), size(&at.counts))));
    changes
}

/// Objects of one class in one container, in each dump.
#[derive(Debug, Clone)]
struct Series {
    counts: Vec<u64>,
    bytes: Vec<u64>,
}

/// The places of all ledgers, each one once.
struct Merged<'l> {
    /// For each place: its parent, the reference from there, and its class.
    places: Vec<(Option<usize>, &'l str, &'l str)>,
    series: BTreeMap<(usize, &'l str), Series>,
}

impl<'l> Merged<'l> {
    fn of(ledgers: &[&'l Ledger]) -> Self {
        let mut merged = Self { places: Vec::new(), series: BTreeMap::new() };
        let mut known = HashMap::new();
        for (dump, ledger) in ledgers.iter().enumerate() {
            let mut numbers: Vec<usize> = Vec::with_capacity(ledger.places.len());
            for place in &ledger.places {
                let parent = place.parent.and_then(|parent| numbers.get(crate::ids::index(parent)).copied());
                let key = (parent, place.by.as_str(), place.class.as_str());
                let next = merged.places.len();
                let number = *known.entry(key).or_insert(next);
                if number == next {
                    merged.places.push(key);
                }
                numbers.push(number);
            }
            for held in &ledger.holds {
                let Some(place) = numbers.get(crate::ids::index(held.place)) else { continue };
                let none = || Series { counts: vec![0; ledgers.len()], bytes: vec![0; ledgers.len()] };
                let series = merged.series.entry((*place, &held.class)).or_insert_with(none);
                series.counts[dump] = series.counts[dump].saturating_add(held.count);
                series.bytes[dump] = series.bytes[dump].saturating_add(held.bytes);
            }
        }
        merged
    }

    /// The places from the root to this one.
    fn path(&self, place: usize) -> Vec<usize> {
        let mut path: Vec<usize> = std::iter::successors(Some(place), |at| self.places[*at].0).collect();
        path.reverse();
        path
    }

    fn link(&self, at: usize) -> Link {
        let (_, by, class) = self.places[at];
        Link { by: by.to_owned(), class: class.to_owned() }
    }
}
