//! Rules for tokens that a CI system signs: the repositories whose jobs may add runs to a project.
//!
//! Data flow: an administrator adds a rule → a verified token is checked against it (`http::grants::signed`) → its run.
//! A token belongs to one run: the first that shows it.

use memgate_history::Manifest;
use memgate_history::hex;
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest as _, Sha256};
use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::add::run_key;
use super::{Store, StoreError, statements as sql};

/// How long a use is remembered after its token expired: clocks differ, so a server may accept the token for longer.
const REMEMBERED_US: i64 = 24 * 3600 * 1_000_000;

/// The CI system that signs tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// GitHub Actions.
    GitHub,
    /// GitLab CI.
    GitLab,
}

impl Provider {
    /// Its name in the database, and for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::GitHub => "github",
            Self::GitLab => "gitlab",
        }
    }

    /// The issuer of the public service.
    #[must_use]
    pub const fn issuer(self) -> &'static str {
        match self {
            Self::GitHub => "https://token.actions.githubusercontent.com",
            Self::GitLab => "https://gitlab.com",
        }
    }
}

/// Jobs of one repository may add runs to a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedRule {
    /// Its id: 8 characters.
    pub id: String,
    /// The project.
    pub project: String,
    /// The CI system.
    pub provider: Provider,
    /// The issuer, as in `iss`: `https://gitlab.com`.
    pub issuer: String,
    /// Numeric id of the repository (GitHub) or project (GitLab): a name may pass to another owner.
    pub subject: String,
    /// The audience, as in `aud`: the address of this server.
    pub audience: String,
    /// Globs of the branches that its jobs may write as lines; none: reviews only.
    pub branches: Vec<String>,
}

impl Store {
    /// Adds a rule, with a new `id`.
    ///
    /// # Errors
    /// The database cannot be written, or there are no random bytes.
    pub async fn add_rule(&self, rule: SignedRule) -> Result<SignedRule, StoreError> {
        let mut random = [0; 4];
        getrandom(&mut random, GetRandomFlags::empty()).map_err(|why| StoreError::Broken(why.to_string()))?;
        let rule = SignedRule { id: hex(&random), ..rule };
        sqlx::query(sql::ADD_RULE)
            .bind(rule.id.clone())
            .bind(rule.project.clone())
            .bind(rule.provider.name().to_owned())
            .bind(rule.issuer.clone())
            .bind(rule.subject.clone())
            .bind(rule.audience.clone())
            .bind(serde_json::to_string(&rule.branches)?)
            .bind(jiff::Timestamp::now().as_microsecond())
            .execute(&self.pool)
            .await?;
        Ok(rule)
    }

    /// All rules, the oldest first.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn rules(&self) -> Result<Vec<SignedRule>, StoreError> {
        sqlx::query(sql::RULES).fetch_all(&self.pool).await?.iter().map(rule).collect()
    }

    /// Removes a rule; `false`: there is none with this id.
    ///
    /// # Errors
    /// The database cannot be written.
    pub async fn remove_rule(&self, id: &str) -> Result<bool, StoreError> {
        let removed = sqlx::query(sql::REMOVE_RULE).bind(id.to_owned()).execute(&self.pool).await?;
        Ok(removed.rows_affected() == 1)
    }

    /// Records that a signed token (`jti` of `issuer`) adds this run; `false`: it was used for another run. It may add
    /// the same run again.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn use_signed(
        &self,
        (issuer, jti): (&str, &str),
        manifest: &Manifest,
        expires_us: i64,
    ) -> Result<bool, StoreError> {
        let mut digest = Sha256::new();
        digest.update(issuer);
        digest.update([0]);
        digest.update(jti);
        let (digest, run) = (hex(&digest.finalize()), run_key(manifest));
        let now_us = jiff::Timestamp::now().as_microsecond();
        sqlx::query(sql::REMOVE_USES).bind(now_us - REMEMBERED_US).execute(&self.pool).await?;
        let added = sqlx::query(sql::ADD_USE)
            .bind(digest.clone())
            .bind(run.clone())
            .bind(expires_us)
            .execute(&self.pool)
            .await;
        match added {
            Ok(_) => Ok(true),
            Err(why)
                if why.as_database_error().is_some_and(sqlx::error::DatabaseError::is_unique_violation) =>
            {
                let row = sqlx::query(sql::USE).bind(digest).fetch_optional(&self.pool).await?;
                let first: Option<String> = row.map(|row| row.try_get(0)).transpose()?;
                Ok(first.is_none_or(|first| first == run))
            }
            Err(why) => Err(why.into()),
        }
    }
}

fn rule(row: &AnyRow) -> Result<SignedRule, StoreError> {
    let (provider, branches): (String, String) = (row.try_get(2)?, row.try_get(6)?);
    let provider = [Provider::GitHub, Provider::GitLab].into_iter().find(|known| known.name() == provider);
    Ok(SignedRule {
        id: row.try_get(0)?,
        project: row.try_get(1)?,
        provider: provider.ok_or_else(|| StoreError::Broken("a rule is of nobody".to_owned()))?,
        issuer: row.try_get(3)?,
        subject: row.try_get(4)?,
        audience: row.try_get(5)?,
        branches: serde_json::from_str(&branches)?,
    })
}
