//! Several confirming runs at the same time, if the user's own run had several tests at the same time (`ctest -j`):
//! such tests are known to tolerate each other.
//!
//! Data flow: records of the screening pass → [`at_once`] → [`Lanes`], each with a folder of frames: a recorder follows
//! all streams that appear in its folder → the streams are moved to the frames of the session when the run has ended.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use futures_util::FutureExt as _;
use memgate_analysis::ProcessRecord;

use crate::exit::ExpectedError;
use crate::run::engine::{Context, Finished, Interrupts, Stopped};

/// Time span of the tests of a process, in ns.
type Span = (u64, u64);

/// Processes that ran at the same time as the tests of a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Beside {
    Nothing,
    /// Processes of other suites.
    Others,
    /// Processes of this suite, too.
    Itself,
}

/// How many runs may go on at the same time, and which processes ran in parallel with the tests of each suite.
pub(super) fn at_once<'a>(suites: impl Iterator<Item = Vec<&'a ProcessRecord>>) -> (usize, Vec<Beside>) {
    let spans: Vec<Vec<Span>> =
        suites.map(|records| records.into_iter().filter_map(span).collect()).collect();
    let (most, beside) = overlaps(&spans);
    (most.min(std::thread::available_parallelism().map_or(1, NonZero::get)), beside)
}

/// `None`: it ran no test.
fn span(record: &ProcessRecord) -> Option<Span> {
    let begin = record.windows.iter().map(|window| window.start_ns).min();
    let end = record.windows.iter().map(|window| window.end_ns).max();
    begin.zip(end).filter(|(begin, end)| begin < end && record.is_main())
}

fn overlaps(suites: &[Vec<Span>]) -> (usize, Vec<Beside>) {
    let mut edges: Vec<(u64, bool, usize)> = Vec::new();
    for (suite, spans) in suites.iter().enumerate() {
        edges.extend(spans.iter().flat_map(|&(begin, end)| [(begin, true, suite), (end, false, suite)]));
    }
    // If one ends at the moment another begins, they did not overlap.
    edges.sort_unstable();
    let (mut most, mut beside) = (1, vec![Beside::Nothing; suites.len()]);
    // Number of running processes of each suite.
    let mut open = BTreeMap::<usize, usize>::new();
    for (_, begins, suite) in edges {
        let of_suite = open.entry(suite).or_default();
        *of_suite = if begins { *of_suite + 1 } else { of_suite.saturating_sub(1) };
        open.retain(|_, count| *count > 0);
        for (suite, count) in &open {
            let now = match (count, open.len()) {
                (2.., _) => Beside::Itself,
                (_, 2..) => Beside::Others,
                _ => Beside::Nothing,
            };
            if let Some(known) = beside.get_mut(*suite) {
                *known = now.max(*known);
            }
        }
        most = most.max(open.values().sum());
    }
    (most, beside)
}

/// A place for one run.
#[derive(Debug)]
pub(super) struct Lane {
    /// The first lane writes to the folder of all streams.
    frames: PathBuf,
    interrupts: Interrupts,
}

impl Lane {
    /// The context of a run in this lane.
    pub(super) fn of<'a>(&'a mut self, context: &'a Context<'_>) -> Context<'a> {
        Context { frames: self.frames.clone(), ..context.interrupted_by(&mut self.interrupts) }
    }
}

/// The free lanes.
#[derive(Debug)]
pub(super) struct Lanes {
    frames: PathBuf,
    free: RefCell<Vec<Lane>>,
}

impl Lanes {
    /// Creates `count` lanes, which listen for the user's signals from now on.
    pub(super) fn new(context: &mut Context<'_>, count: usize) -> Result<Self, Stopped> {
        let mut free = Vec::new();
        for number in (1..=count).rev() {
            let frames = match number {
                1 => context.frames.clone(),
                _ => context.frames.join(format!("at-once-{number}")),
            };
            free.push(Lane { frames, interrupts: context.interrupts.listen_too()? });
        }
        // A signal that came earlier would otherwise be missed.
        if context.interrupts.next().now_or_never().is_some() {
            return Err(Stopped::Interrupted);
        }
        Ok(Self { frames: context.frames.clone(), free: RefCell::new(free) })
    }

    /// Takes a free lane and creates its folder.
    pub(super) fn take(&self) -> Result<Lane, ExpectedError> {
        let none = || ExpectedError::machinery("more runs at once than there are lanes".to_owned(), "");
        let lane = self.free.borrow_mut().pop().ok_or_else(none)?;
        fs::create_dir_all(&lane.frames).map_err(ExpectedError::file("create", &lane.frames))?;
        Ok(lane)
    }

    /// Returns a lane whose run has ended; `finished` are the processes of the run.
    pub(super) fn give_back(&self, lane: Lane, finished: &mut [Finished]) -> Result<(), ExpectedError> {
        if lane.frames != self.frames {
            join(&lane.frames, &self.frames)?;
        }
        for process in finished {
            let name = process.stream();
            process.process.file = self.frames.join(name);
        }
        self.free.borrow_mut().push(lane);
        Ok(())
    }
}

/// Moves all streams of one folder into another.
fn join(from: &Path, to: &Path) -> Result<(), ExpectedError> {
    for entry in fs::read_dir(from).map_err(ExpectedError::file("list", from))? {
        let path = entry.map_err(ExpectedError::file("list", from))?.path();
        let name = path.file_name().unwrap_or_default();
        fs::rename(&path, to.join(name)).map_err(ExpectedError::file("move", &path))?;
    }
    fs::remove_dir(from).map_err(ExpectedError::file("remove", from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_run_at_once_as_ran_at_once_in_the_screen() {
        let of =
            |suites: &[&[Span]]| overlaps(&suites.iter().map(|spans| spans.to_vec()).collect::<Vec<_>>());
        use Beside::{Itself, Nothing, Others};
        assert_eq!(of(&[]), (1, vec![]));
        assert_eq!(of(&[&[(0, 5)], &[(5, 9)], &[]]), (1, vec![Nothing; 3]), "one after the other");
        assert_eq!(of(&[&[(0, 5)], &[(4, 9)], &[(9, 10)]]), (2, vec![Others, Others, Nothing]));
        assert_eq!(of(&[&[(0, 5), (4, 9)], &[(10, 12)]]), (2, vec![Itself, Nothing]));
        assert_eq!(of(&[&[(0, 9)], &[(1, 2), (3, 4)], &[(3, 8)]]), (3, vec![Others; 3]));
    }

    #[test]
    fn streams_of_a_lane_join_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let lane = folder.path().join("at-once-2");
        fs::create_dir(&lane).unwrap();
        for name in ["1-2.mgf", "1-2.os.mgf"] {
            fs::write(lane.join(name), name).unwrap();
        }
        join(&lane, folder.path()).unwrap();
        assert!(!lane.exists());
        assert_eq!(fs::read_to_string(folder.path().join("1-2.os.mgf")).unwrap(), "1-2.os.mgf");
        assert!(folder.path().join("1-2.mgf").exists());
    }
}
