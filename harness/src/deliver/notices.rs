//! Notices of a server about a run: new, returned or gone leaks on its line, and figures at a higher level, in the same
//! mail and chat message that a run itself would send.
//!
//! Data flow: a notice of the store → a report of only those leaks, and the changes that it describes →
//! [`mail`](super::mail) or [`webhooks`](super::webhooks).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use memgate_config::{Mail, Reports, Webhook};
use memgate_model::{Leak, RunReport, Runner, SuiteReport, TestReport, Verdict, format_change};
use memgate_reports::mail::Surroundings;
use memgate_reports::{Changes, Ended, source_line, who};
use memgate_server::store::{Change, Notice, Shifted};
use memgate_server::view::{State, What};

use super::context::RunContext;
use super::mail::{self, Sent};
use super::webhooks;
use crate::output::Console;

/// Name shown for a whole suite instead of a test.
const WHOLE: &str = "(the whole suite)";

/// Recipients who already got the mails of a notice that did not reach everybody, by the content of the notice: they do
/// not get it again.
type Handed = Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>;

/// A way to notify people; each sends a change once.
#[derive(Debug, Clone)]
pub(crate) enum Channel {
    Mail(Box<Mail>, Handed),
    Webhook(Webhook),
}

impl Channel {
    /// All channels of a configuration.
    pub(crate) fn all(reports: Reports) -> Vec<Self> {
        // The run itself contains the owners of its leaks; there is no CODEOWNERS to read here.
        let mail = reports.mail.map(|mail| Mail { owners: Some(PathBuf::new()), ..mail });
        let webhooks = reports.webhooks.into_iter().map(Self::Webhook);
        mail.map(|mail| Self::Mail(Box::new(mail), Handed::default())).into_iter().chain(webhooks).collect()
    }

    /// The key for the store: it stays the same while the configuration does.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Mail(..) => "mail".to_owned(),
            Self::Webhook(webhook) => format!("{} {}", webhook.chat.name(), webhook.url),
        }
    }

    /// Notifies about a run; `page` is its address. Failures are warnings. Returns whether nothing is left to send.
    pub(crate) fn tell(&self, notice: &Notice, page: String, console: &Console) -> bool {
        let report = report(notice);
        let context = RunContext {
            surroundings: Surroundings {
                branch: notice.run.branch.clone(),
                commit: notice.run.sha.clone(),
                environment: notice.run.environment.clone(),
                page,
                ..Surroundings::default()
            },
            changes: changes(notice),
            warnings: Vec::new(),
        };
        match self {
            Self::Mail(settings, open) => {
                let changes = &context.changes;
                let leaks = [&changes.new, &changes.back, &changes.grew]
                    .map(|leaks| leaks.keys().collect::<Vec<_>>());
                let key =
                    format!("{} {leaks:?} {:?} {:?}", notice.run.run, changes.gone.keys(), changes.higher);
                let open = || open.lock().unwrap_or_else(PoisonError::into_inner);
                let mut handed = open().remove(&key).unwrap_or_default();
                let sent = mail::send(&report, settings, &context, console, &mut handed);
                if sent == Sent::No {
                    open().insert(key, handed);
                }
                sent != Sent::No
            }
            Self::Webhook(webhook) => webhooks::post(&report, webhook, &context, console),
        }
    }
}

const fn is_here(change: &Change) -> bool {
    matches!(change.what, What::To(State::New | State::Regressed) | What::Larger)
}

fn suite_and_test(test: &str) -> (&str, &str) {
    test.split_once("::").unwrap_or(("", test))
}

fn changes(notice: &Notice) -> Changes {
    let suite = |change: &Change| change.tests.first().map_or("", |test| suite_and_test(test).0).to_owned();
    let that = |what: What| {
        let all = notice.changes.iter().filter(|change| change.what == what);
        all.map(|change| (change.leak.id.clone(), suite(change))).collect()
    };
    let ended = |change: &Change| {
        let source = source_line(&change.leak);
        let place = if source.is_empty() { source } else { format!(" · {source}") };
        Ended {
            suite: suite(change),
            line: format!("{}{place}", who(&change.leak)),
            fixed: change.what == What::To(State::Fixed),
            owners: change.leak.owners.clone(),
        }
    };
    let gone = notice.changes.iter().filter(|change| !is_here(change));
    Changes {
        new: that(What::To(State::New)),
        back: that(What::To(State::Regressed)),
        grew: that(What::Larger),
        gone: gone.map(|change| (change.leak.id.clone(), ended(change))).collect(),
        higher: notice.shifts.iter().map(higher).collect(),
        compared: true,
        changed: true,
    }
}

/// `engine_tests::Title.IsRead: native.live_bytes went up from 61 B to 122 B`.
fn higher(Shifted { suite, name, metric, before, after }: &Shifted) -> String {
    let (before, after) = format_change(*metric, *before, *after);
    let of = if name.is_empty() { suite.clone() } else { format!("{suite}::{name}") };
    format!("{of}: {metric} went up from {before} to {after}")
}

/// What happened to a test: leaks that came, and figures that rose, in words.
#[derive(Default)]
struct Happened<'n> {
    leaks: Vec<&'n Change>,
    rose: Vec<String>,
}

/// A report with the tests of leaks that came and of figures that rose to a higher level, as if only these had run.
fn report(notice: &Notice) -> RunReport {
    let mut suites = BTreeMap::<&str, BTreeMap<&str, Happened<'_>>>::new();
    for change in notice.changes.iter().filter(|change| is_here(change)) {
        for test in &change.tests {
            let (suite, test) = suite_and_test(test);
            suites.entry(suite).or_default().entry(test).or_default().leaks.push(change);
        }
    }
    for Shifted { suite, name, metric, before, after } in &notice.shifts {
        let (before, after) = format_change(*metric, *before, *after);
        let name = if name.is_empty() { WHOLE } else { name };
        let happened = suites.entry(suite).or_default().entry(name).or_default();
        happened.rose.push(format!("{metric} rose from {before} to {after}"));
    }
    let suites = suites.into_iter().map(|(name, tests)| {
        let is_java = tests.values().flat_map(|test| &test.leaks).any(|change| change.leak.kind.is_java());
        let runner = if is_java { Runner::Junit } else { Runner::Gtest };
        let tests: Vec<_> =
            tests.iter().map(|(name, happened)| test(name, happened, &notice.run.branch)).collect();
        let verdict = tests.iter().map(|test| test.verdict).max().unwrap_or(Verdict::Pass);
        SuiteReport::new(name, runner, verdict, tests)
    });
    let suites: Vec<_> = suites.collect();
    let verdict = suites.iter().map(|suite| suite.verdict).max().unwrap_or(Verdict::Pass);
    RunReport {
        started: jiff::Timestamp::from_microsecond(notice.run.started_us).unwrap_or_default().to_string(),
        duration_s: notice.run.duration_ms as f64 / 1e3,
        ..RunReport::new(&notice.project, &notice.run.session, verdict, suites)
    }
}

fn test(name: &str, Happened { leaks, rose }: &Happened<'_>, branch: &str) -> TestReport {
    let words: BTreeSet<_> = leaks.iter().map(|change| change.what.name()).collect();
    let came = (!words.is_empty()).then(|| words.into_iter().collect::<Vec<_>>().join(", "));
    let words: Vec<String> = came.into_iter().chain(rose.iter().cloned()).collect();
    let verdict = if leaks.is_empty() { Verdict::Warn } else { Verdict::Fail };
    let mut leaks: Vec<Leak> = leaks.iter().map(|change| change.leak.clone()).collect();
    leaks.sort_by(|a, b| b.bytes_per_iteration.total_cmp(&a.bytes_per_iteration));
    TestReport {
        reason: format!("{} on {branch}", words.join("; ")),
        confirmed: true,
        leaks,
        ..TestReport::new(name, verdict)
    }
}

#[cfg(test)]
mod tests {
    use memgate_model::Metric;
    use memgate_server::view::RunRow;

    use super::*;

    fn notice(changes: Vec<(What, &str)>, shifts: Vec<Shifted>) -> Notice {
        let leak = |id: &str| -> Leak {
            serde_json::from_value(serde_json::json!({
                "id": id, "kind": "native", "title": "61 B", "bytes_per_iteration": 61.0, "count_per_iteration": 1.0,
                "frames": [{ "function": "read_title", "file": "src/title.cc", "line": 1, "module": "engine",
                    "offset": 1, "inlined": false }],
                "owners": ["@titles"]
            }))
            .unwrap()
        };
        let change = |(what, id): (What, &str)| Change {
            what,
            leak: leak(id),
            tests: vec!["engine::Title.IsRead".to_owned()],
        };
        let run = RunRow {
            run: 7,
            session: "s".to_owned(),
            branch: "main".to_owned(),
            environment: "aarch64".to_owned(),
            sha: "8d21e07c55".to_owned(),
            dirty: false,
            started_us: 0,
            duration_ms: 0,
            verdict: Verdict::Fail,
            tests: 1,
            failed: 1,
            leaks: 1,
            new_leaks: 1,
            regressed_leaks: 0,
            larger_leaks: 0,
            fixed_leaks: 0,
            target: String::new(),
        };
        Notice::of("tiles".to_owned(), run, changes.into_iter().map(change).collect(), shifts)
    }

    #[test]
    fn a_message_says_what_the_history_says() {
        let shift = |name: &str| Shifted {
            suite: "engine".to_owned(),
            name: name.to_owned(),
            metric: Metric::NativeLiveBytes,
            before: 61.0,
            after: 122.0,
        };
        for (changed, shifts, words) in [
            (vec![(What::To(State::New), "n1-a")], vec![], "1 new leak in engine"),
            (vec![(What::To(State::Regressed), "n1-a")], vec![], "1 regressed leak in engine"),
            (
                vec![(What::To(State::Fixed), "n1-a"), (What::To(State::Gone), "n1-b")],
                vec![],
                "1 leak fixed in engine, 1 leak gone from engine",
            ),
            (
                vec![(What::Larger, "n1-a")],
                vec![shift("Title.IsRead")],
                "1 larger leak in engine, engine::Title.IsRead: native.live_bytes went up from 61 B to 122 B",
            ),
            (vec![], vec![shift("A.a")], "engine::A.a: native.live_bytes went up from 61 B to 122 B"),
            (vec![], vec![shift("A.a"), shift("")], "2 figures at a higher level"),
            (
                vec![(What::To(State::New), "n1-a")],
                vec![shift("Title.IsRead")],
                "1 new leak in engine, engine::Title.IsRead: native.live_bytes went up from 61 B to 122 B",
            ),
        ] {
            let notice = notice(changed, shifts);
            assert_eq!(changes(&notice).in_words(&report(&notice)), words);
        }
        let both =
            report(&notice(vec![(What::To(State::New), "n1-a")], vec![shift("Title.IsRead"), shift("A.a")]));
        let tests: Vec<_> = both.suites.iter().flat_map(|suite| &suite.tests).collect();
        let told: Vec<_> = tests.iter().map(|test| (test.verdict, test.reason.as_str())).collect();
        assert_eq!(
            told,
            [
                (Verdict::Warn, "native.live_bytes rose from 61 B to 122 B on main"),
                (Verdict::Fail, "new; native.live_bytes rose from 61 B to 122 B on main")
            ]
        );
        let ended = changes(&notice(vec![(What::To(State::Fixed), "n1-a")], Vec::new())).gone;
        assert_eq!(ended["n1-a"].line, "read_title · src/title.cc:1");
        assert_eq!(ended["n1-a"].owners, ["@titles"]);
    }
}
