//! Heap dumps of a JVM suite: which were taken, what each contains ([`contents`]), which are kept.
//!
//! Data flow: the records of the build's own run and `heap` of the suite → paths of dumps (the agent and the virtual
//! machine write them into the session) → [`memgate_hprof`]: leaks, counts of classes, dominators, the thread that ran
//! out of memory → [`HeapCheck`] in the facts of the suite → a dump is kept trimmed, or removed. The judge decides the
//! verdict from the facts alone, so that it can be repeated after the dumps are gone.

mod contents;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::Instant;

use memgate_config::{HeapDump as DumpAt, HeapKeep, HeapTime, SuiteHeap};
use memgate_hprof::read::DumpFile;
use memgate_hprof::{Index, Packed, Rules};
use memgate_model::{HeapAt, HeapCheck, HeapDump, HeapLimits, HeapSeen, format_bytes, format_number_of};
use memgate_wire::Outcome;

use self::contents::seen;
use super::engine::{Context, Finished, ran_tests};
use crate::exit::ExpectedError;
use crate::heap_rules::read_rules;
use crate::names::OfDump;
use crate::output::Console;
use crate::plan::Plan;

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
                format_bytes(seen.bytes as f64),
                if seen.searched {
                    format_number_of(seen.leaks.len(), "leak")
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
