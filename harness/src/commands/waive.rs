//! `memgate waive`: appends a waiver to the waivers file, or extends one that has ended or is for less than the leak.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use jiff::civil::Date;
use memgate_config::{
    NewWaiver, Place, TestGlob, WaiveError, Waiver, WaiverTarget, append_waiver, extend_waiver,
};
use memgate_model::{Leak, LeakKind, Runner, Verdict};
use memgate_reports::{is_within, name_in_waiver};

use super::{report, settings};
use crate::cli::WaiveArgs;
use crate::exit::{self, ExpectedError};
use crate::output::Console;
use crate::session::{LATEST, ROOT, write_where_it_leads};

/// Maximum number of sessions in which a leak is looked for.
const MOST_SESSIONS: usize = 20;

pub(super) fn waive(request: &WaiveArgs, console: &Console) -> Result<u8, ExpectedError> {
    let file = settings::waivers_file(request.config.config.as_deref())?;
    let today = settings::world()?.today;
    if request.until.over(today) {
        return Err(ExpectedError::Usage {
            what: format!("cannot waive: {} is past, the waiver would cover nothing", request.until),
            hint: "`--until` takes the last day of the waiver".to_owned(),
        });
    }
    // A configuration with mistakes has no waiver: the next run reports them.
    let settings = settings::load(request.config.config.as_deref(), console);
    let waivers = settings.map(|settings| settings.config.waivers).unwrap_or_default();
    let named = || request.leaks.iter().map(|id| (id.clone(), request.test.clone())).collect();
    let leaks = if request.all { failed(request, console)? } else { named() };
    let named = request.all.then(|| request.session.clone());
    let sessions: Vec<PathBuf> = named.into_iter().chain(newest(Path::new(ROOT))).collect();
    let all = known(&sessions, leaks.iter().map(|(id, _)| id.as_str()));
    let mut refused = Vec::new();
    for (id, test) in &leaks {
        let request = &WaiveArgs { test: test.clone(), ..request.clone() };
        let known = all.get(id);
        let exceeded = |waiver: &Waiver| known.is_some_and(|known| known.exceeds(waiver, today));
        let is_its = |waiver: &&Waiver| {
            // Without `--test`, a waiver for some tests is raised if all tests that leak are among them.
            let is_for_all = || known.is_some_and(|known| known.are_all_in(waiver));
            covers(waiver, id, request)
                || test.is_none()
                    && is_of(waiver, id)
                    && !waiver.until.over(today)
                    && exceeded(waiver)
                    && is_for_all()
        };
        let covering = waivers.iter().filter(is_its);
        // One that has not ended counts first, then that of the same tests.
        let is_other = |waiver: &Waiver| waiver.test.as_ref().map(TestGlob::text) != request.test.as_deref();
        let is_over = |waiver: &Waiver| waiver.until.over(today) || exceeded(waiver);
        let done = match covering.min_by_key(|waiver| (waiver.until.over(today), is_other(waiver))) {
            Some(waiver) if is_over(waiver) => extend(id, request, waiver, (known, today), console),
            Some(waiver) if request.all => {
                console.line(&format!("{id} is waived already at {}", waiver.place));
                Ok(())
            }
            Some(waiver) => Err(ExpectedError::usage(
                format!("cannot waive: the leak {id} is waived already at {}", waiver.place),
                "change the date there",
            )),
            None => waive_new(id, request, (&file, &sessions), known, console),
        };
        refused.extend(done.err());
    }
    // The others are waived.
    let Some(last) = refused.pop() else { return Ok(exit::PASS) };
    refused.iter().for_each(|why| console.warning(&exit::chain(why)));
    Err(last)
}

/// Ids of leaks, each with the tests in which to waive it.
type Leaks = BTreeSet<(String, Option<String>)>;

/// The leaks without a waiver for which a test of the session failed. An id that names only a kind is waived
/// only in the tests that have it.
fn failed(request: &WaiveArgs, console: &Console) -> Result<Leaks, ExpectedError> {
    let (report, file) = report::read(&request.session)?;
    let wanted = match request.test.as_deref().map(TestGlob::typed).transpose() {
        Ok(wanted) => wanted,
        Err(why) => return Err(ExpectedError::usage(format!("cannot waive: `--test`: {why}"), "")),
    };
    let is_wanted =
        |suite: &str, test: &str| wanted.as_ref().is_none_or(|wanted| wanted.matches(suite, test));
    let mut found = Leaks::new();
    let mut is_told = false;
    for suite in &report.suites {
        let failed = suite.tests.iter().filter(|test| test.verdict == Verdict::Fail);
        for test in failed.filter(|test| is_wanted(&suite.name, &test.id)) {
            let name = format!("{}::{}", suite.name, test.id);
            // Growth within its threshold is listed too.
            let failed = |leak: &&Leak| leak.waiver.is_none() && !is_within(leak, test);
            let leaks: Vec<_> = test.leaks.iter().filter(failed).collect();
            if leaks.is_empty() {
                console.warning(&format!("{name} failed, but has no leak that a waiver can name"));
                is_told = true;
            }
            found.extend(leaks.into_iter().map(|leak| {
                let only = leak.is_of_kind(suite.runner).then(|| name_in_waiver(&suite.name, &test.id));
                (leak.id.clone(), request.test.clone().or(only))
            }));
        }
    }
    let session = report::session_of(&file);
    if session.is_some() && report::is_partial(session.as_ref())? {
        console.line("the run was partial: leaks of tests that did not run get no waiver");
    }
    if found.is_empty() && !is_told {
        let of = if wanted.is_some() { "no test that `--test` matches" } else { "no test" };
        console.line(&format!("no leak to waive: {of} failed in {}", file.display()));
    }
    Ok(found)
}

/// Appends a waiver for a leak that has none. The sessions tell which leak it is.
fn waive_new(
    id: &str,
    request: &WaiveArgs,
    (file, sessions): (&Path, &[PathBuf]),
    known: Option<&Known>,
    console: &Console,
) -> Result<(), ExpectedError> {
    if known.is_none()
        && let Some((_, near)) =
            sessions.iter().find_map(|session| leaks_of(session, |leak| is_near(&leak.id, id)).pop_first())
    {
        return Err(ExpectedError::usage(
            format!("cannot waive: no report here knows the leak {id}"),
            format!("did you mean {} ({})?", near.leak.id, near.title()),
        ));
    }
    add(id, request, file, known)?;
    let tests = request.test.as_ref().map(|test| format!(" in {test}")).unwrap_or_default();
    console.line(&format!("waived {id}{tests} until {} in {}", request.until, file.display()));
    let Some(known) = known else {
        console.warning(&format!("no report here knows the leak {id}: is the id right?"));
        return Ok(());
    };
    match request.test.as_deref() {
        Some(test) if !known.is_in(test) => console
            .warning(&format!("the leak was last seen in {}, which `{test}` does not match", known.place())),
        None if known.leak.is_of_kind(known.runner) => console
            .line("its id names only its kind: this accepts every one of its kind, in all tests; `--test` limits it"),
        _ => {}
    }
    Ok(())
}

/// Does this waiver cover the leak in the tests of the request, or did it until it ended?
fn covers(waiver: &Waiver, id: &str, request: &WaiveArgs) -> bool {
    let test = waiver.test.as_ref().map(TestGlob::text);
    is_of(waiver, id) && (test.is_none() || test == request.test.as_deref())
}

fn is_of(waiver: &Waiver, id: &str) -> bool {
    waiver.target == WaiverTarget::Leak(id.to_owned())
}

/// Gives a waiver that has ended, or whose leak exceeds its limit, its new date and limit. Its reason and owner stay.
fn extend(
    id: &str,
    request: &WaiveArgs,
    waiver: &Waiver,
    (known, today): (Option<&Known>, Date),
    console: &Console,
) -> Result<(), ExpectedError> {
    let Waiver { until, place, .. } = waiver;
    let test = waiver.test.as_ref().map(TestGlob::text);
    let exceeded = known.filter(|known| known.exceeds(waiver, today));
    let (why, remedy) = if until.over(today) {
        (format!("ended on {until}"), "change the date there, or remove that waiver")
    } else {
        ("is for less than it leaks".to_owned(), "raise `up_to` there")
    };
    let refused = || {
        let what = format!("cannot waive: the leak's waiver at {place} {why}");
        ExpectedError::usage(what, remedy)
    };
    let Place::File { file, .. } = place.clone() else { return Err(refused()) };
    // A waiver for all tests covers more than these.
    if request.test.is_some() && test != request.test.as_deref() {
        return Err(refused());
    }
    let file = Path::new(&*file);
    let existing = settings::read(file)?.ok_or_else(refused)?;
    let up_to = exceeded.and_then(|known| known.up_to(test));
    let text = extend_waiver(&existing, &file.display().to_string(), (id, test), request.until, up_to)
        .map_err(|_no_value_of_its_own| refused())?;
    write_where_it_leads(file, text.as_bytes()).map_err(|why| ExpectedError::failed(&why))?;
    let tests = test.map(|test| format!(" in {test}")).unwrap_or_default();
    console.line(&format!(
        "waived {id}{tests} until {} at {place}, which {why}; its reason and owner stay",
        request.until
    ));
    Ok(())
}

fn add(id: &str, request: &WaiveArgs, file: &Path, known: Option<&Known>) -> Result<(), ExpectedError> {
    let existing = settings::read(file)?.unwrap_or_default();
    let waiver = NewWaiver {
        leak: id.to_owned(),
        test: request.test.clone(),
        reason: request.reason.clone(),
        owner: request.owner.clone(),
        until: request.until,
        up_to: known.and_then(|known| known.up_to(request.test.as_deref())),
        comment: known.map(Known::title),
    };
    let text =
        append_waiver(&existing, &file.display().to_string(), &waiver).map_err(|why| cannot(file, &why))?;
    write_where_it_leads(file, text.as_bytes()).map_err(|why| ExpectedError::failed(&why))
}

fn cannot(file: &Path, why: &WaiveError) -> ExpectedError {
    let why = why.to_string();
    let (what, hint) = why.split_once("\nhint: ").unwrap_or((&why, ""));
    ExpectedError::usage(format!("{}: cannot waive: {what}", file.display()), hint)
}

/// A leak of a report, and the tests that have it, each with its suite: at least one.
struct Known {
    tests: Vec<(String, String)>,
    runner: Runner,
    leak: Leak,
    /// How much it leaks in each of the tests, and whether a waiver was for less.
    amounts: Vec<(f64, bool)>,
}

impl Known {
    fn title(&self) -> String {
        format!("{}: {}", self.place(), self.leak.title)
    }

    /// The first of its tests, as `suite::Test.name`.
    fn place(&self) -> String {
        let (suite, test) = &self.tests[0];
        format!("{suite}::{test}")
    }

    fn is_in(&self, pattern: &str) -> bool {
        let pattern = TestGlob::typed(pattern);
        pattern.is_ok_and(|pattern| self.tests.iter().any(|(suite, test)| pattern.matches(suite, test)))
    }

    /// Is the waiver for all tests that have the leak?
    fn are_all_in(&self, waiver: &Waiver) -> bool {
        let matches = |test: &TestGlob| self.tests.iter().all(|(suite, name)| test.matches(suite, name));
        waiver.test.as_ref().is_none_or(matches)
    }

    /// Is the limit of this waiver less than the leak in its tests?
    fn exceeds(&self, waiver: &Waiver, today: Date) -> bool {
        // Nobody compared it with the limit of a waiver that has ended.
        let is_compared = |exceeds: bool| exceeds || waiver.until.over(today);
        let is_its = |(suite, test): &(String, String)| {
            waiver.test.as_ref().is_none_or(|pattern| pattern.matches(suite, test))
        };
        let of = self.tests.iter().zip(&self.amounts).filter(|(test, _)| is_its(test));
        let of = of.filter(|(_, (_, exceeds))| is_compared(*exceeds));
        let most = of.map(|(_, (amount, _))| *amount).fold(0.0, f64::max);
        waiver.up_to.is_some_and(|up_to| most > up_to)
    }

    /// Limit of a waiver for these tests. Bytes may double: they differ slightly between machines and compilers.
    fn up_to(&self, test: Option<&str>) -> Option<f64> {
        let pattern = test.and_then(|pattern| TestGlob::typed(pattern).ok());
        let is_meant = |(suite, test): &(String, String)| {
            pattern.as_ref().is_none_or(|pattern| pattern.matches(suite, test))
        };
        let of = self.tests.iter().zip(&self.amounts).filter(|(test, _)| is_meant(test));
        // A class that has no time for its tests is judged as a whole.
        let of_java = matches!(self.runner, Runner::Junit | Runner::Instrumentation);
        let mut sums: BTreeMap<(&str, &str), f64> = BTreeMap::new();
        for ((suite, test), (amount, _)) in of {
            let unit = test.split(['(', '[']).next().and_then(|name| name.rsplit_once('.'));
            *sums.entry((suite, unit.filter(|_| of_java).map_or(test, |(class, _)| class))).or_default() +=
                amount;
        }
        let most = sums.into_values().fold(0.0, f64::max);
        let factor = if self.leak.kind == LeakKind::Os { 1.0 } else { 2.0 };
        (most > 0.0).then_some(factor * most)
    }
}

/// Most characters of an id that are taken for a slip: ids of two leaks differ in nearly all.
const MOST_SLIPS: usize = 3;

/// Is one id probably the other one, mistyped?
fn is_near(id: &str, typed: &str) -> bool {
    let differ = id.chars().zip(typed.chars()).filter(|(a, b)| a != b).count();
    id.len() == typed.len() && differ <= MOST_SLIPS
}

/// The folders of the last sessions, the newest first.
fn newest(root: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut folders: Vec<PathBuf> = folders.filter(|path| path.is_dir() && !path.ends_with(LATEST)).collect();
    // The name of a session begins with its time.
    folders.sort_unstable_by(|a, b| b.cmp(a));
    folders.truncate(MOST_SESSIONS);
    folders
}

/// Leaks by their ids, each in the first of these sessions that has it. A session is read once.
fn known<'i>(sessions: &[PathBuf], ids: impl IntoIterator<Item = &'i str>) -> BTreeMap<String, Known> {
    let mut missing: BTreeSet<&str> = ids.into_iter().collect();
    let mut all = BTreeMap::new();
    for session in sessions {
        if missing.is_empty() {
            break;
        }
        let found = leaks_of(session, |leak| missing.contains(leak.id.as_str()));
        missing.retain(|id| !found.contains_key(*id));
        all.extend(found);
    }
    all
}

/// Some leaks of a session by their ids; none if its report cannot be read.
fn leaks_of(session: &Path, is_wanted: impl Fn(&Leak) -> bool) -> BTreeMap<String, Known> {
    let mut found = BTreeMap::<String, Known>::new();
    let Ok((report, _)) = report::read(session) else { return found };
    for suite in &report.suites {
        for test in &suite.tests {
            let mut of_test = BTreeSet::new();
            for leak in test.leaks.iter().chain(&test.one_time).filter(|leak| is_wanted(leak)) {
                if !of_test.insert(&leak.id) {
                    continue;
                }
                let known = found.entry(leak.id.clone()).or_insert_with(|| Known {
                    tests: Vec::new(),
                    runner: suite.runner,
                    leak: leak.clone(),
                    amounts: Vec::new(),
                });
                known.tests.push((suite.name.clone(), test.id.clone()));
                known.amounts.push((leak.amount(), leak.waived_up_to.is_some()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use memgate_config::{Config, Until};
    use memgate_model::{
        Frame, Level, Metric, MetricValue, Per, RunReport, SuiteReport, TestReport, Threshold,
        ThresholdSource,
    };

    use super::*;
    use crate::cli::{ColorChoice, ConfigArgs};

    const ID: &str = "n1-5f1c09a2b47d1e03";
    const TODAY: Date = jiff::civil::date(2026, 11, 21);

    fn request() -> WaiveArgs {
        WaiveArgs {
            config: ConfigArgs::default(),
            leaks: Vec::new(),
            all: false,
            session: PathBuf::new(),
            test: None,
            reason: "known".into(),
            until: Until::Never,
            owner: None,
        }
    }

    /// A session with a suite `engine`, whose tests have these verdicts and leaks.
    fn session(sessions: &Path, name: &str, tests: Vec<TestReport>) {
        let suite = SuiteReport::new("engine", Runner::Gtest, Verdict::Fail, tests);
        let report = RunReport::new("tiles", name, Verdict::Fail, vec![suite]);
        let path = sessions.join(name);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("report.json"), serde_json::to_string(&report).unwrap()).unwrap();
    }

    fn leaking(test: &str, id: &str, verdict: Verdict) -> TestReport {
        let leak = Leak { id: id.to_owned(), title: "1 × 7 B".to_owned(), ..Leak::default() };
        let metrics = [exceeding(Metric::NativeLiveBytes)].into();
        TestReport { leaks: vec![leak], metrics, ..TestReport::new(test, verdict) }
    }

    fn exceeding(metric: Metric) -> (Metric, MetricValue) {
        let threshold = Threshold { limit: 0.0, level: Level::Fail, source: ThresholdSource::Default };
        let threshold = Some(threshold);
        (metric, MetricValue { threshold, ..MetricValue::exact(7.0, metric, Per::Iteration) })
    }

    #[test]
    fn all_leaks_that_failed_in_a_session_are_waived_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let mut waived = leaking("A.c", "n1-c", Verdict::Fail);
        waived.leaks[0].waiver = Some("known".to_owned());
        let warned = leaking("A.d", "n1-d", Verdict::Warn);
        let tests = vec![
            leaking("A.a", "n1-a", Verdict::Fail),
            leaking("B.b", "n1-b", Verdict::Fail),
            waived,
            warned,
        ];
        let console = Console::new(ColorChoice::Never);
        let failed = |test: Option<&str>| {
            let session = folder.path().join("merged");
            let request = WaiveArgs { session, test: test.map(str::to_owned), ..request() };
            super::failed(&request, &console)
        };
        failed(None).unwrap_err();
        let mut kind = leaking("A.e", "o1-e", Verdict::Fail);
        (kind.leaks[0].kind, kind.leaks[0].title) = (LeakKind::Os, "1 × descriptor /tmp/a".to_owned());
        let (bytes, mut within) = exceeding(Metric::NativeLiveBytes);
        within.threshold.as_mut().unwrap().limit = 7.0;
        kind.metrics = [exceeding(Metric::OsFds), (bytes, within)].into();
        kind.leaks.push(Leak { id: "n1-f".to_owned(), ..Leak::default() });
        // No figure counts what a dump shows.
        let dumped = Leak { id: "h1-g".to_owned(), kind: LeakKind::Heap, ..Leak::default() };
        kind.leaks.push(dumped);
        session(folder.path(), "merged", [tests, vec![kind]].concat());
        let leak = |id: &str, test: Option<&str>| (id.to_owned(), test.map(str::to_owned));
        let all =
            [leak("n1-a", None), leak("n1-b", None), leak("o1-e", Some("engine::A.e")), leak("h1-g", None)];
        assert_eq!(failed(None).unwrap(), all.into());
        assert_eq!(failed(Some("engine::B.*")).unwrap(), [leak("n1-b", Some("engine::B.*"))].into());
        let of_java = Leak { kind: LeakKind::Os, frames: vec![Frame::default()], ..Leak::default() };
        assert!(of_java.is_of_kind(Runner::Junit));
    }

    #[test]
    fn a_waiver_is_added_once_and_is_then_in_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memgate-waivers.yaml");
        let request =
            WaiveArgs { reason: "upstream: \"1234\"".into(), owner: Some("@maps".into()), ..request() };
        add(ID, &request, &file, None).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let config = Config::parse("version: 1", "memgate.yaml", &|_| None, Some(("w.yaml", &text))).unwrap();
        assert_eq!(config.waivers[0].reason, "upstream: \"1234\"");
        let again = add(ID, &request, &file, None).unwrap_err();
        assert!(again.to_string().contains("waived already"), "{again}");
        assert_eq!(fs::read_to_string(&file).unwrap(), text, "and the file is as it was");
    }

    #[test]
    fn a_waiver_that_has_ended_is_extended_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("w.yaml");
        let text = |until: &str| {
            format!("waivers:\n  - {{ leak: n1-5f1c09a2b47d1e03, reason: r, until: {until} }}\n")
        };
        let ended = text("2026-11-15");
        fs::write(&file, &ended).unwrap();
        let named = (file.to_str().unwrap(), ended.as_str());
        let config = Config::parse("version: 1", "memgate.yaml", &|_| None, Some(named)).unwrap();
        let extended = |test: Option<&str>| {
            let request = WaiveArgs { test: test.map(str::to_owned), ..request() };
            extend(ID, &request, &config.waivers[0], (None, TODAY), &Console::new(ColorChoice::Never))
        };
        let why = extended(Some("A.*")).unwrap_err().to_string();
        assert!(why.ends_with("w.yaml:2 ended on 2026-11-15"), "it covers more than that: {why}");
        assert_eq!(fs::read_to_string(&file).unwrap(), ended);
        extended(None).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), text("never"));
    }

    #[test]
    fn a_waiver_is_for_twice_the_bytes_of_today_and_its_limit_is_raised_when_the_leak_has_grown() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("w.yaml");
        let console = Console::new(ColorChoice::Never);
        let leaks = |id: &str, amounts: &[f64], exceeds: Option<f64>| {
            let test = |(number, bytes): (usize, &f64)| {
                let mut test = leaking(&format!("A.t{number}"), id, Verdict::Fail);
                let leak = &mut test.leaks[0];
                (leak.bytes_per_iteration, leak.count_per_iteration) = (*bytes, 3.0);
                leak.waived_up_to = exceeds;
                if id.starts_with("o1-") {
                    leak.kind = LeakKind::Os;
                }
                test
            };
            session(folder.path(), "20261101-100000-1", amounts.iter().enumerate().map(test).collect());
            known(&newest(folder.path()), [id]).remove(id).unwrap()
        };
        for (id, test, limit) in [
            (ID, None, "up_to: 140 B"),
            (ID, Some("A.t0"), "up_to: 24 B"),
            ("o1-5f1c09a2b47d1e03", None, "up_to: 3\n"),
        ] {
            let request = WaiveArgs { test: test.map(str::to_owned), ..request() };
            fs::write(&file, "").unwrap();
            add(id, &request, &file, Some(&leaks(id, &[12.0, 70.0], None))).unwrap();
            let text = fs::read_to_string(&file).unwrap();
            assert!(text.contains(limit), "{text}");
        }
        let limited = |up_to: &str| {
            format!("waivers:\n  - {{ leak: {ID}, up_to: {up_to}, reason: r, until: never }}\n")
        };
        let before = limited("140 B");
        fs::write(&file, &before).unwrap();
        let named = (file.to_str().unwrap(), before.as_str());
        let config = Config::parse("version: 1", "memgate.yaml", &|_| None, Some(named)).unwrap();
        let waiver = &config.waivers[0];
        let larger = leaks(ID, &[12.0, 8000.0], Some(140.0));
        assert!(larger.exceeds(waiver, TODAY) && !leaks(ID, &[12.0, 8000.0], None).exceeds(waiver, TODAY));
        let other = WaiveArgs { test: Some("A.*".to_owned()), ..request() };
        let why = extend(ID, &other, waiver, (Some(&larger), TODAY), &console).unwrap_err().to_string();
        assert!(why.ends_with("w.yaml:2 is for less than it leaks"), "{why}");
        extend(ID, &request(), waiver, (Some(&larger), TODAY), &console).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), limited("16 KiB"));
        // Nobody compared the leak with a waiver that has ended, or that is for another test.
        let parsed = |text: &str| {
            let named = (file.to_str().unwrap(), text);
            Config::parse("version: 1", "memgate.yaml", &|_| None, Some(named)).unwrap().waivers.remove(0)
        };
        let ended = parsed(&before.replace("never", "2026-11-15"));
        assert!(leaks(ID, &[12.0, 8000.0], None).exceeds(&ended, TODAY));
        let of_one = |test: &str| parsed(&before.replace("reason", &format!("test: \"{test}\", reason")));
        let larger = leaks(ID, &[12.0, 8000.0], Some(140.0));
        assert!(larger.exceeds(&of_one("A.t1"), TODAY) && !larger.exceeds(&of_one("A.t0"), TODAY));
        assert!(larger.are_all_in(&of_one("A.*")) && !larger.are_all_in(&of_one("A.t1")));
        // A class may be judged as a whole.
        let of_java = Known { runner: Runner::Junit, ..leaks(ID, &[12.0, 70.0], None) };
        assert_eq!(of_java.up_to(None), Some(164.0));
    }

    #[test]
    fn a_leak_is_known_from_the_newest_session_that_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let session = |name: &str, leaks: &[(&str, &str)]| {
            let tests = leaks.iter().map(|(test, id)| leaking(test, id, Verdict::Fail)).collect();
            session(folder.path(), name, tests);
        };
        session("20261101-100000-1", &[("A.old", "n1-a")]);
        session("20261102-100000-1", &[("A.b", "n1-a"), ("A.c", "n1-a"), ("A.d", "n1-d")]);
        session("20261103-100000-1", &[("A.d", "n1-d")]);
        let all = super::known(&newest(folder.path()), ["n1-a", "n1-d", "n1-none"]);
        let tests = |id: &str| all.get(id).map(|known| known.tests.len());
        assert_eq!((tests("n1-a"), tests("n1-d"), tests("n1-none")), (Some(2), Some(1), None));
        let known = |id: &str| super::known(&newest(folder.path()), [id]).remove(id);
        let found = known("n1-a").unwrap();
        assert_eq!(found.title(), "engine::A.b: 1 × 7 B");
        for (pattern, is) in
            [("A.b", true), ("A.c", true), ("engine::A.*", true), ("A.d", false), ("other::A.b", false)]
        {
            assert_eq!(found.is_in(pattern), is, "{pattern}");
        }
        assert!(known("n1-none").is_none());
    }

    #[test]
    fn an_id_with_a_slip_is_near_and_that_of_another_leak_is_not() {
        let id = "n1-5f1c09a2b47d1e03";
        for (typed, near) in [
            ("n1-5f1c09a2b47d1e30", true),
            ("n1-5f1c09a2b74d1e03", true),
            ("n1-067741f2039419e0", false),
            ("j1-5f1c09a2b47d1e03", true),
            ("n1-5f1c09a2b47d1e0", false),
        ] {
            assert_eq!(is_near(id, typed), near, "{typed}");
        }
    }
}
