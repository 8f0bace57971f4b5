//! Real adb servers, private to a test: each has its own home and socket name, and ends with the test.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use super::StandIn;
use crate::{peer, skip_without};

/// An adb binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adb {
    /// `adb 29`.
    pub name: &'static str,
    /// Its path.
    pub program: PathBuf,
}

/// A private adb server; dropping it ends the server.
#[derive(Debug)]
pub struct AdbServer {
    adb: Adb,
    home: TempDir,
    socket: String,
    calls: AtomicU32,
}

/// Debian's adb.
const DEBIAN: &str = "/usr/lib/android-sdk/platform-tools/adb";

/// The adb binaries found here: Debian's 29 and Google's 36. Reports missing ones.
#[must_use]
pub fn adbs() -> Vec<Adb> {
    let debian = Path::new(DEBIAN);
    let old = debian.exists().then(|| Adb { name: "adb 29", program: debian.to_owned() });
    if old.is_none() {
        skip_without(&format!("{DEBIAN} (apt install adb)"));
    }
    let new = peer("adb-36/adb").map(|program| Adb { name: "adb 36", program });
    old.into_iter().chain(new).collect()
}

impl AdbServer {
    /// Starts a server.
    #[must_use]
    pub fn start(adb: &Adb) -> Self {
        let server = Self::prepare(adb);
        let started = server.adb(&["start-server"]);
        assert!(started.status.success(), "{} does not start: {started:?}", adb.name);
        server
    }

    /// Prepares a server without starting it.
    #[must_use]
    pub fn prepare(adb: &Adb) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let home = tempfile::Builder::new().prefix("memgate-adb-").tempdir().unwrap();
        let socket = format!("localabstract:memgate-e2e-adb-{}-{number}", std::process::id());
        Self { adb: adb.clone(), home, socket, calls: AtomicU32::new(0) }
    }

    /// Its adb binary.
    #[must_use]
    pub fn program(&self) -> &Adb {
        &self.adb
    }

    /// Its address, as in `ADB_SERVER_SOCKET`.
    #[must_use]
    pub fn socket(&self) -> String {
        self.socket.clone()
    }

    /// Environment that `memgate` or another adb needs to use this server.
    #[must_use]
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let folder = self.adb.program.parent().unwrap().to_owned();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(folder).chain(std::env::split_paths(&path))).unwrap();
        let home = self.home.path().as_os_str();
        let pair = |name: &str, value: OsString| (name.into(), value);
        // Newer versions look for devices elsewhere unless these turn it off.
        let off = ["ADB_MDNS", "ADB_EMU", "ADB_USB"].map(|name| pair(name, "0".into()));
        let ours = [
            pair("PATH", path),
            pair("HOME", home.into()),
            pair("TMPDIR", home.into()),
            pair("ADB_SERVER_SOCKET", self.socket.clone().into()),
            pair("ANDROID_SERIAL", "".into()),
        ];
        ours.into_iter().chain(off).collect()
    }

    /// Connects a device and waits until it answers.
    pub fn connect(&self, device: &StandIn) {
        let connected = self.adb(&["connect", &device.serial()]);
        let said = String::from_utf8_lossy(&connected.stdout);
        assert!(said.starts_with("connected to"), "{}: {connected:?}", self.adb.name);
        let ready = self.adb(&["-s", &device.serial(), "wait-for-device"]);
        assert!(ready.status.success(), "{ready:?}");
    }

    /// Runs the adb binary against this server.
    #[must_use]
    pub fn adb(&self, arguments: &[&str]) -> Output {
        // Output goes to files, because a server that this call starts keeps a pipe open.
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let [out, err] = ["out", "err"].map(|name| self.home.path().join(format!("{name}-{number}")));
        // Anything that takes longer hangs; it is killed, with status 124.
        let status = Command::new("timeout")
            .args(["--kill-after=10", "600"])
            .arg(&self.adb.program)
            .args(arguments)
            .envs(self.environment())
            .stdin(Stdio::null())
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap())
            .status()
            .unwrap();
        Output { status, stdout: std::fs::read(out).unwrap(), stderr: std::fs::read(err).unwrap() }
    }

    /// Its port forwards; memgate must leave none of its own.
    #[must_use]
    pub fn forwards(&self) -> String {
        String::from_utf8_lossy(&self.adb(&["forward", "--list"]).stdout).into_owned()
    }
}

impl Drop for AdbServer {
    fn drop(&mut self) {
        drop(self.adb(&["kill-server"]));
    }
}
