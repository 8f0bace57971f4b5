//! Reads a whole spool, for tests that look at what the agent itself says.

use std::fs;
use std::path::Path;

use memgate_wire::spool::Extent;
use memgate_wire::{Decoded, Frame, decode};

/// Its frames; what is damaged or unknown fails the test.
pub(crate) fn frames(path: &Path) -> Vec<Frame> {
    let bytes = fs::read(path).unwrap();
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
