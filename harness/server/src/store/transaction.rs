//! The transaction that adds a run, and the state that its parts share.

use sqlx::any::AnyRow;
use sqlx::{Any, AnyConnection, Transaction};

use super::ids::Ids;

/// A run that is being added.
pub(super) struct Adding<'t> {
    pub(super) transaction: Transaction<'t, Any>,
    pub(super) project: i64,
    pub(super) ids: Ids,
}

impl Adding<'_> {
    pub(super) fn connection(&mut self) -> &mut AnyConnection {
        &mut self.transaction
    }

    /// The row of the project that this text identifies.
    pub(super) async fn find(
        &mut self,
        statement: &'static str,
        text: &str,
    ) -> Result<Option<AnyRow>, sqlx::Error> {
        sqlx::query(statement)
            .bind(self.project)
            .bind(text.to_owned())
            .fetch_optional(&mut *self.transaction)
            .await
    }
}

/// A count as databases store it.
pub(super) fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
