//! Combines checked settings and a request into the programs to run and the rules for judging. Pure: the day, the
//! folder and the files' contents are passed in as values.
//!
//! `analysis` does not know the configuration; only [`policy`] converts one into the other.

mod policy;
mod selection;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::civil::Date;
use memgate_analysis::GatePolicy;
use memgate_config::{
    Baseline, Config, Instrumented, MeasureJava, Override, Runner, Screen, Suite, SuiteHeap, WindowBaseline,
};
use memgate_history::shards::digest;
use memgate_model::{Part, RunReport, Verdict};

pub(crate) use self::policy::follow;
pub use self::policy::policy;
pub use self::selection::{is_filtered, narrows};
use self::selection::{is_sharded, selects};
use crate::cli::RunArgs;
use crate::exit::ExpectedError;
use crate::history::upload;
use crate::origin;

/// The settings that are read before planning.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Checked configuration; the defaults if there is no file.
    pub config: Config,
    /// The file it comes from.
    pub file: Option<PathBuf>,
    /// Start of its relative paths.
    pub root: PathBuf,
    /// Accepted figures, if there are any.
    pub baseline: Option<Baseline>,
}

/// The environment of a plan.
#[derive(Debug, Clone)]
pub struct World {
    /// Today, for waivers.
    pub today: Date,
    /// Working directory.
    pub directory: PathBuf,
    /// Folder of the checked-out project.
    pub project: PathBuf,
    /// The environment variables with which GoogleTest runs only a part of its tests, with their values.
    pub narrowing: Vec<(String, String)>,
}

/// The programs to run, and how they are measured and judged.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Name of the project.
    pub project: String,
    /// Folder of the sessions.
    pub output_dir: PathBuf,
    /// The suites to run, in this order.
    pub suites: Vec<PlannedSuite>,
    /// The suites to run on devices, after the others.
    pub instrumented: Vec<PlannedInstrumentation>,
    /// Rules for judging.
    pub policy: GatePolicy,
    /// Whether to confirm suspects.
    pub confirm: bool,
    /// Time limit for confirming a native suite; `None`: derived from the suite's own time.
    pub confirm_budget: Option<Duration>,
    /// How long tests that were never suspect are repeated afterwards.
    pub hunt: Option<Duration>,
    /// How JVM suites are screened.
    pub screen: Screen,
    /// How often the screening pass executes each GoogleTest test.
    pub screen_repetitions: u32,
    /// What is measured in Java virtual machines.
    pub java: MeasureJava,
    /// Survivors of the windows of JVM suites that were accepted as clean, by suite.
    pub windows: BTreeMap<String, Vec<WindowBaseline>>,
    /// GoogleTest filter for all suites.
    pub filter: Option<String>,
    /// Whether only part of the tests is requested, as far as the request shows.
    pub partial: bool,
    /// The part of the run; `None`: the whole run.
    pub part: Option<PlannedPart>,
    /// Time between two samples of the operating system's figures.
    pub interval: Duration,
    /// Longest wait for late frees at the end of a test; zero: none.
    pub settle: Duration,
    /// Whether to search for the holders of leaking native memory.
    pub holders: bool,
    /// Mean bytes between two recorded allocations when a native suite is screened; 0: all are recorded.
    pub native_sampling: u64,
    /// Whether the screening pass takes all stacks of native allocations, instead of only those of suspects later.
    pub stacks_always: bool,
    /// Warnings to print before the run.
    pub warnings: Vec<String>,
    /// Mapping files of R8 or ProGuard for all suites, instead of theirs.
    pub mapping: Vec<PathBuf>,
    /// Folders and APKs with symbols of native libraries, for all suites that run; paths are complete.
    pub symbols: Vec<PathBuf>,
    /// Reports to write besides those of the session; paths are complete.
    pub reports: memgate_config::Reports,
    /// Settings for the run's entry in the history.
    pub history: memgate_config::History,
}

/// A part of a run that is spread over several machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedPart {
    /// The number of the part.
    pub part: Part,
    /// Reports of earlier runs whose times determine how units are divided; empty: units are divided by name.
    pub timings: Vec<PathBuf>,
    /// Whether only part of the tests is requested in all parts together.
    pub narrowed: bool,
    /// Digest of memgate.yaml, which must be the same for all parts.
    pub config: String,
    /// The options that must be the same for all parts.
    pub options: String,
    /// Digest of the accepted baseline; empty: there is none.
    pub baseline: String,
}

/// One command to run.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedSuite {
    /// Its name in the configuration; `None`: the wrapped command.
    pub name: Option<String>,
    /// Program and arguments, with one repetition if it can repeat.
    pub command: Vec<OsString>,
    /// The command with `{n}` in it, if the program repeats its work.
    pub repeating: Option<Vec<String>>,
    /// Working directory; `None`: ours.
    pub directory: Option<PathBuf>,
    /// Variables to add.
    pub environment: Vec<(OsString, OsString)>,
    /// memgate's own variables with secrets: tests do not see them.
    pub secrets: Vec<OsString>,
    /// The runner of its tests.
    pub runner: Runner,
    /// Globs of executables to measure besides what is recognised.
    pub targets: Vec<String>,
    /// Time limit of one test.
    pub timeout: Duration,
    /// Mapping files of R8 or ProGuard, and folders with them; paths are complete.
    pub mapping: Vec<PathBuf>,
    /// Its heap dump; paths are complete.
    pub heap: Option<SuiteHeap>,
}

/// Instrumented tests on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedInstrumentation {
    /// Their configuration, with complete paths, and with the requested devices.
    pub suite: Instrumented,
    /// Whether the data of app and tests is cleared before each test.
    pub clear_data: bool,
    /// Time limit of one test.
    pub timeout: Duration,
}

impl PlannedInstrumentation {
    /// Whether the user's own arguments select classes or tests.
    #[must_use]
    pub fn chooses_classes(&self) -> bool {
        self.suite.arguments.iter().any(|(name, _)| name == "class")
    }
}

/// Plans a run.
///
/// # Errors
/// When there is nothing to run, or a requested suite does not exist.
pub fn plan(settings: &Settings, request: &RunArgs, world: &World) -> Result<Plan, ExpectedError> {
    let config = &settings.config;
    let suites = suites(settings, request, world)?;
    let narrowed = is_partial(settings, request) || !world.narrowing.is_empty();
    let part = part(settings, request, world, narrowed)?;
    let mut policy = policy(settings, request.ignore_test_failures, world.today);
    policy.warm_up = request.warm_up.unwrap_or(policy.warm_up);
    policy.iterations = request.iterations.unwrap_or(policy.iterations);
    policy.max_iterations = policy.max_iterations.max(policy.iterations);
    policy.iteration_cap = policy.iteration_cap.max(policy.iterations.saturating_add(policy.warm_up));
    Ok(Plan {
        project: project(config, &world.directory),
        output_dir: request.output.output_dir.clone(),
        partial: narrowed || part.is_some(),
        part,
        suites,
        instrumented: instrumented(settings, request, world),
        policy,
        confirm: !request.no_confirm,
        confirm_budget: config.measure.confirm_budget,
        hunt: request.hunt,
        screen: config.measure.screen,
        screen_repetitions: request.repeat_screen.unwrap_or(config.measure.screen_repetitions),
        java: config.measure.java.clone(),
        windows: windows(settings),
        filter: request.filter.clone(),
        interval: config.measure.interval,
        settle: config.measure.settle,
        holders: config.measure.native.holders,
        native_sampling: config.measure.native.sampling,
        stacks_always: config.measure.native.stacks_always,
        warnings: missing_baseline(settings).into_iter().collect(),
        mapping: request.mapping.clone(),
        symbols: symbols(config, request, world),
        reports: reports(settings),
        history: config.history.clone(),
    })
}

/// The requested part of the run.
fn part(
    settings: &Settings,
    request: &RunArgs,
    world: &World,
    narrowed: bool,
) -> Result<Option<PlannedPart>, ExpectedError> {
    let Some(part) = request.partition else { return Ok(None) };
    let shards = |suite: &Suite| suite.env.iter().any(|(name, value)| is_sharded(name, value));
    let of_world = world.narrowing.iter().any(|(name, value)| is_sharded(name, value));
    if of_world || settings.config.suites.iter().any(shards) {
        return Err(ExpectedError::usage(
            "GTEST_TOTAL_SHARDS divides the tests already",
            "take it away, or --partition: nobody could say that all shards together ran everything",
        ));
    }
    let baseline = settings.baseline.as_ref().map(|baseline| digest(format!("{baseline:?}").as_bytes()));
    Ok(Some(PlannedPart {
        part,
        timings: request.timings.clone(),
        narrowed,
        config: digest(as_written(settings, world).as_bytes()),
        options: typed(request, world),
        baseline: baseline.unwrap_or_default(),
    }))
}

/// The settings that affect what is run and how it is judged, independent of their file's path on this machine.
fn as_written(settings: &Settings, world: &World) -> String {
    let Config { suites, instrumented, measure, thresholds, waivers, history, .. } = &settings.config;
    let judged = (suites, instrumented, measure, thresholds, waivers, &history.known, &history.stale_waivers);
    let files = [settings.file.clone(), Some(settings.root.join(&settings.config.waivers_file.path))];
    let text = files.into_iter().flatten().fold(format!("{judged:?}"), |text, file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        text.replace(&*file.to_string_lossy(), &name)
    });
    origin::without_folders(&text, &world.project, &world.directory)
}

/// The options that affect what is run and how it is judged. Folders of the machine are removed.
fn typed(request: &RunArgs, world: &World) -> String {
    let RunArgs { suites, filter, ignore_test_failures, repeat_screen, iterations, warm_up, .. } = request;
    let RunArgs { timeout, hunt, no_confirm, targets, device, devices, program, .. } = request;
    let mut typed = vec![
        format!("{:?}", (suites, filter, ignore_test_failures, repeat_screen, iterations, warm_up)),
        format!("{:?}", (timeout, hunt, no_confirm, targets, device.is_some(), devices)),
        format!("{:?}", world.narrowing),
    ];
    typed.extend(program.iter().skip(1).map(|argument| argument.to_string_lossy().into_owned()));
    origin::without_folders(&typed.join(" "), &world.project, &world.directory)
}

/// Accepted windows, if they are compared with.
fn windows(settings: &Settings) -> BTreeMap<String, Vec<WindowBaseline>> {
    let baseline = settings.baseline.iter().filter(|_| settings.config.measure.screen == Screen::Baseline);
    let suites = baseline.flat_map(|baseline| &baseline.suites);
    suites
        .filter(|(_, suite)| !suite.windows.is_empty())
        .map(|(name, suite)| (name.clone(), suite.windows.clone()))
        .collect()
}

/// The project's configured name, otherwise that of its folder.
pub(crate) fn project(config: &Config, directory: &Path) -> String {
    config.project.clone().unwrap_or_else(|| {
        directory.file_name().map_or_else(|| "project".to_owned(), |name| name.to_string_lossy().into_owned())
    })
}

fn suites(settings: &Settings, request: &RunArgs, world: &World) -> Result<Vec<PlannedSuite>, ExpectedError> {
    let config = &settings.config;
    if !request.program.is_empty() {
        return Ok(vec![wrapped(config, request, world)]);
    }
    let file = settings.file.clone().ok_or_else(|| ExpectedError::NothingToRun("memgate.yaml".into()))?;
    let known: Vec<String> = (config.suites.iter().map(|suite| suite.name.clone()))
        .chain(config.instrumented.iter().map(|suite| suite.name.clone()))
        .collect();
    if known.is_empty() {
        return Err(ExpectedError::NoSuites(file));
    }
    if let Some(name) = request.suites.iter().find(|name| !known.contains(name)) {
        return Err(ExpectedError::UnknownSuite { name: name.clone(), file, known });
    }
    let chosen = config.suites.iter().filter(|suite| is_chosen(request, &suite.name));
    Ok(chosen.map(|suite| configured(config, suite, request, world)).collect())
}

fn is_chosen(request: &RunArgs, suite: &str) -> bool {
    request.suites.is_empty() || request.suites.iter().any(|name| name == suite)
}

fn wrapped(config: &Config, request: &RunArgs, world: &World) -> PlannedSuite {
    PlannedSuite {
        name: None,
        command: request.program.clone(),
        repeating: None,
        directory: None,
        environment: Vec::new(),
        secrets: secrets(config),
        runner: Runner::Auto,
        targets: request
            .targets
            .iter()
            .map(|glob| glob.absolute(&world.directory.to_string_lossy()))
            .collect(),
        timeout: request.timeout.unwrap_or(config.measure.timeout),
        mapping: Vec::new(),
        heap: None,
    }
}

fn configured(config: &Config, suite: &Suite, request: &RunArgs, world: &World) -> PlannedSuite {
    let directory = suite.cwd.as_ref().map(|cwd| world.directory.join(cwd));
    let globs_start = directory.as_ref().unwrap_or(&world.directory).to_string_lossy().into_owned();
    let targets = (suite.targets.iter().map(|target| target.absolute(&globs_start)))
        .chain(request.targets.iter().map(|glob| glob.absolute(&world.directory.to_string_lossy())));
    PlannedSuite {
        name: Some(suite.name.clone()),
        command: suite.command(1).into_iter().map(OsString::from).collect(),
        repeating: suite.repeats().then(|| suite.run.clone()),
        directory,
        environment: suite.env.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        secrets: secrets(config),
        runner: suite.runner,
        targets: targets.collect(),
        timeout: request.timeout.or(suite.timeout).unwrap_or(config.measure.timeout),
        mapping: suite.mapping.iter().map(|path| world.directory.join(path)).collect(),
        heap: suite.heap.clone().map(|mut heap| {
            heap.rules.iter_mut().for_each(|path| *path = world.directory.join(&*path));
            heap
        }),
    }
}

/// The variables used for mail, webhooks and uploads, and those with which CI systems sign uploads. A test may itself
/// need GitHub's: they belong to memgate only if it has no token.
pub(crate) fn secrets(config: &Config) -> Vec<OsString> {
    let named = config.secrets().into_iter().map(|(_, variable)| variable);
    let signs = config.history.upload.as_ref().is_some_and(|to| to.token.is_none());
    let of_github = upload::GITHUB_SIGNS.into_iter().filter(|_| signs);
    named.chain([upload::ID_TOKEN]).chain(of_github).map(OsString::from).collect()
}

/// Whether the run is partial: a waiver without a match is reported only when everything ran.
fn is_partial(settings: &Settings, request: &RunArgs) -> bool {
    let typed: Vec<String> = request.program.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let narrowed = |suite: &Suite| suite.env.iter().any(|(name, value)| narrows(name, value));
    request.filter.is_some()
        || settings.config.suites.iter().any(narrowed)
        || !request.suites.is_empty()
        || selects(&typed)
        || (!request.program.is_empty() && !settings.config.suites.is_empty())
}

/// Sources of symbols for all suites: a library is identified by its build id, whichever suite named its file.
fn symbols(config: &Config, request: &RunArgs, world: &World) -> Vec<PathBuf> {
    let programs = config.suites.iter().map(|suite| (&suite.name, &suite.symbols));
    let on_devices = config.instrumented.iter().map(|suite| (&suite.name, &suite.symbols));
    let chosen = |(name, _): &(&String, _)| request.program.is_empty() && is_chosen(request, name);
    let configured = programs.chain(on_devices).filter(chosen).flat_map(|(_, symbols)| symbols);
    let all = request.symbols.iter().cloned().chain(configured.map(|path| world.directory.join(path)));
    all.collect::<BTreeSet<PathBuf>>().into_iter().collect()
}

/// The requested suites on devices.
fn instrumented(settings: &Settings, request: &RunArgs, world: &World) -> Vec<PlannedInstrumentation> {
    let chosen = |suite: &&Instrumented| request.program.is_empty() && is_chosen(request, &suite.name);
    // The Test Orchestrator's own argument: other runners do not know it.
    let clears = |(name, value): &&(String, String)| name == "clearPackageData" && value == "true";
    let complete = |paths: &[PathBuf]| paths.iter().map(|path| world.directory.join(path)).collect();
    let planned = |suite: &Instrumented| PlannedInstrumentation {
        clear_data: suite.process_per_test && suite.arguments.iter().any(|argument| clears(&argument)),
        timeout: request.timeout.or(suite.timeout).unwrap_or(settings.config.measure.timeout),
        suite: Instrumented {
            devices: request.on().unwrap_or_else(|| suite.devices.clone()),
            apks: complete(&suite.apks),
            mapping: complete(&suite.mapping),
            ..suite.clone()
        },
    };
    settings.config.instrumented.iter().filter(chosen).map(planned).collect()
}

/// Warns about a missing baseline file: thresholds cannot compare with it. This happens in the first run of a project.
pub(crate) fn missing_baseline(settings: &Settings) -> Option<String> {
    let config = &settings.config;
    (settings.baseline.is_none() && config.thresholds.need_baseline()).then(|| {
        format!(
            "there is no baseline {}: thresholds relative to it are not judged; `memgate baseline accept` makes it from a \
             run",
            settings.root.join(&config.baseline.path).display()
        )
    })
}

/// Maximum number of unmatched entries that are listed one by one.
const UNMATCHED_TOLD: usize = 10;

/// Entries of `thresholds.tests` that match no test of a complete run. Of a run with errors it is unknown which tests
/// are missing.
pub(crate) fn unmatched(settings: &Settings, report: &RunReport) -> Vec<String> {
    if report.verdict == Verdict::Error {
        return Vec::new();
    }
    let tests =
        || report.suites.iter().flat_map(|suite| suite.tests.iter().map(|test| (&suite.name, &test.id)));
    // An entry for all tests of a class also applies to the class.
    let is_for = |entry: &Override, suite: &str, test: &str| {
        entry.tests.matches(suite, test) || entry.tests.matches(suite, &format!("{test}.*"))
    };
    let entries = settings.config.thresholds.overrides().iter();
    let unmatched: Vec<&Override> =
        entries.filter(|entry| !tests().any(|(suite, test)| is_for(entry, suite, test))).collect();
    let told = unmatched.iter().take(UNMATCHED_TOLD).map(|entry| {
        format!("{}: `{}` matches no test: correct or remove its limits", entry.place, entry.tests.text())
    });
    let others =
        unmatched.iter().skip(UNMATCHED_TOLD).map(|entry| entry.place.to_string()).collect::<Vec<_>>();
    let others = match others.as_slice() {
        [] => None,
        [one] => Some(format!("{one}: one more entry matches no test")),
        [first, .., last] => Some(format!("{first} to {last}: {} more entries match no test", others.len())),
    };
    told.chain(others).collect()
}

/// The configured reports, with complete paths.
pub(crate) fn reports(settings: &Settings) -> memgate_config::Reports {
    let mut reports = settings.config.reports.clone();
    for path in reports.paths_mut() {
        *path = settings.root.join(&*path);
    }
    reports
}

#[cfg(test)]
mod tests {
    use memgate_analysis::Bound;
    use memgate_config::{Devices, TargetGlob};
    use memgate_model::Metric;
    use memgate_model::Per;

    use super::*;
    use crate::cli::OutputArgs;

    const YAML: &str = r#"
version: 1
project: tiles
suites:
  engine: { run: [build/engine_tests], targets: ["build/*_tests"], timeout: 5s, env: { MODE: fast } }
  replay: { run: [build/replay, "--count={n}"], cwd: data }
  app: { runner: instrumentation, package: com.example.test, apks: [app.apk] }
measure: { warm_up: 2, iterations: 20, unconfirmed: fail }
thresholds:
  native.live_bytes: 100
  os.rss: { per: suite, warn: +10%, against: baseline }
  os.fds: off
  tests:
    - match: "engine::MapCache.*"
      native.live_bytes: { limit: 64 KiB, per: test }
    - match: "Noisy.*"
      native.live_bytes: off
    - match: "engine::*"
      native.live_bytes: 7
waivers:
  - { frame: "libfontconfig.so*!FcInit*", reason: once, until: never }
  - { leak: n1-5f1c09a2b47d1e03, reason: known, until: 2027-03-01, owner: "@maps" }
reports:
  junit: { path: out/junit.xml }
"#;

    fn settings(yaml: &str) -> Settings {
        let config = Config::parse(yaml, "memgate.yaml", &|_| None, None).unwrap_or_else(|e| panic!("{e}"));
        Settings { config, file: Some("memgate.yaml".into()), root: "/project".into(), baseline: None }
    }

    fn world() -> World {
        World {
            today: jiff::civil::date(2026, 11, 21),
            directory: "/project".into(),
            project: "/project".into(),
            narrowing: Vec::new(),
        }
    }

    #[test]
    fn tests_get_no_variable_that_holds_a_secret_of_memgate() {
        let secrets = |history: &str| {
            let config = settings(&format!("version: 1\n{history}")).config;
            secrets(&config).into_iter().map(|name| name.into_string().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(secrets(""), ["MEMGATE_ID_TOKEN"]);
        let server = "history: { server: \"https://memgate.example.com\"";
        assert_eq!(secrets(&format!("{server}, token: \"${{TOKEN}}\" }}")), ["TOKEN", "MEMGATE_ID_TOKEN"]);
        assert_eq!(
            secrets(&format!("{server} }}")),
            ["MEMGATE_ID_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"]
        );
    }

    fn planned(request: &RunArgs) -> Plan {
        plan(&settings(YAML), request, &world()).unwrap_or_else(|e| panic!("{e}"))
    }

    fn request() -> RunArgs {
        RunArgs { output: OutputArgs { output_dir: ".memgate".into() }, ..RunArgs::default() }
    }

    fn limit(policy: &GatePolicy, suite: &str, test: &str, metric: Metric, per: Per) -> Vec<(Bound, String)> {
        policy.limits(suite, test, metric, per).into_iter().map(|l| (l.bound, l.source.to_string())).collect()
    }

    #[test]
    fn the_first_entry_that_names_test_and_metric_wins_whatever_it_is_per() {
        let policy = policy(&settings(YAML), false, world().today);
        let bytes = Metric::NativeLiveBytes;
        for (suite, test, per, want) in [
            ("engine", "MapCache.scroll", Per::Test, Some(65536.0)),
            ("engine", "MapCache.scroll", Per::Iteration, None),
            ("engine", "Noisy.one", Per::Iteration, None),
            ("other", "Noisy.one", Per::Iteration, None),
            ("engine", "Other.x", Per::Iteration, Some(7.0)),
            ("other", "Other.x", Per::Iteration, Some(100.0)),
        ] {
            let found = limit(&policy, suite, test, bytes, per);
            let bounds: Vec<Bound> = found.into_iter().map(|(bound, _)| bound).collect();
            assert_eq!(
                bounds,
                want.map(Bound::Absolute).into_iter().collect::<Vec<_>>(),
                "{suite}::{test} {per:?}"
            );
        }
        assert!(limit(&policy, "engine", "A.b", Metric::OsFds, Per::Iteration).is_empty(), "switched off");
        let threads = limit(&policy, "engine", "A.b", Metric::OsThreads, Per::Iteration);
        assert_eq!(
            threads,
            [(Bound::Absolute(0.0), "default".to_owned())],
            "and what is not named keeps its default"
        );
    }

    #[test]
    fn relative_limits_need_an_accepted_figure() {
        let mut settings = settings(YAML);
        let rss = |settings: &Settings| {
            limit(&policy(settings, false, world().today), "engine", "", Metric::OsRss, Per::Suite)
        };
        assert!(rss(&settings).is_empty());
        let without = policy(&settings, false, world().today);
        assert!(
            without.lacks_figure("engine", "", Metric::OsRss, Per::Suite),
            "no baseline at all is said, too"
        );
        let json = r#"{"schema_version":1,"suites":{"engine":{"metrics":{"os.rss":{"value":1000.0,"per":"suite"}}}}}"#;
        settings.baseline = Some(Baseline::from_json(json).unwrap());
        let found = rss(&settings);
        assert_eq!(found.len(), 1);
        assert!(matches!(found[0].0, Bound::Absolute(limit) if (limit - 1100.0).abs() < 1e-6), "{found:?}");
        let policy = policy(&settings, false, world().today);
        let lacks = |suite: &str| policy.lacks_figure(suite, "", Metric::OsRss, Per::Suite);
        assert!(!lacks("engine") && lacks("another"), "a baseline without the suite is no limit, and said");
    }

    #[test]
    fn a_missing_baseline_is_said_where_it_is_needed() {
        let warnings = planned(&request()).warnings;
        assert!(warnings.iter().any(|w| {
            w.contains("/project/memgate-baseline.json") && w.contains("memgate baseline accept")
        }));
        let plain = plan(&settings("version: 1\nsuites: { a: { run: [x] } }"), &request(), &world()).unwrap();
        assert!(plain.warnings.is_empty());
    }

    #[test]
    fn a_configured_suite_carries_its_settings() {
        let plan = planned(&request());
        let [engine, replay] = plan.suites.as_slice() else { panic!("{:?}", plan.suites) };
        assert_eq!(engine.targets, ["/project/build/*_tests"]);
        assert_eq!(engine.timeout, Duration::from_secs(5));
        assert_eq!(engine.environment, [("MODE".into(), "fast".into())]);
        assert_eq!(replay.command, ["build/replay", "--count=1"]);
        assert_eq!(replay.directory.as_deref(), Some(Path::new("/project/data")));
        assert!(replay.repeating.is_some());
        assert_eq!(plan.project, "tiles");
        assert_eq!((plan.policy.warm_up, plan.policy.iterations), (2, 20));
        assert_eq!(plan.reports.junit.unwrap().path, Path::new("/project/out/junit.xml"));
    }

    #[test]
    fn suites_of_devices_are_planned_apart_and_the_command_line_names_the_device() {
        let all = planned(&request());
        let [app] = all.instrumented.as_slice() else { panic!("{:?}", all.instrumented) };
        assert_eq!((app.suite.package.as_str(), &app.suite.devices), ("com.example.test", &Devices::Only));
        assert_eq!(app.suite.apks, [Path::new("/project/app.apk")]);
        let only = RunArgs { suites: vec!["engine".into()], ..request() };
        assert!(planned(&only).instrumented.is_empty());
        let app = planned(&RunArgs { suites: vec!["app".into()], device: Some("R58M".into()), ..request() });
        assert!(app.suites.is_empty());
        assert_eq!(app.instrumented[0].suite.devices, Devices::Serial("R58M".into()));
    }

    #[test]
    fn what_is_typed_wins_over_the_file() {
        let typed = RunArgs {
            iterations: Some(50),
            warm_up: Some(0),
            timeout: Some(Duration::from_secs(1)),
            targets: ["./t/*", "*_test", "exact"].map(|glob| TargetGlob::typed(glob).unwrap()).to_vec(),
            suites: vec!["engine".into()],
            ..request()
        };
        let plan = planned(&typed);
        assert_eq!((plan.policy.warm_up, plan.policy.iterations, plan.policy.max_iterations), (0, 50, 50));
        assert_eq!(plan.suites[0].timeout, Duration::from_secs(1));
        assert_eq!(plan.suites[0].targets, ["/project/build/*_tests", "/project/t/*", "*_test", "*/exact"]);
    }

    #[test]
    fn a_wrapped_command_needs_no_configuration() {
        let bare = Settings { root: "/project".into(), ..Settings::default() };
        let wrapped = RunArgs { program: vec!["./tests".into(), "-x".into()], ..request() };
        let plan = plan(&bare, &wrapped, &world()).unwrap();
        assert_eq!(plan.project, "project", "the folder's name");
        assert_eq!(plan.suites[0].command, ["./tests", "-x"]);
        assert_eq!((plan.suites[0].runner, plan.suites[0].timeout), (Runner::Auto, Duration::from_secs(60)));
        assert!(!plan.partial);
    }

    #[test]
    fn a_run_of_a_part_is_known_as_one() {
        let part = |change: fn(&mut RunArgs)| {
            let mut request = request();
            change(&mut request);
            planned(&request).partial
        };
        assert!(!part(|_| {}));
        assert!(part(|r| r.filter = Some("A.*".into())));
        assert!(part(|r| r.suites.push("engine".into())));
        assert!(part(|r| r.program.push("./other".into())), "the file has suites that do not run now");
        let of = |name, value| narrows(name, value);
        assert!(of("GTEST_FILTER", "A.*") && of("GTEST_TOTAL_SHARDS", "4") && of("GTEST_FAIL_FAST", "1"));
        assert!(!of("GTEST_FILTER", "*") && !of("GTEST_TOTAL_SHARDS", "1") && !of("HOME", "/root"));
    }

    #[test]
    fn limits_for_no_test_are_told() {
        let report = |verdict: &str| -> RunReport {
            let test = serde_json::json!({ "id": "MapCache.scroll", "outcome": "passed", "verdict": "pass", "reason": "",
                "duration_s": 0.1, "confirmed": false, "metrics": {}, "leaks": [], "one_time": [], "curve": [] });
            serde_json::from_value(serde_json::json!({
                "schema_version": 1, "verdict": verdict, "exit_code": 0, "project": "tiles", "session": "s",
                "started": "2026-11-21T10:00:00Z", "duration_s": 1.0,
                "agent_cost": { "cpu_ratio": null, "peak_bytes": 0, "boundary_s": 0.0, "truncated_stacks": 0 },
                "suites": [{ "name": "engine", "runner": "gtest", "boundary": "exact", "verdict": "pass",
                    "screened_s": 1.0, "reason": "", "metrics": {}, "tests": [test] }],
                "waivers": [], "errors": []
            }))
            .unwrap()
        };
        let told = unmatched(&settings(YAML), &report("pass"));
        let said = "`Noisy.*` matches no test: correct or remove its limits";
        assert_eq!(told, [format!("memgate.yaml:16: {said}")]);
        assert!(unmatched(&settings(YAML), &report("error")).is_empty(), "a test may be missing");
        let many: String =
            (0..4_000).map(|n| format!("    - {{ match: \"Gone{n}.*\", os.fds: 1 }}\n")).collect();
        let many = settings(&format!("version: 1\nthresholds:\n  tests:\n{many}"));
        let told = unmatched(&many, &report("pass"));
        assert_eq!(told.len(), 11);
        assert_eq!(told[10], "memgate.yaml:14 to memgate.yaml:4003: 3990 more entries match no test");
    }

    #[test]
    fn nothing_to_run_is_an_error_that_says_what_there_is() {
        let none = plan(&Settings::default(), &request(), &world()).unwrap_err();
        assert!(matches!(none, ExpectedError::NothingToRun(_)));
        let empty = plan(&settings("version: 1"), &request(), &world()).unwrap_err();
        assert_eq!(empty.to_string(), "memgate.yaml has no suites");
        let typo = RunArgs { suites: vec!["engin".into()], ..request() };
        let typo = plan(&settings(YAML), &typo, &world()).unwrap_err();
        assert_eq!(typo.hint().as_deref(), Some("it has: engine, replay, app"));
    }

    #[test]
    fn waivers_keep_who_why_and_until_when() {
        let policy = policy(&settings(YAML), false, world().today);
        let texts: Vec<String> =
            policy.waivers.iter().map(|w| format!("{:?} {:?}", w.matches, w.until)).collect();
        assert_eq!(texts.len(), 2);
        assert!(texts[0].contains("FcInit") && texts[0].ends_with("None"), "{texts:?}");
        assert!(texts[1].contains("n1-5f1c09a2b47d1e03") && texts[1].contains("2027-03-01"), "{texts:?}");
        assert_eq!(policy.waivers[1].owner.as_deref(), Some("@maps"));
        assert_eq!(policy.today, "2026-11-21");
    }
}
