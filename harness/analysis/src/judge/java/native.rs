//! Native memory that the project's own libraries keep in a repeated Java test, judged by group as in any native test.

use std::collections::BTreeSet;

use memgate_model::{Metric, Verdict};

use super::super::leaks;
use super::super::metric::Measured;
use super::super::one_test::TestJudge;
use super::super::wording::listed;
use crate::groups::{self, Places};
use crate::growth::{Allowed, Finding, is_over, judge_series};
use crate::input::{JavaInput, SuiteInput};
use crate::native::{Own, own_libraries};
use crate::record::ProcessRecord;
use crate::stats::add;

impl TestJudge<'_, '_> {
    /// Groups that grow are leaks. The sum of those without a waiver is checked against the thresholds.
    pub(in crate::judge) fn judge_own_libraries(&mut self, record: &ProcessRecord, allowed: Allowed) {
        if record.is_java_only() || record.windows.iter().all(|window| window.changes.is_empty()) {
            return;
        }
        let mut own = Own::default();
        let chosen = |stack| own.has(record, stack);
        let groups = groups::series_of(self.id, &mut Places::new(record, self.context.resolve), chosen);
        let mut total = vec![0.0; record.windows_of(self.id).count()];
        for group in &groups {
            let growth = judge_series(&group.bytes, Allowed { block: group.block, ..allowed });
            let mut waived = false;
            if growth.finding == Finding::Grows && !is_over(&group.bytes, allowed.warm_up) {
                let count = judge_series(&group.counts, allowed).slope.slope;
                let leak = leaks::growing(&group.place, growth.slope.slope, count, &group.sizes);
                waived = self.list(leak, &group.place.names);
            }
            if !waived {
                add(&mut total, &group.bytes);
            }
        }
        let block = groups::smallest_block(&groups);
        let measured =
            Measured::of_os(Metric::NativeLiveBytes, total, block).shared_by(self.judgement.executions());
        self.hold(&measured, allowed);
    }
}

/// Reports libraries that tests loaded but whose memory was not tracked in all rounds.
pub(super) fn untracked(suite: &SuiteInput, java: &JavaInput) -> Option<(Verdict, String)> {
    let loaded: BTreeSet<&str> =
        suite.screen.iter().flat_map(|process| own_libraries(&process.record)).collect();
    let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let loaded: Vec<String> = loaded.into_iter().map(name).collect();
    let blind = java.rounds.iter().any(|round| round.record.is_java_only());
    let (verdict, why) = match &java.not_screened {
        _ if loaded.is_empty() || java.is_off => return None,
        _ if java.native_is_off => (Verdict::Pass, "`measure.java.native` is off"),
        _ if blind => {
            (Verdict::Warn, "the agent could not be preloaded into the virtual machine of the rounds")
        }
        Some(_) => (Verdict::Pass, "not all test classes were screened in rounds"),
        None => return None,
    };
    let loaded = listed(loaded.iter().map(String::as_str));
    Some((verdict, format!("native memory of {loaded} is not judged: {why}")))
}

#[cfg(test)]
mod tests {
    use memgate_wire::{Frame, Module, Modules};

    use super::super::tests::{CLASS, report_of, rounds, unconfirmed};
    use super::*;
    use crate::java::dsl::Jvm;
    use crate::record::ProcessRecord;

    /// The build's own run loaded a library of the project.
    fn build() -> ProcessRecord {
        let path = "/tmp/libtiles.so".to_owned();
        let modules = vec![Module { start: 1, end: 2, bias: 0, path, build_id: Vec::new() }];
        let mut jvm = Jvm::new();
        jvm.frame(Frame::Modules(Modules { generation: 0, modules }));
        jvm.test(CLASS, "opens");
        jvm.end()
    }

    #[test]
    fn native_memory_that_nobody_looked_at_is_told() {
        let told = |change: &dyn Fn(&mut JavaInput)| {
            let mut input = unconfirmed(vec![rounds(|_, _| ())]);
            input.suites[0].screen = vec![build().into()];
            input.suites[0].java.as_mut().into_iter().for_each(change);
            let suite = report_of(&input).suites.remove(0);
            (suite.verdict, suite.reason)
        };
        let (verdict, why) = told(&|_| ());
        assert_eq!(verdict, Verdict::Warn);
        assert_eq!(
            why,
            "native memory of libtiles.so is not judged: the agent could not be preloaded into the virtual machine of the rounds"
        );
        let (verdict, why) = told(&|java| java.native_is_off = true);
        assert_eq!(
            (verdict, why.as_str()),
            (Verdict::Pass, "native memory of libtiles.so is not judged: `measure.java.native` is off")
        );
        let (_, why) = told(&|java| {
            (java.rounds, java.not_screened) = (Vec::new(), Some("unchanged".to_owned()));
        });
        assert!(why.contains("not judged: not all test classes were screened in rounds"), "{why}");
    }
}
