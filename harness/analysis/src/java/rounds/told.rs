//! Test classes and tests that failed or did not run in the rounds, as the launcher reported.

use std::collections::BTreeSet;

use memgate_wire::Outcome;

use super::WARM_UP;
use crate::java::out_of_memory::error;
use crate::java::record::Exhaustion;
use crate::record::{ProcessRecord, Window};

/// Test classes that fail in the compared rounds, for another reason than lack of memory. It is unknown what they
/// leave.
pub(crate) fn failing(record: &ProcessRecord) -> BTreeSet<&str> {
    let failed = record.windows.iter().filter(|w| class_failed(w) && w.iteration >= WARM_UP);
    failed.filter(|w| out_of_memory(record, w).is_none()).map(|w| w.suite.as_str()).collect()
}

pub(super) fn out_of_memory<'a>(record: &'a ProcessRecord, window: &Window) -> Option<&'a Exhaustion> {
    let end_ns = if window.end_ns == 0 { u64::MAX } else { window.end_ns };
    error(record, window.start_ns, end_ns)
}

/// Tests that failed in the warm-up and were left out from then on: their class and name, without the number of the
/// invocation ([`base_of`]). Tests that failed for lack of memory are not included: what filled the heap is
/// investigated.
#[must_use]
pub fn left_out(record: &ProcessRecord) -> BTreeSet<(String, String)> {
    let full = record.windows.iter().filter(|w| class_failed(w) && out_of_memory(record, w).is_some());
    let full: BTreeSet<(&str, u32)> = full.map(|w| (w.suite.as_str(), w.iteration)).collect();
    let tests = record.windows.iter().filter(|w| has_failed(w) && !w.test.is_empty());
    let tests = tests.filter(|w| !full.contains(&(w.suite.as_str(), w.iteration)));
    tests.map(|w| (w.suite.clone(), base_of(&w.test).to_owned())).collect()
}

/// Tests that the launcher reported as skipped or missing in the last round of the warm-up: their class and name. The
/// name is empty for a class in which nothing runs later.
pub(crate) fn skipped(record: &ProcessRecord) -> BTreeSet<(&str, &str)> {
    let skipped = record.windows.iter().filter(|w| w.outcome == Some(Outcome::Skipped));
    let told = skipped.filter(|w| w.test.is_empty() == (w.iteration >= WARM_UP));
    told.map(|w| (w.suite.as_str(), w.test.as_str())).collect()
}

/// The name of a test without the number of an invocation, as the launcher uses it to leave out tests: `scroll(int)[2]`
/// is `scroll(int)`, `[plain]/decodes[plain]` of JUnit 4 is `decodes`, `many()/0` of `TestNG` is `many`.
#[must_use]
pub fn base_of(test: &str) -> &str {
    let own = test.rsplit("]/").next().unwrap_or(test);
    let is_number = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
    let of_testng = || own.rsplit_once("()/").filter(|(_, rest)| is_number(rest));
    let (base, _) = own.split_once('[').or_else(of_testng).unwrap_or((own, ""));
    base.strip_suffix("()").unwrap_or(base)
}

pub(super) fn has_failed(window: &Window) -> bool {
    window.outcome == Some(Outcome::Failed)
}

/// Did a class fail? Its failed tests have windows of their own.
fn class_failed(window: &Window) -> bool {
    has_failed(window) && window.test.is_empty()
}
