//! `session.json`: what ran, with which versions, on which machine. No environment and no secret.

use memgate_history::Manifest;
use memgate_model::Machine;
use serde::{Deserialize, Serialize};

/// Version of `session.json`.
const SCHEMA_VERSION: u32 = 1;

/// Description of a run: its command, time and place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// Version of this file.
    pub schema_version: u32,
    /// Version of memgate.
    pub memgate_version: String,
    /// When it began, RFC 3339.
    pub started: String,
    /// memgate's own command line.
    pub command: Vec<String>,
    /// The folder in which memgate was called.
    pub working_directory: String,
    /// Name of the project, empty where none was given.
    pub project: String,
    /// The machine on which it ran.
    pub machine: Machine,
    /// Commit, environment and lines, for the history; `None`: `history: off`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<Manifest>,
    /// Data that the program keeps to judge the session again.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub run: serde_json::Value,
}

impl SessionInfo {
    /// The info of a run that begins now, here.
    #[must_use]
    pub fn now(command: Vec<String>, memgate_version: &str) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            memgate_version: memgate_version.to_owned(),
            started: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            command,
            working_directory: std::env::current_dir().unwrap_or_default().to_string_lossy().into_owned(),
            project: String::new(),
            machine: this_machine(),
            history: None,
            run: serde_json::Value::Null,
        }
    }
}

/// The machine this program runs on.
#[must_use]
pub fn this_machine() -> Machine {
    let uname = rustix::system::uname();
    let text = |name: &std::ffi::CStr| name.to_string_lossy().into_owned();
    Machine {
        host: text(uname.nodename()),
        architecture: text(uname.machine()),
        kernel: format!("{} {}", text(uname.sysname()), text(uname.release())),
        system: std::fs::read_to_string("/etc/os-release").map(|t| pretty_name(&t)).unwrap_or_default(),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
    }
}

/// `PRETTY_NAME` of an os-release file.
fn pretty_name(os_release: &str) -> String {
    let value = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or_default();
    value.trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_system_is_read_with_and_without_quotes() {
        assert_eq!(pretty_name("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n"), "Debian GNU/Linux 12");
        assert_eq!(pretty_name("PRETTY_NAME=Alpine\n"), "Alpine");
        assert_eq!(pretty_name("ID=x\n"), "");
    }

    #[test]
    fn no_variable_of_the_environment_is_kept() {
        let text = serde_json::to_string(&SessionInfo::now(vec!["memgate".into()], "1.0.0")).unwrap();
        let info: serde_json::Value = serde_json::from_str(&text).unwrap();
        let keys: Vec<_> = info.as_object().unwrap().keys().map(String::as_str).collect();
        let mut want = [
            "schema_version",
            "memgate_version",
            "started",
            "command",
            "working_directory",
            "project",
            "machine",
        ];
        want.sort_unstable();
        let mut keys = keys;
        keys.sort_unstable();
        assert_eq!(keys, want);
    }
}
