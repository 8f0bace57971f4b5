//! What is typed: the types that clap fills, and the help texts. `values` reads single values.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

use memgate_config::Until;
use memgate_formats::malloc_debug::OutValues;

use super::heap::{HEAP_HELP, HeapCommand};
use super::history::{BisectArgs, HISTORY_HELP, HistoryCommand, TuneArgs};
use super::judging::{Format, GateArgs, MergeArgs, RunArgs};
use super::server::{SERVE_HELP, ServeArgs, UploadArgs};
use super::shared::{ConfigArgs, OutputArgs};
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
    /// Compare two runs: leaks that are new, larger, smaller or fixed
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
        after_long_help = "Example:\n  memgate native-kit third_party/memgate\n      then, in the loop that runs the tests:\n      #include <memgate.h>\n      MemgateTestBegin(\"suite\", \"test\"); …; MemgateTestEnd(\"suite\", \"test\", MEMGATE_PASSED);\n  `memgate docs agent` has an example for Catch2."
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
    after_long_help = "A leak is fixed only if its test was judged in the second run. The exit code is 0, or 2 if a report cannot be read.\n\nExamples:\n  memgate compare main/report.json .memgate/latest\n  memgate compare .memgate/20261123-101500-412 .memgate/latest --json"
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
memgate appends the waiver to the waivers file of the configuration (memgate-waivers.yaml). A new waiver covers twice \
the bytes of today (`up_to`); a leak that exceeds it fails, and so does one whose waiver has expired: `waive` gives the waiver \
the new limit and date, and keeps its reason and owner. A waiver that matches nothing any more is reported.

Examples:
  memgate waive n1-5f1c09a2b47d1e03 --reason 'upstream issue 1234' --until 2027-03-01
  memgate waive n1-5f1c09a2b47d1e03 --reason 'initialised once' --until never --owner @maps
  memgate waive n1-5f1c09a2b47d1e03 j1-067741f2039419e0 --reason 'caches' --until never
  memgate waive --all --reason 'before memgate' --until 2027-03-01
  memgate waive --all --session merged/latest --reason 'before memgate' --until 2027-03-01";

/// What `waive` takes.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_long_help = WAIVE_HELP)]
pub struct WaiveArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Ids of leaks, as the report shows them.
    #[arg(value_name = "ID", value_parser = leak_id, required_unless_present = "all")]
    pub(crate) leaks: Vec<String>,
    /// Waive every leak that failed a test of the session; with `--test` only those of these tests.
    #[arg(long, conflicts_with = "leaks")]
    pub(crate) all: bool,
    /// Session folder or report of which `--all` waives the leaks.
    #[arg(
        long,
        value_name = "SESSION",
        requires = "all",
        default_value = ".memgate/latest",
        value_hint = ValueHint::AnyPath
    )]
    pub(crate) session: PathBuf,
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
