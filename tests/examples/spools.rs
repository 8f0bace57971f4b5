//! `spools FOLDER`: reads every spool in a folder to its end, one line per process; `blind …` and
//! `full …` tell what the agent itself says it could not see, `bad …` whatever a healthy agent
//! never leaves behind. What the proofs ask whether recording itself came through.
//!
//! Data flow: files of the folder → [`read`] decodes frame by frame → [`Process`] → lines on
//! stdout; exit status 1 when one was bad.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a command line tool")]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use memgate_wire::spool::{EXTENSION, Extent, state};
use memgate_wire::{Decoded, ErrorCode, Frame, Hello, decode};

/// What one spool tells of its process.
#[derive(Default)]
struct Process {
    hello: Option<Hello>,
    allocations: u64,
    frames: usize,
    /// `goodbye` where there is one; else the process was killed, or replaced itself by another
    /// program.
    end: Option<String>,
    /// Why some of its allocations are not seen: told, so nobody takes it for measured.
    blind: Vec<String>,
    /// Recording stopped for want of room in the spool, or of the right to it: told by its state.
    full: bool,
    /// What should not be.
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

/// Reads the file up to what its control page says is whole.
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
    // A process can be killed between the making of its spool and its first frame.
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
