//! The demo's GoogleTest suite: unpacked and compiled here.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::unpack::unpack;
use crate::commands::packages::{Package, install_hint};
use crate::exit::ExpectedError;

/// The samples, with their paths in the repository.
const SOURCES: [(&str, &str); 4] = [
    ("leaks.cc", include_str!("../../../../tests/samples/native/leaks.cc")),
    ("clean.cc", include_str!("../../../../tests/samples/native/clean.cc")),
    ("sample.h", include_str!("../../../../tests/samples/native/sample.h")),
    ("escape.h", include_str!("../../../../tests/samples/native/escape.h")),
];

const COMPILERS: [&str; 3] = ["c++", "g++", "clang++"];
const SUITE: &str = "demo_tests";

/// Unpacks and compiles the samples; says what to install if something is missing.
pub(super) fn build(folder: &Path, keep: bool) -> Result<PathBuf, ExpectedError> {
    unpack(folder, &SOURCES)?;
    let cxx = std::env::var_os("CXX");
    let compiler = compiler(cxx.as_deref(), std::env::var_os("PATH").as_deref()).ok_or_else(|| {
        ExpectedError::Missing {
            what: match &cxx {
                Some(cxx) => format!(
                    "the demo needs a C++ compiler, and CXX={} cannot be found",
                    cxx.to_string_lossy()
                ),
                None => "the demo needs a C++ compiler, and none of c++, g++ and clang++ is here".to_owned(),
            },
            hint: install_hint(Package::Compiler),
        }
    })?;
    let suite = folder.join(SUITE);
    // The folder's name is useless if the folder is gone when the report is read.
    let shown = if keep { folder } else { Path::new("demo") };
    let output = Command::new(&compiler)
        .args(["-std=c++17", "-O1", "-g", "leaks.cc", "clean.cc", "-o", SUITE])
        .arg(format!("-fdebug-prefix-map={}={}", folder.display(), shown.display()))
        .args(["-lgtest", "-lgtest_main", "-lpthread"])
        .current_dir(folder)
        .output()
        .map_err(ExpectedError::file("run", &compiler))?;
    if output.status.success() { Ok(suite) } else { Err(not_built(&compiler, &output)) }
}

fn not_built(compiler: &Path, output: &Output) -> ExpectedError {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("gtest/gtest.h") || said.contains("lgtest") {
        return ExpectedError::missing(
            "the demo needs GoogleTest, headers and libraries, and the compiler does not find it",
            install_hint(Package::GoogleTest),
        );
    }
    ExpectedError::Missing {
        what: format!("{} cannot build the demo:\n{}", compiler.display(), said.trim_end()),
        hint: "it needs C++17; choose another compiler by CXX=…".to_owned(),
    }
}

/// The compiler to use: `CXX` if it is set (without its arguments), otherwise the first one found.
pub(in crate::commands) fn compiler(cxx: Option<&OsStr>, path: Option<&OsStr>) -> Option<PathBuf> {
    let here = Path::new("/");
    let find = |name: &OsStr| crate::suite::inspect(name, path, here).ok().map(|program| program.path);
    match cxx.filter(|cxx| !cxx.is_empty()) {
        Some(cxx) => find(cxx),
        None => COMPILERS.iter().find_map(|name| find(name.as_ref())),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_compiler_of_the_environment_is_used_and_no_other_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["g++", "my-c++"] {
            let path = folder.path().join(name);
            fs::write(&path, "#!/bin/sh\n").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let path = Some(folder.path().as_os_str());
        assert_eq!(compiler(None, path), Some(folder.path().join("g++")));
        assert_eq!(compiler(Some("my-c++".as_ref()), path), Some(folder.path().join("my-c++")));
        assert_eq!(compiler(Some("gone".as_ref()), path), None);
        assert_eq!(compiler(None, Some("/nowhere".as_ref())), None);
    }

    #[test]
    fn a_missing_library_is_told_from_a_broken_compiler() {
        use std::os::unix::process::ExitStatusExt as _;
        let output = |said: &str| Output {
            status: std::process::ExitStatus::from_raw(256),
            stdout: Vec::new(),
            stderr: said.as_bytes().to_vec(),
        };
        for (said, text) in [
            ("sample.h:4:10: fatal error: gtest/gtest.h: No such file or directory", "needs GoogleTest"),
            ("/usr/bin/ld: cannot find -lgtest: No such file", "needs GoogleTest"),
            ("unrecognized command line option '-std=c++17'", "cannot build the demo"),
        ] {
            let error = not_built(Path::new("/usr/bin/c++"), &output(said));
            assert!(error.to_string().contains(text), "{error}");
            assert!(error.hint().is_some());
            assert_eq!(error.exit_code(), 2);
        }
    }
}
