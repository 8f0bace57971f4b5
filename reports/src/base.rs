//! The base of a review, in words.

use memgate_model::{
    AgainstBase, Base, Level, RunReport, TestReport, Verdict, WaiverReport, format_number_of, short_commit,
};

/// `base: main 3f0c1b2a9d, 3 before`, `base: none (…)`.
#[must_use]
pub fn base(base: &Base) -> String {
    let why = |why: &str| if why.is_empty() { String::new() } else { format!(" ({why})") };
    if base.is_none() {
        return format!("base: none{}", why(&base.why));
    }
    let before = match base.before {
        0 => String::new(),
        before => format!(", {before} before"),
    };
    let age = base.age_s.map_or_else(String::new, |age| format!(", fetched {} ago", lasted(age)));
    format!("base: {} {}{before}{age}{}", base.branch, short_commit(&base.sha), why(&base.why))
}

/// Part of the run's headline: its base, and the number of waivers to remove.
pub(crate) fn of_run(report: &RunReport) -> String {
    let base = report.base.as_ref().map_or_else(String::new, |found| format!(" · {}", base(found)));
    let fixed: Vec<_> = report.waivers.iter().filter_map(|waiver| waiver.fixed.as_ref()).collect();
    let fails = fixed.iter().any(|fixed| fixed.level == Level::Fail);
    let waivers = match fixed.len() {
        0 => String::new(),
        count => {
            let why = if fails { " (history.stale_waivers: fail)" } else { "" };
            format!(" · {} to remove{why}", format_number_of(count, "waiver"))
        }
    };
    base + &waivers
}

/// How the leaks of a test compare with the base.
pub(crate) const fn stands(test: &TestReport) -> Option<&'static str> {
    Some(match test.against_base {
        Some(AgainstBase::New) => "new",
        Some(AgainstBase::Regressed) => "regressed",
        Some(AgainstBase::Larger) => "larger than on the base",
        Some(AgainstBase::Known) => "known on the base",
        Some(AgainstBase::Flaky) => "comes and goes on the base",
        None => return None,
    })
}

/// Why a waiver has to be removed, with its verdict; `None`: its leak is not known to be fixed.
pub(crate) fn fixed(waiver: &WaiverReport) -> Option<(Verdict, String)> {
    let fixed = waiver.fixed.as_ref()?;
    let by = if fixed.by.is_empty() { String::new() } else { format!(" by {}", short_commit(&fixed.by)) };
    Some((fixed.level.verdict(), format!("its leak is fixed{by}, remove it")))
}

/// `40 s`, `12 min`, `3 h`, `2 days`.
fn lasted(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_says_where_it_is_and_how_old() {
        let found = Base {
            branch: "main".into(),
            merged: "m".into(),
            sha: "0123456789abcdef".into(),
            ..Base::default()
        };
        for (found, said) in [
            (found.clone(), "base: main 0123456789"),
            (Base { before: 3, ..found.clone() }, "base: main 0123456789, 3 before"),
            (
                Base { age_s: Some(7200), why: "no answer".into(), ..found },
                "base: main 0123456789, fetched 2 h ago (no answer)",
            ),
            (Base { why: "no run of main".into(), ..Base::default() }, "base: none (no run of main)"),
            (Base::default(), "base: none"),
        ] {
            assert_eq!(base(&found), said);
        }
    }
}
