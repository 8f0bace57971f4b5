//! The origin of a run, from the variables of the CI system, and from the repository if these are not set.
//!
//! Starts no program and writes nothing: `git status` would write the index of the clone, so the few files that name a
//! commit are read directly.

use std::fs;
use std::path::{Path, PathBuf};

use memgate_model::{Ci, Commit, Frame, Machine, Origin, RunReport};

/// Maximum size of the file of packed references.
const MOST_OF_REFS: u64 = 64 << 20;

/// The current origin. `root`: the checked-out project.
#[must_use]
pub fn here(root: Option<&Path>) -> Origin {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (commit, ci) = of_ci(&variable);
    let told = root.map(of_repository).unwrap_or_default();
    let commit = Commit { sha: or(commit.sha, told.sha), branch: or(commit.branch, told.branch), ..commit };
    Origin { commit: (commit != Commit::default()).then_some(commit), ci, ..Origin::default() }
}

/// The origin of a run that begins: the same, with its machine, versions and command line.
#[must_use]
pub fn of_run(root: Option<&Path>, machine: Machine, command: &[String]) -> Origin {
    let runs = command.get(1).is_some_and(|command| command == "run");
    let is_public = runs && !command.iter().any(|argument| may_hold_a_secret(argument));
    Origin {
        machine: Some(machine),
        versions: [("memgate".to_owned(), env!("CARGO_PKG_VERSION").to_owned())].into(),
        command: if is_public { command.to_vec() } else { Vec::new() },
        ..here(root)
    }
}

/// Whether an argument may contain a secret. Reports go to many people, so such a command line is left out of them. It
/// is better to leave out one too many: only a command to copy is lost.
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
pub fn project_root() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let root = here.ancestors().find(|folder| folder.join(".git").exists()).map(Path::to_owned);
    Some(root.unwrap_or(here))
}

/// A text without the paths of the project and of the working directory, which differ between machines.
#[must_use]
pub fn without_folders(text: &str, project: &Path, directory: &Path) -> String {
    // One may contain the other: the longer first.
    let mut folders = [project.to_string_lossy(), directory.to_string_lossy()];
    folders.sort_by_key(|folder| std::cmp::Reverse(folder.len()));
    folders
        .iter()
        .filter(|folder| folder.len() > 1)
        .fold(text.to_owned(), |text, folder| text.replace(&**folder, "."))
}

/// Makes paths of the project's files relative to its folder. Ids of leaks contain no file names.
pub fn relative_files(report: &mut RunReport, root: &str) {
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

/// Commit and job from the variables of GitHub, GitLab, Jenkins, Buildkite and CircleCI.
fn of_ci(variable: &dyn Fn(&str) -> Option<String>) -> (Commit, Option<Ci>) {
    let first = |names: &[&str]| names.iter().find_map(|name| variable(name)).unwrap_or_default();
    let plain = |branch: String| branch.strip_prefix("origin/").unwrap_or(&branch).to_owned();
    let commit = Commit {
        sha: first(&["GITHUB_SHA", "CI_COMMIT_SHA", "GIT_COMMIT", "BUILDKITE_COMMIT", "CIRCLE_SHA1"]),
        branch: plain(first(&[
            "GITHUB_HEAD_REF",
            "GITHUB_REF_NAME",
            "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME",
            "CI_COMMIT_REF_NAME",
            "CHANGE_BRANCH",
            "BRANCH_NAME",
            "GIT_BRANCH",
            "BUILDKITE_BRANCH",
            "CIRCLE_BRANCH",
        ])),
        target: plain(first(&[
            "GITHUB_BASE_REF",
            "CI_MERGE_REQUEST_TARGET_BRANCH_NAME",
            "CHANGE_TARGET",
            "BUILDKITE_PULL_REQUEST_BASE_BRANCH",
        ])),
        base_sha: first(&["CI_MERGE_REQUEST_DIFF_BASE_SHA"]),
        is_merge: is_merge(variable),
    };
    let github = || {
        let (server, repository) = (variable("GITHUB_SERVER_URL")?, variable("GITHUB_REPOSITORY")?);
        Some(format!("{server}/{repository}/actions/runs/{}", variable("GITHUB_RUN_ID")?))
    };
    // A variable that only this system sets, then its variables for pipeline, number, job, attempt, page.
    const SYSTEMS: [(&str, &str, [&str; 5]); 5] = [
        (
            "GITHUB_ACTIONS",
            "github",
            ["GITHUB_RUN_ID", "GITHUB_RUN_NUMBER", "GITHUB_JOB", "GITHUB_RUN_ATTEMPT", ""],
        ),
        ("GITLAB_CI", "gitlab", ["CI_PIPELINE_ID", "CI_PIPELINE_IID", "CI_JOB_NAME", "", "CI_JOB_URL"]),
        ("JENKINS_URL", "jenkins", ["BUILD_TAG", "BUILD_NUMBER", "JOB_NAME", "", "BUILD_URL"]),
        (
            "BUILDKITE",
            "buildkite",
            [
                "BUILDKITE_BUILD_ID",
                "BUILDKITE_BUILD_NUMBER",
                "BUILDKITE_LABEL",
                "BUILDKITE_RETRY_COUNT",
                "BUILDKITE_BUILD_URL",
            ],
        ),
        (
            "CIRCLECI",
            "circleci",
            ["CIRCLE_WORKFLOW_ID", "CIRCLE_BUILD_NUM", "CIRCLE_JOB", "", "CIRCLE_BUILD_URL"],
        ),
    ];
    let system = SYSTEMS.iter().find(|(mark, ..)| variable(mark).is_some());
    let ci = system.map(|(_, provider, names)| {
        let [pipeline, number, job, attempt, url] = names
            .map(|name| Some(name).filter(|name| !name.is_empty()).and_then(variable).unwrap_or_default());
        let url = without_user(&github().unwrap_or(url));
        Ci { provider: (*provider).to_owned(), pipeline, number, job, attempt, url }
    });
    (commit, ci)
}

/// Whether CI created the commit, with the tip of the target as its first parent.
fn is_merge(variable: &dyn Fn(&str) -> Option<String>) -> bool {
    let github =
        variable("GITHUB_REF").is_some_and(|name| name.starts_with("refs/pull/") && name.ends_with("/merge"));
    let gitlab = variable("CI_MERGE_REQUEST_EVENT_TYPE")
        .is_some_and(|kind| matches!(kind.as_str(), "merged_result" | "merge_train"));
    github || gitlab
}

/// A URL without user name and password.
fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let host = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let begin = rest[..host].rfind('@').map_or(0, |at| at + 1);
    format!("{scheme}://{}", &rest[begin..])
}

/// Hash and branch of the checked-out commit, also in a worktree.
fn of_repository(root: &Path) -> Commit {
    let git = root.join(".git");
    let linked = || {
        let link = fs::read_to_string(&git).ok()?;
        Some(root.join(link.trim().strip_prefix("gitdir: ")?))
    };
    let Some(folder) = (if git.is_file() { linked() } else { Some(git.clone()) }) else {
        return Commit::default();
    };
    let Ok(head) = fs::read_to_string(folder.join("HEAD")) else { return Commit::default() };
    let head = head.trim();
    let Some(reference) = head.strip_prefix("ref: ") else {
        return Commit { sha: hash(head).unwrap_or_default(), ..Commit::default() };
    };
    // A worktree's references are in the repository to which it belongs.
    let common = fs::read_to_string(folder.join("commondir")).ok().map(|path| folder.join(path.trim()));
    let folders = [Some(folder), common];
    let sha = folders.iter().flatten().find_map(|folder| resolved(folder, reference)).unwrap_or_default();
    Commit {
        sha,
        branch: reference.strip_prefix("refs/heads/").unwrap_or_default().to_owned(),
        ..Commit::default()
    }
}

fn resolved(folder: &Path, reference: &str) -> Option<String> {
    let loose = Path::new(reference);
    // A file of the project contains this name: it must not lead out of the folder.
    if loose.components().any(|part| !matches!(part, std::path::Component::Normal(_))) {
        return None;
    }
    if let Ok(text) = fs::read_to_string(folder.join(loose)) {
        return hash(text.trim());
    }
    let packed = folder.join("packed-refs");
    if fs::metadata(&packed).ok()?.len() > MOST_OF_REFS {
        return None;
    }
    let text = fs::read_to_string(packed).ok()?;
    text.lines().find_map(|line| {
        let (sha, name) = line.split_once(' ')?;
        (name == reference).then(|| hash(sha)).flatten()
    })
}

fn hash(text: &str) -> Option<String> {
    let is_hash = matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_hexdigit());
    is_hash.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA: &str = "3f0c1b2a9d8e7f60514233241506978877665544";

    #[test]
    fn the_branch_and_the_job_are_those_of_the_ci_system() {
        let of = |variables: &'static [(&'static str, &'static str)]| {
            of_ci(&move |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
        };
        let (commit, ci) = of(&[
            ("GITHUB_ACTIONS", "true"),
            ("GITHUB_REF_NAME", "12/merge"),
            ("GITHUB_HEAD_REF", "fix"),
            ("GITHUB_BASE_REF", "main"),
            ("GITHUB_SERVER_URL", "https://github.com"),
            ("GITHUB_REPOSITORY", "a/b"),
            ("GITHUB_RUN_ID", "7"),
            ("GITHUB_RUN_ATTEMPT", "2"),
        ]);
        assert_eq!((commit.branch.as_str(), commit.target.as_str()), ("fix", "main"));
        let ci = ci.unwrap();
        assert_eq!(
            (ci.provider.as_str(), ci.pipeline.as_str(), ci.attempt.as_str(), ci.url.as_str()),
            ("github", "7", "2", "https://github.com/a/b/actions/runs/7")
        );
        let (commit, ci) = of(&[
            ("GITLAB_CI", "true"),
            ("CI_COMMIT_REF_NAME", "main"),
            ("CI_COMMIT_SHA", SHA),
            ("CI_JOB_URL", "https://gitlab.example.com/job/9"),
        ]);
        assert_eq!((commit.sha.as_str(), commit.branch.as_str()), (SHA, "main"));
        assert_eq!(ci.unwrap().url, "https://gitlab.example.com/job/9");
        assert_eq!(of(&[("GIT_BRANCH", "origin/main")]).0.branch, "main");
        assert_eq!(of(&[]), (Commit::default(), None));
    }

    #[test]
    fn commit_and_branch_are_read_from_the_repository_and_from_a_worktree() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert_eq!(of_repository(root), Commit::default());
        fs::create_dir_all(root.join(".git/worktrees/w")).unwrap();
        fs::create_dir_all(root.join(".git/refs/heads/feature")).unwrap();
        fs::write(root.join(".git/HEAD"), "ref: refs/heads/feature/x\n").unwrap();
        assert_eq!(of_repository(root).branch, "feature/x", "before its first commit");
        fs::write(root.join(".git/refs/heads/feature/x"), format!("{SHA}\n")).unwrap();
        assert_eq!(of_repository(root).sha, SHA);
        fs::create_dir(root.join("w")).unwrap();
        fs::write(root.join("w/.git"), "gitdir: ../.git/worktrees/w\n").unwrap();
        fs::write(root.join(".git/worktrees/w/HEAD"), "ref: refs/heads/y\n").unwrap();
        fs::write(root.join(".git/worktrees/w/commondir"), "../..\n").unwrap();
        let packed =
            format!("# pack-refs with: peeled\n{} refs/heads/yy\n{SHA} refs/heads/y\n", "0".repeat(40));
        fs::write(root.join(".git/packed-refs"), packed).unwrap();
        let told = of_repository(&root.join("w"));
        assert_eq!((told.sha.as_str(), told.branch.as_str()), (SHA, "y"));
        fs::write(root.join(".git/HEAD"), format!("{SHA}\n")).unwrap();
        let told = of_repository(root);
        assert_eq!((told.sha.as_str(), told.branch.as_str()), (SHA, ""), "no branch is checked out");
        fs::write(root.join(".git/HEAD"), "ref: ../../etc/passwd\n").unwrap();
        assert_eq!(of_repository(root), Commit::default(), "a reference is no way out");
    }

    #[test]
    fn the_address_of_a_job_has_no_user_in_it() {
        for (url, told) in [
            ("https://ci:tok@ci.example.com:8443/job/7?x=a@b", "https://ci.example.com:8443/job/7?x=a@b"),
            ("https://ci.example.com/job/7", "https://ci.example.com/job/7"),
            ("job/7", "job/7"),
        ] {
            assert_eq!(without_user(url), told);
        }
    }

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
