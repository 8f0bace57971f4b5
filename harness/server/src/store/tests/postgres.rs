//! A PostgreSQL server for tests, if its programs are installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::Store;

/// A PostgreSQL server in its own folder, stopped with the test.
pub(crate) struct Postgres {
    folder: tempfile::TempDir,
    bin: PathBuf,
    as_user: Vec<&'static str>,
}

impl Postgres {
    pub(crate) fn start() -> Option<Self> {
        let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let bin = versions.map(|version| version.path().join("bin")).find(|bin| bin.join("initdb").exists());
        let Some(bin) = bin else {
            skipped("PostgreSQL is not installed (Debian: postgresql)");
            return None;
        };
        // PostgreSQL refuses to run as root.
        let as_user = if Path::new("/root").metadata().is_ok_and(|_| is_root()) {
            vec!["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        } else {
            Vec::new()
        };
        let postgres = Self { folder: tempfile::tempdir().unwrap(), bin, as_user };
        if is_root() {
            assert!(
                Command::new("chown").arg("postgres").arg(postgres.folder.path()).status().unwrap().success()
            );
        }
        let data = postgres.folder.path().join("data").display().to_string();
        postgres.call("initdb", &["-D", &data, "-A", "trust", "-U", "memgate", "--no-sync"]);
        let options = format!(
            "-c listen_addresses= -c unix_socket_directories={} -c fsync=off",
            postgres.folder.path().display()
        );
        let log = postgres.folder.path().join("log").display().to_string();
        postgres.call("pg_ctl", &["-D", &data, "-l", &log, "-w", "-o", &options, "start"]);
        Some(postgres)
    }

    fn call(&self, program: &str, arguments: &[&str]) {
        let program = self.bin.join(program).display().to_string();
        let line: Vec<&str> =
            self.as_user.iter().copied().chain([program.as_str()]).chain(arguments.iter().copied()).collect();
        let output = Command::new(line[0])
            .args(&line[1..])
            .current_dir("/")
            .stdout(std::process::Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{line:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// A database whose statements are logged.
    pub(super) async fn logged_database(&self, name: &str) -> Store {
        let store = self.database(name).await;
        store.close().await;
        let host = self.folder.path().display().to_string();
        let order = format!("ALTER DATABASE {name} SET log_statement = 'all'");
        self.call("psql", &["-h", &host, "-U", "memgate", "-d", name, "-c", &order]);
        Store::open(&format!("postgres://memgate@localhost/{name}?host={host}")).await.unwrap()
    }

    /// Statements executed so far, without those around transactions.
    pub(super) fn statements(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap();
        let told = log.lines().filter_map(|line| line.split_once("LOG:  execute ")?.1.split_once(": "));
        let around = ["BEGIN", "COMMIT", "ROLLBACK", "SET", "SHOW"];
        let told = told.map(|(_, statement)| statement.to_owned());
        told.filter(|statement| !around.iter().any(|word| statement.starts_with(word))).collect()
    }

    pub(crate) async fn database(&self, name: &str) -> Store {
        let host = self.folder.path().display().to_string();
        self.call("createdb", &["-h", &host, "-U", "memgate", name]);
        Store::open(&format!("postgres://memgate@localhost/{name}?host={host}")).await.unwrap()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let data = self.folder.path().join("data").display().to_string();
        self.call("pg_ctl", &["-D", &data, "-m", "immediate", "stop"]);
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Reports a skipped test. In CI, where everything has to be installed, a missing program fails the test.
fn skipped(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{why}");
    println!("skipped: {why}");
    if let Some(file) = std::env::var_os("MEMGATE_SKIPPED") {
        let line = format!("memgate-server: {why}\n");
        let opened = std::fs::File::options().append(true).open(file);
        opened.and_then(|mut file| std::io::Write::write_all(&mut file, line.as_bytes())).unwrap();
    }
}
