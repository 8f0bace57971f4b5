//! What is typed for the commands that judge: `run`, `merge`, `gate`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};
use memgate_config::{Devices, TargetGlob};
use memgate_model::{MOST_SHARDS, ShardNumber};

use super::shared::{ConfigArgs, OutputArgs};
use super::values::{duration, leak_id};

const RUN_HELP: &str = "\
The output of the tests does not change. memgate writes its messages to stderr, and the report to the session folder \
(.memgate/latest). The tests can read input from a file or a pipe, but not from a terminal.

Examples:
  memgate run -- build/engine_tests --gtest_shuffle
  memgate run -- ctest --test-dir build -j4
  memgate run -- make check
  memgate run --target '*/build/*_test' -- ./run_all.sh
  memgate run -- build/replay recording.bin       a plain program: the process is the test
  memgate run --suite engine --filter 'MapCache.*'
  memgate run --repeat-screen 3 -- build/tests    each test three times: leaks that begin later
  memgate run --hunt 10m                          each night: also finds occasional leaks
  memgate run --partition 3/8                     the third of eight parts, for `memgate merge`
  memgate run --suite app --device emulator-5554  tests on a device: memgate docs android

Exit codes: 0 within the thresholds · 1 a threshold is exceeded, or a test failed · 2 something was not measured · 130 interrupted";

/// What `run` takes.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(after_long_help = RUN_HELP)]
pub struct RunArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Run this suite of the configuration only (repeatable).
    #[arg(long = "suite", value_name = "SUITE")]
    pub(crate) suites: Vec<String>,
    /// Run only tests whose name matches, in GoogleTest's syntax (`MapCache.*:-*.slow`).
    #[arg(long, value_name = "GLOB", allow_hyphen_values = true)]
    pub(crate) filter: Option<String>,
    /// Judge leaks only: failing tests do not fail the run.
    #[arg(long)]
    pub(crate) ignore_test_failures: bool,
    /// Show every leak, all frames, and the stacks of one-time allocations.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Execute each GoogleTest test N times in the screen, in one process: finds leaks that begin
    /// with a later execution; 1 to 1000 [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) repeat_screen: Option<u32>,
    /// Measured iterations of a confirming run, at least; 5 to 100000 [default: 10].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(5..=100_000))]
    pub(crate) iterations: Option<u32>,
    /// Iterations before those, which are not measured [default: 3].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub(crate) warm_up: Option<u32>,
    /// Longest time of one test (`60s`, `5m`): a repeated one is then killed, one in the command's
    /// own run is only reported [default: 60s].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// After confirming, repeat the tests that were never suspect for this time (`10m`): finds
    /// leaks that do not come with every execution.
    #[arg(long, value_name = "TIME", conflicts_with = "no_confirm", value_parser = duration)]
    pub(crate) hunt: Option<Duration>,
    /// As a step of `git bisect run`: exit code 0 without the leak of `--leak`, 1 with it, 125 if
    /// it cannot be told. Runs up to N times for a leak that comes and goes. Nothing is sent.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1", requires = "leak", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) bisect: Option<u32>,
    /// The leak that `--bisect` looks for.
    #[arg(long, value_name = "ID", requires = "bisect", value_parser = leak_id)]
    pub(crate) leak: Option<String>,
    /// Skip confirmation; report suspects as warnings.
    #[arg(long)]
    pub(crate) no_confirm: bool,
    /// Also measure every executable whose absolute path matches (repeatable).
    #[arg(long = "target", value_name = "GLOB", value_parser = TargetGlob::typed)]
    pub(crate) targets: Vec<TargetGlob>,
    /// Run instrumented suites on this device [default: the only one, or $ANDROID_SERIAL].
    #[arg(long, value_name = "SERIAL", conflicts_with_all = ["devices", "program"])]
    pub(crate) device: Option<String>,
    /// Run instrumented suites on all devices that are ready.
    #[arg(long, value_name = "WHICH", value_parser = ["all"], conflicts_with = "program")]
    pub(crate) devices: Option<String>,
    /// Mapping file of R8 or ProGuard, or a folder of mapping files, for all suites: restores the
    /// original Java names (repeatable).
    #[arg(long, value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
    pub(crate) mapping: Vec<PathBuf>,
    /// Folder with unstripped libraries or .debug files, or an APK. Found by build id, they give
    /// functions and lines (repeatable).
    #[arg(long, value_name = "DIR|APK", value_hint = ValueHint::AnyPath)]
    pub(crate) symbols: Vec<PathBuf>,
    /// Run one part of the tests only, as one of several machines: `3/8` is the third of eight. `memgate merge` makes
    /// one run of all parts.
    #[arg(long, value_name = "I/N", conflicts_with = "bisect")]
    pub(crate) partition: Option<ShardNumber>,
    /// Divide by the times of an earlier run, instead of by name: its report.json (repeatable, the same in all parts).
    #[arg(long, value_name = "FILE", requires = "partition", value_hint = ValueHint::FilePath)]
    pub(crate) timings: Vec<PathBuf>,
    /// Show the run in the browser while it goes on: on the page `live` of `history.server`.
    #[arg(long, conflicts_with = "bisect")]
    pub(crate) live: bool,
    /// The test command and its arguments.
    #[arg(last = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) program: Vec<OsString>,
    /// Write every report there is into the session folder?
    #[arg(skip)]
    pub(crate) every_report: bool,
}

/// A step of `git bisect run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step<'a> {
    /// The leak that is looked for.
    pub leak: &'a str,
    /// How often the tests run, at most.
    pub times: u32,
}

impl RunArgs {
    /// Is this a step of `git bisect run`, and of which leak?
    #[must_use]
    pub fn step(&self) -> Option<Step<'_>> {
        Some(Step { leak: self.leak.as_deref()?, times: self.bisect? })
    }

    /// Devices for instrumented suites, instead of those of the configuration.
    #[must_use]
    pub fn on(&self) -> Option<Devices> {
        self.device.clone().map(Devices::Serial).or_else(|| self.devices.as_ref().map(|_all| Devices::All))
    }
}

const MERGE_HELP: &str = "\
Each machine runs one part of the tests. It writes its session, and sends and uploads nothing. merge judges the whole: a part that is \
missing, or that ran with other settings, is an error (exit code 2).

Examples:
  memgate run --partition 3/8 -- build/engine_tests  on the third of eight machines
  memgate merge --expect 8 shards/*                  on one machine, with the sessions of all
  memgate run --partition 3/8 --timings report.json  parts of equal length, by an earlier run";

/// What `merge` takes.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_long_help = MERGE_HELP)]
pub struct MergeArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// How many parts there must be [default: what the parts say]. Give it: a job that never began leaves nothing.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_SHARDS)))]
    pub(crate) expect: Option<u32>,
    /// Show every leak, all frames, and the stacks of one-time allocations.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Sessions of `memgate run --partition`, or folders with some.
    #[arg(value_name = "SHARD", required = true, value_hint = ValueHint::DirPath)]
    pub(crate) shards: Vec<PathBuf>,
}

const GATE_HELP: &str = "\
A session is a folder below .memgate. A file holds recorded frames (*.mgf), for example from a broken CI job. The figures come \
from the recording, the thresholds from today's memgate.yaml.

Examples:
  memgate gate                                       the last run
  memgate gate -c strict.yaml .memgate/latest
  memgate gate ci-artifacts/frames/*.mgf --format junit > leaks.xml";

/// What `gate` takes.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_long_help = GATE_HELP)]
pub struct GateArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub(crate) format: Format,
    /// Show every leak, all frames, and the stacks of one-time allocations.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Judge leaks only: failed tests do not fail the gate.
    #[arg(long)]
    pub(crate) ignore_test_failures: bool,
    /// Mapping file of R8 or ProGuard, or a folder of mapping files, instead of the one kept in the
    /// session (repeatable).
    #[arg(long, value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
    pub(crate) mapping: Vec<PathBuf>,
    /// Folder with unstripped libraries or .debug files, or an APK. Found by build id, they give
    /// functions and lines (repeatable).
    #[arg(long, value_name = "DIR|APK", value_hint = ValueHint::AnyPath)]
    pub(crate) symbols: Vec<PathBuf>,
    /// Session folders or files.
    #[arg(default_value = ".memgate/latest", value_name = "SESSION|FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) inputs: Vec<PathBuf>,
}

/// Output format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text for people
    Human,
    /// report.json
    Json,
    /// JUnit XML
    Junit,
    /// A page with charts and stacks
    Html,
    /// A summary for CI
    Markdown,
    /// Commands for GitHub Actions that annotate lines
    Annotations,
    /// GitLab's code quality
    Codequality,
    /// OpenMetrics text
    Metrics,
    /// SARIF 2.1.0, for code scanning
    Sarif,
    /// Folded stacks, for flame graphs
    Folded,
    /// A profile for speedscope
    Speedscope,
}
