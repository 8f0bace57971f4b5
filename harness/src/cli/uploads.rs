//! What is typed to give others the right to upload, and to upload.

use std::path::PathBuf;

use clap::Subcommand;

use super::args::StoreArgs;

/// What `serve` does besides serving.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum ServeCommand {
    /// Make, list and revoke tokens: the right to upload runs
    #[command(subcommand, after_long_help = TOKEN_HELP)]
    Token(TokenCommand),
}

const TOKEN_HELP: &str = "\
A token adds runs to one project. Only the branches that it names are followed as lines; without `--branch` it adds runs that are kept like
those of a pull request, and change no state. Only its digest is stored: it is shown once.

Examples:
  memgate serve token create --project tiles --branch main --branch 'release/*'   for the protected branches of CI
  memgate serve token create --project tiles                                      for everybody's pull requests
  memgate serve token revoke 3kTq9ZbX";

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
