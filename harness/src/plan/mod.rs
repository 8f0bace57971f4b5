//! Combines checked settings and a request into the programs to run and the rules for judging. Pure: the day, the
//! folder and the files' contents are passed in as values.
//!
//! Data flow: settings + request → suites to run (`suites`), what this shard runs (`shard`), rules for judging
//! ([`policy`]) → [`Plan`] → run → limits that applied nowhere (`thresholds`). `analysis` does not know the
//! configuration; only `policy` converts one into the other.

mod policy;
#[cfg(test)]
mod samples;
mod selection;
mod shard;
mod suites;
mod thresholds;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::civil::Date;
use memgate_analysis::GatePolicy;
use memgate_config::{
    Baseline, Config, Instrumented, MeasureJava, Runner, Screen, SuiteHeap, WindowBaseline,
};

pub(crate) use self::policy::follow;
pub use self::policy::policy;
pub use self::selection::{is_filtered, narrows};
pub use self::shard::PlannedShard;
pub(crate) use self::thresholds::{of_other_suites, warnings, without_effect};
use crate::cli::RunArgs;
use crate::exit::ExpectedError;

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

impl Settings {
    /// The project's configured name, otherwise that of `directory`.
    pub(crate) fn project(&self, directory: &Path) -> String {
        self.config.project.clone().unwrap_or_else(|| {
            directory
                .file_name()
                .map_or_else(|| "project".to_owned(), |name| name.to_string_lossy().into_owned())
        })
    }

    /// The configured reports, with complete paths.
    pub(crate) fn reports(&self) -> memgate_config::Reports {
        let mut reports = self.config.reports.clone();
        for path in reports.paths_mut() {
            *path = self.root.join(&*path);
        }
        reports
    }
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
    /// Measurements in Java virtual machines.
    pub java: MeasureJava,
    /// Survivors of the windows of JVM suites that were accepted as clean, by suite.
    pub windows: BTreeMap<String, Vec<WindowBaseline>>,
    /// GoogleTest filter for all suites.
    pub filter: Option<String>,
    /// Whether only part of the tests is requested, as far as the request shows.
    pub partial: bool,
    /// The number of the typed command if it is a build that selects some of its tests; 0: it is none.
    pub selection: i64,
    /// The shard of the run; `None`: the whole run.
    pub shard: Option<PlannedShard>,
    /// Whether GoogleTest's own shards may leave this run without a test.
    pub may_be_empty: bool,
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
        self.suite.arguments.iter().any(|(name, _)| name == "class" || name == "testFile")
    }
}

/// Plans a run.
///
/// # Errors
/// When there is nothing to run, or a requested suite does not exist.
pub fn plan(settings: &Settings, request: &RunArgs, world: &World) -> Result<Plan, ExpectedError> {
    let config = &settings.config;
    let suites = suites::suites(settings, request, world)?;
    let narrowed = selection::is_partial(settings, request) || !world.narrowing.is_empty();
    let shard = shard::shard(settings, request, world, narrowed)?;
    let may_be_empty = shard::are_sharded(&suites, world);
    let mut policy = policy(settings, request.ignore_test_failures, world.today);
    policy.warm_up = request.warm_up.unwrap_or(policy.warm_up);
    policy.iterations = request.iterations.unwrap_or(policy.iterations);
    policy.max_iterations = policy.max_iterations.max(policy.iterations);
    policy.iteration_cap = policy.iteration_cap.max(policy.iterations.saturating_add(policy.warm_up));
    Ok(Plan {
        project: settings.project(&world.directory),
        output_dir: request.output.output_dir.clone(),
        partial: narrowed || shard.is_some(),
        selection: selection::of_build(request, &world.project),
        shard,
        may_be_empty,
        suites,
        instrumented: suites::instrumented(settings, request, world),
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
        warnings: warnings(settings),
        mapping: request.mapping.clone(),
        symbols: suites::symbols(config, request, world),
        reports: settings.reports(),
        history: config.history.clone(),
    })
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

#[cfg(test)]
mod tests {
    use memgate_config::{Devices, TargetGlob};

    use super::samples::{YAML, request, settings, world};
    use super::*;

    fn planned(request: &RunArgs) -> Plan {
        plan(&settings(YAML), request, &world()).unwrap_or_else(|e| panic!("{e}"))
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
        let mut app = app.instrumented[0].clone();
        for (argument, chooses) in [("class", true), ("testFile", true), ("notClass", false)] {
            app.suite.arguments = vec![(argument.to_owned(), "com.example.ATest#opens".to_owned())];
            assert_eq!(app.chooses_classes(), chooses, "{argument}");
        }
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
        assert_eq!(plan.suites[0].repeating, None);
    }

    #[test]
    fn the_typed_command_of_a_suite_is_that_suite() {
        let yaml = |more: &str| {
            format!(
                "version: 1\nsuites: {{ unit: {{ run: [ctest, --test-dir, build, --output-on-failure], timeout: 5s{more} }} }}"
            )
        };
        let typed = |yaml: &str, command: &str| {
            let wrapped = RunArgs { program: command.split(' ').map(Into::into).collect(), ..request() };
            let plan = plan(&settings(yaml), &wrapped, &world()).unwrap();
            (plan.suites[0].clone(), plan.partial)
        };
        for command in ["ctest --test-dir build --output-on-failure", "ctest -V --test-dir build"] {
            let (suite, partial) = typed(&yaml(""), command);
            assert_eq!((suite.name.as_deref(), suite.timeout), (Some("unit"), Duration::from_secs(5)));
            assert_eq!(suite.command.join(" ".as_ref()), command, "what is typed runs");
            assert!(!partial, "all of the file runs");
        }
        for (more, command) in [
            ("", "ctest --test-dir build -R Map"),
            ("", "./ctest.sh --test-dir build"),
            (", cwd: data", "ctest --test-dir build"),
            (", env: { MODE: fast }", "ctest --test-dir build"),
        ] {
            let (suite, partial) = typed(&yaml(more), command);
            assert_eq!((suite.name, partial), (None, true), "{more} {command}");
        }
        let two =
            "version: 1\nsuites: { a: { run: [build/t] }, b: { run: [build/t] }, c: { run: [build/u] } }";
        assert_eq!(typed(two, "build/t").0.name, None, "which one?");
        let (suite, partial) = typed(two, "build/u");
        assert_eq!((suite.name.as_deref(), partial), (Some("c"), true), "other suites do not run");
    }

    #[test]
    fn a_wrapped_command_may_name_the_argument_that_repeats_its_work() {
        let bare = Settings { root: "/project".into(), ..Settings::default() };
        let wrapped = RunArgs { program: vec!["./plain".into(), "--count={n}".into()], ..request() };
        let plan = plan(&bare, &wrapped, &world()).unwrap();
        assert_eq!(plan.suites[0].command, ["./plain", "--count=1"]);
        assert_eq!(
            plan.suites[0].repeating.as_deref(),
            Some(&["./plain", "--count={n}"].map(str::to_owned)[..])
        );
        assert_eq!(plan.suites[0].runner, Runner::Command);
        let of_its_own = RunArgs {
            program: ["sh", "-c", "for n in A.b; do ./t --gtest_filter=${n}; done"].map(Into::into).to_vec(),
            ..request()
        };
        let plan = super::plan(&bare, &of_its_own, &world()).unwrap();
        assert_eq!(plan.suites[0].repeating, None, "a variable of the shell");
        assert_eq!(plan.suites[0].command, of_its_own.program);
    }

    #[test]
    fn a_mistyped_number_of_repetitions_is_an_error() {
        for mistyped in ["--count={N}", "{ n }"] {
            let wrapped = RunArgs { program: vec!["./plain".into(), mistyped.into()], ..request() };
            let error = plan(&Settings::default(), &wrapped, &world()).unwrap_err();
            assert!(error.to_string().ends_with("is not the number of repetitions"), "{error}");
        }
        for fine in ["${N}", "$ENV{N}", "{name}", "{}", "N}"] {
            let wrapped = RunArgs { program: vec!["./plain".into(), fine.into()], ..request() };
            assert!(plan(&Settings::default(), &wrapped, &world()).is_ok(), "{fine}");
        }
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
    fn nothing_to_run_is_an_error_that_says_what_there_is() {
        let none = plan(&Settings::default(), &request(), &world()).unwrap_err();
        assert!(matches!(none, ExpectedError::NothingToRun(_)));
        let empty = plan(&settings("version: 1"), &request(), &world()).unwrap_err();
        assert_eq!(empty.to_string(), "memgate.yaml has no suites");
        let typo = RunArgs { suites: vec!["engin".into()], ..request() };
        let typo = plan(&settings(YAML), &typo, &world()).unwrap_err();
        assert_eq!(typo.hint().as_deref(), Some("it has: engine, replay, app"));
        let both = RunArgs { suites: vec!["engine".into()], program: vec!["./t".into()], ..request() };
        let both = plan(&settings(YAML), &both, &world()).unwrap_err();
        let why = "`--suite engine` runs the command of memgate.yaml, and there is another one after `--`";
        assert_eq!(both.to_string(), why);
    }
}
