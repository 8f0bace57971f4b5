//! Finds the holders of a growing class. Drops paths that belong to the virtual machine or to a test framework.
//!
//! Data flow: frames with holders → [`holders`], the latest report of each class → [`held`]: the paths that may be
//! those of a leak, or why there are none.

use std::collections::BTreeMap;

use memgate_wire::java::{HolderKind, HolderLink, HolderPath, Holders, UNHELD};

use super::names::{is_literal, is_of_framework, is_of_project, is_own, normalised};
use crate::record::ProcessRecord;
use crate::stats::float;

/// Maximum number of instances of one class whose holders the agent searches.
pub(super) const MAX_EXPLAINED: f64 = 256.0;
/// Most paths to one class that the agent reports.
pub(super) const MAX_PATHS: usize = 16;

/// The holders of a class.
#[derive(Debug, Clone)]
pub(crate) enum HeldBy {
    /// Nobody searched, or the search was stopped before it found any.
    Unknown,
    Paths {
        /// Holder paths, without those of the virtual machine.
        paths: Vec<HolderPath>,
        /// The holders of all instances of one iteration were searched, and all paths to them are known.
        complete: bool,
        /// Instances of one iteration without a reported path.
        open: f64,
    },
}

/// Why a class that grows is no leak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noise {
    /// Only constant pools and system classes hold it.
    Literals,
    /// Nothing holds it: it waits for its finalizer or was about to be freed.
    Unheld,
    /// Strings without a known holder that appear irregularly.
    Irregular,
    /// Strings in fields of a fixed number of objects: each string replaces another.
    Replaced,
    /// A test framework keeps it, and no class of the project is on the path.
    Framework,
    /// Log4j 2 keeps its last 200 status messages, and no class of the project is on the path.
    Bounded,
    /// A reservoir of Dropwizard Metrics keeps a fixed number of samples (1,028 by default): numbers, nothing else.
    Samples,
    /// JUnit 4.12 makes a group for the thread of a test with a time limit. Up to JDK 17 such groups stay.
    TimedOut,
    /// Kotest looks through the class path in threads of its own, each with a group. Up to JDK 18 such groups stay.
    Scanned,
}

/// The latest report of holders for each class.
pub(super) fn holders<'a>(record: &'a ProcessRecord, test: &'a str) -> BTreeMap<&'a str, Vec<&'a Holders>> {
    let mut by_class = BTreeMap::<&str, (u32, Vec<&Holders>)>::new();
    let Some(java) = &record.java else { return BTreeMap::new() };
    for window in record.windows_of(test) {
        for holders in window.java.iter().flat_map(|java| &java.holders) {
            let Some(class) = java.class(holders.class) else { continue };
            let (boundary, told) = by_class.entry(class).or_default();
            if *boundary != holders.boundary {
                *boundary = holders.boundary;
                told.clear();
            }
            told.push(holders);
        }
    }
    by_class.into_iter().map(|(class, (_, told))| (class, told)).collect()
}

/// The paths to a class that may be those of a leak, or why there are none. `count`: instances per iteration.
pub(super) fn held(told: &[&Holders], (class, count): (&str, f64), project: &str) -> Result<HeldBy, Noise> {
    let paths = || told.iter().flat_map(|holders| &holders.paths);
    let cut = |holders: &&Holders| holders.cut.as_deref().is_some_and(|why| why != UNHELD);
    let mut leaking: Vec<HolderPath> = paths().filter(|path| !is_of_the_machine(path)).cloned().collect();
    if !leaking.is_empty() {
        leaking.retain(|path| !is_kept_by_framework(path, project));
        if leaking.is_empty() {
            return Err(Noise::Framework);
        }
        leaking.retain(|path| !is_status_of_log4j(path, project));
        if leaking.is_empty() {
            return Err(Noise::Bounded);
        }
        leaking.retain(|path| !is_sample_of_dropwizard(path));
        if leaking.is_empty() {
            return Err(Noise::Samples);
        }
        // The numbers in the stream may be arbitrary.
        let instances = told.iter().map(|holders| holders.instances).fold(0, u64::saturating_add);
        let open = instances.saturating_sub(paths().map(|path| path.instances).fold(0, u64::saturating_add));
        let complete =
            float(instances) <= MAX_EXPLAINED && paths().count() < MAX_PATHS && !told.iter().any(cut);
        return Ok(HeldBy::Paths { paths: leaking, complete, open: float(open) });
    }
    if told.iter().any(cut) || told.iter().all(|holders| holders.instances == 0) {
        return Ok(HeldBy::Unknown);
    }
    if paths().next().is_some() {
        return Err(Noise::Literals);
    }
    // Nothing holds those of many strings or arrays that were searched. What leaks may be among the others.
    let others = |holders: &&Holders| float(holders.instances) - MAX_EXPLAINED;
    if is_literal(class) && count > 0.0 && told.iter().map(others).any(|others| count <= others) {
        return Ok(HeldBy::Unknown);
    }
    Err(Noise::Unheld)
}

/// Can more and more strings or arrays be held like this? A field holds one of them. So the number of objects with the
/// field must grow, too. An object of the JDK or of a library often keeps one string of many that an execution made.
pub(super) fn can_hold_more(path: &HolderPath, grows: impl Fn(&str) -> bool) -> bool {
    // The bytes of a string are held like the string.
    let holder = path.links.iter().rev().find(|link| !is_literal(owner(link)));
    holder.is_none_or(|link| match link.kind {
        HolderKind::Field => grows(&normalised(&link.owner)),
        HolderKind::Static => false,
        _ => true,
    })
}

/// Held through a test framework, without a class of the project on the path.
fn is_kept_by_framework(path: &HolderPath, project: &str) -> bool {
    path.links.iter().any(|link| is_of_framework(owner(link))) && !leads_to_project(path, project)
}

/// One of the last messages of Log4j (before 2.23) about itself, without a class of the project on the path.
fn is_status_of_log4j(path: &HolderPath, project: &str) -> bool {
    const QUEUE: &str = "org.apache.logging.log4j.status.StatusLogger$BoundedQueue";
    path.links.iter().any(|link| owner(link) == QUEUE) && !leads_to_project(path, project)
}

/// A sample in a reservoir of Dropwizard Metrics. More and more reservoirs would be a leak of their own.
fn is_sample_of_dropwizard(path: &HolderPath) -> bool {
    const OWNERS: [&str; 2] = [
        "com.codahale.metrics.ExponentiallyDecayingReservoir",
        "com.codahale.metrics.LockFreeExponentiallyDecayingReservoir$State",
    ];
    path.links.iter().any(|link| &*link.name == "values" && OWNERS.contains(&owner(link)))
}

/// A context of Logback keeps its first 150 and its last 150 messages about itself, and the objects that they are
/// about.
pub(super) fn is_status_of_logback(path: &HolderPath) -> bool {
    // Its list of listeners has no limit.
    let keeps = |link: &HolderLink| {
        owner(link) == "ch.qos.logback.core.BasicStatusManager"
            && matches!(&*link.name, "statusList" | "tailBuffer")
    };
    path.links.iter().any(keeps)
}

fn leads_to_project(path: &HolderPath, project: &str) -> bool {
    let projects = |link: &HolderLink| [owner(link), &link.class].iter().any(|n| is_of_project(n, project));
    path.links.iter().any(projects)
}

/// Is a class of the project or of a library on the path?
pub(super) fn leads_to_own(path: &HolderPath) -> bool {
    path.links.iter().any(|link| is_own(owner(link)) || is_own(&link.class))
}

/// The class that a reference belongs to. For threads a fixed name, because a thread may have any name.
pub(super) fn owner(link: &HolderLink) -> &str {
    if link.kind == HolderKind::Thread { "java.lang.Thread" } else { &link.owner }
}

/// Prefix of the classes that the JDK makes for method handles, and of the classes that it makes them from.
const LAMBDA_FORM: &str = "java.lang.invoke.LambdaForm";

/// The class loader of an accessor class, which is named differently each time. Up to JDK 21 the JDK makes one for each
/// constructor that deserialization calls, and for frequent reflective calls.
const ACCESSOR_LOADER: &str = "jdk.internal.reflect.DelegatingClassLoader";

/// Is it held only by data that the virtual machine resolved or consists of, and by nothing that a program assigned?
fn is_of_the_machine(path: &HolderPath) -> bool {
    use HolderKind::{Class, ClassLoader, ConstantPool, OtherRoot, StringTable, SystemClass, VirtualMachine};
    let literal = path.links.iter().any(|link| matches!(link.kind, ConstantPool | StringTable));
    // Literals that JDK classes resolved are in an array of the virtual machine.
    let resolved = path.links.first().is_some_and(|link| {
        matches!(link.kind, SystemClass | VirtualMachine | OtherRoot) && link.class == "java.lang.Object[]"
    });
    // The name of a method in the description of a method handle that the JDK keeps.
    let named = path.links.iter().rposition(|link| owner(link) == "java.lang.invoke.MemberName");
    let described = path.links.first().is_some_and(|link| owner(link).starts_with(LAMBDA_FORM))
        && path.links.last().is_some_and(|link| is_literal(&link.class))
        && path.links.iter().enumerate().all(|(at, link)| {
            let owner = owner(link);
            owner.starts_with(LAMBDA_FORM)
                || matches!(owner, "java.lang.invoke.MemberName" | "java.lang.String")
                // Handles lead to a method. A string that is bound to a handle belongs to the program.
                || named.is_some_and(|named| at < named) && owner.starts_with("java.lang.invoke.")
        });
    let machine = |link: &HolderLink| {
        // Class loaders of the project are a leak if their number grows.
        matches!(link.kind, SystemClass | Class | OtherRoot)
            || link.kind == ClassLoader && !is_own(&link.class)
            || link.owner == ACCESSOR_LOADER
    };
    literal || resolved || described || path.links.iter().all(machine)
}
