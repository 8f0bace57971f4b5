//! The list of a run's artefacts. Their bytes are stored elsewhere.

use sqlx::Row as _;

use super::statements as sql;
use super::{Store, StoreError};
use crate::artefacts::KEPT;
use crate::view::ArtefactRow;

impl Store {
    /// The artefacts of a run, by name; empty if there is no such run.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn artefacts(&self, project: &str, run: i64) -> Result<Vec<ArtefactRow>, StoreError> {
        let Some(project) = self.project(project).await? else { return Ok(Vec::new()) };
        self.artefacts_of(project, run).await
    }

    pub(super) async fn artefacts_of(&self, project: i64, run: i64) -> Result<Vec<ArtefactRow>, StoreError> {
        let rows = sqlx::query(sql::ARTEFACTS).bind(project).bind(run).fetch_all(&self.pool).await?;
        let artefact = |row: &sqlx::any::AnyRow| {
            let bytes: i64 = row.try_get(1)?;
            Ok(ArtefactRow { name: row.try_get(0)?, bytes: u64::try_from(bytes).unwrap_or(0) })
        };
        rows.iter().map(artefact).collect()
    }

    /// Records an artefact of a run, once.
    ///
    /// # Errors
    /// The database cannot be written.
    pub async fn add_artefact(
        &self,
        project: &str,
        run: i64,
        artefact: &ArtefactRow,
        now_us: i64,
    ) -> Result<(), StoreError> {
        let Some(project) = self.project(project).await? else { return Ok(()) };
        let kept_us = i64::try_from(KEPT.as_micros()).unwrap_or(i64::MAX);
        sqlx::query(sql::ADD_ARTEFACT)
            .bind(project)
            .bind(run)
            .bind(artefact.name.clone())
            .bind(i64::try_from(artefact.bytes).unwrap_or(i64::MAX))
            .bind(now_us.saturating_add(kept_us))
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Artefacts that have expired by that time, by project, run and name; a limited number at a time. The clock alone
    /// proves nothing: an artefact has expired when a run that was received after its end is a day old.
    ///
    /// # Errors
    /// The database cannot be read.
    pub(crate) async fn ended_artefacts(&self, now_us: i64) -> Result<Vec<(i64, i64, String)>, StoreError> {
        let mut ended = Vec::new();
        let Some(settled_us) = self.settled_us(now_us).await? else { return Ok(ended) };
        for row in sqlx::query(sql::PROJECT_IDS).fetch_all(&self.pool).await? {
            let project: i64 = row.try_get(0)?;
            let rows = sqlx::query(sql::ENDED_ARTEFACTS).bind(project).bind(settled_us);
            for row in rows.fetch_all(&self.pool).await? {
                ended.push((project, row.try_get(0)?, row.try_get(1)?));
            }
        }
        Ok(ended)
    }

    /// Removes the row of an artefact.
    ///
    /// # Errors
    /// The database cannot be written.
    pub(crate) async fn remove_artefact(&self, project: i64, run: i64, name: &str) -> Result<(), StoreError> {
        let query = sqlx::query(sql::REMOVE_ARTEFACT).bind(project).bind(run).bind(name.to_owned());
        query.execute(&self.pool).await?;
        Ok(())
    }
}
