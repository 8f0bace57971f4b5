//! Decides when a window of the build's own run ends with a collection: after a test class if this is affordable, or
//! where the harness says.
//!
//! A collection costs more than most tests, so small classes share a window. The harness compares a window with the
//! same window of an earlier run. A list then says after which classes that run measured, and the budget decides only
//! for classes that are not on the list.

use std::collections::BTreeMap;

use memgate_wire::options::Windows;

/// Measuring may take this fraction (1/n) of the processor time that tests take.
const SHARE: u64 = 10;

/// The parts of the build's own run that are measured.
#[derive(Debug, Default)]
pub(crate) enum Plan {
    /// Nothing.
    #[default]
    Nothing,
    /// As much as the budget allows.
    Budget,
    /// After a class of an earlier run, if a window ended there in that run.
    Listed(BTreeMap<String, bool>),
    /// Once, when the virtual machine ends, because it is the test.
    End,
}

impl Plan {
    pub(crate) fn of(windows: &Windows) -> Self {
        match windows {
            // With `Each`, every window is measured without asking.
            Windows::Nowhere | Windows::Each => Self::Nothing,
            Windows::Budget => Self::Budget,
            Windows::End => Self::End,
            // Without its list, a run is measured like a first run.
            Windows::Listed(path) => {
                std::fs::read_to_string(path).map_or(Self::Budget, |text| Self::Listed(listed(&text)))
            }
        }
    }
}

/// Decides after which test classes windows end.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    plan: Plan,
    /// When the last window ended, and the cost of measuring it, in processor time of the process.
    since_ns: u64,
    cost_ns: u64,
    /// The class whose tests ran last, if no window includes it yet.
    open: Option<String>,
}

impl Pace {
    /// A plan that starts now.
    pub(crate) fn new(plan: Plan, now_ns: u64) -> Self {
        Self { plan, since_ns: now_ns, ..Self::default() }
    }

    /// A test of this class ended.
    pub(crate) fn test_ended(&mut self, class: &str) {
        if !matches!(self.plan, Plan::Nothing | Plan::End) && self.open.as_deref() != Some(class) {
            self.open = Some(class.to_owned());
        }
    }

    /// Does the window end after this class?
    pub(crate) fn is_due(&self, class: &str, now_ns: u64) -> bool {
        let affordable = || now_ns.saturating_sub(self.since_ns) >= self.cost_ns.saturating_mul(SHARE);
        // An empty name means the time before the first class. With a budget or a list, it always ends as a window.
        let begins = class.is_empty();
        (begins || self.open.is_some())
            && match &self.plan {
                Plan::Nothing | Plan::End => false,
                _ if begins => true,
                Plan::Budget => affordable(),
                Plan::Listed(classes) => classes.get(class).copied().unwrap_or_else(affordable),
            }
    }

    /// A window ended.
    pub(crate) fn measured(&mut self, now_ns: u64, cost_ns: u64) {
        *self = Self { plan: std::mem::take(&mut self.plan), since_ns: now_ns, cost_ns, open: None };
    }

    /// The class after which the last window ends; empty if the virtual machine is the test.
    pub(crate) fn last(&mut self) -> Option<String> {
        if matches!(self.plan, Plan::End) { Some(String::new()) } else { self.open.take() }
    }
}

fn listed(text: &str) -> BTreeMap<String, bool> {
    let line = |line: &str| {
        let (sign, class) = line.split_once(' ')?;
        Some((class.to_owned(), sign == "+"))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measuring_takes_a_tenth_of_the_time() {
        let mut pace = Pace::new(Plan::Budget, 1000);
        assert!(!pace.is_due("A", 2000), "no test ended");
        assert!(pace.is_due("", 2000), "before the first class");
        pace.test_ended("A");
        assert!(pace.is_due("A", 1000), "the first costs nothing that is known");
        pace.measured(1000, 50);
        pace.test_ended("B");
        assert!(!pace.is_due("B", 1499));
        assert!(pace.is_due("B", 1500));
        assert_eq!(pace.last().as_deref(), Some("B"));
        assert_eq!(pace.last(), None);
    }

    #[test]
    fn a_list_says_where_windows_end() {
        let mut pace = Pace::new(Plan::Listed(listed("+ a.ATest\n- a.BTest\n")), 0);
        pace.measured(0, 100);
        pace.test_ended("a.ATest");
        assert!(pace.is_due("a.ATest", 1));
        assert!(!pace.is_due("a.BTest", 1_000_000));
        assert!(!pace.is_due("a.NewTest", 999));
        assert!(pace.is_due("a.NewTest", 1000), "a class that the list does not know goes by the budget");
    }

    #[test]
    fn nothing_is_measured_unless_asked_for() {
        let mut pace = Pace::new(Plan::Nothing, 0);
        pace.test_ended("A");
        assert!(!pace.is_due("A", u64::MAX));
        assert_eq!(pace.last(), None);
    }

    #[test]
    fn a_virtual_machine_that_is_the_test_is_measured_at_its_end() {
        let mut pace = Pace::new(Plan::End, 0);
        pace.test_ended("A");
        assert!(!pace.is_due("A", u64::MAX) && !pace.is_due("", u64::MAX));
        assert_eq!(pace.last().as_deref(), Some(""));
    }
}
