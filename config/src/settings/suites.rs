//! `suites`: the suites to run.

use std::path::PathBuf;
use std::time::Duration;

use crate::read::{At, Named, OneOrMore, Reader, choice, table};
use crate::settings::heap::{HeapFile, SuiteHeap};
use crate::settings::instrumented::{AgentFrom, DumpOf, Execution, Instrumented, OnDevice};
use crate::settings::measure::check_timeout;
use crate::source::{Place, Span};
use crate::value::duration::Time;
use crate::value::glob::TargetGlob;
use crate::value::text::{Argument, Words};

/// Placeholder in an argument: the number of times that the program repeats its work.
pub const REPETITIONS: &str = "{n}";

/// What was probably meant to be [`REPETITIONS`]: `{N}` or `{ n }`. `${N}` and `$ENV{N}` are variables, and
/// `xargs -I{N}` defines a placeholder of its own.
#[must_use]
pub fn mistyped_repetitions(argument: &str) -> Option<String> {
    if argument.contains("-I{") {
        return None;
    }
    let pieces: Vec<&str> = argument.split('{').collect();
    pieces.windows(2).find_map(|pair| {
        let [before, after] = pair else { return None };
        let (inside, _) = after.split_once('}')?;
        let is_variable = before.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_').ends_with('$');
        let is_mistyped = inside != "n" && inside.trim().eq_ignore_ascii_case("n") && !is_variable;
        is_mistyped.then(|| format!("{{{inside}}}"))
    })
}

table! {
    /// One suite: a command, and how memgate finds its tests.
    SuiteFile {
        /// Program and arguments. With the runner `command` an argument may contain `{n}`, the
        /// number of times that the program repeats its work. The program is then judged by the
        /// slope over runs of different length.
        run: At<Vec<At<Argument>>>,
        /// The test framework. Without it memgate recognises GoogleTest and JUnit, and a program
        /// without tests is one test.
        runner: At<RunnerFile>,
        /// Executables that count as suites, among those that the command starts. Default: the program
        /// itself, and every GoogleTest executable that it starts.
        targets: Vec<At<TargetGlob>>,
        /// Variables to add to the environment of the command.
        env: Named<Argument>,
        /// Working directory of the command, relative to that of memgate.
        cwd: Words,
        /// Longest time of one repeated test of this suite, instead of `measure.timeout`.
        timeout: At<Time>,
        /// For Java: the mapping file that R8 or ProGuard wrote for the tested build, a folder of
        /// such files (`mapping.txt`), or a list of both, relative to the working directory of
        /// memgate. If there are several files, memgate uses the one that belongs to the code in `apks`.
        /// Reports, ids, thresholds and waivers then use the original names.
        mapping: At<OneOrMore<At<Words>>>,
        /// Folders with unstripped libraries or `.debug` files, and APKs, relative to the working
        /// directory of memgate. They provide functions, files and lines for native stacks. A file is
        /// used only if its build id is that of the library in the process.
        symbols: At<Vec<At<Words>>>,
        /// For the runners `junit` and `instrumentation`: a heap dump of the tests, searched for
        /// leaks afterwards.
        heap: At<HeapFile>,
        /// For the runner `instrumentation`: the package of the tests, as listed by `adb shell pm
        /// list instrumentation`.
        package: At<Words>,
        /// For the runner `instrumentation`: the class of the runner, if the package has several.
        instrumentation: At<Words>,
        /// For the runner `instrumentation`: the serial of a device, or `all`. Default: the only
        /// device, or the one in `ANDROID_SERIAL`.
        devices: At<Words>,
        /// For the runner `instrumentation`: APKs to install first, of the app and of the tests.
        /// Default: they are already installed.
        apks: At<Vec<At<Words>>>,
        /// For the runner `instrumentation`: arguments of the runner, `-e KEY VALUE` of `am
        /// instrument`.
        arguments: At<Named<Argument>>,
        /// For the runner `instrumentation`: memgate delivers the agent into the app, or the test
        /// APK contains it (`packaged`).
        #[schemars(extend("default" = "delivered"))]
        agent: At<AgentFrom>,
        /// For the runner `instrumentation`: whether the session keeps a heap dump of a test that
        /// leaks. `trimmed`: compressed, and without the contents of strings, bitmaps and other
        /// arrays of primitives.
        #[schemars(extend("default" = "never"))]
        heap_dump: At<DumpOf>,
        /// For the runner `instrumentation`: the tests share a process (`host`), or each has its
        /// own as with Android's Test Orchestrator (`orchestrator`). With `clearPackageData: true`
        /// in `arguments`, memgate clears the data of app and tests before each test.
        #[schemars(extend("default" = "host"))]
        execution: At<Execution>,
    }
}

choice! {
    /// The test framework.
    pub(crate) enum RunnerFile ("a runner") {
        /// GoogleTest.
        Gtest = "gtest",
        /// The process is the test.
        Command = "command",
        /// JUnit: Maven, Gradle, or a JUnit launcher.
        Junit = "junit",
        /// Instrumented tests of an Android app, on a device.
        Instrumentation = "instrumentation",
    }
}

/// The test framework.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runner {
    /// Detected from the program.
    Auto,
    /// GoogleTest.
    Gtest,
    /// The process is the test.
    Command,
    /// JUnit, in the Java virtual machines that the command starts.
    Junit,
}

/// A suite to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Suite {
    /// Its name.
    pub name: String,
    /// Program and arguments, at least one; see [`Suite::command`].
    pub run: Vec<String>,
    /// The test framework.
    pub runner: Runner,
    /// Executables that count as suites; empty: the program, and the recognised ones that it starts.
    pub targets: Vec<TargetGlob>,
    /// Variables added to the environment, in the order of the file.
    pub env: Vec<(String, String)>,
    /// Directory to run in.
    pub cwd: Option<PathBuf>,
    /// Longest time of one test, if it differs from `measure.timeout`.
    pub timeout: Option<Duration>,
    /// Mapping files of R8 or ProGuard, and folders with such files.
    pub mapping: Vec<PathBuf>,
    /// Folders and APKs with symbols of native libraries.
    pub symbols: Vec<PathBuf>,
    /// Heap dump of the suite.
    pub heap: Option<SuiteHeap>,
    /// Position in the configuration.
    pub place: Place,
}

impl Suite {
    /// Does an argument contain the number of repetitions?
    #[must_use]
    pub fn repeats(&self) -> bool {
        self.run.iter().any(|argument| argument.contains(REPETITIONS))
    }

    /// Program and arguments that repeat the work `repetitions` times.
    #[must_use]
    pub fn command(&self, repetitions: u32) -> Vec<String> {
        self.run.iter().map(|argument| argument.replace(REPETITIONS, &repetitions.to_string())).collect()
    }

    /// Checks the suite. `None`: it has mistakes, or runs on a device.
    pub(crate) fn check(
        name: &At<String>,
        file: At<SuiteFile>,
        instrumented: &mut Vec<Instrumented>,
        reader: &mut Reader<'_>,
    ) -> Option<Self> {
        let At { value: file, span } = file;
        let SuiteFile {
            run,
            runner,
            targets,
            env,
            cwd,
            timeout,
            mapping,
            symbols,
            heap,
            package,
            instrumentation,
            devices,
            apks,
            arguments,
            agent,
            heap_dump,
            execution,
        } = file;
        let on_device =
            OnDevice { package, instrumentation, devices, apks, arguments, agent, heap_dump, execution };
        check_name(name, reader);
        let timeout = timeout.map(|given| check_timeout(&given, reader));
        let symbols = paths(symbols.map(|given| given.value).unwrap_or_default());
        let (mapping, mapping_span) = match mapping {
            Some(At { value: OneOrMore(given), span }) => (paths(given), Some(span)),
            None => (Vec::new(), None),
        };
        let heap = check_heap(heap, runner.as_ref(), reader);
        if let Some(At { value: RunnerFile::Instrumentation, .. }) = &runner {
            if run.is_some() || targets.is_some() || env.is_some() || cwd.is_some() {
                refuse_program(name, reader);
            }
            let files = (mapping, symbols);
            instrumented.extend(Instrumented::check(name, on_device, (timeout, heap), files, reader));
            return None;
        }
        Instrumented::refuse(on_device, reader);
        let env = check_env(env.unwrap_or_default(), reader);
        let run = check_run(name, &span, run, reader)?;
        let runner = check_runner(runner, &run, reader);
        if let Some(span) = mapping_span.filter(|_| matches!(runner, Runner::Gtest | Runner::Command)) {
            refuse_mapping(&span, reader);
        }
        Some(Self {
            name: name.value.clone(),
            run: run.into_iter().map(|argument| argument.value.0).collect(),
            runner,
            targets: targets.unwrap_or_default().into_iter().map(|target| target.value).collect(),
            env,
            cwd: cwd.map(|Words(path)| PathBuf::from(path)),
            mapping,
            symbols,
            timeout,
            heap,
            place: reader.place(&name.span),
        })
    }
}

fn refuse_program(name: &At<String>, reader: &mut Reader<'_>) {
    reader
        .error(&name.span, format!("the suite `{}` runs on a device", name.value))
        .label("`run`, `targets`, `env` and `cwd` are for programs of this machine")
        .hint(Some("build the APKs before, and name them in `apks`"));
}

fn refuse_mapping(span: &Span, reader: &mut Reader<'_>) {
    reader
        .error(span, "`mapping` is for suites of Java")
        .label("has no meaning here")
        .hint(Some("remove it, or use the runner `junit` or `instrumentation`"));
}

fn paths(given: Vec<At<Words>>) -> Vec<PathBuf> {
    given.into_iter().map(|path| PathBuf::from(path.value.0)).collect()
}

/// Names appear in test globs (`suite::Test`), on the command line and in file names.
fn check_name(name: &At<String>, reader: &mut Reader<'_>) {
    let allowed = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.value.is_empty() || !name.value.chars().all(allowed) || name.value.starts_with(['-', '.']) {
        reader
            .error(&name.span, format!("`{}` cannot be the name of a suite", name.value.escape_debug()))
            .label("not a name")
            .hint(Some("use letters, digits, `_`, `-` and `.`"));
    }
}

fn check_run(
    name: &At<String>,
    suite: &Span,
    run: Option<At<Vec<At<Argument>>>>,
    reader: &mut Reader<'_>,
) -> Option<Vec<At<Argument>>> {
    let Some(At { value: run, span }) = run else {
        if !reader.has_error_below(suite) {
            reader
                .error(&name.span, format!("the suite `{}` has no `run`", name.value))
                .label("what does it run?")
                .hint(Some("add `run: [build/engine_tests]`"));
        }
        return None;
    };
    match run.first() {
        None if reader.has_error_below(&span) => None,
        None => {
            reader
                .error(&span, "`run` is empty")
                .label("expected a program")
                .hint(Some("write `run: [build/engine_tests]`"));
            None
        }
        Some(program) if program.value.0.is_empty() => {
            reader.error(&program.span, "the program of this suite is empty").label("expected a path");
            None
        }
        Some(_) => Some(run),
    }
}

fn check_heap(
    heap: Option<At<HeapFile>>,
    runner: Option<&At<RunnerFile>>,
    reader: &mut Reader<'_>,
) -> Option<SuiteHeap> {
    let heap = heap?;
    let dumps =
        |runner: &At<RunnerFile>| matches!(runner.value, RunnerFile::Junit | RunnerFile::Instrumentation);
    if !runner.is_some_and(dumps) {
        reader
            .error(&heap.span, "`heap` is for suites of Java")
            .label("has no meaning here")
            .hint(Some("remove it, or add `runner: junit` or `runner: instrumentation`"));
    }
    SuiteHeap::check(heap, reader)
}

/// The runner of a suite on this machine.
fn check_runner(runner: Option<At<RunnerFile>>, run: &[At<Argument>], reader: &mut Reader<'_>) -> Runner {
    let repeating = run.iter().find(|argument| argument.value.0.contains(REPETITIONS));
    let is_command = runner.as_ref().is_none_or(|runner| runner.value == RunnerFile::Command);
    for argument in run.iter().filter(|_| is_command) {
        if let Some(mistyped) = mistyped_repetitions(&argument.value.0) {
            reader
                .error(&argument.span, format!("`{mistyped}` is not the number of repetitions"))
                .hint(Some("write `{n}`; if the program itself needs it, start the program by a script"));
        }
    }
    match (runner, repeating) {
        (None, None) => Runner::Auto,
        (None, Some(_)) => Runner::Command,
        (Some(At { value: RunnerFile::Gtest, .. }), None) => Runner::Gtest,
        (Some(At { value: RunnerFile::Junit, .. }), None) => Runner::Junit,
        (Some(At { value: value @ (RunnerFile::Gtest | RunnerFile::Junit), span }), Some(argument)) => {
            let (runner, what) = match value {
                RunnerFile::Junit => (Runner::Junit, "a JUnit suite"),
                _ => (Runner::Gtest, "a GoogleTest suite"),
            };
            reader
                .error(&argument.span, "`{n}` is for the runner `command`")
                .label(format!("{what} is repeated by memgate itself"))
                .context(&span, "this suite has another runner")
                .hint(Some("remove the argument"));
            runner
        }
        (Some(_), _) => Runner::Command,
    }
}

fn check_env(env: Named<Argument>, reader: &mut Reader<'_>) -> Vec<(String, String)> {
    let mut checked = Vec::new();
    for (name, Argument(value)) in env.0 {
        if name.value.is_empty() || name.value.contains(['=', '\0']) {
            reader
                .error(
                    &name.span,
                    format!("`{}` cannot be the name of a variable", name.value.escape_debug()),
                )
                .label("not a name");
        }
        checked.push((name.value, value));
    }
    checked
}

#[cfg(test)]
mod tests {
    use crate::Config;

    #[test]
    fn a_mistyped_number_of_repetitions_is_an_error_unless_braces_are_the_programs_own() {
        let parse = |run: &str| {
            let text = format!("version: 1\nsuites:\n  a: {{ run: [{run}] }}\n");
            Config::parse(&text, "memgate.yaml", &|_| None, None)
        };
        for mistyped in ["x, \"--count={N}\"", "x, \"{ n }\"", "sh, -c, \"x --count={N}\""] {
            assert!(parse(mistyped).is_err(), "{mistyped}");
        }
        for fine in ["sh, -c, \"ls | xargs -I{N} x {N}\"", "perl, -e, \"print $ENV{N}\"", "x, \"{name}\""] {
            assert!(parse(fine).is_ok(), "{fine}");
        }
    }
}
