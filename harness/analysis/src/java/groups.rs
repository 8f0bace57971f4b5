//! Joins growing classes into leaks: classes held through one another are one leak.
//!
//! A map that is never cleared grows by nodes, keys, values and what the values refer to. The path from the root to
//! each of them begins with the path to its holder. So classes are joined if one path continues another. A leak is
//! named after the project's own class nearest to the root. Classes of the JDK are used only if nothing else grew.

use std::collections::{BTreeMap, BTreeSet};

use memgate_model::{Frame, HolderStep, is_of_language, stable_field_name};
use memgate_wire::java::{HolderKind, HolderLink, HolderPath, JavaSite};

use super::findings::Findings;
use super::held::{HeldBy, MAX_EXPLAINED, MAX_PATHS};
use super::names::{
    OF_THE_JDK, is_inside_collection, is_literal, is_of_project, is_own, naming_rank, normalised, project_of,
};
use super::one_class::Growing;
use super::rounds::JavaSuspect;
use super::series::last_sites;
use crate::os_names;
use crate::record::ProcessRecord;
use crate::signature::java_id;
use crate::stats::float;

/// A path that holds less than this share of what grew does not explain the growth.
const EXPLAINING_SHARE: f64 = 0.3;
/// A class with fewer instances per iteration does not come with most of them.
const RARELY: f64 = 0.5;

/// Growing classes whose objects are held through one another.
#[derive(Debug, Clone)]
pub(crate) struct JavaLeak {
    /// `j1-…`.
    pub(crate) id: String,
    /// The class that names the leak.
    pub(crate) class: String,
    /// Instances of [`Self::class`] per iteration. 0: only their bytes grow.
    pub(crate) count: f64,
    /// Bytes of all its classes per iteration.
    pub(crate) bytes: f64,
    /// Path from the root to [`Self::class`]. Empty: unknown.
    pub(crate) holder: Vec<HolderStep>,
    /// Allocation stack, innermost first.
    pub(crate) frames: Vec<Frame>,
    /// Live instances of all its classes at the ends of the test.
    pub(crate) instances: Vec<f64>,
    /// Their bytes.
    pub(crate) live_bytes: Vec<f64>,
    /// The running threads of which it counts the objects or the tasks, and whatever these hold.
    pub(crate) threads: Option<LeakedThreads>,
    /// All its classes.
    classes: Vec<String>,
}

/// Threads of one name that stay.
#[derive(Debug, Clone)]
pub(crate) struct LeakedThreads {
    pub(crate) name: String,
    /// Per iteration.
    pub(crate) count: f64,
    /// The stack that allocated their objects or, if it is not known, their tasks.
    pub(crate) frames: Vec<Frame>,
}

impl JavaLeak {
    /// Did it grow in the rounds? If the leak has classes of the project or a library, one of these must have grown:
    /// classes of the JDK grow together with anything.
    pub(crate) fn is_of(&self, suspect: &JavaSuspect) -> bool {
        let has_own = self.classes.iter().any(|class| is_own(class));
        suspect.saw_any(self.classes.iter().map(String::as_str).filter(|class| !has_own || is_own(class)))
    }
}

/// One path to a class.
#[derive(Debug, Clone)]
struct Way {
    /// Index in the list of growing classes.
    class: usize,
    instances: f64,
    steps: Vec<HolderStep>,
}

/// The leaks of `test`, made of its growing classes. Leaks of the project come first, then by size.
pub(crate) fn leaks(record: &ProcessRecord, test: &str, findings: &Findings) -> Vec<JavaLeak> {
    let growing = &findings.growing;
    let mut all: Vec<Vec<Way>> = growing.iter().enumerate().map(|(class, g)| told(class, g)).collect();
    behind_instances(&mut all, growing);
    let mut ways = chosen(growing, &all);
    add_other_places(&mut ways, growing, all, |class| last_sites(record, test, class));
    let mut groups = joined(&ways);
    let registered = take_registered(&mut groups, &ways, growing);
    let unheld: Vec<usize> =
        (0..growing.len()).filter(|class| !ways.iter().any(|way| way.class == *class)).collect();
    let mut leaks = Vec::new();
    let mut left: Vec<usize> = registered.into_iter().chain(unheld).collect();
    if groups.is_empty() {
        if !left.is_empty() {
            let members: Vec<_> = left.drain(..).map(|class| (class, 1.0)).collect();
            leaks.push(leak(record, test, growing, &members, &[]));
        }
        return leaks;
    }
    // A class without a path joins a group that has a class with the same count. Otherwise it joins the first group.
    // The project's own groups come first, because the class more likely belongs to these than to what a library keeps.
    // Larger groups come before smaller ones.
    let project = project_of(test);
    let own = |group: &Vec<usize>| {
        group.iter().map(|way| naming_rank(&growing[ways[*way].class].series.class, &project)).min()
    };
    groups.sort_by(|a, b| {
        let by_bytes = || total(growing, &shares(b, &ways)).total_cmp(&total(growing, &shares(a, &ways)));
        own(a).cmp(&own(b)).then_with(by_bytes)
    });
    let mut extra = vec![Vec::new(); groups.len()];
    for class in left {
        let same = |group: &Vec<usize>| {
            group.iter().any(|way| growing[ways[*way].class].count == growing[class].count)
        };
        let at = groups.iter().position(same).unwrap_or(0);
        extra[at].push((class, 1.0));
    }
    for (group, extra) in groups.iter().zip(extra) {
        let mut members = shares(group, &ways);
        members.extend(extra);
        let of_group: Vec<&Way> = group.iter().map(|way| &ways[*way]).collect();
        leaks.push(leak(record, test, growing, &members, &of_group));
    }
    // The project's own leaks come first: a library usually keeps its part only as long as they exist.
    let rank = |leak: &JavaLeak| naming_rank(&leak.class, &project);
    leaks.sort_by(|a, b| {
        rank(a).cmp(&rank(b)).then_with(|| b.bytes.total_cmp(&a.bytes)).then_with(|| a.id.cmp(&b.id))
    });
    leaks
}

/// The paths that explain the growth of each class. A class of the JDK that has many other paths belongs to the classes
/// on its path.
fn chosen(growing: &[Growing], all: &[Vec<Way>]) -> Vec<Way> {
    let mut chosen: Vec<Way> = Vec::new();
    let mut waiting: Vec<usize> = Vec::new();
    for (class, ways) in all.iter().enumerate() {
        if is_own(&growing[class].series.class) {
            chosen.extend(explaining(&growing[class], ways).cloned())
        } else {
            waiting.push(class)
        }
    }
    // Nearest to the root first, so that a node is placed before its key and value.
    waiting.sort_by_key(|class| explaining(&growing[*class], &all[*class]).map(|way| way.steps.len()).min());
    // Number of classes with a path that continues this one: classes that grow together are held together.
    let company =
        |way: &Way| all.iter().filter(|ways| ways.iter().any(|other| continues(other, way))).count();
    loop {
        let mut found = false;
        waiting.retain(|class| {
            let known = |way: &&Way| chosen.iter().any(|known| continues(known, way));
            let through: Vec<Way> = all[*class].iter().filter(known).cloned().collect();
            // Each of several fields may hold few instances, but all of them together enough.
            let wait = through.is_empty() || held_by(through.iter()) < enough(&growing[*class], &all[*class]);
            if !wait {
                found = true;
                chosen.extend(through);
            }
            wait
        });
        if found {
            continue;
        }
        let explained = |class: &usize| is_explained(&growing[*class], &all[*class]);
        // If nothing else is known, use a path that holds only a few of many instances, or one to arrays that are
        // replaced each time.
        let most_company = |class: &usize| all[*class].iter().map(company).max().unwrap_or(0);
        let any = || {
            let held = (0..waiting.len()).rev().filter(|at| !all[waiting[*at]].is_empty());
            held.max_by_key(|at| most_company(&waiting[*at])).filter(|_| chosen.is_empty())
        };
        let next = waiting.iter().position(explained).or_else(any);
        let Some(class) = next.map(|at| waiting.remove(at)) else { return chosen };
        let expected = growing[class].count;
        let best = explaining(&growing[class], &all[class]).min_by(|a, b| {
            let far = |way: &Way| (way.instances - expected).abs();
            far(a).total_cmp(&far(b)).then_with(|| company(b).cmp(&company(a)))
        });
        chosen.extend(best.cloned());
    }
}

/// Adds paths from other static fields or threads, through a class of the project or a library: a waiver of one place
/// must not cover another. Another path may also lead to a few objects of a known leak. So it counts only if each path
/// to the class leads to as many instances as a stack of its own allocated.
fn add_other_places<'a>(
    chosen: &mut Vec<Way>,
    growing: &[Growing],
    all: Vec<Vec<Way>>,
    sites: impl Fn(&str) -> Vec<&'a JavaSite>,
) {
    let root = |way: &Way| way.steps.first().map(|step| (step.owner.clone(), step.name.clone()));
    let has_a_stack_for_each = |class: usize| {
        let mut held: Vec<f64> = all[class].iter().map(|way| way.instances).collect();
        let mut made: Vec<f64> =
            sites(&growing[class].series.class).iter().map(|site| float(site.samples)).collect();
        held.sort_by(f64::total_cmp);
        made.sort_by(f64::total_cmp);
        held == made
    };
    let is_place = |way: &&Way| {
        let mut known = chosen.iter().filter(|known| known.class == way.class).peekable();
        known.peek().is_some()
            && known.all(|known| root(known) != root(way))
            && way.steps.iter().any(|step| is_own(&step.owner))
            && !chosen.iter().any(|known| continues(known, way))
            && has_a_stack_for_each(way.class)
    };
    let places: Vec<Way> = all.iter().flatten().filter(is_place).cloned().collect();
    chosen.extend(places.iter().cloned());
    let is_missing = |way: &Way| {
        let mut known = chosen.iter().filter(|known| known.class == way.class).peekable();
        known.peek().is_some() && known.all(|known| known.steps != way.steps)
    };
    let belongs = |way: &Way| places.iter().any(|place| continues(place, way));
    let parts: Vec<Way> = all.into_iter().flatten().filter(|way| is_missing(way) && belongs(way)).collect();
    chosen.extend(parts);
}

/// Do these paths lead to what grows, or may these be other instances? The agent searches the holders of at most
/// [`MAX_EXPLAINED`] instances.
fn is_explained(growing: &Growing, ways: &[Way]) -> bool {
    let others =
        matches!(growing.held, HeldBy::Paths { open, .. } if growing.count > 0.0 && open >= growing.count);
    // If arrays are replaced each time, paths through the JDK alone may lead to other arrays of the JDK.
    let replaced = growing.count <= 0.0
        && !ways.iter().flat_map(|way| &way.steps).any(|step| is_own(&step.owner) || is_own(&step.class));
    let told = held_by(explaining(growing, ways));
    !ways.is_empty() && !others && !replaced && told >= EXPLAINING_SHARE * growing.count.min(MAX_EXPLAINED)
}

/// Paths with enough instances. Holders are reported for what one iteration left; a path with far fewer instances does
/// not hold what grows.
fn explaining<'a>(growing: &Growing, ways: &'a [Way]) -> impl Iterator<Item = &'a Way> {
    let enough = enough(growing, ways);
    ways.iter().filter(move |way| way.instances >= enough)
}

fn enough(growing: &Growing, ways: &[Way]) -> f64 {
    let most = ways.iter().map(|way| way.instances).fold(0.0, f64::max);
    (EXPLAINING_SHARE * growing.count).min(most)
}

fn held_by<'a>(ways: impl Iterator<Item = &'a Way>) -> f64 {
    ways.map(|way| way.instances).sum()
}

fn told(class: usize, growing: &Growing) -> Vec<Way> {
    let HeldBy::Paths { paths, .. } = &growing.held else { return Vec::new() };
    paths.iter().take(MAX_PATHS).map(|path| way(class, path)).collect()
}

/// A class loader lives as long as an instance of a class that it loaded. So a path from a class loader continues the
/// path to such an instance.
fn behind_instances(all: &mut [Vec<Way>], growing: &[Growing]) {
    let loader =
        |way: &Way| way.steps.first().is_some_and(|first| first.kind == HolderKind::ClassLoader.text());
    let firsts: BTreeMap<&str, Vec<HolderStep>> = (growing.iter().zip(all.iter()))
        .filter_map(|(growing, ways)| {
            let first = ways.iter().find(|way| !loader(way))?;
            Some((growing.series.class.as_str(), first.steps.clone()))
        })
        .collect();
    for way in all.iter_mut().flatten().filter(|way| loader(way)) {
        let instance = way.steps.first().and_then(|first| firsts.get(first.owner.as_str()));
        way.steps.splice(0..0, instance.into_iter().flatten().cloned());
    }
}

fn way(class: usize, path: &HolderPath) -> Way {
    let mut steps: Vec<HolderStep> = Vec::new();
    for link in &path.links {
        let step = step(link);
        let element = link.kind == HolderKind::Array || step.name == "[x]";
        if let Some(before) = steps.last_mut().filter(|before| element && !before.name.is_empty()) {
            before.name.push_str("[x]");
            before.class = step.class;
            continue;
        }
        // Nodes of a list refer to one another. How many of them are on the path does not matter.
        let linked = steps.last().is_some_and(|before| before.class == step.owner);
        if linked && link.kind == HolderKind::Field && step.owner == step.class {
            continue;
        }
        steps.push(step);
    }
    Way { class, instances: float(path.instances), steps }
}

fn step(link: &HolderLink) -> HolderStep {
    let owner =
        if link.kind == HolderKind::Thread { os_names::thread(&link.owner) } else { normalised(&link.owner) };
    HolderStep {
        kind: link.kind.text().to_owned(),
        owner,
        name: stable_field_name(&link.owner, &link.name).to_owned(),
        class: normalised(&link.class),
    }
}

/// Removes groups of JDK objects that are held only for cleaning or finalizing something, or because a virtual thread
/// lives. They grow with that thing. They stay if nothing else is known to grow.
fn take_registered(groups: &mut Vec<Vec<usize>>, ways: &[Way], growing: &[Growing]) -> Vec<usize> {
    let registered = |group: &Vec<usize>| {
        let of_jdk = |way: &Way| !is_own(&growing[way.class].series.class);
        group.iter().all(|way| of_jdk(&ways[*way]) && is_registration(&ways[*way]))
    };
    if groups.iter().all(registered) {
        return Vec::new();
    }
    let taken: Vec<Vec<usize>> = groups.extract_if(.., |group| registered(group)).collect();
    let held = |class: &usize| groups.iter().flatten().any(|way| ways[*way].class == *class);
    let classes: BTreeSet<usize> = taken.iter().flatten().map(|way| ways[*way].class).collect();
    classes.into_iter().filter(|class| !held(class)).collect()
}

/// Does the path go through a list of cleaners, finalizers or virtual threads, or through the code that frees the
/// pixels of images?
fn is_registration(way: &Way) -> bool {
    const LISTS: [&str; 4] = [
        "java.lang.ref.Finalizer",
        "sun.java2d.Disposer",
        "jdk.internal.ref.",
        "jdk.internal.vm.ThreadContainers",
    ];
    let of = |owner: &str| LISTS.iter().any(|list| owner.starts_with(list));
    way.steps.iter().any(|step| of(&step.owner))
}

/// Is one path the beginning of the other?
fn continues(a: &Way, b: &Way) -> bool {
    let same = |(a, b): (&HolderStep, &HolderStep)| {
        let (long, short) = if a.name.len() > b.name.len() { (&a.name, &b.name) } else { (&b.name, &a.name) };
        // The table of a map, and its entries.
        let within =
            long.strip_prefix(short.as_str()).is_some_and(|rest| rest.split("[x]").all(str::is_empty));
        a.kind == b.kind && a.owner == b.owner && within
    };
    !a.steps.is_empty() && !b.steps.is_empty() && a.steps.iter().zip(&b.steps).all(same)
}

/// Groups of paths that continue one another, directly or through a third.
fn joined(ways: &[Way]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (i, way) in ways.iter().enumerate() {
        let (touching, mut rest): (Vec<_>, Vec<_>) =
            groups.into_iter().partition(|group| group.iter().any(|other| continues(&ways[*other], way)));
        let mut group: Vec<usize> = touching.into_iter().flatten().collect();
        group.push(i);
        rest.push(group);
        groups = rest;
    }
    groups
}

/// The classes of a group, each with the share of its growth that the group holds.
fn shares(group: &[usize], ways: &[Way]) -> Vec<(usize, f64)> {
    let mut here = BTreeMap::<usize, f64>::new();
    for way in group {
        *here.entry(ways[*way].class).or_default() += ways[*way].instances;
    }
    let all =
        |class: usize| ways.iter().filter(|way| way.class == class).map(|way| way.instances).sum::<f64>();
    here.into_iter().map(|(class, n)| (class, if n > 0.0 { n / all(class) } else { 1.0 })).collect()
}

fn total(growing: &[Growing], members: &[(usize, f64)]) -> f64 {
    members.iter().map(|(class, share)| growing[*class].bytes * share).sum()
}

fn leak(
    record: &ProcessRecord,
    test: &str,
    growing: &[Growing],
    members: &[(usize, f64)],
    ways: &[&Way],
) -> JavaLeak {
    // A table that doubles now and then is less exact than its entries, so it is left out. A class that adds bytes each
    // time in an uneven number of arrays is a part of the leak.
    let counted = members.iter().any(|(class, _)| growing[*class].count > 0.0);
    let says = |class: usize| !counted || growing[class].count > 0.0 || growing[class].is_steady;
    let members: Vec<(usize, f64)> = members.iter().copied().filter(|(class, _)| says(*class)).collect();
    let ends = members.iter().map(|(class, _)| growing[*class].series.bytes.len()).max().unwrap_or(0);
    let sum = |of: fn(&Growing) -> &[f64]| {
        let mut sum = vec![0.0; ends];
        for (class, share) in &members {
            sum.iter_mut().zip(of(&growing[*class])).for_each(|(sum, value)| *sum += value * share);
        }
        sum
    };
    let (instances, live_bytes) = (sum(|g| &g.series.instances), sum(|g| &g.series.bytes));
    let (title, share) = titled(growing, &members, ways, &project_of(test));
    let class = growing[title].series.class.clone();
    let count = whole(growing[title].count * share);
    // If the holders of this class were not searched, use those of a class with the same count.
    let as_many = members.iter().filter(|(class, _)| growing[*class].count == growing[title].count);
    let nearest = as_many.filter_map(|(class, _)| way_to(*class, ways)).min_by_key(|way| way.steps.len());
    let way = way_to(title, ways).or(nearest);
    let holder = way.map_or_else(Vec::new, |way| way.steps.clone());
    let counts = members
        .iter()
        .map(|(class, share)| (growing[*class].series.class.as_str(), growing[*class].count * share));
    let counts: Vec<(&str, f64)> = counts.collect();
    let made = if is_of_jdk_alone(&holder) { made_for_certain(record, test, &class, &counts) } else { None };
    let (mut frames, calls) =
        made.unwrap_or_else(|| (allocated(record, test, (&class, count), &holder), BTreeSet::new()));
    let project = project_of(test);
    let is_ours = |frame: &Frame| frame.function.as_deref().is_some_and(|name| is_of_project(name, &project));
    // An array that a larger one replaces each time survives no execution: samples that survive are of other arrays.
    let is_nameless = count <= 0.0 && holder.is_empty() && is_literal(&class) && !frames.iter().any(is_ours);
    let id = match is_nameless {
        true => {
            frames.clear();
            java_id(&class, std::iter::once(test))
        }
        false => id((test, &class), &holder, &frames, &calls),
    };
    let bytes = whole(total(growing, &members));
    let classes = members.iter().map(|(class, _)| growing[*class].series.class.clone()).collect();
    let threads = threads(record, test, growing, &members, ways, count);
    JavaLeak { id, class, count, bytes, holder, frames, instances, live_bytes, threads, classes }
}

/// The share of objects should be a whole number: rounds it if it is nearly whole.
fn whole(value: f64) -> f64 {
    if (value - value.round()).abs() < 0.05 { value.round() } else { value }
}

/// The running threads of which a leak of `count` objects with these paths counts the objects or the tasks.
fn threads(
    record: &ProcessRecord,
    test: &str,
    growing: &[Growing],
    members: &[(usize, f64)],
    ways: &[&Way],
    count: f64,
) -> Option<LeakedThreads> {
    let of_threads = members.iter().flat_map(|(class, share)| {
        let of_class = ways.iter().filter(move |way| way.class == *class);
        of_class.filter_map(move |way| Some((way, thread_of(&way.steps)?, growing[*class].count * share)))
    });
    let mut of_threads: Vec<_> = of_threads.collect();
    of_threads.sort_by(|a, b| a.0.steps.len().cmp(&b.0.steps.len()).then_with(|| a.2.total_cmp(&b.2)));
    let (_, name, threads) = of_threads.first()?;
    let fewest = of_threads.iter().map(|(_, _, count)| *count).fold(f64::INFINITY, f64::min);
    // Threads that share a task are all of the leak. Of threads with a task each, some may hold nothing that leaks.
    let threads = if fewest < *threads { *threads } else { threads.min(count) };
    let made = |(way, _, count): &(&&Way, &str, f64)| {
        allocated(record, test, (&growing[way.class].series.class, whole(*count)), &way.steps)
    };
    let mut frames = of_threads.iter().map(made).find(|frames| !frames.is_empty()).unwrap_or_default();
    leave_callers_of_project(&mut frames, &project_of(test));
    Some(LeakedThreads { name: (*name).to_owned(), count: whole(threads), frames })
}

/// Removes the frames of the test framework, which called the project.
fn leave_callers_of_project(frames: &mut Vec<Frame>, project: &str) {
    let is_ours = |frame: &Frame| frame.function.as_deref().is_some_and(|name| is_of_project(name, project));
    if let Some(last) = frames.iter().rposition(is_ours) {
        frames.truncate(last.saturating_add(1));
    }
}

/// Name of a running thread of which the path leads to the object or the task: each thread has one of these.
fn thread_of(path: &[HolderStep]) -> Option<&str> {
    let (root, steps) = path.split_first()?;
    let of_thread = |step: &HolderStep| {
        let field = format!("{}.{}", step.owner, step.name);
        // Since JDK 19 the task is in an object of its own.
        ["java.lang.Thread.target", "java.lang.Thread.holder", "java.lang.Thread$FieldHolder.task"]
            .contains(&field.as_str())
    };
    (root.kind == HolderKind::Thread.text() && steps.iter().all(of_thread)).then_some(&root.owner)
}

/// The class that names the leak. The project's own classes come before those of libraries, and these before those of
/// the JDK. A class of a library that comes with few iterations names nothing that comes with each: the segments of a
/// queue hold many elements. Next come classes with a known holder, or with the same count as such a class. Nodes of
/// collections and bytes of strings come last. Then the nearest to the root wins, then the one with the most bytes.
fn titled(growing: &[Growing], members: &[(usize, f64)], ways: &[&Way], project: &str) -> (usize, f64) {
    let held: Vec<f64> =
        ways.iter().map(|way| growing[way.class].count).filter(|count| *count > 0.0).collect();
    let most = members.iter().map(|(class, _)| growing[*class].count).fold(0.0, f64::max);
    let rank = |class: usize| {
        let name = &growing[class].series.class;
        let way = way_to(class, ways);
        let is_segment = most >= 1.0 && growing[class].count < RARELY && !is_of_project(name, project);
        (
            if is_segment { OF_THE_JDK } else { naming_rank(name, project) },
            way.is_none() && !held.contains(&growing[class].count),
            is_inside_collection(name),
            matches!(name.as_str(), "byte[]" | "char[]"),
            way.map_or(usize::MAX, |way| way.steps.len()),
        )
    };
    let better = |a: &&(usize, f64), b: &&(usize, f64)| {
        let bytes = |class: usize| growing[class].bytes;
        rank(a.0).cmp(&rank(b.0)).then_with(|| bytes(b.0).total_cmp(&bytes(a.0)))
    };
    members.iter().min_by(better).copied().unwrap_or((0, 1.0))
}

/// The path that holds most instances of a class; of equal ones the shortest. The choice is deterministic.
fn way_to<'a>(class: usize, ways: &[&'a Way]) -> Option<&'a Way> {
    let of_class = ways.iter().copied().filter(|way| way.class == class);
    let text =
        |way: &Way| way.steps.iter().map(|step| format!("{} {}", step.owner, step.name)).collect::<Vec<_>>();
    of_class.min_by(|a, b| {
        let equal = || a.steps.len().cmp(&b.steps.len()).then_with(|| text(a).cmp(&text(b)));
        b.instances.total_cmp(&a.instances).then_with(equal)
    })
}

/// No class of the project or of a library is on the path. The name of a thread is no class.
fn is_of_jdk_alone(holder: &[HolderStep]) -> bool {
    let is_class = |step: &&HolderStep| step.kind != HolderKind::Thread.text();
    !holder.is_empty() && !holder.iter().filter(is_class).any(|step| is_own(&step.owner))
}

/// The first call on a stack of `test` that does not belong to the JDK or to the library of a language.
fn own_call<'a>(test: &str, frames: &'a [Frame]) -> Option<&'a str> {
    let project = project_of(test);
    let is_ours = |call: &&str| is_own(call) && (!is_of_language(call) || is_of_project(call, &project));
    frames.iter().filter_map(|frame| frame.function.as_deref()).find(is_ours)
}

/// Where the leak was allocated, and by which own calls, if the number of samples of one class equals its leak count.
/// `counts` has the classes with their instances per iteration. The class in the title comes first, unless it is the
/// JDK's: it may be another one in the next run. Strings and their bytes survive from many places; nodes usually do
/// not.
fn made_for_certain(
    record: &ProcessRecord,
    test: &str,
    title: &str,
    counts: &[(&str, f64)],
) -> Option<(Vec<Frame>, BTreeSet<String>)> {
    let java = record.java.as_ref()?;
    let exact = |(class, count)| {
        let sites = last_sites(record, test, class);
        let samples = sites.iter().map(|site| site.samples).fold(0, u64::saturating_add);
        (samples > 0 && float(samples) == whole(count)).then(|| (is_literal(class), class, sites))
    };
    let (_, _, sites) = counts.iter().copied().filter_map(exact).min_by_key(|(text, class, _)| {
        let is_title = *class == title && is_own(class);
        (!is_title, *text, *class)
    })?;
    let mut stacks: Vec<_> =
        sites.iter().map(|site| (std::cmp::Reverse(site.samples), java.stack(site.stack))).collect();
    // Equal stacks have a fixed order.
    let text = |frames: &[Frame]| frames.iter().map(|f| (f.function.clone(), f.line)).collect::<Vec<_>>();
    stacks.sort_by_cached_key(|(samples, frames)| (*samples, text(frames)));
    let calls = stacks.iter().filter_map(|(_, frames)| own_call(test, frames).map(str::to_owned)).collect();
    Some((stacks.into_iter().next()?.1, calls))
}

/// `certain`: the own calls that allocated it, if they are known for certain.
fn id(
    (test, class): (&str, &str),
    holder: &[HolderStep],
    frames: &[Frame],
    certain: &BTreeSet<String>,
) -> String {
    // The line of a frame changes with every edit.
    let stable = |step: &HolderStep| match step.kind == HolderKind::Stack.text() {
        true => step.name.split('(').next().unwrap_or_default().to_owned(),
        false => step.name.clone(),
    };
    let step = |step: &HolderStep| format!("{} {}.{}", step.kind, step.owner, stable(step));
    // Many places use what the JDK alone holds (`DeleteOnExitHook.files`). Whether the holder of a node, of its string
    // or of the bytes is found differs from run to run. The holder of their collection does not.
    let collection = holder.iter().skip(1).position(|step| step.owner.starts_with("java.util."));
    let calls = || frames.iter().filter_map(|frame| frame.function.as_deref());
    let (class, holder, calls): (_, _, Vec<&str>) = match collection {
        // Neither a holder nor a call: a waiver for it covers no leak of another test.
        _ if holder.is_empty() && calls().next().is_none() => (class, holder, vec![test]),
        _ if holder.is_empty() => (class, holder, calls().collect()),
        _ if !is_of_jdk_alone(holder) => (class, holder, Vec::new()),
        // Without a call, the id is unique to this test: a waiver for it covers no leak of another test in the same
        // collection.
        Some(at) if !is_own(class) && certain.is_empty() => ("", &holder[..=at], vec![test]),
        Some(at) if !is_own(class) => ("", &holder[..=at], certain.iter().map(String::as_str).collect()),
        _ => (class, holder, own_call(test, frames).into_iter().collect()),
    };
    let steps: Vec<String> = holder.iter().map(step).collect();
    java_id(class, steps.iter().map(String::as_str).chain(calls))
}

/// The stack that allocated most of the class's surviving samples. Strings and similar objects come from many places.
/// So a stack through a class of the project on the holder path is preferred, then one through the project's own code
/// with as many samples as objects leak, then one through a library's class on the path, then the project's own code,
/// then one with more bytes (of JUnit, for example).
fn allocated(
    record: &ProcessRecord,
    test: &str,
    (class, count): (&str, f64),
    holder: &[HolderStep],
) -> Vec<Frame> {
    let Some(java) = &record.java else { return Vec::new() };
    let mut by_stack = BTreeMap::<u32, u64>::new();
    for window in record.windows_of(test) {
        for site in window.java.iter().flat_map(|java| &java.sites) {
            if java.class(site.class) == Some(class) {
                let bytes = by_stack.entry(site.stack).or_default();
                *bytes = bytes.saturating_add(site.bytes);
            }
        }
    }
    let last = last_sites(record, test, class);
    let all_leak = |stack: u32| {
        let of_stack = last.iter().filter(|site| site.stack == stack);
        let samples = of_stack.map(|site| site.samples).fold(0, u64::saturating_add);
        // The stack of what only the JDK holds is part of its id, and the number of samples may differ from run to run.
        !holder.is_empty() && !is_of_jdk_alone(holder) && samples > 0 && float(samples) == count
    };
    let project = project_of(test);
    let owners: Vec<(String, bool)> = (holder.iter().filter(|step| is_own(&step.owner)))
        .map(|step| (format!("{}.", step.owner), is_of_project(&step.owner, &project)))
        .collect();
    let leads_through = |frames: &[Frame], ours: bool| {
        let mut calls = frames.iter().filter_map(|frame| frame.function.as_deref());
        let on_path = |call: &str| owners.iter().any(|(owner, own)| *own == ours && call.starts_with(owner));
        calls.any(on_path)
    };
    let is_ours = |frames: &[Frame]| {
        frames.iter().any(|f| f.function.as_deref().is_some_and(|name| is_of_project(name, &project)))
    };
    let stacks = by_stack.into_iter().map(|(stack, bytes)| (java.stack(stack), bytes, stack));
    let most = stacks.max_by_key(|(frames, bytes, stack)| {
        let (ours, near) = (is_ours(frames), leads_through(frames, false));
        let exact = ours && all_leak(*stack);
        (leads_through(frames, true), exact, near, ours, *bytes, std::cmp::Reverse(*stack))
    });
    most.map_or_else(Vec::new, |(frames, ..)| frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leak_in_a_collection_of_the_jdk_is_of_its_test_alone_if_no_call_is_certain() {
        let step = |kind: &str, owner: &str, name: &str| HolderStep {
            kind: kind.to_owned(),
            owner: owner.to_owned(),
            name: name.to_owned(),
            ..HolderStep::default()
        };
        let holder = [
            step("static", "java.io.DeleteOnExitHook", "files"),
            step("field", "java.util.LinkedHashSet", "map"),
        ];
        let of = |test: &str, certain: &[&str]| {
            let certain = certain.iter().map(|call| (*call).to_owned()).collect();
            id((test, "java.lang.String"), &holder, &[], &certain)
        };
        assert_ne!(of("ATest.a", &[]), of("BTest.b", &[]));
        assert_eq!(of("ATest.a", &["Files.mark"]), of("BTest.b", &["Files.mark"]));
        assert_ne!(of("ATest.a", &["Files.mark"]), of("ATest.a", &["Files.keep"]));
    }

    /// Regression test: leaks of one class in any two tests had the same id, and a waiver of one covered all of them.
    #[test]
    fn a_leak_without_a_holder_and_a_call_is_of_its_test_alone() {
        let of = |test: &str| id((test, "java.lang.Class"), &[], &[], &BTreeSet::new());
        assert_ne!(of("ATest.a"), of("BTest.b"));
    }

    #[test]
    fn the_stack_of_a_leaked_thread_ends_where_the_test_framework_called_the_project() {
        let frame = |name: &str| Frame {
            function: Some(name.to_owned()),
            file: None,
            line: None,
            module: String::new(),
            offset: 0,
            inlined: false,
        };
        let left = |calls: &[&str]| {
            let mut frames = calls.iter().map(|call| frame(call)).collect();
            leave_callers_of_project(&mut frames, &project_of("com.example.PumpTest.runs"));
            frames.into_iter().filter_map(|frame| frame.function).collect::<Vec<_>>()
        };
        let (pool, own) = ("java.util.concurrent.ThreadPoolExecutor.addWorker", "com.example.PumpTest.runs");
        assert_eq!(left(&[pool, own, "org.junit.Runner.run"]), [pool, own]);
        assert_eq!(left(&[pool, "org.junit.Runner.run"]), [pool, "org.junit.Runner.run"]);
    }

    /// Regression test: a waiver of one thread without a name covered all others.
    #[test]
    fn a_leaked_thread_is_named_by_the_call_that_made_it_whatever_its_name() {
        let of = |name: &str, call: &str| {
            let thread = HolderStep {
                kind: HolderKind::Thread.text().to_owned(),
                owner: name.to_owned(),
                class: "java.lang.Thread".to_owned(),
                ..HolderStep::default()
            };
            // Kotlin's `thread { }`.
            let calls = ["java.lang.Thread.<init>", "kotlin.concurrent.ThreadsKt.thread", call];
            let frames = calls.map(|call| Frame { function: Some(call.to_owned()), ..Frame::default() });
            id(("ATest.a", "java.lang.Thread"), &[thread], &frames, &BTreeSet::new())
        };
        for name in ["Thread-…", "worker-…", "vert.x-…"] {
            assert_ne!(of(name, "com.example.Pump.start"), of(name, "com.example.Timer.start"), "{name}");
        }
    }
}
