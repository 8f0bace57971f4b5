//! What is typed: the types that clap fills, and the help texts. `values` reads single values.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

use memgate_config::{Devices, TargetGlob, Until};
use memgate_formats::malloc_debug::OutValues;
use memgate_model::{MOST_PARTS, Part};

use super::shared::{ConfigArgs, StoreArgs};
use super::uploads::{ServeCommand, UploadArgs};
use super::values::{accepting_reason, duration, last_day, leak_id};

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "memgate",
    version,
    about = "Stops memory leaks at the merge button",
    long_about = "Runs a test suite with an agent inside the tested process, measures what each test left behind, \
                  and fails when a test leaves more than you allow.",
    after_long_help = HELP_EXAMPLES,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// When to use colours (NO_COLOR and CLICOLOR_FORCE are honoured too).
    #[arg(long, global = true, value_enum, default_value_t = ColorChoice::Auto, value_name = "WHEN")]
    pub color: ColorChoice,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const HELP_EXAMPLES: &str = "\
Examples:
  memgate run -- build/engine_tests          one GoogleTest binary, no set-up
  memgate run -- ctest --test-dir build      each GoogleTest executable below ctest is a suite
  memgate init && memgate run                the suites of memgate.yaml
  memgate demo                               a suite that leaks on purpose

Exit codes:
  0    everything is within its thresholds (warnings are allowed)
  1    a threshold is exceeded, or your tests failed
  2    nothing failed, but something could not be measured
  130  interrupted";

/// What to do.
#[derive(Debug, Clone, PartialEq, Subcommand)]
pub enum Command {
    /// Run tests, measure what each leaves behind, and report
    Run(RunArgs),
    /// Judge recorded runs again, without running anything
    Gate(GateArgs),
    /// Make one run of the parts that several machines ran
    Merge(MergeArgs),
    /// Build and run the built-in suites, which leak on purpose
    Demo(DemoArgs),
    /// Print the report of a session, in any format
    Report(ReportArgs),
    /// Compare two runs: leaks that are new, grew or are gone
    Compare(CompareArgs),
    /// Show the leaks of a project over its commits
    #[command(subcommand, after_long_help = HISTORY_HELP)]
    History(HistoryCommand),
    /// Upload recorded sessions to a server
    Upload(UploadArgs),
    /// Print the commands of git that find the commit which brought a leak
    Bisect(BisectArgs),
    /// Propose thresholds from the history, with their evidence
    Tune(TuneArgs),
    /// Show the history of runs in a browser
    #[command(after_long_help = SERVE_HELP)]
    Serve(ServeArgs),
    /// Send the mail about a session, or only write it to a file
    Mail(MailArgs),
    /// Show tracked Java objects during a run; pause, resume, reset
    Follow(FollowArgs),
    /// Accept a leak until a date
    Waive(WaiveArgs),
    /// Work with baselines: the accepted figures of an earlier run
    #[command(subcommand)]
    Baseline(BaselineCommand),
    /// Show native heap dumps and leak-info buffers of Android's malloc_debug
    MallocDebug(MallocDebugArgs),
    /// Analyse Java heap dumps: leaks, reference paths, retained sizes
    #[command(subcommand, after_long_help = HEAP_HELP)]
    Heap(HeapCommand),
    /// Write a commented memgate.yaml for this project
    Init(InitArgs),
    /// List the Android devices that adb knows, and what memgate can do on each
    #[command(after_long_help = DEVICES_HELP)]
    Devices,
    /// Show what is missing on this machine, and how to install it
    Doctor,
    /// Write the listener (a jar) that the test APK of an Android app needs
    #[command(
        after_long_help = "Example:\n  memgate android-kit app/libs      then androidTestImplementation(files(\"libs/memgate-android-junit4.jar\"))"
    )]
    AndroidKit {
        /// Folder to write to.
        #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
    /// Write the shadow call stack: a small C library that gives a thread's stack in one copy
    #[command(
        after_long_help = "Example:\n  memgate shadow-kit third_party/memgate-shadow      then add_subdirectory(third_party/memgate-shadow) and\n                                                     target_link_libraries(your_tests PRIVATE memgate_shadow)"
    )]
    ShadowKit {
        /// Folder to write to.
        #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
    /// Print a JSON Schema
    Schema(SchemaArgs),
    /// Print a completion script
    #[command(
        after_long_help = "Examples:\n  memgate completions bash > ~/.local/share/bash-completion/completions/memgate\n  memgate completions zsh > ~/.zfunc/_memgate"
    )]
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print the manual page (roff)
    #[command(after_long_help = "Example:\n  memgate man | man -l -")]
    Man,
}

/// Where the sessions are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct OutputArgs {
    /// Folder of the sessions.
    #[arg(long, value_name = "DIR", default_value = ".memgate", value_hint = ValueHint::DirPath)]
    pub(crate) output_dir: PathBuf,
}

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
  memgate run --repeat-screen 3 -- build/tests    each GoogleTest test three times: leaks that begin later
  memgate run --hunt 10m                          each night: also finds leaks that come only now and then
  memgate run --partition 3/8                     the third of eight parts; `memgate merge` makes one run of all
  memgate run --suite app --device emulator-5554  instrumented tests of an Android app (docs/android.md)

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
    #[arg(long = "suite", value_name = "SUITE", conflicts_with = "program")]
    pub(crate) suites: Vec<String>,
    /// Run only tests whose name matches, in GoogleTest's syntax (`MapCache.*:-*.slow`).
    #[arg(long, value_name = "GLOB")]
    pub(crate) filter: Option<String>,
    /// Judge leaks only: failing tests do not fail the run.
    #[arg(long)]
    pub(crate) ignore_test_failures: bool,
    /// Show every leak, all frames, and the stacks of one-time allocations.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Execute each GoogleTest test so often in the screen, in one process: finds leaks that begin
    /// with a later execution [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) repeat_screen: Option<u32>,
    /// Measured iterations of a confirming run, at least [default: 10].
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
    /// nobody can tell. Runs up to N times for a leak that comes and goes. Nothing is sent.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1", requires = "leak", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) bisect: Option<u32>,
    /// The leak that `--bisect` looks for.
    #[arg(long, value_name = "ID", requires = "bisect")]
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
    pub(crate) partition: Option<Part>,
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
  memgate run --partition 3/8 -- build/engine_tests     on the third of eight machines; keep .memgate/latest
  memgate merge --expect 8 shards/*                     on one machine, with the sessions of all
  memgate run --partition 3/8 --timings report.json     parts that take equally long, by the times of an earlier run";

/// What `merge` takes.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_long_help = MERGE_HELP)]
pub struct MergeArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// How many parts there must be [default: what the parts say]. Give it: a job that never began leaves nothing.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_PARTS)))]
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
  memgate gate .memgate/latest
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
    #[arg(required = true, value_name = "SESSION|FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) inputs: Vec<PathBuf>,
}

const DEMO_HELP: &str = "\
Needs a C++17 compiler (CXX, c++, g++ or clang++) and GoogleTest. The JVM suite needs a JDK (JAVA_HOME, PATH) and JUnit 4, from \
/usr/share/java, ~/.m2/repository or Maven. If one of these is missing, the demo leaves the JVM suite out and says why. The exit code \
is 1, because both suites leak on purpose. The session folder holds every kind of report, mail and charts included.

Examples:
  memgate demo
  CXX=clang++ memgate demo --keep";

/// What `demo` takes.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_long_help = DEMO_HELP)]
pub struct DemoArgs {
    /// Keep the sources and the built suites, and print where they are.
    #[arg(long)]
    pub(crate) keep: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// What `report` takes.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(
    after_long_help = "Examples:\n  memgate report\n  memgate report --format junit > leaks.xml\n  memgate report --format markdown >> \"$GITHUB_STEP_SUMMARY\"\n  memgate report --format annotations            commands for GitHub Actions, on stdout\n  memgate report --all leaks/                    every format, charts included, into a folder"
)]
pub struct ReportArgs {
    /// Session folder, or a report.json.
    #[arg(value_name = "SESSION", default_value = ".memgate/latest", value_hint = ValueHint::AnyPath)]
    pub(crate) session: PathBuf,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub(crate) format: Format,
    /// Write every format into this folder instead, charts included.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "format")]
    pub(crate) all: Option<PathBuf>,
    /// Show every leak, all frames, and the stacks of one-time allocations.
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// What `compare` takes.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(
    after_long_help = "A leak is gone only if its test was judged in the second run. The exit code is 0, or 2 if a report cannot be read.\n\nExamples:\n  memgate compare main/report.json .memgate/latest\n  memgate compare .memgate/20261123-101500-412 .memgate/latest --json"
)]
pub struct CompareArgs {
    /// Session folder or report.json of the first run.
    #[arg(value_name = "BEFORE", value_hint = ValueHint::AnyPath)]
    pub(crate) before: PathBuf,
    /// Session folder or report.json of the second run.
    #[arg(value_name = "AFTER", default_value = ".memgate/latest", value_hint = ValueHint::AnyPath)]
    pub(crate) after: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

const HISTORY_HELP: &str = "\
Every `memgate run` adds itself to .memgate/history.db, unless memgate.yaml has `history: off`. Leaks are followed on lines: the branches \
that `history.lines` names (default: main, master, release/*).

Examples:
  memgate history leaks                          leaks that are alive: new, known or back after a fix
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
        /// Those that stand before this one.
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
pub struct HistoryArgs {
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
    pub(crate) of: HistoryArgs,
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
    pub(crate) of: HistoryArgs,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Set the proposed thresholds in memgate.yaml.
    #[arg(long)]
    pub(crate) write: bool,
}

const SERVE_HELP: &str = "\
Shows the same history as `memgate history`, as pages. Nothing needs to be set up: the pages are in this program, and it listens on this \
machine only.

Examples:
  memgate serve                                  http://127.0.0.1:7377
  memgate serve --listen 127.0.0.1:0             any free port
  memgate serve --data /var/lib/memgate --listen 0.0.0.0:7377 --public-host memgate.example.com
  memgate serve --notify notify.yaml --artefacts pages     mail and chat about changes, report pages of runs
  memgate serve --artefacts s3://leaks/team      report pages in a bucket: docs/server.md
  memgate serve token create --project tiles     the right to upload runs to it: docs/server.md
  memgate serve oidc add --help                  the same for jobs of GitHub and GitLab, without a secret
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
    /// Name under which browsers reach it, besides this machine's own names for itself.
    #[arg(long, value_name = "HOST")]
    pub(crate) public_host: Vec<String>,
    /// Keep report pages and heap dumps of runs for 60 days: in a folder, or in `s3://BUCKET/PREFIX` (docs/server.md).
    #[arg(long, value_name = "DIR|s3://BUCKET", value_hint = ValueHint::DirPath)]
    pub(crate) artefacts: Option<String>,
    /// Tell people of leaks that are new, back or gone on a line: by `reports.mail` and `reports.webhooks` of this
    /// file, written as in memgate.yaml.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) notify: Option<PathBuf>,
}

const MAIL_HELP: &str = "\
Uses `reports.mail` of the configuration. `memgate run` sends the mail by itself when it is due; this command sends it now.

Examples:
  memgate mail --preview        writes mail.eml into the session folder, and sends nothing
  memgate mail .memgate/latest
  memgate mail --when-due .memgate/2*/      only what `reports.mail.when` says: for a job behind the tests";

/// What `mail` takes.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_long_help = MAIL_HELP)]
pub struct MailArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Session folders, or files report.json: a mail each.
    #[arg(value_name = "SESSION", default_value = ".memgate/latest", value_hint = ValueHint::AnyPath)]
    pub(crate) sessions: Vec<PathBuf>,
    /// Write the mails as files, and send nothing.
    #[arg(long)]
    pub(crate) preview: bool,
    /// Send nothing of a run that `reports.mail.when` leaves out.
    #[arg(long, conflicts_with = "preview")]
    pub(crate) when_due: bool,
}

const FOLLOW_HELP: &str = "\
For a run with `measure.java.follow`, from another terminal. Objects allocated during a pause are missing in the figures. A reset \
forgets the objects so far. An order takes effect at the next allocation of the virtual machine.

Examples:
  memgate follow                     the figures so far
  memgate follow --every 10s         repeatedly, until the tests have ended
  memgate follow reset && sleep 60 && memgate follow --json
  memgate follow pause";

/// What `follow` takes.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_long_help = FOLLOW_HELP)]
pub struct FollowArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// What to do.
    #[arg(value_enum, default_value_t = FollowAction::Show, value_name = "ACTION")]
    pub(crate) action: FollowAction,
    /// Session folder.
    #[arg(long, value_name = "SESSION", default_value = ".memgate/latest", value_hint = ValueHint::DirPath)]
    pub(crate) session: PathBuf,
    /// Show the figures again after this time (`10s`, `1m`), until the last virtual machine has
    /// ended.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) every: Option<Duration>,
    /// Print JSON, as in `followed` of report.json.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to do with tracked objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FollowAction {
    /// Print the figures so far.
    Show,
    /// Track no new objects.
    Pause,
    /// Track new objects again.
    Resume,
    /// Forget the objects so far.
    Reset,
}

const WAIVE_HELP: &str = "\
memgate appends the waiver to the waivers file of the configuration (memgate-waivers.yaml). An expired waiver fails again. A waiver \
that matches nothing any more is reported.

Examples:
  memgate waive n1-5f1c09a2b47d1e03 --reason 'upstream issue 1234' --until 2027-03-01
  memgate waive n1-5f1c09a2b47d1e03 --reason 'initialised once' --until never --owner @maps";

/// What `waive` takes.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_long_help = WAIVE_HELP)]
pub struct WaiveArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Id of the leak, as the report shows it.
    #[arg(value_name = "ID", value_parser = leak_id)]
    pub(crate) leak: String,
    /// Reason for accepting it.
    #[arg(long, value_parser = accepting_reason)]
    pub(crate) reason: String,
    /// Accept it only in these tests (`engine::MapCache.*`).
    #[arg(long, value_name = "PATTERN")]
    pub(crate) test: Option<String>,
    /// Last day of the waiver (2027-03-01), or `never`.
    #[arg(long, value_name = "DATE|never", value_parser = last_day)]
    pub(crate) until: Until,
    /// Owner of the leak.
    #[arg(long)]
    pub(crate) owner: Option<String>,
}

/// What `baseline` is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum BaselineCommand {
    /// Accept the figures of a session as the baseline that relative thresholds compare with
    #[command(
        after_long_help = "Example:\n  memgate baseline accept .memgate/latest && git add memgate-baseline.json"
    )]
    Accept(AcceptArgs),
    /// Fetch the leaks of the commit that a review is merged with, from the server or the local history
    #[command(
        after_long_help = "Writes .memgate/base.json. `memgate run` falls back on it if the server says nothing, and `memgate gate` if its \
                           session has none.\n\nExample:\n  memgate baseline fetch"
    )]
    Fetch(FetchArgs),
}

/// What `baseline fetch` takes.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct FetchArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Folder with the history, into which the file is written.
    #[arg(long, value_name = "DIR", default_value = crate::session::ROOT, value_hint = ValueHint::DirPath)]
    pub(crate) data: PathBuf,
}

/// What `baseline accept` takes.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct AcceptArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Session folder, or a report.json.
    #[arg(value_name = "SESSION", default_value = ".memgate/latest", value_hint = ValueHint::AnyPath)]
    pub(crate) session: PathBuf,
}

const MALLOC_DEBUG_HELP: &str = "\
A heap dump (`am dumpheap -n`, signal 47, the dump on exit) needs nothing else. A buffer of get_malloc_leak_info does not contain its \
layout: give the out values of the call in a JSON file with the keys overall_size, info_size, total_memory and backtrace_size (at the top \
level, or in an object `out`), or by flags. Records with the same size and stack are added up. This command judges nothing: the exit code \
is 0, or 2 if a file cannot be read or nothing was measured.

A heap dump names libraries, but not their build ids: --symbols uses a library only if its code lies as it was mapped in the process. With an \
APK it uses only the builds in that APK; their symbols may come from a folder, by build id.

Examples:
  memgate malloc-debug backtrace_heap.1234.txt
  memgate malloc-debug --diff before.txt after.txt --json
  memgate malloc-debug heap.txt --symbols app-debug.apk --symbols app/build/intermediates/merged_native_libs
  memgate malloc-debug leak.info.bin --sidecar leak.json
  memgate malloc-debug leak.info.bin --info-size 144 --backtrace-size 16";

/// What `malloc-debug` takes.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_long_help = MALLOC_DEBUG_HELP)]
pub struct MallocDebugArgs {
    /// Show what changed from the first file to the second.
    #[arg(long)]
    pub(crate) diff: bool,
    /// Print JSON: distinct records (zygote, size, count, frames), totals, and oddities of the
    /// input.
    #[arg(long)]
    pub(crate) json: bool,
    /// Out values of a leak-info buffer (repeatable: the first belongs to the first buffer, and so
    /// on).
    #[arg(long, value_name = "FILE.json", value_hint = ValueHint::FilePath, conflicts_with_all = ["info_size", "backtrace_size", "total_memory", "android_api"])]
    pub(crate) sidecar: Vec<PathBuf>,
    /// Bytes of one record of the buffers.
    #[arg(long, value_name = "BYTES", requires = "backtrace_size")]
    pub(crate) info_size: Option<u64>,
    /// Program counters of one record.
    #[arg(long, value_name = "N", requires = "info_size")]
    pub(crate) backtrace_size: Option<u64>,
    /// Bytes of all allocations, as returned by the call.
    #[arg(long, value_name = "BYTES", requires = "info_size")]
    pub(crate) total_memory: Option<u64>,
    /// API level of the device: up to 27 the records hold no counts.
    #[arg(long, value_name = "LEVEL", requires = "info_size")]
    pub(crate) android_api: Option<u32>,
    /// Folder with unstripped libraries, or an APK, for functions, files and lines (repeatable).
    #[arg(long, value_name = "DIR|APK", value_hint = ValueHint::AnyPath)]
    pub(crate) symbols: Vec<PathBuf>,
    /// Show every record and frame.
    #[arg(short, long, conflicts_with_all = ["json", "diff"])]
    pub(crate) verbose: bool,
    /// Heap dumps or leak-info buffers.
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
}

impl MallocDebugArgs {
    /// Out values of all buffers; their length is that of the file.
    #[must_use]
    pub fn out(&self) -> Option<OutValues> {
        Some(OutValues {
            overall_size: 0,
            info_size: self.info_size?,
            total_memory: self.total_memory,
            backtrace_size: self.backtrace_size?,
            android_api: self.android_api,
        })
    }
}

const HEAP_HELP: &str = "\
Reads heap dumps of jcmd GC.heap_dump, HeapDumpOnOutOfMemoryError and `am dumpheap` (hprof 1.0.1 to 1.0.3), plain, gzip or zstd. Finds leaks \
by LeakCanary's rules, with its paths, sizes and fingerprints. docs/heap.md explains the sizes.

Examples:
  memgate heap analyze app.hprof                          leaks, and what holds them
  memgate heap paths app.hprof com.example.Session        what holds these objects
  memgate heap classes app.hprof --retained --top 20      classes by retained size
  memgate heap dominators app.hprof --of com.example.Cache
  memgate heap threads oom.hprof                          stacks, and what their locals hold
  memgate heap diff before.hprof after.hprof
  memgate heap growth 1.hprof 2.hprof 3.hprof             containers that hold more and more
  memgate heap trim app.hprof app.hprof.gz                a small copy without texts that shows the same leaks
  memgate heap check app.hprof.gz                         is the dump complete, and is anything odd?

Exit codes: 0 nothing over a limit · 1 leaks, or growth over the limit · 2 not measured: no heap dump, or an incomplete one";

/// What `heap` is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum HeapCommand {
    /// Find leaks, and show what holds them
    Analyze {
        /// Also look for objects of this class, or with this id (`0x…`); repeatable.
        #[arg(long, value_name = "CLASS|0xID")]
        leaks: Vec<String>,
        /// More rules, in TOML (docs/heap.md); repeatable.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        rules: Vec<PathBuf>,
        /// Mapping file of R8 or ProGuard, or a folder with one: restores original names, before
        /// rules are applied.
        #[arg(long, value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
        mapping: Option<PathBuf>,
        /// What an earlier `analyze --json` printed: leaks that it has do not fail.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        baseline: Option<PathBuf>,
        /// Number of leaks to show.
        #[arg(long, value_name = "N", default_value_t = 20)]
        top: usize,
        /// Also compute the exact retained size of each leak, and the largest objects.
        #[arg(long)]
        exact: bool,
        /// Also write a page (leaks, largest objects, classes, threads, strings) that opens offline.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        html: Option<PathBuf>,
        /// Print what LeakCanary's `shark-cli analyze` prints, for scripts that read that.
        #[arg(long, conflicts_with_all = ["json", "exact", "top"])]
        leakcanary: bool,
        /// The dump, and how it is read.
        #[command(flatten)]
        common: HeapArgs,
    },
    /// Show what holds objects of a class
    Paths {
        /// The dump.
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// The class, or an object's id (`0x…`).
        #[arg(value_name = "CLASS|0xID")]
        of: String,
        /// Mapping file of R8 or ProGuard, or a folder with one: restores original names, before
        /// rules are applied.
        #[arg(long, value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
        mapping: Option<PathBuf>,
        /// Number of different paths to show.
        #[arg(long, value_name = "N", default_value_t = 5)]
        top: usize,
        /// Show N ways by which the first of the objects is held, each without a reference of every way
        /// before: what else has to let go of it.
        #[arg(long, value_name = "N", conflicts_with = "top", value_parser = clap::value_parser!(u8).range(1..=100))]
        all: Option<u8>,
        /// Also follow weak, soft and phantom references: what could reach an object that nothing holds.
        #[arg(long)]
        through_weak: bool,
        /// How they are read.
        #[command(flatten)]
        common: HeapCommon,
    },
    /// List classes with the number and size of their objects
    Classes {
        /// Also compute the retained size of all objects of a class.
        #[arg(long)]
        retained: bool,
        /// Mapping file of R8 or ProGuard, or a folder with one: restores original names, before
        /// rules are applied.
        #[arg(long, value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
        mapping: Option<PathBuf>,
        /// Sort order [default: retained if computed, else shallow].
        #[arg(long, value_enum, value_name = "ORDER")]
        sort: Option<HeapOrder>,
        /// Number of classes to show.
        #[arg(long, value_name = "N", default_value_t = 40)]
        top: usize,
        /// The dump, and how it is read.
        #[command(flatten)]
        common: HeapArgs,
    },
    /// Show the largest objects by retained size, and what they consist of
    Dominators {
        /// Start at objects of this class, or at this id (`0x…`), instead of the roots.
        #[arg(long, value_name = "CLASS|0xID")]
        of: Option<String>,
        /// Mapping file of R8 or ProGuard, or a folder with one: restores original names, before
        /// rules are applied.
        #[arg(long, value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
        mapping: Option<PathBuf>,
        /// Add up what all objects of a class, a package or a class loader retain together.
        #[arg(long, value_enum, value_name = "WHAT", conflicts_with_all = ["of", "depth"])]
        group: Option<HeapGroup>,
        /// Number of levels to show.
        #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
        depth: u32,
        /// Number of objects to show for each level.
        #[arg(long, value_name = "N", default_value_t = 10)]
        top: usize,
        /// The dump, and how it is read.
        #[command(flatten)]
        common: HeapArgs,
    },
    /// List threads with their stacks, and the objects that their locals hold
    Threads {
        /// The dump, and how it is read.
        #[command(flatten)]
        common: HeapArgs,
    },
    /// List strings that exist more than once
    Strings {
        /// Number of strings to show.
        #[arg(long, value_name = "N", default_value_t = 25)]
        top: usize,
        /// The dump, and how it is read.
        #[command(flatten)]
        common: HeapArgs,
    },
    /// List pictures (Android) with the size of their pixels
    Bitmaps {
        /// Also write those whose pixels are in the dump (until Android 7.1) to this folder, as PNG.
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        extract: Option<PathBuf>,
        /// Number of pictures to show.
        #[arg(long, value_name = "N", default_value_t = 25)]
        top: usize,
        /// The dump, and how it is read.
        #[command(flatten)]
        common: HeapArgs,
    },
    /// Show what changed between two dumps
    Diff {
        /// What is compared.
        #[arg(long, value_enum, value_name = "WHAT", default_value_t = HeapBy::Class)]
        by: HeapBy,
        /// The older dump.
        #[arg(value_name = "OLD", value_hint = ValueHint::FilePath)]
        old: PathBuf,
        /// The newer dump.
        #[arg(value_name = "NEW", value_hint = ValueHint::FilePath)]
        new: PathBuf,
        /// Exit with 1 if a class (at one place, with --by) has grown by more bytes than this.
        #[arg(long, value_name = "BYTES")]
        fail_over: Option<u64>,
        /// Exit with 1 if it has grown by more objects than this.
        #[arg(long, value_name = "N")]
        fail_over_count: Option<u64>,
        /// Number of classes or places to show.
        #[arg(long, value_name = "N", default_value_t = 40)]
        top: usize,
        /// How they are read.
        #[command(flatten)]
        common: HeapCommon,
    },
    /// Show containers that hold more and more objects, from at least three dumps
    Growth {
        /// The dumps, or their ledgers, the oldest first.
        #[arg(value_name = "FILE", required = true, num_args = 1.., value_hint = ValueHint::FilePath)]
        files: Vec<PathBuf>,
        /// Least number of objects by which a container grows from dump to dump, such as the number
        /// of times that a test ran in between.
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
        loops: u64,
        /// Number of classes to show.
        #[arg(long, value_name = "N", default_value_t = 20)]
        top: usize,
        /// How they are read.
        #[command(flatten)]
        common: HeapCommon,
    },
    /// Write what the containers of a dump hold: all that `growth` needs of it
    Ledger {
        /// The dump.
        #[arg(value_name = "IN", value_hint = ValueHint::FilePath)]
        from: PathBuf,
        /// Output file (JSON).
        #[arg(value_name = "OUT", value_hint = ValueHint::FilePath)]
        to: PathBuf,
    },
    /// Copy a dump without the contents of its strings and arrays: small and private
    Trim {
        /// The dump; `-`: standard input, with --zero.
        #[arg(value_name = "IN", value_hint = ValueHint::FilePath)]
        from: PathBuf,
        /// Output file; `-`: standard output. A name that ends with .gz or .zst is compressed.
        #[arg(value_name = "OUT", value_hint = ValueHint::FilePath)]
        to: PathBuf,
        /// Keep no strings at all, not even those that rules read: device, process, threads.
        #[arg(long)]
        zero: bool,
        /// Also cut out the values of single fields (numbers, characters, truths), but for those that
        /// rules read.
        #[arg(long, conflicts_with = "zero")]
        private: bool,
        /// Keep equal strings equal, so that `heap strings` still counts duplicates: each begins with
        /// eight letters of a hash that nobody can repeat.
        #[arg(long, conflicts_with = "zero")]
        keep_duplicates: bool,
        /// More rules whose fields stay (docs/heap.md); repeatable.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "zero")]
        rules: Vec<PathBuf>,
        /// Analyse both dumps, and fail if the results differ.
        #[arg(long, conflicts_with = "zero")]
        prove: bool,
    },
    /// Write a plain dump from one that Tailor or KOOM trimmed, or from gzip or zstd
    Restore {
        /// The trimmed or compressed dump.
        #[arg(value_name = "IN", value_hint = ValueHint::FilePath)]
        from: PathBuf,
        /// Output file; `-`: standard output.
        #[arg(value_name = "OUT", value_hint = ValueHint::FilePath)]
        to: PathBuf,
    },
    /// Show whether a dump is complete, what is in it, and what is odd about it
    Check {
        /// The dump, and how it is read.
        #[command(flatten)]
        common: HeapArgs,
    },
}

impl HeapCommand {
    /// The dump (of several the newest), and how it is read.
    pub(crate) fn dump(&self) -> (&Path, HeapCommon) {
        match self {
            Self::Analyze { common, .. }
            | Self::Classes { common, .. }
            | Self::Dominators { common, .. }
            | Self::Threads { common }
            | Self::Strings { common, .. }
            | Self::Bitmaps { common, .. }
            | Self::Check { common } => (&common.file, common.common),
            Self::Paths { file, common, .. } | Self::Diff { new: file, common, .. } => (file, *common),
            Self::Growth { files, common, .. } => (files.last().map_or(Path::new(""), |file| file), *common),
            Self::Ledger { from, .. } | Self::Trim { from, .. } | Self::Restore { from, .. } => {
                (from, HeapCommon::default())
            }
        }
    }
}

/// One dump.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct HeapArgs {
    /// The dump.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) common: HeapCommon,
}

/// Options of all commands about dumps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub struct HeapCommon {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Accept an incomplete dump: the exit code is not 2 because of it.
    #[arg(long)]
    pub(crate) allow_truncated: bool,
}

/// What objects are added up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HeapGroup {
    /// Their class
    Class,
    /// The package of their class (a class, with its static fields: its own)
    Package,
    /// The loader of their class (a class, with its static fields: its own)
    Loader,
}

/// What two dumps are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HeapBy {
    /// Objects of each class
    Class,
    /// Objects of each class by what holds them, from the root on
    Path,
    /// What containers hold; ledgers may stand in for dumps
    Container,
}

/// Sort order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HeapOrder {
    /// Retained size of all objects of a class
    Retained,
    /// Bytes of the objects themselves
    Shallow,
    /// Number of objects
    Count,
}

const DEVICES_HELP: &str = "\
Uses the adb server (ADB_SERVER_SOCKET, ANDROID_ADB_SERVER_ADDRESS and ANDROID_ADB_SERVER_PORT, else port 5037). If none runs, memgate starts \
one with the adb of PATH, ANDROID_HOME or ANDROID_SDK_ROOT. It never kills a running server, whatever its version. Columns: serial, state, \
model, Android version, what memgate can do. The exit code is 0 if a device can be used, else 2.

Examples:
  memgate devices
  ADB_SERVER_SOCKET=tcp:15037 memgate devices     a server of your own";

/// What `init` takes.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(
    after_long_help = "Finds CMake, Cargo, Maven and Gradle projects.\n\nExample:\n  memgate init && $EDITOR memgate.yaml && memgate run"
)]
pub struct InitArgs {
    /// Overwrite an existing memgate.yaml.
    #[arg(long)]
    pub(crate) force: bool,
}

/// What `schema` takes.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_long_help = "Example:\n  memgate schema report > report.schema.json")]
pub struct SchemaArgs {
    /// Which file the schema describes.
    #[arg(value_enum, default_value_t = SchemaName::Config)]
    pub(crate) name: SchemaName,
}

/// Which schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaName {
    /// memgate.yaml
    Config,
    /// report.json
    Report,
    /// What `memgate heap … --json` prints
    Heap,
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

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}
