//! The recorder's side of a run: builds records from incoming frames, reports events to the run, gives orders.
//!
//! Data flow: recorder thread of a process → [`Follower`] (its `Observer`, its [`Orders`]) → [`Seen`] through [`News`]
//! → `RunState`. The recorder's thread itself decides the orders; only [`Rest`] delays a boundary.

use std::sync::Arc;
use std::time::{Duration, Instant};

use memgate_analysis::{OsState, ProcessRecord, stacks_that_grew};
use memgate_wire::reply::Reply;
use memgate_wire::spool::order;
use memgate_wire::{Boundary, BoundaryKind, END_OF_MAIN, EXPLAINS_WHAT_IS_NAMED, Frame, Module, ProcessRole};

use super::news::{News, Seen};
use crate::names::Mappings;
use crate::proc_fs;
use crate::reading::{NO_ROOM, Reading};
use crate::recorder::{End, Follow, Observe, Process, ProcessEnd, ProcessKey, Wanted};

/// Decides the reply to a process at the end of a test, or of `main`.
pub(in crate::run) trait Orders: Send {
    /// The reply. `record` contains the window that ends here.
    fn at_test_end(&mut self, boundary: &Boundary, record: &ProcessRecord) -> Reply;

    /// See [`Follow::compares_names`]: every repeated test is judged.
    fn compares_names(&self, boundary: &Boundary) -> bool {
        boundary.iteration > 0
    }

    /// The reply at the end of `main` when the process is the test.
    fn at_main_end(&mut self, _: &Boundary) -> Reply {
        Reply::default()
    }
}

/// Creates the orders for a process that begins to record.
pub(in crate::run) type MakeOrders = Box<dyn Fn(&Process) -> Box<dyn Orders> + Send + Sync>;

/// Orders for the programs of a run; their forked children get none.
pub(in crate::run) fn of_programs<T: Orders + 'static>(
    make: impl Fn(&Process) -> T + Send + Sync + 'static,
) -> MakeOrders {
    Box::new(move |process| match process.hello.role {
        ProcessRole::Main => Box::new(make(process)),
        ProcessRole::ForkChild => Box::new(Settle::new(false)),
    })
}

/// Watches every process of a run.
pub(in crate::run) struct Watch {
    pub(in crate::run) news: Arc<News>,
    pub(in crate::run) orders: MakeOrders,
    pub(in crate::run) names: Arc<Mappings>,
}

impl Observe for Watch {
    fn started(&self, process: &Process) -> Box<dyn Follow> {
        self.news.tell(Seen::Started(Box::new(process.clone())));
        let orders = (self.orders)(process);
        let reading = Reading::new(self.names.renamer());
        let takes_classes = process.hello.wire_version >= EXPLAINS_WHAT_IS_NAMED;
        Box::new(Follower { key: process.key, news: Arc::clone(&self.news), reading, orders, takes_classes })
    }
}

struct Follower {
    key: ProcessKey,
    news: Arc<News>,
    reading: Reading,
    orders: Box<dyn Orders>,
    /// An older agent itself chooses which classes it explains.
    takes_classes: bool,
}

impl Follow for Follower {
    fn frame(&mut self, frame: Frame, t_ns: u64) {
        let news = match &frame {
            Frame::Boundary(b) if b.kind == BoundaryKind::TestStart => {
                Some(Seen::TestBegan { key: self.key, test: test_id(b) })
            }
            Frame::Boundary(b) if b.kind == BoundaryKind::TestEnd => {
                Some(Seen::TestEnded { key: self.key, survivors: b.survivors })
            }
            _ => None,
        };
        self.reading.push(frame, t_ns);
        if let Some(news) = news {
            self.news.tell(news);
        }
    }

    fn orders(&mut self, boundary: &Boundary) -> Reply {
        let reply = match boundary.kind {
            BoundaryKind::TestEnd => self.orders.at_test_end(boundary, self.reading.record()),
            BoundaryKind::Mark if (boundary.suite.as_str(), boundary.test.as_str()) == END_OF_MAIN => {
                self.orders.at_main_end(boundary)
            }
            _ => Reply::default(),
        };
        Reply { classes: reply.classes.filter(|_| self.takes_classes), ..reply }
    }

    fn compares_names(&self, boundary: &Boundary) -> bool {
        self.orders.compares_names(boundary)
    }

    fn wanted(&self) -> Wanted {
        let record = self.reading.record();
        let modules = record.last_modules().iter().map(|module| Module::clone(module)).collect();
        Wanted { stacks: stacks_that_grew(record), modules }
    }

    fn ended(&mut self, end: &ProcessEnd) {
        let reading = &mut self.reading;
        match (&end.damage, end.how) {
            (Some(damage), _) => reading.damage(damage),
            (None, End::Full) => reading.damage(NO_ROOM),
            (None, End::Stopped) if reading.record().errors.is_empty() => {
                reading.damage("recording stopped early");
            }
            (None, End::Closed | End::Stopped | End::Died | End::Abandoned) => {}
        }
        let record = Box::new(reading.end());
        self.news.tell(Seen::Ended { key: self.key, record });
    }
}

/// `Suite.Test`, as GoogleTest prints it.
pub(in crate::run) fn test_id(boundary: &Boundary) -> String {
    let Boundary { suite, test, .. } = boundary;
    match (suite.is_empty(), test.is_empty()) {
        (true, _) => test.clone(),
        // A window over a whole test class.
        (false, true) => suite.clone(),
        (false, false) => format!("{suite}.{test}"),
    }
}

/// Waits for late frees: once for a test with survivors that has other threads.
#[derive(Debug, Default)]
pub(in crate::run) struct Settle {
    enabled: bool,
    /// The execution that settled last; its second boundary is final.
    settled: Option<(String, u32)>,
}

impl Settle {
    pub(in crate::run) fn new(enabled: bool) -> Self {
        Self { enabled, settled: None }
    }

    /// Whether this end of a test is to be measured again.
    pub(in crate::run) fn again(&mut self, boundary: &Boundary, record: &ProcessRecord) -> bool {
        let execution = Some((test_id(boundary), boundary.iteration));
        if !self.enabled || boundary.survivors == 0 || self.settled == execution || !has_threads(record) {
            return false;
        }
        self.settled = execution;
        true
    }
}

impl Orders for Settle {
    fn at_test_end(&mut self, boundary: &Boundary, record: &ProcessRecord) -> Reply {
        Reply::of(if self.again(boundary, record) { order::SETTLE } else { 0 })
    }
}

/// How long the last execution of a test waits for threads to end.
const LONGEST_REST: Duration = Duration::from_millis(500);

/// One more execution of a test that grew in threads. At its end, the process has time to end those that end by
/// themselves. What they held is gone then, and only a leak is left.
#[derive(Debug)]
pub(in crate::run) struct Rest {
    /// `None`: `/proc` does not show the process.
    pid: Option<u32>,
    /// Fewest threads at an end of the test.
    fewest: u64,
    state: Resting,
}

#[derive(Debug, PartialEq, Eq)]
enum Resting {
    NotYet,
    Next,
    Over,
}

impl Rest {
    pub(in crate::run) fn of(process: &Process) -> Self {
        Self { pid: process.visible.then_some(process.hello.pid), fewest: 0, state: Resting::NotYet }
    }

    /// Whether the test, which is to stop, runs once more.
    pub(in crate::run) fn begins(&mut self, test: &str, record: &ProcessRecord) -> bool {
        let ends = record.windows_of(test).filter_map(|window| window.os_end.as_ref());
        let threads: Vec<u64> = ends.map(OsState::thread_count).collect();
        let (Some(&fewest), Some(&last)) = (threads.iter().min(), threads.last()) else { return false };
        if self.state != Resting::NotYet || self.pid.is_none() || last <= fewest {
            return false;
        }
        (self.fewest, self.state) = (fewest, Resting::Next);
        true
    }

    /// At the end of that execution: waits. Afterwards this end is to be measured again.
    pub(in crate::run) fn is_taken(&mut self) -> bool {
        let Some(pid) = self.pid.filter(|_| self.state == Resting::Next) else { return false };
        self.state = Resting::Over;
        let began = Instant::now();
        // No event shows that a thread of another process ends.
        while proc_fs::thread_count(pid) > self.fewest && began.elapsed() < LONGEST_REST {
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }

    /// Whether it has waited.
    pub(in crate::run) fn is_over(&self) -> bool {
        self.state == Resting::Over
    }
}

/// Reply to a process whose test was repeated often enough: stop. If native memory grew, it first makes a copy of
/// itself, once.
#[derive(Debug, Default)]
pub(in crate::run) struct Last {
    copies: bool,
    ends: bool,
}

impl Last {
    /// `copies`: whether to search for the holders of blocks that grew.
    pub(in crate::run) const fn new(copies: bool) -> Self {
        Self { copies, ends: false }
    }

    /// Whether the process was already told to stop.
    pub(in crate::run) const fn is_over(&self) -> bool {
        self.ends
    }

    /// The reply. Without a reason for a copy, it is only to stop.
    pub(in crate::run) fn reply(&mut self, record: &ProcessRecord) -> Reply {
        let first = !std::mem::replace(&mut self.ends, true);
        let copies = first && self.copies && !stacks_that_grew(record).is_empty();
        Reply::of(if copies { order::STOP | order::COPY } else { order::STOP })
    }
}

/// A process that is the test makes a copy of itself at the end of `main`, once, if something is alive then.
#[derive(Debug)]
pub(in crate::run) struct CopyAtMainEnd {
    copies: bool,
}

impl CopyAtMainEnd {
    /// `copies`: whether to make one at all.
    pub(in crate::run) const fn new(copies: bool) -> Self {
        Self { copies }
    }
}

impl Orders for CopyAtMainEnd {
    fn at_test_end(&mut self, _: &Boundary, _: &ProcessRecord) -> Reply {
        Reply::default()
    }

    fn at_main_end(&mut self, boundary: &Boundary) -> Reply {
        let copies = boundary.survivors > 0 && std::mem::take(&mut self.copies);
        Reply::of(if copies { order::COPY } else { 0 })
    }
}

/// Orders for the screen of native programs: a test waits for late frees, and a program without tests makes a copy of
/// itself.
#[derive(Debug)]
pub(in crate::run) struct Screening {
    pub(in crate::run) settle: Settle,
    pub(in crate::run) copy: CopyAtMainEnd,
}

impl Orders for Screening {
    fn at_test_end(&mut self, boundary: &Boundary, record: &ProcessRecord) -> Reply {
        self.settle.at_test_end(boundary, record)
    }

    fn at_main_end(&mut self, boundary: &Boundary) -> Reply {
        self.copy.at_main_end(boundary)
    }
}

/// A single thread cannot free anything late. If `/proc` does not show the process, it may have threads.
fn has_threads(record: &ProcessRecord) -> bool {
    record.last_threads.len() != 1
}

#[cfg(test)]
mod tests {
    use memgate_wire::ThreadEntry;

    use super::*;

    fn end_of(test: &str, iteration: u32, survivors: u64) -> Boundary {
        Boundary {
            sequence: 2,
            kind: BoundaryKind::TestEnd,
            suite: "A".into(),
            test: test.into(),
            iteration,
            thread_id: 1,
            open_tests: 1,
            survivors,
            ..Boundary::default()
        }
    }

    fn with_threads(count: u32) -> ProcessRecord {
        let thread = |id| ThreadEntry { id, name: "t".into(), waits_in: String::new() };
        let mut record = ProcessRecord::default();
        record.last_threads = (0..count).map(thread).collect();
        record
    }

    struct Explains;

    impl Orders for Explains {
        fn at_test_end(&mut self, _: &Boundary, _: &ProcessRecord) -> Reply {
            Reply::explain([7].into_iter().collect())
        }
    }

    #[test]
    fn an_agent_that_chooses_by_itself_is_given_no_classes() {
        for (takes_classes, classes) in [(true, Some([7].into_iter().collect())), (false, None)] {
            let reading = Reading::new(Arc::<Mappings>::default().renamer());
            let orders = Box::new(Explains);
            let mut follower =
                Follower { key: ProcessKey(1), news: Arc::default(), reading, orders, takes_classes };
            let reply = follower.orders(&end_of("b", 0, 1));
            assert_eq!(reply, Reply { bits: order::EXPLAIN, classes });
        }
    }

    #[test]
    fn a_test_settles_once_and_only_where_a_late_free_is_possible() {
        let mut settle = Settle::new(true);
        for (boundary, threads, orders, why) in [
            (end_of("b", 0, 0), 2, 0, "nothing is left"),
            (end_of("b", 0, 1), 1, 0, "no other thread"),
            (end_of("b", 0, 1), 2, order::SETTLE, "another thread may free it"),
            (end_of("b", 0, 1), 2, 0, "it was settled already"),
            (end_of("b", 1, 1), 2, order::SETTLE, "the next iteration"),
            (end_of("c", 1, 1), 0, order::SETTLE, "threads unknown"),
        ] {
            assert_eq!(settle.at_test_end(&boundary, &with_threads(threads)), Reply::of(orders), "{why}");
        }
        let off = Settle::new(false).at_test_end(&end_of("b", 0, 1), &with_threads(2));
        assert_eq!(off, Reply::default(), "switched off");
    }
}
