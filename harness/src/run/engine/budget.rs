//! The time in which the suspects of a suite are run again (`measure.confirm_budget`).
//!
//! Each suspect takes the time it needs, at most its share of the remaining time; time that the first ones do not use
//! goes to the others. Time counts while at least one suspect runs. Suspects that get no time are counted and reported.
//! A test whose survivors were all freed by later tests is repeated only while repeating has taken no longer than the
//! suite, unless a time is configured. Java test classes get more time: each needs virtual machines of its own.
//!
//! On a busy machine, repetitions wait for a processor. Unless a time is configured, the time grows by what GoogleTest
//! tests waited, so that fewer suspects stay unconfirmed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Without a configured time: this multiple of the suite's own time, but at least `LEAST`.
const FACTOR: u32 = 10;
const LEAST: Duration = Duration::from_secs(60);
/// Minimum share of a test: growth is watched for up to this long before a verdict.
const LEAST_OF_TEST: Duration = Duration::from_secs(6);
/// Less remaining time is too short for a further test.
const OF_NO_USE: Duration = Duration::from_secs(2);
/// The same for Java test classes. A share must suffice for a virtual machine that repeats the class, one that finds
/// its growing tests, and those that repeat these tests.
const LEAST_OF_CLASSES: Duration = Duration::from_secs(300);
const LEAST_OF_CLASS: Duration = Duration::from_secs(60);
/// On a busy machine, the time becomes at most this many times as long.
const MOST_BUSY: u32 = 5;

/// How long a repeated test waited for a processor.
#[derive(Debug, Clone)]
pub(in crate::run) struct Waited {
    micros: Arc<AtomicU64>,
    /// How many tests wait at the same time.
    at_once: u32,
}

impl Waited {
    pub(in crate::run) fn add(&self, time: Duration) {
        let micros = (time / self.at_once).as_micros();
        self.micros.fetch_add(u64::try_from(micros).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// The remaining time.
#[derive(Debug)]
pub(in crate::run) struct Budget {
    /// On a machine that is not busy.
    planned: Duration,
    is_configured: bool,
    /// Microseconds that tests waited for a processor.
    waited: Arc<AtomicU64>,
    least_share: Duration,
    /// Until this much is spent, tests whose survivors were all freed are also repeated.
    of_freed: Duration,
    /// Spent by tests that have ended.
    spent: Duration,
    /// Number of tests that run now, and since when at least one does.
    running: usize,
    since: Instant,
    left_open: usize,
}

impl Budget {
    /// For a suite that took `screened_s` seconds.
    pub(in crate::run) fn of(configured: Option<Duration>, screened_s: f64) -> Self {
        Self::with(configured, screened_s, (LEAST, LEAST_OF_TEST))
    }

    /// For the test classes of a JVM suite.
    pub(in crate::run) fn of_classes(configured: Option<Duration>, screened_s: f64) -> Self {
        Self::with(configured, screened_s, (LEAST_OF_CLASSES, LEAST_OF_CLASS))
    }

    fn with(
        configured: Option<Duration>,
        screened_s: f64,
        (least, least_share): (Duration, Duration),
    ) -> Self {
        let own = Duration::try_from_secs_f64(screened_s).unwrap_or_default();
        let planned = configured.unwrap_or_else(|| own.saturating_mul(FACTOR).max(least));
        let of_freed = configured.unwrap_or(own.max(least));
        let (spent, since) = (Duration::ZERO, Instant::now());
        Self {
            planned,
            is_configured: configured.is_some(),
            waited: Arc::default(),
            least_share,
            of_freed,
            spent,
            running: 0,
            since,
            left_open: 0,
        }
    }

    /// Counts how long a test that runs now waits for a processor.
    pub(in crate::run) fn waited(&self) -> Waited {
        let at_once = u32::try_from(self.running.max(1)).unwrap_or(u32::MAX);
        Waited { micros: Arc::clone(&self.waited), at_once }
    }

    fn whole(&self) -> Duration {
        if self.is_configured {
            return self.planned;
        }
        let waited = Duration::from_micros(self.waited.load(Ordering::Relaxed));
        self.planned.saturating_add(waited).min(self.planned.saturating_mul(MOST_BUSY))
    }

    /// A test starts to run.
    pub(in crate::run) fn begin(&mut self) {
        if self.running == 0 {
            self.since = Instant::now();
        }
        self.running += 1;
    }

    /// A running test has ended.
    pub(in crate::run) fn end(&mut self) {
        self.spent = self.spent();
        self.since = Instant::now();
        self.running = self.running.saturating_sub(1);
    }

    fn spent(&self) -> Duration {
        self.spent + if self.running > 0 { self.since.elapsed() } else { Duration::ZERO }
    }

    /// The remaining time.
    pub(in crate::run) fn left(&self) -> Duration {
        self.whole().saturating_sub(self.spent())
    }

    /// The time one of `tests` tests may take; `None`: too little is left.
    pub(in crate::run) fn share(&self, tests: usize) -> Option<Duration> {
        share(self.left(), tests, self.least_share)
    }

    /// Whether no time is left to repeat a test whose survivors were all freed.
    pub(in crate::run) fn is_over_for_freed(&self) -> bool {
        self.spent() >= self.of_freed || self.left() < OF_NO_USE
    }

    /// One more suspect stays unconfirmed; returns the reason for the reader, ending with `how`.
    pub(in crate::run) fn leaves_open(&mut self, how: &str) -> String {
        self.counts_as_open();
        self.why(how)
    }

    /// One more suspect stays unconfirmed.
    pub(in crate::run) fn counts_as_open(&mut self) {
        self.left_open += 1;
    }

    /// The same reason, for a suspect that may yet be confirmed.
    pub(in crate::run) fn why(&self, how: &str) -> String {
        format!("the time to confirm is {} s (measure.confirm_budget): {how}", self.seconds())
    }

    /// The number of suspects that stay unconfirmed, in words, if any.
    pub(in crate::run) fn left_open(&self) -> Option<String> {
        (self.left_open > 0).then(|| {
            format!(
                "{} unconfirmed, because {} s were not enough to repeat all suspects; \
                 measure.confirm_budget gives them more",
                self.left_open,
                self.seconds()
            )
        })
    }

    fn seconds(&self) -> f64 {
        (self.planned.as_secs_f64() * 10.0).round() / 10.0
    }
}

fn share(left: Duration, tests: usize, least: Duration) -> Option<Duration> {
    let share = left / u32::try_from(tests.max(1)).unwrap_or(u32::MAX);
    (left >= OF_NO_USE).then(|| share.max(least).min(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn without_a_configured_time_it_is_ten_times_the_suite_s_own_and_a_minute_at_least() {
        assert_eq!(Budget::of(None, 0.04).whole(), seconds(60));
        assert_eq!(Budget::of(None, 30.0).whole(), seconds(300));
        assert_eq!(Budget::of(Some(seconds(5)), 30.0).whole(), seconds(5));
        assert_eq!(Budget::of(None, f64::NAN).whole(), seconds(60));
        for (configured, screened_s, want) in [
            (None, 0.04, 60),
            (None, 300.0, 300),
            (Some(seconds(5)), 300.0, 5),
            (Some(seconds(900)), 300.0, 900),
        ] {
            assert_eq!(
                Budget::of(configured, screened_s).of_freed,
                seconds(want),
                "{configured:?} {screened_s}"
            );
        }
    }

    #[test]
    fn java_test_classes_have_time_for_virtual_machines_and_no_more_than_is_configured() {
        for (configured, screened_s, whole, share) in
            [(None, 2.0, 300, 60), (None, 100.0, 1000, 100), (Some(seconds(20)), 100.0, 20, 20)]
        {
            let budget = Budget::of_classes(configured, screened_s);
            assert_eq!((budget.whole(), budget.share(10)), (seconds(whole), Some(seconds(share))));
        }
    }

    #[test]
    fn what_is_left_is_shared_by_the_tests_that_are_open() {
        for (left, tests, want) in [(60, 2, Some(30)), (60, 500, Some(6)), (3, 2, Some(3)), (1, 1, None)] {
            let share = share(seconds(left), tests, LEAST_OF_TEST);
            assert_eq!(share, want.map(seconds), "{left} s for {tests}");
        }
    }

    #[test]
    fn only_time_in_which_a_test_runs_is_spent_and_that_of_two_at_once_counts_once() {
        let mut budget = Budget::of(None, 0.0);
        let before =
            |budget: &mut Budget, ago| budget.since = Instant::now().checked_sub(seconds(ago)).unwrap();
        before(&mut budget, 50);
        assert_eq!(budget.spent(), Duration::ZERO, "nothing runs");
        budget.begin();
        before(&mut budget, 10);
        budget.begin();
        budget.end();
        assert_eq!(budget.spent().as_secs(), 10, "one of two is over");
        before(&mut budget, 5);
        budget.end();
        before(&mut budget, 50);
        assert_eq!(budget.spent().as_secs(), 15, "both are");
    }

    /// Regression: at ten processes for each processor, 16 of 25 leaks stayed unconfirmed.
    #[test]
    fn what_tests_wait_for_a_processor_is_added_unless_a_time_is_configured() {
        let after = |configured, waited, at_once| {
            let mut budget = Budget::of(configured, 0.0);
            (0..at_once).for_each(|_| budget.begin());
            (0..at_once).for_each(|_| budget.waited().add(seconds(waited)));
            budget.whole()
        };
        assert_eq!([after(None, 40, 1), after(None, 40, 4)], [100, 100].map(seconds));
        assert_eq!(after(None, 100_000, 1), seconds(300));
        assert_eq!(after(Some(seconds(5)), 40, 1), seconds(5));
    }

    #[test]
    fn what_it_leaves_open_is_told() {
        let mut budget = Budget::of(Some(seconds(5)), 1.0);
        assert_eq!(budget.left_open(), None);
        let why = budget.leaves_open("it was over before its turn");
        assert_eq!(why, "the time to confirm is 5 s (measure.confirm_budget): it was over before its turn");
        assert!(budget.left_open().unwrap().starts_with("1 unconfirmed, because 5 s were not enough"));
    }
}
