//! The commands of the device: a table, not a shell. They work on the stand-in's own files, properties and
//! packages.

mod activity;
mod files;
mod meminfo;
mod package;
mod system;

use std::io;

use super::files::{Who, canonical};
use super::line::{self, STATUS, Sink, When};
use super::packages::uid;
use super::{StandIn, Terminal};

/// Context of a command.
struct Shell<'a> {
    device: &'a StandIn,
    who: Who,
    /// The working folder.
    folder: String,
    terminal: &'a mut Terminal,
}

/// Runs a command line and returns its status; an error means that the client has hung up.
pub(super) fn run(device: &StandIn, line: &str, terminal: &mut Terminal) -> io::Result<u8> {
    if let Some((printed, status)) = device.inner.made.answers.get(line) {
        terminal.out(printed.as_bytes())?;
        return Ok(*status);
    }
    Shell { device, who: Who::Shell, folder: "/".to_owned(), terminal }.line(line)
}

impl Shell<'_> {
    fn line(&mut self, line: &str) -> io::Result<u8> {
        let steps = match line::read(line) {
            Ok(steps) => steps,
            Err(what) => {
                self.device.not_known(&format!("{what} in `{line}`"));
                self.terminal.err(b"/system/bin/sh: syntax error\n")?;
                return Ok(127);
            }
        };
        let mut status = 0;
        for step in steps {
            let wanted = match step.when {
                When::Always => true,
                When::Succeeded => status == 0,
                When::Failed => status != 0,
            };
            if wanted {
                let words: Vec<String> =
                    step.words.iter().map(|word| word.replace(STATUS, &status.to_string())).collect();
                self.terminal.redirect(
                    step.out == Sink::Nowhere,
                    step.err == Sink::Nowhere,
                    step.err == Sink::Out,
                );
                status = self.command(&words)?;
            }
        }
        Ok(status)
    }

    fn command(&mut self, words: &[String]) -> io::Result<u8> {
        let texts: Vec<&str> = words.iter().map(String::as_str).collect();
        let Some((name, rest)) = texts.split_first() else { return Ok(0) };
        match *name {
            "echo" => self.print(&format!("{}\n", rest.join(" "))),
            "true" | "export" => Ok(0),
            "false" => Ok(1),
            "exec" => self.command(&words[1..]),
            "sh" if rest.first() == Some(&"-c") && rest.len() == 2 => self.line(rest[1]),
            "run-as" => self.run_as(rest),
            "am" => self.am(words, rest),
            "pm" => self.pm(words, rest),
            "cmd" => match rest.split_first() {
                Some((&"activity", rest)) => self.am(words, rest),
                Some((&"package", rest)) => self.pm(words, rest),
                _ => self.not_found(words),
            },
            "dumpsys" => match rest {
                ["package", rest @ ..] => self.dump_package(words, rest),
                ["meminfo", rest @ ..] | ["-t", _, "meminfo", rest @ ..] => self.dump_memory(words, rest),
                _ => self.not_found(words),
            },
            "getprop" | "setprop" | "id" | "pidof" | "ps" | "logcat" | "settings" | "getenforce" | "date" => {
                self.system(words, name, rest)
            }
            "cat" | "ls" | "cp" | "mv" | "rm" | "rmdir" | "mkdir" | "chmod" | "touch" | "stat" | "wc"
            | "sha256sum" | "test" | "[" => self.files(words, name, rest),
            _ => self.not_found(words),
        }
    }

    fn print(&mut self, text: &str) -> io::Result<u8> {
        self.terminal.out(text.as_bytes())?;
        Ok(0)
    }

    fn complain(&mut self, text: &str, status: u8) -> io::Result<u8> {
        self.terminal.err(format!("{text}\n").as_bytes())?;
        Ok(status)
    }

    /// Answers an unknown command as a device does, and records it.
    fn not_found(&mut self, words: &[String]) -> io::Result<u8> {
        if let Some(status) =
            self.device.inner.made.instrument.clone().command(self.device, words, self.terminal)
        {
            return Ok(status);
        }
        self.device.not_known(&format!("command `{}`", words.join(" ")));
        let name = words.first().map_or("", String::as_str);
        self.complain(&format!("/system/bin/sh: {name}: inaccessible or not found"), 127)
    }

    fn run_as(&mut self, rest: &[&str]) -> io::Result<u8> {
        let (package, rest) = match rest {
            [package, "--user", "0", rest @ ..] | [package, rest @ ..] => (*package, rest),
            [] => {
                return self
                    .complain("run-as: usage: run-as <package-name> [--user <uid>] <command> [<args>]", 1);
            }
        };
        if self.device.package(package).is_none() {
            return self.complain(&format!("run-as: unknown package: {package}"), 1);
        }
        let mut app = Shell {
            device: self.device,
            who: Who::App(package.to_owned()),
            folder: StandIn::data_folder(package),
            terminal: self.terminal,
        };
        let words: Vec<String> = rest.iter().map(|word| (*word).to_owned()).collect();
        app.command(&words)
    }

    fn path(&self, path: &str) -> String {
        canonical(&self.folder, path)
    }

    fn uid(&self) -> u32 {
        match &self.who {
            Who::Shell => 2000,
            Who::App(package) => {
                let index = self.device.inner.made.packages.iter().position(|other| other.name == *package);
                uid(index.unwrap_or(0))
            }
        }
    }
}
