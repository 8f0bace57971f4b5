//! Words for counts, outcomes and verdicts.

use memgate_model::{Outcome, SuiteReport, Verdict};

/// Number of tests of a suite; an entry for a whole test class does not count.
pub(crate) fn tests_of(suite: &SuiteReport) -> usize {
    suite.tests.iter().filter(|test| !test.is_class).count()
}

/// The outcome of the test itself, in words that fit after its name.
pub(crate) const fn own_outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "passed",
        Outcome::Failed => "failed by itself",
        Outcome::Skipped => "skipped itself",
        Outcome::Crashed => "crashed",
        Outcome::TimedOut => "timed out",
    }
}

/// CSS class and word of a verdict.
pub(crate) const fn verdict_word(verdict: Verdict) -> (&'static str, &'static str) {
    let class = match verdict {
        Verdict::Fail => "fail",
        Verdict::Error => "error",
        Verdict::Warn => "warn",
        Verdict::NotJudged => "not_judged",
        Verdict::Pass => "pass",
    };
    (class, verdict.label())
}

/// The sign in the headline of a message.
pub(crate) const fn symbol(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass | Verdict::NotJudged => "✅",
        Verdict::Warn => "⚠️",
        Verdict::Error | Verdict::Fail => "❌",
    }
}

/// The first of a month, three to four months after the run: long enough to fix the leak, short enough to remember.
pub(crate) fn waive_until(started: &str) -> String {
    let month = || {
        let (year, month) = (started.get(..4)?.parse::<u16>().ok()?, started.get(5..7)?.parse::<u16>().ok()?);
        let later = (started.get(4..5)? == "-" && (1..=12).contains(&month)).then_some(month + 3)?;
        Some(format!("{:04}-{:02}-01", year + later / 12, later % 12 + 1))
    };
    month().unwrap_or_else(|| "YYYY-MM-DD".to_owned())
}
