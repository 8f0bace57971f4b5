//! Thread groups that a test framework makes and that stay: up to JDK 18 a group stays in its parent.

use memgate_wire::java::JavaSite;

use super::findings::{Findings, Growing};
use super::held::Noise;
use super::names::is_own;
use super::series::last_sites;
use crate::record::ProcessRecord;
use crate::stats::float;

const THREAD_GROUP: &str = "java.lang.ThreadGroup";

impl Findings {
    /// Applies only if JUnit made all of these thread groups. A group whose thread continues belongs to the thread.
    pub(super) fn leave_groups_of_timeouts(&mut self, record: &ProcessRecord, test: &str) {
        let grows = |name: &str| self.growing.iter().any(|growing| growing.series.class == name);
        if !grows(THREAD_GROUP) || grows("java.lang.Thread") {
            return;
        }
        let of_junit = |growing: &mut Growing| {
            let class = &growing.series.class;
            [THREAD_GROUP, "java.lang.Thread[]"].contains(&class.as_str())
                && float(made_for_timeouts(record, test, class)) >= growing.count.max(1.0)
        };
        let mut left: Vec<Growing> = self.growing.extract_if(.., of_junit).collect();
        if left.iter().any(|growing| growing.series.class == THREAD_GROUP) {
            // The table of groups in their parent doubles now and then.
            let is_table = |class: &str| class == "java.lang.ThreadGroup[]";
            left.extend(self.growing.extract_if(.., |g| is_table(&g.series.class) && g.count == 0.0));
            self.open.retain(|class| !is_table(class));
        }
        left.into_iter().for_each(|growing| self.is_noise(growing, Noise::TimedOut));
    }
}

/// Number of instances of a class that JUnit made in one execution for time limits. 0 if any of them was made
/// elsewhere.
fn made_for_timeouts(record: &ProcessRecord, test: &str, class: &str) -> u64 {
    const MAKER: &str = "org.junit.internal.runners.statements.FailOnTimeout.evaluate";
    let Some(java) = &record.java else { return 0 };
    let is_of_junit = |site: &JavaSite| {
        let frames = java.stack(site.stack);
        frames.iter().filter_map(|frame| frame.function.as_deref()).find(|call| is_own(call)) == Some(MAKER)
    };
    let last = last_sites(record, test, class);
    if !last.iter().all(|site| is_of_junit(site)) {
        return 0;
    }
    last.iter().map(|site| site.samples).fold(0, u64::saturating_add)
}
