//! Thresholds from history, each with its evidence.
//!
//! Data flow: the figures of one test (or suite) and metric since their last shift, one per judged commit → [`tune`] →
//! a [`Proposal`], its evidence, and the commits that it would have failed.
//!
//! A threshold limits what a test may keep. So a figure that grows on every commit, or fails most of them, gets none:
//! it is a leak, to be fixed or waived. If a proposal passes commits that fail today, [`Tuned::lets_through`] has their
//! number: no threshold is raised silently.

use std::cmp::Ordering;

use memgate_model::{Level, Metric, Per};

use crate::Figure;
use crate::column::is_rounded;
use crate::noise::{deviation, median};

/// Fewest commits for a proposal.
const FEWEST: usize = 10;
/// Margin above the median for a noisy suite: in scaled median deviations, and as a share of the median.
const MARGIN: (f64, f64) = (5.0, 0.05);
/// With at least this many commits, the largest figure covers this share of all further commits with this confidence: n
/// is the smallest number for which share ^ n ≤ 1 − confidence.
const COVERED: [(usize, Coverage); 4] = [
    (2995, Coverage { share: 0.999, confidence: 0.95 }),
    (459, Coverage { share: 0.99, confidence: 0.99 }),
    (299, Coverage { share: 0.99, confidence: 0.95 }),
    (59, Coverage { share: 0.95, confidence: 0.95 }),
];

/// Data of a figure since its last shift.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'s> {
    /// The measured metric.
    pub metric: Metric,
    /// The scope of the figure.
    pub per: Per,
    /// One per judged commit, in any order.
    pub commits: &'s [Measured],
    /// The current threshold.
    pub limit: Option<Limit>,
}

/// A figure on one commit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// The figure; the largest if there are several runs.
    pub figure: Figure,
    /// Its runs disagree: one grows, another does not.
    pub disagrees: bool,
    /// A person confirmed that there is a leak.
    pub is_confirmed: bool,
}

/// A threshold of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    /// The largest allowed figure.
    pub limit: f64,
    /// Set in the configuration; otherwise it is the default.
    pub is_explicit: bool,
}

/// How many of all further commits a threshold covers, and with which confidence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Coverage {
    /// Share of commits that do not exceed it.
    pub share: f64,
    /// Confidence of that share.
    pub confidence: f64,
}

/// A proposal for a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Proposal {
    /// None yet: this many commits are missing.
    Missing(usize),
    /// None: runs of one commit disagree. Contains the share of commits that grow.
    Flaky(f64),
    /// None: every commit leaks. It must be fixed or waived.
    Leaks {
        /// The smallest figure.
        least: f64,
        /// The largest one.
        most: f64,
    },
    /// None: every commit leaves something in one execution. No run repeated the test, so it may be left only once.
    Once {
        /// The smallest figure.
        least: f64,
        /// The largest one.
        most: f64,
    },
    /// None: figures that vary from run to run fail no test. The same for a suite if most figures are zero.
    Noisy,
    /// No growth is allowed. An explicit threshold that allows some can be removed.
    Zero {
        /// The threshold to remove.
        removes: Option<f64>,
    },
    /// The largest of a few different values.
    Largest {
        /// The proposed threshold.
        limit: f64,
        /// `Warn`: there are too few commits to fail a build.
        level: Level,
        /// Which share of commits it covers.
        covers: Option<Coverage>,
    },
    /// The usual need of a suite: the largest of a few different values, or the median with a margin.
    Usual {
        /// With a margin: rounded up to two digits.
        limit: f64,
    },
}

/// A proposal with its evidence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tuned {
    /// The proposal.
    pub proposal: Proposal,
    /// Judged commits that it is based on.
    pub commits: usize,
    /// Number of these commits that grow, whether or not it is allowed.
    pub growing: usize,
    /// Number of these commits that fail with the current threshold.
    pub today: BackTest,
    /// Number of these commits that would fail with the proposal.
    pub proposed: BackTest,
    /// Number of these commits that fail now and would pass with the proposal.
    pub lets_through: usize,
}

/// Effect of a threshold on earlier commits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackTest {
    /// Commits that fail.
    pub fails: usize,
    /// Number of these commits whose leak a person confirmed.
    pub confirmed: usize,
}

impl Proposal {
    /// The proposed threshold; `None` if there is none.
    #[must_use]
    pub const fn limit(self) -> Option<f64> {
        match self {
            Self::Missing(_) | Self::Flaky(_) | Self::Leaks { .. } | Self::Once { .. } | Self::Noisy => None,
            Self::Zero { .. } => Some(0.0),
            Self::Largest { limit, .. } | Self::Usual { limit } => Some(limit),
        }
    }

    /// Sorts by importance: leaks, flaky figures, what was not repeated, then thresholds, larger before smaller.
    #[must_use]
    pub fn worst_first(&self, other: &Self) -> Ordering {
        let rank = |proposal: &Self| match *proposal {
            Self::Leaks { most, .. } => (0, most),
            Self::Flaky(rate) => (1, rate),
            Self::Once { most, .. } => (2, most),
            Self::Largest { limit, .. } => (3, limit),
            Self::Usual { limit } => (4, limit),
            Self::Zero { removes } => (5, removes.unwrap_or(0.0)),
            Self::Noisy => (6, 0.0),
            Self::Missing(_) => (7, 0.0),
        };
        let ((a, most_a), (b, most_b)) = (rank(self), rank(other));
        a.cmp(&b).then(most_b.total_cmp(&most_a))
    }
}

impl Measured {
    /// The value that the gate compares with a threshold: the lower bound of the figure.
    #[must_use]
    pub fn least(&self) -> f64 {
        self.figure.interval.map_or(self.figure.value, |(low, _)| low)
    }
}

/// The proposal for a figure. Figures that are not finite are skipped.
#[must_use]
pub fn tune(segment: &Segment<'_>) -> Tuned {
    let commits: Vec<Measured> =
        segment.commits.iter().filter(|commit| commit.figure.value.is_finite()).copied().collect();
    let proposal = propose(segment, &commits);
    let today = segment.limit.map(|limit| limit.limit);
    let limit = proposal.limit().or(today);
    let fails = |commit: &Measured, limit: Option<f64>| limit.is_some_and(|limit| commit.least() > limit);
    let back_test = |limit: Option<f64>| {
        let failing = commits.iter().filter(|commit| fails(commit, limit));
        failing.fold(BackTest::default(), |sum, commit| BackTest {
            fails: sum.fails + 1,
            confirmed: sum.confirmed + usize::from(commit.is_confirmed),
        })
    };
    Tuned {
        proposal,
        commits: commits.len(),
        growing: commits.iter().filter(|commit| commit.least() > 0.0).count(),
        today: back_test(today),
        proposed: back_test(limit),
        lets_through: commits.iter().filter(|commit| fails(commit, today) && !fails(commit, limit)).count(),
    }
}

fn propose(segment: &Segment<'_>, commits: &[Measured]) -> Proposal {
    let growing = commits.iter().filter(|commit| commit.least() > 0.0).count();
    if commits.iter().any(|commit| commit.disagrees) {
        return Proposal::Flaky(growing as f64 / commits.len() as f64);
    }
    if commits.len() < FEWEST {
        return Proposal::Missing(FEWEST - commits.len());
    }
    if growing == 0 {
        let explicit = segment.limit.filter(|limit| limit.is_explicit && limit.limit > 0.0);
        return Proposal::Zero { removes: explicit.map(|limit| limit.limit) };
    }
    let values: Vec<f64> = commits.iter().map(|commit| commit.figure.value).collect();
    let most = values.iter().copied().fold(f64::MIN, f64::max);
    let grown = commits.iter().filter(|commit| commit.least() > 0.0).map(|commit| commit.figure.value);
    let least = grown.fold(f64::MAX, f64::min);
    let is_whole_suite = segment.per == Per::Suite;
    if !is_rounded(segment.metric) {
        if growing == commits.len() && !is_whole_suite {
            let is_repeated = commits.iter().any(|commit| commit.figure.interval.is_some());
            return if is_repeated {
                Proposal::Leaks { least, most }
            } else {
                Proposal::Once { least, most }
            };
        }
        if are_few(&values) {
            if is_whole_suite {
                // A suite always needs something, for example its first thread: that is no growth.
                return Proposal::Usual { limit: most };
            }
            let fails = |commit: &&Measured| segment.limit.is_some_and(|limit| commit.least() > limit.limit);
            if 2 * commits.iter().filter(fails).count() > commits.len() {
                return Proposal::Leaks { least, most };
            }
            let covers =
                COVERED.iter().find(|(enough, _)| values.len() >= *enough).map(|(_, covers)| *covers);
            let level = if covers.is_some() { Level::Fail } else { Level::Warn };
            return Proposal::Largest { limit: most, level, covers };
        }
    }
    if !is_whole_suite {
        return Proposal::Noisy;
    }
    let middle = median(&values);
    let margin = (MARGIN.0 * deviation(&values, middle)).max(MARGIN.1 * middle);
    match two_digits_up(middle + margin) {
        // Most commits have zero: there is no usual figure.
        0.0 => Proposal::Noisy,
        limit => Proposal::Usual { limit },
    }
}

/// Are these whole numbers with few different values? Then the largest one predicts future values.
fn are_few(values: &[f64]) -> bool {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.dedup();
    sorted.iter().all(|value| value.fract() == 0.0) && sorted.len().pow(2) <= values.len()
}

/// Rounds up to two significant digits.
fn two_digits_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    // A float product that should be whole may be slightly larger.
    let up = |scaled: f64| (scaled - 1e-9).ceil();
    let digits = value.log10().floor() - 1.0;
    let unit = 10_f64.powf(digits.abs());
    let rounded = if digits < 0.0 { up(value * unit) / unit } else { up(value / unit) * unit };
    if rounded.is_finite() { rounded } else { value.min(f64::MAX) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::chance::Chance;

    fn commits(values: impl IntoIterator<Item = f64>) -> Vec<Measured> {
        let measured = |value| Measured {
            figure: Figure { value, interval: Some((value, value)) },
            disagrees: false,
            is_confirmed: value > 500.0,
        };
        values.into_iter().map(measured).collect()
    }

    fn of(commits: &[Measured], metric: Metric, per: Per, limit: Option<(f64, bool)>) -> Tuned {
        let limit = limit.map(|(limit, is_explicit)| Limit { limit, is_explicit });
        tune(&Segment { metric, per, commits, limit })
    }

    fn of_test(values: impl IntoIterator<Item = f64>) -> Proposal {
        of(&commits(values), Metric::NativeLiveBytes, Per::Iteration, Some((0.0, false))).proposal
    }

    #[test]
    fn each_kind_of_segment_has_its_proposal() {
        let zeros = |count| std::iter::repeat_n(0.0, count);
        let warn = Proposal::Largest { limit: 96.0, level: Level::Warn, covers: None };
        let mixed = (0..100).map(f64::from).map(|n| n * 1.5);
        for (case, found, expected) in [
            ("nothing", of_test([]), Proposal::Missing(10)),
            ("too few", of_test(zeros(9)), Proposal::Missing(1)),
            ("zeros", of_test(zeros(10)), Proposal::Zero { removes: None }),
            ("constant", of_test([48.0; 10]), Proposal::Leaks { least: 48.0, most: 48.0 }),
            (
                "always something",
                of_test((0..20).map(|n| f64::from(n % 2 + 1))),
                Proposal::Leaks { least: 1.0, most: 2.0 },
            ),
            (
                "mostly something",
                of_test(zeros(2).chain([100.0, 108.0, 116.0].repeat(6))),
                Proposal::Leaks { least: 100.0, most: 116.0 },
            ),
            ("grid", of_test(zeros(40).chain([48.0, 96.0])), warn),
            ("no grid", of_test(mixed), Proposal::Noisy),
            ("no numbers", of_test([f64::NAN; 20]), Proposal::Missing(10)),
        ] {
            assert_eq!(found, expected, "{case}");
        }
    }

    /// Before, a lazy static that its threshold allows was to be fixed or waived.
    #[test]
    fn what_no_run_repeated_is_no_leak() {
        let mut kept = commits([78.0; 12]);
        kept.iter_mut().for_each(|commit| commit.figure.interval = None);
        let proposal = |kept: &[Measured]| {
            of(kept, Metric::NativeLiveBytes, Per::Iteration, Some((1024.0, true))).proposal
        };
        assert_eq!(proposal(&kept), Proposal::Once { least: 78.0, most: 78.0 });
        kept[3].figure.interval = Some((78.0, 78.0));
        assert_eq!(proposal(&kept), Proposal::Leaks { least: 78.0, most: 78.0 });
    }

    #[test]
    fn a_threshold_that_allows_what_never_comes_can_go() {
        let zeros = commits([0.0; 12]);
        let removes = |limit| {
            of(&zeros, Metric::OsFds, Per::Iteration, limit).proposal == Proposal::Zero { removes: Some(4.0) }
        };
        assert!(removes(Some((4.0, true))) && !removes(Some((4.0, false))) && !removes(Some((0.0, true))));
    }

    #[test]
    fn an_interval_that_reaches_zero_is_no_growth() {
        let mut open = commits([0.4; 20]);
        open.iter_mut().for_each(|commit| commit.figure.interval = Some((-1.0, 2.0)));
        let tuned = of(&open, Metric::NativeLiveBytes, Per::Iteration, Some((0.0, false)));
        assert_eq!((tuned.proposal, tuned.growing), (Proposal::Zero { removes: None }, 0));
    }

    #[test]
    fn how_much_the_largest_covers_depends_on_how_many_there_are() {
        let covers = |count: u32| match of_test((0..count).map(|n| if n == 3 { 7.0 } else { 0.0 })) {
            Proposal::Largest { limit: 7.0, level, covers } => {
                (level, covers.map(|c| (c.share, c.confidence)))
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(covers(58), (Level::Warn, None));
        for (count, share, confidence) in
            [(59, 0.95, 0.95), (298, 0.95, 0.95), (299, 0.99, 0.95), (459, 0.99, 0.99), (2995, 0.999, 0.95)]
        {
            assert_eq!(covers(count), (Level::Fail, Some((share, confidence))), "{count}");
        }
        for (count, Coverage { share, confidence }) in COVERED {
            let missed = |count: usize| share.powi(i32::try_from(count).unwrap());
            assert!(missed(count) <= 1.0 - confidence && missed(count - 1) > 1.0 - confidence, "{count}");
        }
    }

    #[test]
    fn a_suite_gets_what_it_usually_needs_and_a_margin() {
        let suite =
            |values: &[f64], metric| of(&commits(values.iter().copied()), metric, Per::Suite, None).proposal;
        let quiet: Vec<f64> = (0..20).map(|n| 1000.0 + f64::from(n)).collect();
        assert_eq!(suite(&quiet, Metric::OsRss), Proposal::Usual { limit: 1100.0 }, "5 % of 1009.5");
        let wide: Vec<f64> = (0..21).map(|n| 1000.0 + 20.0 * f64::from(n)).collect();
        assert_eq!(
            suite(&wide, Metric::OsRss),
            Proposal::Usual { limit: 2000.0 },
            "1200 + 5 × 1.4826 × 100 = 1941"
        );
        assert_eq!(suite(&[1.0; 20], Metric::OsThreads), Proposal::Usual { limit: 1.0 }, "its first thread");
        assert_eq!(suite(&[4096.0; 20], Metric::OsRss), Proposal::Usual { limit: 4400.0 }, "memory, no leak");
        let now_and_then = (0..20).map(|n| if n > 12 { f64::from(n) } else { 0.0 });
        assert_eq!(of(&commits(now_and_then), Metric::OsRss, Per::Suite, None).proposal, Proposal::Noisy);
        let test = of(&commits(quiet), Metric::OsRss, Per::Test, None).proposal;
        assert_eq!(test, Proposal::Noisy, "it never fails a test");
    }

    #[test]
    fn what_disagrees_on_one_commit_is_flaky() {
        let mut some = commits([0.0, 48.0, 0.0, 0.0]);
        some[1].disagrees = true;
        let tuned = of(&some, Metric::NativeLiveBytes, Per::Iteration, Some((0.0, false)));
        assert_eq!(tuned.proposal, Proposal::Flaky(0.25));
        assert_eq!((tuned.today.fails, tuned.proposed.fails, tuned.lets_through), (1, 1, 0));
    }

    #[test]
    fn a_threshold_that_lets_leaks_through_says_on_how_many_commits() {
        let values = (0..100).map(|n| if n % 20 == 0 { 444.0 } else { 0.0 });
        let found = commits(values.chain([900.0]));
        let tuned = of(&found, Metric::NativeLiveBytes, Per::Iteration, Some((0.0, false)));
        assert_eq!((tuned.commits, tuned.growing, tuned.lets_through), (101, 6, 6));
        assert_eq!((tuned.today, tuned.proposed), (BackTest { fails: 6, confirmed: 1 }, BackTest::default()));
    }

    #[test]
    fn leaks_stand_before_thresholds_and_large_before_small() {
        let leak = |most| Proposal::Leaks { least: 1.0, most };
        let mut found = [Proposal::Missing(2), leak(8.0), Proposal::Flaky(0.5), leak(48.0), Proposal::Noisy];
        found.sort_by(Proposal::worst_first);
        assert_eq!(
            found,
            [leak(48.0), leak(8.0), Proposal::Flaky(0.5), Proposal::Noisy, Proposal::Missing(2)]
        );
    }

    #[test]
    fn two_digits_are_rounded_upwards() {
        for (value, expected) in [
            (1234.0, 1300.0),
            (1300.0, 1300.0),
            (9.91, 10.0),
            (0.0123, 0.013),
            (7.0, 7.0),
            (100.5, 110.0),
            (-3.0, 0.0),
        ] {
            assert_eq!(two_digits_up(value), expected, "{value}");
        }
    }

    #[test]
    fn figures_beyond_all_measure_have_a_finite_threshold() {
        for value in [f64::MAX, 1e-320, f64::MIN_POSITIVE] {
            let found = of(&commits([value; 20]), Metric::OsRss, Per::Suite, None).proposal.limit().unwrap();
            assert!(found.is_finite() && found >= value, "{value}: {found}");
        }
    }

    proptest! {
        #[test]
        fn the_gate_fails_exactly_the_commits_it_was_said_to(
            seed: u64,
            count in 0_usize..120,
            per in 0..3,
            limit in proptest::option::of((0.0..100.0, any::<bool>())),
        ) {
            let mut chance = Chance::of(seed);
            let spread = chance.uniform() * 8.0;
            let found = commits((0..count).map(|_| (chance.uniform() * spread).floor() * 16.0));
            let per = [Per::Iteration, Per::Test, Per::Suite][usize::try_from(per).unwrap()];
            let tuned = of(&found, Metric::NativeLiveBytes, per, limit);
            let limit = tuned.proposal.limit().or(limit.map(|(limit, _)| limit));
            let fails = |commit: &&Measured| limit.is_some_and(|limit| commit.figure.value > limit);
            let failing = found.iter().filter(fails).count();
            prop_assert_eq!(tuned.proposed.fails, failing);
            prop_assert_eq!(tuned.lets_through, tuned.today.fails.saturating_sub(tuned.proposed.fails));
            if let Proposal::Largest { .. } | Proposal::Usual { .. } = tuned.proposal {
                prop_assert!(tuned.proposal.limit().unwrap() > 0.0);
            }
        }
    }
}
