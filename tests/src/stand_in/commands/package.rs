//! `pm`, and `cmd package`, which is the same.

use std::fs;
use std::io::{self, Read};

use super::Shell;
use crate::stand_in::packages::uid;
use crate::stand_in::{Package, StandIn};

impl Shell<'_> {
    pub(super) fn pm(&mut self, words: &[String], rest: &[&str]) -> io::Result<u8> {
        match rest {
            ["list", "instrumentation", target @ ..] if target.len() < 2 => {
                self.list_instrumentations(target.first().copied())
            }
            ["list", "packages", rest @ ..] => {
                let filter = rest.iter().find(|word| !word.starts_with('-')).copied().unwrap_or("");
                let with_uid = rest.contains(&"-U");
                let line = |(index, package): (usize, &Package)| {
                    let uid = if with_uid { format!(" uid:{}", uid(index)) } else { String::new() };
                    format!("package:{}{uid}\n", package.name)
                };
                let packages = &self.device.inner.made.packages;
                let named = packages.iter().enumerate().filter(|(_, package)| package.name.contains(filter));
                let lines: String = named.map(line).collect();
                self.print(&lines)
            }
            ["path", name] => match self.device.package(name) {
                Some(_) => self.print(&format!("package:/data/app/~~memgate==/{name}-1/base.apk\n")),
                None => Ok(1),
            },
            ["clear", "--user", "0", name] | ["clear", name] => self.clear(name),
            ["install", rest @ ..] => self.install(rest),
            _ => self.not_found(words),
        }
    }

    fn list_instrumentations(&mut self, of: Option<&str>) -> io::Result<u8> {
        let mut lines = String::new();
        for package in &self.device.inner.made.packages {
            for (runner, target) in &package.instrumentations {
                if of.is_none_or(|of| of == target) {
                    lines.push_str(&format!("instrumentation:{}/{runner} (target={target})\n", package.name));
                }
            }
        }
        self.print(&lines)
    }

    fn clear(&mut self, name: &str) -> io::Result<u8> {
        if self.device.package(name).is_none() {
            return self.complain("Failed", 1);
        }
        self.device.inner.made.instrument.force_stop(self.device, name);
        let folder = self.device.host_path(&StandIn::data_folder(name));
        fs::remove_dir_all(&folder)?;
        for part in ["cache", "code_cache", "files"] {
            fs::create_dir_all(folder.join(part))?;
        }
        self.print("Success\n")
    }

    /// The app's bytes arrive on standard input.
    fn install(&mut self, options: &[&str]) -> io::Result<u8> {
        let size = options
            .iter()
            .position(|word| *word == "-S")
            .and_then(|at| options.get(at + 1)?.parse::<u64>().ok());
        let Some(size) = size else {
            return self.complain("Error: must either specify a package size or an APK file", 1);
        };
        let came = io::copy(&mut Read::by_ref(self.terminal).take(size), &mut io::sink())?;
        let told = options.iter().filter(|word| **word != "-S").copied().collect::<Vec<_>>().join(" ");
        self.device.state().installed.push(format!("{told} ({came} bytes)"));
        self.print("Success\n")
    }

    pub(super) fn dump_package(&mut self, words: &[String], rest: &[&str]) -> io::Result<u8> {
        let [name] = rest else { return self.not_found(words) };
        let packages = &self.device.inner.made.packages;
        match packages.iter().position(|package| package.name == *name) {
            Some(index) => self.print(&packages[index].dump(uid(index))),
            None => self.print(&format!("Unable to find package: {name}\n")),
        }
    }
}
