//! Decides which classes keep growing from iteration to iteration, and which of them are noise.

use std::collections::{BTreeMap, BTreeSet};

use memgate_model::Metric;
use memgate_wire::Outcome;
use memgate_wire::java::{Holders, UNHELD};

use super::explain::MOST_EXPLAINED;
use super::held::{HeldBy, Noise, held, holders, is_status_of_logback, owner};
use super::names::{is_literal, is_of_framework, is_of_project, is_own, project_of};
use super::one_class::{Classes, Growing, Seen};
use super::out_of_memory::ended_by_error;
use super::pool::{may_fill_a_pool, may_replace_buffers};
use super::series::{grown, histograms, values};
use super::shape::{quiet, rise};
use crate::record::{ProcessRecord, Window};
use crate::stats::float;

/// Caches of Guava and Hibernate record reads in such a queue, and empty it after 32 to 64 reads.
const QUEUE_OF_READS: &str = "java.util.concurrent.ConcurrentLinkedQueue$Node";
/// A queue with one read per execution was emptied within this number of ends.
const READS_NOTED: usize = 72;
/// A context of Logback is full after 300 status messages, with one per execution. The rest shows that no more come.
const STATUS_KEPT: usize = 340;
/// An entry of a thread's table of thread locals. It does not hold the thread local.
const ENTRY: &str = "java.lang.ThreadLocal$ThreadLocalMap$Entry";
/// Each object of this class owns the memory of one direct buffer.
pub(crate) const DIRECT_BUFFER: &str = "java.nio.DirectByteBuffer";

/// The classes of a test that did not settle.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Classes that keep growing, without evidence against a leak.
    pub(crate) growing: Vec<Growing>,
    /// Classes that keep growing but are no leaks, each with the reason.
    pub(crate) noise: Vec<(String, Noise)>,
    /// Classes that are still undecided.
    pub(crate) open: Vec<String>,
    /// Classes of `open` that rose too often for accidents.
    pub(crate) rising: BTreeSet<String>,
    /// Estimated bytes per iteration of classes that are no leaks or undecided.
    pub(crate) left_out: BTreeMap<String, f64>,
    /// Growth has paused, or is only a step or two. More iterations may show that it is over.
    pub(crate) paused: bool,
    /// A growing class has no usual step. More iterations show what is noise of the virtual machine.
    pub(crate) irregular: bool,
    /// Only a queue of reads grows, or what Logback's status messages hold. More executions may show the limit.
    pub(crate) noted: bool,
    /// Caches with a limit that are filling.
    pub(crate) caches: BTreeSet<String>,
    /// Only caches with a limit are filling, or maps that may have one. More iterations may show that they are full.
    pub(crate) filling: bool,
    /// Holders of some growing classes were searched, those of others were not.
    pub(crate) unexplained: bool,
    /// Strings or arrays come irregularly, and their holders were not searched. One may belong to the project.
    pub(crate) unasked: bool,
    /// Why the search did not find all holders of a growing class.
    pub(crate) cut: BTreeSet<String>,
    /// Iterations since the last new high of any class.
    pub(crate) quiet: usize,
    /// Total growth in bytes of the growing classes, and of those that are only left open, such as what fills caches.
    pub(crate) grown_bytes: f64,
    /// Ends with a histogram.
    pub(crate) ends: usize,
}

/// A class with a smaller share did not fill the heap, unless it belongs to the project or a library.
const FILLING_SHARE: f64 = 0.05;
/// When memory ran out, the leak must fill at least this part of the heap: a test may need most of the heap for itself.
const FILLED_PART: f64 = 0.25;
/// Ends needed to distinguish growth from what the first execution leaves.
const ENDS_UNTIL_FULL: usize = 2;

/// What grew with each execution of `test` until memory ran out, and the error. `None`: memory did not run out, or
/// something else filled the heap.
pub(crate) fn until_full(record: &ProcessRecord, test: &str) -> Option<(String, Findings)> {
    let error = ended_by_error(record, test)?;
    let passed = |window: &&&Window| window.outcome != Some(Outcome::Failed);
    let ends = histograms(record, test).iter().take_while(passed).count();
    let explained = holders(record, test);
    let project = project_of(test);
    let steps = |values: &[f64]| -> Vec<f64> { values.windows(2).map(|pair| pair[1] - pair[0]).collect() };
    let mut growing: Vec<Growing> = Vec::new();
    for mut series in grown(record, test, 0) {
        series.bytes.truncate(ends);
        series.instances.truncate(ends);
        let (bytes, instances) = (steps(&series.bytes), steps(&series.instances));
        if bytes.is_empty() || bytes.iter().any(|step| *step <= 0.0) {
            continue;
        }
        let count = median(instances).max(0.0);
        let told = explained.get(series.class.as_str()).map_or(&[][..], Vec::as_slice);
        let Ok(held) = held(told, (&series.class, count), &project) else { continue };
        let growth = Growing::counted(series, count, median(bytes));
        growing.push(Growing { held, ..growth });
    }
    let all: f64 = growing.iter().map(|g| g.grown_bytes).sum();
    if ends < ENDS_UNTIL_FULL || all < FILLED_PART * float(error.heap_max?) {
        return None;
    }
    growing.retain(|g| g.grown_bytes >= FILLING_SHARE * all || is_own(&g.series.class));
    Some((error.described(), Findings { growing, ends, ..Findings::default() }))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

impl Findings {
    /// Judges every class at the ends of `test`.
    pub(crate) fn of(record: &ProcessRecord, test: &str, warm_up: usize, confidence: f64) -> Self {
        let windows = histograms(record, test);
        let ends = windows.len();
        let threads =
            Some(values(&windows, Metric::JavaThreads)).filter(|it| may_fill_a_pool(&windows, it, warm_up));
        let explained = holders(record, test);
        let project = project_of(test);
        let mut findings = Self { ends, quiet: ends, ..Self::default() };
        let mut pauses = Pauses::default();
        let mut unheld = Vec::new();
        let grown = grown(record, test, warm_up);
        let classes = Classes {
            explained: &explained,
            project: &project,
            rises: grown
                .iter()
                .map(|series| (series.class.clone(), rise(&series.instances, warm_up)))
                .collect(),
            threads,
            warm_up,
            confidence,
        };
        for series in grown {
            findings.quiet = findings.quiet.min(quiet(&series, warm_up));
            match classes.look(series) {
                Seen::Over => {}
                Seen::Open { class, bytes, rises_rarely } => {
                    pauses.few_steps |= rises_rarely;
                    findings.cannot_tell(class, bytes);
                }
                Seen::Stalled { class, bytes } => {
                    pauses.stalled = true;
                    findings.cannot_tell(class, bytes);
                }
                Seen::Grows { growing, by_count, has_paused, noise } => {
                    pauses.add(by_count, has_paused);
                    match noise {
                        None => findings.growing.push(growing),
                        Some(Noise::Unheld) => unheld.push(growing),
                        Some(noise) => {
                            findings.unasked |=
                                noise == Noise::Irregular && classes.is_unexplained(&growing.series.class);
                            findings.is_noise(growing, noise);
                        }
                    }
                }
            }
        }
        // Holders that are fields of a class object are not seen, except for its `ClassValue`s. So a class without a
        // holder is a leak if another leak has the same count.
        for growing in unheld {
            if findings.growing.iter().any(|other| other.count > 0.0 && other.count == growing.count) {
                findings.growing.push(growing);
            } else {
                findings.is_noise(growing, Noise::Unheld);
            }
        }
        findings.leave_what_is_unsure();
        findings.leave_queue_of_reads();
        findings.leave_status_of_logback(&project);
        let some_were_not_asked = explained.len() >= MOST_EXPLAINED;
        findings.leave_what_fills_caches(&classes.rises, some_were_not_asked.then_some(&project));
        findings.leave_stale_entries();
        findings.leave_to_framework(&project);
        findings.leave_groups_of_frameworks(record, test);
        findings.what_is_known(&explained);
        findings.grown_bytes += findings.growing.iter().map(|growing| growing.grown_bytes).sum::<f64>();
        findings.paused = pauses.may_be_over(!findings.growing.is_empty());
        findings
    }
}

/// Which growth of a test has paused.
#[derive(Default)]
struct Pauses {
    /// A class that grows only by bytes.
    of_bytes: bool,
    /// A class that grows by count.
    of_counts: bool,
    /// Some class grows by count.
    any_counts: bool,
    /// Classes that stopped, though not for long enough to be sure.
    stalled: bool,
    /// Classes that rose only in a step or two.
    few_steps: bool,
}

impl Pauses {
    fn add(&mut self, by_count: bool, has_paused: bool) {
        self.any_counts |= by_count;
        if by_count {
            self.of_counts |= has_paused;
        } else {
            self.of_bytes |= has_paused;
        }
    }

    /// May the growth be over? A table between two doublings has not paused while its entries grow. If something
    /// certainly leaks, it does not matter whether a step or two of others were all.
    const fn may_be_over(&self, something_leaks: bool) -> bool {
        let paused = if self.any_counts { self.of_counts } else { self.of_bytes };
        paused || self.stalled || self.few_steps && !something_leaks
    }
}

impl Findings {
    /// May the growth of direct buffers to these bytes be over? Then no buffers are known to stay, but larger ones
    /// replace others.
    pub(crate) fn may_replace_buffers(&self, bytes: &[f64], warm_up: usize) -> bool {
        !self.growing.iter().any(|growing| growing.series.class == DIRECT_BUFFER && growing.count > 0.0)
            && may_replace_buffers(bytes, warm_up)
    }

    pub(super) fn is_noise(&mut self, growing: Growing, noise: Noise) {
        self.left_out.insert(growing.series.class.clone(), growing.bytes);
        self.noise.push((growing.series.class, noise));
    }

    fn cannot_tell(&mut self, class: String, bytes: f64) {
        if !is_literal(&class) {
            self.left_out.insert(class.clone(), bytes.max(0.0));
            self.open.push(class);
        }
    }

    /// These classes are undecided, though they rose too often for accidents. Strings and arrays without a known holder
    /// are nothing to tell.
    pub(super) fn leave_open(&mut self, left: Vec<Growing>) {
        for Growing { series, bytes, grown_bytes, held, .. } in left {
            self.grown_bytes += grown_bytes;
            self.rising.insert(series.class.clone());
            if !is_literal(&series.class) || matches!(held, HeldBy::Paths { .. }) {
                self.left_out.insert(series.class.clone(), bytes.max(0.0));
                self.open.push(series.class);
            }
        }
    }

    /// Without a known holder, a class of the JDK that grows irregularly is no leak by itself: it may belong to the
    /// virtual machine. It counts together with a certain leak.
    fn leave_what_is_unsure(&mut self) {
        let is_sure = |growing: &Growing| {
            growing.is_steady || is_own(&growing.series.class) || matches!(growing.held, HeldBy::Paths { .. })
        };
        if self.growing.iter().any(is_sure) {
            return;
        }
        let growing = std::mem::take(&mut self.growing);
        self.leave_open(growing);
    }

    /// A queue of reads grows alone: its entries existed before.
    fn leave_queue_of_reads(&mut self) {
        let is_noted = |growing: &Growing| growing.series.class == QUEUE_OF_READS;
        self.noted = self.ends < READS_NOTED && !self.growing.is_empty() && self.growing.iter().all(is_noted);
        if self.noted {
            let growing = std::mem::take(&mut self.growing);
            self.leave_open(growing);
        }
    }

    /// What Logback's status messages hold may come to an end. So may the entries of its thread locals, and other
    /// classes than the project's without a known holder.
    fn leave_status_of_logback(&mut self, project: &str) {
        let kept = |growing: &Growing| match &growing.held {
            HeldBy::Paths { paths, .. } => paths.iter().all(is_status_of_logback),
            HeldBy::Unknown => false,
        };
        if self.ends >= STATUS_KEPT || !self.growing.iter().any(kept) {
            return;
        }
        let locals = self.growing.iter().filter(|growing| growing.series.class == "java.lang.ThreadLocal");
        let locals = locals.filter(|growing| kept(growing)).map(|growing| growing.count).fold(0.0, f64::max);
        let may_end = |growing: &mut Growing| {
            kept(growing)
                || matches!(growing.held, HeldBy::Unknown) && !is_of_project(&growing.series.class, project)
                || growing.series.class == ENTRY && growing.count <= locals
        };
        let left: Vec<Growing> = self.growing.extract_if(.., may_end).collect();
        self.noted |= self.growing.is_empty();
        self.leave_open(left);
    }

    /// An entry that is in use comes with a thread local or a thread. The JDK frees the others when their table is
    /// full.
    fn leave_stale_entries(&mut self) {
        let is_entry =
            |growing: &Growing| growing.series.class == ENTRY && matches!(growing.held, HeldBy::Paths { .. });
        let is_unknown = |growing: &Growing| {
            let class = &growing.series.class;
            let may_end = matches!(growing.held, HeldBy::Unknown) && !growing.is_steady;
            // A thread local or a thread.
            may_end && !is_own(class) && !class.contains("Thread")
        };
        let all_stale = self.growing.iter().all(|growing| is_entry(growing) || is_unknown(growing));
        if all_stale && self.growing.iter().any(is_entry) {
            let growing = std::mem::take(&mut self.growing);
            self.leave_open(growing);
        }
    }

    /// Sets the flags that describe how completely the holders of growing classes are known.
    fn what_is_known(&mut self, explained: &BTreeMap<&str, Vec<&Holders>>) {
        self.irregular = self.growing.iter().any(|growing| !growing.is_regular);
        let told = |growing: &Growing| explained.get(growing.series.class.as_str());
        // Holders of a class that doubles its table or grows irregularly are not needed: objects held through it show
        // as much.
        let steady = |growing: &&Growing| growing.count > 0.0 && growing.is_regular;
        let steady = || self.growing.iter().filter(steady);
        self.unexplained = steady().any(|growing| told(growing).is_some())
            && steady().any(|growing| told(growing).is_none());
        let cut = self.growing.iter().filter_map(told).flatten().filter_map(|holders| holders.cut.clone());
        self.cut = cut.filter(|why| why != UNHELD).collect();
    }

    /// A test framework keeps hundreds of classes, and only some of them are explained. Objects that the JDK also
    /// refers to are reported with a path of the JDK. If no path leads to the project or a library, everything belongs
    /// to the framework.
    fn leave_to_framework(&mut self, project: &str) {
        let kept = self.noise.iter().any(|(_, noise)| *noise == Noise::Framework);
        let foreign = |name: &str| !is_own(name) || is_of_framework(name);
        let leads_elsewhere = |growing: &Growing| match &growing.held {
            HeldBy::Unknown => is_of_project(&growing.series.class, project),
            HeldBy::Paths { paths, .. } => {
                let owners = paths.iter().flat_map(|path| &path.links).map(owner);
                !std::iter::once(growing.series.class.as_str()).chain(owners).all(foreign)
            }
        };
        if kept && !self.growing.iter().any(leads_elsewhere) {
            let rest = std::mem::take(&mut self.growing);
            self.noise.extend(rest.into_iter().map(|growing| (growing.series.class, Noise::Framework)));
            // Tables of the framework, which double now and then.
            self.open.retain(|class| is_of_project(class, project));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::shape::OF_HTTP_CLIENTS;
    use super::*;
    use crate::java::dsl::Jvm;

    /// `int[]` of the destinations of Jetty's HTTP client, which are removed once a second: the ends of 74 executions.
    const EXPIRING: [u64; 74] = [
        754, 759, 760, 761, 762, 763, 767, 763, 764, 765, 766, 767, 768, 769, 763, 764, 765, 766, 767, 771,
        772, 766, 767, 768, 769, 770, 771, 765, 766, 767, 768, 769, 770, 771, 772, 765, 766, 767, 768, 769,
        770, 771, 772, 766, 767, 768, 769, 770, 771, 772, 766, 767, 768, 769, 770, 771, 772, 773, 774, 775,
        776, 777, 766, 767, 768, 769, 770, 771, 772, 773, 774, 775, 766, 767,
    ];

    /// How many classes grow and are open, and whether growth has paused, with these numbers of `int[]` at the ends.
    fn found(figures: &[u64]) -> (usize, usize, bool) {
        let mut jvm = Jvm::new();
        for (i, count) in (0..).zip(figures) {
            jvm.window("com.example.PagesTest", "reads", i, |jvm| jvm.set("int[]", *count, 144 * count));
        }
        jvm.held("int[]", &[(1, &["static com.example.Pages.client -> com.example.Client.destinations"])]);
        let last = u32::try_from(figures.len()).expect("few") - 1;
        jvm.explained("com.example.PagesTest", "reads", last);
        let findings = Findings::of(&jvm.end(), "com.example.PagesTest.reads", 3, 0.99);
        (findings.growing.len(), findings.open.len(), findings.paused)
    }

    /// Each execution makes an appender and uses its thread local. Logback 1.2 keeps 300 messages about appenders.
    #[test]
    fn what_status_messages_of_logback_hold_is_a_leak_only_if_it_outgrows_them() {
        const MANAGER: &str = "ch.qos.logback.core.BasicStatusManager";
        let found = |ends: u32, kept: u64, field: &str, other: u64| {
            let mut jvm = Jvm::new();
            for i in 0..ends {
                jvm.window("com.example.LogTest", "logs", i, |jvm| {
                    let of = |class: &str| {
                        100 + kept.min(u64::from(i)) + other * u64::from(i) * u64::from(class == ENTRY)
                    };
                    for class in ["com.example.Appender", "java.lang.ThreadLocal", ENTRY] {
                        jvm.set(class, of(class), 32 * of(class));
                    }
                });
            }
            let manager = format!("static com.example.Log.context -> {MANAGER}");
            let status = format!("field {MANAGER}.{field} -> com.example.Appender");
            for class in ["com.example.Appender", "java.lang.ThreadLocal"] {
                jvm.held(class, &[(1, &[&manager, &status])]);
            }
            let of_thread = "thread main -> java.lang.ThreadLocal$ThreadLocalMap";
            let entry = format!("array java.lang.ThreadLocal$ThreadLocalMap.table[x] -> {ENTRY}");
            jvm.held(ENTRY, &[(1 + other, &[of_thread, &entry])]);
            jvm.explained("com.example.LogTest", "logs", ends - 1);
            let findings = Findings::of(&jvm.end(), "com.example.LogTest.logs", 3, 0.99);
            (findings.growing.len(), findings.noted)
        };
        for field in ["statusList", "tailBuffer"] {
            assert_eq!(found(127, 300, field, 0), (0, true), "{field}");
        }
        assert_eq!(found(127, 300, "statusListenerList", 0), (3, false));
        assert_eq!(found(127, 300, "tailBuffer", 1), (0, false), "some entries are stale");
        assert_eq!(found(127, 1000, "statusListenerList", 1), (3, false), "thread locals that are held");
        assert_eq!(found(340, 300, "tailBuffer", 0).0, 0);
        assert_eq!(found(340, 300, "tailBuffer", 1).0, 0, "stale entries outlive the messages");
        assert_eq!(found(340, 1000, "tailBuffer", 0), (3, false), "never detached");
    }

    /// The test is stopped before its heap is full, as if the entries were a leak.
    #[test]
    fn what_fills_a_cache_counts_as_growth_and_may_be_over_only_if_nothing_else_leaks() {
        const LRU_MAP: &str = "org.apache.commons.collections4.map.LRUMap";
        const NODE: &str = "org.apache.commons.collections4.map.AbstractLinkedMap$LinkEntry";
        let found = |leaks: u64| {
            let mut jvm = Jvm::new();
            for i in 0..20 {
                jvm.window("com.example.TilesTest", "reads", i, |jvm| {
                    jvm.add(NODE, 1, 8 << 20);
                    jvm.add("com.example.Tile", leaks, 24);
                });
            }
            let cache = format!("static com.example.App.cache -> {LRU_MAP}");
            jvm.held(NODE, &[(1, &[&cache, &format!("field {LRU_MAP}.data -> {NODE}")])]);
            jvm.held("com.example.Tile", &[(1, &["static com.example.App.last -> com.example.Tile"])]);
            jvm.explained("com.example.TilesTest", "reads", 19);
            Findings::of(&jvm.end(), "com.example.TilesTest.reads", 3, 0.99)
        };
        let fills = found(0);
        assert!(
            fills.growing.is_empty() && fills.filling && fills.grown_bytes >= float(16 << 23),
            "{fills:?}"
        );
        let leaks = found(1);
        assert!(leaks.growing.len() == 1 && !leaks.filling && leaks.open == [NODE], "{leaks:?}");
    }

    #[test]
    fn what_ends_some_seconds_later_is_no_certain_leak() {
        let added = |leak: fn(u64) -> u64| -> Vec<u64> {
            (0..).zip(OF_HTTP_CLIENTS).map(|(i, count)| u64::from(count) + leak(i)).collect()
        };
        assert_eq!(found(&added(|_| 0)), (0, 1, true));
        assert_eq!(found(&added(|i| i / 2)).0, 1, "beside a leak");
    }

    #[test]
    fn what_expires_again_and_again_does_not_grow() {
        assert_eq!(found(&EXPIRING), (0, 1, true), "the low points rose by one");
        let settled: Vec<u64> =
            (0..).zip(EXPIRING).map(|(i, count)| if i > 33 { count.max(766) } else { count }).collect();
        assert_eq!(found(&settled).0, 0);
        let and_a_leak: Vec<u64> = (0..).zip(EXPIRING).map(|(i, count)| count + i / 5).collect();
        assert_eq!(found(&and_a_leak).0, 1, "the low points rise with the leak");
    }
}
