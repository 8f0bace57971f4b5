//! Native allocations of a Java process (an app or a virtual machine) by the project's own libraries.
//!
//! Data flow: the agent is preloaded next to the virtual machine. On Android `wrap.sh` does that; on HotSpot the
//! harness does, if [`own_libraries`] shows that the tests load such libraries. → The agent takes snapshots of native
//! allocations at the ends of the windows that are compared for Java. → [`Own`] drops stacks without a library of the
//! project: the runtime itself allocates, caches and frees all the time. → [`suspects`] of the rounds;
//! [`NativeConfirmation`] while a test is repeated. `judge` decides what is a leak, as for any native test.

mod confirm;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use memgate_model::{Metric, Per, format_bytes, format_counted};

pub use self::confirm::NativeConfirmation;
use crate::policy::{GatePolicy, smallest_limit};
use crate::record::{ProcessRecord, Unit, Window};
use crate::sampling::weight;
use crate::stats::float;

/// Rounds before the first that counts, and the number of rounds that must agree: as for Java.
const WARM_UP: usize = 2;
const AGREEING: usize = 3;

/// Tells which stacks contain the project's own libraries.
#[derive(Debug, Default)]
pub(crate) struct Own {
    known: HashMap<u32, bool>,
}

impl Own {
    /// Does this stack of `record` contain one? All calls must pass the same record.
    pub(crate) fn has(&mut self, record: &ProcessRecord, stack: u32) -> bool {
        *self.known.entry(stack).or_insert_with(|| {
            let home = home_of(record);
            let steps = record.stack(stack).0;
            let modules = steps.iter().map(|step| {
                // A return address: the call is before it.
                let pc = step.pc.saturating_sub(1);
                record.modules(step.generation).iter().find(|m| (m.start..m.end).contains(&pc))
            });
            let modules: Vec<Option<&str>> = modules.map(|m| m.map(|m| m.path.as_str())).collect();
            modules.iter().flatten().any(|path| is_own(path, home))
                || !home.is_empty() && is_called_by_java(&modules)
        })
    }

    /// Bytes and number of such allocations that a window left.
    fn left(&mut self, record: &ProcessRecord, window: &Window) -> (f64, f64) {
        let own = window.survivors.iter().filter(|survivor| self.has(record, survivor.stack));
        let interval = record.interval();
        own.fold((0.0, 0.0), |(bytes, count), record| {
            let more = float(record.count) * interval.map_or(1.0, |interval| weight(record.size, interval));
            (bytes + float(record.size) * more, count + more)
        })
    }
}

/// The project's own libraries that a Java process had loaded, by the paths they were loaded from.
#[must_use]
pub fn own_libraries(record: &ProcessRecord) -> BTreeSet<&str> {
    let home = home_of(record);
    let paths = record.modules.values().flatten().map(|module| module.path.as_str());
    paths.filter(|path| is_own(path, home)).collect()
}

fn home_of(record: &ProcessRecord) -> &str {
    record.java.as_ref().and_then(|java| java.jvm.as_ref()).map_or("", |jvm| jvm.home.as_str())
}

/// Does code that the virtual machine generated call the allocation? A native function that ends with
/// `return malloc(n)` jumps there and is not on the stack. The machine itself allocates in its libraries.
fn is_called_by_java(modules: &[Option<&str>]) -> bool {
    // `operator new`, `strdup`.
    const PASS_ON: [&str; 4] = ["libstdc++.so", "libc++.so", "libc++abi.so", "libc.so"];
    let passes_on = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        PASS_ON.iter().any(|library| name.starts_with(library))
    };
    modules.iter().find(|module| !module.is_some_and(passes_on)).is_some_and(Option::is_none)
}

/// True unless the library belongs to the system, the virtual machine or memgate. Code that the runtime compiled from
/// Java does not count as a library. Some folders of the system are for libraries of Java programs: these count.
fn is_own(path: &str, java_home: &str) -> bool {
    const FOR_JAVA: [&str; 3] = ["/usr/local/", "/usr/java/packages/", "/jni/"];
    const SYSTEM: [&str; 10] = [
        "/system/",
        "/system_ext/",
        "/apex/",
        "/vendor/",
        "/product/",
        "/odm/",
        "/usr/",
        "/lib/",
        "/lib64/",
        "/bin/",
    ];
    const COMPILED: [&str; 4] = [".odex", ".oat", ".art", ".vdex"];
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_for_java = || FOR_JAVA.iter().any(|folder| path.contains(folder));
    let is_the_machines =
        || !java_home.is_empty() && path.strip_prefix(java_home).is_some_and(|rest| rest.starts_with('/'));
    path.starts_with('/')
        && (!SYSTEM.iter().any(|system| path.starts_with(system)) || is_for_java())
        && !is_the_machines()
        && !COMPILED.iter().any(|compiled| name.ends_with(compiled))
        && !name.starts_with("libmemgate")
}

/// Test classes or tests that left native allocations of the project in each of the last rounds, and what the last
/// round left.
pub(crate) fn suspects(
    record: &ProcessRecord,
    suite: &str,
    policy: &GatePolicy,
    unit: Unit,
) -> Vec<(String, String)> {
    if record.is_java_only() {
        return Vec::new();
    }
    let mut own = Own::default();
    let mut left: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for window in record.windows.iter().filter(|window| unit.is(window)) {
        left.entry(unit.id(&window.suite, &window.test)).or_default().push(own.left(record, window));
    }
    let suspect = |(id, rounds): (String, Vec<(f64, f64)>)| {
        let limit = smallest_limit(policy, suite, &id, Metric::NativeLiveBytes, Per::Iteration)?;
        let last = rounds.get(WARM_UP..).filter(|rounds| rounds.len() >= AGREEING)?;
        let last = &last[last.len() - AGREEING..];
        let exceeds = |(bytes, _): &&(f64, f64)| *bytes > limit;
        let (bytes, count) = *last.iter().rev().find(exceeds)?;
        // With sampling, a round may have left no sample.
        if record.interval().is_none() && !last.iter().all(|round| exceeds(&round)) {
            return None;
        }
        Some((id, format!("{} in {}", format_bytes(bytes), format_counted(count, "native allocation"))))
    };
    left.into_iter().filter_map(suspect).collect()
}

/// Did the last window leave native allocations of the project's own libraries?
#[must_use]
pub fn leaves_native(record: &ProcessRecord) -> bool {
    !record.is_java_only()
        && record.windows.last().is_some_and(|window| Own::default().left(record, window).1 > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: what a JNI function allocates that ends with `return malloc(n)` was taken for the machine's.
    #[test]
    fn what_java_calls_directly_belongs_to_the_project() {
        let (java, jvm, cpp) = (None, Some("/opt/jdk/lib/server/libjvm.so"), Some("/usr/lib/libstdc++.so.6"));
        let (abi, libc) = (Some("/usr/lib/libc++abi.so.1"), Some("/lib/libc.so.6"));
        for (modules, is_own) in [
            (&[java][..], true),
            (&[cpp, java], true),
            (&[abi, java], true),
            (&[libc, java], true),
            (&[libc, jvm, java], false),
            (&[jvm, java], false),
            (&[cpp, jvm, java], false),
            (&[cpp], false),
            (&[], false),
        ] {
            assert_eq!(is_called_by_java(modules), is_own, "{modules:?}");
        }
    }

    #[test]
    fn libraries_of_system_machine_and_compiled_java_are_not_the_projects() {
        let home = "/opt/jdk-17";
        for (path, own) in [
            ("/data/app/~~x==/com.example-1/lib/arm64/libtiles.so", true),
            ("/data/app/~~x==/com.example-1/base.apk!/lib/arm64-v8a/libtiles.so", true),
            ("/data/user/0/com.example/code_cache/libmemgate_agent.so", false),
            ("/data/app/~~x==/com.example-1/oat/arm64/base.odex", false),
            ("/apex/com.android.art/lib64/libart.so", false),
            ("/system/lib64/libc.so", false),
            ("/opt/jdk-17/lib/server/libjvm.so", false),
            ("/usr/lib/x86_64-linux-gnu/libc.so.6", false),
            ("/home/ci/build/libtiles.so", true),
            ("/opt/jdk-17-libraries/libtiles.so", true),
            ("/tmp/libtiles-1.2-17284628172.so (deleted)", true),
            ("/usr/lib/x86_64-linux-gnu/jni/libtiles.so", true),
            ("/usr/local/lib/libtiles.so", true),
            ("/usr/lib/x86_64-linux-gnu/libz.so.1", false),
            ("[vdso]", false),
            ("", false),
        ] {
            assert_eq!(is_own(path, home), own, "{path}");
        }
    }
}
