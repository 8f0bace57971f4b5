//! Reads a whole spool, for tests that check the agent's own output.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use memgate_e2e::{Project, agent, probes};
use memgate_wire::spool::Extent;
use memgate_wire::{Decoded, Frame, decode};

/// Its frames; a damaged or unknown frame fails the test.
pub(crate) fn frames(path: &Path) -> Vec<Frame> {
    let bytes = probes::stream_bytes(path);
    let extent = Extent::of(&bytes);
    let end = extent.end.map_or(bytes.len(), |end| usize::try_from(end).unwrap());
    let (mut at, mut frames) = (usize::try_from(extent.start).unwrap(), Vec::new());
    while at < end {
        let Decoded::Frame { frame, bytes, .. } = decode(&bytes[at..end], at as u64).unwrap() else {
            panic!("{}: no frame at byte {at}", path.display())
        };
        at += bytes;
        frames.push(frame);
    }
    frames
}

/// The output of a program without the agent, with a dormant agent, and with an agent that records it; then
/// the frames of that recording.
pub(crate) fn in_three_ways(program: &Path, project: &Project) -> ([String; 3], Vec<Frame>) {
    let folder = project.folder().join("frames");
    fs::create_dir(&folder).unwrap();
    let targets = [None, Some("exe:/nowhere"), Some("all")];
    let printed = targets.map(|target| {
        let mut command = Command::new(program);
        command.current_dir(project.folder()).env_remove("LD_PRELOAD").stdin(Stdio::null());
        if let Some(target) = target {
            let options = format!("dir={};target={target};wait_ms=0", folder.display());
            command.env("LD_PRELOAD", agent()).env("MEMGATE_AGENT_OPTIONS", options);
        }
        let output = command.output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    });
    let spool = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    (printed, frames(&spool))
}
