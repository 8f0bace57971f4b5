//! Java tests, on this machine or on a device: groups tests by class, and decides when a repeated test has run often
//! enough.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use memgate_analysis::{
    GatePolicy, JavaConfirmation, NativeConfirmation, Next, ProcessRecord, Window, classes_to_explain,
};
use memgate_model::format_number_of;
use memgate_wire::Boundary;
use memgate_wire::reply::Reply;
use memgate_wire::spool::order;

use crate::output::Console;
use crate::proc_fs;
use crate::run::engine::{KeptFiles, Orders, Settle};
use crate::session::naming::grouped;

/// Maximum number of lines of one list on the terminal.
const SHOWN: usize = 5;

/// Prints the first of these lines, and the number of the others.
pub(super) fn list(console: &Console, lines: impl ExactSizeIterator<Item: Display>) {
    let more = lines.len().saturating_sub(SHOWN);
    lines.take(SHOWN).for_each(|line| console.line(&format!("  {line}")));
    if more > 0 {
        console.line(&format!("  and {more} more"));
    }
}

/// Test classes with their tests, both in the order they ran.
pub(super) type Classes = Vec<(String, Vec<String>)>;

/// The tests of these windows, by class.
pub(super) fn by_class<'a>(windows: impl Iterator<Item = &'a Window>) -> Classes {
    let mut classes = grouped(windows.map(|window| (window.suite.clone(), window.test.clone())));
    for (_, tests) in &mut classes {
        let mut known = BTreeSet::new();
        tests.retain(|test| known.insert(test.clone()));
    }
    classes
}

/// The tests of a class.
pub(super) fn tests_of<'a>(classes: &'a Classes, class: &str) -> &'a [String] {
    classes.iter().find(|(known, _)| known == class).map_or(&[], |(_, tests)| tests.as_slice())
}

/// Whether the window is that of a test, not of a whole class.
pub(super) fn is_test(window: &Window) -> bool {
    !window.suite.is_empty() && !window.test.is_empty()
}

/// `3 test classes`.
pub(super) fn classes_text(count: usize) -> String {
    format_number_of(count, "test class")
}

/// How repeating ended.
#[derive(Default)]
pub(super) struct Last {
    /// It was told to stop.
    pub(super) was_told: AtomicBool,
    pub(super) leaks: AtomicBool,
    /// It ended because its time was over.
    pub(super) out_of_time: AtomicBool,
}

/// Repeats until enough is known; leaking classes are explained before the end.
pub(super) struct Repeating {
    confirmation: JavaConfirmation,
    /// For allocations of native libraries, if these are tracked.
    native: NativeConfirmation,
    pub(super) settle: Settle,
    pub(super) kept: Option<Arc<KeptFiles>>,
    /// The process, if its /proc entry is visible.
    pub(super) pid: Option<u32>,
    /// How long its threads had waited for a processor at the first end of a test.
    starved_before: Option<Duration>,
    /// The end of its time.
    pub(super) until: Option<Instant>,
    /// The end of its share of the common time. It ends then, if it ran its minimum number of executions.
    pub(super) share: Option<Instant>,
    /// How to compute its time so far.
    took: fn(&ProcessRecord) -> Duration,
    last: Arc<Last>,
}

impl Repeating {
    /// Repeats until enough is known, in a process that cannot be seen.
    pub(super) fn new(
        policy: &GatePolicy,
        (suite, test): (&str, &str),
        took: fn(&ProcessRecord) -> Duration,
        last: &Arc<Last>,
    ) -> Self {
        Self {
            confirmation: JavaConfirmation::new(policy, suite, test),
            native: NativeConfirmation::new(policy, suite, test),
            settle: Settle::new(false),
            kept: None,
            pid: None,
            starved_before: None,
            until: None,
            share: None,
            took,
            last: Arc::clone(last),
        }
    }

    fn starved(&mut self) -> Duration {
        let now = self.pid.map(proc_fs::starved).unwrap_or_default();
        now.saturating_sub(*self.starved_before.get_or_insert(now))
    }
}

impl Orders for Repeating {
    fn at_test_end(&mut self, boundary: &Boundary, record: &ProcessRecord) -> Reply {
        self.native.observe(record);
        // Finalizers and cleaners may be about to free the remaining blocks.
        if self.native.has_risen() && self.settle.again(boundary, record) {
            return Reply::of(order::SETTLE);
        }
        let starved = self.starved();
        let took = (self.took)(record);
        let enough = self.native.is_enough(took);
        let next = self.confirmation.observe(record, took, starved);
        let open = next != Next::Stop || !enough;
        let is_past = |end: Option<Instant>| end.is_some_and(|end| end <= Instant::now());
        let is_over =
            is_past(self.until) || is_past(self.share) && self.confirmation.may_give_way(record, next);
        let next = if open && is_over { self.confirmation.out_of_time(next) } else { next };
        let over = open && is_over && next == Next::Stop;
        if open && is_over && next != Next::Stop {
            // Its last executions may break off.
            self.last.leaks.store(true, Ordering::Release);
        }
        self.last.out_of_time.store(over, Ordering::Release);
        match next {
            Next::Explain if !over => Reply::explain(classes_to_explain(record, &boundary.suite)),
            _ if open && !over => Reply::default(),
            _ => {
                if let Some(kept) = &self.kept {
                    kept.keep(record, self.pid);
                }
                let leaks = self.confirmation.leaks() || self.native.grows();
                self.last.leaks.store(leaks, Ordering::Release);
                self.last.was_told.store(true, Ordering::Release);
                Reply::of(order::STOP)
            }
        }
    }
}
