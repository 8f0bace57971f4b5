//! `memgate heap analyze`: leaks of one dump.
//!
//! Data flow: the dump → leaks found by the rules, and objects of named classes → exit code, without leaks known from a
//! baseline → retained sizes if requested → text, JSON, a page, or LeakCanary's format.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use memgate_hprof::read::{Progress, ReadError};
use memgate_hprof::{Analysis, Heap, Question, Texts, Thread};

use super::page::{self, Page};
use super::read::{Dump, bad, read_original, read_rules};
use super::show::{self, Shown, Tree, number};
use super::watch::Watch;
use super::{Answer, baseline, dominators, known, target};
use crate::exit::{self, ExpectedError};

/// The search, and its output.
pub(super) struct Analyze<'a> {
    pub(super) leaks: &'a [String],
    pub(super) rules: &'a [PathBuf],
    pub(super) baseline: Option<&'a Path>,
    pub(super) top: usize,
    pub(super) exact: bool,
    pub(super) html: Option<&'a Path>,
    pub(super) leakcanary: bool,
}

impl Analyze<'_> {
    pub(super) fn answer(&self, dump: Dump<'_>, watch: &Watch<'_>) -> Result<Answer, ExpectedError> {
        let rules = read_rules(self.rules)?;
        let known_leaks = self.baseline.map(baseline::read).transpose()?;
        let (heap, path) = (read_original(dump, &rules, watch)?, dump.path);
        let odd = vec![(path.to_owned(), heap.dump.odd.clone())];
        for name in self.leaks {
            known(&heap, name)?;
        }
        let question = Question { wanted: self.leaks.to_vec(), only_wanted: false, ways: 0 };
        let mut analysis = watch.passes(|told| heap.analyse(&rules, &question, told)).map_err(bad(path))?;
        let code = self.code(&analysis, known_leaks.as_ref(), watch);
        if self.leakcanary {
            let text = memgate_hprof::leakcanary(&analysis, &show::printable(&path.to_string_lossy()));
            return Ok(Answer { shown: Shown::LeakCanary(text), code, odd });
        }
        let largest = self.sizes(path, heap, &mut analysis, watch)?;
        let head = show::head_of(path, &analysis, self.nothing_asked(&analysis));
        let shown = Shown::analysis(head, analysis, largest, self.top, self.exact);
        Ok(Answer { shown, code, odd })
    }

    /// No rule and no named class: the analysis looks for nothing.
    const fn nothing_asked(&self, analysis: &Analysis) -> bool {
        analysis.about.rules == 0 && self.leaks.is_empty()
    }

    /// The exit code; warns about parts that were not searched.
    fn code(&self, analysis: &Analysis, known_leaks: Option<&BTreeSet<String>>, watch: &Watch<'_>) -> u8 {
        let console = watch.console();
        let nothing_asked = self.nothing_asked(analysis);
        if nothing_asked {
            console.warning(
                "no rule knows a class of this dump, so nothing was looked for: name classes (--leaks) or rules (--rules)",
            );
            console.hint(
                "without rules, `memgate heap growth` compares dumps, and `memgate heap dominators` shows what holds most",
            );
        }
        for mistake in &analysis.mistakes {
            console.warning(&format!("{mistake}: correct the rules file"));
        }
        let mut code = code(analysis, nothing_asked);
        if let (exit::FAIL, Some(known)) = (code, known_leaks) {
            let (old, new) = baseline::split(analysis, known);
            console.line(&format!("{old} of {} leaks are in the baseline", old + new));
            if new == 0 {
                // Objects that were not examined may be new leaks.
                let all = analysis.not_looked_at == 0 && analysis.mistakes.is_empty();
                code = if all { exit::PASS } else { exit::NOT_MEASURED };
            }
        }
        if let (exit::NOT_MEASURED, Some(warning)) = (code, unseen(analysis)) {
            console.warning(&warning);
        }
        code
    }

    /// If requested: retained sizes of the leaks, the largest objects, and the page.
    fn sizes(
        &self,
        path: &Path,
        heap: Heap,
        analysis: &mut Analysis,
        watch: &Watch<'_>,
    ) -> Result<Vec<Tree>, ExpectedError> {
        // Must run before dominators replace the references.
        let more = match self.html {
            Some(to) => Some((to, watch.passes(|told| seen_besides(&heap, told)).map_err(bad(path))?)),
            None => None,
        };
        if !self.exact && more.is_none() {
            return Ok(Vec::new());
        }
        let (dump, dominators) = dominators(heap, watch);
        for leak in analysis.leaks.iter_mut().chain(&mut analysis.library_leaks) {
            let object = leak.path.last().and_then(|node| dump.object(node.id));
            leak.retained = object.and_then(|object| dominators.retained(object));
        }
        if let Some((to, (threads, texts))) = &more {
            let head = show::head_of(path, analysis, self.nothing_asked(analysis));
            let page = Page { head: &head, analysis, threads, texts }.html(&dump, &dominators);
            target::write(to, |out| {
                out.write_all(page.as_bytes()).map_err(ExpectedError::file("write", to))
            })?;
        }
        Ok(show::trees(&dump, &dominators, None, 1, 10))
    }
}

/// Further content of a page, besides leaks and sizes.
fn seen_besides(heap: &Heap, told: Progress<'_>) -> Result<(Vec<Thread>, Texts), ReadError> {
    Ok((heap.threads(told)?, heap.texts(page::STRINGS, told)?))
}

/// A warning about leaking objects that were not examined, if any.
fn unseen(analysis: &Analysis) -> Option<String> {
    let found = if analysis.leaks.is_empty() { "of libraries" } else { "in the baseline" };
    let more = number(analysis.not_looked_at);
    (analysis.not_looked_at > 0).then(|| {
        format!(
            "the leaks that were looked at are {found}, and {more} more leaking objects were not looked at"
        )
    })
}

/// Unchecked objects, and rules that can never match, may hide a leak.
fn code(analysis: &Analysis, nothing_asked: bool) -> u8 {
    match analysis.leaks.is_empty() {
        false => exit::FAIL,
        true if nothing_asked || analysis.not_looked_at > 0 || !analysis.mistakes.is_empty() => {
            exit::NOT_MEASURED
        }
        true => exit::PASS,
    }
}

#[cfg(test)]
mod tests {
    use memgate_hprof::Rules;
    use memgate_hprof::read::DumpFile;

    use super::*;

    fn of_an_empty_dump() -> Analysis {
        let empty = b"JAVA PROFILE 1.0.2\0\0\0\0\x08\0\0\0\0\0\0\0\0\x2c\0\0\0\0\0\0\0\0";
        let (rules, quiet) = (Rules::default(), |_: &'static str, _: u64, _: Option<u64>| ());
        let heap = Heap::read(DumpFile::of_bytes(&empty[..]).unwrap(), &rules, &quiet).unwrap();
        heap.analyse(&rules, &Question::default(), &quiet).unwrap()
    }

    /// Before, the output of a dump of HotSpot read as a pass where the warning was not seen, in a pipe.
    #[test]
    fn a_dump_in_which_nothing_was_looked_for_says_so_in_place_of_the_leaks() {
        let mut analysis = of_an_empty_dump();
        (analysis.about.file_bytes, analysis.about.heap_bytes) = (4_770_922, 1_024_000);
        let head = |nothing_asked| show::head_of(Path::new("h3.hprof"), &analysis, nothing_asked).join("\n");
        let unasked = head(true);
        assert!(
            unasked.contains("\nnothing was looked for: no rule knows a class of this dump"),
            "{unasked}"
        );
        assert!(!unasked.contains("leaks"), "{unasked}");
        let asked = head(false);
        assert!(asked.contains("0 leaks retain 0 B") && asked.contains("4.5 MiB dump"), "{asked}");
        assert!(asked.contains("1000.0 KiB; 0 threads"), "{asked}");
    }

    #[test]
    fn leaks_that_nobody_looked_at_are_no_pass() {
        let mut analysis = of_an_empty_dump();
        assert_eq!(code(&analysis, false), exit::PASS);
        assert_eq!(unseen(&analysis), None);
        analysis.not_looked_at = 1_200;
        assert_eq!(code(&analysis, false), exit::NOT_MEASURED);
        assert!(unseen(&analysis).unwrap().contains("are of libraries, and 1,200 more"));
        (analysis.not_looked_at, analysis.mistakes) = (0, vec!["the rule".to_owned()]);
        assert_eq!(code(&analysis, false), exit::NOT_MEASURED);
    }
}
