//! Shared by all reads: which line is shown, and how rows become values.

use memgate_history::bits::Bits;
pub(super) use memgate_history::life::commit_of as sha;
use memgate_history::life::{self, What};
use memgate_history::place::Chain;
use memgate_history::roster;
use memgate_model::{Leak, LeakKind};
use serde::de::DeserializeOwned;
use sqlx::Row as _;
use sqlx::any::{AnyArguments, AnyRow};

use super::line_id::LineId;
use super::{Choice, Store, StoreError, statements as sql};
use crate::view::{EventRow, NO_BRANCH, Overview, RunRow, Selection, State};

/// Most leaks that are alive on the first page.
const MOST_ALIVE: i64 = 50;
const LATELY_US: i64 = 30 * 24 * 3600 * 1_000_000;

/// A statement with its values.
type Query<'q> = sqlx::query::Query<'q, sqlx::Any, AnyArguments>;

/// The line of a project that is shown.
pub(super) struct Shown {
    pub(super) project: i64,
    pub(super) branch: i64,
    pub(super) environment: i64,
    pub(super) selection: Selection,
}

impl Shown {
    pub(super) const fn line(&self) -> LineId {
        let Self { project, branch, environment, .. } = *self;
        LineId { project, branch, environment }
    }
}

/// A stored leak with its id.
pub(super) struct KnownLeak {
    pub(super) id: String,
    pub(super) leak: Leak,
}

impl Store {
    /// Names of the projects with runs.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn projects(&self) -> Result<Vec<String>, StoreError> {
        let rows = sqlx::query(sql::PROJECTS).fetch_all(&self.pool).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// The first page of a project; `None`: there is no such project, branch or environment.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn overview(&self, project: &str, choice: &Choice) -> Result<Option<Overview>, StoreError> {
        let Some(shown) = self.shown(project, choice).await? else { return Ok(None) };
        let mut counts = [0_u64; 5];
        let (mut flaky, mut decided, mut steady) = (0, 0, 0);
        for row in self.of_line(sql::COUNTS_OF_LINE, &shown).await? {
            let state = state_of(row.try_get(0)?)?;
            // The window of a leak that is over. It also has commits before it came, and after its end.
            let window = row.try_get::<String, _>(2)?;
            let window: Bits = window.bytes().map(|seen| seen == b'#').skip_while(|seen| !seen).collect();
            let comes_and_goes =
                row.try_get::<i64, _>(1)? != 0 || life::comes_and_goes(window.before_trailing(false));
            let count = unsigned(row.try_get(3)?);
            let at = match state {
                State::New => 0,
                State::Regressed => 1,
                State::Known => 2,
                State::Fixed => 3,
                State::Gone => 4,
            };
            counts[at] += count;
            if state != State::New {
                decided += count;
                steady += if comes_and_goes { 0 } else { count };
            }
            if comes_and_goes && state.is_alive() {
                flaky += count;
            }
        }
        let since = jiff::Timestamp::now().as_microsecond() - LATELY_US;
        let fixed = shown.line().query(sql::FIXED_SINCE).bind(since).fetch_one(&self.pool).await?;
        let runs = sqlx::query(sql::RUNS_NEWEST).bind(shown.project).fetch_all(&self.pool).await?;
        let events = self.of_line(sql::EVENTS_OF_LINE, &shown).await?;
        Ok(Some(Overview {
            alive: self.worst_of_line(&shown, MOST_ALIVE).await?,
            selection: shown.selection,
            counts,
            fixed_lately: unsigned(fixed.try_get(0)?),
            flaky,
            decided,
            steady,
            runs: runs.iter().map(run_row).collect::<Result<_, _>>()?,
            events: events.iter().map(event).collect::<Result<_, _>>()?,
        }))
    }

    /// Rows of a statement about a line.
    pub(super) async fn of_line(
        &self,
        statement: &'static str,
        shown: &Shown,
    ) -> Result<Vec<AnyRow>, sqlx::Error> {
        shown.line().query(statement).fetch_all(&self.pool).await
    }

    async fn lines(&self, query: Query<'_>) -> Result<Vec<Line>, StoreError> {
        let line = |row: &AnyRow| -> Result<Line, StoreError> {
            Ok(Line {
                branch: row.try_get(0)?,
                name: row.try_get(1)?,
                environment: row.try_get(2)?,
                label: row.try_get(3)?,
            })
        };
        query.fetch_all(&self.pool).await?.iter().map(line).collect()
    }

    /// The line that a choice selects; `None`: it does not exist.
    pub(super) async fn shown(&self, project: &str, choice: &Choice) -> Result<Option<Shown>, StoreError> {
        let Some(id) = self.project(project).await? else { return Ok(None) };
        self.shown_of((id, project), choice).await
    }

    /// The number of a project; `None`: there is none of this name.
    pub(crate) async fn project(&self, project: &str) -> Result<Option<i64>, StoreError> {
        let row = sqlx::query(sql::PROJECT).bind(project.to_owned()).fetch_optional(&self.pool).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// The line of a project that a choice selects.
    pub(super) async fn shown_of(
        &self,
        (id, project): (i64, &str),
        choice: &Choice,
    ) -> Result<Option<Shown>, StoreError> {
        // Offers the lines that were measured last; any other line can be named.
        let mut lines = self.lines(sqlx::query(sql::NEWEST_LINES).bind(id)).await?;
        if !choice.branch.is_empty() && !lines.iter().any(|line| line.fits(choice)) {
            lines.extend(
                self.lines(
                    sqlx::query(sql::NEWEST_OF_NAME).bind(id).bind(name_of(&choice.branch).to_owned()),
                )
                .await?,
            );
        }
        let Some(found) = lines.iter().find(|line| line.fits(choice)) else { return Ok(None) };
        let distinct = |name: fn(&Line) -> &String| {
            let mut known = Vec::<String>::new();
            for name in lines.iter().map(name) {
                if !known.contains(name) {
                    known.push(name.clone());
                }
            }
            known
        };
        let branches = distinct(|line| &line.name);
        // In a project without a repository it is the only line, and needs no name.
        let has_names = branches.len() > 1;
        let named =
            |name: &String| if name.is_empty() && has_names { NO_BRANCH.to_owned() } else { name.clone() };
        let branch = named(&found.name);
        let branches = branches.iter().map(named).collect();
        let selection = Selection {
            project: project.to_owned(),
            branch,
            environment: found.label.clone(),
            branches,
            environments: distinct(|line| &line.label),
        };
        let (branch, environment) = (found.branch, found.environment);
        Ok(Some(Shown { project: id, branch, environment, selection }))
    }
}

/// A branch in an environment.
struct Line {
    branch: i64,
    name: String,
    environment: i64,
    label: String,
}

impl Line {
    fn fits(&self, choice: &Choice) -> bool {
        let fits = |wanted: &str, name: &str| wanted.is_empty() || wanted == name;
        let is_branch = choice.branch.is_empty() || name_of(&choice.branch) == self.name;
        is_branch && fits(&choice.environment, &self.label)
    }
}

/// The name of a branch that somebody chose.
fn name_of(chosen: &str) -> &str {
    if chosen == NO_BRANCH { "" } else { chosen }
}

pub(super) fn run_row(row: &AnyRow) -> Result<RunRow, StoreError> {
    let regressed_leaks = unsigned(row.try_get("regressed")?);
    let (commit, key): (String, String) = (row.try_get(4)?, row.try_get("commit_key")?);
    Ok(RunRow {
        run: row.try_get(0)?,
        session: row.try_get(1)?,
        branch: row.try_get(2)?,
        environment: row.try_get(3)?,
        dirty: !commit.is_empty() && sha(&key).is_empty(),
        sha: commit,
        started_us: row.try_get(5)?,
        duration_ms: row.try_get(6)?,
        verdict: word(&row.try_get::<String, _>(7)?)?,
        tests: unsigned(row.try_get(8)?),
        failed: unsigned(row.try_get(9)?),
        leaks: unsigned(row.try_get(10)?),
        // The column counts both.
        new_leaks: unsigned(row.try_get(11)?).saturating_sub(regressed_leaks),
        regressed_leaks,
        larger_leaks: unsigned(row.try_get("larger")?),
        fixed_leaks: unsigned(row.try_get("fixed")?),
        target: row.try_get(12)?,
    })
}

/// A value that is stored as its word in `report.json`.
pub(super) fn word<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_value(text.into())
        .map_err(|_unknown| StoreError::Broken(format!("`{text}` means nothing")))
}

/// The leak in a row: its id at `at`, then its body.
pub(super) fn leak_of(row: &AnyRow, at: usize) -> Result<KnownLeak, StoreError> {
    let (id, body): (String, String) = (row.try_get(at)?, row.try_get(at + 1)?);
    let leak =
        serde_json::from_str(&body).map_err(|why| StoreError::Broken(format!("the leak {id}: {why}")))?;
    Ok(KnownLeak { id, leak })
}

pub(super) fn event(row: &AnyRow) -> Result<EventRow, StoreError> {
    let known = leak_of(row, 3)?;
    let (key, before): (String, String) = (row.try_get(5)?, row.try_get(6)?);
    let what = what_of(row.try_get(1)?)?;
    let event = event_row(what, (row.try_get(0)?, row.try_get(7)?), &known, (&key, &before));
    Ok(EventRow { branch: row.try_get(2)?, ..event })
}

/// Who leaks; what is no memory of the heap, too: the same function may also leak memory.
fn told(leak: &Leak) -> String {
    let who = memgate_reports::who(leak);
    match leak.kind {
        LeakKind::Os | LeakKind::Mapped if who != leak.title => format!("{who}, {}", leak.title),
        _ => who,
    }
}

pub(super) fn event_row(
    what: What,
    (at_us, run): (i64, i64),
    known: &KnownLeak,
    (key, before): (&str, &str),
) -> EventRow {
    EventRow {
        at_us,
        kind: what.name().to_owned(),
        branch: String::new(),
        leak: known.id.clone(),
        test: String::new(),
        text: told(&known.leak),
        clean_sha: sha(before).to_owned(),
        first_sha: sha(key).to_owned(),
        run,
    }
}

pub(super) fn state_of(number: i64) -> Result<State, StoreError> {
    State::of_number(number).ok_or_else(|| StoreError::Broken(format!("{number} is no state of a leak")))
}

pub(super) fn what_of(number: i64) -> Result<What, StoreError> {
    What::of_number(number).ok_or_else(|| StoreError::Broken(format!("{number} is no event of a leak")))
}

/// First parents, from rows of a commit and its first parent.
pub(super) fn chain(rows: &[AnyRow]) -> Result<Chain, StoreError> {
    let pairs: Result<Vec<_>, sqlx::Error> =
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect();
    Chain::kept(pairs?).ok_or_else(|| StoreError::Broken("a commit is its own ancestor".to_owned()))
}

/// The tests of a roster, from a row with their number and bytes.
pub(super) fn members(row: &AnyRow, at: usize) -> Result<Vec<i64>, StoreError> {
    let (tests, bytes): (i64, Vec<u8>) = (row.try_get(at)?, row.try_get(at + 1)?);
    let tests = usize::try_from(tests).ok().and_then(|tests| roster::decode(&bytes, tests));
    tests.ok_or_else(|| StoreError::Broken("a roster has another number of tests".to_owned()))
}

pub(super) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_leaks_of_one_function_are_told_apart() {
        let frame = memgate_model::Frame {
            function: Some("Listen()".to_owned()),
            file: Some("net.cc".to_owned()),
            line: Some(6),
            module: "net_tests".to_owned(),
            offset: 0,
            inlined: false,
        };
        let leak = |kind, title: &str| Leak {
            kind,
            title: title.to_owned(),
            frames: vec![frame.clone()],
            ..Leak::default()
        };
        assert_eq!(told(&leak(LeakKind::Native, "1 × 40 B")), "Listen");
        assert_eq!(
            told(&leak(LeakKind::Os, "1 × descriptor socket:[…]")),
            "Listen, 1 × descriptor socket:[…]"
        );
        let nameless = Leak { frames: Vec::new(), ..leak(LeakKind::Os, "1 × thread worker") };
        assert_eq!(told(&nameless), "1 × thread worker");
    }
}
