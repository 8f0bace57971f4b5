//! `memgate native-kit`, `android-kit` and `shadow-kit`: write the files that a project's own build needs from us.

use std::fs;
use std::path::Path;

use crate::agent::embedded::{ANDROID_JAR, android_jar};
use crate::exit::{self, ExpectedError};
use crate::output::Console;

/// Files of a folder in `device-agent`: their names and contents.
macro_rules! files {
    ($folder:literal, $($name:literal),*) => {
        [$(($name, include_bytes!(concat!("../../../device-agent/", $folder, "/", $name)).as_slice())),*]
    };
}

/// The C API, and the listener for GoogleTest binaries in which the agent cannot find GoogleTest.
pub(super) fn native(folder: &Path, console: &Console) -> Result<u8, ExpectedError> {
    write(folder, &files!("include", "memgate.h", "memgate_gtest.h"), console)?;
    console.hint("add the folder to the include path; the comments at the top of each file show its use");
    Ok(exit::PASS)
}

/// The jar with the listener for the test APK.
pub(super) fn android(folder: &Path, console: &Console) -> Result<u8, ExpectedError> {
    let jar = android_jar().map_err(|why| ExpectedError::Missing {
        what: format!("failed to {why}"),
        hint: "install a JDK (its javac in PATH, or JAVA_HOME) and build memgate again".to_owned(),
    })?;
    write(folder, &[(ANDROID_JAR, jar)], console)?;
    console.hint(&format!(
        "androidTestImplementation(files(\"…/{ANDROID_JAR}\")); `memgate docs android` has the rest"
    ));
    Ok(exit::PASS)
}

/// The sources of the shadow call stack.
pub(super) fn shadow(folder: &Path, console: &Console) -> Result<u8, ExpectedError> {
    write(
        folder,
        &files!("shadow", "memgate_shadow.h", "memgate_shadow.c", "CMakeLists.txt", "Android.mk"),
        console,
    )?;
    console.hint(
        "CMake: add_subdirectory(…), target_link_libraries(… PRIVATE memgate_shadow); \
         `memgate docs shadow-stack` has the flags",
    );
    Ok(exit::PASS)
}

fn write(folder: &Path, files: &[(&str, &[u8])], console: &Console) -> Result<(), ExpectedError> {
    fs::create_dir_all(folder).map_err(ExpectedError::file("create", folder))?;
    for (name, content) in files {
        let path = folder.join(name);
        fs::write(&path, content).map_err(ExpectedError::file("write", &path))?;
        console.line(&format!("wrote {}", path.display()));
    }
    Ok(())
}
