//! Tickets: the sender of a run needs its ticket to add artefacts to it.
//!
//! Data flow: the secret of the database, created with its tables → with a run's number and digest → the run's ticket,
//! which is sent to its uploader. Without the secret nobody can compute a ticket: many people have the report of a run.

use std::fmt;

use hmac::{Hmac, Mac as _};
use memgate_history::hex;
use sha2::Sha256;
use sqlx::{AnyConnection, Row as _};

use super::{Store, StoreError, statements as sql};
use crate::token;

/// Characters of the secret: the block size of the digest.
const LENGTH: usize = 64;

/// The secret of a database, the same for all its servers.
#[derive(Clone)]
pub(super) struct Secret([u8; LENGTH]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Creates the secret if there is none.
    pub(super) async fn make(connection: &mut AnyConnection) -> Result<(), StoreError> {
        sqlx::query(sql::ADD_SECRET).bind(token::random(LENGTH)?).execute(connection).await?;
        Ok(())
    }

    pub(super) async fn read(connection: &mut AnyConnection) -> Result<Self, StoreError> {
        let row = sqlx::query(sql::SECRET).fetch_optional(connection).await?;
        let text: Option<String> = row.map(|row| row.try_get(0)).transpose()?;
        let secret = text.and_then(|text| <[u8; LENGTH]>::try_from(text.as_bytes()).ok());
        secret.map(Self).ok_or_else(|| StoreError::Broken("its secret is not there".to_owned()))
    }

    /// The ticket of a run of a project.
    pub(super) fn ticket(&self, (project, run): (i64, i64), body_digest: &str) -> String {
        let mut mac = Hmac::<Sha256>::new(&self.0.into());
        mac.update(format!("artefacts\0{project}\0{run}\0{body_digest}").as_bytes());
        hex(&mac.finalize().into_bytes())
    }
}

impl Store {
    /// The ticket of a run; `None`: there is no such run.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn ticket(&self, project: &str, run: i64) -> Result<Option<String>, StoreError> {
        let Some(project) = self.project(project).await? else { return Ok(None) };
        let row = sqlx::query(sql::RUN_DIGEST).bind(project).bind(run).fetch_optional(&self.pool).await?;
        let digest: Option<String> = row.map(|row| row.try_get(0)).transpose()?;
        Ok(digest.map(|digest| self.secret.ticket((project, run), &digest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::{add_one, block_on, sqlite};

    #[test]
    fn a_ticket_is_of_its_run_and_of_its_database() {
        let folder = tempfile::tempdir().unwrap();
        let address = format!("sqlite:{}", folder.path().join("a.db").display());
        block_on(async {
            let store = sqlite(&folder, "a.db").await;
            let run = add_one(&store).await;
            let ticket = store.ticket("tiles", run).await.unwrap().unwrap();
            let again = Store::open_to_read(&address).await.unwrap();
            assert_eq!(again.ticket("tiles", run).await.unwrap().as_ref(), Some(&ticket), "of all servers");
            for other in [(1, run + 1), (2, run)] {
                assert_ne!(store.secret.ticket(other, ""), store.secret.ticket((1, run), ""));
            }
            // Others may have a copy of the database.
            store.backup(&folder.path().join("b.db")).await.unwrap();
            let copy = sqlite(&folder, "b.db").await;
            assert_ne!(copy.ticket("tiles", run).await.unwrap().unwrap(), ticket);
            assert!(!format!("{store:?}").contains(&String::from_utf8(store.secret.0.to_vec()).unwrap()));
            for store in [store, again, copy] {
                store.close().await;
            }
        });
    }
}
