//! What the command line means, where that is more than what was typed: checked, without clap.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use memgate_config::{Devices, TargetGlob, Until};
use memgate_formats::malloc_debug::OutValues;

use super::args::{
    AcceptArgs, BaselineCommand, BisectArgs, Cli, ColorChoice, CompareArgs, DemoArgs, FetchArgs,
    FollowAction, FollowArgs, GateArgs, HeapCommand, HistoryCommand, InitArgs, MailArgs, MallocDebugArgs,
    ReportArgs, RunArgs, SchemaName, ServeArgs, TuneArgs, TypedCommand, WaiveArgs,
};
use super::uploads::UploadArgs;

/// A checked command line.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// When to use colours.
    pub color: ColorChoice,
    /// What to do.
    pub command: Command,
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// `memgate run`
    Run(RunRequest),
    /// `memgate gate`
    Gate(GateArgs),
    /// `memgate demo`
    Demo(DemoArgs),
    /// `memgate report`
    Report(ReportArgs),
    /// `memgate compare`
    Compare(CompareArgs),
    /// `memgate history`
    History(HistoryCommand),
    /// `memgate upload`
    Upload(UploadRequest),
    /// `memgate bisect`
    Bisect(BisectArgs),
    /// `memgate tune`
    Tune(TuneArgs),
    /// `memgate serve`
    Serve(ServeArgs),
    /// `memgate mail`
    Mail(MailArgs),
    /// `memgate follow`
    Follow(FollowRequest),
    /// `memgate waive`
    Waive(WaiveRequest),
    /// `memgate baseline accept`
    Accept(AcceptArgs),
    /// Fetch the base of a review.
    FetchBase(FetchArgs),
    /// `memgate malloc-debug`
    MallocDebug(MallocDebugRequest),
    /// `memgate heap`
    Heap(HeapCommand),
    /// `memgate init`
    Init(InitArgs),
    /// `memgate devices`
    Devices,
    /// `memgate doctor`
    Doctor,
    /// `memgate schema`
    Schema(SchemaName),
    /// `memgate android-kit`
    AndroidKit(PathBuf),
    /// `memgate shadow-kit`
    ShadowKit(PathBuf),
    /// `memgate completions`
    Completions(clap_complete::Shell),
    /// `memgate man`
    Man,
}

/// What `run` was asked for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunRequest {
    /// Configuration named on the command line.
    pub config: Option<PathBuf>,
    /// Folder of the sessions.
    pub output_dir: PathBuf,
    /// Write every report there is into the session folder?
    pub every_report: bool,
    /// Suites of the configuration to run; empty: all.
    pub suites: Vec<String>,
    /// Tests to run, in the words of the runner: GoogleTest's filter, or what Maven and Gradle are
    /// told.
    pub filter: Option<String>,
    /// Do the tests' own failures count?
    pub ignore_test_failures: bool,
    /// Show everything in the human report?
    pub verbose: bool,
    /// Overrides `measure.screen_repetitions`.
    pub screen_repetitions: Option<u32>,
    /// Overrides `measure.iterations`.
    pub iterations: Option<u32>,
    /// Overrides `measure.warm_up`.
    pub warm_up: Option<u32>,
    /// Overrides `measure.timeout`.
    pub timeout: Option<Duration>,
    /// How long tests that were never suspect are repeated.
    pub hunt: Option<Duration>,
    /// Is this a step of `git bisect run`, and of which leak?
    pub bisect: Option<Step>,
    /// Confirm suspects?
    pub confirm: bool,
    /// Globs of executables to measure besides GoogleTest.
    pub targets: Vec<TargetGlob>,
    /// Devices for instrumented suites, instead of those of the configuration.
    pub devices: Option<Devices>,
    /// Mapping files of R8 or ProGuard for all suites.
    pub mapping: Vec<PathBuf>,
    /// Folders and APKs with symbols of native libraries, besides those of the configuration.
    pub symbols: Vec<PathBuf>,
    /// The wrapped command; empty: the suites of the configuration.
    pub program: Vec<OsString>,
}

/// A step of `git bisect run`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The leak that is looked for.
    pub leak: String,
    /// How often the tests run, at most.
    pub times: u32,
}

/// What `follow` was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowRequest {
    /// Configuration named on the command line.
    pub config: Option<PathBuf>,
    /// What to do.
    pub action: FollowAction,
    /// Session folder.
    pub session: PathBuf,
    /// Show again after this time.
    pub every: Option<Duration>,
    /// As JSON?
    pub json: bool,
}

/// What `waive` was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaiveRequest {
    /// Configuration named on the command line.
    pub config: Option<PathBuf>,
    /// Id of the leak.
    pub leak: String,
    /// In these tests alone.
    pub test: Option<String>,
    /// Why.
    pub reason: String,
    /// How long.
    pub until: Until,
    /// Who answers for it.
    pub owner: Option<String>,
}

/// What `malloc-debug` was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MallocDebugRequest {
    /// Heap dumps or leak-info buffers.
    pub files: Vec<PathBuf>,
    /// Show the changes from the first to the second?
    pub diff: bool,
    /// As JSON?
    pub json: bool,
    /// Out values of the buffers, in their order.
    pub sidecars: Vec<PathBuf>,
    /// Out values of all buffers; their length is that of the file.
    pub out: Option<OutValues>,
    /// Folders with unstripped libraries, and APKs.
    pub symbols: Vec<PathBuf>,
    /// Show everything?
    pub verbose: bool,
}

/// How long `upload` tries each session.
const UPLOAD_WAIT: Duration = Duration::from_secs(15 * 60);

/// What `upload` takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadRequest {
    /// The configuration file that was named.
    pub config: Option<PathBuf>,
    /// The server that was named.
    pub server: Option<String>,
    /// How long each session is tried.
    pub wait: Duration,
    /// Folders of sessions.
    pub sessions: Vec<PathBuf>,
}

impl TryFrom<Cli> for Request {
    type Error = clap::Error;

    fn try_from(Cli { color, command }: Cli) -> Result<Self, Self::Error> {
        let command = match command {
            TypedCommand::Run(typed) => Command::Run(typed.try_into()?),
            TypedCommand::Gate(typed) => Command::Gate(typed),
            TypedCommand::Demo(typed) => Command::Demo(typed),
            TypedCommand::Report(typed) => Command::Report(typed),
            TypedCommand::Compare(typed) => Command::Compare(typed),
            TypedCommand::History(typed) => Command::History(typed),
            TypedCommand::Upload(UploadArgs { config, server, wait, sessions }) => {
                let wait = wait.as_deref().map_or(Ok(UPLOAD_WAIT), duration)?;
                Command::Upload(UploadRequest { config: config.config, server, wait, sessions })
            }
            TypedCommand::Bisect(typed) => Command::Bisect(typed),
            TypedCommand::Tune(typed) => Command::Tune(typed),
            TypedCommand::Serve(typed) => Command::Serve(typed),
            TypedCommand::Mail(typed) => Command::Mail(typed),
            TypedCommand::Follow(FollowArgs { config, action, session, every, json }) => {
                let every = every.as_deref().map(duration).transpose()?;
                Command::Follow(FollowRequest { config: config.config, action, session, every, json })
            }
            TypedCommand::Waive(typed) => Command::Waive(typed.try_into()?),
            TypedCommand::Baseline(BaselineCommand::Accept(typed)) => Command::Accept(typed),
            TypedCommand::Baseline(BaselineCommand::Fetch(typed)) => Command::FetchBase(typed),
            TypedCommand::MallocDebug(typed) => Command::MallocDebug(typed.try_into()?),
            TypedCommand::Heap(typed) => Command::Heap(typed),
            TypedCommand::Init(typed) => Command::Init(typed),
            TypedCommand::Devices => Command::Devices,
            TypedCommand::Doctor => Command::Doctor,
            TypedCommand::AndroidKit { folder } => Command::AndroidKit(folder),
            TypedCommand::ShadowKit { folder } => Command::ShadowKit(folder),
            TypedCommand::Schema(schema) => Command::Schema(schema.name),
            TypedCommand::Completions { shell } => Command::Completions(shell),
            TypedCommand::Man => Command::Man,
        };
        Ok(Self { color, command })
    }
}

impl TryFrom<RunArgs> for RunRequest {
    type Error = clap::Error;

    fn try_from(typed: RunArgs) -> Result<Self, Self::Error> {
        let RunArgs {
            config,
            output,
            suite,
            filter,
            ignore_test_failures,
            verbose,
            repeat_screen,
            iterations,
            warm_up,
            timeout,
            hunt,
            bisect,
            leak,
            no_confirm,
            target,
            device,
            devices,
            mapping,
            symbols,
            program,
        } = typed;
        let all = devices.map(|_| Devices::All);
        let devices = device.map(Devices::Serial).or(all);
        let timeout = timeout.as_deref().map(duration).transpose()?;
        let hunt = hunt.as_deref().map(duration).transpose()?;
        let target_glob = |glob: &String| {
            TargetGlob::typed(glob).map_err(|why| wrong(&format!("--target `{glob}`: {why}")))
        };
        let targets = target.iter().map(target_glob).collect::<Result<_, _>>()?;
        Ok(Self {
            config: config.config,
            output_dir: output.output_dir,
            every_report: false,
            suites: suite,
            filter,
            ignore_test_failures,
            verbose,
            screen_repetitions: repeat_screen,
            iterations,
            warm_up,
            timeout,
            hunt,
            bisect: leak.zip(bisect).map(|(leak, times)| Step { leak, times }),
            confirm: !no_confirm,
            targets,
            devices,
            mapping,
            symbols,
            program,
        })
    }
}

impl TryFrom<WaiveArgs> for WaiveRequest {
    type Error = clap::Error;

    fn try_from(
        WaiveArgs { config, leak, reason, test, until, owner }: WaiveArgs,
    ) -> Result<Self, Self::Error> {
        if reason.trim().is_empty() {
            return Err(wrong("`--reason` is empty: say why the leak is accepted"));
        }
        Ok(Self {
            config: config.config,
            leak: leak_id(leak)?,
            test,
            reason,
            until: until_date(&until)?,
            owner,
        })
    }
}

impl TryFrom<MallocDebugArgs> for MallocDebugRequest {
    type Error = clap::Error;

    fn try_from(typed: MallocDebugArgs) -> Result<Self, Self::Error> {
        let MallocDebugArgs {
            diff,
            json,
            sidecar,
            info_size,
            backtrace_size,
            total_memory,
            android_api,
            symbols,
            verbose,
            files,
        } = typed;
        if diff && files.len() != 2 {
            return Err(wrong("`--diff` compares two files: the one before and the one after"));
        }
        let out = info_size.zip(backtrace_size).map(|(info_size, backtrace_size)| OutValues {
            overall_size: 0,
            info_size,
            total_memory,
            backtrace_size,
            android_api,
        });
        Ok(Self { files, diff, json, sidecars: sidecar, out, symbols, verbose })
    }
}

fn leak_id(typed: String) -> Result<String, clap::Error> {
    let hash = ["n1-", "j1-", "o1-", "h1-"].iter().find_map(|prefix| typed.strip_prefix(prefix));
    match hash {
        Some(hash) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => Ok(typed),
        _ => Err(wrong(&format!("`{typed}` is no id of a leak: they look like n1-5f1c09a2b47d1e03"))),
    }
}

fn until_date(typed: &str) -> Result<Until, clap::Error> {
    if typed == "never" {
        return Ok(Until::Never);
    }
    let date = typed.parse().map(Until::Date);
    date.map_err(|_no_date| {
        wrong(&format!("`--until {typed}` is neither a date such as 2027-03-01 nor `never`"))
    })
}

/// `250ms`, `60s`, `5m`, as in memgate.yaml.
fn duration(typed: &str) -> Result<Duration, clap::Error> {
    let digits = typed.len() - typed.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = typed.split_at(digits);
    let milliseconds = match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60_000),
        _ => None,
    };
    let value = number.parse::<u64>().ok().zip(milliseconds).and_then(|(n, unit)| n.checked_mul(unit));
    match value {
        Some(milliseconds) if milliseconds > 0 => Ok(Duration::from_millis(milliseconds)),
        _ => Err(wrong(&format!("`{typed}` is no duration: write 250ms, 60s or 5m"))),
    }
}

fn wrong(text: &str) -> clap::Error {
    clap::Error::raw(ErrorKind::ValueValidation, format!("{text}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, String> {
        super::super::parse(line.split(' ').map(OsString::from))
            .map(|request| request.command)
            .map_err(|e| e.render().to_string())
    }

    fn run(line: &str) -> RunRequest {
        match parse(line) {
            Ok(Command::Run(request)) => request,
            other => panic!("`{line}` gave {other:?}"),
        }
    }

    #[test]
    fn everything_behind_the_dashes_belongs_to_the_program() {
        let request = run("memgate run --filter A.* -- ./tests --filter B --suite x");
        assert_eq!(request.filter.as_deref(), Some("A.*"));
        assert_eq!(request.program, ["./tests", "--filter", "B", "--suite", "x"]);
        assert!(request.suites.is_empty() && request.confirm);
    }

    #[test]
    fn durations_carry_their_unit() {
        for (typed, milliseconds) in [("250ms", 250), ("60s", 60_000), ("5m", 300_000)] {
            let request = run(&format!("memgate run --timeout {typed} -- x"));
            assert_eq!(request.timeout, Some(Duration::from_millis(milliseconds)), "{typed}");
        }
        for typed in ["60", "s", "0s", "-1s", "1h", "99999999999999999999s", "18446744073709551615m"] {
            let error = parse(&format!("memgate run --timeout={typed} -- x")).unwrap_err();
            assert!(error.contains("is no duration: write 250ms, 60s or 5m"), "{typed}: {error}");
        }
    }

    /// What a user reads, to be read from top to bottom.
    #[test]
    fn wrong_command_lines_are_told_with_the_reason() {
        let lines = [
            "memgate rnu -- ./tests",
            "memgate run ./tests",
            "memgate run --suite engine -- ./tests",
            "memgate run --iterations 1 -- ./tests",
            "memgate run --timeout 60 -- ./tests",
            "memgate run --hunt soon -- ./tests",
            "memgate run --hunt 10m --no-confirm -- ./tests",
            "memgate run --target [ -- ./tests",
            "memgate run --device emulator-5554 -- ./tests",
            "memgate run --devices some",
            "memgate gate",
            "memgate report --format pdf",
            "memgate report one two",
            "memgate waive n1-5f1c09a2b47d1e03 --reason r",
            "memgate waive leak --reason r --until never",
            "memgate waive n1-5f1c09a2b47d1e03 --reason r --until soon",
            "memgate waive n1-5f1c09a2b47d1e03 --reason r --until 2027-02-30",
            "memgate malloc-debug",
            "memgate malloc-debug --diff a.txt",
            "memgate malloc-debug a.bin --info-size 144",
            "memgate malloc-debug a.bin --sidecar b --info-size 1 --backtrace-size 1",
        ];
        let told = lines.map(|line| match parse(line) {
            Ok(command) => panic!("{line} is {command:?}"),
            Err(why) => format!("$ {line}\n{}\n", why.trim_end()),
        });
        insta::assert_snapshot!(told.join("\n"));
    }

    #[test]
    fn a_waiver_may_last_for_ever_or_until_a_day() {
        for (until, want) in
            [("never", Until::Never), ("2027-03-01", Until::Date(jiff::civil::date(2027, 3, 1)))]
        {
            let line =
                format!("memgate waive n1-5f1c09a2b47d1e03 --reason known --until {until} --owner @maps");
            match parse(&line) {
                Ok(Command::Waive(waive)) => {
                    assert_eq!((waive.until, waive.owner.as_deref()), (want, Some("@maps")));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn the_last_session_is_meant_where_none_is_named() {
        let Ok(Command::Report(report)) = parse("memgate report") else { panic!("not a report") };
        assert_eq!(report.session, PathBuf::from(".memgate/latest"));
        let Ok(Command::Accept(accept)) = parse("memgate baseline accept") else { panic!("not accept") };
        assert_eq!(accept.session, PathBuf::from(".memgate/latest"));
    }

    #[test]
    fn the_command_line_is_well_formed() {
        super::super::command().debug_assert();
    }
}
