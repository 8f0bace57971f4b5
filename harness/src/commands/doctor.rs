//! `memgate doctor`: checks what memgate needs here, and says how to get what is missing.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use memgate_adb::Server;
use memgate_model::format_number_of;
use rustix::fs::Access;

use super::demo;
use super::packages::{Package, install_hint};
use super::settings;
use crate::agent::embedded::EmbeddedError;
use crate::cli::RunArgs;
use crate::exit::{self, ExpectedError, chain};
use crate::history::upload;
use crate::output::Console;
use crate::plan::{self, Settings};
use crate::run::checks;
use crate::session::ROOT;

/// Time limit for a server's reply.
const SERVER_LIMIT: Duration = Duration::from_secs(5);

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    what: &'static str,
    state: State,
    detail: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Good,
    /// Missing, but only needed for some uses; with advice.
    Weak(String),
    /// Nothing works without it; with advice.
    Bad(String),
}

pub(super) fn doctor(console: &Console) -> Result<u8, ExpectedError> {
    let settings = settings::load(None, console);
    let findings: Vec<Finding> = [
        machine(),
        agent(),
        inspection(),
        spool_room(),
        configuration(settings.as_ref()),
        java_part(),
        java(),
        compiler(),
        google_test(),
        adb(),
    ]
    .into_iter()
    // Mistakes of the configuration are among the findings already.
    .chain(settings.as_ref().map_or_else(|_| Vec::new(), suites))
    .chain(settings.as_ref().ok().and_then(server))
    .collect();
    console.text(&rendered(&findings))?;
    let bad = findings.iter().any(|finding| matches!(finding.state, State::Bad(_)));
    Ok(if bad { exit::NOT_MEASURED } else { exit::PASS })
}

fn rendered(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { what, state, detail } in findings {
        let (mark, hint) = match state {
            State::Good => ("ok     ", None),
            State::Weak(hint) => ("missing", Some(hint)),
            State::Bad(hint) => ("BROKEN ", Some(hint)),
        };
        text.push_str(&format!("{mark}  {what}: {detail}\n"));
        if let Some(hint) = hint.filter(|hint| !hint.is_empty()) {
            text.push_str(&format!("         {hint}\n"));
        }
    }
    text
}

fn finding(what: &'static str, state: State, detail: impl Into<String>) -> Finding {
    Finding { what, state, detail: detail.into() }
}

fn machine() -> Finding {
    let machine = crate::session::this_machine();
    let detail = format!("{} on {}, {}", machine.system, machine.kernel, machine.architecture);
    finding("machine", State::Good, detail)
}

fn agent() -> Finding {
    match crate::agent::embedded::agent() {
        Ok(path) => finding("agent", State::Good, path.display().to_string()),
        Err(why) => finding(
            "agent",
            State::Bad("set MEMGATE_AGENT to the library, or XDG_CACHE_HOME to a writable folder".into()),
            chain(&why),
        ),
    }
}

/// Checks /proc: the harness reads it for the processes it starts.
fn inspection() -> Finding {
    let can_read = crate::proc_fs::environ(std::process::id()).is_some();
    match (can_read, fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default().trim()) {
        (false, _) => finding("/proc", State::Bad("mount /proc: without it nothing can be measured".into()), "cannot be read"),
        (true, "3") => finding(
            "/proc",
            State::Weak("descriptors, threads and environment of tests may be hidden: kernel.yama.ptrace_scope below 3".into()),
            "ptrace_scope is 3",
        ),
        (true, _) => finding("/proc", State::Good, "descriptors, threads and memory of tests can be read"),
    }
}

fn spool_room() -> Finding {
    let here = Path::new(".");
    let sessions = Some(Path::new(ROOT)).filter(|folder| folder.exists()).unwrap_or(here);
    if let Err(why) = rustix::fs::access(sessions, Access::WRITE_OK | Access::EXEC_OK) {
        let hint = "name another folder by --output-dir, or make this one writable".to_owned();
        return finding(
            "disk",
            State::Bad(hint),
            format!("no session can be written to {}: {why}", sessions.display()),
        );
    }
    match rustix::fs::statvfs(here) {
        Ok(stat) => {
            let free = stat.f_bavail.saturating_mul(stat.f_frsize);
            let detail = format!("{} free for sessions here", memgate_config::format_size(free));
            let state = if free < 64 << 20 {
                State::Bad("free some space, or name another folder by --output-dir".into())
            } else {
                State::Good
            };
            finding("disk", state, detail)
        }
        Err(why) => finding("disk", State::Weak(String::new()), format!("cannot be looked at: {why}")),
    }
}

fn configuration(settings: Result<&Settings, &ExpectedError>) -> Finding {
    match settings {
        Ok(settings) => match &settings.file {
            Some(file) => {
                let suites = settings.config.suites.len() + settings.config.instrumented.len();
                let suites = format_number_of(suites, "suite");
                let missing = settings::missing_secrets(&settings.config).join("; ");
                let state = if missing.is_empty() { State::Good } else { State::Weak(missing) };
                finding("configuration", state, format!("{}, {suites}", file.display()))
            }
            None => {
                let state = settings::not_read(settings).map_or(State::Good, State::Weak);
                finding("configuration", state, "none: the defaults hold (`memgate init` writes one)")
            }
        },
        Err(why) => finding("configuration", State::Bad(why.hint().unwrap_or_default()), why.to_string()),
    }
}

/// Checks what the suites of memgate.yaml need, each of them.
fn suites(settings: &Settings) -> Vec<Finding> {
    if settings.config.suites.is_empty() && settings.config.instrumented.is_empty() {
        return Vec::new();
    }
    let planned = settings::world().and_then(|world| {
        let plan = plan::plan(settings, &RunArgs::default(), &world)?;
        Ok(checks::faults(&plan, &world.directory))
    });
    let told =
        |why: ExpectedError| finding("suites", State::Weak(why.hint().unwrap_or_default()), why.to_string());
    match planned {
        Ok(faults) if faults.is_empty() => {
            vec![finding("suites", State::Good, "their programs and files are there")]
        }
        Ok(faults) => faults.into_iter().map(told).collect(),
        Err(why) => vec![told(why)],
    }
}

/// Checks the server to which runs are uploaded, if one is configured.
fn server(settings: &Settings) -> Option<Finding> {
    let to = settings.config.history.upload.as_ref()?;
    let what = "server of the history";
    let project = settings.project(&std::env::current_dir().unwrap_or_default());
    Some(match upload::right(to, &project, SERVER_LIMIT) {
        Ok(upload::Right { branches, expires }) => {
            let may = match branches.as_deref() {
                None => "takes runs of this machine without a token".to_owned(),
                Some([]) => "the token adds reviews only".to_owned(),
                Some(branches) => format!("the token writes {}", branches.join(", ")),
            };
            let until = expires.map_or_else(String::new, |expires| format!(", until {expires}"));
            finding(what, State::Good, format!("{}, {may}{until}", to.server))
        }
        Err(why) => finding(what, State::Weak(why.hint().unwrap_or_default()), why.to_string()),
    })
}

/// The oldest supported Java version.
const OLDEST_JAVA: u32 = 17;

fn java_part() -> Finding {
    let what = "Java part of the agent (for JUnit suites)";
    match crate::agent::embedded::jars() {
        Ok(folder) => finding(what, State::Good, folder.display().to_string()),
        Err(why) => {
            let hint = match why {
                EmbeddedError::NoJava => {
                    "build memgate where a JDK is installed (its javac in PATH, or JAVA_HOME)"
                }
                _ => "set XDG_CACHE_HOME to a writable folder",
            };
            finding(what, State::Weak(hint.to_owned()), chain(&why))
        }
    }
}

/// Checks the Java that Maven and Gradle use, unless a build configures another.
fn java() -> Finding {
    let what = "Java (for JUnit suites)";
    let hint = || State::Weak(format!("install HotSpot {OLDEST_JAVA} or later, and name it by JAVA_HOME"));
    let java = match found_java(std::env::var_os("JAVA_HOME"), std::env::var_os("PATH")) {
        Ok(java) => java,
        Err(why) => return finding(what, hint(), why),
    };
    match version_of(&java) {
        Some(version) if version < OLDEST_JAVA => {
            finding(what, hint(), format!("{} is Java {version}", java.display()))
        }
        Some(version) => finding(what, State::Good, format!("{}, Java {version}", java.display())),
        None => finding(what, State::Good, java.display().to_string()),
    }
}

/// If `JAVA_HOME` is set, Maven and Gradle use only that one.
fn found_java(home: Option<OsString>, path: Option<OsString>) -> Result<PathBuf, String> {
    let home = home.filter(|home| !home.is_empty());
    let bins = match &home {
        Some(home) => vec![Path::new(home).join("bin")],
        None => std::env::split_paths(&path.unwrap_or_default()).collect(),
    };
    let java =
        bins.iter().filter_map(|bin| fs::canonicalize(bin.join("java")).ok()).find(|java| java.is_file());
    java.ok_or_else(|| match home {
        Some(home) => format!("JAVA_HOME is {}, which has no bin/java", Path::new(&home).display()),
        None => "none found in JAVA_HOME and PATH".to_owned(),
    })
}

/// The version in the `release` file of this Java.
fn version_of(java: &Path) -> Option<u32> {
    let release = fs::read_to_string(java.parent()?.parent()?.join("release")).ok()?;
    feature_of(&release)
}

fn feature_of(release: &str) -> Option<u32> {
    let version = release.lines().find_map(|line| line.strip_prefix("JAVA_VERSION="))?.trim_matches('"');
    version.trim_start_matches("1.").split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn compiler() -> Finding {
    match demo::compiler(std::env::var_os("CXX").as_deref(), std::env::var_os("PATH").as_deref()) {
        Some(path) => finding("C++ compiler (for `memgate demo`)", State::Good, path.display().to_string()),
        None => finding(
            "C++ compiler (for `memgate demo`)",
            State::Weak(install_hint(Package::Compiler)),
            "none found",
        ),
    }
}

fn google_test() -> Finding {
    let what = "GoogleTest (for `memgate demo`)";
    let found = ["/usr/include", "/usr/local/include"]
        .into_iter()
        .map(|folder| Path::new(folder).join("gtest/gtest.h"))
        .find(|header| header.is_file());
    match found {
        Some(header) => finding(what, State::Good, header.display().to_string()),
        None => finding(what, State::Weak(install_hint(Package::GoogleTest)), "gtest/gtest.h not found"),
    }
}

/// `memgate devices` reports whether a server runs, and which devices it knows.
fn adb() -> Finding {
    let what = "adb (for tests on Android devices)";
    match Server::from_environment() {
        Ok(server) => match server.program() {
            Some(program) => finding(what, State::Good, program.display().to_string()),
            None => finding(
                what,
                State::Weak(install_hint(Package::Adb)),
                "none in PATH, ANDROID_HOME and ANDROID_SDK_ROOT",
            ),
        },
        Err(why) => finding(what, State::Weak(why.hint()), format!("cannot {}", chain(&why))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_file_tells_the_version() {
        for (release, version) in [
            ("IMPLEMENTOR=\"Debian\"\nJAVA_VERSION=\"17.0.15\"\n", Some(17)),
            ("JAVA_VERSION=\"25\"", Some(25)),
            ("JAVA_VERSION=\"1.8.0_402\"", Some(8)),
            ("", None),
        ] {
            assert_eq!(feature_of(release), version);
        }
    }

    /// With a wrong `JAVA_HOME`, Maven and Gradle end at once, whatever Java is in PATH.
    #[test]
    fn a_wrong_java_home_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let [bin, other] = ["jdk/bin", "other"].map(|name| folder.path().join(name));
        fs::create_dir_all(&bin).unwrap();
        fs::write(bin.join("java"), "").unwrap();
        let found = |home: Option<&Path>| found_java(home.map(Into::into), Some(bin.clone().into()));
        assert!(found(None).unwrap().ends_with("jdk/bin/java"));
        assert_eq!(found(Some(Path::new(""))), found(None));
        assert_eq!(found(Some(&folder.path().join("jdk"))), found(None));
        assert_eq!(
            found(Some(&other)),
            Err(format!("JAVA_HOME is {}, which has no bin/java", other.display()))
        );
    }

    #[test]
    fn what_is_missing_comes_with_what_to_do() {
        let text = rendered(&[
            finding("agent", State::Good, "/c/agent.so"),
            finding("compiler", State::Weak("install it: apt install g++".into()), "none found"),
            finding("disk", State::Bad(String::new()), "full"),
        ]);
        let want = "ok       agent: /c/agent.so\nmissing  compiler: none found\n         install it: apt install g++\nBROKEN   disk: full\n";
        assert_eq!(text, want);
    }
}
