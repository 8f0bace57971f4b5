//! Options that several commands have.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Place of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct ConfigArgs {
    /// Configuration file [default: memgate.yaml, if it exists].
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
}

/// Where the sessions are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct OutputArgs {
    /// Folder of the sessions.
    #[arg(long, value_name = "DIR", default_value = ".memgate", value_hint = ValueHint::DirPath)]
    pub(crate) output_dir: PathBuf,
}

/// Where a history is kept.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct StoreArgs {
    /// Folder of the sessions, with history.db in it.
    #[arg(long, value_name = "DIR", default_value = ".memgate", value_hint = ValueHint::DirPath)]
    pub(crate) data: PathBuf,
    /// Database in place of DIR/history.db: `sqlite:FILE` or `postgres://USER@HOST/NAME`.
    #[arg(long, value_name = "URL", env = "MEMGATE_DATABASE", hide_env_values = true)]
    pub(crate) database: Option<String>,
}
