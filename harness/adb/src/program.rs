//! The program `adb`: it starts the server and installs. Everything else goes directly to the server.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use memgate_launch::{Ended, Launch, Stream, output};

use super::AdbError;
use super::address::Address;

/// Maximum number of bytes kept of its output.
const SAID_BYTES: usize = 16 << 10;
const VERSION_LIMIT: Duration = Duration::from_secs(20);
const START_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub(super) struct Program(PathBuf);

/// The first `adb` of PATH, else that of the SDK.
pub(super) fn find(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = variable("PATH").unwrap_or_default();
    let sdk = ["ANDROID_HOME", "ANDROID_SDK_ROOT"].iter().filter_map(|name| variable(name));
    let tools = sdk.filter(|home| !home.is_empty()).map(|home| Path::new(&home).join("platform-tools"));
    let folders = std::env::split_paths(&path).chain(tools);
    folders
        .filter(|folder| !folder.as_os_str().is_empty())
        .map(|folder| folder.join("adb"))
        .find(|adb| adb.is_file())
}

impl Program {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The version of its protocol, which must be the server's too: 41 of `1.0.41`.
    pub(super) async fn version(&self) -> Result<u32, AdbError> {
        let ended = self.run([OsStr::new("version")], VERSION_LIMIT).await?;
        let text = String::from_utf8_lossy(&ended.stdout).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix("Android Debug Bridge version "));
        line.and_then(|version| version.trim().rsplit('.').next()?.parse().ok()).ok_or_else(|| {
            AdbError::Garbage {
                during: format!("ask {} for its version", self.0.display()),
                what: "it does not tell one".to_owned(),
            }
        })
    }

    /// Starts a server. Call it only if nothing listens: it would kill a running server of another version.
    pub(super) async fn start_server(&self, address: &Address) -> Result<(), AdbError> {
        let arguments = ["-L".into(), address.for_program().into(), OsString::from("start-server")];
        let ended = self.run(arguments, START_LIMIT).await?;
        if ended.exit.is_success() {
            return Ok(());
        }
        Err(AdbError::StartServer {
            address: address.to_string(),
            program: self.0.clone(),
            said: said(&ended),
        })
    }

    pub(super) async fn run(
        &self,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
        limit: Duration,
    ) -> Result<Ended, AdbError> {
        let mut launch = Launch::new(&self.0, arguments);
        launch.stdout = Stream::Capture { limit: SAID_BYTES };
        launch.stderr = launch.stdout;
        output(launch, limit).await.map_err(|source| AdbError::Program { program: self.0.clone(), source })
    }
}

/// The end of its output, on one line.
pub(super) fn said(ended: &Ended) -> String {
    let both = [ended.stdout.as_slice(), &ended.stderr].map(String::from_utf8_lossy);
    let lines = both.iter().flat_map(|text| text.lines()).map(str::trim).filter(|line| !line.is_empty());
    let text = lines.collect::<Vec<_>>().join("; ");
    if text.is_empty() { ended.exit.to_string() } else { text }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_program_is_that_of_path_else_that_of_the_sdk() {
        let folder = tempfile::tempdir().unwrap();
        let (bin, sdk) = (folder.path().join("bin"), folder.path().join("sdk"));
        fs::create_dir_all(sdk.join("platform-tools")).unwrap();
        fs::create_dir_all(bin.join("adb")).unwrap();
        let found = |name: &str| match name {
            "PATH" => Some(std::env::join_paths([Path::new(""), bin.as_path()]).unwrap()),
            "ANDROID_HOME" => Some(OsString::new()),
            "ANDROID_SDK_ROOT" => Some(sdk.clone().into()),
            _ => None,
        };
        assert_eq!(find(found), None, "a folder is no program");
        fs::write(sdk.join("platform-tools/adb"), "").unwrap();
        assert_eq!(find(found), Some(sdk.join("platform-tools/adb")));
        fs::remove_dir(bin.join("adb")).unwrap();
        fs::write(bin.join("adb"), "").unwrap();
        assert_eq!(find(found), Some(bin.join("adb")));
    }
}
