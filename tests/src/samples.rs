//! Sample suites and small programs, compiled once per version of their sources.
//!
//! They are cached in `TARGET/PROFILE/e2e-samples/HASH/NAME`. The hash covers the command and every source
//! that it can read, so only changed samples are compiled again.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use sha2::{Digest, Sha256};

use crate::profile::profile_folder;
use crate::{repository, waiting};

const SUITE: &[&str] = &["-std=c++17", "-O1", "-g"];
const GTEST: &[&str] = &["-lgtest", "-lgtest_main", "-lpthread"];

/// Folder of the sample sources.
#[must_use]
pub fn sources() -> PathBuf {
    repository().join("tests/samples/native")
}

/// Compiles a GoogleTest sample suite, named without `.cc`.
#[must_use]
pub fn suite(name: &str) -> PathBuf {
    let source = sources().join(format!("{name}.cc"));
    compile(name, "c++", &[SUITE, &[&precompiled(), source.to_str().unwrap()], GTEST].concat(), &[])
}

/// Compiles a plain sample program, named without `.cc`.
#[must_use]
pub fn command(name: &str) -> PathBuf {
    let source = sources().join(format!("{name}.cc"));
    compile(name, "c++", &[SUITE, &[source.to_str().unwrap()]].concat(), &[])
}

/// Compiles a GoogleTest suite that a test brings as source.
#[must_use]
pub fn own_suite(name: &str, source: &str) -> PathBuf {
    own(name, "cc", source, "c++", &[SUITE, &[&precompiled()], GTEST].concat())
}

/// The flag by which [`SUITE`]s find GoogleTest's header precompiled. They compile in half the time, to the same bytes.
fn precompiled() -> String {
    let flags = [SUITE, &["-x", "c++-header", "/usr/include/gtest/gtest.h"]].concat();
    let header = compile("gtest/gtest.h.gch", "c++", &flags, &[]);
    format!("-I{}", header.parent().and_then(Path::parent).unwrap().display())
}

/// Compiles a plain C program that a test brings as source.
#[must_use]
pub fn own_program(name: &str, source: &str) -> PathBuf {
    own(name, "c", source, "cc", &["-std=gnu11", "-O1", "-g", "-lpthread"])
}

/// Compiles a program that a test brings as source: `source` is written to `NAME.EXTENSION`, which precedes
/// the flags.
#[must_use]
pub fn own(name: &str, extension: &str, source: &str, compiler: &str, flags: &[&str]) -> PathBuf {
    let file = format!("{name}.{extension}");
    compile(name, compiler, &[&[file.as_str()], flags].concat(), &[(file.as_str(), source)])
}

/// Runs `compiler ARGUMENTS -o NAME` in the cache, after writing `files` there.
#[must_use]
pub fn compile(name: &str, compiler: &str, arguments: &[&str], files: &[(&str, &str)]) -> PathBuf {
    static KNOWN: Mutex<BTreeMap<String, Arc<OnceLock<PathBuf>>>> = Mutex::new(BTreeMap::new());
    let hash = hash(name, compiler, arguments, files);
    // The lock is not held while compiling: different suites compile in parallel, each one only once.
    let once =
        Arc::clone(KNOWN.lock().unwrap_or_else(PoisonError::into_inner).entry(hash.clone()).or_default());
    once.get_or_init(|| build(&hash, name, compiler, arguments, files)).clone()
}

/// Stdout of a command; panics with its whole output if it fails.
pub fn successful(command: &mut Command) -> String {
    let output = waiting::output(command);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?} ended with {}\n{out}\n{err}", output.status);
    out.into_owned()
}

fn build(hash: &str, name: &str, compiler: &str, arguments: &[&str], files: &[(&str, &str)]) -> PathBuf {
    let cache = profile_folder().join("e2e-samples");
    let folder = cache.join(hash);
    let program = folder.join(name);
    if program.exists() {
        return program;
    }
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    for (file, text) in files {
        fs::write(folder.join(file), text).unwrap();
    }
    // The final name is used only for a complete file.
    let new = folder.join(format!("{name}.{}.new", std::process::id()));
    successful(Command::new(compiler).args(arguments).arg("-o").arg(&new).current_dir(&folder));
    fs::rename(&new, &program).unwrap();
    program
}

fn hash(name: &str, compiler: &str, arguments: &[&str], files: &[(&str, &str)]) -> String {
    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        hash.update(bytes.len().to_le_bytes());
        hash.update(bytes);
    };
    for text in [name, compiler].iter().chain(arguments) {
        add(text.as_bytes());
    }
    for (file, text) in files {
        add(file.as_bytes());
        add(text.as_bytes());
    }
    for folder in [sources(), repository().join("device-agent/include")] {
        for path in sorted(&folder) {
            add(&fs::read(path).unwrap());
        }
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let code =
        |path: &PathBuf| path.extension().is_some_and(|e| ["c", "cc", "h"].iter().any(|code| e == *code));
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(code).collect();
    paths.sort();
    paths
}
