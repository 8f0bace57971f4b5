//! A folder in which a user types `memgate …`, and the result.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use memgate_model::{RunReport, SuiteReport, TestReport};

use crate::profile::profile_folder;
use crate::{memgate, waiting};

/// Environment variables of the caller that would change measurements or output.
const REMOVED: &str = "\
    ACTIONS_ID_TOKEN_REQUEST_TOKEN ACTIONS_ID_TOKEN_REQUEST_URL MEMGATE_ID_TOKEN LD_PRELOAD \
    LD_LIBRARY_PATH MEMGATE_AGENT_OPTIONS GTEST_FILTER CLICOLOR_FORCE NO_COLOR CI COLUMNS \
    GITHUB_HEAD_REF GITHUB_BASE_REF GITHUB_REF GITHUB_REF_NAME CI_MERGE_REQUEST_SOURCE_BRANCH_NAME \
    CI_COMMIT_REF_NAME CI_PROJECT_DIR WORKSPACE GITHUB_WORKSPACE GITHUB_ACTIONS GITHUB_SHA GITLAB_CI \
    CI_COMMIT_SHA JENKINS_URL GIT_COMMIT BUILDKITE CIRCLECI TF_BUILD BUILD_SOURCEVERSION \
    BUILD_SOURCEBRANCH SYSTEM_PULLREQUEST_SOURCEBRANCH SYSTEM_PULLREQUEST_TARGETBRANCH \
    BITBUCKET_BUILD_NUMBER BITBUCKET_COMMIT BITBUCKET_BRANCH TEAMCITY_VERSION BUILD_VCS_NUMBER \
    CI_PIPELINE_FORGE_URL CI_COMMIT_BRANCH";

/// Takes the variables away that the caller of the tests may have set.
fn without_callers(command: &mut Command) {
    for name in REMOVED.split_whitespace() {
        command.env_remove(name);
    }
}

/// A separate folder below the target folder; empty at first, kept afterwards for inspection.
#[derive(Debug)]
pub struct Project {
    folder: PathBuf,
}

impl Project {
    /// An empty project.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let folder = profile_folder().join("e2e-projects").join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder).unwrap();
        }
        fs::create_dir_all(&folder).unwrap();
        Self { folder }
    }

    /// A project in which the tests of this program have run.
    #[must_use]
    pub fn of_run(name: &str, program: &Path) -> (Self, Run) {
        let project = Self::new(name);
        let run = project.run(program);
        (project, run)
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The newest session.
    #[must_use]
    pub fn session(&self) -> PathBuf {
        self.folder.join(".memgate/latest")
    }

    /// Writes a file.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, contents).unwrap();
        path
    }

    /// Reads a file.
    #[must_use]
    pub fn read(&self, name: &str) -> String {
        let path = self.folder.join(name);
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("failed to read {}: {e}", path.display()))
    }

    /// A `memgate` command that runs in this folder.
    #[must_use]
    pub fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(memgate());
        command.args(arguments).current_dir(&self.folder).stdin(Stdio::null());
        without_callers(&mut command);
        command
    }

    /// Runs `memgate ARGUMENTS` to its end.
    pub fn memgate<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Run {
        self.finish(&mut self.command(arguments))
    }

    /// As [`Self::memgate`], in a shell that has set a limit (`ulimit -n 1024`) or ignores a signal.
    pub fn limited<S: AsRef<OsStr>>(&self, arguments: &[S], limit: &str) -> Run {
        let memgate = self.command(arguments);
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{limit} && exec \"$0\" \"$@\"")]).arg(memgate.get_program());
        shell.args(memgate.get_args()).current_dir(&self.folder).stdin(Stdio::null());
        without_callers(&mut shell);
        self.finish(&mut shell)
    }

    /// Runs `memgate run -- PROGRAM`.
    pub fn run(&self, program: &Path) -> Run {
        self.run_command(&[program])
    }

    /// Runs `memgate run -- COMMAND`.
    pub fn run_command<S: AsRef<OsStr>>(&self, command: &[S]) -> Run {
        let command = command.iter().map(AsRef::as_ref);
        self.memgate(&["run", "--"].map(OsStr::new).into_iter().chain(command).collect::<Vec<_>>())
    }

    /// Runs `memgate run --filter FILTER -- PROGRAM`.
    pub fn run_filtered(&self, filter: &str, program: &Path) -> Run {
        self.memgate(&[
            "run".as_ref(),
            "--filter".as_ref(),
            filter.as_ref(),
            "--".as_ref(),
            program.as_os_str(),
        ])
    }

    /// Runs a prepared command to its end.
    pub fn finish(&self, command: &mut Command) -> Run {
        let report = self.session().join("report.json");
        let before = fs::canonicalize(&report).ok();
        let output = waiting::output(command);
        // A report that already existed is not from this command.
        let written = fs::canonicalize(&report).ok().filter(|after| Some(after) != before.as_ref());
        Run::of(&output, written.as_deref())
    }

    /// The streams of the newest session, except the harness's own samples.
    #[must_use]
    pub fn streams(&self) -> Vec<PathBuf> {
        let folder = self.session().join("frames");
        let is_stream = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.ends_with(".mgf") && !name.ends_with(".os.mgf")
        };
        let mut streams: Vec<PathBuf> =
            fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).filter(is_stream).collect();
        streams.sort();
        streams
    }
}

/// Result of one `memgate …` command.
#[derive(Debug, Clone)]
pub struct Run {
    /// Exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Output of the tests, and of commands that print a result.
    pub stdout: String,
    /// Messages of memgate.
    pub stderr: String,
    /// The report of the session, if one was written.
    pub report: Option<RunReport>,
}

impl Run {
    fn of(output: &Output, report: Option<&Path>) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            report: report.map(|path| parse(&fs::read_to_string(path).unwrap())),
        }
    }

    /// The report that the command wrote, or printed as JSON.
    #[must_use]
    pub fn report(&self) -> RunReport {
        self.report.clone().unwrap_or_else(|| {
            assert!(self.stdout.starts_with('{'), "no report was written:\n{self}");
            parse(&self.stdout)
        })
    }

    /// The only suite.
    #[must_use]
    pub fn suite(&self) -> SuiteReport {
        let suites = self.report().suites;
        let [suite] =
            <[SuiteReport; 1]>::try_from(suites).unwrap_or_else(|_| panic!("not one suite:\n{self}"));
        suite
    }

    /// A test, by its id.
    #[must_use]
    pub fn test(&self, id: &str) -> TestReport {
        let tests = self.report().suites.into_iter().flat_map(|suite| suite.tests);
        tests.into_iter().find(|test| test.id == id).unwrap_or_else(|| panic!("no test {id}:\n{self}"))
    }

    /// Checks the exit code.
    #[track_caller]
    pub fn ends_with(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "exit code:\n{self}");
        self
    }

    /// Checks that memgate printed this text on stderr.
    #[track_caller]
    pub fn says(&self, text: &str) -> &Self {
        assert!(self.stderr.contains(text), "it does not say `{text}`:\n{self}");
        self
    }

    /// All messages about what could not be measured.
    #[must_use]
    pub fn problems(&self) -> String {
        let report = self.report();
        let errors = report.errors.iter().map(|e| format!("{}: {} ({})", e.r#where, e.what, e.hint));
        let suites = report.suites.iter().map(|suite| format!("{}: {}", suite.name, suite.reason));
        errors.chain(suites).collect::<Vec<_>>().join("\n")
    }
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit code {:?}\n--- stdout\n{}--- stderr\n{}", self.code, self.stdout, self.stderr)
    }
}

fn parse(text: &str) -> RunReport {
    let report: RunReport =
        serde_json::from_str(text).unwrap_or_else(|e| panic!("not a report: {e}\n{text}"));
    report.completed()
}
