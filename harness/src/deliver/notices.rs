//! What a server tells people of a run: the leaks that are new, back or gone on its line, and figures at a higher
//! level, in the mail and the chat message that a run itself would send.
//!
//! Data flow: a notice of the store → a report of those leaks alone, and what changed by it → [`mail`](super::mail)
//! or [`webhooks`](super::webhooks).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use memgate_config::{Mail, Reports, Webhook};
use memgate_model::{
    AgentCost, BoundaryQuality, Leak, Outcome, RunReport, Runner, SCHEMA_VERSION, SuiteReport, TestReport,
    Verdict, format_value,
};
use memgate_reports::mail::Surroundings;
use memgate_reports::{Changes, Checkout};
use memgate_server::store::{Change, Notice, Shifted};
use memgate_server::view::State;

use super::context::RunContext;
use super::{mail, webhooks};
use crate::output::Console;

/// What stands for a test where the whole suite is meant.
const WHOLE: &str = "(the whole suite)";

/// A way to tell people; each change is told once by each.
#[derive(Debug, Clone)]
pub(crate) enum Channel {
    Mail(Box<Mail>),
    Webhook(Webhook),
}

impl Channel {
    /// All that a configuration names.
    pub(crate) fn all(reports: Reports) -> Vec<Self> {
        // Whose a leak is came with its run; there is no CODEOWNERS to read here.
        let mail = reports.mail.map(|mail| Mail { owners: Some(PathBuf::new()), ..mail });
        let webhooks = reports.webhooks.into_iter().map(Self::Webhook);
        mail.map(|mail| Self::Mail(Box::new(mail))).into_iter().chain(webhooks).collect()
    }

    /// What the store knows it by: it stays the same while the configuration does.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Mail(_) => "mail".to_owned(),
            Self::Webhook(webhook) => format!("{} {}", webhook.chat.name(), webhook.url),
        }
    }

    /// Tells of a run; `page` is its address. Whatever goes wrong is a warning; was it sent?
    pub(crate) fn tell(&self, notice: &Notice, page: String, console: &Console) -> bool {
        let report = report(notice);
        let context = RunContext {
            surroundings: Surroundings {
                branch: notice.run.branch.clone(),
                commit: notice.run.sha.clone(),
                page,
                ..Surroundings::default()
            },
            checkout: Checkout::default(),
            changes: changes(&notice.changes),
            warnings: Vec::new(),
        };
        match self {
            Self::Mail(settings) => mail::send(&report, settings, &context, console),
            Self::Webhook(webhook) => webhooks::post(&report, webhook, &context, console),
        }
    }
}

const fn is_here(change: &Change) -> bool {
    matches!(change.state, State::New | State::Regressed | State::Known)
}

fn suite_and_test(test: &str) -> (&str, &str) {
    test.split_once("::").unwrap_or(("", test))
}

fn changes(all: &[Change]) -> Changes {
    let ids = |here: bool| {
        let suite =
            |change: &Change| change.tests.first().map_or("", |test| suite_and_test(test).0).to_owned();
        all.iter()
            .filter(|change| is_here(change) == here)
            .map(|change| (change.leak.id.clone(), suite(change)))
            .collect()
    };
    Changes { new: ids(true), gone: ids(false), compared: true, changed: true }
}

/// The tests of leaks that came, as if they were all that ran.
fn report(notice: &Notice) -> RunReport {
    let mut suites = BTreeMap::<&str, BTreeMap<&str, Vec<&Change>>>::new();
    for change in notice.changes.iter().filter(|change| is_here(change)) {
        for test in &change.tests {
            let (suite, test) = suite_and_test(test);
            suites.entry(suite).or_default().entry(test).or_default().push(change);
        }
    }
    let verdict = match (suites.is_empty(), notice.shifts.is_empty()) {
        (false, _) => Verdict::Fail,
        (true, false) => Verdict::Warn,
        (true, true) => Verdict::Pass,
    };
    let leaking = |(name, tests): (&str, BTreeMap<&str, Vec<&Change>>)| {
        let is_java = tests.values().flatten().any(|change| change.leak.kind.is_java());
        let tests = tests.into_iter().map(|(name, changes)| leaks(name, &changes, &notice.run.branch));
        suite(name, if is_java { Runner::Junit } else { Runner::Gtest }, Verdict::Fail, tests.collect())
    };
    let suites = suites.into_iter().map(leaking).chain(shifted(notice)).collect();
    RunReport {
        schema_version: SCHEMA_VERSION,
        verdict,
        exit_code: i32::from(verdict == Verdict::Fail),
        project: notice.project.clone(),
        session: notice.run.session.clone(),
        started: jiff::Timestamp::from_microsecond(notice.run.started_us).unwrap_or_default().to_string(),
        duration_s: notice.run.duration_ms as f64 / 1e3,
        agent_cost: AgentCost::default(),
        suites,
        waivers: Vec::new(),
        errors: Vec::new(),
        followed: None,
        origin: None,
        base: None,
        shards: Vec::new(),
    }
}

/// The tests of figures that came to a higher level.
fn shifted(notice: &Notice) -> Vec<SuiteReport> {
    let mut suites = BTreeMap::<&str, BTreeMap<&str, Vec<String>>>::new();
    for Shifted { suite, name, metric, before, after } in &notice.shifts {
        let (before, after) = (format_value(*metric, *before), format_value(*metric, *after));
        let name = if name.is_empty() { WHOLE } else { name };
        let said = format!("{metric} came from {before} to {after}");
        suites.entry(suite).or_default().entry(name).or_default().push(said);
    }
    let suites = suites.into_iter().map(|(name, tests)| {
        let reason = |said: Vec<String>| format!("{}, and stayed, on {}", said.join("; "), notice.run.branch);
        let tests = tests.into_iter().map(|(name, said)| test(name, Verdict::Warn, reason(said), Vec::new()));
        suite(name, Runner::Gtest, Verdict::Warn, tests.collect())
    });
    suites.collect()
}

fn suite(name: &str, runner: Runner, verdict: Verdict, tests: Vec<TestReport>) -> SuiteReport {
    SuiteReport {
        name: name.to_owned(),
        runner,
        boundary: BoundaryQuality::Exact,
        verdict,
        screened_s: 0.0,
        screen_executions: None,
        native_sampling: None,
        stacks_of_suspects: false,
        screen_cost: None,
        app_memory: None,
        hunt: None,
        reason: String::new(),
        metrics: BTreeMap::new(),
        curve: Vec::new(),
        test_ends: Vec::new(),
        clean_metrics: BTreeMap::new(),
        shards: Vec::new(),
        tests,
    }
}

fn leaks(name: &str, changes: &[&Change], branch: &str) -> TestReport {
    let words: BTreeSet<&str> = changes
        .iter()
        .map(|change| if change.state == State::Regressed { "back after its fix" } else { "new" })
        .collect();
    let reason = format!("{} on {branch}", words.into_iter().collect::<Vec<_>>().join(", "));
    test(name, Verdict::Fail, reason, changes.iter().map(|change| change.leak.clone()).collect())
}

fn test(name: &str, verdict: Verdict, reason: String, leaks: Vec<Leak>) -> TestReport {
    TestReport {
        id: name.to_owned(),
        is_class: false,
        clean: false,
        outcome: Outcome::Passed,
        verdict,
        reason,
        reason_is_figures: false,
        against_base: None,
        duration_s: 0.0,
        confirmed: true,
        metrics: BTreeMap::new(),
        leaks,
        one_time: Vec::new(),
        curve: Vec::new(),
        growth: Vec::new(),
        warm_up: 0,
    }
}
