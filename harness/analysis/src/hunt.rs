//! Native tests that are no suspects: which of them a hunt repeats first, and the result.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::confirm::Confirmation;
use crate::input::ProcessInput;
use crate::measured::unusable;
use crate::policy::GatePolicy;
use crate::rare;
use crate::record::ProcessRecord;
use crate::screen::{judged, screen};

/// A test that was screened and is no suspect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its id within the suite.
    pub test: String,
    /// Index of the record it was found in. The process of that record is started again.
    pub record: usize,
}

/// Tests of `suite` that passed, were measured, and are no suspects. Those that left most come first, then those that
/// allocated most: these may have allocated from a pool.
#[must_use]
pub fn candidates(records: &[&ProcessRecord], suite: &str, policy: &GatePolicy) -> Vec<Candidate> {
    let suspects = screen(records, suite, policy);
    let mut found = BTreeMap::<String, (usize, (u64, u64, u64))>::new();
    let mut order = Vec::new();
    for (index, record) in records.iter().enumerate().filter(|(_, r)| r.is_main()) {
        for window in record.windows.iter().filter(|window| judged(record, window)) {
            let test = window.id();
            let allocated = window.end.allocated_bytes.saturating_sub(window.start.allocated_bytes);
            let left = (window.left_bytes(), window.left_allocations(), allocated);
            let known = found.entry(test.clone()).or_insert_with(|| {
                order.push(test);
                (index, left)
            });
            known.1 = known.1.max(left);
        }
    }
    order.retain(|test| !suspects.iter().any(|suspect| suspect.test == *test));
    order.sort_by_key(|test| Reverse(found[test].1));
    order.into_iter().map(|test| Candidate { record: found[&test].0, test }).collect()
}

/// Result of a hunt for one test or one test class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hunted {
    /// Nothing grew in this many executions.
    Still(u64),
    /// Something grew or may grow in this many executions: the test must be judged.
    MayGrow(u64),
    /// It cannot be repeated this often, and why.
    Unusable(String),
}

/// Judges the repetitions of `test`.
#[must_use]
pub fn hunted(again: &ProcessInput, suite: &str, test: &str, policy: &GatePolicy) -> Hunted {
    if let Some((_, why)) = unusable(again, test) {
        return Hunted::Unusable(why);
    }
    let executions = u64::try_from(again.record.windows_of(test).count()).unwrap_or(u64::MAX);
    if Confirmation::new(policy, suite, test).may_grow(&again.record) {
        return Hunted::MayGrow(executions);
    }
    Hunted::Still(executions)
}

/// The rarest leak, as one in so many executions, that shows in `executions` with a probability of 99 %.
#[must_use]
pub fn rarest_after(executions: u64) -> u32 {
    rare::rarest_after(usize::try_from(executions).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dsl::Process;

    #[test]
    fn what_allocates_most_comes_first_and_what_is_suspect_not_at_all() {
        let mut p = Process::screen();
        p.run("A.idle", 0, |_| ());
        p.run("A.leaks", 0, |p| p.alloc(1, 100, 1));
        p.run("A.busy", 0, |p| {
            p.alloc(2, 4096, 10);
            p.free(2, 4096, 10);
        });
        let record = p.end();
        let named: Vec<String> =
            candidates(&[&record], "engine", &GatePolicy::default()).into_iter().map(|c| c.test).collect();
        assert_eq!(named, ["A.busy", "A.idle"]);
    }
}
