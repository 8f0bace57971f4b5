//! What is typed to ask the history of a project.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};

use super::shared::{ConfigArgs, StoreArgs};

pub(super) const HISTORY_HELP: &str = "\
Every `memgate run` adds itself to .memgate/history.db, unless memgate.yaml has `history: off`. Leaks are followed on lines: the branches \
that `history.lines` names (default: main, master, release/*).

Examples:
  memgate history leaks                          alive leaks: new, known or regressed
  memgate history leaks --state fixed --json
  memgate history leak n1-5f1c09a2b47d1e03       where it came from, its stack, who holds it
  memgate history test engine::MapCache.scroll   its figures over the commits
  memgate history runs
  memgate history export > values.csv            every figure of every judged test
  memgate history add leaks/session              a session that another machine recorded";

/// What to show of a history.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum HistoryCommand {
    /// List the leaks of a line
    Leaks {
        /// Which history.
        #[command(flatten)]
        of: HistoryArgs,
        /// Only leaks in this state; `alive` is new, known or regressed.
        #[arg(long, value_enum, default_value_t = LeakState::Alive)]
        state: LeakState,
        /// Only leaks of this owner.
        #[arg(long, value_name = "OWNER")]
        owner: Option<String>,
        /// Only leaks of tests in this suite.
        #[arg(long, value_name = "SUITE")]
        suite: Option<String>,
    },
    /// Show the life of one leak
    Leak {
        /// Which history.
        #[command(flatten)]
        of: HistoryArgs,
        /// Its id.
        #[arg(value_name = "LEAK")]
        leak: String,
    },
    /// Show the figures of a test over the commits
    Test {
        /// Which history.
        #[command(flatten)]
        of: HistoryArgs,
        /// Its name, as `suite::Test.name`.
        #[arg(value_name = "TEST")]
        test: String,
        /// Which figure [default: the one that leaks, else the first].
        #[arg(long, value_name = "METRIC")]
        metric: Option<String>,
    },
    /// List the runs of a line, the newest first, 100 at a time
    Runs {
        /// Which history.
        #[command(flatten)]
        of: HistoryArgs,
        /// Only runs older than this one.
        #[arg(long, value_name = "RUN")]
        before: Option<i64>,
    },
    /// Print every figure of every judged test as CSV
    Export {
        /// Which history.
        #[command(flatten)]
        of: HistoryArgs,
    },
    /// Add recorded sessions
    Add {
        /// Where to.
        #[command(flatten)]
        store: StoreArgs,
        /// Names the lines of sessions that do not.
        #[command(flatten)]
        config: ConfigArgs,
        /// Session folders.
        #[arg(value_name = "SESSION", required = true, value_hint = ValueHint::DirPath)]
        sessions: Vec<PathBuf>,
    },
}

/// Which part of a history is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct LineArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The project [default: the one there is].
    #[arg(long, value_name = "NAME")]
    pub(crate) project: Option<String>,
    /// The branch [default: the line with the newest run].
    #[arg(long, value_name = "BRANCH")]
    pub(crate) branch: Option<String>,
    /// The environment, as `memgate history runs` shows it [default: the one of the newest run].
    #[arg(long, value_name = "LABEL")]
    pub(crate) environment: Option<String>,
}

/// Which part of a history is asked for, and how it is printed.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct HistoryArgs {
    #[command(flatten)]
    pub(crate) line: LineArgs,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where a leak stands in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum LeakState {
    /// New, known or regressed.
    Alive,
    /// Seen on one commit.
    New,
    /// Seen on several commits.
    Known,
    /// Seen again after its fix.
    Regressed,
    /// Not seen any more, although its tests were judged.
    Fixed,
    /// Its tests do not exist any more.
    Gone,
    /// Any of these.
    Any,
}

/// What `bisect` takes.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(
    after_long_help = "Prints `git bisect` commands for the commits between the last one that was measured without the leak and the first one with it. Each step is a `memgate run --bisect` of the leak's test. Nothing is run.\n\nExamples:\n  memgate bisect n1-5f1c09a2b47d1e03"
)]
pub struct BisectArgs {
    /// Id of the leak.
    #[arg(value_name = "LEAK")]
    pub(crate) leak: String,
    #[command(flatten)]
    pub(crate) of: LineArgs,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

/// What `tune` takes.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(
    after_long_help = "Prints a patch of memgate.yaml; `--write` sets its thresholds there, with their evidence, and keeps comments. A figure that grows on every commit gets no threshold: it is a leak, to be fixed or waived. At least 10 judged commits since the last change are needed, 59 to fail a build.\n\nExamples:\n  memgate tune\n  memgate tune --write\n  memgate tune --branch release/2 --database postgres://memgate@db.example.com/memgate"
)]
pub struct TuneArgs {
    #[command(flatten)]
    pub(crate) of: LineArgs,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Set the proposed thresholds in memgate.yaml.
    #[arg(long)]
    pub(crate) write: bool,
}
