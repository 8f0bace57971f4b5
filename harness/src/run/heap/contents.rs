//! What a heap dump contains: leaks, counts of classes, what retains most, the thread that ran out of memory.

use std::collections::BTreeMap;
use std::path::Path;

use memgate_config::SuiteHeap;
use memgate_hprof::read::DumpFile;
use memgate_hprof::text::array_name;
use memgate_hprof::{Analysis, Dominators, Heap, Index, Kind, Leak, Ledger, Question, Rules, Thread};
use memgate_model::{HeapAt, HeapLeak, HeapSeen, HolderStep, format_bytes};

use crate::exit::chain;
use crate::names::OfDump;
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

/// The content of a dump.
pub(super) fn seen(
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
    let share = |bytes: u64| bytes as f64 / all as f64;
    let amount =
        |bytes: u64| format!("{}, {:.0} % of the heap", format_bytes(bytes as f64), 100.0 * share(bytes));
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
        let bytes = |object| dominators.retained(object).map_or(0.0, |bytes| bytes as f64);
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::heap_rules::read_rules;

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
