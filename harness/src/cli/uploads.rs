//! What is typed to give others the right to upload, and to upload.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};

use super::shared::{ConfigArgs, StoreArgs};
use super::values::duration;

/// What `serve` does besides serving.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum ServeCommand {
    /// Make, list and revoke tokens: the right to upload runs
    #[command(subcommand, after_long_help = TOKEN_HELP)]
    Token(TokenCommand),
    /// Remove what has ended: figures after 12 months, reviews after 2
    #[command(after_long_help = RETENTION_HELP)]
    Retention {
        /// Where the server has its history.
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Prove that nothing in the history names what is not there
    Check {
        /// Where the server has its history.
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Copy the whole history into a new SQLite file, while it is used
    #[command(after_long_help = BACKUP_HELP)]
    Backup {
        /// Where the server has its history.
        #[command(flatten)]
        store: StoreArgs,
        /// The new file.
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Copy a backup into an empty history
    #[command(after_long_help = BACKUP_HELP)]
    Restore {
        /// Where the new history is made.
        #[command(flatten)]
        store: StoreArgs,
        /// The backup.
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
}

const RETENTION_HELP: &str = "\
A server does this by itself, once a day. Runs, leaks and their events stay; pages of old runs say that their figures have ended.

Example:
  memgate serve retention --data /var/lib/memgate";

const BACKUP_HELP: &str = "\
A backup is a SQLite file, of either database, and can be restored into either.

Examples:
  memgate serve backup --data /var/lib/memgate memgate-$(date +%F).db
  memgate serve restore --database postgres://memgate@db.example.com/memgate memgate-2026-11-25.db";

const TOKEN_HELP: &str = "\
A token adds runs to one project. Only the branches that it names are followed as lines. Without `--branch` its runs are kept like those of \
pull requests, and change no state. It is shown once: only its digest is stored.

Examples:
  memgate serve token create --project tiles --branch main     for CI of main
  memgate serve token create --project tiles                   for pull requests
  memgate serve token list
  memgate serve token revoke 3kTq9ZbX";

const UPLOAD_HELP: &str = "\
Runs upload themselves if memgate.yaml has `history.server`. This command uploads sessions that could not, or that another machine recorded. \
The server adds a session once, however often it is uploaded. The token is in the variable that `history.token` names, else in MEMGATE_TOKEN.

Examples:
  memgate upload .memgate/latest
  memgate upload leaks/* --server https://memgate.example.com";

/// What `upload` takes.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_long_help = UPLOAD_HELP)]
pub struct UploadArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Address of a `memgate serve` [default: `history.server`].
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// How long to try each session, while the server does not answer.
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = duration)]
    pub(crate) wait: Duration,
    /// Session folders.
    #[arg(value_name = "SESSION", required = true, value_hint = ValueHint::DirPath)]
    pub(crate) sessions: Vec<PathBuf>,
}

/// What is done with tokens.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum TokenCommand {
    /// Make a token, and print it once
    Create {
        /// Where the server has its history; it is made where there is none.
        #[command(flatten)]
        store: StoreArgs,
        /// The project it is for, as memgate.yaml names it.
        #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
        project: String,
        /// Branches whose leaks it may follow, as globs [default: none].
        #[arg(long, value_name = "GLOB", value_parser = glob)]
        branch: Vec<String>,
        /// Days until it ends.
        #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u16).range(1..=3650))]
        days: u16,
    },
    /// List the tokens, without their secrets
    List {
        /// Where the server has its history.
        #[command(flatten)]
        store: StoreArgs,
    },
    /// End tokens at once
    Revoke {
        /// Where the server has its history.
        #[command(flatten)]
        store: StoreArgs,
        /// Their ids: the 8 characters after `mgt_`.
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
}

impl TokenCommand {
    /// Where the server has its history.
    #[must_use]
    pub const fn store(&self) -> (&PathBuf, &Option<String>) {
        let (Self::Create { store, .. } | Self::List { store } | Self::Revoke { store, .. }) = self;
        (&store.data, &store.database)
    }
}

/// A pattern that is none would match nothing, and nobody would be told.
fn glob(typed: &str) -> Result<String, String> {
    globset::Glob::new(typed).map(|_| typed.to_owned()).map_err(|why| why.kind().to_string())
}
