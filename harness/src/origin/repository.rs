//! The commit that is checked out.
//!
//! Starts no program and writes nothing: `git status` would write the index of the clone, so the few files that name a
//! commit are read directly.

use std::fs;
use std::path::Path;

use memgate_model::Commit;

/// Maximum size of the file of packed references.
const MOST_OF_REFS: u64 = 64 << 20;

/// Hash and branch of the checked-out commit, also in a worktree.
pub(super) fn checked_out(root: &Path) -> Commit {
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
    // The name comes from a file of the project: it must not lead out of the folder.
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
    fn commit_and_branch_are_read_from_the_repository_and_from_a_worktree() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert_eq!(checked_out(root), Commit::default());
        fs::create_dir_all(root.join(".git/worktrees/w")).unwrap();
        fs::create_dir_all(root.join(".git/refs/heads/feature")).unwrap();
        fs::write(root.join(".git/HEAD"), "ref: refs/heads/feature/x\n").unwrap();
        assert_eq!(checked_out(root).branch, "feature/x", "before its first commit");
        fs::write(root.join(".git/refs/heads/feature/x"), format!("{SHA}\n")).unwrap();
        assert_eq!(checked_out(root).sha, SHA);
        fs::create_dir(root.join("w")).unwrap();
        fs::write(root.join("w/.git"), "gitdir: ../.git/worktrees/w\n").unwrap();
        fs::write(root.join(".git/worktrees/w/HEAD"), "ref: refs/heads/y\n").unwrap();
        fs::write(root.join(".git/worktrees/w/commondir"), "../..\n").unwrap();
        let packed =
            format!("# pack-refs with: peeled\n{} refs/heads/yy\n{SHA} refs/heads/y\n", "0".repeat(40));
        fs::write(root.join(".git/packed-refs"), packed).unwrap();
        let told = checked_out(&root.join("w"));
        assert_eq!((told.sha.as_str(), told.branch.as_str()), (SHA, "y"));
        fs::write(root.join(".git/HEAD"), format!("{SHA}\n")).unwrap();
        let told = checked_out(root);
        assert_eq!((told.sha.as_str(), told.branch.as_str()), (SHA, ""), "no branch is checked out");
        fs::write(root.join(".git/HEAD"), "ref: ../../etc/passwd\n").unwrap();
        assert_eq!(checked_out(root), Commit::default(), "a reference is no way out");
    }
}
