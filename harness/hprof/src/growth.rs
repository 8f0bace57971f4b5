//! Which containers grow from dump to dump.
//!
//! Data flow: ledgers of at least three dumps of one program, the oldest first → their places, told apart by what
//! holds them → for each container and class of elements one series → those that rise between all of the last dumps,
//! without what lies below one of them → joined by the class of what was added, because several containers may hold
//! the same objects.
//!
//! Two dumps decide nothing: whatever is filled once has grown between them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use schemars::JsonSchema;
use serde::Serialize;

use crate::ledger::Ledger;

/// Fewest dumps.
pub const FEWEST: usize = 3;
/// So many of the last steps from dump to dump have to rise; before that a program may warm up.
const STEPS: usize = 3;
/// Containers that grow by what the program loads.
const IGNORED: [&str; 1] = ["java.lang.ClassLoader.parallelLockMap"];

/// Objects of a class of which some containers hold more and more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Growing {
    /// Their class.
    pub class: String,
    /// Who holds them, those that grow most first.
    pub held_by: Vec<Container>,
}

/// A container, or all containers of one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Container {
    /// From a root on: what holds each, and its class.
    pub path: Vec<Link>,
    /// How many objects of the class it held in each dump.
    pub counts: Vec<u64>,
    /// Bytes of their own, in each dump.
    pub bytes: Vec<u64>,
}

/// A step of the way to a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Link {
    /// The reference; of the first one the kind of root.
    pub by: String,
    /// Class of what it refers to; `class X` for a class object.
    pub class: String,
}

impl Container {
    /// How many more it holds in each of the last steps, at least.
    #[must_use]
    pub fn rise(&self) -> u64 {
        steps(&self.counts).map(|(before, after)| after.saturating_sub(before)).min().unwrap_or(0)
    }

    /// The way to it, `static com.acme.Shop.byId: java.util.HashMap`, from the last static field on.
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
    /// How many more are held in each step, by the container that grows most.
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

/// What grows by at least `least` objects from dump to dump; the largest growth first. `None`: there are fewer than
/// three dumps.
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
    // What is below a container grows with it, and is no news, however little that one grows.
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

/// What two dumps of one program hold of a class at a place, where it is not the same; what changed
/// most first. Two dumps say what changed, and not what grows.
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

/// What one container holds of one class, dump by dump.
#[derive(Debug, Clone)]
struct Series {
    counts: Vec<u64>,
    bytes: Vec<u64>,
}

/// Places of all ledgers, each once.
struct Merged<'l> {
    /// What holds a place, by what, and its class.
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

    /// Places from the root to this one.
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
