//! The frame decoder. What it accepts encodes to bytes with the same meaning; the sizes that it asks for and
//! consumes are consistent.

use crate::{decoded, sealed};
use memgate_wire::spool::{Extent, live_counters};
use memgate_wire::{Decoded, decode, encode};

/// Runs one input.
///
/// # Panics
/// When a checked property does not hold; this is a finding.
pub fn run(data: &[u8]) {
    match decode(data, 7) {
        Ok(Decoded::Frame { bytes, .. } | Decoded::Unknown { bytes, .. }) => assert!(bytes <= data.len()),
        Ok(Decoded::Incomplete { bytes }) => assert!(bytes > data.len()),
        Err(e) => assert!(e.offset == 7 && !e.to_string().is_empty()),
    }
    let stream = sealed(data);
    for (frame, t_ns) in decoded(&stream).0 {
        let mut bytes = Vec::new();
        let n = encode(&frame, t_ns, &mut bytes);
        // Numbers may be written longer than needed, so only the meaning is preserved.
        assert_eq!(decode(&bytes, 0), Ok(Decoded::Frame { frame, t_ns, bytes: n }));
    }
    let extent = Extent::of(data);
    assert!(extent.end.is_some() || extent.start == 0);
    let _counters = live_counters(data);
}
