//! Writes copies. A target file is either complete or unchanged.
//!
//! Data flow: a free name, or a regular file → a new file next to it, compressed if the name says so → renamed when it
//! is complete. Any other target (a pipe, a device) is written directly, and never removed.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use memgate_hprof::Packed;

use crate::exit::ExpectedError;

/// Standard input or output.
pub(super) const STREAM: &str = "-";

/// Whether input and output are the same regular file, whatever their names.
pub(super) fn same(from: &Path, to: &Path) -> bool {
    let stream = |stream: BorrowedFd<'_>| File::from(stream.try_clone_to_owned()?).metadata();
    let is_stream = |path: &Path| path.as_os_str() == STREAM;
    let from = if is_stream(from) { stream(io::stdin().as_fd()) } else { fs::metadata(from) };
    let to = if is_stream(to) { stream(io::stdout().as_fd()) } else { fs::metadata(to) };
    matches!(
        (from, to),
        (Ok(from), Ok(to)) if from.is_file() && (from.dev(), from.ino()) == (to.dev(), to.ino())
    )
}

/// Whether it is a regular file, or can become one.
pub(super) fn is_file(to: &Path) -> bool {
    to.as_os_str() != STREAM && fs::metadata(to).ok().is_none_or(|about| about.is_file())
}

/// Writes a file, packed if its name says so, or standard output.
pub(super) fn write<T>(
    to: &Path,
    work: impl FnOnce(&mut dyn Write) -> Result<T, ExpectedError>,
) -> Result<T, ExpectedError> {
    let failed = || ExpectedError::file("write", to);
    if to.as_os_str() == STREAM {
        return fill(io::stdout().lock(), Path::new("standard output"), work);
    }
    let before = match File::options().write(true).open(to) {
        Err(why) if why.kind() == ErrorKind::NotFound => None,
        file => {
            let file = file.map_err(failed())?;
            let about = file.metadata().map_err(failed())?;
            if !about.is_file() {
                return fill(file, to, work);
            }
            Some(about.permissions())
        }
    };
    // Writes to the target of a link, so that the link stays.
    let folder = to.parent().unwrap_or(Path::new(""));
    let place = fs::canonicalize(to).or_else(|_| fs::read_link(to).map(|link| folder.join(link)));
    let place = place.unwrap_or_else(|_| to.to_owned());
    let (new, file) = beside(&place).map_err(failed())?;
    let allowed = before.map_or(Ok(()), |before| file.set_permissions(before));
    let done = allowed.map_err(failed()).and_then(|()| fill(file, to, work));
    let done = done.and_then(|done| fs::rename(&new, &place).map(|()| done).map_err(failed()));
    if done.is_err() {
        // The write error is reported; a failed removal would add nothing.
        drop(fs::remove_file(&new));
    }
    done
}

/// A new file in the same folder.
fn beside(path: &Path) -> io::Result<(PathBuf, File)> {
    let mut number = 0;
    loop {
        let new = path.with_file_name(format!(".memgate-{}-{number}.new", std::process::id()));
        match File::create_new(&new) {
            // Left by a killed process: in containers, process numbers are reused.
            Err(why) if why.kind() == ErrorKind::AlreadyExists && number < 1000 => number += 1,
            file => return file.map(|file| (new, file)),
        }
    }
}

/// Writes the whole output. An output error is reported as such, whatever `work` returns.
fn fill<T>(
    to: impl Write,
    name: &Path,
    work: impl FnOnce(&mut dyn Write) -> Result<T, ExpectedError>,
) -> Result<T, ExpectedError> {
    let mut out = Output { to: BufWriter::new(to), failed: None };
    let failed = || ExpectedError::file("write", name);
    let done = match name.extension().and_then(OsStr::to_str) {
        Some("gz") => fill_packed(Packed::small_gzip(&mut out), name, work),
        Some("zst") => {
            Packed::zstd(&mut out).map_err(failed()).and_then(|packed| fill_packed(packed, name, work))
        }
        _ => work(&mut out),
    };
    let done = done.and_then(|done| out.flush().map(|()| done).map_err(failed()));
    out.failed.map_or(done, |why| Err(failed()(why)))
}

fn fill_packed<T>(
    mut to: Packed<impl Write>,
    name: &Path,
    work: impl FnOnce(&mut dyn Write) -> Result<T, ExpectedError>,
) -> Result<T, ExpectedError> {
    let done = work(&mut to)?;
    to.finish().map_err(ExpectedError::file("write", name))?;
    Ok(done)
}

/// Remembers the first write error.
struct Output<W> {
    to: W,
    failed: Option<io::Error>,
}

impl<W> Output<W> {
    fn told<T>(&mut self, done: io::Result<T>) -> io::Result<T> {
        done.map_err(|why| {
            let kind = why.kind();
            if kind != ErrorKind::Interrupted {
                self.failed.get_or_insert(why);
            }
            kind.into()
        })
    }
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let done = self.to.write(bytes);
        self.told(done)
    }

    fn flush(&mut self) -> io::Result<()> {
        let done = self.to.flush();
        self.told(done)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::process::Command;
    use std::thread;

    use super::*;

    fn good(out: &mut dyn Write) -> Result<(), ExpectedError> {
        out.write_all(b"new").map_err(ExpectedError::file("read", Path::new("the input")))
    }

    fn bad(out: &mut dyn Write) -> Result<(), ExpectedError> {
        good(out)?;
        Err(ExpectedError::Usage { what: "half of it".to_owned(), hint: String::new() })
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn fifo(folder: &Path) -> PathBuf {
        let path = folder.join("fifo");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    }

    #[test]
    fn a_file_is_replaced_when_the_new_one_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        write(&path, bad).unwrap_err();
        assert_eq!((fs::read(&path).unwrap(), names(folder.path())), (b"old".to_vec(), vec!["out".into()]));
        write(&path, good).unwrap();
        assert_eq!((fs::read(&path).unwrap(), names(folder.path())), (b"new".to_vec(), vec!["out".into()]));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        write(&folder.path().join("other"), bad).unwrap_err();
        assert_eq!(names(folder.path()), ["out"]);
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("out"), folder.path().join("link"));
        symlink("out", &link).unwrap();
        for before in [None, Some("old")] {
            if let Some(before) = before {
                fs::write(&path, before).unwrap();
            }
            write(&link, bad).unwrap_err();
            assert_eq!(fs::read_to_string(&path).ok().as_deref(), before);
            write(&link, good).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!((fs::read(&path).unwrap(), names(folder.path()).len()), (b"new".to_vec(), 2));
        }
    }

    #[test]
    fn a_pipe_is_written_and_stays() {
        for (work, is_good) in [(good as fn(&mut dyn Write) -> _, true), (bad, false)] {
            // A pipe of its own: a process that another test forks keeps the reader of the last one open for a moment.
            let folder = tempfile::tempdir().unwrap();
            let path = fifo(folder.path());
            let reader = thread::spawn({
                let path = path.clone();
                move || fs::read(path).unwrap()
            });
            assert_eq!(write(&path, work).is_ok(), is_good);
            assert_eq!(reader.join().unwrap(), b"new");
            assert_eq!(names(folder.path()), ["fifo"]);
            assert!(!is_file(&path) && is_file(&folder.path().join("none")));
        }
    }

    #[test]
    fn what_cannot_be_written_is_not_told_of_the_input() {
        let folder = tempfile::tempdir().unwrap();
        let path = fifo(folder.path());
        // The reader closes the pipe as soon as it is open.
        let reader = thread::spawn({
            let path = path.clone();
            move || drop(File::open(path).unwrap())
        });
        let why = write(&path, |out| {
            reader.join().unwrap();
            out.write_all(&[7; 1 << 20]).map_err(ExpectedError::file("read", Path::new("the input")))
        });
        let why = why.unwrap_err().to_string();
        assert!(why.starts_with("cannot write ") && why.contains("fifo: Broken pipe"), "{why}");
    }

    #[test]
    fn a_file_is_itself_under_another_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name| folder.path().join(name);
        fs::write(at("a"), "dump").unwrap();
        fs::write(at("c"), "dump").unwrap();
        fs::hard_link(at("a"), at("b")).unwrap();
        symlink("b", at("link")).unwrap();
        assert!(same(&at("a"), &at("b")) && same(&at("link"), &at("a")));
        assert!(!same(&at("a"), &at("c")) && !same(&at("a"), &at("none")));
    }
}
