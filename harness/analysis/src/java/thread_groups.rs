//! Thread groups that a test framework makes and that stay: up to JDK 18 a group stays in its parent.

use memgate_wire::java::JavaSite;

use super::findings::Findings;
use super::held::Noise;
use super::names::is_own;
use super::one_class::Growing;
use super::series::last_sites;
use crate::record::ProcessRecord;
use crate::stats::float;

const THREAD_GROUP: &str = "java.lang.ThreadGroup";
const GROUPS: &str = "java.lang.ThreadGroup[]";

/// A framework that makes a thread group and does not remove it.
struct Framework {
    noise: Noise,
    /// The innermost call outside the JDK that makes it begins with one of these.
    makers: &'static [&'static str],
    /// A class with this prefix must exist, because other code may use the maker, too. Empty: no other code does.
    user: &'static str,
    /// The virtual machine samples all its groups. It does not sample the first allocations of new threads.
    is_sampled: bool,
}

const FRAMEWORKS: [Framework; 2] = [
    Framework {
        noise: Noise::TimedOut,
        makers: &["org.junit.internal.runners.statements.FailOnTimeout.evaluate"],
        user: "",
        is_sampled: true,
    },
    // ClassGraph looks through the class path, in threads of its own.
    Framework {
        noise: Noise::Scanned,
        makers: &["nonapi.io.github.classgraph.", "io.github.classgraph."],
        user: "io.kotest.",
        is_sampled: false,
    },
];

impl Findings {
    /// Applies only if a framework made all of these thread groups. A group whose thread continues belongs to the
    /// thread.
    pub(super) fn leave_groups_of_frameworks(&mut self, record: &ProcessRecord, test: &str) {
        let count_of =
            |name: &str| self.growing.iter().find(|g| g.series.class == name).map(|growing| growing.count);
        let (Some(groups), None) = (count_of(THREAD_GROUP), count_of("java.lang.Thread")) else { return };
        for framework in &FRAMEWORKS {
            let of_framework = |growing: &mut Growing| {
                let class = &growing.series.class;
                [THREAD_GROUP, "java.lang.Thread[]", GROUPS].contains(&class.as_str())
                    && growing.count <= groups
                    && framework.made(record, test, growing)
            };
            let mut left: Vec<Growing> = self.growing.extract_if(.., of_framework).collect();
            if left.iter().any(|growing| growing.series.class == THREAD_GROUP) {
                // The table of groups in their parent doubles now and then.
                left.extend(self.growing.extract_if(.., |g| g.series.class == GROUPS && g.count == 0.0));
                self.open.retain(|class| class != GROUPS);
            }
            left.into_iter().for_each(|growing| self.is_noise(growing, framework.noise));
        }
    }
}

impl Framework {
    /// Did it make all instances of a class that one execution left?
    fn made(&self, record: &ProcessRecord, test: &str, growing: &Growing) -> bool {
        let Some(java) = &record.java else { return false };
        let is_its_own = |site: &JavaSite| {
            let frames = java.stack(site.stack);
            let mut calls = frames.iter().filter_map(|frame| frame.function.as_deref());
            let own = calls.find(|call| is_own(call));
            own.is_some_and(|own| self.makers.iter().any(|maker| own.starts_with(maker)))
        };
        let last = last_sites(record, test, &growing.series.class);
        let samples = last.iter().map(|site| site.samples).fold(0, u64::saturating_add);
        // A group has one table of its threads, and one of its groups.
        let is_group = growing.series.class == THREAD_GROUP;
        let least = if self.is_sampled { growing.count.max(1.0) } else { f64::from(u8::from(is_group)) };
        float(samples) >= least && last.iter().all(|site| is_its_own(site)) && java.has_class(self.user)
    }
}
