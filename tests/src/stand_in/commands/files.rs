//! Commands on files, with toybox's error messages.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::Shell;
use crate::stand_in::files::{Who, words as told};
use crate::stand_in::processes;

impl Shell<'_> {
    pub(super) fn files(&mut self, words: &[String], name: &str, rest: &[&str]) -> io::Result<u8> {
        let options: Vec<&str> =
            rest.iter().copied().take_while(|word| word.starts_with('-') && word.len() > 1).collect();
        let paths = &rest[options.len()..];
        match (name, options.as_slice(), paths) {
            ("cat", [], paths) => self.each(name, paths, Self::cat),
            ("ls", options, paths)
                if options.iter().all(|option| ["-1", "-a", "-A", "-d", "-l", "-la"].contains(option)) =>
            {
                let paths = if paths.is_empty() { &["."] } else { paths };
                let (folder_itself, long) =
                    (options.contains(&"-d"), options.iter().any(|option| option.contains('l')));
                self.each(name, paths, |shell, path| shell.ls(path, folder_itself, long))
            }
            ("cp" | "mv", [] | ["-f"], [from @ .., to]) if !from.is_empty() => self.copy(name, from, to),
            ("rm", ["-f"], paths) => self.each(name, paths, |shell, path| shell.rm(path, true, false)),
            ("rm", ["-r"], paths) => self.each(name, paths, |shell, path| shell.rm(path, false, true)),
            ("rm", ["-rf" | "-fr"] | ["-r", "-f"], paths) => {
                self.each(name, paths, |shell, path| shell.rm(path, true, true))
            }
            ("rm", [], paths) => self.each(name, paths, |shell, path| shell.rm(path, false, false)),
            ("rmdir", [], paths) => {
                self.each(name, paths, |shell, path| fs::remove_dir(shell.writable(path)?))
            }
            ("mkdir", [], paths) => {
                self.each(name, paths, |shell, path| fs::create_dir(shell.writable(path)?))
            }
            ("mkdir", ["-p"], paths) => {
                self.each(name, paths, |shell, path| fs::create_dir_all(shell.writable(path)?))
            }
            ("touch", [], paths) => self.each(name, paths, |shell, path| {
                fs::File::options().append(true).create(true).open(shell.writable(path)?).map(drop)
            }),
            ("chmod", [], [mode, paths @ ..]) => match u32::from_str_radix(mode, 8) {
                Ok(mode) => self.each(name, paths, |shell, path| {
                    fs::set_permissions(shell.writable(path)?, fs::Permissions::from_mode(mode))
                }),
                Err(_) => self.not_found(words),
            },
            ("stat", ["-c"], [format, paths @ ..]) => {
                let format = (*format).to_owned();
                self.each(name, paths, |shell, path| shell.stat(&format, path))
            }
            ("wc", ["-c"], paths) => self.each(name, paths, |shell, path| {
                let bytes = shell.contents(path)?.len();
                shell.terminal.out(format!("{bytes} {path}\n").as_bytes())
            }),
            ("sha256sum", [], paths) => self.each(name, paths, |shell, path| {
                let hash = Sha256::digest(shell.contents(path)?);
                shell.terminal.out(format!("{hash:x}  {path}\n").as_bytes())
            }),
            ("test" | "[", [kind], rest) => self.test(words, kind, rest),
            _ => self.not_found(words),
        }
    }

    /// Applies `act` to each path; errors are printed, and then the status is 1.
    fn each(
        &mut self,
        name: &str,
        paths: &[&str],
        act: impl Fn(&mut Self, &str) -> io::Result<()>,
    ) -> io::Result<u8> {
        let mut status = 0;
        for path in paths {
            if let Err(why) = act(self, path) {
                if self.terminal.gone() {
                    return Err(why);
                }
                status = self.complain(&format!("{name}: {path}: {}", told(&why)), 1)?;
            }
        }
        Ok(status)
    }

    fn readable(&self, path: &str) -> io::Result<PathBuf> {
        self.device.inner.files.readable(&self.who, &self.path(path))
    }

    fn writable(&self, path: &str) -> io::Result<PathBuf> {
        self.device.inner.files.writable(&self.who, &self.path(path))
    }

    fn contents(&self, path: &str) -> io::Result<Vec<u8>> {
        let whole = self.path(path);
        if whole.starts_with("/proc/") {
            return processes::read(self.device, &self.who, &whole);
        }
        fs::read(self.readable(path)?)
    }

    fn cat(&mut self, path: &str) -> io::Result<()> {
        let bytes = self.contents(path)?;
        self.terminal.out(&bytes)
    }

    fn ls(&mut self, path: &str, folder_itself: bool, long: bool) -> io::Result<()> {
        let whole = self.path(path);
        let names = if whole.starts_with("/proc/") {
            processes::list(self.device, &self.who, &whole)?
        } else {
            let host = self.readable(path)?;
            let about = fs::metadata(&host)?;
            if folder_itself || !about.is_dir() {
                vec![path.to_owned()]
            } else {
                let entries = fs::read_dir(host)?.filter_map(Result::ok);
                let mut names: Vec<String> =
                    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
                names.sort();
                names
            }
        };
        let total = if long { format!("total {}\n", names.len()) } else { String::new() };
        let line = |name: &String| {
            if long {
                format!("-rw------- 1 user group 0 2026-01-01 00:00 {name}\n")
            } else {
                format!("{name}\n")
            }
        };
        self.terminal.out(format!("{total}{}", names.iter().map(line).collect::<String>()).as_bytes())
    }

    fn copy(&mut self, name: &str, from: &[&str], to: &str) -> io::Result<u8> {
        let folder = self.readable(to).is_ok_and(|to| to.is_dir());
        let owner_is_app = matches!(self.who, Who::App(_));
        self.each(name, from, |shell, path| {
            let file = path.rsplit('/').next().unwrap_or(path);
            let target = shell.writable(&if folder { format!("{to}/{file}") } else { to.to_owned() })?;
            let source = shell.readable(path)?;
            if name == "mv" {
                shell.writable(path)?;
                return fs::rename(source, target);
            }
            let mode = fs::metadata(&source)?.permissions().mode();
            fs::copy(&source, &target)?;
            // Apps have umask 077.
            let mode = if owner_is_app { mode & 0o700 } else { mode & 0o777 };
            fs::set_permissions(target, fs::Permissions::from_mode(mode))
        })
    }

    fn rm(&mut self, path: &str, force: bool, recursive: bool) -> io::Result<()> {
        let host = self.writable(path)?;
        let removed = match fs::symlink_metadata(&host) {
            Ok(about) if about.is_dir() && recursive => fs::remove_dir_all(host),
            Ok(about) if about.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            Ok(_) => fs::remove_file(host),
            Err(why) => Err(why),
        };
        match removed {
            Err(why) if force && why.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn stat(&mut self, format: &str, path: &str) -> io::Result<()> {
        let about = fs::metadata(self.readable(path)?)?;
        let text = format
            .replace("%s", &about.size().to_string())
            .replace("%a", &format!("{:o}", about.mode() & 0o7777))
            .replace("%Y", &about.mtime().to_string())
            .replace("%n", path);
        self.terminal.out(format!("{text}\n").as_bytes())
    }

    fn test(&mut self, words: &[String], kind: &str, rest: &[&str]) -> io::Result<u8> {
        let ([path] | [path, "]"]) = rest else { return self.not_found(words) };
        let about = self.readable(path).and_then(fs::metadata);
        let holds = match kind {
            "-e" => about.is_ok(),
            "-f" => about.is_ok_and(|about| about.is_file()),
            "-d" => about.is_ok_and(|about| about.is_dir()),
            "-s" => about.is_ok_and(|about| about.len() > 0),
            _ => return self.not_found(words),
        };
        Ok(u8::from(!holds))
    }
}
