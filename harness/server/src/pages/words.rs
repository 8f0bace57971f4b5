//! Texts that pages share, some of them with `memgate history`.

use memgate_model::{Verdict, format_bytes, short_commit};

use crate::view::{Came, RunRow, State};

/// The commit as it is shown; `–` if there is none.
pub(crate) fn short(sha: &str) -> &str {
    if sha.is_empty() { "–" } else { short_commit(sha) }
}

/// What a run measured: `3f0c1b2a9d`, or `3f0c1b2a9d + changes` if they are in no commit.
pub(crate) fn measured(sha: &str, dirty: bool) -> String {
    format!("{}{}", short(sha), if dirty { " + changes" } else { "" })
}

/// The same for a link to the run.
pub(super) fn run(sha: &str, dirty: bool) -> String {
    if sha.is_empty() { "run".to_owned() } else { measured(sha, dirty) }
}

/// `2026-11-23 20:15`, in UTC.
pub(crate) fn when(us: i64) -> String {
    jiff::Timestamp::from_microsecond(us)
        .map_or_else(|_out_of_range| "?".to_owned(), |at| at.strftime("%Y-%m-%d %H:%M").to_string())
}

pub(super) fn duration(ms: i64) -> String {
    match ms {
        ..1000 => format!("{ms} ms"),
        1000..120_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        _ => format!("{} min", ms / 60_000),
    }
}

pub(super) const fn verdict(verdict: Verdict) -> (&'static str, &'static str) {
    let class = match verdict {
        Verdict::Pass => "pass",
        Verdict::NotJudged => "other",
        Verdict::Warn => "warn",
        Verdict::Error => "error",
        Verdict::Fail => "fail",
    };
    (class, verdict.label())
}

pub(super) const fn state(state: State) -> (&'static str, &'static str) {
    let class = match state {
        State::New | State::Regressed => "fail",
        State::Known => "warn",
        State::Fixed => "pass",
        State::Gone => "other",
    };
    (class, state.name())
}

/// Bytes per iteration; for descriptors and threads, their number.
pub(crate) fn amount(bytes: f64, title: &str) -> String {
    if bytes > 0.0 { format_bytes(bytes) } else { title.to_owned() }
}

/// What a run changed: `1 new, 2 regressed`; empty: nothing.
pub(crate) fn changes(run: &RunRow) -> String {
    let counts = [
        (run.new_leaks, "new"),
        (run.regressed_leaks, "regressed"),
        (run.larger_leaks, "larger"),
        (run.fixed_leaks, "fixed"),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    counts.map(|(count, what)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
}

/// How many commits were not measured before a leak came.
pub(crate) fn unmeasured(came: &Came) -> String {
    match came.unmeasured.as_ref().map(Vec::len) {
        None => "it is not known which commits are in between".to_owned(),
        Some(0) => "no commit is in between".to_owned(),
        Some(1) => "1 commit in between was not measured".to_owned(),
        Some(count) => format!("{count} commits in between were not measured"),
    }
}
