//! Which line: the parameters with which the statements about a line begin.

use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, SqlSafeStr};

/// A line: a branch in one environment.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineId {
    pub(super) project: i64,
    pub(super) branch: i64,
    pub(super) environment: i64,
}

impl LineId {
    /// A statement whose first parameters are project, branch and environment.
    pub(super) fn query(self, statement: impl SqlSafeStr) -> Query<'static, Any, AnyArguments> {
        sqlx::query(statement).bind(self.project).bind(self.branch).bind(self.environment)
    }
}
