//! Changes to report to people: leaks on lines, and figures at a higher level, each once per channel.
//!
//! Data flow: runs with events of the last day that nobody has claimed for a channel → one claim for all events of a
//! run, which one of several servers gets → [`Notice`]s, one per run → the caller sends them → [`Store::told`]. A claim
//! without a result (the server was killed, the mail server was away) is free again after [`LEASE_US`]. A line with
//! new runs → its newest runs → figures that a run showed at a higher level since the last report to this channel,
//! with the known leaks that are larger there, in the notice of that run.

use std::collections::{BTreeMap, BTreeSet};

use memgate_history::life::What;
use memgate_model::Leak;
use sqlx::any::{AnyArguments, AnyRow};
use sqlx::query::Query;
use sqlx::{Any, Row as _};

use super::ids::Ids;
use super::line_id::LineId;
use super::read::{KnownLeak, run_row, what_of};
use super::{Shifted, Store, StoreError, rows, statements as sql};
use crate::view::{RunRow, State};

/// Older changes are not reported: otherwise a copied history would be reported as a whole.
const NEWS_US: i64 = 24 * 3600 * 1_000_000;
/// After this many changes, the changes of further runs wait for the next report.
const AT_ONCE: usize = 1000;
/// How long a claim is valid.
pub const LEASE_US: i64 = 10 * 60 * 1_000_000;

/// Bytes and objects of a leak in one run: the leak's body has those of the newest. NULL: the run did not see it.
const SIGHTED: &str =
    "SELECT MAX(bytes), MAX(objects) FROM sighting WHERE project_id = $1 AND leak_id = $2 AND run_id = $3";
/// Is the run the first of its environment on its branch, and does another environment of the branch, or another line
/// in this environment, have the leak already? It does not count there if it is waived, because then it was not
/// reported, and not on another line if a line has fixed it.
const KNOWN_ELSEWHERE: &str = "SELECT COUNT(*) FROM run r WHERE r.project_id = $1 AND r.run_id = $3 \
     AND NOT EXISTS (SELECT 1 FROM run q WHERE q.project_id = r.project_id AND q.branch_id = r.branch_id \
     AND q.environment_id = r.environment_id AND q.run_id < r.run_id) \
     AND EXISTS (SELECT 1 FROM event v JOIN leak_line l ON l.project_id = v.project_id AND l.branch_id = v.branch_id \
     AND l.environment_id = v.environment_id AND l.leak_id = v.leak_id AND l.state IN (1, 2, 4) AND l.waived = 0 \
     WHERE v.project_id = r.project_id AND v.leak_id = $2 \
     AND (v.branch_id = r.branch_id) <> (v.environment_id = r.environment_id) AND v.run_id < r.run_id \
     AND (v.branch_id = r.branch_id OR NOT EXISTS (SELECT 1 FROM leak_line f WHERE f.project_id = r.project_id \
     AND f.leak_id = $2 AND f.environment_id = r.environment_id AND f.state = 3)))";

/// Changes of a run that were not reported yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Notice {
    /// The project.
    pub project: String,
    /// The run that showed it.
    pub run: RunRow,
    /// The leaks it changed.
    pub changes: Vec<Change>,
    /// The figures that it showed at a higher level.
    pub shifts: Vec<Shifted>,
    keys: Vec<Key>,
    line: Option<Line>,
    claimed_us: i64,
}

/// A leak that has changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// What happened to it: it is new, regressed, larger, fixed or gone.
    pub what: What,
    /// The leak.
    pub leak: Leak,
    /// The tests that had it last, as `suite::Test.name`.
    pub tests: Vec<String>,
}

impl Notice {
    /// The content of a message, without a claim.
    #[must_use]
    pub const fn of(project: String, run: RunRow, changes: Vec<Change>, shifts: Vec<Shifted>) -> Self {
        Self { project, run, changes, shifts, keys: Vec::new(), line: None, claimed_us: 0 }
    }

    /// Does the claim last long enough to send the notice now? Later, another server may send it too.
    #[must_use]
    pub const fn is_held(&self, now_us: i64) -> bool {
        now_us - self.claimed_us < LEASE_US / 2
    }
}

/// Project, channel, branch, environment, and the last run that was searched for shifts.
type Line = (i64, String, i64, i64, i64);

/// Project, channel, branch, leak, state, commit.
type Key = (i64, String, i64, i64, i64, String);

impl Store {
    /// Claims the unreported changes for a channel; `now_us` is the current time.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn claim_notices(&self, channel: &str, now_us: i64) -> Result<Vec<Notice>, StoreError> {
        let mut notices = Vec::new();
        for name in self.projects().await? {
            if let Some(project) = self.project(&name).await? {
                let mut of_project = self.claim_of((project, &name), channel, now_us).await?;
                // A new leak raises the figure of its test: one message tells both.
                for shifted in self.claim_shifts((project, &name), channel, now_us).await? {
                    match of_project.iter_mut().find(|notice| notice.run.run == shifted.run.run) {
                        Some(same) => {
                            let told: BTreeSet<_> =
                                same.changes.iter().map(|change| change.leak.id.clone()).collect();
                            let more = shifted.changes.into_iter();
                            same.changes.extend(more.filter(|change| !told.contains(&change.leak.id)));
                            (same.shifts, same.line) = (shifted.shifts, shifted.line);
                        }
                        None => of_project.push(shifted),
                    }
                }
                notices.append(&mut of_project);
            }
        }
        Ok(notices)
    }

    async fn claim_of(
        &self,
        (project, name): (i64, &str),
        channel: &str,
        now_us: i64,
    ) -> Result<Vec<Notice>, StoreError> {
        let due = sqlx::query(sql::DUE_RUNS)
            .bind(project)
            .bind(channel.to_owned())
            .bind(Ids::least(now_us - NEWS_US))
            .bind(now_us - LEASE_US)
            .fetch_all(&self.pool)
            .await?;
        let (mut claimed, mut notices) = (0, Vec::new());
        for row in due {
            if claimed >= AT_ONCE {
                break;
            }
            let run: i64 = row.try_get(0)?;
            let keys = self.claim_run(run, (project, channel), now_us).await?;
            claimed += keys.len();
            let (changes, keys) = self.changes(run, keys, now_us).await?;
            if changes.is_empty() {
                continue;
            }
            let row = sqlx::query(sql::RUN).bind(project).bind(run).fetch_one(&self.pool).await?;
            let run = run_row(&row)?;
            notices.push(Notice {
                project: name.to_owned(),
                run,
                changes,
                shifts: Vec::new(),
                keys,
                line: None,
                claimed_us: now_us,
            });
        }
        Ok(notices)
    }

    /// Claims all changes of a run that are due. Of two servers that try, one gets them.
    async fn claim_run(
        &self,
        run: i64,
        (project, channel): (i64, &str),
        now_us: i64,
    ) -> Result<Vec<Key>, StoreError> {
        let rows = sqlx::query(sql::CLAIM_NOTICES)
            .bind(project)
            .bind(channel.to_owned())
            .bind(Ids::least(now_us - NEWS_US))
            .bind(now_us - LEASE_US)
            .bind(run)
            .bind(now_us)
            .fetch_all(&self.pool)
            .await?;
        let key = |row: &AnyRow| {
            let (branch, leak, state) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            Ok((project, channel.to_owned(), branch, leak, state, row.try_get(3)?))
        };
        let mut keys = rows.iter().map(key).collect::<Result<Vec<Key>, StoreError>>()?;
        keys.sort_unstable();
        Ok(keys)
    }

    /// The claimed changes of a run. If another environment or line already has a leak, its change is left out and
    /// counts as reported.
    async fn changes(
        &self,
        run: i64,
        claimed: Vec<Key>,
        now_us: i64,
    ) -> Result<(Vec<Change>, Vec<Key>), StoreError> {
        let (mut changes, mut keys) = (Vec::new(), Vec::new());
        for claimed in claimed.chunks(rows::NAMED) {
            let Some((project, ..)) = claimed.first() else { continue };
            let ids = claimed.iter().map(|(_, _, _, leak, ..)| *leak).collect();
            let mut leaks = rows::leaks(&mut *self.pool.acquire().await?, *project, &ids).await?;
            for key in claimed {
                let Some(KnownLeak { leak, .. }) = leaks.remove(&key.3) else { continue };
                match self.change(run, key, leak).await? {
                    Some(change) => {
                        changes.push(change);
                        keys.push(key.clone());
                    }
                    None => {
                        keyed(sql::TOLD_NOTICE, key).bind(now_us).execute(&self.pool).await?;
                    }
                }
            }
        }
        Ok((changes, keys))
    }

    /// One change with the figures of its run; `None`: another environment or line already has the new leak.
    async fn change(&self, run: i64, key: &Key, known: Leak) -> Result<Option<Change>, StoreError> {
        let &(project, _, branch, leak, state, _) = key;
        let what = what_of(state)?;
        let elsewhere = sqlx::query(KNOWN_ELSEWHERE).bind(project).bind(leak).bind(run);
        let elsewhere: i64 = elsewhere.fetch_one(&self.pool).await?.try_get(0)?;
        if what == What::To(State::New) && elsewhere > 0 {
            return Ok(None);
        }
        let tests = self.tests_of_leak(project, leak).await?.into_iter();
        let mut tests: Vec<String> =
            tests.filter(|((of, _), _)| *of == branch).flat_map(|(_, tests)| tests).collect();
        tests.sort();
        tests.dedup();
        Ok(Some(Change { what, leak: self.as_seen((project, run, leak), known).await?, tests }))
    }

    /// A leak with the figures of a run.
    async fn as_seen(&self, (project, run, leak): (i64, i64, i64), known: Leak) -> Result<Leak, StoreError> {
        let sighted = sqlx::query(SIGHTED).bind(project).bind(leak).bind(run).fetch_one(&self.pool).await?;
        Ok(match (sighted.try_get(0)?, sighted.try_get(1)?) {
            (Some(bytes_per_iteration), Some(count_per_iteration)) => {
                Leak { bytes_per_iteration, count_per_iteration, ..known }
            }
            _ => known,
        })
    }

    /// The known leaks that are larger in the tests with these figures, each with the figures of the newest run that
    /// showed it.
    async fn larger(&self, line: LineId, found: &[(i64, Shifted)]) -> Result<Vec<Change>, StoreError> {
        let mut larger = BTreeMap::<i64, (i64, BTreeSet<String>)>::new();
        for run in found.iter().map(|(run, _)| *run).collect::<BTreeSet<_>>() {
            for row in line.query(sql::LARGER_OF_RUN).bind(run).fetch_all(&self.pool).await? {
                let (leak, suite, name): (i64, String, String) =
                    (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
                let is_its = |(of, at): &(i64, Shifted)| *of == run && at.suite == suite && at.name == name;
                if found.iter().any(is_its) {
                    let (newest, tests) = larger.entry(leak).or_default();
                    *newest = run;
                    tests.insert(format!("{suite}::{name}"));
                }
            }
        }
        let mut changes = Vec::with_capacity(larger.len());
        for ids in larger.keys().copied().collect::<Vec<_>>().chunks(rows::NAMED) {
            let ids = ids.iter().copied().collect();
            let known = rows::leaks(&mut *self.pool.acquire().await?, line.project, &ids).await?;
            for (id, KnownLeak { leak, .. }) in known {
                let Some((run, tests)) = larger.remove(&id) else { continue };
                let leak = self.as_seen((line.project, run, id), leak).await?;
                changes.push(Change { what: What::Larger, leak, tests: tests.into_iter().collect() });
            }
        }
        Ok(changes)
    }

    /// Figures that reached a higher level since the last report to a channel, one notice per line.
    async fn claim_shifts(
        &self,
        (project, name): (i64, &str),
        channel: &str,
        now_us: i64,
    ) -> Result<Vec<Notice>, StoreError> {
        let mut notices = Vec::new();
        // The clock was ahead when later runs were received: they are no news now, and the last report proves nothing.
        let ahead = Ids::least(now_us + LEASE_US);
        let lines = sqlx::query(sql::LAST_OF_LINES).bind(project).bind(now_us - NEWS_US);
        for row in lines.fetch_all(&self.pool).await? {
            let (branch, environment): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            let Some(last) = row.try_get::<Option<i64>, _>(2)?.filter(|last| *last < ahead) else { continue };
            let key = |statement: &'static str| {
                sqlx::query(statement).bind(project).bind(channel.to_owned()).bind(branch).bind(environment)
            };
            key(sql::BEGIN_SHIFTS).bind(last).execute(&self.pool).await?;
            let told: i64 = key(sql::TOLD_SHIFTS).fetch_one(&self.pool).await?.try_get(0)?;
            let since = if told < ahead { told } else { last - 1 };
            if since >= last {
                continue;
            }
            let of_line = LineId { project, branch, environment };
            let mut found = self.shifts_since(of_line, since).await?;
            found.retain(|(run, _)| *run < ahead);
            let line = (project, channel.to_owned(), branch, environment, last);
            let Some(run) = found.iter().map(|(run, _)| *run).max() else {
                self.told_line(&line, now_us).await?;
                continue;
            };
            let claim = key(sql::CLAIM_SHIFTS).bind(told).bind(now_us).bind(now_us - LEASE_US);
            if claim.execute(&self.pool).await?.rows_affected() != 1 {
                continue;
            }
            let row = sqlx::query(sql::RUN).bind(project).bind(run).fetch_one(&self.pool).await?;
            notices.push(Notice {
                project: name.to_owned(),
                run: run_row(&row)?,
                changes: self.larger(of_line, &found).await?,
                shifts: found.into_iter().map(|(_, shifted)| shifted).collect(),
                keys: Vec::new(),
                line: Some(line),
                claimed_us: now_us,
            });
        }
        Ok(notices)
    }

    async fn told_line(
        &self,
        (project, channel, branch, environment, last): &Line,
        now_us: i64,
    ) -> Result<(), StoreError> {
        let query = sqlx::query(sql::SET_TOLD_SHIFTS).bind(*project).bind(channel.clone()).bind(*branch);
        let query = query.bind(*environment).bind(*last).bind(Ids::least(now_us + LEASE_US));
        query.execute(&self.pool).await?;
        Ok(())
    }

    /// Marks a notice as sent: it is not reported again.
    ///
    /// # Errors
    /// The database cannot be written.
    pub async fn told(&self, notice: &Notice, now_us: i64) -> Result<(), StoreError> {
        for key in &notice.keys {
            keyed(sql::TOLD_NOTICE, key).bind(now_us).execute(&self.pool).await?;
        }
        if let Some(line) = &notice.line {
            self.told_line(line, now_us).await?;
        }
        Ok(())
    }
}

/// A statement whose first parameters are a key.
fn keyed(statement: &'static str, key: &Key) -> Query<'static, Any, AnyArguments> {
    let (project, channel, branch, leak, state, commit) = key.clone();
    sqlx::query(statement).bind(project).bind(channel).bind(branch).bind(leak).bind(state).bind(commit)
}

#[cfg(test)]
mod tests {
    use memgate_history::{Environment, Manifest};
    use memgate_model::{
        Commit, Metric, MetricValue, Per, RunReport, Runner, SuiteReport, TestReport, Verdict,
    };

    use super::super::Choice;
    use super::super::tests::{Postgres, block_on, manifest, of_commit, sha, sqlite};
    use super::*;

    fn leak(id: &str, bytes: f64) -> Leak {
        Leak {
            id: id.to_owned(),
            title: "bytes".to_owned(),
            bytes_per_iteration: bytes,
            count_per_iteration: 1.0,
            ..Leak::default()
        }
    }

    fn report_of(session: &str, leaks: &[Leak]) -> RunReport {
        let test = TestReport {
            confirmed: true,
            leaks: leaks.to_vec(),
            ..TestReport::new("Map.scroll", Verdict::Fail)
        };
        let suite = SuiteReport::new("engine", Runner::Gtest, Verdict::Fail, vec![test]);
        RunReport {
            started: jiff::Timestamp::now().to_string(),
            duration_s: 1.0,
            ..RunReport::new("tiles", session, Verdict::Fail, vec![suite])
        }
    }

    #[tokio::test]
    async fn a_late_notice_has_the_figures_of_its_run_and_a_new_environment_or_line_is_no_news() {
        let folder = tempfile::tempdir().unwrap();
        let store = sqlite(&folder, "h.db").await;
        let add = async |number: usize, branch: &str, architecture: &str, leaks: &[Leak]| {
            let environment = Environment([("architecture".to_owned(), architecture.to_owned())].into());
            let manifest = Manifest { environment, ..of_commit(number, branch) };
            store.add(&manifest, &report_of(&manifest.session, leaks)).await.unwrap();
        };
        add(0, "main", "x86_64", &[leak("n1-a", 100.0)]).await;
        add(1, "main", "x86_64", &[leak("n1-a", 5000.0)]).await;
        add(2, "main", "aarch64", &[leak("n1-a", 5000.0)]).await;
        add(3, "release/1", "x86_64", &[leak("n1-a", 5000.0), leak("n1-b", 1.0)]).await;
        let now = jiff::Timestamp::now().as_microsecond();
        let notices = store.claim_notices("mail", now).await.unwrap();
        let [notice, of_release] = notices.as_slice() else { panic!("{notices:?}") };
        let [only] = of_release.changes.as_slice() else { panic!("{of_release:?}") };
        assert_eq!((of_release.run.branch.as_str(), only.leak.id.as_str()), ("release/1", "n1-b"));
        assert_eq!((notice.run.sha.clone(), notice.run.environment.as_str()), (sha(0), "x86_64"));
        let bytes = notice.changes[0].leak.bytes_per_iteration;
        assert!((bytes - 100.0).abs() < f64::EPSILON, "{bytes}");
        assert!(
            notice.is_held(now) && !notice.is_held(now + LEASE_US - 1),
            "another server may claim it soon"
        );
        store.told(notice, now).await.unwrap();
        store.told(of_release, now).await.unwrap();
        assert!(store.claim_notices("mail", now + LEASE_US + 1).await.unwrap().is_empty(), "it was told");
        store.close().await;
    }

    /// Adds a run of main.
    async fn add(store: &Store, session: &str, leaks: &[Leak]) {
        let commit = Commit { sha: session.to_owned(), branch: "main".to_owned(), ..Commit::default() };
        let manifest = manifest(session, Some(commit), Vec::new());
        store.add(&manifest, &report_of(session, leaks)).await.unwrap();
    }

    /// Adds a run of a commit of main, with its suite changed by `edit`.
    async fn add_commit(store: &Store, number: usize, leaks: &[Leak], edit: impl FnOnce(&mut SuiteReport)) {
        let manifest = of_commit(number, "main");
        let mut report = report_of(&manifest.session, leaks);
        edit(&mut report.suites[0]);
        store.add(&manifest, &report).await.unwrap();
    }

    /// Regression: the job of the earlier commit ended after that of the next one, and its change was told twice.
    #[tokio::test]
    async fn a_change_whose_commit_is_measured_after_the_next_one_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let store = sqlite(&folder, "h.db").await;
        let now = jiff::Timestamp::now().as_microsecond();
        let mut told = Vec::new();
        for (number, is_there) in
            [(0, false), (2, true), (1, true), (4, false), (3, false), (6, true), (5, true)]
        {
            let leaks = &[leak("n1-a", 7.0)][..usize::from(is_there)];
            add_commit(&store, number, leaks, |suite| {
                suite.tests[0].verdict = if is_there { Verdict::Fail } else { Verdict::Pass };
            })
            .await;
            for notice in store.claim_notices("mail", now).await.unwrap() {
                told.extend(notice.changes.iter().map(|change| (number, change.what)));
                store.told(&notice, now).await.unwrap();
            }
        }
        let told: Vec<_> = told.into_iter().map(|(number, what)| (number, what.name())).collect();
        assert_eq!(told, [(2, "new"), (4, "fixed"), (6, "regressed")]);
        store.close().await;
    }

    /// Regression: the leak and the level that it causes were two messages.
    #[tokio::test]
    async fn a_new_leak_and_the_level_to_which_it_raises_its_test_are_one_notice() {
        let folder = tempfile::tempdir().unwrap();
        let store = sqlite(&folder, "h.db").await;
        let now = jiff::Timestamp::now().as_microsecond();
        for (number, leaks) in [1, 1, 1, 2].into_iter().enumerate() {
            let all = [leak("n1-a", 61.0), leak("n1-b", 61.0)];
            add_commit(&store, number, &all[..leaks], |suite| {
                suite.tests[0].metrics.insert(
                    Metric::NativeLiveBytes,
                    MetricValue::exact(61.0 * leaks as f64, Metric::NativeLiveBytes, Per::Iteration),
                );
            })
            .await;
            for notice in store.claim_notices("chat", now).await.unwrap() {
                let told = (notice.changes.len(), notice.shifts.len(), notice.run.session.as_str());
                let session = format!("s{number}");
                assert_eq!(told, (1, if number == 3 { 1 } else { 0 }, session.as_str()));
                assert!(number == 0 || number == 3, "{notice:?}");
                store.told(&notice, now).await.unwrap();
            }
        }
        assert!(store.claim_notices("chat", now + LEASE_US + 1).await.unwrap().is_empty(), "both were told");
        store.close().await;
    }

    /// Regression: only the page of its test showed that a known leak grew, and its owner was not told.
    #[tokio::test]
    async fn a_known_leak_that_is_larger_is_an_event_and_is_told_with_the_level_of_its_test() {
        let folder = tempfile::tempdir().unwrap();
        let store = sqlite(&folder, "h.db").await;
        let now = jiff::Timestamp::now().as_microsecond();
        let mut told = Vec::new();
        for (number, bytes) in [61.0, 61.0, 61.0, 122.0, 122.0].into_iter().enumerate() {
            add_commit(&store, number, &[leak("n1-a", bytes)], |suite| {
                let value = MetricValue::exact(bytes, Metric::NativeLiveBytes, Per::Iteration);
                suite.tests[0].metrics.insert(Metric::NativeLiveBytes, value);
            })
            .await;
            for notice in store.claim_notices("mail", now).await.unwrap() {
                let of = |change: &Change| (number, change.what.name(), change.leak.bytes_per_iteration);
                told.extend(notice.changes.iter().map(of));
                assert_eq!(notice.changes[0].tests, ["engine::Map.scroll"]);
                store.told(&notice, now).await.unwrap();
            }
        }
        assert_eq!(told, [(0, "new", 61.0), (3, "larger", 122.0)]);
        let shown = store.overview("tiles", &Choice::default()).await.unwrap().unwrap();
        let kinds: Vec<_> = shown.events.iter().map(|event| event.kind.as_str()).collect();
        assert_eq!(kinds, ["larger", "known", "new"]);
        let larger: Vec<_> = shown.runs.iter().map(|run| run.larger_leaks).collect();
        assert_eq!((larger, shown.counts), (vec![0, 1, 0, 0, 0], [0, 0, 1, 0, 0]));
        store.close().await;
    }

    /// Regression: the mail showed a leak that was fixed or waived since it grew, and a leak that grew twice was in it
    /// twice.
    #[tokio::test]
    async fn a_leak_that_grew_is_told_once_with_its_newest_figures_and_only_if_it_still_counts() {
        let now = jiff::Timestamp::now().as_microsecond();
        for (bytes, last, told) in [
            ([61.0, 61.0, 61.0, 122.0, 122.0], Verdict::Fail, vec![("larger", 122.0)]),
            ([61.0, 61.0, 61.0, 122.0, 244.0], Verdict::Fail, vec![("larger", 244.0)]),
            ([61.0, 61.0, 61.0, 122.0, 122.0], Verdict::Pass, vec![("fixed", 122.0)]),
            ([61.0, 61.0, 61.0, 122.0, 122.0], Verdict::Warn, vec![]),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let store = sqlite(&folder, "h.db").await;
            let steps = bytes.into_iter().map(|bytes| (bytes, Verdict::Fail)).chain([(bytes[4], last)]);
            let mut found = Vec::new();
            for (number, (bytes, verdict)) in steps.enumerate() {
                let mut of_run = leak("n1-a", bytes);
                of_run.waiver = (verdict == Verdict::Warn).then(|| "known".to_owned());
                let leaks: &[Leak] = if verdict == Verdict::Pass { &[] } else { &[of_run] };
                add_commit(&store, number, leaks, |suite| {
                    // The figure of the first test rises in run 3, of the second one in run 4, of the third one in 5.
                    let zoom = TestReport { id: "Map.zoom".to_owned(), ..suite.tests[0].clone() };
                    let turn =
                        TestReport { id: "Map.turn".to_owned(), leaks: vec![], ..suite.tests[0].clone() };
                    suite.tests.extend([zoom, turn]);
                    for (test, from) in suite.tests.iter_mut().zip(3..) {
                        let value = if number < from { 61.0 } else { 122.0 };
                        let value = MetricValue::exact(value, Metric::NativeLiveBytes, Per::Iteration);
                        test.metrics.insert(Metric::NativeLiveBytes, value);
                        test.verdict = if verdict == Verdict::Warn { Verdict::Pass } else { verdict };
                    }
                })
                .await;
                if number == 2 || number == 5 {
                    found = store.claim_notices("mail", now).await.unwrap();
                    for notice in &found {
                        store.told(notice, now).await.unwrap();
                    }
                }
            }
            let changes = found.iter().flat_map(|notice| &notice.changes);
            let all: Vec<_> =
                changes.map(|change| (change.what.name(), change.leak.bytes_per_iteration)).collect();
            assert_eq!(all, told, "{last:?}");
            assert!(!found.is_empty() && found.iter().any(|notice| notice.shifts.len() > 1), "{found:?}");
            store.close().await;
        }
    }

    /// Regression: the console told of a later run that a leak is larger there, since this one has less of it.
    #[tokio::test]
    async fn a_run_of_an_earlier_commit_with_less_of_a_leak_has_no_larger_leak() {
        let folder = tempfile::tempdir().unwrap();
        let store = sqlite(&folder, "h.db").await;
        for (number, bytes) in [(2, 122.0), (1, 61.0)] {
            let manifest = of_commit(number, "main");
            let report = report_of(&manifest.session, &[leak("n1-a", bytes)]);
            let added = store.add(&manifest, &report).await.unwrap();
            assert!(added.events.iter().all(|event| event.kind != "larger"), "{number}: {added:?}");
        }
        let shown = store.overview("tiles", &Choice::default()).await.unwrap().unwrap();
        assert!(shown.events.iter().any(|event| event.kind == "larger"), "the history has it");
        store.close().await;
    }

    /// Regression: each commit that added a test was a mail, since GoogleTest keeps some bytes for each test.
    #[tokio::test]
    async fn what_a_suite_keeps_is_news_only_if_it_stays_clearly_higher() {
        let folder = tempfile::tempdir().unwrap();
        let store = sqlite(&folder, "h.db").await;
        let now = jiff::Timestamp::now().as_microsecond();
        let mut told = Vec::new();
        for number in 0..30 {
            let bytes = 14_000.0 + 7.0 * number as f64 + if number < 22 { 0.0 } else { 4096.0 };
            add_commit(&store, number, &[], |suite| {
                let value = MetricValue::exact(bytes, Metric::NativeLiveBytes, Per::Suite);
                suite.metrics.insert(Metric::NativeLiveBytes, value);
            })
            .await;
            for notice in store.claim_notices("mail", now).await.unwrap() {
                told.extend(notice.shifts.iter().map(|shift| (number, shift.name.clone())));
                store.told(&notice, now).await.unwrap();
            }
        }
        assert_eq!(told, [(28, String::new())]);
        store.close().await;
    }

    #[tokio::test]
    async fn a_run_with_more_leaks_than_are_read_at_once_is_one_notice() {
        let folder = tempfile::tempdir().unwrap();
        let store = sqlite(&folder, "h.db").await;
        let leaks: Vec<_> = (0..2 * AT_ONCE + 8).map(|number| leak(&format!("n1-{number}"), 7.0)).collect();
        for (session, count) in [("s0", 5), ("s1", 2 * AT_ONCE + 7), ("s2", 2 * AT_ONCE + 8)] {
            add(&store, session, &leaks[..count]).await;
        }
        let now = jiff::Timestamp::now().as_microsecond();
        let told = async || {
            let notices = store.claim_notices("mail", now).await.unwrap();
            let told = notices.iter().map(|notice| (notice.run.session.clone(), notice.changes.len()));
            told.collect::<Vec<_>>()
        };
        assert_eq!(told().await, [("s0".to_owned(), 5), ("s1".to_owned(), 2 * AT_ONCE + 2)]);
        assert_eq!(told().await, [("s2".to_owned(), 1)], "the next time");
        store.close().await;
    }

    /// Regression: each change was claimed by itself, so two servers divided a run and sent two messages.
    #[test]
    fn of_two_servers_that_claim_at_the_same_time_one_gets_all_changes_of_a_run() {
        const RUNS: usize = 4;
        const LEAKS: usize = 300;
        let Some(postgres) = Postgres::start() else { return };
        block_on(async {
            let store = postgres.database("two").await;
            for run in 0..RUNS {
                let id = |number| format!("n1-{run}-{number}");
                let leaks: Vec<_> = (0..LEAKS).map(|number| leak(&id(number), 7.0)).collect();
                add(&store, &format!("s{run}"), &leaks).await;
            }
            let now = jiff::Timestamp::now().as_microsecond();
            let claims: Vec<_> = (0..4)
                .map(|_| {
                    let store = store.clone();
                    tokio::spawn(async move { store.claim_notices("mail", now).await.unwrap() })
                })
                .collect();
            let mut told = Vec::new();
            for claim in claims {
                for notice in claim.await.unwrap() {
                    let new =
                        notice.changes.iter().filter(|change| change.what == What::To(State::New)).count();
                    told.push((notice.run.session.clone(), new));
                }
            }
            told.sort();
            let whole: Vec<_> = (0..RUNS).map(|run| (format!("s{run}"), LEAKS)).collect();
            assert_eq!(told, whole);
            store.close().await;
        });
    }
}
