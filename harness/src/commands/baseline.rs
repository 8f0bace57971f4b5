//! `memgate baseline accept`: makes the figures of a session the accepted ones, with which relative thresholds compare.
//! `memgate baseline fetch`: gets the leaks of the commit with which a review is merged.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use memgate_config::{Baseline, Thresholds, WindowBaseline};
use memgate_model::{Metric, Per, RunReport, Verdict, format_amount, format_list, format_number_of};

use super::{report, settings};
use crate::cli::{AcceptArgs, FetchArgs};
use crate::exit::{self, ExpectedError};
use crate::history::{Looking, base, manifest};
use crate::origin;
use crate::output::Console;
use crate::plan::{self, Settings};
use crate::session::unchanged::{self, Unchanged};
use crate::session::{WINDOWS_FILE, this_machine, write_where_it_leads};

/// Maximum number of accepted tests with leaks that are named.
const MOST_LEAKING: usize = 10;

pub(super) fn accept(request: &AcceptArgs, console: &Console) -> Result<u8, ExpectedError> {
    let settings = settings::load(request.config.config.as_deref(), console)?;
    let (mut report, file) = report::read(&request.session)?;
    super::merge::refuse_a_shard(&report, &file)?;
    if report.suites.is_empty() {
        return Err(ExpectedError::session(file, "it has no suites: there is nothing to accept", ""));
    }
    let policy = plan::policy(&settings, false, settings::world()?.today);
    let Settings { config, root, baseline, .. } = settings;
    let mut baseline = baseline.unwrap_or_default();
    let session = report::session_of(&file);
    let partial = report::is_partial(session.as_ref())?;
    let not_measured = session.as_ref().map_or(Ok(None), unchanged::of)?;
    let unchanged = not_measured.as_ref().map_or(0, |classes| without_figures_of(&mut report, classes));
    let accepted = baseline.accept(&report, partial);
    // Otherwise it is unknown which classes were measured.
    if not_measured.is_some() {
        baseline.accept_nothing(&report, |suite, test, metric| policy.is_relative(suite, test, metric));
    }
    let windows = windows(&file)?;
    let is_compared = config.thresholds.need_baseline() || !windows.is_empty();
    for (suite, windows) in windows {
        baseline.accept_windows(&report, &suite, windows, partial);
    }
    let path = root.join(&config.baseline.path);
    write(&baseline, &path)?;
    let tests: usize = report.suites.iter().map(|suite| suite.tests.len()).sum();
    console.line(&format!(
        "accepted the figures of {} of session {} in {}",
        format_number_of(accepted, "test"),
        report.session,
        path.display()
    ));
    if !is_compared {
        console.warning(
            "no threshold is relative to the baseline, so it changes no verdict: `against: baseline` (memgate docs config)",
        );
    }
    let leaking = accepted_leaks(&report, &config.thresholds);
    if !leaking.is_empty() {
        console.warning(&format!(
            "{} with leaks; as much as now, and what the thresholds add, is allowed from now on: {}",
            format_number_of(leaking.len(), "accepted test"),
            format_list(&leaking, MOST_LEAKING)
        ));
    }
    let not_judged = tests.saturating_sub(accepted).saturating_sub(unchanged);
    for (what, count) in [("not judged", not_judged), ("not measured again", unchanged)] {
        if count > 0 {
            console.line(&format!("{what}: {count}; what was accepted of them before stays"));
        }
    }
    if partial {
        console.line(
            "the run was partial: tests that did not run keep their figures, and so do their suites as a whole",
        );
    }
    Ok(exit::PASS)
}

/// Tests with leaks whose limits are relative to the figures that are now accepted, with these figures.
fn accepted_leaks(report: &RunReport, thresholds: &Thresholds) -> Vec<String> {
    let mut found = Vec::new();
    for (suite, test) in
        report.suites.iter().flat_map(|suite| suite.tests.iter().map(move |test| (suite, test)))
    {
        if matches!(test.verdict, Verdict::Error | Verdict::NotJudged) {
            continue;
        }
        let is_relative = |metric: Metric, per: Per| {
            let threshold = thresholds.for_test(&suite.name, &test.id, metric).filter(|it| it.per == per);
            let limit = threshold.and_then(|it| it.fail.or(it.warn));
            limit.is_some_and(|limit| limit.resolve(None).is_none())
        };
        let mut grows = test.metrics.iter().filter(|(metric, value)| {
            metric.leaks().is_some() && value.value > 0.0 && is_relative(**metric, value.per)
        });
        if let Some((metric, value)) = grows.next().filter(|_| !test.leaks.is_empty()) {
            let figure = format_amount(*metric, value.value);
            found.push(format!("{}::{} ({figure})", suite.name, test.id));
        }
    }
    found
}

/// Keeps the accepted figures for the tests of these classes. Returns the number of these tests.
fn without_figures_of(report: &mut RunReport, unchanged: &Unchanged) -> usize {
    let mut count = 0;
    for suite in &mut report.suites {
        let Some(unchanged) = unchanged.get(&suite.name) else { continue };
        let is_of = |id: &str, class: &str| id.strip_prefix(class).is_some_and(|rest| rest.starts_with('.'));
        let judged = suite
            .tests
            .iter_mut()
            .filter(|test| !matches!(test.verdict, Verdict::Error | Verdict::NotJudged));
        for test in judged.filter(|test| unchanged.iter().any(|class| is_of(&test.id, class))) {
            test.verdict = Verdict::NotJudged;
            count += 1;
        }
    }
    count
}

pub(super) fn fetch(request: &FetchArgs, console: &Console) -> Result<u8, ExpectedError> {
    let settings = settings::load(request.config.config.as_deref(), console)?;
    let history = &settings.config.history;
    let root = origin::project_root();
    let origin = origin::of_run(root.as_deref(), this_machine(), &[]);
    let commit = origin.commit.clone().unwrap_or_default();
    let repository = Looking::begin(root, false, commit).end();
    let merged = repository.merged.clone();
    let world = settings::world()?;
    let project = settings.project(&world.directory);
    let manifest = manifest(&project, "", (&origin, repository), false, history);
    let wanted = base::wanted(&manifest, &merged);
    let found = console.tell_if_slow(base::SLOW, || base::find(history, &project, &wanted, &request.data));
    let said = memgate_reports::base(&found.base);
    if found.base.is_none() || found.base.age_s.is_some() {
        return Err(ExpectedError::Machinery { what: said, hint: String::new() });
    }
    let alive = found.leaks.values().filter(|leak| leak.alive).count();
    console.line(&format!("{said}: {alive} leaks alive; {}", request.data.join(base::FILE).display()));
    Ok(exit::PASS)
}

/// The survivors of the windows of JVM suites, from the file next to the report; a report without its session has none.
fn windows(report: &Path) -> Result<BTreeMap<String, Vec<WindowBaseline>>, ExpectedError> {
    let path = report.with_file_name(WINDOWS_FILE);
    if !path.exists() {
        return Ok(BTreeMap::new());
    }
    let text = fs::read_to_string(&path).map_err(ExpectedError::file("read", &path))?;
    serde_json::from_str(&text)
        .map_err(|why| ExpectedError::session(path, why.to_string(), "run memgate again"))
}

fn write(baseline: &Baseline, path: &Path) -> Result<(), ExpectedError> {
    let text = baseline.to_json().map_err(|why| ExpectedError::machinery(why.to_string(), ""))?;
    write_where_it_leads(path, text.as_bytes()).map_err(|why| ExpectedError::failed(&why))
}
