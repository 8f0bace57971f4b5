//! Finds settings to warn about: thresholds without effect (relative to a missing baseline, of tests that did not run,
//! hidden by earlier ones), and waivers that let everything through.

use memgate_config::{Override, TestGlob, Waiver, WaiverTarget, nearest};
use memgate_model::{Metric, RunReport, Verdict};

use super::Settings;

/// Warns about a missing baseline file: thresholds cannot compare with it. This happens in the first run of a project.
fn missing_baseline(settings: &Settings) -> Option<String> {
    let config = &settings.config;
    (settings.baseline.is_none() && config.thresholds.need_baseline()).then(|| {
        format!(
            "there is no baseline {}: thresholds relative to it are not judged; `memgate baseline accept` makes it from a \
             run",
            settings.root.join(&config.baseline.path).display()
        )
    })
}

/// What is to be said before anything runs: a missing baseline, and waivers that let everything through.
pub(crate) fn warnings(settings: &Settings) -> Vec<String> {
    let wide = settings.config.waivers.iter().filter(|waiver| is_for_all(waiver)).map(|waiver| {
        let Waiver { target, place, .. } = waiver;
        format!(
            "{place}: the waiver `{target}` is for all leaks of all tests: name a leak, or limit it by `test`"
        )
    });
    missing_baseline(settings).into_iter().chain(wide).collect()
}

/// Does a waiver name all leaks of its kind, in all tests?
fn is_for_all(waiver: &Waiver) -> bool {
    let names_all = |text: &str| text.contains('*') && text.chars().all(|c| "*?:!.".contains(c));
    let target = match &waiver.target {
        WaiverTarget::Leak(_) => return false,
        WaiverTarget::Frame(glob) => glob.text(),
        WaiverTarget::Class(glob) | WaiverTarget::Holder(glob) => glob.text(),
    };
    names_all(target) && waiver.test.as_ref().is_none_or(|test| names_all(test.text()))
}

/// Maximum number of entries that are listed one by one, for each reason.
const MOST_TOLD: usize = 10;

/// Entries of `thresholds.tests` that decide nothing in a complete run: they match no test, or earlier entries hide
/// them. In a run with errors, it is unknown which tests are missing.
pub(crate) fn without_effect(settings: &Settings, report: &RunReport) -> Vec<String> {
    if report.verdict == Verdict::Error {
        return Vec::new();
    }
    // An entry for all tests of a class also applies to the class.
    let is_for = |entry: &Override, suite: &str, test: &str| {
        entry.tests.matches(suite, test) || entry.tests.matches(suite, &format!("{test}.*"))
    };
    let entries = settings.config.thresholds.overrides();
    let is_matched = |entry: &Override| tests(report).any(|(suite, test)| is_for(entry, suite, test));
    let (matched, unmatched): (Vec<_>, Vec<_>) =
        entries.iter().enumerate().partition(|(_, entry)| is_matched(entry));
    let unmatched: Vec<_> = unmatched.into_iter().map(|(_, entry)| (entry, ())).collect();
    let (mut told, more) = listed(&unmatched, |entry, ()| {
        let hint = meant(&entry.tests, report).map_or_else(
            || "correct or remove its limits".to_owned(),
            |meant| format!("did you mean `{meant}`?"),
        );
        format!("{}: `{}` matches no test: {hint}", entry.place, entry.tests.text())
    });
    told.extend(more.map(|(places, count)| match count {
        1 => format!("{places}: one more entry matches no test"),
        _ => format!("{places}: {count} more entries match no test"),
    }));
    let hidden =
        matched.into_iter().filter_map(|(index, entry)| Some((entry, hides(&entries[..index], entry)?)));
    let hidden: Vec<_> = hidden.collect();
    let (hidden, more) = listed(&hidden, |entry, first| {
        let (text, first_text) = (entry.tests.text(), first.tests.text());
        format!(
            "{}: `{text}` has no effect: `{first_text}` comes first ({}), and the first entry that names test and metric \
             counts",
            entry.place, first.place
        )
    });
    told.extend(hidden);
    told.extend(more.map(|(places, count)| format!("{places}: {count} more entries that earlier ones hide")));
    told
}

/// What a pattern that matches no test probably means: the same tests of another suite, otherwise a test with a similar
/// name.
fn meant(pattern: &TestGlob, report: &RunReport) -> Option<String> {
    let text = pattern.text();
    let Some((_, test)) = text.split_once("::") else {
        return nearest(text, tests(report).map(|(_, test)| test)).map(str::to_owned);
    };
    if let Some((suite, _)) = elsewhere(pattern, report) {
        return Some(format!("{suite}::{test}"));
    }
    let near = nearest(test, tests(report).map(|(_, test)| test))?;
    tests(report).find(|(_, test)| *test == near).map(|(suite, test)| format!("{suite}::{test}"))
}

/// The suites and tests of a run.
fn tests(report: &RunReport) -> impl Iterator<Item = (&str, &str)> {
    report.suites.iter().flat_map(|suite| {
        let name = suite.name.as_str();
        suite.tests.iter().map(move |test| (name, test.id.as_str()))
    })
}

/// A test that a pattern would match if its suite had another name.
fn elsewhere<'r>(pattern: &TestGlob, report: &'r RunReport) -> Option<(&'r str, &'r str)> {
    let (suite, _) = pattern.text().split_once("::")?;
    let suite = suite.replace(['*', '?'], "\u{1}");
    let would = |(_, test): &(&str, &str)| {
        pattern.matches(&suite, test) || pattern.matches(&suite, &format!("{test}.*"))
    };
    tests(report).find(would).filter(|(of, test)| !pattern.matches(of, test))
}

/// After a command that is of no suite of memgate.yaml: the settings that do not apply to its tests, because they name
/// those suites. `None`: all apply.
pub(crate) fn of_other_suites(settings: &Settings, report: &RunReport) -> Option<String> {
    let config = &settings.config;
    let suites: Vec<&str> = config.suites.iter().map(|suite| suite.name.as_str()).collect();
    let entries = config.thresholds.overrides().iter().map(|entry| (&entry.tests, &entry.place));
    let waivers = config.waivers.iter().filter_map(|waiver| Some((waiver.test.as_ref()?, &waiver.place)));
    let missed: Vec<_> = (entries.chain(waivers))
        .filter_map(|(pattern, place)| Some((elsewhere(pattern, report)?, pattern, place)))
        .collect();
    let of_them = |name: &String| suites.iter().any(|suite| belongs_to(name, suite));
    let accepted = settings.baseline.as_ref().filter(|_| config.thresholds.need_baseline());
    let compares = accepted.is_some_and(|it| it.suites.keys().any(of_them))
        && accepted.is_some_and(|it| !report.suites.iter().any(|suite| it.suites.contains_key(&suite.name)));
    let listed =
        missed.iter().take(MOST_TOLD).map(|(_, pattern, place)| format!("`{}` ({place})", pattern.text()));
    let more = missed.len().saturating_sub(MOST_TOLD);
    let more = (more > 0).then(|| format!("{more} more entries"));
    let baseline = compares.then(|| "the baseline".to_owned());
    let without: Vec<String> = listed.chain(more).chain(baseline).collect();
    if suites.is_empty() || without.is_empty() {
        return None;
    }
    let first = missed.first().map(|(test, ..)| *test).or_else(|| tests(report).next())?;
    Some(format!(
        "this command is not that of a suite in memgate.yaml ({}), and its tests have other names (`{}::{}`): these do not \
         apply to them: {}; `memgate run --suite {}` runs a suite",
        suites.join(", "),
        first.0,
        first.1,
        without.join(", "),
        suites[0]
    ))
}

/// `unit`, `unit/tile_tests`.
fn belongs_to(name: &str, suite: &str) -> bool {
    name.strip_prefix(suite).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The first entries in words, and the places and number of the others.
fn listed<T>(
    entries: &[(&Override, T)],
    words: impl Fn(&Override, &T) -> String,
) -> (Vec<String>, Option<(String, usize)>) {
    let told = entries.iter().take(MOST_TOLD).map(|(entry, more)| words(entry, more)).collect();
    let others = entries.get(MOST_TOLD..).unwrap_or_default();
    let more = others.first().zip(others.last()).map(|((first, _), (last, _))| {
        let one = first.place.to_string();
        let places = if others.len() == 1 { one } else { format!("{one} to {}", last.place) };
        (places, others.len())
    });
    (told, more)
}

/// The earlier entry that decides instead of this one; `None`: this one decides a metric of a test, or may do so.
fn hides<'e>(earlier: &'e [Override], entry: &Override) -> Option<&'e Override> {
    let first_for =
        |metric: &Metric| earlier.iter().find(|it| it.limits.contains_key(metric) && is_wider(it, entry));
    let mut deciding = entry.limits.keys().map(first_for);
    let first = deciding.next()??;
    deciding.all(|it| it.is_some()).then_some(first)
}

/// Does an entry match every test that the other one matches? Each `*` is tried as no text and as some text that is in
/// no name.
fn is_wider(entry: &Override, than: &Override) -> bool {
    ["", "\u{1}\u{1}"].into_iter().all(|any| {
        let text = than.tests.text().replace('*', any).replace('?', "\u{1}");
        let (suite, test) = text.split_once("::").unwrap_or(("", &text));
        entry.tests.matches(suite, test)
    })
}

#[cfg(test)]
mod tests {
    use memgate_config::Baseline;
    use memgate_model::{Runner, SuiteReport, TestReport};

    use super::super::plan;
    use super::super::samples::{YAML, request, settings, world};
    use super::*;

    #[test]
    fn a_missing_baseline_is_said_where_it_is_needed() {
        let warnings = plan(&settings(YAML), &request(), &world()).unwrap().warnings;
        assert!(warnings.iter().any(|w| {
            w.contains("/project/memgate-baseline.json") && w.contains("memgate baseline accept")
        }));
        let plain = plan(&settings("version: 1\nsuites: { a: { run: [x] } }"), &request(), &world()).unwrap();
        assert!(plain.warnings.is_empty());
    }

    #[test]
    fn a_waiver_for_everything_is_said() {
        let told = |waiver: &str| {
            let entry = format!("{{ {waiver}, reason: all, until: never }}");
            warnings(&settings(&format!("version: 1\nwaivers:\n  - {entry}\n")))
        };
        for wide in ["holder: \"*\"", "class: \"*.*\", test: \"*\"", "frame: \"*!*\", test: \"*::*\""] {
            let told = told(wide);
            assert!(told.len() == 1 && told[0].starts_with("memgate.yaml:3: the waiver `"), "{told:?}");
        }
        for narrow in ["holder: \"*cache\"", "class: \"*\", test: \"engine::*\"", "frame: \"libc.so!*\""] {
            assert_eq!(told(narrow), [""; 0]);
        }
    }

    fn report(verdict: Verdict, test: &str) -> RunReport {
        let tests = vec![TestReport::new(test, Verdict::Pass)];
        let suite = SuiteReport::new("engine", Runner::Gtest, Verdict::Pass, tests);
        RunReport::new("tiles", "s", verdict, vec![suite])
    }

    #[test]
    fn limits_for_no_test_are_told() {
        let told = without_effect(&settings(YAML), &report(Verdict::Pass, "MapCache.scroll"));
        let said = "`Noisy.*` matches no test: correct or remove its limits";
        assert_eq!(told, [format!("memgate.yaml:16: {said}")]);
        let typo = settings(
            "version: 1\nthresholds:\n  tests:\n    - { match: \"engine::MapCash.scroll\", os.fds: 1 }\n",
        );
        let told = without_effect(&typo, &report(Verdict::Pass, "MapCache.scroll"));
        assert_eq!(
            told,
            [
                "memgate.yaml:4: `engine::MapCash.scroll` matches no test: did you mean `engine::MapCache.scroll`?"
            ]
        );
        assert!(
            without_effect(&settings(YAML), &report(Verdict::Error, "MapCache.scroll")).is_empty(),
            "a test may be missing"
        );
        let many: String =
            (0..4_000).map(|n| format!("    - {{ match: \"Gone{n}.*\", os.fds: 1 }}\n")).collect();
        let many = settings(&format!("version: 1\nthresholds:\n  tests:\n{many}"));
        let told = without_effect(&many, &report(Verdict::Pass, "MapCache.scroll"));
        assert_eq!(told.len(), 11);
        assert_eq!(told[10], "memgate.yaml:14 to memgate.yaml:4003: 3990 more entries match no test");
    }

    #[test]
    fn limits_for_a_mistyped_suite_name_its_tests() {
        let mut report = report(Verdict::Pass, "Decoder.Key");
        report.suites[0].name = "unit/tile_tests".to_owned();
        let yaml = "version: 1\nthresholds:\n  tests:\n    - { match: \"unit::Decoder.*\", native.live_bytes: 80 B }\n";
        assert_eq!(
            without_effect(&settings(yaml), &report),
            ["memgate.yaml:4: `unit::Decoder.*` matches no test: did you mean `unit/tile_tests::Decoder.*`?"]
        );
    }

    #[test]
    fn settings_for_the_suites_of_the_file_are_told_after_another_command() {
        let entry = "  tests:\n    - { match: \"engine/t::Map*\", os.fds: 1 }\n    - { match: \"Map*\", os.threads: 1 }\n";
        let waiver =
            "waivers:\n  - { leak: n1-5f1c09a2b47d1e03, test: \"engine::*\", reason: r, until: never }\n";
        let yaml = |suite: &str| {
            format!(
                "version: 1\nsuites: {{ {suite}: {{ run: [./run] }} }}\nthresholds:\n  os.rss: {{ per: suite, warn: +10%, \
                 against: baseline }}\n{entry}{waiver}"
            )
        };
        let mut report = report(Verdict::Pass, "MapCache.scroll");
        report.suites[0].name = "t".to_owned();
        let mut settings = settings(&yaml("engine"));
        let told = of_other_suites(&settings, &report).unwrap();
        assert_eq!(
            told,
            "this command is not that of a suite in memgate.yaml (engine), and its tests have other names \
             (`t::MapCache.scroll`): these do not apply to them: `engine/t::Map*` (memgate.yaml:6), `engine::*` \
             (memgate.yaml:9); `memgate run --suite engine` runs a suite"
        );
        let json = r#"{"schema_version":1,"suites":{"engine/t":{"metrics":{"os.rss":{"value":1000.0,"per":"suite"}}}}}"#;
        settings.baseline = Some(Baseline::from_json(json).unwrap());
        assert!(of_other_suites(&settings, &report).unwrap().contains(", the baseline; "));
        report.suites[0].name = "engine/t".to_owned();
        let matched = of_other_suites(&settings, &report).unwrap();
        assert!(!matched.contains("Map*") && !matched.contains("baseline"), "{matched}");
        report.suites[0].tests[0].id = "Other.a".to_owned();
        report.suites[0].name = "engine".to_owned();
        settings.baseline = None;
        assert_eq!(of_other_suites(&settings, &report), None, "all apply");
    }

    #[test]
    fn an_entry_that_earlier_ones_hide_is_said() {
        let report = report(Verdict::Pass, "Cache.fills");
        let of = |entries: &[&str]| {
            let entries: String =
                entries.iter().map(|entry| format!("    - {{ match: {entry} }}\n")).collect();
            without_effect(&settings(&format!("version: 1\nthresholds:\n  tests:\n{entries}")), &report)
        };
        let told = |second: &str| of(&["\"*\", native.live_bytes: 1 KiB", second]);
        let hidden = told("\"Cache.*\", native.live_bytes: 0");
        let said = "memgate.yaml:5: `Cache.*` has no effect: `*` comes first (memgate.yaml:4), and the first entry that \
                    names test and metric counts";
        assert_eq!(hidden, [said]);
        assert_eq!(told("\"*\", os.fds: 1"), [""; 0], "another metric");
        assert_eq!(told("\"Cache.*\", native.live_bytes: 0, os.fds: 1"), [""; 0], "it decides one metric");
        assert_eq!(told("\"Gone.*\", native.live_bytes: 0").len(), 1, "that it matches no test is enough");
        let bytes = |tests: &str| format!("\"{tests}\", native.live_bytes: 1");
        let fallback = of(&[&bytes("Cache.fill?"), &bytes("Cache.*")]);
        assert_eq!(fallback, [""; 0], "`Cache.fills2` is left to it");
        let deciding = of(&["\"*\", os.fds: 1", &bytes("C*"), &bytes("Cache.*")]);
        assert!(deciding[0].contains("`C*` comes first (memgate.yaml:5)"), "{deciding:?}");
    }
}
