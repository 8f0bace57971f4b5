//! The stream reader on a spool or bare stream, with the given or with correct checksums, alone and with its
//! samples: whole frames are delivered, and damage is reported at a place inside the file.

use std::path::Path;

use memgate_wire::spool::{CONTROL_BYTES, MAGIC, offset};

use crate::{file, folder, sealed};
use memgate::reading::stream::{Reader, os_path, read_process};

/// Bytes before the frames: flags, and fields of the control page.
pub(crate) const PREFIX: usize = 24;

/// Runs one input.
///
/// # Panics
/// When a checked property does not hold; this is a finding.
pub fn run(data: &[u8]) {
    let Some((prefix, frames)) = data.split_first_chunk::<PREFIX>() else { return };
    let flags = prefix[0];
    let frames = if flags & 1 == 0 { sealed(frames) } else { frames.to_vec() };
    let mut contents = Vec::new();
    if flags & 2 == 0 {
        contents.resize(CONTROL_BYTES, 0);
        contents[..8].copy_from_slice(&MAGIC);
        contents[offset::PID..offset::PID + 8].copy_from_slice(&prefix[8..16]);
        contents[offset::COMMITTED..offset::COMMITTED + 8].copy_from_slice(&prefix[16..24]);
        if flags & 4 == 0 {
            let whole = (CONTROL_BYTES + frames.len()) as u64;
            contents[offset::COMMITTED..offset::COMMITTED + 8].copy_from_slice(&whole.to_le_bytes());
        }
    }
    contents.extend_from_slice(&frames);
    if flags & 8 != 0 {
        contents.truncate(usize::from(u16::from_le_bytes([prefix[1], prefix[2]])));
    }
    let length = contents.len() as u64;
    if flags & 32 != 0 {
        contents = zstd::encode_all(contents.as_slice(), 1).expect("room for the packed stream");
        if let Some(byte) = contents.get_mut(usize::from(prefix[3])) {
            *byte ^= prefix[4];
        }
    }

    let (memory, _) = file(&contents);
    let mut delivered = 0;
    if let Ok(mut reader) = Reader::new(memory, Path::new("a stream")) {
        let damage = loop {
            match reader.next_frame() {
                Ok(Some(_)) => delivered += 1,
                Ok(None) => break None,
                Err(e) => break Some(e),
            }
        };
        let end = reader.end();
        assert_eq!(end.frames, delivered);
        assert!(end.bytes <= length.max(CONTROL_BYTES as u64), "{end:?}");
        if let Some(damage) = damage {
            assert!(!damage.to_string().is_empty());
            assert!(reader.next_frame().is_err(), "damage is not passed over");
        }
    }
    if flags & 16 != 0 {
        let stream = folder("spool").join("1-1.mgf");
        std::fs::write(&stream, &contents).expect("room for the stream");
        std::fs::write(os_path(&stream), &contents).expect("room for its samples");
        let mut alone = 0_u64;
        if let Ok(end) = read_process(&stream, |_, _| alone += 1) {
            assert!(alone >= end.frames);
        }
    }
}
