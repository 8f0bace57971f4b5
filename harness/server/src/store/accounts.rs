//! Read access to projects.
//!
//! Data flow: the cookie of a request → its digest → one statement: the patterns of members-only projects, and the
//! account of that session → [`Reader`]. Everybody may read a project that no pattern matches.

use memgate_history::{Lines, sha256_hex};
use sqlx::Row as _;

use super::statements as sql;
use super::{Store, StoreError};

/// How long a session lasts.
pub const SESSION_US: i64 = 12 * 3600 * 1_000_000;

/// An account, without its password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its name, in lower case.
    pub name: String,
    /// Globs of the members-only projects that it may read.
    pub projects: Vec<String>,
    /// When it was created, microseconds since 1970.
    pub created_us: i64,
    /// When it was last used to sign in.
    pub used_us: Option<i64>,
}

/// A reader, and the projects that they may read.
#[derive(Debug, Clone, Default)]
pub struct Reader {
    /// The account that is signed in.
    pub account: Option<String>,
    /// Is any project for members only?
    pub has_members_only: bool,
    members_only: Lines,
    projects: Lines,
}

impl Reader {
    /// May this reader see a project?
    #[must_use]
    pub fn may_read(&self, project: &str) -> bool {
        !self.members_only.has(project) || (self.account.is_some() && self.projects.has(project))
    }
}

impl Store {
    /// The reader with this session secret.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn reader(&self, secret: Option<&str>, now_us: i64) -> Result<Reader, StoreError> {
        let digest = secret.map_or_else(String::new, digest);
        let rows = sqlx::query(sql::READER).bind(digest).bind(now_us).fetch_all(&self.pool).await?;
        let (mut reader, mut patterns) = (Reader::default(), Vec::new());
        for row in rows {
            let (kind, text): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
            if kind == 1 {
                patterns.push(text);
            } else {
                let projects: String = row.try_get(2)?;
                reader.account = Some(text);
                reader.projects = Lines::of(&serde_json::from_str::<Vec<String>>(&projects)?);
            }
        }
        reader.has_members_only = !patterns.is_empty();
        reader.members_only = Lines::of(&patterns);
        Ok(reader)
    }

    /// Adds an account; `false`: the name is taken.
    ///
    /// # Errors
    /// The database cannot be written.
    pub async fn add_account(
        &self,
        name: &str,
        password: &str,
        projects: &[String],
    ) -> Result<bool, StoreError> {
        let added = sqlx::query(sql::ADD_ACCOUNT)
            .bind(name.to_owned())
            .bind(password.to_owned())
            .bind(serde_json::to_string(projects)?)
            .bind(jiff::Timestamp::now().as_microsecond())
            .execute(&self.pool)
            .await?;
        Ok(added.rows_affected() == 1)
    }

    /// Sets the password of an account, and ends its sessions; `false`: there is no such account.
    ///
    /// # Errors
    /// The database cannot be written.
    pub async fn set_password(&self, name: &str, password: &str) -> Result<bool, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let query = sqlx::query(sql::SET_PASSWORD).bind(name.to_owned()).bind(password.to_owned());
        let done = query.execute(&mut *transaction).await?;
        sqlx::query(sql::END_SESSIONS).bind(name.to_owned()).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(done.rows_affected() == 1)
    }

    /// Sets the projects of an account; `false`: there is no such account.
    ///
    /// # Errors
    /// The database cannot be written.
    pub async fn set_projects(&self, name: &str, projects: &[String]) -> Result<bool, StoreError> {
        let query = sqlx::query(sql::SET_PROJECTS).bind(name.to_owned());
        let done = query.bind(serde_json::to_string(projects)?).execute(&self.pool).await?;
        Ok(done.rows_affected() == 1)
    }

    /// Removes an account, and ends its sessions; `false`: there is no such account.
    ///
    /// # Errors
    /// The database cannot be written.
    pub async fn remove_account(&self, name: &str) -> Result<bool, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let done = sqlx::query(sql::REMOVE_ACCOUNT).bind(name.to_owned()).execute(&mut *transaction).await?;
        sqlx::query(sql::END_SESSIONS).bind(name.to_owned()).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(done.rows_affected() == 1)
    }

    /// All accounts, by name.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn accounts(&self) -> Result<Vec<Account>, StoreError> {
        let rows = sqlx::query(sql::ACCOUNTS).fetch_all(&self.pool).await?;
        let account = |row: &sqlx::any::AnyRow| {
            let projects: String = row.try_get(1)?;
            Ok(Account {
                name: row.try_get(0)?,
                projects: serde_json::from_str(&projects)?,
                created_us: row.try_get(2)?,
                used_us: row.try_get(3)?,
            })
        };
        rows.iter().map(account).collect()
    }

    /// The stored password hash of an account.
    ///
    /// # Errors
    /// The database cannot be read.
    pub(crate) async fn password(&self, name: &str) -> Result<Option<String>, StoreError> {
        if name.contains('\0') {
            // PostgreSQL fails on such a text.
            return Ok(None);
        }
        let row = sqlx::query(sql::PASSWORD).bind(name.to_owned()).fetch_optional(&self.pool).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// Begins a session of an account, if its stored password hash is still this one; `false`: it is not.
    ///
    /// # Errors
    /// The database cannot be written.
    pub(crate) async fn begin_session(
        &self,
        name: &str,
        password: &str,
        secret: &str,
        now_us: i64,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.pool.begin().await?;
        // A concurrent change of the password comes first and makes this fail, or comes later and ends the session.
        let used = sqlx::query(sql::USE_ACCOUNT).bind(name.to_owned()).bind(password.to_owned()).bind(now_us);
        if used.execute(&mut *transaction).await?.rows_affected() != 1 {
            return Ok(false);
        }
        sqlx::query(sql::REMOVE_SESSIONS).bind(now_us).execute(&mut *transaction).await?;
        sqlx::query(sql::ADD_SESSION)
            .bind(digest(secret))
            .bind(name.to_owned())
            .bind(now_us + SESSION_US)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Ends a session.
    ///
    /// # Errors
    /// The database cannot be written.
    pub(crate) async fn end_session(&self, secret: &str) -> Result<(), StoreError> {
        sqlx::query(sql::END_SESSION).bind(digest(secret)).execute(&self.pool).await?;
        Ok(())
    }

    /// Globs of the members-only projects.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn members_only(&self) -> Result<Vec<String>, StoreError> {
        let rows = sqlx::query(sql::MEMBERS_ONLY).fetch_all(&self.pool).await?;
        Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
    }

    /// Makes the projects that match this glob readable for members only.
    ///
    /// # Errors
    /// The database cannot be written.
    pub async fn add_members_only(&self, pattern: &str) -> Result<(), StoreError> {
        let query = sqlx::query(sql::ADD_MEMBERS_ONLY).bind(pattern.to_owned());
        query.bind(jiff::Timestamp::now().as_microsecond()).execute(&self.pool).await?;
        Ok(())
    }

    /// Removes a glob; `false`: it is not there.
    ///
    /// # Errors
    /// The database cannot be written.
    pub async fn remove_members_only(&self, pattern: &str) -> Result<bool, StoreError> {
        let done = sqlx::query(sql::REMOVE_MEMBERS_ONLY).bind(pattern.to_owned()).execute(&self.pool).await?;
        Ok(done.rows_affected() == 1)
    }
}

/// Stored digest of a session. A fast hash is enough: 256 random bits cannot be guessed.
fn digest(secret: &str) -> String {
    sha256_hex(secret.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Postgres, block_on, sqlite};
    use super::*;

    async fn from_signing_in_to_signing_out(store: Store) {
        let reader = async |secret, now_us| store.reader(secret, now_us).await.unwrap();
        assert!(reader(None, 1).await.may_read("tiles"), "what nothing is said of, everybody reads");
        store.add_members_only("til*").await.unwrap();
        store.add_members_only("til*").await.unwrap();
        let nobody = reader(None, 1).await;
        assert!(nobody.has_members_only && !nobody.may_read("tiles") && nobody.may_read("maps"));

        assert!(store.add_account("anna", "hash", &["tiles".to_owned()]).await.unwrap());
        assert!(!store.add_account("anna", "other", &[]).await.unwrap(), "one of a name");
        assert_eq!(store.password("an\0na").await.unwrap(), None);
        assert!(!store.begin_session("anna", "other", "s0", 1).await.unwrap());
        assert!(!store.begin_session("otto", "hash", "s0", 1).await.unwrap());
        assert!(store.begin_session("anna", "hash", "s1", 1).await.unwrap());
        let anna = reader(Some("s1"), 2).await;
        assert_eq!(anna.account.as_deref(), Some("anna"));
        assert!(anna.may_read("tiles") && anna.may_read("maps") && !anna.may_read("tilt"));
        for (secret, now_us) in [(Some("s0"), 2), (Some(""), 2), (None, 2), (Some("s1"), 1 + SESSION_US)] {
            assert!(!reader(secret, now_us).await.may_read("tiles"), "{secret:?} {now_us}");
        }

        assert!(store.set_projects("anna", &["til*".to_owned()]).await.unwrap());
        assert!(reader(Some("s1"), 2).await.may_read("tilt"));
        store.end_session("s1").await.unwrap();
        assert_eq!(reader(Some("s1"), 2).await.account, None);

        for (secret, ends) in [("s2", true), ("s3", false)] {
            let password = store.password("anna").await.unwrap().unwrap();
            assert!(store.begin_session("anna", &password, secret, 1).await.unwrap());
            let done = if ends {
                store.set_password("anna", "new").await
            } else {
                store.remove_account("anna").await
            };
            assert!(done.unwrap());
            assert_eq!(reader(Some(secret), 2).await.account, None);
        }
        assert!(store.accounts().await.unwrap().is_empty());
        assert!(
            !store.set_password("anna", "x").await.unwrap() && !store.remove_account("anna").await.unwrap()
        );
        assert!(store.remove_members_only("til*").await.unwrap());
        assert!(!store.remove_members_only("til*").await.unwrap());
        assert!(reader(None, 1).await.may_read("tiles"));
        store.close().await;
    }

    #[test]
    fn members_read_what_others_do_not_in_sqlite() {
        let folder = tempfile::tempdir().unwrap();
        block_on(async {
            from_signing_in_to_signing_out(sqlite(&folder, "h.db").await).await;
        });
    }

    #[test]
    fn members_read_what_others_do_not_in_postgresql() {
        let Some(postgres) = Postgres::start() else { return };
        block_on(async {
            from_signing_in_to_signing_out(postgres.database("accounts").await).await;
        });
    }
}
