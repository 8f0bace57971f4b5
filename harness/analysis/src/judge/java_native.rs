//! What an app's own libraries go on keeping while its test is repeated, group by group as in any native test.

use memgate_model::Metric;

use super::repeated::{Measured, hold};
use super::test::Judgement;
use super::{Court, leaks};
use crate::groups::{self, Places};
use crate::growth::{Allowed, Finding, is_over, judge_series};
use crate::native::Own;
use crate::record::ProcessRecord;

/// The groups that grow are leaks; the sum of what no waiver covers is held against the thresholds.
pub(super) fn judge(
    court: &mut Court<'_>,
    suite: &str,
    test: &str,
    record: &ProcessRecord,
    allowed: Allowed,
    j: &mut Judgement,
) {
    if record.is_java_only() || record.windows.iter().all(|window| window.changes.is_empty()) {
        return;
    }
    let mut own = Own::of(record);
    let groups = groups::series_of(test, &mut Places::new(record, court.resolve), |stack| own.has(stack));
    let mut total = vec![0.0; record.windows_of(test).count()];
    for group in &groups {
        let growth = judge_series(&group.bytes, Allowed { block: group.block, ..allowed });
        let mut waived = false;
        if growth.finding == Finding::Grows && !is_over(&group.bytes, allowed.warm_up) {
            let count = judge_series(&group.counts, allowed).slope.slope;
            let mut leak = leaks::growing(&group.place, growth.slope.slope, count, &group.sizes);
            leak.waiver = court.waivers.cover(&leak.id, &group.place.names);
            waived = leak.waiver.is_some();
            j.leaks.push(leak);
        }
        if !waived {
            total.iter_mut().zip(&group.bytes).for_each(|(sum, bytes)| *sum += bytes);
        }
    }
    let block = groups::smallest_block(&groups);
    let measured = Measured::of_os(Metric::NativeLiveBytes, total, block).shared_by(j.executions());
    hold(court, suite, test, &measured, allowed, false, j);
}
