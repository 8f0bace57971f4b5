//! A review against its base: a leak that the base has too does not fail a test.
//!
//! Data flow: a failing judgement and the leaks of the base → [`stands`] → how the test compares with the base, and
//! why. It stays a failure if the base does not explain it: figures without a leak, a leak that is missing on the base,
//! one that was fixed there, or one that was smaller there.

use std::collections::BTreeMap;

use memgate_model::{
    AgainstBase, BaseLeak, BaseLeaks, Leak, LeakKind, Level, Metric, MetricValue, Unit, format_amount,
    format_count, short_commit,
};

/// Most leaks to name; the others are counted.
const NAMED: usize = 3;
/// Rounding tolerance between equal figures that were computed differently.
const ROUNDING: f64 = 1.0 + 1e-9;
/// Tolerance for the slope of one leak, which may differ a little from the exact number.
const NEAR: f64 = 1.05;
/// Fewer objects per iteration than this count as none.
const FEW: f64 = 0.05;

/// How a failing test compares with the base, and why. `None`: the base does not explain the failure.
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
    let on = format!("{} {}", base.base.branch, short_commit(&base.base.sha));
    let known = |leak: &&&Leak| base.leaks.get(&leak.id).filter(|known| known.alive);
    let others: Vec<&Leak> = counted.iter().filter(|leak| known(leak).is_none()).copied().collect();
    if !others.is_empty() {
        let fixed = |leak: &&Leak| base.leaks.get(&leak.id).filter(|known| !known.fixed.is_empty());
        let names = named(&others);
        return Some(match others.iter().find_map(fixed) {
            Some(known) => {
                let by = short_commit(&known.fixed);
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
    let before = base.tests.get(test);
    let grew = counted.iter().zip(&there).filter(|(_, there)| !there.flaky);
    if let Some(what) = grew.filter_map(|(leak, there)| grown(leak, there, metrics, before)).next() {
        return Some((AgainstBase::Larger, format!("larger: {what} on {on}")));
    }
    for (metric, value) in metrics {
        let exceeds = |value: &&MetricValue| {
            value
                .threshold
                .as_ref()
                .is_some_and(|limit| limit.level == Level::Fail && value.low > limit.limit)
        };
        let Some(value) = Some(value).filter(exceeds) else { continue };
        // What a flaky leak happened to leave on the base does not show what it may leave.
        let figure = before.filter(|_| !is_flaky).and_then(|figures| figures.get(metric));
        let most = match figure {
            Some((_, high)) if *high > 0.0 => *high,
            _ => together(*metric, &counted, &there)?,
        };
        if value.low > most * ROUNDING {
            let [before, now] = [most, value.value].map(|value| format_amount(*metric, value));
            let text = format!("larger: {now} against {before} on {on}");
            return Some((AgainstBase::Larger, text));
        }
    }
    let names = named(&counted);
    Some(match is_flaky {
        true => (AgainstBase::Flaky, format!("known: {names} comes and goes on {on}")),
        false => (AgainstBase::Known, format!("known: {names} is on {on}")),
    })
}

/// Describes which amount of a leak is larger than on the base. `None`: none, or not by more than chance. The figure of
/// its test does not show it if another leak was fixed at the same time.
fn grown(
    leak: &Leak,
    there: &BaseLeak,
    metrics: &BTreeMap<Metric, MetricValue>,
    before: Option<&BTreeMap<Metric, (f64, f64)>>,
) -> Option<String> {
    // By how much the sum of a test's leaks varies, on the base and now.
    let chance = |metric: &Metric| {
        let then = before.and_then(|figures| figures.get(metric)).map_or(0.0, |(low, high)| high - low);
        let now = metrics.get(metric).map_or(0.0, |value| value.value - value.low);
        then.max(0.0) + now.max(0.0)
    };
    let (bytes, objects): (Option<Metric>, &[Metric]) = match leak.kind {
        LeakKind::Native => (Some(Metric::NativeLiveBytes), &[Metric::NativeLiveAllocations]),
        LeakKind::Mapped => (Some(Metric::NativeMappedBytes), &[]),
        LeakKind::Java => (Some(Metric::JavaLiveBytes), &[Metric::JavaLiveObjects]),
        LeakKind::Os => (None, &[Metric::OsFds, Metric::OsThreads]),
        LeakKind::Heap => (None, &[]),
    };
    if let Some(metric) = bytes
        && leak.bytes_per_iteration > there.bytes * NEAR + chance(&metric)
    {
        let [then, now] = [there.bytes, leak.bytes_per_iteration].map(|bytes| format_amount(metric, bytes));
        return Some(format!("{now} of {} against {then}", leak.id));
    }
    let most = match leak.kind {
        // Objects in a heap dump are counted, not estimated.
        LeakKind::Heap => there.count * ROUNDING,
        // Enlarged ranges do not increase the number of ranges.
        LeakKind::Mapped => return None,
        _ => there.count * NEAR + FEW + objects.iter().map(chance).sum::<f64>(),
    };
    let [then, now] = [there.count, leak.count_per_iteration].map(format_count);
    (leak.count_per_iteration > most).then(|| format!("{now} objects of {} against {then}", leak.id))
}

/// Sum of what these leaks left on the base, for this metric. `None`: the metric does not count them.
fn together(metric: Metric, leaks: &[&Leak], there: &[&BaseLeak]) -> Option<f64> {
    let kind = metric.leaks()?;
    let amount = |leak: &BaseLeak| match metric.unit() {
        Unit::Bytes => leak.bytes,
        Unit::Count => leak.count,
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
            threshold: Some(Threshold { limit: 0.0, level: Level::Fail, source: "default".into() }),
            ..MetricValue::exact(value, metric, Per::Iteration)
        };
        [(metric, value)].into()
    }

    #[test]
    fn only_what_the_base_has_as_large_is_known() {
        let bytes = Metric::NativeLiveBytes;
        for (case, leaks, metric, value, figure, expected) in [
            ("alive", &["old"][..], bytes, 48.0, Some((48.0, 48.0)), Some(AgainstBase::Known)),
            ("within its interval", &["old"], bytes, 50.0, Some((46.0, 50.0)), Some(AgainstBase::Known)),
            ("larger", &["old"], bytes, 96.0, Some((46.0, 50.0)), Some(AgainstBase::Larger)),
            ("larger, another test", &["old"], bytes, 96.0, None, Some(AgainstBase::Larger)),
            ("as large, another test", &["old"], bytes, 48.0, None, Some(AgainstBase::Known)),
            ("its base run missed it", &["old"], bytes, 48.0, Some((0.0, 0.0)), Some(AgainstBase::Known)),
            ("one more", &["old", "other"], bytes, 96.0, None, Some(AgainstBase::New)),
            ("new", &["other"], bytes, 48.0, None, Some(AgainstBase::New)),
            ("its test was gone", &["gone"], bytes, 48.0, None, Some(AgainstBase::New)),
            ("fixed", &["fixed"], bytes, 48.0, None, Some(AgainstBase::Regressed)),
            ("flaky", &["flaky"], bytes, 48.0, Some((0.0, 1.0)), Some(AgainstBase::Flaky)),
            ("flaky and larger", &["flaky"], bytes, 96.0, None, Some(AgainstBase::Larger)),
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
        for (count, expected) in [(1.0, AgainstBase::Known), (2.0, AgainstBase::Larger)] {
            let leak = Leak { kind: LeakKind::Heap, count_per_iteration: count, ..leak("old") };
            let found = stands(&base(None), "t", &[leak], &BTreeMap::new());
            assert_eq!(found.unwrap().0, expected, "{count}");
        }
    }

    #[test]
    fn a_leak_that_grew_is_told_although_another_one_of_its_test_was_fixed() {
        let known = |bytes| BaseLeak { alive: true, bytes, count: 1.0, ..BaseLeak::default() };
        let leaks =
            [("a", known(100.0)), ("b", known(100_000.0))].map(|(id, leak)| (id.to_owned(), leak)).into();
        for (case, width, bytes, count, expected) in [
            ("900 times as large", 0.0, 90_000.0, 1.0, AgainstBase::Larger),
            ("as large", 0.0, 100.0, 1.0, AgainstBase::Known),
            ("a slope that is a little off", 0.0, 103.0, 1.02, AgainstBase::Known),
            ("half as large again", 0.0, 150.0, 1.0, AgainstBase::Larger),
            ("within what its test varies by", 60.0, 150.0, 1.0, AgainstBase::Known),
            ("more of them", 0.0, 100.0, 900.0, AgainstBase::Larger),
        ] {
            let figure = Some((100_100.0 - width, 100_100.0));
            let base = BaseLeaks { leaks: BTreeMap::clone(&leaks), ..base(figure) };
            let leak = Leak { bytes_per_iteration: bytes, count_per_iteration: count, ..leak("a") };
            let found = stands(&base, "engine::A.b", &[leak], &figures(Metric::NativeLiveBytes, bytes));
            let (found, why) = found.unwrap();
            assert_eq!(found, expected, "{case}: {why}");
            assert_eq!(
                why.starts_with("larger: ") && why.contains(" of a against "),
                found == AgainstBase::Larger
            );
        }
    }

    #[test]
    fn a_waived_leak_is_not_asked_for() {
        let waived = Leak { waiver: Some("known".into()), ..leak("other") };
        let found = stands(&base(None), "t", &[waived, leak("old")], &figures(Metric::NativeLiveBytes, 48.0));
        assert_eq!(found.unwrap().1, "known: old is on main 0123456789");
    }
}
