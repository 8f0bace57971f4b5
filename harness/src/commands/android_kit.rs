//! `memgate android-kit`: writes the files that the build of a test APK needs from us.

use std::fs;
use std::path::Path;

use crate::embedded::{ANDROID_JAR, android_jar};
use crate::exit::{self, ExpectedError};
use crate::output::Console;

pub(super) fn android_kit(folder: &Path, console: &Console) -> Result<u8, ExpectedError> {
    let jar = android_jar().map_err(|why| ExpectedError::Missing {
        what: format!("failed to {why}"),
        hint: "install a JDK (its javac in PATH, or JAVA_HOME) and build memgate again".to_owned(),
    })?;
    fs::create_dir_all(folder).map_err(ExpectedError::file("create", folder))?;
    let path = folder.join(ANDROID_JAR);
    fs::write(&path, jar).map_err(ExpectedError::file("write", &path))?;
    console.line(&format!("wrote {}", path.display()));
    console.hint(&format!(
        "androidTestImplementation(files(\"…/{ANDROID_JAR}\")); docs/android.md says the rest"
    ));
    Ok(exit::PASS)
}
