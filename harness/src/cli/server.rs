//! What is typed to serve the history, to say who may read it and upload to it, and to upload.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};

use super::shared::{ConfigArgs, StoreArgs};
use super::values::duration;

pub(super) const SERVE_HELP: &str = "\
Shows the same history as `memgate history`, as pages. Nothing needs to be set up: the pages are in this program, and it listens on this \
machine only.

Examples:
  memgate serve                                  http://127.0.0.1:7377
  memgate serve --listen 127.0.0.1:0             any free port
  memgate serve --data /var/lib/memgate --listen 0.0.0.0:7377 --public-host memgate.example.com
  memgate serve --notify notify.yaml --artefacts pages     mail about changes, report pages
  memgate serve --artefacts s3://leaks/team      report pages in a bucket: memgate docs server
  memgate serve token create --project tiles     the right to upload runs to it: memgate docs server
  memgate serve oidc add --help                  the same for GitHub and GitLab, without a secret
  memgate serve user add --help                  accounts, for projects that not everyone may read";

/// What `serve` takes.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ServeArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ServeCommand>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Address to listen on. Anyone who reaches it can read every project that is not members-only.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7377")]
    pub(crate) listen: std::net::SocketAddr,
    /// Name under which browsers reach it, with the port if it is not 443, besides this machine's own names for
    /// itself. The first one is in the links of messages.
    #[arg(long, value_name = "HOST[:PORT]", value_parser = host_name)]
    pub(crate) public_host: Vec<String>,
    /// Keep report pages and heap dumps of runs for 60 days: in a folder, or in `s3://BUCKET/PREFIX`
    /// (`memgate docs server`).
    #[arg(long, value_name = "DIR|s3://BUCKET", value_hint = ValueHint::DirPath)]
    pub(crate) artefacts: Option<String>,
    /// Tell people of leaks that are new, back, fixed or gone on a line, and of figures that rise: by `reports.mail`
    /// and `reports.webhooks` of this file, written as in memgate.yaml.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) notify: Option<PathBuf>,
}

/// What `serve` does besides serving.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum ServeCommand {
    /// Make, list and revoke tokens: the right to upload runs
    #[command(subcommand, after_long_help = TOKEN_HELP)]
    Token(TokenCommand),
    /// Accept the tokens that GitHub or GitLab sign for each job
    #[command(subcommand, after_long_help = OIDC_HELP)]
    Oidc(OidcCommand),
    /// Choose the projects that only members read
    #[command(subcommand, name = "members-only", after_long_help = MEMBERS_HELP)]
    MembersOnly(MembersOnlyCommand),
    /// Make, change and remove accounts: the right to read members-only projects
    #[command(subcommand, after_long_help = MEMBERS_HELP)]
    User(UserCommand),
    /// Remove expired data: figures after 12 months, reviews after 2
    #[command(after_long_help = RETENTION_HELP)]
    Retention {
        /// Where the server has its history.
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Check that every reference in the history exists
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

const OIDC_HELP: &str = "\
No secret is kept in CI. The repository is named by its numeric id: a name may become somebody else's. A branch is followed as a line only if a \
glob of `--branch` names it, and GitHub or GitLab say that the job builds that branch, and this commit of it.

Examples:
  memgate serve oidc add --project tiles --github 1296269 --branch main \\
      --audience https://memgate.example.com
  memgate serve oidc add --project tiles --gitlab 20 --branch main \\
      --issuer https://gitlab.example.com --audience https://memgate.example.com
  memgate serve oidc list";

/// What is done with rules for signed tokens.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum OidcCommand {
    /// Let the jobs of a repository add runs to a project
    #[command(group(clap::ArgGroup::new("whose").required(true).args(["github", "gitlab"])))]
    Add {
        /// Where the server has its history; it is made where there is none.
        #[command(flatten)]
        store: StoreArgs,
        /// The project, as memgate.yaml names it.
        #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
        project: String,
        /// Numeric id of the repository on GitHub (`gh api repos/OWNER/NAME --jq .id`).
        #[arg(long, value_name = "ID")]
        github: Option<u64>,
        /// Numeric id of the project on GitLab.
        #[arg(long, value_name = "ID")]
        gitlab: Option<u64>,
        /// Who signs [default: the public GitHub or GitLab].
        #[arg(long, value_name = "URL")]
        issuer: Option<String>,
        /// For whom tokens are made: the address of this server, as `history.server` names it.
        #[arg(long, value_name = "URL", value_parser = audience)]
        audience: String,
        /// Branches whose leaks its jobs may follow, as globs [default: none].
        #[arg(long, value_name = "GLOB", value_parser = branches)]
        branch: Vec<String>,
    },
    /// List the rules
    List {
        /// Where the server has its history.
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Remove a rule
    Remove {
        /// Where the server has its history.
        #[command(flatten)]
        store: StoreArgs,
        /// Its id, as `list` shows it.
        #[arg(value_name = "ID")]
        id: String,
    },
}

impl OidcCommand {
    /// Where the server has its history.
    #[must_use]
    pub const fn store(&self) -> &StoreArgs {
        let (Self::Add { store, .. } | Self::List { store } | Self::Remove { store, .. }) = self;
        store
    }
}

const MEMBERS_HELP: &str = "\
Everyone who reaches the server reads all projects, except those that a glob of `members-only` names. Those are read by accounts that name \
them, and by CI jobs with a token of the project. To others they look as if they were not there. Passwords are stored as Argon2id hashes.

Examples:
  memgate serve members-only add 'internal-*'
  memgate serve user add anna --project 'internal-*'           prints a new password, once
  memgate serve user password anna --stdin < password.txt
  memgate serve user projects anna --project internal-tiles";

/// Which projects only members read.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum MembersOnlyCommand {
    /// Only members read the projects that these globs name
    Add {
        /// Where the server has its history; it is made where there is none.
        #[command(flatten)]
        store: StoreArgs,
        /// Names of projects; they need not be there yet.
        #[arg(value_name = "GLOB", required = true, value_parser = glob)]
        projects: Vec<String>,
    },
    /// List the globs
    List {
        /// Where the server has its history.
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Everyone reads these projects again
    Remove {
        /// Where the server has its history.
        #[command(flatten)]
        store: StoreArgs,
        /// Globs, as `list` shows them.
        #[arg(value_name = "GLOB", required = true)]
        projects: Vec<String>,
    },
}

impl MembersOnlyCommand {
    /// Where the server has its history.
    #[must_use]
    pub const fn store(&self) -> &StoreArgs {
        let (Self::Add { store, .. } | Self::List { store } | Self::Remove { store, .. }) = self;
        store
    }
}

/// What is done with accounts.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum UserCommand {
    /// Make an account, and print its password once
    Add {
        /// Where the server has its history; it is made where there is none.
        #[command(flatten)]
        store: StoreArgs,
        /// Its name: letters, digits and `.`, `_`, `@`, `-`.
        #[arg(value_name = "NAME", value_parser = user)]
        name: String,
        /// Members-only projects that it may read, as globs [default: none].
        #[arg(long, value_name = "GLOB", value_parser = glob)]
        project: Vec<String>,
        /// Read the password from stdin, instead of making one.
        #[arg(long)]
        stdin: bool,
    },
    /// List the accounts
    List {
        /// Where the server has its history.
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Give an account a new password, and sign it out everywhere
    Password {
        /// Where the server has its history.
        #[command(flatten)]
        store: StoreArgs,
        /// Its name.
        #[arg(value_name = "NAME", value_parser = user)]
        name: String,
        /// Read the password from stdin, instead of making one.
        #[arg(long)]
        stdin: bool,
    },
    /// Replace the projects that an account may read
    Projects {
        /// Where the server has its history.
        #[command(flatten)]
        store: StoreArgs,
        /// Its name.
        #[arg(value_name = "NAME", value_parser = user)]
        name: String,
        /// Members-only projects that it may read, as globs [default: none].
        #[arg(long, value_name = "GLOB", value_parser = glob)]
        project: Vec<String>,
    },
    /// Remove an account, and sign it out everywhere
    Remove {
        /// Where the server has its history.
        #[command(flatten)]
        store: StoreArgs,
        /// Its name.
        #[arg(value_name = "NAME", value_parser = user)]
        name: String,
    },
}

impl UserCommand {
    /// Where the server has its history.
    #[must_use]
    pub const fn store(&self) -> &StoreArgs {
        let (Self::Add { store, .. }
        | Self::List { store }
        | Self::Password { store, .. }
        | Self::Projects { store, .. }
        | Self::Remove { store, .. }) = self;
        store
    }
}

/// Whoever signs in need not remember how it was written.
fn user(typed: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte);
    if typed.is_empty() || typed.len() > 64 || !typed.bytes().all(plain) {
        return Err("a name has 1 to 64 letters, digits, `.`, `_`, `@` and `-`".to_owned());
    }
    Ok(typed.to_lowercase())
}

const UPLOAD_HELP: &str = "\
Runs upload themselves if memgate.yaml has `history.server`. This command uploads sessions that could not, or that another machine recorded. \
The server adds a session once, however often it is uploaded. The token is in the variable that `history.token` names, else in MEMGATE_TOKEN, else \
GitHub or GitLab sign one for the job (`memgate docs server`).

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
        #[arg(long, value_name = "GLOB", value_parser = branches)]
        branch: Vec<String>,
        /// Days until it expires.
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
    pub const fn store(&self) -> &StoreArgs {
        let (Self::Create { store, .. } | Self::List { store } | Self::Revoke { store, .. }) = self;
        store
    }
}

/// A glob of branches, as CI names them.
fn branches(typed: &str) -> Result<String, String> {
    if typed.is_empty() || typed.contains(',') {
        return Err("expected one glob; repeat the option for more".to_owned());
    }
    if let Some(name) = ["refs/heads/", "origin/"].iter().find_map(|start| typed.strip_prefix(start)) {
        return Err(format!("branches are named without that: `{name}`"));
    }
    glob(typed)
}

/// The audience of signed tokens: clients ask for the address in `history.server`, which has no slash at its end.
fn audience(typed: &str) -> Result<String, String> {
    match typed.contains("://") {
        true => Ok(typed.trim_end_matches('/').to_owned()),
        false => Err("expected the address of the server, https://memgate.example.com".to_owned()),
    }
}

/// A glob. Another text would match nothing, and nobody would be told.
fn glob(typed: &str) -> Result<String, String> {
    globset::Glob::new(typed).map(|_| typed.to_owned()).map_err(|why| why.kind().to_string())
}

/// A host name, perhaps with a port. A browser never sends more than that, so more would match nothing.
fn host_name(typed: &str) -> Result<String, String> {
    match typed.contains(['/', ' ', '@']) || typed.is_empty() {
        true => Err("expected a host name, without scheme and path".to_owned()),
        false => Ok(typed.to_owned()),
    }
}
