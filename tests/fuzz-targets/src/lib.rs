//! Fuzz targets: one module for each place that reads bytes from outside.
//!
//! Data flow: an input → [`Target::run`], which panics if a promise does not hold. `fuzz/` provides inputs
//! that libFuzzer generates; `tests/replay.rs` provides the seeds and a fixed series of mutations of each,
//! the same on every run.
//!
//! In a stream, a checksum protects each frame, so blind mutation would never get past it. [`sealed`] turns
//! any bytes into a stream with correct lengths and checksums; [`mutate_frames`] changes the body of one
//! frame, or drops, repeats or exchanges frames, and leaves the rest intact.
#![deny(unsafe_code)]
#![expect(clippy::panic_in_result_fn, reason = "a finding is a panic")]

pub mod adb;
pub mod agent_options;
pub mod agent_socket;
pub mod classfile;
pub mod config;
pub mod elf;
pub mod gtest_list;
pub mod harness_socket;
pub mod heap;
pub mod hprof;
pub mod instrumentation;
pub mod java_session;
pub mod judged;
pub mod malloc_debug;
pub mod mapping;
pub mod meminfo;
pub mod saved;
pub mod session;
pub mod spool;
pub mod unwind;
pub mod wire;

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::PathBuf;

use memgate_wire::{Decoded, Frame, HEADER_BYTES, decode};

/// One place that reads bytes from outside.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Name of its module and of the folder of its seeds.
    pub name: &'static str,
    /// Runs one input.
    pub run: fn(&[u8]),
    /// Offset of the stream of frames in its inputs, if any: it is mutated frame by frame.
    pub frames_at: Option<usize>,
}

/// All targets.
pub const TARGETS: [Target; 20] = [
    Target { name: "adb", run: adb::run, frames_at: None },
    Target { name: "agent_options", run: agent_options::run, frames_at: None },
    Target { name: "agent_socket", run: agent_socket::run, frames_at: None },
    Target { name: "classfile", run: classfile::run, frames_at: None },
    Target { name: "config", run: config::run, frames_at: None },
    Target { name: "elf", run: elf::run, frames_at: None },
    Target { name: "gtest_list", run: gtest_list::run, frames_at: None },
    Target { name: "harness_socket", run: harness_socket::run, frames_at: Some(harness_socket::PREFIX) },
    Target { name: "heap", run: heap::run, frames_at: None },
    Target { name: "hprof", run: hprof::run, frames_at: None },
    Target { name: "instrumentation", run: instrumentation::run, frames_at: None },
    Target { name: "java_session", run: java_session::run, frames_at: Some(java_session::PREFIX) },
    Target { name: "malloc_debug", run: malloc_debug::run, frames_at: None },
    Target { name: "mapping", run: mapping::run, frames_at: None },
    Target { name: "meminfo", run: meminfo::run, frames_at: None },
    Target { name: "saved", run: saved::run, frames_at: None },
    Target { name: "session", run: session::run, frames_at: Some(session::PREFIX) },
    Target { name: "spool", run: spool::run, frames_at: Some(spool::PREFIX) },
    Target { name: "unwind", run: unwind::run, frames_at: None },
    Target { name: "wire", run: wire::run, frames_at: Some(0) },
];

/// `*` and `?`, by table: a plain reference definition.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let mut row: Vec<bool> = (0..=text.len()).map(|n| n == 0).collect();
    for p in pattern {
        let mut next = vec![row[0] && *p == b'*'];
        for (i, t) in text.iter().enumerate() {
            let here = if *p == b'*' { next[i] || row[i + 1] } else { row[i] && (*p == b'?' || p == t) };
            next.push(here);
        }
        row = next;
    }
    row[text.len()]
}

/// The frames of `stream` by their lengths; the last one is cut at the end of the bytes.
fn frames(stream: &[u8]) -> Vec<Range<usize>> {
    let (mut frames, mut at) = (Vec::new(), 0);
    while let Some(length) = stream.get(at..at + HEADER_BYTES).and_then(<[u8]>::first_chunk) {
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let end = (at + HEADER_BYTES).saturating_add(length).min(stream.len());
        frames.push(at..end);
        at = end;
    }
    frames
}

/// The same bytes, with every length cut to the available bytes and every checksum corrected.
#[must_use]
pub fn sealed(stream: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(stream.len());
    for range in frames(stream) {
        let Some((head, body)) = stream[range].split_at_checked(HEADER_BYTES) else { continue };
        let mut head = head[..16].to_vec();
        head[..4].copy_from_slice(&u32::try_from(body.len()).unwrap_or(0).to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&head), body);
        out.extend_from_slice(&head);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(body);
    }
    out
}

/// The frames of a stream up to the first damaged one, and whether there is a damaged one.
#[must_use]
pub fn decoded(stream: &[u8]) -> (Vec<(Frame, u64)>, bool) {
    let (mut out, mut at) = (Vec::new(), 0);
    while at < stream.len() {
        match decode(&stream[at..], at as u64) {
            Ok(Decoded::Frame { frame, t_ns, bytes }) => {
                out.push((frame, t_ns));
                at += bytes;
            }
            Ok(Decoded::Unknown { bytes, .. }) => at += bytes,
            Ok(Decoded::Incomplete { .. }) | Err(_) => return (out, true),
        }
    }
    (out, false)
}

/// Mutates `data[prefix..]` as a stream of frames. `change` mutates plain bytes; returns the new size.
pub fn mutate_frames(
    data: &mut [u8],
    size: usize,
    max_size: usize,
    seed: u32,
    prefix: usize,
    mut change: impl FnMut(&mut [u8], usize, usize) -> usize,
) -> usize {
    let stream = data.get(prefix..size).unwrap_or_default();
    let all = frames(stream);
    if all.is_empty() || seed & 7 == 0 {
        return change(data, size, max_size);
    }
    let pick = |n: u32| {
        let at = usize::try_from(seed >> n).unwrap_or(0) % all.len();
        stream[all[at].clone()].to_vec()
    };
    let at = usize::try_from(seed >> 3).unwrap_or(0) % all.len();
    let mut whole: Vec<Vec<u8>> = all.iter().map(|range| stream[range.clone()].to_vec()).collect();
    match (seed >> 20) & 15 {
        0 => drop(whole.remove(at)),
        1 => whole.insert(at, pick(11)),
        2 => whole.push(pick(11)),
        3 => {
            let other = usize::try_from(seed >> 11).unwrap_or(0) % all.len();
            whole.swap(at, other);
        }
        // The header except length and checksum: type, version, flags, time.
        4 => drop(change(&mut whole[at][4..16], 12, 12)),
        _ => {
            let frame = &mut whole[at];
            let body = frame.len() - HEADER_BYTES;
            let room = (body * 2 + 32).min(max_size);
            frame.resize(HEADER_BYTES + room, 0);
            let new = change(&mut frame[HEADER_BYTES..], body, room);
            frame.truncate(HEADER_BYTES + new);
            let length = u32::try_from(new).unwrap_or(0);
            frame[..4].copy_from_slice(&length.to_le_bytes());
        }
    }
    let mut new = prefix;
    for frame in whole {
        let Some(room) = data.get_mut(new..new + frame.len()).filter(|_| new + frame.len() <= max_size)
        else {
            break;
        };
        room.copy_from_slice(&frame);
        new += frame.len();
    }
    new
}

/// An in-memory file with these contents, and a path by which this process can open it.
#[must_use]
pub fn file(contents: &[u8]) -> (File, PathBuf) {
    use std::os::fd::AsRawFd;
    let memory = rustix::fs::memfd_create("fuzz", rustix::fs::MemfdFlags::CLOEXEC);
    let mut file = File::from(memory.expect("memory for a file"));
    file.write_all(contents).expect("room in memory");
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    (file, path)
}

/// A folder for this process and target only.
#[must_use]
pub fn folder(target: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("memgate-fuzz-{}", std::process::id())).join(target);
    std::fs::create_dir_all(&folder).expect("a folder for the target's files");
    folder
}
