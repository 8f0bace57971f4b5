//! Finds a program and determines its kind, from its file alone.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::elf::{Elf, Linkage};

/// The kernel reads at most this much of a script's first line.
const SCRIPT_BYTES: usize = 256;

const SETUID_OR_SETGID: u32 = 0o6000;

/// A program as found on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Its absolute path.
    pub path: PathBuf,
    /// Its kind.
    pub kind: Kind,
    /// Set-user-id, set-group-id or file capabilities: the dynamic linker then ignores
    /// `LD_PRELOAD`.
    pub privileged: bool,
}

/// The kind of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A binary.
    Elf(Elf),
    /// Interpreted; programs that it starts may still be binaries.
    Script {
        /// The first line after `#!`.
        interpreter: String,
    },
    /// Anything else.
    Other,
}

/// Why a program cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// There is no such file.
    #[error("find {}", .0.display())]
    NoFile(PathBuf),
    /// No folder of `PATH` has it.
    #[error("find {} in PATH", .0.display())]
    NotInPath(PathBuf),
    /// It exists, but is not a program.
    #[error("run {}: it is {what}", path.display())]
    NotAProgram {
        /// The file.
        path: PathBuf,
        /// Its actual kind.
        what: &'static str,
    },
    /// It cannot be read.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Program {
    /// Whether it contains GoogleTest, as far as its file shows.
    #[must_use]
    pub const fn is_gtest(&self) -> bool {
        matches!(&self.kind, Kind::Elf(elf) if elf.gtest.is_some())
    }

    /// Whether it reports its own tests (`memgate.h`), as far as its file shows.
    #[must_use]
    pub const fn tells_tests(&self) -> bool {
        matches!(&self.kind, Kind::Elf(elf) if elf.tells_tests)
    }

    /// Why the agent cannot see inside; `None`: no reason is known.
    #[must_use]
    pub fn blind(&self) -> Option<String> {
        let Kind::Elf(elf) = &self.kind else { return None };
        if self.privileged {
            return Some(
                "it runs with privileges of its file, where the dynamic linker loads no agent".to_owned(),
            );
        }
        if !elf.native {
            return Some("it is built for another machine than this memgate".to_owned());
        }
        match &elf.linkage {
            Linkage::Glibc => None,
            Linkage::Static => Some("it is linked statically, and no agent can be loaded into it".to_owned()),
            Linkage::Musl => Some("it uses musl, and this agent is built for glibc".to_owned()),
            Linkage::OtherInterpreter(interpreter) => {
                Some(format!("it is loaded by {interpreter}, not by glibc"))
            }
        }
    }
}

/// Inspects `program`. It is searched in `search_path` unless it contains a slash; relative paths start in `directory`.
///
/// # Errors
/// When it does not exist, or is not a program.
pub fn inspect(
    program: &OsStr,
    search_path: Option<&OsStr>,
    directory: &Path,
) -> Result<Program, InspectError> {
    let path = find(program, search_path, directory)?;
    let read = |source| InspectError::Read { path: path.clone(), source };
    let metadata = fs::metadata(&path).map_err(read)?;
    let not = |what| Err(InspectError::NotAProgram { path: path.clone(), what });
    if metadata.is_dir() {
        return not("a folder");
    }
    if !metadata.is_file() {
        return not("not a file");
    }
    if !is_executable(&path) {
        return not("not executable");
    }
    let privileged = is_privileged(&path, &metadata);
    // A program may be executable but not readable. It can be run, but its kind is unknown.
    let kind = match File::open(&path) {
        Ok(file) => kind_of(&file).map_err(read)?,
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Kind::Other,
        Err(e) => return Err(read(e)),
    };
    Ok(Program { path, kind, privileged })
}

fn find(program: &OsStr, search_path: Option<&OsStr>, directory: &Path) -> Result<PathBuf, InspectError> {
    let name = Path::new(program);
    let has_slash = program.as_encoded_bytes().contains(&b'/');
    if has_slash || program.is_empty() {
        let path = directory.join(name);
        return if path.exists() && has_slash { Ok(path) } else { Err(InspectError::NoFile(name.into())) };
    }
    std::env::split_paths(search_path.unwrap_or_default())
        .map(|folder| directory.join(folder).join(name))
        .find(|path| path.is_file() && is_executable(path))
        .ok_or_else(|| InspectError::NotInPath(name.into()))
}

/// Checks permissions instead of trying: even for root, at least one execute bit must be set.
fn is_executable(path: &Path) -> bool {
    accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

fn is_privileged(path: &Path, metadata: &Metadata) -> bool {
    let has_capabilities = || {
        let mut value = [0_u8; 64];
        rustix::fs::getxattr(path, "security.capability", &mut value).is_ok()
    };
    metadata.permissions().mode() & SETUID_OR_SETGID != 0 || has_capabilities()
}

fn kind_of(file: &File) -> io::Result<Kind> {
    let mut start = [0; SCRIPT_BYTES];
    let got = file.read_at(&mut start, 0)?;
    let start = start.get(..got).unwrap_or_default();
    if let Some(line) = start.strip_prefix(b"#!") {
        let line = line.split(|b| *b == b'\n').next().unwrap_or_default();
        let interpreter = String::from_utf8_lossy(line).trim().to_owned();
        return Ok(Kind::Script { interpreter });
    }
    Ok(Elf::read(file)?.map_or(Kind::Other, Kind::Elf))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(folder: &Path, name: &str, contents: &[u8], mode: u32) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn a_name_is_looked_up_in_the_path_and_a_path_in_the_directory() {
        let folder = tempfile::tempdir().unwrap();
        let script = put(folder.path(), "tests.sh", b"#!/bin/sh -e\nexit 0\n", 0o755);
        put(folder.path(), "data", b"#!/bin/sh\n", 0o644);
        let here = folder.path();
        let by_name = inspect("tests.sh".as_ref(), Some(here.as_os_str()), Path::new("/")).unwrap();
        let by_path = inspect("./tests.sh".as_ref(), None, here).unwrap();
        assert_eq!(by_name.path, script);
        assert_eq!(by_path.kind, Kind::Script { interpreter: "/bin/sh -e".into() });
        assert!(!by_path.is_gtest() && by_path.blind().is_none());
        for (name, want) in [
            ("nothing", "find nothing in PATH".to_owned()),
            ("data", "find data in PATH".to_owned()),
            ("./nothing", "find ./nothing".to_owned()),
            ("", "find ".to_owned()),
            ("./data", format!("run {}/./data: it is not executable", here.display())),
            ("../", format!("run {}/../: it is a folder", here.display())),
        ] {
            let error = inspect(name.as_ref(), Some(here.as_os_str()), here).unwrap_err();
            assert_eq!(error.to_string(), want);
        }
    }

    #[test]
    fn this_program_is_an_ordinary_glibc_binary() {
        let program = inspect(std::env::current_exe().unwrap().as_os_str(), None, Path::new("/")).unwrap();
        let Kind::Elf(elf) = &program.kind else { panic!("{program:?}") };
        assert_eq!((&elf.linkage, elf.native), (&Linkage::Glibc, true));
        assert_eq!((program.privileged, program.blind()), (false, None));
    }

    #[test]
    fn a_setuid_program_is_out_of_reach() {
        let folder = tempfile::tempdir().unwrap();
        let contents = fs::read("/proc/self/exe").unwrap();
        let path = put(folder.path(), "su", &contents, 0o4755);
        let program = inspect(path.as_os_str(), None, Path::new("/")).unwrap();
        assert!(program.privileged);
        assert!(program.blind().unwrap().contains("privileges"));
    }

    #[test]
    fn text_without_an_interpreter_is_something_else() {
        let folder = tempfile::tempdir().unwrap();
        for contents in [b"".as_slice(), b"#", b"\x7fEL", b"hello"] {
            let path = put(folder.path(), "x", contents, 0o755);
            assert_eq!(inspect(path.as_os_str(), None, Path::new("/")).unwrap().kind, Kind::Other);
        }
    }
}
