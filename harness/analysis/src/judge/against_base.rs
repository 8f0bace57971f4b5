//! A review against its base: what a failing test leaks that the base leaks too does not fail it.
//!
//! Data flow: a judgement that fails, what the base says of its leaks → [`stands`] → how it stands, and why.
//! Whatever the base cannot speak for stays a failure: figures without a leak, a leak it does not have, one that was
//! fixed there, one that was smaller there.

use std::collections::BTreeMap;

use memgate_model::{
    AgainstBase, BaseLeak, BaseLeaks, Leak, LeakKind, Level, Metric, MetricValue, format_amount, format_count,
};

/// Leaks that are named before the rest is counted.
const NAMED: usize = 3;
/// Of figures that come to the same by another way.
const ROUNDING: f64 = 1.0 + 1e-9;

/// How a failing test stands to the base, and why, in words; `None`: the base cannot speak for it.
pub(super) fn stands(
    base: &BaseLeaks,
    test: &str,
    leaks: &[Leak],
    metrics: &BTreeMap<Metric, MetricValue>,
) -> Option<(AgainstBase, String)> {
    let counted: Vec<&Leak> = leaks.iter().filter(|leak| leak.waiver.is_none()).collect();
    if counted.is_empty() || base.base.is_none() {
        return None;
    }
    let on = format!("{} {}", base.base.branch, short(&base.base.sha));
    let known = |leak: &&&Leak| base.leaks.get(&leak.id).filter(|known| known.alive);
    let others: Vec<&Leak> = counted.iter().filter(|leak| known(leak).is_none()).copied().collect();
    if !others.is_empty() {
        let fixed = |leak: &&Leak| base.leaks.get(&leak.id).filter(|known| !known.fixed.is_empty());
        let names = named(&others);
        return Some(match others.iter().find_map(fixed) {
            Some(known) => {
                let by = short(&known.fixed);
                (
                    AgainstBase::Regressed,
                    format!("regressed: {names} was fixed on {} by {by}", base.base.branch),
                )
            }
            None => (AgainstBase::New, format!("new: {names} is not on {on}")),
        });
    }
    let there: Vec<&BaseLeak> = counted.iter().filter_map(|leak| known(&leak)).collect();
    let is_flaky = there.iter().any(|known| known.flaky);
    // No figure of a test counts what is in a heap dump.
    let more = |(leak, there): &(&&Leak, &&BaseLeak)| {
        leak.kind == LeakKind::Heap && leak.count_per_iteration > there.count * ROUNDING
    };
    if let Some((leak, there)) = counted.iter().zip(&there).find(more).filter(|_| !is_flaky) {
        let [before, now] = [there.count, leak.count_per_iteration].map(format_count);
        let text = format!("grew: {now} objects of {} against {before} on {on}", leak.id);
        return Some((AgainstBase::Grew, text));
    }
    for (metric, value) in metrics {
        let exceeds = |value: &&MetricValue| {
            value
                .threshold
                .as_ref()
                .is_some_and(|limit| limit.level == Level::Fail && value.low > limit.limit)
        };
        let Some(value) = Some(value).filter(exceeds) else { continue };
        // What a flaky leak left on the base by chance says nothing of what it may leave.
        let figure = base.tests.get(test).filter(|_| !is_flaky).and_then(|figures| figures.get(metric));
        let most = match figure {
            Some((_, high)) if *high > 0.0 => *high,
            _ => together(*metric, &counted, &there)?,
        };
        if value.low > most * ROUNDING {
            let [before, now] = [most, value.value].map(|value| format_amount(*metric, value));
            let text = format!("grew: {now} against {before} on {on}");
            return Some((AgainstBase::Grew, text));
        }
    }
    let names = named(&counted);
    Some(match is_flaky {
        true => (AgainstBase::Flaky, format!("known: {names} comes and goes on {on}")),
        false => (AgainstBase::Known, format!("known: {names} is on {on}")),
    })
}

/// What the leaks left on the base, as this metric counts it; `None`: they are none of it.
fn together(metric: Metric, leaks: &[&Leak], there: &[&BaseLeak]) -> Option<f64> {
    type Amount = fn(&BaseLeak) -> f64;
    let (kind, amount): (LeakKind, Amount) = match metric {
        Metric::NativeLiveBytes => (LeakKind::Native, |leak| leak.bytes),
        Metric::NativeLiveAllocations => (LeakKind::Native, |leak| leak.count),
        Metric::NativeMappedBytes => (LeakKind::Mapped, |leak| leak.bytes),
        Metric::JavaLiveBytes => (LeakKind::Java, |leak| leak.bytes),
        Metric::JavaLiveObjects => (LeakKind::Java, |leak| leak.count),
        Metric::OsFds | Metric::OsThreads => (LeakKind::Os, |leak| leak.count),
        _ => return None,
    };
    let of_kind = leaks.iter().zip(there).filter(|(leak, _)| leak.kind == kind);
    let sum: f64 = of_kind.map(|(_, there)| amount(there)).sum();
    (sum > 0.0).then_some(sum)
}

/// `n1-…, n1-… and 2 more`.
fn named(leaks: &[&Leak]) -> String {
    let mut names: Vec<&str> = leaks.iter().take(NAMED).map(|leak| leak.id.as_str()).collect();
    let more = leaks.len().saturating_sub(NAMED);
    let last = format!("{more} more");
    if more > 0 {
        names.push(&last);
    }
    match names.split_last() {
        Some((last, before)) if !before.is_empty() => format!("each of {} and {last}", before.join(", ")),
        _ => names.concat(),
    }
}

fn short(sha: &str) -> &str {
    sha.get(..10).unwrap_or(sha)
}

#[cfg(test)]
mod tests {
    use memgate_model::{Base, Per, Threshold};

    use super::*;

    fn leak(id: &str) -> Leak {
        Leak {
            id: id.into(),
            kind: LeakKind::Native,
            bytes_per_iteration: 48.0,
            count_per_iteration: 1.0,
            ..Leak::default()
        }
    }

    fn base(figure: Option<(f64, f64)>) -> BaseLeaks {
        let known = |alive, flaky, fixed: &str| BaseLeak {
            alive,
            flaky,
            fixed: fixed.into(),
            bytes: 48.0,
            count: 1.0,
        };
        BaseLeaks {
            base: Base { branch: "main".into(), sha: "0123456789abcdef".into(), ..Base::default() },
            leaks: [
                ("old", known(true, false, "")),
                ("flaky", known(true, true, "")),
                ("fixed", known(false, false, "fedcba9876543210")),
                ("gone", known(false, false, "")),
            ]
            .map(|(id, leak)| (id.to_owned(), leak))
            .into(),
            tests: figure
                .map(|figure| ("engine::A.b".to_owned(), [(Metric::NativeLiveBytes, figure)].into()))
                .into_iter()
                .collect(),
            ..BaseLeaks::default()
        }
    }

    fn figures(metric: Metric, value: f64) -> BTreeMap<Metric, MetricValue> {
        let value = MetricValue {
            value,
            unit: metric.unit(),
            per: Per::Iteration,
            low: value,
            high: value,
            iterations: 30,
            confidence: 0.99,
            threshold: Some(Threshold { limit: 0.0, level: Level::Fail, source: "default".into() }),
        };
        [(metric, value)].into()
    }

    #[test]
    fn only_what_the_base_has_as_large_is_known() {
        let bytes = Metric::NativeLiveBytes;
        for (case, leaks, metric, value, figure, expected) in [
            ("alive", &["old"][..], bytes, 48.0, Some((48.0, 48.0)), Some(AgainstBase::Known)),
            ("within its interval", &["old"], bytes, 50.0, Some((46.0, 50.0)), Some(AgainstBase::Known)),
            ("larger", &["old"], bytes, 96.0, Some((46.0, 50.0)), Some(AgainstBase::Grew)),
            ("larger, another test", &["old"], bytes, 96.0, None, Some(AgainstBase::Grew)),
            ("as large, another test", &["old"], bytes, 48.0, None, Some(AgainstBase::Known)),
            ("its base run missed it", &["old"], bytes, 48.0, Some((0.0, 0.0)), Some(AgainstBase::Known)),
            ("one more", &["old", "other"], bytes, 96.0, None, Some(AgainstBase::New)),
            ("new", &["other"], bytes, 48.0, None, Some(AgainstBase::New)),
            ("its test was gone", &["gone"], bytes, 48.0, None, Some(AgainstBase::New)),
            ("fixed", &["fixed"], bytes, 48.0, None, Some(AgainstBase::Regressed)),
            ("flaky", &["flaky"], bytes, 48.0, Some((0.0, 1.0)), Some(AgainstBase::Flaky)),
            ("flaky and larger", &["flaky"], bytes, 96.0, None, Some(AgainstBase::Grew)),
            ("no leak", &[], bytes, 48.0, None, None),
            ("another figure", &["old"], Metric::OsRss, 48.0, None, None),
            ("another kind", &["old"], Metric::OsFds, 1.0, None, None),
        ] {
            let leaks: Vec<Leak> = leaks.iter().map(|id| leak(id)).collect();
            let found = stands(&base(figure), "engine::A.b", &leaks, &figures(metric, value));
            assert_eq!(found.map(|(stands, _)| stands), expected, "{case}");
        }
    }

    #[test]
    fn a_leak_of_a_heap_dump_is_known_unless_it_has_more_objects() {
        for (count, expected) in [(1.0, AgainstBase::Known), (2.0, AgainstBase::Grew)] {
            let leak = Leak { kind: LeakKind::Heap, count_per_iteration: count, ..leak("old") };
            let found = stands(&base(None), "t", &[leak], &BTreeMap::new());
            assert_eq!(found.unwrap().0, expected, "{count}");
        }
    }

    #[test]
    fn a_waived_leak_is_not_asked_for() {
        let waived = Leak { waiver: Some("known".into()), ..leak("other") };
        let found = stands(&base(None), "t", &[waived, leak("old")], &figures(Metric::NativeLiveBytes, 48.0));
        assert_eq!(found.unwrap().1, "known: old is on main 0123456789");
    }
}
