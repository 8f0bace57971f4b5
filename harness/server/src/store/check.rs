//! Checks that the schema cannot do: each row must refer to existing rows, and packed values must be valid.
//!
//! Data flow: each project → rows with missing references, rosters, columns → a line for each fault.

use std::collections::BTreeMap;

use sqlx::{AssertSqlSafe, Row as _};

use super::read::members;
use super::{Store, StoreError, read_runs, statements as sql};

/// A table, its column that refers to another table, and that table.
const REFERENCES: [(&str, &str, &str); 25] = [
    ("run", "branch_id", "branch"),
    ("run", "environment_id", "environment"),
    ("run", "roster_id", "roster"),
    ("line", "branch_id", "branch"),
    ("line", "environment_id", "environment"),
    ("run_column", "run_id", "run"),
    ("run_reason", "run_id", "run"),
    ("exception", "run_id", "run"),
    ("exception", "test_id", "test"),
    ("sighting", "run_id", "run"),
    ("sighting", "test_id", "test"),
    ("sighting", "leak_id", "leak"),
    ("leak_line", "leak_id", "leak"),
    ("leak_line", "branch_id", "branch"),
    ("leak_line", "environment_id", "environment"),
    ("event", "leak_id", "leak"),
    ("event", "run_id", "run"),
    ("event", "branch_id", "branch"),
    ("event", "environment_id", "environment"),
    ("artefact", "run_id", "run"),
    ("notice", "leak_id", "leak"),
    ("notice", "branch_id", "branch"),
    ("shift_notice", "branch_id", "branch"),
    ("shift_notice", "environment_id", "environment"),
    ("branch", "project_id", "project"),
];

impl Store {
    /// The faults, a line each; empty: none.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn check(&self) -> Result<Vec<String>, StoreError> {
        let mut faults = Vec::new();
        if !self.is_postgres {
            for row in sqlx::query("PRAGMA integrity_check(20)").fetch_all(&self.pool).await? {
                let said: String = row.try_get(0)?;
                if said != "ok" {
                    faults.push(format!("the file: {said}"));
                }
            }
        }
        for row in sqlx::query(sql::PROJECT_IDS).fetch_all(&self.pool).await? {
            let (project, name): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
            for (table, column, of) in REFERENCES {
                let text = format!(
                    "SELECT COUNT(*) FROM {table} a WHERE a.project_id = $1 AND NOT EXISTS \
                     (SELECT 1 FROM {of} b WHERE b.project_id = a.project_id AND b.{column} = a.{column})"
                );
                let row = sqlx::query(AssertSqlSafe(text)).bind(project).fetch_one(&self.pool).await?;
                let count: i64 = row.try_get(0)?;
                if count > 0 {
                    faults.push(format!("{name}: {count} rows of {table} name a {of} that is not there"));
                }
            }
            self.check_columns((project, &name), &mut faults).await?;
        }
        Ok(faults)
    }

    /// Checks that rosters have the stated number of tests, columns a value for each, and runs figures until these
    /// expire.
    async fn check_columns(
        &self,
        (project, name): (i64, &str),
        faults: &mut Vec<String>,
    ) -> Result<(), StoreError> {
        let mut rosters = BTreeMap::<i64, usize>::new();
        for row in sqlx::query(sql::ROSTERS).bind(project).fetch_all(&self.pool).await? {
            let roster = row.try_get(0)?;
            match members(&row, 1) {
                Ok(tests) => drop(rosters.insert(roster, tests.len())),
                Err(why) => faults.push(format!("{name}: roster {roster}: {why}")),
            }
        }
        let mut after = 0_i64;
        loop {
            let rows = sqlx::query(sql::RUNS_AFTER).bind(project).bind(after).fetch_all(&self.pool).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            after = last.try_get(0)?;
            for row in rows {
                let (run, roster, expires): (i64, i64, i64) =
                    (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
                let columns = sqlx::query(sql::COLUMNS).bind(project).bind(run).fetch_all(&self.pool).await?;
                if columns.is_empty() && expires > 0 {
                    faults.push(format!("{name}: run {run} has no figures"));
                }
                let Some(tests) = rosters.get(&roster) else { continue };
                for row in columns {
                    let (metric, data): (String, Vec<u8>) = (row.try_get(0)?, row.try_get(1)?);
                    if let Err(why) = read_runs::figures(&data, *tests) {
                        faults.push(format!("{name}: run {run}, {metric}: {why}"));
                    }
                }
            }
        }
    }
}
