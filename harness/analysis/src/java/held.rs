//! Who holds a class that grows, and which ways to it are the virtual machine's or a test framework's own.
//!
//! Data flow: the frames of holders → [`holders`], the last word of each class → [`held`]: the ways that can be a
//! leak's, or why there are none.

use std::collections::BTreeMap;

use memgate_wire::java::{HolderKind, HolderLink, HolderPath, Holders, UNHELD};

use super::names::{is_literal, is_of_framework, is_of_project, is_own};
use crate::record::ProcessRecord;
use crate::stats::float;

/// Instances of one class whose holders the agent looks for.
pub(super) const MAX_EXPLAINED: f64 = 256.0;

/// Who holds a class.
#[derive(Debug, Clone)]
pub(crate) enum HeldBy {
    /// Nobody looked, or the search was cut before it found any.
    Unknown,
    Paths {
        /// These ways, those of the virtual machine left out.
        paths: Vec<HolderPath>,
        /// Instances of one iteration for which none was reported.
        open: f64,
    },
}

/// Why a class that grows is no leak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noise {
    /// Constant pools and system classes alone hold it.
    Literals,
    /// Nothing holds it: it waits to be finalized or was on its way out.
    Unheld,
    /// Strings without a known holder that come now and then.
    Irregular,
    /// A test framework keeps it, and nothing of the project is on the way.
    Framework,
    /// JUnit 4.12 makes a group for the thread of a test with a time limit. Up to JDK 17 such groups stay.
    TimedOut,
}

/// What was said of each class, the last word of each.
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

/// The ways to a class that can be a leak's, or why there are none.
pub(super) fn held(told: &[&Holders], project: &str) -> Result<HeldBy, Noise> {
    let paths = || told.iter().flat_map(|holders| &holders.paths);
    let mut leaking: Vec<HolderPath> = paths().filter(|path| !is_of_the_machine(path)).cloned().collect();
    if !leaking.is_empty() {
        leaking.retain(|path| !is_kept_by_framework(path, project));
        if leaking.is_empty() {
            return Err(Noise::Framework);
        }
        // Whoever writes the stream may write any number.
        let instances = told.iter().map(|holders| holders.instances).fold(0, u64::saturating_add);
        let open = instances.saturating_sub(paths().map(|path| path.instances).fold(0, u64::saturating_add));
        return Ok(HeldBy::Paths { paths: leaking, open: float(open) });
    }
    let cut = |holders: &&Holders| holders.cut.as_deref().is_some_and(|why| why != UNHELD);
    if told.iter().any(cut) || told.iter().all(|holders| holders.instances == 0) {
        return Ok(HeldBy::Unknown);
    }
    Err(if paths().next().is_some() { Noise::Literals } else { Noise::Unheld })
}

/// Does nothing hold most of what one execution left, and the JDK alone the rest? Names of methods, which only a soft
/// reference leads to, pile up until a collection clears it.
pub(super) fn is_mostly_unheld(held: &HeldBy) -> bool {
    let HeldBy::Paths { paths, open } = held else { return false };
    let of_paths = paths.iter().map(|path| path.instances).fold(0, u64::saturating_add);
    !paths.iter().any(leads_to_own) && open.min(MAX_EXPLAINED) > float(of_paths)
}

/// Held through a test framework, with nothing of the project on the way.
fn is_kept_by_framework(path: &HolderPath, project: &str) -> bool {
    let projects = |link: &HolderLink| [owner(link), &link.class].iter().any(|n| is_of_project(n, project));
    path.links.iter().any(|link| is_of_framework(owner(link))) && !path.links.iter().any(projects)
}

/// Is a class of the project or of a library on the way?
pub(super) fn leads_to_own(path: &HolderPath) -> bool {
    path.links.iter().any(|link| is_own(owner(link)) || is_own(&link.class))
}

/// The class that a reference belongs to. A thread may be called anything.
pub(super) fn owner(link: &HolderLink) -> &str {
    if link.kind == HolderKind::Thread { "java.lang.Thread" } else { &link.owner }
}

/// The classes that the JDK makes for method handles, and what they are made from.
const LAMBDA_FORM: &str = "java.lang.invoke.LambdaForm";

/// The loader of an accessor class, with its name. Up to JDK 21 the JDK makes one for each constructor that
/// deserialization calls, and for reflective calls that are frequent.
const ACCESSOR_LOADER: &str = "jdk.internal.reflect.DelegatingClassLoader";

/// Held by what the virtual machine resolved or is made of, and by nothing that a program assigned.
fn is_of_the_machine(path: &HolderPath) -> bool {
    use HolderKind::{Class, ClassLoader, ConstantPool, OtherRoot, StringTable, SystemClass, VirtualMachine};
    let literal = path.links.iter().any(|link| matches!(link.kind, ConstantPool | StringTable));
    // Literals that classes of the JDK resolved are in an array of the virtual machine.
    let resolved = path.links.first().is_some_and(|link| {
        matches!(link.kind, SystemClass | VirtualMachine | OtherRoot) && link.class == "java.lang.Object[]"
    });
    // The name of a method, in the description of a method handle that the JDK keeps.
    let named = path.links.iter().rposition(|link| owner(link) == "java.lang.invoke.MemberName");
    let described = path.links.first().is_some_and(|link| owner(link).starts_with(LAMBDA_FORM))
        && path.links.last().is_some_and(|link| is_literal(&link.class))
        && path.links.iter().enumerate().all(|(at, link)| {
            let owner = owner(link);
            owner.starts_with(LAMBDA_FORM)
                || matches!(owner, "java.lang.invoke.MemberName" | "java.lang.String")
                // Handles lead to a method; a text that is bound to one is the program's.
                || named.is_some_and(|named| at < named) && owner.starts_with("java.lang.invoke.")
        });
    let machine = |link: &HolderLink| {
        // A loader of the project's own is a leak when there are more and more of it.
        matches!(link.kind, SystemClass | Class | OtherRoot)
            || link.kind == ClassLoader && !is_own(&link.class)
            || link.owner == ACCESSOR_LOADER
    };
    literal || resolved || described || path.links.iter().all(machine)
}
