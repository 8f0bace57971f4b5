//! Tokens: the permission to add runs to a project, and to some of its branches.
//!
//! Data flow: [`Token`] → its digest → a row of `token` → [`Shown`]. A token without branches adds reviews only:
//! nothing proves the branch that its run states.

use memgate_history::{Lines, Manifest};
use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::statements as sql;
use super::{Store, StoreError};
use crate::token::Token;

/// Resolution of the last use: a token is used often, and every use would be a write.
const USE_STEP_US: i64 = 60_000_000;

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRow {
    /// Its id: the beginning of its text after `mgt_`.
    pub id: String,
    /// The project for which it is valid.
    pub project: String,
    /// Globs of the branches it may write as lines; none: reviews only.
    pub branches: Vec<String>,
    /// When it was created, microseconds since 1970, like all times here.
    pub created_us: i64,
    /// When it expires.
    pub expires_us: i64,
    /// When it was used last, to the minute.
    pub used_us: Option<i64>,
    /// When it was revoked.
    pub revoked_us: Option<i64>,
}

/// Result of a check of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// It is valid.
    Holds(Grant),
    /// It is not known.
    Unknown,
    /// It was revoked.
    Revoked,
    /// It expired at this time.
    Expired(i64),
}

/// The rights of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant {
    /// Everything that the manifest states, for the user of this machine.
    All,
    /// The rights of a token.
    Token {
        /// The project for which it is valid.
        project: String,
        /// Globs of the branches it may write as lines.
        branches: Vec<String>,
        /// When it expires.
        expires_us: i64,
    },
    /// The rights of a token that a CI system signed.
    Signed(Signed),
}

/// A token that a CI system signed for one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// The project for which it is valid.
    pub project: String,
    /// The branch and the commit that the job builds; `None`: a review, or a branch that is not the project's own.
    pub line: Option<(String, String)>,
    /// Globs of the branches it may write as lines.
    pub branches: Vec<String>,
    /// The issuer that signed it.
    pub issuer: String,
    /// Its own id.
    pub jti: String,
    /// When it expires, microseconds since 1970.
    pub expires_us: i64,
}

impl Grant {
    /// Is it valid for this project?
    #[must_use]
    pub fn is_for(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Token { project, .. } | Self::Signed(Signed { project, .. }) => project == name,
        }
    }

    /// May it add this run to the line that the run names? A run without a branch names none.
    #[must_use]
    pub fn allows(&self, manifest: &Manifest) -> bool {
        match self {
            Self::All => true,
            Self::Token { branches, .. } => {
                let branch = manifest.branch();
                !manifest.is_review() && !branch.is_empty() && Lines::of(branches).has(branch)
            }
            Self::Signed(Signed { line: Some((branch, sha)), branches, .. }) => {
                let built = manifest.commit.as_ref().is_some_and(|commit| commit.sha == *sha);
                !manifest.is_review()
                    && manifest.branch() == branch
                    && built
                    && Lines::of(branches).has(branch)
            }
            Self::Signed(Signed { line: None, .. }) => false,
        }
    }
}

impl Store {
    /// Creates a token.
    ///
    /// # Errors
    /// The database cannot be written, or there are no random bytes.
    pub async fn create_token(
        &self,
        project: &str,
        branches: &[String],
        expires_us: i64,
    ) -> Result<Token, StoreError> {
        let token = Token::random()?;
        sqlx::query(sql::ADD_TOKEN)
            .bind(token.id().to_owned())
            .bind(token.digest())
            .bind(project.to_owned())
            .bind(serde_json::to_string(branches)?)
            .bind(jiff::Timestamp::now().as_microsecond())
            .bind(expires_us)
            .execute(&self.pool)
            .await?;
        Ok(token)
    }

    /// All tokens, the oldest first.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        sqlx::query(sql::TOKENS).fetch_all(&self.pool).await?.iter().map(row).collect()
    }

    /// Revokes a token; `false`: there is none with this id, or it was revoked before.
    ///
    /// # Errors
    /// The database cannot be written.
    pub async fn revoke_token(&self, id: &str) -> Result<bool, StoreError> {
        let query = sqlx::query(sql::REVOKE_TOKEN).bind(id.to_owned());
        let done = query.bind(jiff::Timestamp::now().as_microsecond()).execute(&self.pool).await?;
        Ok(done.rows_affected() == 1)
    }

    /// Was a token ever made, or is there a rule for signed ones? Then nothing is added without one.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn has_tokens(&self) -> Result<bool, StoreError> {
        for any in [sql::ANY_TOKEN, sql::ANY_RULE] {
            if sqlx::query(any).fetch_optional(&self.pool).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Checks a token, and records its use.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn show_token(&self, token: &Token, now_us: i64) -> Result<Shown, StoreError> {
        let found = sqlx::query(sql::TOKEN).bind(token.digest()).fetch_optional(&self.pool).await?;
        let Some(found) = found.as_ref().map(row).transpose()? else { return Ok(Shown::Unknown) };
        if found.revoked_us.is_some() {
            return Ok(Shown::Revoked);
        }
        if found.expires_us <= now_us {
            return Ok(Shown::Expired(found.expires_us));
        }
        if found.used_us.is_none_or(|used_us| used_us < now_us - USE_STEP_US) {
            let query =
                sqlx::query(sql::USE_TOKEN).bind(found.id.clone()).bind(now_us).bind(now_us - USE_STEP_US);
            query.execute(&self.pool).await?;
        }
        let TokenRow { project, branches, expires_us, .. } = found;
        Ok(Shown::Holds(Grant::Token { project, branches, expires_us }))
    }
}

fn row(row: &AnyRow) -> Result<TokenRow, StoreError> {
    let branches: String = row.try_get(2)?;
    Ok(TokenRow {
        id: row.try_get(0)?,
        project: row.try_get(1)?,
        branches: serde_json::from_str(&branches)?,
        created_us: row.try_get(3)?,
        expires_us: row.try_get(4)?,
        used_us: row.try_get(5)?,
        revoked_us: row.try_get(6)?,
    })
}

#[cfg(test)]
mod tests {
    use memgate_model::{Ci, Commit};

    use super::super::tests::{Postgres, block_on, sqlite};
    use super::*;

    fn of(branch: &str, target: &str) -> Manifest {
        let commit = Commit { branch: branch.into(), target: target.into(), ..Commit::default() };
        let lines = vec!["*".to_owned()];
        Manifest { commit: Some(commit), ci: Some(Ci::default()), lines, ..Manifest::default() }
    }

    #[test]
    fn a_token_writes_the_branches_it_names_and_no_review_is_a_line() {
        let may = |branches: &[&str], manifest: &Manifest| {
            let branches = branches.iter().map(|&branch| branch.to_owned()).collect();
            Grant::Token { project: "p".into(), branches, expires_us: 0 }.allows(manifest)
        };
        assert!(may(&["main", "release/*"], &of("release/2", "")));
        for (branches, manifest) in [
            (&["main"][..], of("feature", "")),
            (&[], of("main", "")),
            (&["*"], of("", "")),
            (&["*"], Manifest::default()),
            (&["*"], of("main", "main")),
            (&["main"], of("main2", "")),
            (&["main"], of("MAIN", "")),
        ] {
            assert!(!may(branches, &manifest), "{branches:?} {manifest:?}");
        }
        assert!(Grant::All.allows(&Manifest::default()));
    }

    async fn from_its_making_to_its_end(store: Store) {
        let now_us = jiff::Timestamp::now().as_microsecond();
        assert!(!store.has_tokens().await.unwrap());
        let token = store.create_token("tiles", &["main".to_owned()], now_us + 1_000_000).await.unwrap();
        assert!(store.has_tokens().await.unwrap());
        let rows = store.tokens().await.unwrap();
        assert_eq!((rows.len(), rows[0].used_us), (1, None));
        let grant = Grant::Token {
            project: "tiles".into(),
            branches: vec!["main".into()],
            expires_us: now_us + 1_000_000,
        };
        assert_eq!(store.show_token(&token, now_us).await.unwrap(), Shown::Holds(grant));
        assert_eq!(store.tokens().await.unwrap()[0].used_us, Some(now_us));
        let later = now_us + 1_000_000;
        assert_eq!(store.show_token(&token, later).await.unwrap(), Shown::Expired(later));
        let other = Token::random().unwrap();
        assert_eq!(store.show_token(&other, now_us).await.unwrap(), Shown::Unknown);
        assert!(!store.revoke_token(other.id()).await.unwrap());
        assert!(store.revoke_token(token.id()).await.unwrap());
        assert!(!store.revoke_token(token.id()).await.unwrap(), "once");
        assert_eq!(store.show_token(&token, now_us).await.unwrap(), Shown::Revoked);
        assert!(store.has_tokens().await.unwrap(), "who had tokens goes on to need one");
        store.close().await;
    }

    #[test]
    fn a_token_holds_until_it_expires_or_is_revoked_in_sqlite() {
        let folder = tempfile::tempdir().unwrap();
        block_on(async {
            from_its_making_to_its_end(sqlite(&folder, "h.db").await).await;
            let files = std::fs::read_dir(folder.path()).unwrap().flatten();
            let kept: Vec<u8> = files.flat_map(|file| std::fs::read(file.path()).unwrap()).collect();
            assert!(!kept.windows(12).any(|bytes| bytes.starts_with(b"mgt_")), "the secret is not stored");
        });
    }

    #[test]
    fn a_token_holds_until_it_expires_or_is_revoked_in_postgresql() {
        let Some(postgres) = Postgres::start() else { return };
        block_on(async {
            from_its_making_to_its_end(postgres.database("tokens").await).await;
        });
    }
}
