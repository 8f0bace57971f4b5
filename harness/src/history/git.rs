//! What the repository says of the checked-out commit: its ancestors by first parents, and whether tracked files differ.
//!
//! `git` is asked, and told not to write: neither its index nor anything else of the clone changes. A repository it does
//! not answer for (none is installed, the owner is another) has no ancestors: history then orders runs by time.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use memgate_launch::{Ended, Environment, Exit, Launch, Stream, output};

/// The commit itself and 500 before it.
const COMMITS: &str = "--max-count=501";
/// Compares what files hold: one that was only touched is none that differs. It writes no index where locks are optional.
const CHANGES: [&str; 4] = ["status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all"];
/// Hashes of 64 digits, with line ends, and room to spare.
const LONGEST_ANSWER: usize = 1 << 16;
/// A repository that takes longer does without.
const LIMIT: Duration = Duration::from_secs(3);

/// What is known of a commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Repository {
    /// The commit that is checked out; empty: not known.
    pub head: String,
    /// Its ancestors, nearest first.
    pub ancestors: Vec<String>,
    /// Tracked files differ from it.
    pub dirty: bool,
}

/// Asks the repository of a project. Builds of CI change tracked files (locks, versions): there `changes` are not asked for, what is
/// tested is the commit all the same.
pub(super) fn look(root: &Path, changes: bool) -> Repository {
    if !root.join(".git").exists() {
        return Repository::default();
    }
    let answers = super::block_on(async {
        let ancestors = ask(root, &["rev-list", "--first-parent", COMMITS, "HEAD"]).await;
        let changes = match changes {
            true => ask(root, &CHANGES).await,
            false => None,
        };
        (ancestors, changes)
    });
    let Ok((ancestors, changes)) = answers else { return Repository::default() };
    let commits = ancestors.filter(|ended| ended.exit == Exit::Code(0) && !ended.cut);
    let text = commits.map_or_else(String::new, |ended| String::from_utf8_lossy(&ended.stdout).into_owned());
    let mut commits = text.lines().map(str::to_owned);
    Repository {
        head: commits.next().unwrap_or_default(),
        ancestors: commits.collect(),
        dirty: changes.is_some_and(|ended| ended.exit == Exit::Code(0) && !ended.stdout.is_empty()),
    }
}

/// `None`: no answer.
async fn ask(root: &Path, arguments: &[&str]) -> Option<Ended> {
    // A repository may name programs that `git` starts to find out what changed.
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
        let index = fs::read(root.join(".git/index")).unwrap();
        let found = look(root, true);
        assert_eq!(
            (found.ancestors.len(), found.dirty),
            (2, false),
            "the side branch is no ancestor by first parents"
        );
        assert_eq!(found.head.len(), 40);
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
