//! `dumpsys meminfo PROCESS` as text, Android 10 to 16; as protobuf: [`read_meminfo_proto`].
//!
//! ```text
//! ** MEMINFO in pid 31966 [com.example] **
//!                    Pss  Private  Private  SwapPss      Rss     Heap     Heap     Heap
//!                  Total    Dirty    Clean    Dirty    Total     Size    Alloc     Free
//!                 ------   ------   ------   ------   ------   ------   ------   ------
//!   Native Heap     1221     1176        0     3280     4732    13400     5592     2877
//!         Stack      364      364        0      428      376
//!         TOTAL    21887     5604     7404     6580   125344    24644     8644    11069
//!
//!  App Summary
//!                        Pss(KB)                        Rss(KB)
//!            Java Heap:     3204                          30732
//!            TOTAL PSS:    21887            TOTAL RSS:   125344       TOTAL SWAP PSS:     6580
//!
//!  Objects
//!                Views:        0         ViewRootImpl:        0
//! ```
//! Columns are found by the two header lines: Android 10 has no Rss, `-a` has more columns. The writer leaves out
//! rows whose figures are all 0. Figures are KB. `TOTAL` of Pss includes the swapped part.
//!
//! Data flow: text → one [`ProcessMemory`] for each `** MEMINFO` block. A block without `TOTAL`, or with only zeros, is
//! an error, not a measurement: it must not look like a process that needs no memory.

mod proto;

use std::collections::BTreeMap;

pub use proto::read_meminfo_proto;

use crate::lines::{Lines, excerpt, text};

/// Figures of one process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Its id.
    pub pid: u64,
    /// Its name.
    pub name: String,
    /// By row (`Native Heap`, `TOTAL`) and column (`Pss Total`, `Private Dirty`, `Heap Alloc`), in
    /// KB.
    pub rows: BTreeMap<String, BTreeMap<String, u64>>,
    /// `App Summary`, Pss in KB, by label (`Java Heap`, `TOTAL PSS`), and `TOTAL RSS`: in that cell of the table,
    /// Android 11 prints Pss.
    pub summary: BTreeMap<String, u64>,
    /// Numbers of objects (`Views`, `Activities`).
    pub objects: BTreeMap<String, u64>,
}

impl ProcessMemory {
    /// A figure of the table, in KB; rows that were left out are 0, columns that this Android lacks are `None`.
    #[must_use]
    pub fn kilobytes(&self, row: &str, column: &str) -> Option<u64> {
        let known = self.rows.get("TOTAL").is_some_and(|total| total.contains_key(column));
        known.then(|| self.rows.get(row).and_then(|row| row.get(column)).copied().unwrap_or(0))
    }

    /// Proportional set size of the process, swap included, in KB.
    #[must_use]
    pub fn total_pss(&self) -> Option<u64> {
        self.kilobytes("TOTAL", "Pss Total")
    }
}

/// Why there is no figure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemInfoError {
    /// There is no such process.
    #[error("no such process: {0}")]
    NoProcess(String),
    /// The process was asked and did not answer, or died.
    #[error("the process did not answer: {0}")]
    NoAnswer(String),
    /// A block without its total: nothing was measured, or the text is cut off.
    #[error("line {line}: no TOTAL for process {pid}: nothing was measured")]
    NoTotal {
        /// Where the block begins.
        line: u64,
        /// Id of its process.
        pid: u64,
    },
    /// All figures are 0.
    #[error("line {line}: all figures of process {pid} are 0: nothing was measured")]
    AllZero {
        /// Where the block begins.
        line: u64,
        /// Id of its process.
        pid: u64,
    },
    /// The last line has no end.
    #[error("the last line has no end: the text is cut off")]
    CutOff,
    /// A line that cannot be read.
    #[error("line {line}: {problem} (`{found}`)")]
    Line {
        /// From 1.
        line: u64,
        /// What is wrong.
        problem: &'static str,
        /// Its beginning.
        found: String,
    },
    /// A process without figures in the protobuf.
    #[error("process {pid} has no figures: nothing was measured")]
    NoFigures {
        /// Its id.
        pid: u64,
    },
    /// Not the protobuf.
    #[error("this is no output of `dumpsys meminfo --proto PROCESS`: {0}")]
    Proto(&'static str),
    /// Not this format.
    #[error("this is no output of `dumpsys meminfo PROCESS`")]
    NoMemInfo,
}

/// Reads the output for one process or several.
///
/// # Errors
/// [`MemInfoError`]: above all, that nothing was measured.
pub fn read_meminfo(bytes: &[u8]) -> Result<Vec<ProcessMemory>, MemInfoError> {
    let (mut done, mut open): (Vec<ProcessMemory>, Option<Block>) = (Vec::new(), None);
    for (number, line) in Lines::of(bytes) {
        let line = text(line);
        let trimmed = line.trim();
        if let Some(process) = trimmed.strip_prefix("No process found for:") {
            return Err(MemInfoError::NoProcess(excerpt(process.trim().as_bytes())));
        }
        if trimmed.starts_with("Got IoException!") || trimmed.starts_with("Got RemoteException!") {
            return Err(MemInfoError::NoAnswer(excerpt(trimmed.as_bytes())));
        }
        if let Some(title) = trimmed.strip_prefix("** MEMINFO in pid ") {
            done.extend(open.take().map(Block::close).transpose()?);
            open = Some(
                Block::begin(number, title).ok_or_else(|| wrong(number, "no title of a process", &line))?,
            );
        } else if let Some(block) = &mut open {
            block.line(&line).map_err(|problem| wrong(number, problem, &line))?;
        }
    }
    done.extend(open.map(Block::close).transpose()?);
    match done.as_slice() {
        [] => Err(MemInfoError::NoMemInfo),
        // A truncated number looks like another number.
        _ if !bytes.ends_with(b"\n") => Err(MemInfoError::CutOff),
        _ => Ok(done),
    }
}

fn wrong(line: u64, problem: &'static str, found: &str) -> MemInfoError {
    MemInfoError::Line { line, problem, found: excerpt(found.trim().as_bytes()) }
}

/// The current section of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    Head,
    Table,
    Summary,
    Objects,
    Other,
}

/// A block that is being read.
#[derive(Debug)]
struct Block {
    first_line: u64,
    section: Section,
    /// The previous line of the header.
    upper: Vec<String>,
    columns: Vec<String>,
    found: ProcessMemory,
}

impl Block {
    /// `31966 [com.example] **`
    fn begin(first_line: u64, title: &str) -> Option<Self> {
        let (pid, name) = title.split_once(" [")?;
        let name = name.strip_suffix("] **")?.to_owned();
        let found = ProcessMemory { pid: pid.parse().ok()?, name, ..ProcessMemory::default() };
        Some(Self { first_line, section: Section::Head, upper: Vec::new(), columns: Vec::new(), found })
    }

    fn line(&mut self, line: &str) -> Result<(), &'static str> {
        let trimmed = line.trim();
        if trimmed.is_empty() {
            return Ok(());
        }
        // The name of a section has one leading blank and no figures. Other lines have more blanks, or figures.
        let bare = !trimmed.contains(|c: char| c == ':' || c.is_ascii_digit());
        if line.starts_with(' ') && !line.starts_with("  ") && bare {
            self.section = match trimmed {
                "App Summary" => Section::Summary,
                "Objects" => Section::Objects,
                _ => Section::Other,
            };
            return Ok(());
        }
        match self.section {
            Section::Head => self.header(trimmed),
            Section::Table => self.row(trimmed),
            Section::Summary => self.summary(trimmed),
            Section::Objects => {
                self.found.objects.extend(
                    pairs(trimmed).filter_map(|(label, figures)| Some((label.to_owned(), *figures.first()?))),
                );
                Ok(())
            }
            Section::Other => Ok(()),
        }
    }

    fn header(&mut self, line: &str) -> Result<(), &'static str> {
        let words = || line.split_ascii_whitespace().map(str::to_owned);
        if line.starts_with("---") {
            self.section = Section::Table;
            return if self.columns.is_empty() { Err("a table without columns") } else { Ok(()) };
        }
        let lower: Vec<_> = words().collect();
        if lower.len() == self.upper.len() {
            self.columns =
                self.upper.iter().zip(&lower).map(|(upper, lower)| format!("{upper} {lower}")).collect();
        }
        self.upper = lower;
        Ok(())
    }

    /// `Native Heap     1221     1176 …`; at the end of a row figures may be missing.
    fn row(&mut self, line: &str) -> Result<(), &'static str> {
        let first = line.char_indices().find(|(at, c)| c.is_ascii_digit() && preceded_by_blank(line, *at));
        let Some((label, figures)) = first.and_then(|(at, _)| line.split_at_checked(at)) else {
            return Ok(());
        };
        let mut row = BTreeMap::new();
        for (index, figure) in figures.split_ascii_whitespace().enumerate() {
            let column = self.columns.get(index).ok_or("more figures than columns")?;
            row.insert(column.clone(), figure.parse().map_err(|_not_a_number| "a figure that is no number")?);
        }
        let label = label.trim();
        // `-a` lists details below the total, and repeats labels of the table.
        if !self.found.rows.contains_key("TOTAL") {
            self.found.rows.insert(label.to_owned(), row);
        }
        Ok(())
    }

    fn summary(&mut self, line: &str) -> Result<(), &'static str> {
        for (label, figures) in pairs(line) {
            match *figures.as_slice() {
                // It has only an Rss: its first column is blank.
                [_rss] if label == "Unknown" => {}
                [pss] | [pss, _] => drop(self.found.summary.insert(label.to_owned(), pss)),
                _ => {}
            }
        }
        // Up to Android 10.
        if let Some(total) = self.found.summary.remove("TOTAL") {
            self.found.summary.insert("TOTAL PSS".to_owned(), total);
        }
        Ok(())
    }

    fn close(self) -> Result<ProcessMemory, MemInfoError> {
        let (line, pid) = (self.first_line, self.found.pid);
        let total = self.found.rows.get("TOTAL").ok_or(MemInfoError::NoTotal { line, pid })?;
        if total.values().all(|figure| *figure == 0) {
            return Err(MemInfoError::AllZero { line, pid });
        }
        Ok(self.found)
    }
}

fn preceded_by_blank(line: &str, at: usize) -> bool {
    at.checked_sub(1).and_then(|before| line.as_bytes().get(before)) == Some(&b' ')
}

/// `LABEL: N [N]`, several in a line.
fn pairs(line: &str) -> impl Iterator<Item = (&str, Vec<u64>)> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let (label, behind) = rest.split_once(':')?;
        let mut figures = Vec::new();
        rest = behind.trim_start();
        while let Some(word) = rest.split_ascii_whitespace().next() {
            let Ok(figure) = word.parse() else { break };
            figures.push(figure);
            rest = rest.get(word.len()..).unwrap_or_default().trim_start();
        }
        Some((label.trim(), figures))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Android 13, from the description of the format.
    const NEW: &str = "\
Applications Memory Usage (in Kilobytes):
Uptime: 1137766417 Realtime: 1146089528

** MEMINFO in pid 31966 [com.example.tiles:remote] **
                   Pss  Private  Private  SwapPss      Rss     Heap     Heap     Heap
                 Total    Dirty    Clean    Dirty    Total     Size    Alloc     Free
                ------   ------   ------   ------   ------   ------   ------   ------
  Native Heap     1221     1176        0     3280     4732    13400     5592     2877
  Dalvik Heap     2942     2788        0     1072    11960    11244     3052     8192
 Dalvik Other      923      604        0     1336     4068                           
        Stack      364      364        0      428      376                           
    .so mmap      9000      400     5000        0     9000                           
        TOTAL    21887     5604     7404     6580   125344    24644     8644    11069
 
 App Summary
                       Pss(KB)                        Rss(KB)
                        ------                         ------
           Java Heap:     3204                          30732
         Native Heap:     1176                           4732
       Private Other:      772
             Unknown:                                    6924
 
           TOTAL PSS:    21887            TOTAL RSS:   125344       TOTAL SWAP PSS:     6580
 
 Objects
               Views:        7         ViewRootImpl:        1
          Activities:        2
    Death Recipients:       10             WebViews:        0
 
 Native Allocations
   Bitmap (malloced):       64                           11830
 SQL
         MEMORY_USED:      164
";

    /// Android 10.
    const OLD: &str = "\
** MEMINFO in pid 7 [com.example] **
                   Pss  Private  Private     Swap     Heap     Heap     Heap
                 Total    Dirty    Clean    Dirty     Size    Alloc     Free
                ------   ------   ------   ------   ------   ------   ------
  Native Heap     1221     1176        0        3    13400     5592     2877
        TOTAL     1231     1176        4        3    13400     5592     2877

 App Summary
                       Pss(KB)
                        ------
           Java Heap:      204
               TOTAL:     1231       TOTAL SWAP (KB):        3

 Objects
               Views:        0         ViewRootImpl:        0
";

    fn read(text: &str) -> Result<Vec<ProcessMemory>, String> {
        read_meminfo(text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn columns_are_found_by_their_header() {
        let new = read(NEW).unwrap().remove(0);
        assert_eq!((new.pid, new.name.as_str()), (31966, "com.example.tiles:remote"));
        assert_eq!(new.kilobytes("Native Heap", "Heap Alloc"), Some(5592));
        assert_eq!(new.kilobytes("Stack", "Rss Total"), Some(376));
        assert_eq!(new.kilobytes(".so mmap", "Private Clean"), Some(5000));
        assert_eq!(new.kilobytes("GL mtrack", "Pss Total"), Some(0), "a row that is left out is 0");
        assert_eq!((new.total_pss(), new.summary["TOTAL RSS"]), (Some(21887), 125_344));
        let old = read(&OLD.replace('\n', "\r\n")).unwrap().remove(0);
        assert_eq!(old.kilobytes("Native Heap", "Heap Alloc"), Some(5592));
        assert_eq!(old.kilobytes("Native Heap", "Swap Dirty"), Some(3));
        assert_eq!((old.kilobytes("Native Heap", "Rss Total"), old.summary.get("TOTAL RSS")), (None, None));
        assert_eq!(old.summary["TOTAL PSS"], 1231);
        assert_eq!(old.summary["TOTAL SWAP (KB)"], 3);
    }

    #[test]
    fn the_summary_and_the_objects_are_read_by_label() {
        let new = read(NEW).unwrap().remove(0);
        assert_eq!((new.summary["Java Heap"], new.summary.get("Unknown")), (3204, None));
        assert_eq!((new.summary["Private Other"], new.summary["TOTAL SWAP PSS"]), (772, 6580));
        let objects: Vec<_> = new.objects.iter().map(|(label, count)| (label.as_str(), *count)).collect();
        assert_eq!(
            objects,
            [("Activities", 2), ("Death Recipients", 10), ("ViewRootImpl", 1), ("Views", 7), ("WebViews", 0)]
        );
    }

    #[test]
    fn several_processes_are_several_blocks() {
        let both = read(&format!("{NEW}\n{OLD}")).unwrap();
        assert_eq!(both.iter().map(|process| process.pid).collect::<Vec<_>>(), [31966, 7]);
    }

    #[test]
    fn nothing_measured_is_an_error_and_never_nothing_used() {
        let zeros: String = OLD.replace(|c: char| c.is_ascii_digit(), "0");
        for (text, want) in [
            ("No process found for: com.example.app\n", "no such process: com.example.app"),
            (
                "** MEMINFO in pid 7 [a] **\nGot IoException! java.io.IOException: Timeout\n",
                "did not answer: Got IoException!",
            ),
            (
                "** MEMINFO in pid 7 [a] **\nGot RemoteException! android.os.DeadObjectException\n",
                "did not answer",
            ),
            ("** MEMINFO in pid 7 [a] **\n", "line 1: no TOTAL for process 7"),
            (&OLD[..OLD.find("        TOTAL").unwrap()], "no TOTAL for process 7"),
            // The proportional share of 1231 KB, truncated after two digits.
            (&OLD[..OLD.find("31     1176        4").unwrap()], "the last line has no end"),
            (&zeros, "all figures of process 0 are 0"),
            ("", "no output of `dumpsys meminfo PROCESS`"),
            ("Applications Memory Usage (in Kilobytes):\nTotal PSS by process:\n", "no output of"),
            (&OLD.replace("1221     1176", "1221     117x"), "line 5: a figure that is no number"),
            (
                &OLD.replace("   2877\n        TOTAL", "   2877   1\n        TOTAL"),
                "line 5: more figures than columns",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(want), "{text}: {error}");
        }
    }
}
