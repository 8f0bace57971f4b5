//! Series of every class over the ends of a test, and counters of the virtual machine.

use std::collections::{BTreeMap, HashMap};

use memgate_model::Metric;
use memgate_wire::java::JavaSite;

use crate::record::{ProcessRecord, Window};
use crate::stats::float;

use super::names::is_filler;
use super::record::JavaSnapshot;

/// Limit on the values in all series of one test. Beyond it, the classes that grew least are left out.
const MAX_VALUES: usize = 10_000_000;

/// Figures of one class: end and figures of each change.
type Steps = Vec<(usize, Count)>;

/// Live instances and bytes of one class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) instances: u64,
    pub(super) bytes: u64,
}

/// One class (normalised) at the ends of a test.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClassSeries {
    pub(crate) class: String,
    pub(crate) instances: Vec<f64>,
    pub(crate) bytes: Vec<f64>,
}

/// The current heap, updated by the histograms of a stream.
#[derive(Debug, Default)]
pub(super) struct Heap {
    by_id: HashMap<u32, Count>,
}

impl Heap {
    /// Applies the histogram at the end of a window. Calls `changed` for every changed class with its figures before
    /// and now.
    pub(super) fn apply(&mut self, window: &Window, mut changed: impl FnMut(u32, Count, Count)) {
        let Some(java) = window.java.as_deref().filter(|java| java.histogram) else { return };
        let mut before = if java.full { std::mem::take(&mut self.by_id) } else { HashMap::new() };
        for told in &java.changes {
            let now = Count { instances: told.instances, bytes: told.bytes };
            let kept = self.by_id.insert(told.class, now);
            let was = before.remove(&told.class).or(kept).unwrap_or_default();
            if was != now {
                changed(told.class, was, now);
            }
        }
        let mut gone: Vec<_> = before.into_iter().filter(|(_, was)| *was != Count::default()).collect();
        gone.sort_unstable_by_key(|(class, _)| *class);
        for (class, was) in gone {
            changed(class, was, Count::default());
        }
    }
}

/// Ends of `test` that have a class histogram.
pub(crate) fn histograms<'a>(record: &'a ProcessRecord, test: &'a str) -> Vec<&'a Window> {
    let measured = |w: &&Window| w.java.as_ref().is_some_and(|java| java.histogram);
    record.windows_of(test).filter(measured).collect()
}

/// Bytes of all live objects at the ends of `test`.
pub(crate) fn totals(record: &ProcessRecord, test: &str) -> Vec<f64> {
    let Some(java) = &record.java else { return Vec::new() };
    let (mut heap, mut total, mut totals) = (Heap::default(), 0.0, Vec::new());
    for window in &record.windows {
        heap.apply(window, |class, was, now| {
            if java.class(class).is_some_and(|name| !is_filler(name)) {
                total += float(now.bytes) - float(was.bytes);
            }
        });
        if window.java.as_ref().is_some_and(|java| java.histogram) && window.is(test) {
            totals.push(total);
        }
    }
    totals
}

/// Classes with more live objects or bytes at the last end of `test` than after its first `warm_up` ends.
pub(crate) fn grown(record: &ProcessRecord, test: &str, warm_up: usize) -> Vec<ClassSeries> {
    let Some(java) = &record.java else { return Vec::new() };
    let mut heap = Heap::default();
    let mut steps = BTreeMap::<u32, Steps>::new();
    let mut ends = 0;
    for window in &record.windows {
        heap.apply(window, |class, _, now| {
            let steps = steps.entry(class).or_default();
            match steps.last_mut() {
                Some((at, count)) if *at == ends => *count = now,
                _ => steps.push((ends, now)),
            }
        });
        let counts = window.java.as_ref().is_some_and(|java| java.histogram) && window.is(test);
        ends += usize::from(counts);
    }
    // Changes after the last end of the test belong to no iteration of it.
    let mut by_name = BTreeMap::<&str, Vec<Steps>>::new();
    for (class, mut steps) in steps {
        steps.retain(|(at, _)| *at < ends);
        if let Some(name) = java.class(class).filter(|name| !steps.is_empty() && !is_filler(name)) {
            by_name.entry(name).or_default().push(steps);
        }
    }
    let mut grown: Vec<_> =
        by_name.into_iter().filter_map(|(name, of)| Some((growth(&of, warm_up)?, name, of))).collect();
    grown.sort_by_key(|(growth, ..)| std::cmp::Reverse(*growth));
    grown.truncate(MAX_VALUES / ends.max(1));
    let mut series: Vec<_> = grown.into_iter().map(|(_, name, of)| filled(name, &of, ends)).collect();
    series.sort_by(|a, b| a.class.cmp(&b.class));
    series
}

/// Growth of bytes and instances from the end of the warm-up to the last end. `None`: it did not grow.
fn growth(of: &[Steps], warm_up: usize) -> Option<(u64, u64)> {
    let first =
        |s: &Steps| s.iter().take_while(|(at, _)| *at <= warm_up).last().map(|(_, c)| *c).unwrap_or_default();
    let last = |s: &Steps| s.last().map(|(_, c)| *c).unwrap_or_default();
    let sum = |at: &dyn Fn(&Steps) -> Count| {
        of.iter().map(at).fold(Count::default(), |sum, c| Count {
            instances: sum.instances.saturating_add(c.instances),
            bytes: sum.bytes.saturating_add(c.bytes),
        })
    };
    let (first, last) = (sum(&first), sum(&last));
    let growth = (last.bytes.saturating_sub(first.bytes), last.instances.saturating_sub(first.instances));
    (growth != (0, 0)).then_some(growth)
}

fn filled(name: &str, of: &[Steps], ends: usize) -> ClassSeries {
    let mut series =
        ClassSeries { class: name.to_owned(), instances: vec![0.0; ends], bytes: vec![0.0; ends] };
    for steps in of {
        let until = steps.iter().skip(1).map(|(at, _)| *at).chain([ends]);
        for (&(from, count), to) in steps.iter().zip(until) {
            for i in from..to {
                series.instances[i] += float(count.instances);
                series.bytes[i] += float(count.bytes);
            }
        }
    }
    series
}

/// A counter of the virtual machine, or its descriptors, at these ends. There are fewer values than ends if it was not
/// always reported.
pub(crate) fn values(windows: &[&Window], metric: Metric) -> Vec<f64> {
    let of = |window: &&Window| match metric {
        Metric::OsFds => Some(window.os_end.as_ref()?.fd_count()),
        _ => value(snapshot(window)?, metric),
    };
    windows.iter().filter_map(of).map(float).collect()
}

/// The used heap, with the time, at those ends that follow a collection.
pub(crate) fn live(windows: &[&Window]) -> impl Iterator<Item = (u64, u64)> {
    let collected = windows.iter().filter(|w| w.java.as_ref().is_some_and(|java| java.histogram));
    collected.filter_map(|w| Some((w.end_ns, snapshot(w)?.heap_used?)))
}

fn value(state: &JavaSnapshot, metric: Metric) -> Option<u64> {
    match metric {
        Metric::JavaDirectBytes => state.direct_bytes,
        Metric::JavaThreads => state.threads,
        Metric::JavaJniGlobals => state.jni_globals,
        Metric::JavaClassesLoaded => state.classes_loaded,
        Metric::JavaMetaspace => state.metaspace_bytes,
        Metric::JavaAllocatedBytes => state.allocated_bytes,
        Metric::JavaLiveBytes => state.heap_used,
        _ => None,
    }
}

fn snapshot(window: &Window) -> Option<&JavaSnapshot> {
    window.java.as_ref()?.state.as_ref()
}

/// Live threads by name at these ends, for names whose number increases at least once.
pub(crate) fn thread_names(windows: &[&Window]) -> Vec<(String, Vec<f64>)> {
    let states: Vec<_> = windows.iter().filter_map(|w| snapshot(w)).collect();
    let mut all = BTreeMap::<&str, Vec<f64>>::new();
    for (i, state) in states.iter().enumerate() {
        for (name, count) in state.thread_names.iter() {
            all.entry(name).or_insert_with(|| vec![0.0; states.len()])[i] = f64::from(*count);
        }
    }
    all.retain(|_, counts| counts.windows(2).any(|pair| pair[0] < pair[1]));
    all.into_iter().map(|(name, counts)| (name.to_owned(), counts)).collect()
}

/// Where surviving samples of a class were allocated, from the latest report.
pub(super) fn last_sites<'a>(record: &'a ProcessRecord, test: &'a str, class: &str) -> Vec<&'a JavaSite> {
    let Some(java) = &record.java else { return Vec::new() };
    let told = record.windows_of(test).filter_map(|window| {
        let sites = window.java.iter().flat_map(|java| &java.sites);
        let sites: Vec<&JavaSite> = sites.filter(|site| java.class(site.class) == Some(class)).collect();
        (!sites.is_empty()).then_some(sites)
    });
    told.last().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use memgate_model::{Area, Kind};

    use super::*;

    #[test]
    fn every_counter_of_the_virtual_machine_is_read() {
        let all = Some(7);
        let state = JavaSnapshot {
            heap_used: all,
            allocated_bytes: all,
            threads: all,
            classes_loaded: all,
            metaspace_bytes: all,
            direct_bytes: all,
            jni_globals: all,
            ..JavaSnapshot::default()
        };
        for metric in Metric::of(Area::Java, &[Kind::Held, Kind::Loaded, Kind::Traffic]) {
            assert_eq!(value(&state, metric), all, "{metric}");
        }
    }
}
