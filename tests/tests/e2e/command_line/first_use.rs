//! First use on a machine that others use too: with any umask, and if another user created the folders first.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use memgate_e2e::samples::{compile, successful};
use memgate_e2e::{memgate, skip};

const SUITE: &str = "#include <gtest/gtest.h>\nTEST(Small, Passes) { EXPECT_EQ(1 + 1, 2); }\n";
const USER: u32 = 4242;

/// Home of a user who is not root, with memgate and a suite in it.
struct Home {
    folder: tempfile::TempDir,
    is_root: bool,
}

impl Home {
    fn new() -> Self {
        let is_root = successful(Command::new("id").arg("-u")).trim() == "0";
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let flags = ["small.cc", "-std=c++17", "-lgtest", "-lgtest_main", "-lpthread"];
        let suite = compile("small_first", "c++", &flags, &[("small.cc", SUITE)]);
        for (from, to) in [(memgate(), "memgate"), (&*suite, "suite")] {
            // Copied by another process: a child forked from this one could keep the file open for writing,
            // and then it could not be executed.
            successful(Command::new("cp").arg(from).arg(folder.path().join(to)));
        }
        let home = Self { folder, is_root };
        home.give(home.folder.path(), USER);
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn give(&self, path: &Path, user: u32) {
        if self.is_root {
            chown(path, Some(user), Some(user)).unwrap();
        }
    }

    /// `memgate run -- ./suite`, as the user of this home.
    fn run(&self, umask: &str) -> Output {
        self.shell(&format!("umask {umask}; exec ./memgate run -- ./suite"))
    }

    fn shell(&self, typed: &str) -> Output {
        let mut command = Command::new(if self.is_root { "setpriv" } else { "env" });
        if self.is_root {
            command.args(["--reuid", "4242", "--regid", "4242", "--clear-groups"]);
        }
        command.args(["sh", "-c", typed]).current_dir(self.folder.path());
        command.env("HOME", self.folder.path()).env_remove("XDG_CACHE_HOME").env_remove("MEMGATE_AGENT");
        command.output().unwrap()
    }
}

fn told(run: &Output) -> String {
    format!("{:?}\n{}", run.status.code(), String::from_utf8_lossy(&run.stderr))
}

#[test]
fn every_umask_will_do() {
    for umask in ["000", "002", "077"] {
        let home = Home::new();
        let run = home.run(umask);
        assert_eq!(run.status.code(), Some(0), "umask {umask}: {}", told(&run));
        let cache = fs::metadata(home.path(".cache/memgate")).unwrap();
        assert_eq!(cache.permissions().mode() & 0o777, 0o700, "umask {umask}");
    }
}

#[test]
fn doctor_says_that_no_session_can_be_written() {
    let run = Home::new().shell("mkdir mine && chmod 555 mine && cd mine && ../memgate doctor");
    assert_eq!(run.status.code(), Some(2), "{}", told(&run));
    let stdout = String::from_utf8_lossy(&run.stdout);
    assert!(stdout.contains("BROKEN   disk: no session can be written to .: Permission denied"), "{stdout}");
}

#[test]
fn a_test_cannot_read_the_secrets_of_memgate() {
    let home = Home::new();
    if !home.is_root {
        return skip("only root can become another user");
    }
    let look = "#!/bin/sh\ncat /proc/$PPID/environ > seen 2> refused\nenv >> seen\nexec ./suite\n";
    fs::write(home.path("look"), look).unwrap();
    fs::set_permissions(home.path("look"), Permissions::from_mode(0o755)).unwrap();
    let settings = "version: 1\nreports: { webhooks: [{ chat: slack, url: \"${CHAT}\", when: changed }] }\n";
    for (settings, is_read) in [("version: 1\n", true), (settings, false)] {
        fs::write(home.path("memgate.yaml"), settings).unwrap();
        let run = home.shell("CHAT=https://secret.example.com/x exec ./memgate run -- ./look");
        assert_eq!(run.status.code(), Some(0), "{}", told(&run));
        let seen = String::from_utf8_lossy(&fs::read(home.path("seen")).unwrap()).into_owned();
        assert_eq!(seen.contains("secret.example.com"), is_read, "{settings}: {seen}");
        assert!(seen.contains("HOME="), "{seen}");
        assert_eq!(!fs::read(home.path("refused")).unwrap().is_empty(), !is_read);
    }
}

/// Whoever can write to the cache could make every tested process load their library.
#[test]
fn a_cache_that_is_somebody_else_s_is_refused() {
    let home = Home::new();
    if !home.is_root {
        return skip("only root can become another user");
    }
    let theirs = home.path("theirs");
    fs::create_dir(&theirs).unwrap();
    let refused = |why: &str| {
        let run = home.run("022");
        assert_eq!(run.status.code(), Some(2), "{why}: {}", told(&run));
        assert!(told(&run).contains("belongs to somebody else"), "{why}: {}", told(&run));
        assert!(told(&run).contains("XDG_CACHE_HOME"), "{why}: {}", told(&run));
    };
    // A link of another user to a folder of this user.
    home.give(&theirs, USER);
    let cache = home.path(".cache");
    std::os::unix::fs::symlink(&theirs, &cache).unwrap();
    std::os::unix::fs::lchown(&cache, Some(USER + 1), None).unwrap();
    refused("a link");
    // A folder that another user created for this user.
    fs::remove_file(&cache).unwrap();
    fs::rename(&theirs, &cache).unwrap();
    home.give(&cache, USER + 1);
    fs::set_permissions(&cache, Permissions::from_mode(0o777)).unwrap();
    refused("a folder");
    home.give(&cache, USER);
    refused("a folder of ours that all may write to");
    fs::set_permissions(&cache, Permissions::from_mode(0o775)).unwrap();
    let run = home.run("002");
    assert_eq!(run.status.code(), Some(0), "the group is the user's alone: {}", told(&run));
}
