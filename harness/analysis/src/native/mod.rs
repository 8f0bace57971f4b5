//! What a Java process (an app, a virtual machine) allocates natively, as far as it is the project's own.
//!
//! Data flow: agent preloaded beside the virtual machine (`wrap.sh`) → snapshots of native allocations at the ends of the same windows that
//! are compared for Java → [`Own`] leaves out the stacks in which no library of the project's takes part: the runtime allocates, caches and
//! frees for itself all the time → [`suspects`] of the rounds, [`grows`] while a test is repeated; what is a leak is decided as for any native test
//! (`judge`).

use std::collections::{BTreeMap, HashMap};

use memgate_model::{Metric, Per, format_bytes};

use crate::groups::float;
use crate::growth::{Allowed, Finding, judge_series};
use crate::java::{JavaSuspect, Unit};
use crate::policy::{GatePolicy, smallest_limit};
use crate::record::{ProcessRecord, Window};
use crate::text::counted;

/// Rounds before the first that is looked at, and how many have to agree: as for Java.
const WARM_UP: usize = 2;
const AGREEING: usize = 3;

/// Which stacks lead through the project's own libraries.
pub(crate) struct Own<'a> {
    record: &'a ProcessRecord,
    known: HashMap<u32, bool>,
}

impl<'a> Own<'a> {
    pub(crate) fn of(record: &'a ProcessRecord) -> Self {
        Self { record, known: HashMap::new() }
    }

    pub(crate) fn has(&mut self, stack: u32) -> bool {
        let record = self.record;
        *self.known.entry(stack).or_insert_with(|| {
            let home =
                record.java.as_ref().and_then(|java| java.jvm.as_ref()).map_or("", |jvm| jvm.home.as_str());
            record.stack(stack).0.into_iter().any(|step| {
                // A return address: the call is before it.
                let pc = step.pc.saturating_sub(1);
                let module = record.modules(step.generation).iter().find(|m| (m.start..m.end).contains(&pc));
                module.is_some_and(|module| is_own(&module.path, home))
            })
        })
    }

    /// Bytes and number of what a window left of them.
    fn left(&mut self, window: &Window) -> (f64, f64) {
        let own = window.survivors.iter().filter(|record| self.has(record.stack));
        own.fold((0.0, 0.0), |(bytes, count), record| {
            (bytes + float(record.size) * float(record.count), count + float(record.count))
        })
    }
}

/// Is this library neither the system's nor the virtual machine's nor memgate's? What the runtime compiled of Java is none at all.
fn is_own(path: &str, java_home: &str) -> bool {
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
    path.starts_with('/')
        && !SYSTEM.iter().any(|system| path.starts_with(system))
        && (java_home.is_empty() || !path.starts_with(java_home))
        && !COMPILED.iter().any(|compiled| name.ends_with(compiled))
        && !name.starts_with("libmemgate")
}

/// Test classes, or tests, that left native allocations of the project's own in each of the last rounds.
pub(crate) fn suspects(
    record: &ProcessRecord,
    suite: &str,
    policy: &GatePolicy,
    unit: Unit,
) -> Vec<JavaSuspect> {
    if record.is_java_only() {
        return Vec::new();
    }
    let mut own = Own::of(record);
    let mut left: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for window in record.windows.iter().filter(|window| unit.is(window)) {
        left.entry(unit.id(&window.suite, &window.test)).or_default().push(own.left(window));
    }
    let suspect = |(class, rounds): (String, Vec<(f64, f64)>)| {
        let limit = smallest_limit(policy, suite, &class, Metric::NativeLiveBytes, Per::Iteration)?;
        let last = rounds.get(WARM_UP..).filter(|rounds| rounds.len() >= AGREEING)?;
        let last = &last[last.len() - AGREEING..];
        let (bytes, count) = *last.last().filter(|_| last.iter().all(|(bytes, _)| *bytes > limit))?;
        let why = format!("{} in {}", format_bytes(bytes), counted(count, "native allocation"));
        Some(JavaSuspect { suite: class, why, ..JavaSuspect::default() })
    };
    left.into_iter().filter_map(suspect).collect()
}

/// Did the window that ended last leave native allocations of the project's own?
#[must_use]
pub fn leaves_native(record: &ProcessRecord) -> bool {
    !record.is_java_only() && record.windows.last().is_some_and(|window| Own::of(record).left(window).1 > 0.0)
}

/// Do the project's own native allocations grow with each repetition of `test`?
#[must_use]
pub fn native_grows(record: &ProcessRecord, test: &str, policy: &GatePolicy) -> bool {
    let mut own = Own::of(record);
    let mut live: HashMap<(u32, u64), u64> = HashMap::new();
    let mut totals = Vec::new();
    for window in &record.windows {
        for change in window.changes.iter().filter(|change| own.has(change.stack)) {
            live.insert((change.stack, change.size), change.count);
        }
        if window.is(test) {
            totals.push(live.iter().map(|((_, size), count)| float(*size) * float(*count)).sum());
        }
    }
    let warm_up = (policy.warm_up as usize).min(totals.len() / 3);
    let allowed = Allowed { limit: 0.0, block: 1.0, warm_up, confidence: policy.confidence };
    judge_series(&totals, allowed).finding == Finding::Grows
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("[vdso]", false),
            ("", false),
        ] {
            assert_eq!(is_own(path, home), own, "{path}");
        }
    }
}
