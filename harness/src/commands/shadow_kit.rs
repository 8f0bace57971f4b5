//! `memgate shadow-kit`: writes the sources of the shadow call stack, for a program's own build.

use std::fs;
use std::path::Path;

use crate::exit::{self, ExpectedError};
use crate::output::Console;

macro_rules! file {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../device-agent/shadow/", $name)))
    };
}

const FILES: [(&str, &str); 4] =
    [file!("memgate_shadow.h"), file!("memgate_shadow.c"), file!("CMakeLists.txt"), file!("Android.mk")];

pub(super) fn shadow_kit(folder: &Path, console: &Console) -> Result<u8, ExpectedError> {
    fs::create_dir_all(folder).map_err(ExpectedError::file("create", folder))?;
    for (name, text) in FILES {
        let path = folder.join(name);
        fs::write(&path, text).map_err(ExpectedError::file("write", &path))?;
        console.line(&format!("wrote {}", path.display()));
    }
    console.hint("CMake: add_subdirectory(…), target_link_libraries(… PRIVATE memgate_shadow); docs/shadow-stack.md has the flags");
    Ok(exit::PASS)
}
