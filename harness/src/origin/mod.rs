//! The origin of a run: its commit, CI job and machine.
//!
//! Data flow: the variables of the CI system ([`ci`]); what they do not say, from git ([`repository`]) → `Origin`.

mod ci;
mod repository;

use std::path::{Path, PathBuf};

use memgate_model::{Commit, Frame, Machine, Origin, RunReport};

/// The current origin. `root`: the checked-out project.
#[must_use]
pub(crate) fn here(root: Option<&Path>) -> Origin {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (commit, ci) = ci::told(&variable);
    let told = root.map(repository::checked_out).unwrap_or_default();
    let commit = Commit { sha: or(commit.sha, told.sha), branch: or(commit.branch, told.branch), ..commit };
    Origin { commit: (commit != Commit::default()).then_some(commit), ci, ..Origin::default() }
}

/// The origin of a run that begins: like [`here`], with machine, versions and command line.
#[must_use]
pub(crate) fn of_run(root: Option<&Path>, machine: Machine, command: &[String]) -> Origin {
    let runs = command.get(1).is_some_and(|command| command == "run");
    let is_public = runs && !command.iter().any(|argument| may_hold_a_secret(argument));
    Origin {
        machine: Some(machine),
        versions: [("memgate".to_owned(), env!("CARGO_PKG_VERSION").to_owned())].into(),
        command: if is_public { command.to_vec() } else { Vec::new() },
        ..here(root)
    }
}

/// Whether an argument may contain a secret. Reports go to many people, so such a command line is left out of them.
/// Leaving out a harmless command line costs little: readers only cannot copy it.
fn may_hold_a_secret(argument: &str) -> bool {
    const WORDS: [&str; 14] = [
        "pass",
        "pwd",
        "secret",
        "token",
        "apikey",
        "api-key",
        "api_key",
        "access-key",
        "access_key",
        "credential",
        "auth",
        "bearer",
        "private",
        "signature",
    ];
    let lower = argument.to_ascii_lowercase();
    let has_user = |rest: &str| rest.split('/').next().is_some_and(|host| host.contains('@'));
    // A test file may have such a name (one word, without a value), and so may tests.
    let is_file = !lower.starts_with('-') && !lower.contains(['=', ':', ' ', '\t', '\n']);
    let is_file = is_file || lower.starts_with("--gtest_filter=");
    ["-u", "-p", "--user"].contains(&lower.as_str())
        || (!is_file && WORDS.iter().any(|word| lower.contains(word)))
        || lower.split("://").skip(1).any(has_user)
}

/// The folder with the repository above the working directory, otherwise the working directory.
#[must_use]
pub(crate) fn project_root() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let root = here.ancestors().find(|folder| folder.join(".git").exists()).map(Path::to_owned);
    Some(root.unwrap_or(here))
}

/// A text without the paths of the project and of the working directory, which differ between machines.
#[must_use]
pub(crate) fn without_folders(text: &str, project: &Path, directory: &Path) -> String {
    // One folder may contain the other, so the longer one comes first.
    let mut folders = [project.to_string_lossy(), directory.to_string_lossy()];
    folders.sort_by_key(|folder| std::cmp::Reverse(folder.len()));
    folders
        .iter()
        .filter(|folder| folder.len() > 1)
        .fold(text.to_owned(), |text, folder| text.replace(&**folder, "."))
}

/// Makes paths of the project's files relative to its folder. Ids of leaks contain no file names.
pub(crate) fn relative_files(report: &mut RunReport, root: &str) {
    let tests = report.suites.iter_mut().flat_map(|suite| &mut suite.tests);
    let leaks = tests.flat_map(|test| test.leaks.iter_mut().chain(&mut test.one_time));
    let followed = report.followed.iter_mut().flat_map(|followed| &mut followed.sites);
    let frames = leaks.flat_map(|leak| &mut leak.frames).chain(followed.flat_map(|site| &mut site.frames));
    for Frame { file, .. } in frames {
        let inside = file.as_deref().filter(|file| file.starts_with('/')).and_then(|file| inside(file, root));
        if inside.is_some() {
            *file = inside;
        }
    }
}

/// `src/a.cc` for `/home/ci/project/build/../src/a.cc`.
fn inside(file: &str, root: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in file.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    let root: Vec<&str> = root.split('/').filter(|part| !part.is_empty()).collect();
    let inside = parts.strip_prefix(root.as_slice()).filter(|inside| !inside.is_empty() && !root.is_empty());
    inside.map(|inside| inside.join("/"))
}

fn or(text: String, other: String) -> String {
    if text.is_empty() { other } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_that_may_hold_a_secret_is_not_told() {
        let told = |line: &str| {
            let command: Vec<String> = line.split(' ').map(str::to_owned).collect();
            of_run(None, Machine::default(), &command).command == command
        };
        assert!(told("memgate run -- ctest --test-dir build") && !told("memgate demo"));
        assert!(told("memgate run -- build/token_tests --gtest_filter=Secret.*"));
        for line in [
            "memgate run -- mvn -Ddb.password=x test",
            "memgate run -- ./t --api-key abc",
            "memgate run -- ./t https://ci:hunter2@example.com/x",
            "memgate run -- ./t https://example.com,https://ci:hunter2@example.com/x",
            "memgate run -- mvn -DargLine=-Ddb.password=x test",
            "memgate run -- ./t --args=--token=abc",
            "memgate run -- ./t -H Authorization:Bearer",
            "memgate run -- ./t --pwd=x",
            "memgate run -- ./t -u ci:hunter2",
        ] {
            assert!(!told(line), "{line}");
        }
    }

    #[test]
    fn files_of_the_project_are_named_from_its_folder_on() {
        for (file, root, told) in [
            ("/home/ci/tiles/src/a.cc", "/home/ci/tiles", Some("src/a.cc")),
            ("/home/ci/tiles/build/../src/./a.cc", "/home/ci/tiles/", Some("src/a.cc")),
            ("/home/ci/tiles2/a.cc", "/home/ci/tiles", None),
            ("/home/ci/tiles/../a.cc", "/home/ci/tiles", None),
            ("/usr/include/c++/12/vector", "/", None),
        ] {
            assert_eq!(inside(file, root).as_deref(), told, "{file}");
        }
    }
}
