//! memgate's listener as a dex file, for apps whose test APK was built without it.
//!
//! Data flow: `MEMGATE_D8`, or the newest build tools of the Android SDK (`ANDROID_HOME`,
//! `ANDROID_SDK_ROOT`) → their `d8.jar`, run by Java over the jar for test APKs → `classes.dex` in
//! a folder of the session.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use memgate_launch::{self as local, Launch, LaunchError, Stream};

use crate::agent::embedded::{ANDROID_JAR, EmbeddedError, android_jar};

/// Variable with the path of the jar of D8 or R8.
const D8_VARIABLE: &str = "MEMGATE_D8";
/// Variables with the path of the Android SDK.
const SDKS: [&str; 2] = ["ANDROID_HOME", "ANDROID_SDK_ROOT"];
const D8: &str = "com.android.tools.r8.D8";
/// D8's name for the first dex file.
const CLASSES: &str = "classes.dex";
/// First bytes of every dex file.
const MAGIC: &[u8] = b"dex\n";
/// Maximum kept bytes of D8's output.
const MOST_SAID: usize = 4 << 10;
/// It normally takes two seconds.
const LIMIT: Duration = Duration::from_secs(120);

/// Why there is no dex file although D8 is available.
#[derive(Debug, thiserror::Error)]
pub enum DexError {
    /// The listener's jar is missing.
    #[error(transparent)]
    Jar(#[from] EmbeddedError),
    /// A file could not be read, or a folder not created.
    #[error("use {}", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Java did not run.
    #[error("run D8")]
    Launch(#[from] LaunchError),
    /// D8 failed.
    #[error("make a dex file by {}: {why}", d8.display())]
    D8 {
        /// D8's jar.
        d8: PathBuf,
        /// Its output.
        why: String,
    },
}

/// Creates the dex file with the listener in `folder`; `None`: D8 is not available.
///
/// # Errors
/// When D8 is available but fails.
pub async fn listener(folder: &Path) -> Result<Option<PathBuf>, DexError> {
    let Some(d8) = d8(|name| env::var_os(name).filter(|value| !value.is_empty())) else { return Ok(None) };
    let file = |path: &Path| {
        let path = path.to_owned();
        |source| DexError::File { path, source }
    };
    fs::create_dir_all(folder).map_err(file(folder))?;
    let jar = folder.join(ANDROID_JAR);
    fs::write(&jar, android_jar()?).map_err(file(&jar))?;
    let java = env::var_os("JAVA_HOME").filter(|home| !home.is_empty());
    let java = java.map_or_else(|| "java".into(), |home| Path::new(&home).join("bin/java"));
    let words = [
        Path::new("-cp"),
        &d8,
        Path::new(D8),
        Path::new("--release"),
        Path::new("--min-api"),
        Path::new("26"),
    ];
    let mut launch = Launch::new(java, words.into_iter().chain([Path::new("--output"), folder, &jar]));
    launch.stdout = Stream::Null;
    launch.stderr = Stream::Capture { limit: MOST_SAID };
    let ended = local::output(launch, LIMIT).await?;
    let dex = folder.join(CLASSES);
    if ended.exit.is_success() && fs::read(&dex).is_ok_and(|bytes| bytes.starts_with(MAGIC)) {
        return Ok(Some(dex));
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let why = format!("it ended with {}: {}", ended.exit, said.trim());
    Err(DexError::D8 { d8, why })
}

/// D8's jar: the configured one, otherwise that of the newest build tools.
fn d8(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(named) = variable(D8_VARIABLE) {
        return Some(named.into());
    }
    let sdk = SDKS.iter().find_map(|name| variable(name))?;
    let tools = fs::read_dir(Path::new(&sdk).join("build-tools")).ok()?;
    // A release is newer than its release candidates, such as `34.0.0-rc3`.
    let version = |folder: &PathBuf| {
        let name = folder.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let (numbers, candidate) = name.split_once('-').unwrap_or((name, ""));
        let numbers: Vec<u32> = numbers.split('.').map(|number| number.parse().unwrap_or(0)).collect();
        (numbers, candidate.is_empty())
    };
    let jar = |folder: &PathBuf| folder.join("lib/d8.jar");
    let all = tools.filter_map(Result::ok).map(|entry| entry.path()).filter(|folder| jar(folder).is_file());
    all.max_by_key(version).map(|folder| jar(&folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_build_tools_are_taken_unless_a_jar_is_named() {
        let sdk = tempfile::tempdir().unwrap();
        for version in ["9.0.0", "34.0.0", "34.0.0-rc3", "35.0.0"] {
            let lib = sdk.path().join("build-tools").join(version).join("lib");
            fs::create_dir_all(&lib).unwrap();
            // The newest one is only an empty folder.
            if version != "35.0.0" {
                fs::write(lib.join("d8.jar"), "").unwrap();
            }
        }
        let of_sdk = |name: &str| (name == "ANDROID_SDK_ROOT").then(|| sdk.path().as_os_str().to_owned());
        assert_eq!(d8(of_sdk).unwrap(), sdk.path().join("build-tools/34.0.0/lib/d8.jar"));
        let named = |name: &str| (name == D8_VARIABLE).then(|| "/r8.jar".into()).or_else(|| of_sdk(name));
        assert_eq!(d8(named).unwrap(), Path::new("/r8.jar"));
        assert_eq!(d8(|_| None), None);
    }
}
