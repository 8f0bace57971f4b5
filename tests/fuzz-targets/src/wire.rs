//! The frame decoder. What it accepts encodes to the same bytes in meaning; what it asks for and
//! takes is consistent.

use crate::{decoded, sealed};
use memgate_wire::spool::{Extent, live_counters};
use memgate_wire::{Decoded, decode, encode};

/// One input.
///
/// # Panics
/// Where it does not hold: that is a finding.
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
        // Numbers may be written longer than needed, so only the meaning comes back.
        assert_eq!(decode(&bytes, 0), Ok(Decoded::Frame { frame, t_ns, bytes: n }));
    }
    let extent = Extent::of(data);
    assert!(extent.end.is_some() || extent.start == 0);
    let _counters = live_counters(data);
}
