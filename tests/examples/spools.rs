//! `spools FOLDER`: reads every spool in a folder to its end and prints one line per process. `blind …` and
//! `full …` report what the agent itself says it could not see; `bad …` reports what a healthy agent never
//! leaves. The proofs use it to check the recording itself.
//!
//! Data flow: files of the folder → [`read`] decodes frame by frame → [`Process`] → lines on stdout; exit
//! status 1 if one was bad.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a command line tool")]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use memgate_wire::spool::{EXTENSION, Extent, state};
use memgate_wire::{Decoded, ErrorCode, Frame, Hello, decode};

/// Content of one spool.
#[derive(Default)]
struct Process {
    hello: Option<Hello>,
    allocations: u64,
    frames: usize,
    /// `goodbye` if there is one; otherwise the process was killed or ran another program (exec).
    end: Option<String>,
    /// Reasons why some of its allocations are not seen; reported, so that nobody takes them for measured.
    blind: Vec<String>,
    /// Recording stopped because the spool could not grow: no space or no permission. Its state says so.
    full: bool,
    /// Defects.
    bad: Vec<String>,
}

fn main() -> io::Result<ExitCode> {
    let folder = std::env::args_os().nth(1).unwrap_or_else(|| ".".into());
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut healthy = true;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == EXTENSION) {
            paths.push(path);
        }
    }
    paths.sort();
    for path in paths {
        let process = read(&path)?;
        let (executable, role) = process
            .hello
            .as_ref()
            .map_or(("?", "?".to_owned()), |h| (h.executable.as_str(), format!("{:?}", h.role)));
        let end = process.end.as_deref().unwrap_or("cut-off");
        println!("process {executable} {role} {end} {} {}", process.frames, process.allocations);
        for why in &process.blind {
            println!("blind {executable} {why}");
        }
        if process.full {
            println!("full {executable}");
        }
        for bad in process.bad {
            healthy = false;
            println!("bad {} {executable}: {bad}", path.display());
        }
    }
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads the file up to the end that its control page gives.
fn read(path: &Path) -> io::Result<Process> {
    let bytes = fs::read(path)?;
    let extent = Extent::of(&bytes);
    let mut process = Process::default();
    match extent.state {
        state::RECORDING | state::CLOSED => {}
        state::FULL => process.full = true,
        state::STOPPED => process.bad.push("recording stopped".to_owned()),
        other => process.bad.push(format!("state {other}")),
    }
    let mut at = extent.start;
    let end = extent.end.unwrap_or(bytes.len() as u64);
    while at < end {
        let rest = usize::try_from(at).ok().zip(usize::try_from(end).ok());
        let rest = rest.and_then(|(from, to)| bytes.get(from..to)).unwrap_or_default();
        match decode(rest, at) {
            Ok(Decoded::Frame { frame, bytes, .. }) => {
                process.note(frame);
                at += bytes as u64;
            }
            Ok(_) => {
                process.bad.push(format!("no whole frame at {at} of {end}"));
                break;
            }
            Err(error) => {
                process.bad.push(error.to_string());
                break;
            }
        }
    }
    // A process can be killed between the creation of its spool and its first frame.
    if process.hello.is_none() && (process.frames > 0 || extent.state != state::RECORDING) {
        process.bad.push("no hello".to_owned());
    }
    if extent.state == state::CLOSED && process.end.is_none() {
        process.bad.push("closed without a goodbye".to_owned());
    }
    Ok(process)
}

impl Process {
    fn note(&mut self, frame: Frame) {
        if self.end.is_some() {
            self.bad.push("a frame behind the goodbye".to_owned());
        }
        if (self.frames == 0) != matches!(frame, Frame::Hello(_)) {
            self.bad.push(format!("frame {} is a hello, or the first one is none", self.frames));
        }
        self.frames += 1;
        match frame {
            Frame::Hello(hello) => {
                self.blind.extend(hello.blind.clone());
                self.hello = Some(hello);
            }
            Frame::Boundary(boundary) => self.allocations = boundary.counters.allocations,
            Frame::Error(error) if error.code == ErrorCode::Blind => self.blind.push(error.text),
            Frame::Error(error) => self.bad.push(format!("{:?}: {}", error.code, error.text)),
            Frame::Goodbye(goodbye) => {
                self.allocations = goodbye.counters.allocations;
                self.end = Some("goodbye".to_owned());
            }
            _ => {}
        }
    }
}
