//! The `memgate.yaml` that `memgate init` writes: the suites that it found, and settings with their defaults as
//! comments.

use crate::edit::quote;

/// Kind of a project, recognised by a file in its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectKind {
    /// `CMakeLists.txt`.
    Cmake,
    /// `Cargo.toml`.
    Cargo,
    /// `pom.xml`.
    Maven,
    /// `build.gradle` or `build.gradle.kts`.
    Gradle,
    /// None of them.
    Plain,
}

/// Facts about the project.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Its name.
    pub project: String,
    /// Suites that were found; empty: the template has the usual suites for the kind of project.
    pub suites: Vec<SuiteFact>,
    /// The Android application with instrumented tests.
    pub android: Option<AndroidFact>,
}

/// A module with an Android application and instrumented tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AndroidFact {
    /// Its folder, relative to the project; empty: the project itself.
    pub module: String,
    /// Id of the application, if the build file names it.
    pub application: Option<String>,
}

/// A suite that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuiteFact {
    /// Its name: letters, digits, `_`, `-` and `.`.
    pub name: String,
    /// Program and arguments.
    pub run: Vec<String>,
}

/// The text of a new `memgate.yaml`.
#[must_use]
pub fn init_template(kind: ProjectKind, facts: &Facts) -> String {
    let suites =
        if facts.suites.is_empty() { usual_suites(kind).to_owned() } else { found_suites(&facts.suites) };
    format!(
        "\
# yaml-language-server: $schema=.memgate/memgate.schema.json
# For completion and checks in an editor, after a first run: memgate schema > .memgate/memgate.schema.json
version: 1
project: {project}

# The suites. memgate recognises GoogleTest, also in executables that ctest, make or a script starts, and JUnit below Maven and Gradle.
suites:
{suites}{android}
# How tests are measured: each test once, then the suspects again, alone and repeated. These are the defaults.
# measure:
#   warm_up: 3            # executions before the first measured one
#   iterations: 10        # measured executions, at least
#   rarest_leak: 20       # the rarest leak to find: one in so many executions
#   unconfirmed: warn     # growth that cannot be confirmed: warn | fail
#   screen: baseline      # JVM suites: thorough | baseline | off
#   confidence: 0.99
#   timeout: 60s          # per repeated test
#   java: {{ heap_dump: never }}   # or out_of_memory, heap_limit; more keys: follow, heap_limit, sampling

# How much one more iteration of a test may leave behind. For each metric, the first matching entry of
# `tests` that names it wins.
thresholds:
{thresholds}
# Known leaks; `memgate waive` writes to {waivers} instead.
# waivers:
{waiver}#     until: never

# Reports besides the page in .memgate/latest: `memgate docs reports`.
# reports:
#   junit: {{ path: {junit} }}
#   mail: {{ server: \"smtps://ci@mail.example.com\", password: \"${{MEMGATE_SMTP_PASSWORD}}\", to: [team@example.com] }}

# Every run adds itself to .memgate/history.db: `memgate history leaks`, `memgate serve`. `history: off` ends that.
# history:
#   lines: [main, master, \"release/*\"]   # branches whose leaks are followed over commits
#   labels: {{ runner: ci-x86 }}            # figures are compared where all labels are equal
#   server: https://memgate.example.com    # a `memgate serve` to which runs upload themselves: `memgate docs server`
#   token: \"${{MEMGATE_TOKEN}}\"
",
        project = if facts.project.trim().is_empty() { "unnamed".to_owned() } else { quote(&facts.project) },
        android = facts.android.as_ref().map(android_suite).unwrap_or_default(),
        thresholds = thresholds(kind),
        waivers = crate::DEFAULT_WAIVERS_FILE,
        waiver = waiver(kind),
        junit = junit_path(kind),
    )
}

const fn is_java(kind: ProjectKind) -> bool {
    matches!(kind, ProjectKind::Maven | ProjectKind::Gradle)
}

fn thresholds(kind: ProjectKind) -> &'static str {
    if is_java(kind) {
        return "  java.live_objects: 0
  java.live_bytes: 0
  java.direct_bytes: 0
  java.threads: 0
  os.fds: 0
  # os.rss: { per: suite, warn: +10%, against: baseline }   # accepted by `memgate baseline accept`
  # tests:
  #   - match: \"suite::com.example.TileCacheTest.*\"
  #     java.live_objects: 20
  #     java.live_bytes: 64 KiB
";
    }
    "  native.live_bytes: 0
  native.mapped_bytes: 0
  os.fds: 0
  os.threads: 0
  # os.rss: { per: suite, warn: +10%, against: baseline }   # accepted by `memgate baseline accept`
  # tests:
  #   - match: \"suite::MapCache.*\"
  #     native.live_bytes: 64 KiB
"
}

fn waiver(kind: ProjectKind) -> &'static str {
    if is_java(kind) {
        return "#   - holder: com.example.Registry.cache
#     reason: bounded, 400 entries
";
    }
    "#   - frame: \"libfontconfig.so*!FcInit*\"
#     reason: initialises once per process
"
}

fn found_suites(suites: &[SuiteFact]) -> String {
    let line = |SuiteFact { name, run }: &SuiteFact| {
        let run = run.iter().map(|argument| quote(argument)).collect::<Vec<_>>().join(", ");
        format!("  {}: {{ run: [{run}] }}\n", quote(name))
    };
    suites.iter().map(line).collect()
}

/// A comment: the suite needs a device, and an agent that is built separately.
fn android_suite(AndroidFact { module, application }: &AndroidFact) -> String {
    let (name, folder) = match module.as_str() {
        "" => ("app", String::new()),
        module => (module, format!("{module}/")),
    };
    let package = format!("{}.test", application.as_deref().unwrap_or("com.example.app"));
    let apk = |kind: &str, ending: &str| {
        quote(&format!("{folder}build/outputs/apk/{kind}debug/{name}-debug{ending}.apk"))
    };
    format!(
        "  # Instrumented tests, on a device or an emulator: `memgate docs android`. The variable MEMGATE_ANDROID_AGENT names the agent's folder.
  # instrumented:
  #   runner: instrumentation
  #   package: {}   # as in `adb shell pm list instrumentation`
  #   apks: [{}, {}]
",
        quote(&package),
        apk("", ""),
        apk("androidTest/", "-androidTest"),
    )
}

fn usual_suites(kind: ProjectKind) -> &'static str {
    match kind {
        ProjectKind::Cmake => {
            "  unit: { run: [ctest, --test-dir, build, --output-on-failure] }
  # or one executable:
  # engine: { run: [build/engine_tests] }
"
        }
        ProjectKind::Cargo => {
            "  # A Rust test executable is one test. A program with an argument that repeats its work is judged by the slope.
  unit: { run: [cargo, test], targets: [\"target/*/deps/*\"] }
  # replay: { run: [target/debug/replay, \"--count={n}\"], runner: command }
"
        }
        ProjectKind::Maven => {
            "  # Each module with tests is a suite. The pom stays as it is.
  unit: { run: [mvn, test], runner: junit }
"
        }
        ProjectKind::Gradle => {
            "  # Each project with tests is a suite. The build script stays as it is.
  unit: { run: [./gradlew, test], runner: junit }
"
        }
        ProjectKind::Plain => {
            "  # engine: { run: [build/engine_tests] }
  # replay: { run: [build/replay, \"--count={n}\"], runner: command }   # {n}: how often the work is repeated
"
        }
    }
}

fn junit_path(kind: ProjectKind) -> &'static str {
    match kind {
        ProjectKind::Cmake | ProjectKind::Gradle | ProjectKind::Plain => "build/memgate-junit.xml",
        ProjectKind::Cargo | ProjectKind::Maven => "target/memgate-junit.xml",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    const KINDS: [ProjectKind; 5] =
        [ProjectKind::Cmake, ProjectKind::Cargo, ProjectKind::Maven, ProjectKind::Gradle, ProjectKind::Plain];

    fn parse(text: &str) -> Config {
        Config::parse(text, "memgate.yaml", &|_| None, None).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    #[test]
    fn every_template_parses_and_says_the_defaults() {
        for kind in KINDS {
            let config =
                parse(&init_template(kind, &Facts { project: "tiles".to_owned(), ..Facts::default() }));
            assert_eq!(config.project.as_deref(), Some("tiles"));
            let limits = |config: &Config| {
                config
                    .thresholds
                    .rules()
                    .map(|rule| rule.threshold.map(|t| (t.metric, t.per, t.fail)))
                    .collect::<Vec<_>>()
            };
            assert_eq!(limits(&config), limits(&Config::default()));
            assert_eq!(config.measure, Config::default().measure);
        }
    }

    /// The comments are settings that users can switch on: they must be valid too.
    #[test]
    fn templates_parse_with_their_comments_switched_on() {
        for kind in KINDS {
            let android = AndroidFact { module: "my app".to_owned(), application: None };
            let android = Some(android).filter(|_| kind == ProjectKind::Gradle);
            let facts = Facts { project: "tiles".to_owned(), android, ..Facts::default() };
            let text = init_template(kind, &facts);
            let is_setting = |line: &str| {
                let Some(inner) = line.trim_start().strip_prefix("# ") else { return false };
                let key = inner.trim_start().trim_start_matches("- ").split(':').next().unwrap_or("");
                inner.contains(':') && !key.contains([' ', '`']) && !line.contains("yaml-language-server")
            };
            let on = text
                .lines()
                .map(|line| if is_setting(line) { line.replacen("# ", "", 1) } else { line.to_owned() })
                .collect::<Vec<_>>()
                .join("\n");
            let config = parse(&on);
            assert!(config.reports.junit.is_some(), "{on}");
            assert_eq!(config.waivers.len(), 1);
            assert_eq!(config.instrumented.len(), usize::from(kind == ProjectKind::Gradle), "{on}");
            assert_eq!(config.thresholds.overrides().len(), 1);
        }
    }

    #[test]
    fn found_suites_and_odd_names_are_written_so_that_they_are_read_back() {
        let run =
            vec!["build/a b".to_owned(), "--filter=${X}:*".to_owned(), "{n}".to_owned(), "null".to_owned()];
        let facts = Facts {
            project: "#1: \"tiles\"".to_owned(),
            suites: vec![SuiteFact { name: "engine".to_owned(), run: run.clone() }],
            android: None,
        };
        let config = parse(&init_template(ProjectKind::Cmake, &facts));
        assert_eq!(config.project, Some(facts.project));
        assert_eq!(config.suites[0].run, run);
    }
}
