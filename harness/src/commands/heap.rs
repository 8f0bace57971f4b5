//! `memgate heap`: analyses heap dumps.
//!
//! Data flow: the dump → `memgate_hprof` (passes over it, with progress) → the requested output, as text or JSON → exit
//! code: 1 for leaks and growth over the limit, 2 for an incomplete dump.

use std::path::{Path, PathBuf};

use memgate_config::nearest;
use memgate_hprof::read::Oddities;
use memgate_hprof::{Dominators, Grouping, Heap, Index, Question, Rules};

use crate::cli::{HeapCommand, HeapCommon, HeapGroup, HeapOrder};
use crate::exit::{self, ExpectedError};
use crate::output::Console;

mod analyze;
mod baseline;
mod copy;
mod diff;
mod growth;
mod json;
mod page;
mod pictures;
mod read;
mod show;
mod target;
mod watch;

use analyze::Analyze;
use diff::Most;
pub(super) use json::schema;
use read::{Dump, Renames, bad, open, read_heap, read_index, read_original, read_rules};
use show::{ClassRow, Shown, printable};
use watch::Watch;

pub(super) fn heap(command: &HeapCommand, console: &Console) -> Result<u8, ExpectedError> {
    let (path, HeapCommon { json, allow_truncated }) = command.dump();
    let watch = Watch::new(console);
    let Answer { shown, code, odd } = match answer(command, path, &watch)? {
        Answered::Shown(answer) => answer,
        Answered::Written(code) => return Ok(code),
    };
    drop(watch);
    if json {
        let json = json::json(&shown)
            .map_err(|why| ExpectedError::machinery(format!("cannot write JSON: {why}"), ""))?;
        console.result(json.as_bytes())?;
    } else {
        console.text(&shown.text())?;
    }
    let truncated = odd.iter().filter(|(_, odd)| odd.truncated());
    let mut not_whole = false;
    for (path, odd) in truncated {
        for sentence in odd.sentences() {
            console.warning(&format!("{}: {sentence}", path.display()));
        }
        not_whole = true;
    }
    if not_whole && !allow_truncated {
        console.hint("figures are those of what is there; --allow-truncated takes them as they are");
        return Ok(if code == exit::PASS { exit::NOT_MEASURED } else { code });
    }
    Ok(code)
}

/// The answer to a question about dumps.
struct Answer {
    shown: Shown,
    code: u8,
    /// The oddities of each dump.
    odd: Vec<(PathBuf, Oddities)>,
}

impl Answer {
    /// An answer about one dump, without a check that can fail.
    fn pass(shown: Shown, path: &Path, odd: Oddities) -> Self {
        Self { shown, code: exit::PASS, odd: vec![(path.to_owned(), odd)] }
    }
}

/// What a command led to.
enum Answered {
    /// An answer to show.
    Shown(Answer),
    /// A file; with the exit code.
    Written(u8),
}

fn answer<'a>(
    command: &'a HeapCommand,
    path: &'a Path,
    watch: &Watch<'_>,
) -> Result<Answered, ExpectedError> {
    let named = |mapping: &'a Option<PathBuf>| Dump::of(path, mapping.as_deref());
    let answer = match command {
        HeapCommand::Analyze { leaks, rules, mapping, baseline, top, exact, html, leakcanary, .. } => {
            let analyze = Analyze {
                leaks,
                rules,
                baseline: baseline.as_deref(),
                top: *top,
                exact: *exact,
                html: html.as_deref(),
                leakcanary: *leakcanary,
            };
            analyze.answer(named(mapping)?, watch)
        }
        HeapCommand::Paths { of, mapping, top, all, through_weak, .. } => {
            let ways = all.map_or(0, usize::from);
            paths(named(mapping)?, of, (ways, *top), *through_weak, watch)
        }
        HeapCommand::Classes { retained, mapping, sort, top, .. } => {
            let retained = *retained || *sort == Some(HeapOrder::Retained);
            classes(named(mapping)?, retained, *sort, *top, watch)
        }
        HeapCommand::Dominators { group: Some(group), mapping, top, .. } => {
            groups(named(mapping)?, *group, *top, watch)
        }
        HeapCommand::Dominators { of, mapping, depth, top, .. } => {
            trees(named(mapping)?, of.as_deref(), *depth, *top, watch)
        }
        HeapCommand::Threads { mapping, .. } => threads(named(mapping)?, watch),
        HeapCommand::Strings { top, .. } => strings(path, *top, watch),
        HeapCommand::Bitmaps { extract, top, .. } => bitmaps(path, extract.as_deref(), *top, watch),
        HeapCommand::Diff {
            by, old, mapping, old_mapping, fail_over, fail_over_count, top, common, ..
        } => {
            let most = Most { bytes: *fail_over, count: *fail_over_count };
            let new = named(mapping)?;
            let of_old = Renames::read(old_mapping.as_deref())?;
            let old = Dump { path: old, renames: of_old.or(new.renames) };
            diff::diff(*by, [old, new], most, (*top, common.allow_truncated), watch)
        }
        HeapCommand::Growth { files, mapping, loops, top, common } => {
            let renames = Renames::read(mapping.as_deref())?;
            growth::growth((files, renames), *loops, (*top, common.allow_truncated), watch)
        }
        HeapCommand::Ledger { to, mapping, allow_truncated, .. } => {
            return growth::ledger(named(mapping)?, to, *allow_truncated, watch).map(Answered::Written);
        }
        HeapCommand::Trim { to, zero, private, keep_duplicates, rules, prove, .. } => {
            let kept = match (zero, private) {
                (true, _) => copy::Kept::Nothing,
                (false, true) => copy::Kept::InPrivate,
                (false, false) => copy::Kept::Analysable,
            };
            let keeps = copy::Keeps { kept, duplicates: *keep_duplicates };
            copy::trim(path, to, (keeps, rules), *prove, watch)?;
            return Ok(Answered::Written(exit::PASS));
        }
        HeapCommand::Restore { to, .. } => {
            copy::restore(path, to, watch)?;
            return Ok(Answered::Written(exit::PASS));
        }
        HeapCommand::Check { .. } => check(path, watch),
    };
    answer.map(Answered::Shown)
}

fn paths(
    dump: Dump<'_>,
    of: &str,
    (ways, top): (usize, usize),
    through_weak: bool,
    watch: &Watch<'_>,
) -> Result<Answer, ExpectedError> {
    let rules = read_rules(&[])?;
    let rules = if through_weak { rules.through_weak() } else { rules };
    let heap = read_original(dump, &rules, watch)?;
    known(&heap, of)?;
    let question = Question { wanted: vec![of.to_owned()], only_wanted: true, ways };
    let analysis = watch.passes(|told| heap.analyse(&rules, &question, told)).map_err(bad(dump.path))?;
    Ok(Answer::pass(Shown::paths(analysis, ways.max(top)), dump.path, heap.dump.odd))
}

fn classes(
    dump: Dump<'_>,
    retained: bool,
    sort: Option<HeapOrder>,
    top: usize,
    watch: &Watch<'_>,
) -> Result<Answer, ExpectedError> {
    let (mut rows, odd) = if retained {
        let heap = read_original(dump, &Rules::default(), watch)?;
        let odd = heap.dump.odd.clone();
        let (index, dominators) = dominators(heap, watch);
        let all = dominators.by_class(&index);
        (all.into_iter().map(ClassRow::from).collect(), odd)
    } else {
        let index = read_index(dump, watch)?;
        (diff::by_name(&index).into_iter().map(ClassRow::from).collect::<Vec<_>>(), index.odd)
    };
    let order = sort.unwrap_or(if retained { HeapOrder::Retained } else { HeapOrder::Shallow });
    rows.sort_by_key(|row: &ClassRow| {
        std::cmp::Reverse(match order {
            HeapOrder::Retained => row.retained.unwrap_or(0),
            HeapOrder::Shallow => row.bytes,
            HeapOrder::Count => row.count,
        })
    });
    Ok(Answer::pass(Shown::classes(rows, top), dump.path, odd))
}

/// Retained sizes of classes, packages or class loaders.
fn groups(dump: Dump<'_>, group: HeapGroup, top: usize, watch: &Watch<'_>) -> Result<Answer, ExpectedError> {
    let heap = read_original(dump, &Rules::default(), watch)?;
    let odd = heap.dump.odd.clone();
    let (index, dominators) = dominators(heap, watch);
    let grouping = match group {
        HeapGroup::Class => Grouping::Class,
        HeapGroup::Package => Grouping::Package,
        HeapGroup::Loader => Grouping::Loader,
    };
    let rows = dominators.by(&index, grouping).into_iter().map(ClassRow::from).collect();
    Ok(Answer::pass(Shown::classes(rows, top), dump.path, odd))
}

/// The largest objects, and the objects that each dominates.
fn trees(
    dump: Dump<'_>,
    of: Option<&str>,
    depth: u32,
    top: usize,
    watch: &Watch<'_>,
) -> Result<Answer, ExpectedError> {
    let heap = read_original(dump, &Rules::default(), watch)?;
    let odd = heap.dump.odd.clone();
    let from = of.map(|name| known(&heap, name)).transpose()?;
    let (index, dominators) = dominators(heap, watch);
    let trees = show::trees(&index, &dominators, from.as_deref(), depth, top);
    Ok(Answer::pass(Shown::dominators(&index, &dominators, trees), dump.path, odd))
}

fn threads(dump: Dump<'_>, watch: &Watch<'_>) -> Result<Answer, ExpectedError> {
    // The one field that tells what a thread does.
    let heap = read_original(dump, &read_rules(&[])?, watch)?;
    let threads = watch.passes(|told| heap.threads(told)).map_err(bad(dump.path))?;
    Ok(Answer::pass(Shown::Threads { threads }, dump.path, heap.dump.odd))
}

fn strings(path: &Path, top: usize, watch: &Watch<'_>) -> Result<Answer, ExpectedError> {
    let heap = read_heap(path, &Rules::default(), watch)?;
    let texts = watch.passes(|told| heap.texts(top, told)).map_err(bad(path))?;
    Ok(Answer::pass(Shown::Strings { texts }, path, heap.dump.odd))
}

fn bitmaps(
    path: &Path,
    extract: Option<&Path>,
    top: usize,
    watch: &Watch<'_>,
) -> Result<Answer, ExpectedError> {
    let heap = read_heap(path, &Rules::default(), watch)?;
    let bitmaps = heap.bitmaps();
    if let Some(folder) = extract {
        let written = pictures::extract((path, &heap), &bitmaps, folder, watch)?;
        watch.console().line(&format!("{}: {written} of {} pictures", folder.display(), bitmaps.len()));
    }
    Ok(Answer::pass(Shown::bitmaps(bitmaps, top), path, heap.dump.odd))
}

fn check(path: &Path, watch: &Watch<'_>) -> Result<Answer, ExpectedError> {
    let file = open(path)?;
    let dump = watch.passes(|told| Index::read(&file, told)).map_err(bad(path))?;
    Ok(Answer::pass(Shown::check(&file, &dump), path, dump.odd))
}

fn dominators(heap: Heap, watch: &Watch<'_>) -> (Index, Dominators) {
    let Heap { dump, graph, .. } = heap;
    let dominators = watch.passes(|told| Dominators::of(&dump, graph, told));
    (dump, dominators)
}

/// Objects by class or id; an error if there are none.
fn known(heap: &Heap, name: &str) -> Result<Vec<u32>, ExpectedError> {
    heap.named(name).ok_or_else(|| {
        let classes: Vec<&str> = heap.dump.classes.iter().map(|class| class.name.as_str()).collect();
        let list = "`memgate heap classes FILE` lists the classes; an id begins with 0x";
        let odd = &heap.dump.odd;
        let hint = match nearest_class(name, &classes) {
            _ if odd.truncated() => {
                let odd: Vec<String> = odd.sentences().collect();
                format!("the dump is not whole, and the rest may have it: {}", odd.join("; "))
            }
            Some(near) if near == name => "the class is there, but it has no objects".to_owned(),
            Some(near) => format!("did you mean `{}`? {list}", printable(near)),
            None => list.to_owned(),
        };
        ExpectedError::usage(format!("there is no object `{name}` in the dump"), hint)
    })
}

/// The class that somebody probably meant who left out the package, or mistyped a name.
fn nearest_class<'c>(name: &str, classes: &[&'c str]) -> Option<&'c str> {
    fn simple(class: &str) -> &str {
        class.rsplit(['.', '$']).next().unwrap_or(class)
    }
    let near = nearest(simple(name), classes.iter().map(|class| simple(class)))?;
    let so_called = || classes.iter().copied().filter(|class| simple(class) == near);
    nearest(name, so_called()).or_else(|| so_called().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_found_without_its_package_and_with_a_typing_error() {
        let classes = ["java.util.HashMap", "com.acme.Session", "org.other.Session", "com.acme.Shop$Order"];
        for (name, near) in [
            ("Session", Some("com.acme.Session")),
            ("org.othr.Session", Some("org.other.Session")),
            ("com.acme.Sesion", Some("com.acme.Session")),
            ("order", Some("com.acme.Shop$Order")),
            ("com.acme.Shop.Order", Some("com.acme.Shop$Order")),
            ("com.acme.Zebra", None),
            ("", None),
        ] {
            assert_eq!(nearest_class(name, &classes), near, "{name}");
        }
    }
}
