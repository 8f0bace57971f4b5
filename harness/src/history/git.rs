//! The repository's data about the checked-out commit: its ancestors by first parents, whether tracked files differ,
//! and the commit with which a review was merged.
//!
//! Runs `git` so that it writes nothing: neither its index nor any other file of the clone changes. If `git` gives no
//! answer (it is not installed, or the repository has another owner), there are no ancestors, and history orders runs
//! by time.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use memgate_launch::{Ended, Environment, Exit, Launch, Stream, output};
use memgate_model::Commit;

/// The commit itself and 500 before it.
const COMMITS: &str = "--max-count=501";
/// Compares contents: a file whose time alone changed does not differ. With optional locks off, `git` does not write
/// the index.
const CHANGES: [&str; 4] = ["status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all"];
/// The commit itself, and as many before it as a base may be away.
const COMMITS_OF_BASE: &str = "--max-count=51";
/// A few branches that contain the commit, the newest first.
const BRANCHES: [&str; 6] = [
    "for-each-ref",
    "--contains=HEAD",
    "--sort=-committerdate",
    "--count=8",
    "--format=%(refname:lstrip=2)",
    "refs/heads",
];
/// How far below its tip a branch is searched for the checked-out commit.
const COMMITS_OF_BRANCH: &str = "--max-count=1000";
/// Hashes of 64 digits with line ends, and some reserve.
const LONGEST_ANSWER: usize = 1 << 16;
/// If a repository takes longer, its data are missing.
const LIMIT: Duration = Duration::from_secs(3);

/// The known data of a commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Repository {
    /// The checked-out commit; empty: unknown.
    pub head: String,
    /// Its ancestors, nearest first.
    pub ancestors: Vec<String>,
    /// If no branch is checked out: the clone's branches that have the commit by first parents, the newest first.
    pub branches: Vec<String>,
    /// Whether tracked files differ from it.
    pub dirty: bool,
    /// For a review: the commit of the target that was merged in, and its ancestors; empty: the clone does not contain
    /// it.
    pub merged: Vec<String>,
}

/// Asks the repository of a project. `is_own`: somebody's own clone. CI builds change tracked files (locks, versions),
/// but test the commit anyway, and CI names the branch.
pub(super) fn look(root: &Path, is_own: bool, commit: &Commit) -> Repository {
    if !root.join(".git").exists() {
        return Repository::default();
    }
    let answers = super::block_on(async {
        let ancestors = ask(root, &["rev-list", "--first-parent", COMMITS, "HEAD"]).await;
        let changes = match is_own {
            true => ask(root, &CHANGES).await,
            false => None,
        };
        let branches = match is_own && commit.branch.is_empty() {
            true => branches(root).await,
            false => Vec::new(),
        };
        (ancestors, changes, branches, merged(root, commit).await)
    });
    let Ok((ancestors, changes, branches, merged)) = answers else { return Repository::default() };
    let mut commits = lines(ancestors).into_iter();
    Repository {
        head: commits.next().unwrap_or_default(),
        ancestors: commits.collect(),
        branches,
        dirty: changes.is_some_and(|ended| ended.exit == Exit::Code(0) && !ended.stdout.is_empty()),
        merged,
    }
}

/// The branches on which the checked-out commit lies. On a branch that merged it from another one, it lies not.
async fn branches(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let Some(head) = lines(ask(root, &["rev-parse", "HEAD"]).await).into_iter().next() else { return found };
    for branch in lines(ask(root, &BRANCHES).await) {
        let reference = format!("refs/heads/{branch}");
        let commits =
            lines(ask(root, &["rev-list", "--first-parent", COMMITS_OF_BRANCH, &reference, "--"]).await);
        if commits.contains(&head) {
            found.push(branch);
        }
    }
    found
}

/// The target's commit with which a review was really merged: the first parent of CI's merge commit, otherwise the
/// commit where the branch left its target.
async fn merged(root: &Path, commit: &Commit) -> Vec<String> {
    if commit.target.is_empty() {
        return Vec::new();
    }
    let head = lines(ask(root, &["rev-parse", "HEAD"]).await);
    let is_merge = commit.is_merge && head.first() == Some(&commit.sha);
    let mut found = None;
    if is_merge {
        // Read from the commit object: other commands hide its parents in a clone of depth 1.
        let object = lines(ask(root, &["cat-file", "commit", "HEAD"]).await);
        let head = object.iter().take_while(|line| !line.is_empty());
        let mut parents = head.filter_map(|line| line.strip_prefix("parent "));
        found = parents.next().map(str::to_owned).filter(|_| parents.next().is_some());
    }
    for place in ["refs/remotes/origin/", "refs/heads/"].iter().filter(|_| !is_merge) {
        let target = format!("{place}{}", commit.target);
        found = found.or(lines(ask(root, &["merge-base", "HEAD", &target]).await).into_iter().next());
    }
    let Some(found) =
        found.or_else(|| Some(commit.base_sha.clone()).filter(|sha| !sha.is_empty() && !is_merge))
    else {
        return Vec::new();
    };
    let known = lines(ask(root, &["rev-list", "--first-parent", COMMITS_OF_BASE, &found, "--"]).await);
    if known.is_empty() { vec![found] } else { known }
}

/// The answer's lines; empty if there is no answer.
fn lines(ended: Option<Ended>) -> Vec<String> {
    let answer = ended.filter(|ended| ended.exit == Exit::Code(0) && !ended.cut);
    let text =
        |ended: Ended| String::from_utf8_lossy(&ended.stdout).lines().map(str::to_owned).collect::<Vec<_>>();
    answer.map(text).unwrap_or_default()
}

/// `None`: no answer.
async fn ask(root: &Path, arguments: &[&str]) -> Option<Ended> {
    // A repository may configure programs that `git` starts to detect changes.
    let mut words: Vec<OsString> = ["-c", "core.fsmonitor=false", "-C"].map(OsString::from).to_vec();
    words.push(root.into());
    words.extend(arguments.iter().map(OsString::from));
    let quiet = [("GIT_OPTIONAL_LOCKS", "0"), ("GIT_TERMINAL_PROMPT", "0"), ("LC_ALL", "C")];
    let set = quiet.map(|(name, value)| (name.into(), value.into())).to_vec();
    let launch = Launch {
        stdout: Stream::Capture { limit: LONGEST_ANSWER },
        stderr: Stream::Capture { limit: 0 },
        environment: Environment::Inherit { set, remove: Vec::new() },
        ..Launch::new("git", words)
    };
    output(launch, LIMIT).await.ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    fn git(root: &Path, line: &str) {
        let identity =
            ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"];
        let status =
            Command::new("git").current_dir(root).args(identity).args(line.split(' ')).status().unwrap();
        assert!(status.success(), "{line}");
    }

    fn look(root: &Path, is_own: bool) -> Repository {
        super::look(root, is_own, &Commit::default())
    }

    /// The commit of a name.
    fn named(root: &Path, name: &str) -> String {
        let told = Command::new("git").current_dir(root).args(["rev-parse", name]).output().unwrap();
        String::from_utf8(told.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn a_review_was_merged_with_the_first_parent_of_ci_s_commit_else_with_where_it_left() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        git(root, "init -q");
        for name in ["one", "two"] {
            git(root, &format!("commit -q --allow-empty -m {name}"));
        }
        git(root, "checkout -qb fix HEAD~1");
        git(root, "commit -q --allow-empty -m fix");
        let [one, two] = ["main~1", "main"].map(|name| named(root, name));
        let review = |is_merge| Commit {
            sha: named(root, "HEAD"),
            target: "main".into(),
            is_merge,
            ..Commit::default()
        };
        let merged = |commit: &Commit| super::look(root, false, commit).merged;
        assert_eq!(merged(&review(false)), [one.as_str()], "the branch itself");
        git(root, "checkout -q --detach main");
        git(root, "merge -q --no-ff -m merged fix");
        let both = [two.clone(), one.clone()];
        assert_eq!(merged(&review(true)), both, "today's tip, as CI merged it");
        // main gets a new commit: the merged commit stays the same.
        git(root, "checkout -q main");
        git(root, "commit -q --allow-empty -m three");
        git(root, "checkout -q -");
        assert_eq!((merged(&review(true)), merged(&review(false))), (both.to_vec(), both.to_vec()));
        // If somebody merges main into their branch, the branch is the first parent.
        git(root, "checkout -q fix");
        git(root, "merge -q --no-ff -m update main~1");
        assert_eq!(merged(&review(false)), both);
        assert_eq!(merged(&Commit { target: String::new(), ..review(true) }), Vec::<String>::new());
        let lost = Commit { target: "nowhere".into(), ..review(false) };
        assert_eq!(merged(&lost), Vec::<String>::new(), "the clone does not have it");
        assert_eq!(merged(&Commit { base_sha: two.clone(), ..lost }), both, "CI tells");
        // The clone of depth 1 that CI checks out.
        git(root, "checkout -q --detach main~1");
        git(root, "merge -q --no-ff -m merged fix");
        git(root, "branch ci");
        let shallow = root.join("shallow");
        let from = format!("file://{}", root.display());
        git(root, &format!("clone -q --depth 1 --branch ci {from} {}", shallow.display()));
        let merged = super::look(&shallow, false, &review(true)).merged;
        assert_eq!(merged, [two], "though its history ends before");
    }

    #[test]
    fn ancestors_are_first_parents_and_the_index_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert_eq!(look(root, true), Repository::default(), "no repository");
        git(root, "init -q");
        assert_eq!(look(root, true), Repository::default(), "no commit");
        fs::write(root.join("a"), "1").unwrap();
        git(root, "add a");
        git(root, "commit -qm one");
        git(root, "checkout -qb side");
        git(root, "commit -q --allow-empty -m side");
        git(root, "checkout -q main");
        git(root, "commit -q --allow-empty -m two");
        git(root, "merge -q --no-ff -m merged side");
        let found = look(root, true);
        assert_eq!(
            (found.ancestors.len(), found.dirty),
            (2, false),
            "the side branch is no ancestor by first parents"
        );
        assert_eq!(found.head.len(), 40);
        git(root, "checkout -q --detach main~1");
        assert_eq!(
            (look(root, true).branches, look(root, false).branches),
            (vec!["main".to_owned()], vec![])
        );
        git(root, "checkout -q --detach side");
        assert_eq!(look(root, true).branches, ["side"], "main has it by a merge only");
        git(root, "checkout -q main");
        let index = fs::read(root.join(".git/index")).unwrap();
        let touched = fs::File::options().append(true).open(root.join("a")).unwrap();
        touched.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        assert!(!look(root, true).dirty, "its contents are the same");
        assert_eq!(fs::read(root.join(".git/index")).unwrap(), index);
        fs::write(root.join("a"), "2").unwrap();
        fs::write(root.join("untracked"), "").unwrap();
        assert!(look(root, true).dirty && !look(root, false).dirty);
        assert_eq!(fs::read(root.join(".git/index")).unwrap(), index);
    }
}
