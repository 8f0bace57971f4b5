//! Many rows with few statements: each statement costs a round trip.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Row as _};

use super::line_id::LineId;
use super::read::{KnownLeak, leak_of};
use super::{StoreError, statements as sql};

/// Rows per statement, the most first: few sizes, so that a connection caches the plans of few texts.
const SIZES: [usize; 12] = [64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1];

/// Maximum number of tests or leaks in one statement.
pub(super) const NAMED: usize = 512;

pub(super) enum Value {
    Number(i64),
    Real(f64),
    Text(String),
    Bytes(Vec<u8>),
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<f64> for Value {
    /// Not every database can store NaN or infinity.
    fn from(real: f64) -> Self {
        Self::Real(if real.is_finite() { real } else { 0.0 })
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

/// Executes a statement for one row with all of these rows. Rows of an `ON CONFLICT` statement have different keys.
pub(super) async fn add<const N: usize>(
    connection: &mut AnyConnection,
    statement: &'static str,
    mut rows: Vec<[Value; N]>,
) -> Result<(), sqlx::Error> {
    for size in SIZES {
        if rows.len() < size {
            continue;
        }
        let text = repeated(statement, N, size);
        while rows.len() >= size {
            let rest = rows.split_off(size);
            let mut query = sqlx::query(AssertSqlSafe(text.clone()));
            for value in std::mem::replace(&mut rows, rest).into_iter().flatten() {
                query = match value {
                    Value::Number(number) => query.bind(number),
                    Value::Real(real) => query.bind(real),
                    Value::Text(text) => query.bind(text),
                    Value::Bytes(bytes) => query.bind(bytes),
                };
            }
            query.execute(&mut *connection).await?;
        }
    }
    Ok(())
}

/// Suite and name of these tests only, by their ids: a project may have many former tests.
pub(super) async fn test_names(
    connection: &mut AnyConnection,
    project: i64,
    tests: &[i64],
) -> Result<BTreeMap<i64, (String, String)>, sqlx::Error> {
    let mut names = BTreeMap::new();
    for tests in tests.chunks(NAMED) {
        let text = listed(sql::TESTS_BY_ID, 2, tests.len());
        let query = sqlx::query(AssertSqlSafe(text)).bind(project);
        let query = tests.iter().fold(query, |query, test| query.bind(*test));
        for row in query.fetch_all(&mut *connection).await? {
            names.insert(row.try_get(0)?, (row.try_get(1)?, row.try_get(2)?));
        }
    }
    Ok(names)
}

/// The ids of these tests, by name. Unknown tests are left out.
pub(super) async fn test_ids(
    connection: &mut AnyConnection,
    project: i64,
    suite: &str,
    names: &[&str],
) -> Result<BTreeMap<String, i64>, sqlx::Error> {
    let mut ids = BTreeMap::new();
    for names in names.chunks(NAMED) {
        let text = listed(sql::TESTS_BY_NAME, 3, names.len());
        let query = sqlx::query(AssertSqlSafe(text)).bind(project).bind(suite.to_owned());
        let query = names.iter().fold(query, |query, name| query.bind((*name).to_owned()));
        for row in query.fetch_all(&mut *connection).await? {
            ids.insert(row.try_get(1)?, row.try_get(0)?);
        }
    }
    Ok(ids)
}

/// Reads leaks by their ids, at most [`NAMED`].
pub(super) async fn leaks(
    connection: &mut AnyConnection,
    project: i64,
    leaks: &BTreeSet<i64>,
) -> Result<BTreeMap<i64, KnownLeak>, StoreError> {
    let text = listed(sql::LEAK_BODIES, 2, leaks.len());
    let query = sqlx::query(AssertSqlSafe(text)).bind(project);
    let query = leaks.iter().fold(query, |query, leak| query.bind(*leak));
    let rows = query.fetch_all(connection).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, leak_of(row, 1)?))).collect()
}

/// The leaks among `leaks` that a line has or had.
pub(super) async fn leaks_of_line(
    connection: &mut AnyConnection,
    line: LineId,
    leaks: &[i64],
) -> Result<BTreeSet<i64>, sqlx::Error> {
    let mut known = BTreeSet::new();
    for leaks in leaks.chunks(NAMED) {
        let text = listed(sql::HAS_LEAKS, 4, leaks.len());
        let query = line.query(AssertSqlSafe(text));
        let query = leaks.iter().fold(query, |query, leak| query.bind(*leak));
        for row in query.fetch_all(&mut *connection).await? {
            known.insert(row.try_get(0)?);
        }
    }
    Ok(known)
}

/// The tests that had these leaks, at most [`NAMED`], in the last run of a line that saw them: leak, suite, name.
pub(super) async fn last_tests(
    connection: &mut AnyConnection,
    line: LineId,
    leaks: &[i64],
) -> Result<Vec<AnyRow>, sqlx::Error> {
    of_leaks(sql::LAST_TESTS_OF, connection, line, leaks).await
}

/// These leaks of a line, at most [`NAMED`].
pub(super) async fn leaks_on_line(
    connection: &mut AnyConnection,
    line: LineId,
    leaks: &[i64],
) -> Result<Vec<AnyRow>, sqlx::Error> {
    of_leaks(sql::LEAKS_ON_LINE, connection, line, leaks).await
}

/// The rows of a statement about these leaks of a line, whose list begins at the fourth parameter.
async fn of_leaks(
    statement: &str,
    connection: &mut AnyConnection,
    line: LineId,
    leaks: &[i64],
) -> Result<Vec<AnyRow>, sqlx::Error> {
    if leaks.is_empty() {
        return Ok(Vec::new());
    }
    let query = line.query(AssertSqlSafe(listed(statement, 4, leaks.len())));
    leaks.iter().fold(query, |query, leak| query.bind(*leak)).fetch_all(connection).await
}

/// The statement with its list `($first)` expanded to `count` parameters.
fn listed(statement: &str, first: usize, count: usize) -> String {
    let list: Vec<String> = (first..first + count).map(|parameter| format!("${parameter}")).collect();
    statement.replacen(&format!("(${first})"), &format!("({})", list.join(", ")), 1)
}

/// The statement for one row of `columns` parameters, expanded to `rows` rows.
fn repeated(statement: &str, columns: usize, rows: usize) -> String {
    let rows_of = |rows: usize| {
        let mut text = String::with_capacity(8 * columns * rows);
        for parameter in 0..columns * rows {
            text.push_str(match parameter {
                0 => "($",
                first if first % columns == 0 => "), ($",
                _ => ", $",
            });
            text.push_str(&(parameter + 1).to_string());
        }
        text + ")"
    };
    statement.replacen(&rows_of(1), &rows_of(rows), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_repeated_with_what_follows_its_row() {
        let statement = "INSERT INTO t (a, b) VALUES ($1, $2) ON CONFLICT (a) DO NOTHING";
        assert_eq!(repeated(statement, 2, 1), statement);
        assert_eq!(
            repeated(statement, 2, 3),
            "INSERT INTO t (a, b) VALUES ($1, $2), ($3, $4), ($5, $6) ON CONFLICT (a) DO NOTHING"
        );
    }
}
