//! Heap dumps of a JVM suite: which were taken, what each contains, which are kept.
//!
//! Data flow: the records of the build's own run and `heap` of the suite → paths of dumps (the agent and the virtual
//! machine write them into the session) → [`memgate_hprof`]: leaks, counts of classes, dominators, the thread that ran
//! out of memory → [`HeapCheck`] in the facts of the suite → a dump is kept trimmed, or removed. The judge decides the
//! verdict from the facts alone, so that it can be repeated after the dumps are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::Instant;

use memgate_config::{HeapDump as DumpAt, HeapKeep, HeapTime, SuiteHeap};
use memgate_hprof::read::DumpFile;
use memgate_hprof::text::array_name;
use memgate_hprof::{Analysis, Dominators, Heap, Index, Kind, Leak, Ledger, Packed, Question, Rules, Thread};
use memgate_model::{
    HeapAt, HeapCheck, HeapDump, HeapLeak, HeapLimits, HeapSeen, HolderStep, format_bytes, format_counted,
};
use memgate_wire::Outcome;

use super::engine::{Context, Finished, ran_tests};
use crate::exit::{ExpectedError, chain};
use crate::heap_rules::read_rules;
use crate::names::OfDump;
use crate::output::Console;
use crate::plan::Plan;
use crate::session::write_atomically;

/// Replaces `hprof` in the name of a dump's ledger.
const LEDGER: &str = "ledger.json";
/// An object is the next step of the holder's path if it retains this part of what the previous step retains.
const MOST_OF_IT: f64 = 0.7;
/// Maximum number of named objects of that path.
const NAMED: usize = 4;
/// Maximum number of classes whose retained size a session keeps.
const MOST_RETAINED: usize = 500;
/// The class of class objects.
const CLASS: &str = "java.lang.Class";
/// A local variable is named if it retains this part of the heap.
const MUCH: f64 = 0.05;

/// Checks the rules of all suites: a mistake in one is reported before anything starts.
pub(super) fn check_rules(plan: &Plan) -> Result<(), ExpectedError> {
    let heaps = plan.suites.iter().filter_map(|suite| suite.heap.as_ref());
    let on_devices = plan.instrumented.iter().filter_map(|planned| planned.suite.heap.as_ref());
    heaps.chain(on_devices).try_for_each(|heap| read_rules(&heap.rules).map(drop))
}

/// Looks into the dumps that processes of the build's own run left in `folder`.
pub(super) fn look(
    context: &Context<'_>,
    folder: &Path,
    heap: Option<&SuiteHeap>,
    (name, processes): (&str, &[Finished]),
) -> Result<Vec<HeapCheck>, ExpectedError> {
    let rules = read_rules(heap.map_or(&[][..], |heap| &heap.rules))?;
    let names = context.names.of_dump(name);
    let looking = Looking { console: context.console, rules, names, plan: context.plan, heap, name };
    let mut checks: Vec<HeapCheck> = Vec::new();
    if let Some(heap) = heap {
        checks.push(looking.check(heap, expected(folder, heap.at, processes)));
    }
    // Dumps that only `measure.java` requested: reports what held the heap.
    let looked_at: BTreeSet<String> =
        checks.iter().flat_map(|check| &check.dumps).map(|dump| dump.path.clone()).collect();
    for time in [HeapTime::OutOfMemory, HeapTime::Limit] {
        let others = expected(folder, time, processes).into_iter();
        let others = others.filter_map(|(process, path)| Some((process, path.ok()?)));
        let dumps: Vec<HeapDump> = others
            .filter(|(_, path)| !looked_at.contains(&path.to_string_lossy().into_owned()))
            .map(|(process, path)| looking.untouched(at(time), process, &path))
            .collect();
        if !dumps.is_empty() {
            checks.push(HeapCheck { at: at(time), own_rules: false, limits: None, dumps });
        }
    }
    Ok(checks)
}

/// Reads dumps of a suite; `configured` is its name in memgate.yaml.
pub(super) fn look_at(
    context: &Context<'_>,
    heap: &SuiteHeap,
    (configured, name): (&str, &str),
    dumps: Vec<Expected>,
) -> Result<HeapCheck, ExpectedError> {
    let (rules, names) = (read_rules(&heap.rules)?, context.names.of_dump(configured));
    let heap_of_suite = Some(heap);
    let looking =
        Looking { console: context.console, rules, names, plan: context.plan, heap: heap_of_suite, name };
    Ok(looking.check(heap, dumps))
}

const fn at(time: HeapTime) -> HeapAt {
    match time {
        HeapTime::SuiteEnd => HeapAt::SuiteEnd,
        HeapTime::TestFailed => HeapAt::TestFailed,
        HeapTime::OutOfMemory => HeapAt::OutOfMemory,
        HeapTime::Limit => HeapAt::Limit,
    }
}

/// A process and the path of its dump; or the path where the dump should be, and why it is missing.
pub(super) type Expected = (u32, Result<PathBuf, (PathBuf, String)>);

/// The expected dumps: one for each process that ran tests, or in which memory ran out.
fn expected(folder: &Path, time: HeapTime, processes: &[Finished]) -> Vec<Expected> {
    let why =
        "was not written: the virtual machine was halted, has an option of its own for it, or says why above";
    let there = |path: PathBuf| if path.is_file() { Ok(path) } else { Err((path, why.to_owned())) };
    let mut dumps: BTreeMap<PathBuf, Expected> = BTreeMap::new();
    for process in processes.iter().filter(|process| ran_tests(&process.record)) {
        let pid = process.hello().pid;
        let failed = || process.record.windows.iter().any(|w| w.outcome == Some(Outcome::Failed));
        let of_tests = match time {
            HeapTime::SuiteEnd => Some(("end", true)),
            HeapTime::TestFailed => Some(("failed", failed())),
            HeapTime::OutOfMemory | HeapTime::Limit => None,
        };
        if let Some((when, is_due)) = of_tests {
            let path = folder.join(format!("java_pid{pid}_{when}.hprof"));
            if is_due {
                dumps.insert(path.clone(), (pid, there(path)));
            }
            continue;
        }
        let limit = time == HeapTime::Limit;
        let ran_out: Vec<_> = process
            .record
            .java
            .iter()
            .flat_map(|java| &java.exhausted)
            .filter(|exhaustion| exhaustion.limit == limit)
            .collect();
        let told = ran_out.iter().find_map(|exhaustion| exhaustion.dump.as_ref()).map(PathBuf::from);
        match told {
            Some(path) => dumps.insert(path.clone(), (pid, there(path))),
            None if ran_out.is_empty() => None,
            None => {
                let path = folder.join(format!("java_pid{pid}{}.hprof", if limit { "_limit" } else { "" }));
                dumps.insert(path.clone(), (pid, there(path)))
            }
        };
    }
    dumps.into_values().collect()
}

struct Looking<'a> {
    console: &'a Console,
    rules: Rules,
    /// The original names, if the program was renamed.
    names: Option<OfDump>,
    plan: &'a Plan,
    heap: Option<&'a SuiteHeap>,
    name: &'a str,
}

impl Looking<'_> {
    fn check(&self, heap: &SuiteHeap, dumps: Vec<Expected>) -> HeapCheck {
        let at = at(heap.at);
        let dumps = dumps.into_iter().map(|dump| self.dump(at, dump)).collect();
        let limits = HeapLimits { leaks: heap.leaks, bitmaps: heap.bitmaps, class: heap.class.clone() };
        HeapCheck { at, own_rules: !heap.rules.is_empty(), limits: Some(limits), dumps }
    }

    /// A dump that the suite requested.
    fn dump(&self, at: HeapAt, (process, path): Expected) -> HeapDump {
        let (path, seen) = match path {
            Ok(path) => {
                let seen = self.seen(at, &path);
                (path, seen)
            }
            Err((path, why)) => (path, Err(why)),
        };
        let kept = if path.is_file() { self.keep(at, &path, &seen) } else { None };
        let text = |path: &Path| path.to_string_lossy().into_owned();
        HeapDump { process, path: text(&path), kept: kept.as_deref().map(text), seen }
    }

    /// A dump that stays as it is.
    fn untouched(&self, at: HeapAt, process: u32, path: &Path) -> HeapDump {
        let seen = self.seen(at, path);
        let path = path.to_string_lossy().into_owned();
        HeapDump { process, kept: Some(path.clone()), path, seen }
    }

    fn seen(&self, at: HeapAt, path: &Path) -> Result<HeapSeen, String> {
        let began = Instant::now();
        let seen = seen(path, (&self.rules, self.names), at, self.heap);
        match &seen {
            Ok(seen) => self.console.line(&format!(
                "{}: heap dump {}: {}, {} ({:.1} s)",
                self.name,
                at.words(),
                format_bytes(float(seen.bytes)),
                if seen.searched {
                    format_counted(float(seen.leaks.len() as u64), "leak")
                } else {
                    "not searched for leaks".to_owned()
                },
                began.elapsed().as_secs_f64()
            )),
            Err(why) => {
                self.console.warning(&format!("{}: the heap dump {} {why}", self.name, path.display()));
            }
        }
        seen
    }

    /// Where the dump is kept; `None`: it is removed.
    fn keep(&self, at: HeapAt, path: &Path, seen: &Result<HeapSeen, String>) -> Option<PathBuf> {
        let heap = self.heap?;
        let java = self.plan.java.heap_dump;
        // `measure.java` asked for the whole dump too.
        if at == HeapAt::OutOfMemory && java == DumpAt::OutOfMemory
            || at == HeapAt::Limit && java == DumpAt::HeapLimit
        {
            return Some(path.to_owned());
        }
        let kept = match heap.keep {
            HeapKeep::Always => true,
            HeapKeep::Never => false,
            HeapKeep::Over => seen.as_ref().map_or(true, |seen| is_over(seen, heap)),
        };
        // An unreadable dump cannot be trimmed.
        let trimmed = if kept && seen.as_ref().is_ok_and(|seen| seen.truncated.is_none()) {
            let to = path.with_extension("hprof.gz");
            match trim(path, &to) {
                Ok(()) => Some(to),
                Err(why) => {
                    self.console.warning(&format!("{}: failed to trim {}: {why}", self.name, path.display()));
                    return Some(path.to_owned());
                }
            }
        } else if kept {
            return Some(path.to_owned());
        } else {
            None
        };
        if let Err(why) = fs::remove_file(path) {
            self.console.warning(&format!("{}: {} stays: {why}", self.name, path.display()));
        }
        trimmed
    }
}

fn is_over(seen: &HeapSeen, heap: &SuiteHeap) -> bool {
    let leaks = seen.leaks.iter().filter(|leak| leak.library.is_none()).count() as u64;
    let classes = seen
        .classes
        .iter()
        .any(|(class, (objects, _))| heap.class.get(class).is_some_and(|allowed| objects > allowed));
    let pictures = heap.bitmaps.zip(seen.bitmaps).is_some_and(|(allowed, (bytes, _))| bytes > allowed);
    heap.leaks.is_some_and(|allowed| leaks > allowed) || classes || pictures || seen.truncated.is_some()
}

/// Trims a dump into a compressed file. An incomplete file is removed.
fn trim(raw: &Path, to: &Path) -> Result<(), String> {
    let trimmed = || -> Result<(), memgate_hprof::TrimError> {
        let from = DumpFile::open(raw)?;
        let keep = Index::read(&from, &|_, _, _| ())?.kept_names();
        let mut packed = Packed::gzip(BufWriter::new(File::create(to)?));
        let _zeroed = memgate_hprof::trim_file(&from, &keep, &mut packed, &|_, _, _| ())?;
        packed.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(())
    };
    trimmed().map_err(|why| {
        let left = match fs::remove_file(to) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => format!("; {} stays: {why}", to.display()),
            _ => String::new(),
        };
        format!("{why}{left}")
    })
}

/// The content of a dump.
fn seen(
    path: &Path,
    (rules, names): (&Rules, Option<OfDump>),
    at: HeapAt,
    wanted: Option<&SuiteHeap>,
) -> Result<HeapSeen, String> {
    let quiet = |_: &'static str, _: u64, _: Option<u64>| ();
    let bad = |why: memgate_hprof::read::ReadError| format!("cannot be read: {why}");
    let file = DumpFile::open(path).map_err(bad)?;
    let mut dump = Index::read(&file, &quiet).map_err(bad)?;
    if let Some(names) = names {
        // A mapping file of another build is reported where the agent's frames are read.
        let _classes_with_other_names = dump.rename(&names);
    }
    let heap = Heap::of(file, dump, rules, &quiet).map_err(bad)?;
    let analysis = heap.analyse(rules, &Question::default(), &quiet).map_err(bad)?;
    let ran_out = matches!(at, HeapAt::OutOfMemory | HeapAt::Limit);
    let threads = if ran_out { heap.threads(&quiet).map_err(bad)? } else { Vec::new() };
    if at == HeapAt::SuiteEnd {
        let ledger = heap.ledger(rules, &quiet).map_err(bad)?;
        keep_ledger(&path.with_extension(LEDGER), &ledger)?;
    }
    let bitmaps = heap.knows_bitmaps().then(|| memgate_hprof::together(&heap.bitmaps()));
    let Heap { dump, graph, .. } = heap;
    let dominators = Dominators::of(&dump, graph, &quiet);
    let retained = retained(&dump, &dominators);
    let mut owners = dominators.owners(&dump, |class| !is_jdk(class) && !class.ends_with("[]"));
    owners.retain(|class, _| retained.contains_key(class));
    Ok(HeapSeen {
        owners: owners.into_iter().map(|(class, by)| (class, named(&dump, &dominators, by))).collect(),
        retained,
        bitmaps,
        bytes: analysis.about.heap_bytes,
        searched: analysis.about.rules > 0,
        not_looked_at: analysis.not_looked_at,
        mistakes: analysis.mistakes.clone(),
        // Android's dumps always contain garbage.
        held_by_nothing: match at {
            HeapAt::SuiteEnd | HeapAt::TestFailed if analysis.about.sdk.is_none() => {
                analysis.unreachable.len() as u64 + analysis.unreachable_more
            }
            _ => 0,
        },
        truncated: analysis.about.truncated.then(|| analysis.about.odd.join("; ")),
        classes: wanted.map(|heap| counted(&dump, &dominators, at, &heap.class)).unwrap_or_default(),
        held: if ran_out { held(&dump, &dominators, &threads) } else { String::new() },
        leaks: leaks(&dump, &dominators, analysis),
    })
}

/// Keeps the contents of the dump's containers after the dump is gone: `memgate heap growth` compares it between runs.
fn keep_ledger(to: &Path, ledger: &Ledger) -> Result<(), String> {
    let text = serde_json::to_vec(ledger).map_err(|why| format!("has no ledger: {why}"))?;
    write_atomically(to, &text).map_err(|why| format!("has no ledger: failed to {}", chain(&why)))
}

/// Classes whose objects together retain most.
fn retained(dump: &Index, dominators: &Dominators) -> BTreeMap<String, (u64, u64)> {
    let mut classes = dominators.by_class(dump);
    classes.sort_by_key(|class| std::cmp::Reverse(class.retained));
    classes.truncate(MOST_RETAINED);
    classes.into_iter().map(|class| (class.name, (class.count, class.retained))).collect()
}

/// Counts objects of the limited classes. An `OutOfMemoryError` comes without a collection: there, unreachable objects
/// do not count.
fn counted(
    dump: &Index,
    dominators: &Dominators,
    at: HeapAt,
    limits: &BTreeMap<String, u64>,
) -> BTreeMap<String, (u64, u64)> {
    let mut all: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut known = |name: &str| {
        if limits.contains_key(name) {
            all.insert(name.to_owned(), (0, 0));
        }
    };
    dump.classes.iter().for_each(|class| known(&class.name));
    (4..=11).map(array_name).chain([CLASS]).for_each(known);
    if at != HeapAt::OutOfMemory {
        // The object of each class counts too: in a dump it is no instance.
        let classes = dump.classes.iter().map(|class| (CLASS, (1, class.record_bytes)));
        let kinds = dump.kinds().map(|(name, tally)| (name, (tally.count, tally.bytes)));
        for (name, (count, bytes)) in kinds.chain(classes) {
            if let Some(sum) = all.get_mut(name) {
                *sum = (sum.0 + count, sum.1.saturating_add(bytes));
            }
        }
    } else if !all.is_empty() {
        for class in dominators.by_class(dump) {
            if let Some(sum) = all.get_mut(&class.name) {
                *sum = (class.count, class.bytes);
            }
        }
    }
    all
}

fn leaks(dump: &Index, dominators: &Dominators, analysis: Analysis) -> Vec<HeapLeak> {
    let all = analysis.leaks.into_iter().chain(analysis.library_leaks);
    all.filter_map(|leak| {
        let last = leak.path.last()?;
        let retained = dump.object(last.id).and_then(|object| dominators.retained(object));
        // The class may be missing among the most frequent ones. The first object has it, so at least one object
        // counts.
        let of_class = leak.classes.iter().find(|of| of.class == last.class).map_or(1, |of| of.instances);
        Some(HeapLeak {
            class: last.class.clone(),
            of_others: leak.instances.saturating_sub(of_class),
            why: last.why.clone(),
            holder: steps(&leak),
            fingerprint: leak.fingerprint,
            library: leak.library_name,
            objects: leak.instances,
            attributed: leak.attributed,
            retained,
        })
    })
    .collect()
}

/// The path in the form of other holders: from the last static field on, or from the root.
fn steps(leak: &Leak) -> Vec<HolderStep> {
    let classes = leak.path.iter().skip(1).map(|node| node.class.clone());
    let references = leak.path.iter().filter_map(|node| node.reference.as_ref());
    let mut steps: Vec<HolderStep> = references
        .zip(classes)
        .map(|(reference, class)| {
            let name =
                if reference.name.starts_with('[') { "[x]".to_owned() } else { reference.name.clone() };
            HolderStep { kind: reference.kind.to_owned(), owner: reference.owner.clone(), name, class }
        })
        .collect();
    // The path to a class through its loader gives no useful information.
    match steps.iter().rposition(|step| step.kind == "static") {
        Some(at) => drop(steps.drain(..at)),
        None => {
            let class = leak.path.first().map(|node| node.class.clone()).unwrap_or_default();
            let (kind, owner) = (leak.root.to_lowercase(), class.clone());
            steps.insert(0, HolderStep { kind, owner, name: String::new(), class });
        }
    }
    steps
}

/// The largest holder of the heap, and the locals of the thread that ran out of memory.
fn held(dump: &Index, dominators: &Dominators, threads: &[Thread]) -> String {
    let all = dominators.bytes().max(1);
    let share = |bytes: u64| float(bytes) / float(all);
    let amount =
        |bytes: u64| format!("{}, {:.0} % of the heap", format_bytes(float(bytes)), 100.0 * share(bytes));
    let mut parts = Vec::new();
    if let Some(top) = dominators.below(None, 1).0.first() {
        let bytes = dominators.retained(*top).unwrap_or(0);
        let way: Vec<String> = way(dominators, *top).map(|object| named(dump, dominators, object)).collect();
        parts.push(format!("most is held by {} ({})", way.join(" → "), amount(bytes)));
    }
    if let Some(thread) = threads.iter().find(|thread| ran_out(thread)) {
        let name = thread.name.as_deref().unwrap_or("?");
        let frames = || thread.frames.iter().skip(1);
        let own = frames().find(|frame| !is_jdk(&frame.method)).or_else(|| frames().next());
        let place = own.map_or_else(String::new, |frame| format!(" in {}({})", frame.method, frame.place));
        parts.push(format!("thread {name} ran out{place}"));
        let locals =
            thread.frames.iter().flat_map(|frame| frame.locals.iter().map(move |local| (frame, local)));
        let retained = locals
            .filter_map(|(frame, local)| Some((dominators.retained(dump.object(local.id)?)?, frame, local)));
        // Frames are ordered innermost first. If locals retain the same, the innermost one is relevant.
        let mut most = None;
        for (bytes, frame, local) in retained {
            if most.as_ref().is_none_or(|(before, _, _)| bytes > *before) {
                most = Some((bytes, frame, local));
            }
        }
        if let Some((bytes, frame, local)) = most.filter(|(bytes, _, _)| share(*bytes) >= MUCH) {
            let place = format!("{}({})", frame.method, frame.place);
            parts.push(format!("its local variable {} of {place} retains {}", local.class, amount(bytes)));
        }
    }
    parts.join("; ")
}

/// HotSpot puts the constructor of the error on top of the stack that ran out.
fn ran_out(thread: &Thread) -> bool {
    thread.frames.first().is_some_and(|frame| frame.method == "java.lang.OutOfMemoryError.<init>")
}

fn is_jdk(method: &str) -> bool {
    ["java.", "javax.", "jdk.", "sun.", "com.sun."].iter().any(|package| method.starts_with(package))
}

/// The path from an object down, as long as one object below retains most of it; at most `NAMED` objects.
fn way(dominators: &Dominators, top: u32) -> impl Iterator<Item = u32> {
    let mut way = vec![top];
    let mut at = top;
    while way.len() < NAMED {
        let Some(next) = dominators.below(Some(at), 1).0.first().copied() else { break };
        let bytes = |object| dominators.retained(object).map_or(0.0, float);
        if bytes(next) < MOST_OF_IT * bytes(at) {
            break;
        }
        way.push(next);
        at = next;
    }
    way.into_iter()
}

fn named(dump: &Index, dominators: &Dominators, object: u32) -> String {
    let kind = match dominators.graph.kind(object) {
        Kind::Class(_) => "class ",
        _ => "",
    };
    format!("{kind}{}", memgate_hprof::text::printable(dominators.graph.class_name(dump, object)))
}

#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
const fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_that_is_none_is_told_and_a_cut_one_is_no_pass() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.hprof");
        let rules = read_rules(&[]).unwrap();
        fs::write(&path, "hello").unwrap();
        let why = seen(&path, (&rules, None), HeapAt::SuiteEnd, None).unwrap_err();
        assert!(why.starts_with("cannot be read: "), "{why}");
        fs::write(&path, b"JAVA PROFILE 1.0.2\0\0\0\0\x08\0\0\0\0\0\0\0\0\x1c\0\0\0\0\0\0\0\x40\xff")
            .unwrap();
        let cut = seen(&path, (&rules, None), HeapAt::SuiteEnd, None).unwrap();
        assert!(cut.truncated.is_some() && !cut.searched, "{cut:?}");
    }

    #[test]
    fn arrays_of_primitives_and_class_objects_count_like_other_classes() {
        let class = [&[0x20, 0, 0, 0, 0, 0, 0, 0, 7][..], &[0; 4 + 6 * 8 + 4 + 3 * 2]].concat();
        let array = b"\x23\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\x03\x08abc";
        let roots = b"\x05\0\0\0\0\0\0\0\x07\x05\0\0\0\0\0\0\0\x10";
        let body = [&class[..], array, roots].concat();
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        let head = b"JAVA PROFILE 1.0.2\0\0\0\0\x08\0\0\0\0\0\0\0\0\x1c\0\0\0\0";
        let end = b"\x2c\0\0\0\0\0\0\0\0";
        let bytes = [&head[..], &length, &body, end].concat();
        let (rules, quiet) = (Rules::default(), |_: &'static str, _: u64, _: Option<u64>| ());
        let heap = Heap::read(DumpFile::of_bytes(bytes).unwrap(), &rules, &quiet).unwrap();
        let Heap { dump, graph, .. } = heap;
        let dominators = Dominators::of(&dump, graph, &quiet);
        let limits = ["byte[]", "int[]", CLASS, "com.acme.Gone"].map(|class| (class.to_owned(), 0)).into();
        for at in [HeapAt::SuiteEnd, HeapAt::OutOfMemory] {
            let counted = counted(&dump, &dominators, at, &limits);
            let counts: Vec<_> = counted.iter().map(|(class, (count, _))| (class.as_str(), *count)).collect();
            assert_eq!(counts, [("byte[]", 1), ("int[]", 0), (CLASS, 1)]);
        }
    }
}
