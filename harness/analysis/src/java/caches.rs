//! Caches of libraries that keep a limited number of entries and drop the others. Their class proves the limit, but not
//! how large it is. What fills such a cache is undecided.
//!
//! An object belongs to an entry if no more caches come, and if new entries bring everything on the path from the entry
//! to it. So more and more caches are a leak, and so is an entry whose list grows.
//!
//! Other maps probably have a limit, but their class does not prove it: what grows in them is a leak that is watched
//! longer, because the map may be full soon.

use std::collections::BTreeMap;

use memgate_wire::java::{HolderLink, HolderPath};

use super::findings::Findings;
use super::held::{HeldBy, owner};
use super::names::{is_literal, is_of_project, is_own, normalised};
use super::one_class::Growing;

/// A cache with a limit: its class and the class of its entries. A subclass may have no limit.
struct Cache {
    class: &'static str,
    entry: &'static str,
}

const CACHES: [Cache; 5] = [
    // With `Eviction.NONE`, entries have another class.
    Cache {
        class: "org.hibernate.internal.util.collections.BoundedConcurrentHashMap",
        entry: "org.hibernate.internal.util.collections.BoundedConcurrentHashMap$LIRSHashEntry",
    },
    Cache {
        class: "org.apache.commons.collections4.map.LRUMap",
        entry: "org.apache.commons.collections4.map.AbstractLinkedMap$LinkEntry",
    },
    Cache {
        class: "org.apache.commons.collections.map.LRUMap",
        entry: "org.apache.commons.collections.map.AbstractLinkedMap$LinkEntry",
    },
    Cache {
        class: "org.springframework.util.ConcurrentLruCache",
        entry: "org.springframework.util.ConcurrentLruCache$Node",
    },
    // Jackson's `LRUMap` since 2.14.
    Cache {
        class: "com.fasterxml.jackson.databind.util.internal.PrivateMaxEntriesMap",
        entry: "com.fasterxml.jackson.databind.util.internal.PrivateMaxEntriesMap$Node",
    },
];

/// Caffeine has a class for each kind of cache and of entry. The name of an entry ends with `MS` if its cache has a
/// maximum size. A maximum weight (`MW`) proves nothing: entries may weigh nothing.
const CAFFEINE: &str = "com.github.benmanes.caffeine.cache.";
const MAXIMUM_SIZE: &str = "MS";

/// Some of these caches keep their entries in such a map, too.
const MAP: &str = "java.util.concurrent.ConcurrentHashMap";
const NODE: &str = "java.util.concurrent.ConcurrentHashMap$Node";

/// Jackson keeps the names of fields that it read: some hundreds in the first class, 12,000 in the others. They are
/// strings, in tables of these classes or in an object of the last one.
const SYMBOLS: [&str; 2] = ["com.fasterxml.jackson.core.util.InternCache", "com.fasterxml.jackson.core.sym."];
const SYMBOL: &str = "com.fasterxml.jackson.core.sym.CharsToNameCanonicalizer$Bucket";

/// Whatever leads to an object of an entry comes at least half as often.
const AS_OFTEN: f64 = 0.5;

/// By how many instances each class rose.
type Rises = BTreeMap<String, f64>;

fn is_cache(class: &str) -> bool {
    class.starts_with(CAFFEINE) || keeps_symbols(class) || CACHES.iter().any(|cache| cache.class == class)
}

fn keeps_symbols(class: &str) -> bool {
    SYMBOLS.iter().any(|symbols| class.starts_with(symbols))
}

fn is_entry(cache: &str, class: &str) -> bool {
    let kind = class.strip_prefix(CAFFEINE).and_then(|kind| kind.strip_suffix(MAXIMUM_SIZE));
    cache.starts_with(CAFFEINE) && kind.is_some_and(|kind| kind.bytes().all(|b| b.is_ascii_uppercase()))
        || CACHES.iter().any(|known| known.class == cache && known.entry == class)
}

/// The known cache that the path to a growing class leads through, if new entries bring the objects.
fn filled<'a>(path: &'a HolderPath, growing: &Growing, rises: &Rises) -> Option<&'a str> {
    let caches = path.links.iter().enumerate().filter(|(_, link)| is_cache(owner(link)));
    caches.map(|(at, link)| (owner(link), &path.links[at..])).find_map(|(cache, links)| {
        let rise = |class: &str| rises.get(&normalised(class)).copied().unwrap_or(0.0);
        let entries: f64 =
            rises.iter().filter(|(class, _)| is_entry(cache, class)).map(|(_, rise)| rise).sum();
        let comes_with_entries = || {
            entries > 0.0
                && (is_table(cache, links, growing) || comes_with_entries(cache, links, entries, rise))
        };
        (rise(cache) <= 0.0 && (is_symbol(cache, links) || comes_with_entries())).then_some(cache)
    })
}

/// Does it come with new entries of the cache? `entries` is their number.
fn comes_with_entries(cache: &str, links: &[HolderLink], entries: f64, rise: impl Fn(&str) -> f64) -> bool {
    let first = links.iter().position(|link| is_entry(cache, &link.class) || link.class == NODE);
    let Some(first) =
        first.filter(|first| is_entry(cache, &links[*first].class) || is_inside(cache, &links[..*first]))
    else {
        return false;
    };
    let object = links.last().map_or(0.0, |link| rise(&link.class));
    object > 0.0 && links[first..].iter().all(|link| rise(&link.class) >= AS_OFTEN * entries.min(object))
}

/// A name that Jackson keeps, or the characters of it.
fn is_symbol(cache: &str, links: &[HolderLink]) -> bool {
    let is_name = |link: &HolderLink| is_literal(&link.class) || link.class == SYMBOL;
    keeps_symbols(cache) && links.last().is_some_and(is_name)
}

/// A table of the cache, which a larger one replaces.
fn is_table(cache: &str, links: &[HolderLink], growing: &Growing) -> bool {
    let element = links.last().and_then(|link| link.class.strip_suffix("[]"));
    let is_of_cache = element.is_some_and(|element| element == NODE || element.starts_with(cache));
    growing.count <= 0.0 && is_of_cache && is_inside(cache, links)
}

/// Do these links stay in the cache and its map?
fn is_inside(cache: &str, links: &[HolderLink]) -> bool {
    let package = if cache.starts_with(CAFFEINE) { CAFFEINE } else { cache };
    links.iter().all(|link| owner(link).starts_with(package) || owner(link).starts_with(MAP))
}

/// May the map have a limit? A subclass of `LinkedHashMap` probably overrides `removeEldestEntry`. Guava's caches have
/// such entries if they have a maximum size, or drop entries that nobody used for a time.
fn may_have_limit(path: &HolderPath) -> bool {
    let is_linked = |link: &HolderLink| link.class == "java.util.LinkedHashMap$Entry";
    let is_subclass = |link: &HolderLink| {
        is_own(owner(link))
            && ["java.util.LinkedHashMap.", "java.util.HashMap."].iter().any(|map| link.name.starts_with(map))
    };
    let of_guava = |link: &HolderLink| {
        let entry = link.class.strip_prefix("com.google.common.cache.LocalCache$");
        entry.is_some_and(|entry| entry.ends_with("AccessEntry") || entry.ends_with("AccessWriteEntry"))
    };
    let links = &path.links;
    links.iter().any(of_guava) || links.iter().any(is_subclass) && links.iter().any(is_linked)
}

impl Findings {
    /// What only fills caches is undecided. So are other classes than the project's without a known holder, if nothing
    /// else grows for certain and the agent was not asked for the holders of all: then `project` is given.
    pub(super) fn leave_what_fills_caches(&mut self, rises: &Rises, project: Option<&String>) {
        let mut caches = Vec::new();
        let mut fills = |growing: &mut Growing| {
            let HeldBy::Paths { paths, complete, open } = &growing.held else { return false };
            // Where the search saw everything, what it found no way to is in no cache.
            if *complete && *open > 0.0 {
                return false;
            }
            let of_paths: Option<Vec<&str>> = paths.iter().map(|path| filled(path, growing, rises)).collect();
            caches.extend(of_paths.iter().flatten().map(|cache| (*cache).to_owned()));
            of_paths.is_some_and(|caches| !caches.is_empty())
        };
        let mut left: Vec<Growing> = self.growing.extract_if(.., &mut fills).collect();
        let may_fill = |growing: &Growing| {
            let class = &growing.series.class;
            let is_of_others = |project: &String| match project.as_str() {
                "" => !is_own(class),
                project => !is_of_project(class, project),
            };
            matches!(growing.held, HeldBy::Unknown) && project.is_some_and(is_of_others)
        };
        if !left.is_empty() && self.growing.iter().all(may_fill) {
            left.append(&mut self.growing);
        }
        self.leave_open(left);
        self.filling = self.growing.is_empty() && !caches.is_empty() || self.may_fill_maps();
        self.caches.extend(caches);
    }

    /// Does everything that grows, as far as its holders are known, fill maps that may have a limit?
    fn may_fill_maps(&self) -> bool {
        let mut known = self.growing.iter().filter_map(|growing| match &growing.held {
            HeldBy::Paths { paths, .. } => Some(paths),
            HeldBy::Unknown => None,
        });
        known.clone().next().is_some() && known.all(|paths| paths.iter().all(may_have_limit))
    }
}
