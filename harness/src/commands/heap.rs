//! `memgate heap`: looks into heap dumps.
//!
//! Data flow: the dump → `memgate_hprof` (passes over it, with progress) → what was asked for, as
//! text or JSON → exit code: 1 for leaks and growth over the limit, 2 for a dump that is not whole.

use std::path::{Path, PathBuf};

use memgate_hprof::read::{Oddities, ReadError};
use memgate_hprof::{Analysis, Dominators, Grouping, Heap, Index, Question, Rules, Texts, Thread};

use crate::cli::{HeapCommand, HeapCommon, HeapGroup, HeapOrder};
use crate::exit::{self, ExpectedError};
use crate::output::Console;

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

use diff::Most;
pub(super) use json::schema;
use page::Page;
use read::{bad, open, read_heap, read_index, read_original, read_rules};
use show::{ClassRow, Shown};
use watch::Watch;

pub(super) fn heap(command: &HeapCommand, console: &Console) -> Result<u8, ExpectedError> {
    let (path, HeapCommon { json, allow_truncated }) = command.dump();
    let watch = Watch::new(console);
    let Some((shown, code, odd)) = answer(command, path, &watch)? else { return Ok(exit::PASS) };
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

type Answer = (Shown, u8, Vec<(PathBuf, Oddities)>);

/// `None`: a copy was asked for, and is made.
fn answer(command: &HeapCommand, path: &Path, watch: &Watch<'_>) -> Result<Option<Answer>, ExpectedError> {
    let answer = match command {
        HeapCommand::Analyze { leaks, rules, mapping, baseline, top, exact, html, leakcanary, .. } => {
            let rules = read_rules(rules)?;
            let known_leaks = baseline.as_deref().map(baseline::read).transpose()?;
            let heap = read_original(path, &rules, mapping.as_deref(), watch)?;
            let odd = heap.dump.odd.clone();
            for name in leaks {
                known(&heap, name)?;
            }
            let question = Question { wanted: leaks.clone(), only_wanted: false, ways: 0 };
            let mut analysis =
                watch.passes(|told| heap.analyse(&rules, &question, told)).map_err(bad(path))?;
            let nothing_asked = analysis.about.rules == 0 && leaks.is_empty();
            if nothing_asked {
                watch.console().warning(
                    "no rule knows a class of this dump, so nothing was looked for: name classes (--leaks) or rules (--rules)",
                );
            }
            for mistake in &analysis.mistakes {
                watch.console().warning(&format!("{mistake}: correct the rules file"));
            }
            let mut code = code(&analysis, nothing_asked);
            if let (exit::FAIL, Some(known)) = (code, &known_leaks) {
                let (old, new) = baseline::split(&analysis, known);
                watch.console().line(&format!("{old} of {} leaks are in the baseline", old + new));
                if new == 0 {
                    // What was not looked at may be new.
                    let all = analysis.not_looked_at == 0 && analysis.mistakes.is_empty();
                    code = if all { exit::PASS } else { exit::NOT_MEASURED };
                }
            }
            if code == exit::NOT_MEASURED && analysis.not_looked_at > 0 {
                watch.console().warning(
                    "leaks of libraries alone were found, and there are too many objects to look at them all",
                );
            }
            if *leakcanary {
                let text = memgate_hprof::leakcanary(&analysis, &show::printable(&path.to_string_lossy()));
                return Ok(Some((Shown::LeakCanary(text), code, vec![(path.to_owned(), odd)])));
            }
            let mut largest = Vec::new();
            // Before dominators take the place of references.
            let more = match html {
                Some(to) => Some((to, watch.passes(|told| seen_besides(&heap, told)).map_err(bad(path))?)),
                None => None,
            };
            if *exact || more.is_some() {
                let (dump, dominators) = dominators(heap, watch);
                for leak in analysis.leaks.iter_mut().chain(&mut analysis.library_leaks) {
                    let object = leak.path.last().and_then(|node| dump.object(node.id));
                    leak.retained = object.and_then(|object| dominators.retained(object));
                }
                largest = show::trees(&dump, &dominators, None, 1, 10);
                if let Some((to, (threads, texts))) = &more {
                    let head = show::head_of(path, &analysis);
                    let page = Page { head: &head, analysis: &analysis, threads, texts };
                    let page = page.html(&dump, &dominators);
                    target::write(to, |out| {
                        out.write_all(page.as_bytes()).map_err(ExpectedError::file("write", to))
                    })?;
                }
            }
            Ok((Shown::analysis(path, analysis, largest, *top, *exact), code, vec![(path.to_owned(), odd)]))
        }
        HeapCommand::Paths { of, mapping, top, all, through_weak, .. } => {
            let rules = read_rules(&[])?;
            let rules = if *through_weak { rules.through_weak() } else { rules };
            let heap = read_original(path, &rules, mapping.as_deref(), watch)?;
            let odd = heap.dump.odd.clone();
            known(&heap, of)?;
            let ways = all.map_or(0, usize::from);
            let question = Question { wanted: vec![of.clone()], only_wanted: true, ways };
            let analysis = watch.passes(|told| heap.analyse(&rules, &question, told)).map_err(bad(path))?;
            Ok((Shown::paths(analysis, ways.max(*top)), exit::PASS, vec![(path.to_owned(), odd)]))
        }
        HeapCommand::Classes { retained, mapping, sort, top, .. } => {
            let retained = *retained || *sort == Some(HeapOrder::Retained);
            classes((path, mapping.as_deref()), retained, *sort, *top, watch)
        }
        HeapCommand::Dominators { of, group, mapping, depth, top, .. } => {
            let heap = read_original(path, &Rules::default(), mapping.as_deref(), watch)?;
            let odd = heap.dump.odd.clone();
            let from = of.as_deref().map(|name| known(&heap, name)).transpose()?;
            let (dump, dominators) = dominators(heap, watch);
            if let Some(group) = group {
                let grouping = match group {
                    HeapGroup::Class => Grouping::Class,
                    HeapGroup::Package => Grouping::Package,
                    HeapGroup::Loader => Grouping::Loader,
                };
                let rows = dominators.by(&dump, grouping).into_iter().map(ClassRow::from).collect();
                return Ok(Some((Shown::classes(rows, *top), exit::PASS, vec![(path.to_owned(), odd)])));
            }
            let trees = show::trees(&dump, &dominators, from.as_deref(), *depth, *top);
            Ok((Shown::dominators(&dump, &dominators, trees), exit::PASS, vec![(path.to_owned(), odd)]))
        }
        HeapCommand::Threads { .. } => {
            // The one field that tells what a thread does.
            let heap = read_heap(path, &read_rules(&[])?, watch)?;
            let threads = watch.passes(|told| heap.threads(told)).map_err(bad(path))?;
            Ok((Shown::Threads { threads }, exit::PASS, vec![(path.to_owned(), heap.dump.odd)]))
        }
        HeapCommand::Strings { top, .. } => {
            let heap = read_heap(path, &Rules::default(), watch)?;
            let texts = watch.passes(|told| heap.texts(*top, told)).map_err(bad(path))?;
            Ok((Shown::Strings { texts }, exit::PASS, vec![(path.to_owned(), heap.dump.odd)]))
        }
        HeapCommand::Bitmaps { extract, top, .. } => {
            let heap = read_heap(path, &Rules::default(), watch)?;
            let bitmaps = heap.bitmaps();
            if let Some(folder) = extract {
                let written = pictures::extract((path, &heap), &bitmaps, folder, watch)?;
                watch.console().line(&format!(
                    "{}: {written} of {} pictures",
                    folder.display(),
                    bitmaps.len()
                ));
            }
            Ok((Shown::bitmaps(bitmaps, *top), exit::PASS, vec![(path.to_owned(), heap.dump.odd)]))
        }
        HeapCommand::Diff { by, old, fail_over, fail_over_count, top, .. } => {
            let most = Most { bytes: *fail_over, count: *fail_over_count };
            diff::diff((*by, old, path), most, *top, watch)
        }
        HeapCommand::Growth { files, loops, top, common } => {
            growth::growth(files, *loops, (*top, common.allow_truncated), watch)
        }
        HeapCommand::Ledger { to, .. } => {
            growth::ledger(path, to, watch)?;
            return Ok(None);
        }
        HeapCommand::Trim { to, zero, private, keep_duplicates, rules, prove, .. } => {
            let kept = match (zero, private) {
                (true, _) => copy::Kept::Nothing,
                (false, true) => copy::Kept::InPrivate,
                (false, false) => copy::Kept::Analysable,
            };
            let keeps = copy::Keeps { kept, duplicates: *keep_duplicates };
            copy::trim(path, to, (keeps, rules), *prove, watch)?;
            return Ok(None);
        }
        HeapCommand::Restore { to, .. } => {
            copy::restore(path, to, watch)?;
            return Ok(None);
        }
        HeapCommand::Check { .. } => {
            let file = open(path)?;
            let dump = watch.passes(|told| Index::read(&file, told)).map_err(bad(path))?;
            Ok((Shown::check(&file, &dump), exit::PASS, vec![(path.to_owned(), dump.odd)]))
        }
    };
    answer.map(Some)
}

/// What a page has beside leaks and sizes.
fn seen_besides(
    heap: &Heap,
    told: memgate_hprof::read::Progress<'_>,
) -> Result<(Vec<Thread>, Texts), ReadError> {
    Ok((heap.threads(told)?, heap.texts(page::STRINGS, told)?))
}

/// What was not looked at, or by a rule that can never match, may be a leak of the program.
fn code(analysis: &Analysis, nothing_asked: bool) -> u8 {
    match analysis.leaks.is_empty() {
        false => exit::FAIL,
        true if nothing_asked || analysis.not_looked_at > 0 || !analysis.mistakes.is_empty() => {
            exit::NOT_MEASURED
        }
        true => exit::PASS,
    }
}

fn classes(
    (path, mapping): (&Path, Option<&Path>),
    retained: bool,
    sort: Option<HeapOrder>,
    top: usize,
    watch: &Watch<'_>,
) -> Result<Answer, ExpectedError> {
    let (mut rows, odd) = if retained {
        let heap = read_original(path, &Rules::default(), mapping, watch)?;
        let odd = heap.dump.odd.clone();
        let (dump, dominators) = dominators(heap, watch);
        let all = dominators.by_class(&dump);
        (all.into_iter().map(ClassRow::from).collect(), odd)
    } else {
        let dump = read_index(path, mapping, watch)?;
        (diff::by_name(&dump).into_iter().map(ClassRow::from).collect::<Vec<_>>(), dump.odd)
    };
    let order = sort.unwrap_or(if retained { HeapOrder::Retained } else { HeapOrder::Shallow });
    rows.sort_by_key(|row: &ClassRow| {
        std::cmp::Reverse(match order {
            HeapOrder::Retained => row.retained.unwrap_or(0),
            HeapOrder::Shallow => row.bytes,
            HeapOrder::Count => row.count,
        })
    });
    Ok((Shown::classes(rows, top), exit::PASS, vec![(path.to_owned(), odd)]))
}

fn dominators(heap: Heap, watch: &Watch<'_>) -> (Index, Dominators) {
    let Heap { dump, graph, .. } = heap;
    let dominators = watch.passes(|told| Dominators::of(&dump, graph, told));
    (dump, dominators)
}

/// Objects by class or id; it must be there.
fn known(heap: &Heap, name: &str) -> Result<Vec<u32>, ExpectedError> {
    heap.named(name).ok_or_else(|| ExpectedError::Usage {
        what: format!("there is no object `{name}` in {}", show::printable(&heap.dump.header.title)),
        hint: "`memgate heap classes FILE` lists the classes; an id begins with 0x".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use memgate_hprof::read::DumpFile;

    use super::*;

    #[test]
    fn leaks_that_nobody_looked_at_are_no_pass() {
        let empty = b"JAVA PROFILE 1.0.2\0\0\0\0\x08\0\0\0\0\0\0\0\0\x2c\0\0\0\0\0\0\0\0";
        let (rules, quiet) = (Rules::default(), |_: &'static str, _: u64, _: Option<u64>| ());
        let heap = Heap::read(DumpFile::of_bytes(&empty[..]).unwrap(), &rules, &quiet).unwrap();
        let mut analysis = heap.analyse(&rules, &Question::default(), &quiet).unwrap();
        assert_eq!(code(&analysis, false), exit::PASS);
        analysis.not_looked_at = 1;
        assert_eq!(code(&analysis, false), exit::NOT_MEASURED);
        (analysis.not_looked_at, analysis.mistakes) = (0, vec!["the rule".to_owned()]);
        assert_eq!(code(&analysis, false), exit::NOT_MEASURED);
    }
}
