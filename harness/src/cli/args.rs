//! What is typed: the types that clap fills, and the help texts. `values` reads single values.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

use memgate_config::{Devices, TargetGlob, Until};
use memgate_formats::malloc_debug::OutValues;
use memgate_model::{MOST_SHARDS, ShardNumber};

use super::heap::{HEAP_HELP, HeapCommand};
use super::history::{BisectArgs, HISTORY_HELP, HistoryCommand, TuneArgs};
use super::server::{SERVE_HELP, ServeArgs, UploadArgs};
use super::shared::ConfigArgs;
use super::values::{accepting_reason, duration, last_day, leak_id};
use crate::documentation;

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
    /// Print a page of the documentation, or the names of all pages
    #[command(after_long_help = "Examples:\n  memgate docs\n  memgate docs limits | less")]
    Docs {
        /// The page. Without it, the names of all pages.
        #[arg(value_parser = PossibleValuesParser::new(documentation::names()))]
        page: Option<String>,
    },
    /// Write the C headers with which a native test program reports its tests
    #[command(
        after_long_help = "Example:\n  memgate native-kit third_party/memgate\n      then, in the loop that runs the tests:\n      #include <memgate.h>\n      MemgateTestBegin(\"suite\", \"test\"); …; MemgateTestEnd(\"suite\", \"test\", MEMGATE_PASSED);"
    )]
    NativeKit {
        /// Folder to write to.
        #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
    /// Write the listener (a jar) that the test APK of an Android app needs
    #[command(
        after_long_help = "Example:\n  memgate android-kit app/libs\n      then androidTestImplementation(files(\"libs/memgate-android-junit4.jar\"))"
    )]
    AndroidKit {
        /// Folder to write to.
        #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
    /// Write the shadow call stack: a small C library that gives a thread's stack in one copy
    #[command(
        after_long_help = "Example:\n  memgate shadow-kit third_party/memgate-shadow\n      then add_subdirectory(third_party/memgate-shadow) and\n      target_link_libraries(your_tests PRIVATE memgate_shadow)"
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
    #[arg(long = "suite", value_name = "SUITE", conflicts_with = "program")]
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

const MAIL_HELP: &str = "\
Uses `reports.mail` of the configuration. `memgate run` sends the mail by itself when it is due; this command sends it now.

Examples:
  memgate mail --preview        writes mail.eml into the session folder, and sends nothing
  memgate mail .memgate/latest
  memgate mail --when-due .memgate/2*/  if `reports.mail.when` says so: in a later job";

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
        after_long_help = "Where a threshold is relative to the baseline, a test that leaks now may leak as much from now on: the command names such tests.\n\nExample:\n  memgate baseline accept .memgate/latest && git add memgate-baseline.json"
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
  memgate malloc-debug heap.txt --symbols app-debug.apk --symbols app/build/unstripped
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
