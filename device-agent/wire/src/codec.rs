//! Converts frames to bytes and back.

use alloc::vec::Vec;
use core::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::frame::{Frame, FrameType, Order};
use crate::reply::Reply;

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 20;

/// A longer body is refused: snapshots are written in parts that are much smaller.
pub const MAX_BODY_BYTES: usize = 1 << 20;

/// The newest body version of a type.
const fn newest_version(frame_type: FrameType) -> u8 {
    match frame_type {
        FrameType::Boundary | FrameType::Goodbye | FrameType::Order => 2,
        _ => 1,
    }
}

/// The body version that a frame is written in.
const fn body_version(frame: &Frame) -> u8 {
    match frame {
        // Agents of any version accept it.
        Frame::Order(Order { reply: Reply { classes: None, .. }, .. }) => 1,
        _ => newest_version(frame.frame_type()),
    }
}

/// The result of [`decode`].
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once, never stored")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded {
    /// A frame.
    Frame {
        /// The frame.
        frame: Frame,
        /// Monotonic nanoseconds of the writer.
        t_ns: u64,
        /// Bytes it took.
        bytes: usize,
    },
    /// A whole frame of a type or version this reader does not know: skip `bytes`.
    Unknown {
        /// Type number.
        frame_type: u16,
        /// Body version.
        version: u8,
        /// Bytes it takes.
        bytes: usize,
    },
    /// The input ends inside a frame; `bytes` are needed in total.
    Incomplete {
        /// Bytes of the whole frame, as far as known.
        bytes: usize,
    },
}

/// A frame that cannot be used. Everything before `offset` was good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    /// Offset of the damaged frame, as given to [`decode`].
    pub offset: u64,
    /// What is wrong with the frame.
    pub kind: DecodeErrorKind,
}

/// What is wrong with a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecodeErrorKind {
    /// The body is longer than [`MAX_BODY_BYTES`].
    TooLong(u32),
    /// The checksum does not fit.
    Checksum,
    /// The body of a known type and version does not parse.
    Body(FrameType),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "damaged frame at byte {}: ", self.offset)?;
        match &self.kind {
            DecodeErrorKind::TooLong(n) => {
                write!(f, "its body claims {n} bytes, {MAX_BODY_BYTES} are allowed")
            }
            DecodeErrorKind::Checksum => write!(f, "its checksum does not fit"),
            DecodeErrorKind::Body(t) => write!(f, "its body is not that of a {t:?} frame"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// Appends `frame` to `out`.
///
/// Returns the bytes appended, or 0 and an unchanged `out` if the body exceeds [`MAX_BODY_BYTES`]. A writer that
/// splits its snapshots never exceeds it.
pub fn encode(frame: &Frame, t_ns: u64, out: &mut Vec<u8>) -> usize {
    let at = out.len();
    let frame_type = frame.frame_type();
    let Some(body) = body(frame) else { return 0 };
    let Some(length) = u32::try_from(body.len()).ok().filter(|_| body.len() <= MAX_BODY_BYTES) else {
        return 0;
    };
    let mut head = [0_u8; 16];
    let [l0, l1, l2, l3] = length.to_le_bytes();
    let [t0, t1] = (frame_type as u16).to_le_bytes();
    let [n0, n1, n2, n3, n4, n5, n6, n7] = t_ns.to_le_bytes();
    head.copy_from_slice(&[l0, l1, l2, l3, t0, t1, body_version(frame), 0, n0, n1, n2, n3, n4, n5, n6, n7]);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&head), &body);
    out.extend_from_slice(&head);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&body);
    out.len().saturating_sub(at)
}

/// Reads the frame at the start of `input`. `offset` is used only in errors.
///
/// # Errors
/// A damaged frame, with its offset.
pub fn decode(input: &[u8], offset: u64) -> Result<Decoded, DecodeError> {
    let (known, version, body, t_ns) = match open(input, offset)? {
        Opened::Known { known, version, body, t_ns } => (known, version, body, t_ns),
        Opened::Unknown { frame_type, version, bytes } => {
            return Ok(Decoded::Unknown { frame_type, version, bytes });
        }
        Opened::Incomplete { bytes } => return Ok(Decoded::Incomplete { bytes }),
    };
    let frame = parse(known, version, body);
    let frame = frame.ok_or(DecodeError { offset, kind: DecodeErrorKind::Body(known) })?;
    Ok(Decoded::Frame { frame, t_ns, bytes: HEADER_BYTES.saturating_add(body.len()) })
}

/// Reads an order, the only frame that an agent accepts. Returns `None` if it is no order, or is damaged.
#[must_use]
pub fn decode_order(input: &[u8]) -> Option<Order> {
    match open(input, 0) {
        Ok(Opened::Known { known: FrameType::Order, version, body, .. }) => order(version, body),
        _ => None,
    }
}

enum Opened<'a> {
    Known { known: FrameType, version: u8, body: &'a [u8], t_ns: u64 },
    Unknown { frame_type: u16, version: u8, bytes: usize },
    Incomplete { bytes: usize },
}

/// The body of the frame at the start of `input`, if the checksum is right.
fn open(input: &[u8], offset: u64) -> Result<Opened<'_>, DecodeError> {
    let Some((head, rest)) = input.split_first_chunk::<HEADER_BYTES>() else {
        return Ok(Opened::Incomplete { bytes: HEADER_BYTES });
    };
    let [l0, l1, l2, l3, t0, t1, version, flags, n0, n1, n2, n3, n4, n5, n6, n7, c0, c1, c2, c3] = *head;
    let length = u32::from_le_bytes([l0, l1, l2, l3]);
    let frame_type = u16::from_le_bytes([t0, t1]);
    let fail = |kind| DecodeError { offset, kind };
    let body_bytes = usize::try_from(length).unwrap_or(usize::MAX);
    if body_bytes > MAX_BODY_BYTES {
        return Err(fail(DecodeErrorKind::TooLong(length)));
    }
    let bytes = HEADER_BYTES.saturating_add(body_bytes);
    let Some(body) = rest.get(..body_bytes) else { return Ok(Opened::Incomplete { bytes }) };
    let checked = head.get(..16).unwrap_or_default();
    if crc32c::crc32c_append(crc32c::crc32c(checked), body) != u32::from_le_bytes([c0, c1, c2, c3]) {
        return Err(fail(DecodeErrorKind::Checksum));
    }
    let known = FrameType::from_number(frame_type)
        .filter(|known| (1..=newest_version(*known)).contains(&version) && flags == 0);
    let Some(known) = known else {
        return Ok(Opened::Unknown { frame_type, version, bytes });
    };
    let t_ns = u64::from_le_bytes([n0, n1, n2, n3, n4, n5, n6, n7]);
    Ok(Opened::Known { known, version, body, t_ns })
}

fn body(frame: &Frame) -> Option<Vec<u8>> {
    fn bytes<T: Serialize>(value: &T) -> Option<Vec<u8>> {
        postcard::to_allocvec(value).ok()
    }
    match frame {
        Frame::Hello(f) => bytes(f),
        Frame::Counters(f) => bytes(f),
        Frame::Boundary(f) => bytes(f),
        Frame::NativeSnapshot(f) => bytes(f),
        Frame::Modules(f) => bytes(f),
        Frame::Stacks(f) => bytes(f),
        Frame::Event(f) => bytes(f),
        Frame::Log(f) => bytes(f),
        Frame::Error(f) => bytes(f),
        Frame::Goodbye(f) => bytes(f),
        Frame::OsSample(f) => bytes(f),
        Frame::Order(Order { boundary, reply: Reply { bits, classes: None } }) => bytes(&(boundary, bits)),
        Frame::Order(Order { boundary, reply: Reply { bits, classes: Some(classes) } }) => {
            bytes(&(boundary, bits, classes))
        }
        Frame::LeakInfo(f) => bytes(f),
        Frame::Handles(f) => bytes(f),
        Frame::Mappings(f) => bytes(f),
        Frame::Freed(f) => bytes(f),
        Frame::NativeCopy(f) => bytes(f),
        Frame::NativeHolders(f) => bytes(f),
        Frame::JvmInfo(f) => bytes(f),
        Frame::Classes(f) => bytes(f),
        Frame::HeapHistogram(f) => bytes(f),
        Frame::JavaState(f) => bytes(f),
        Frame::JavaStacks(f) => bytes(f),
        Frame::JavaSites(f) => bytes(f),
        Frame::Holders(f) => bytes(f),
        Frame::JavaExhausted(f) => bytes(f),
        Frame::JavaObjects(f) => bytes(f),
    }
}

/// The body must be used completely: remaining bytes mean a different layout.
fn all<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Some(value),
        _ => None,
    }
}

/// Reads an order. Version 1 has no classes.
fn order(version: u8, body: &[u8]) -> Option<Order> {
    let (boundary, bits, classes) = if version == 1 {
        let (boundary, bits) = all(body)?;
        (boundary, bits, None)
    } else {
        let (boundary, bits, classes) = all(body)?;
        (boundary, bits, Some(classes))
    };
    Some(Order { boundary, reply: Reply { bits, classes } })
}

fn parse(frame_type: FrameType, version: u8, body: &[u8]) -> Option<Frame> {
    /// Version 1 lacks the last number of version 2, `recording_ns`. With a 0 appended, it is a body of version 2.
    fn with_cost<T: DeserializeOwned>(version: u8, body: &[u8]) -> Option<T> {
        if version == 1 { all(&[body, &[0]].concat()) } else { all(body) }
    }
    Some(match frame_type {
        FrameType::Hello => Frame::Hello(all(body)?),
        FrameType::Counters => Frame::Counters(all(body)?),
        FrameType::Boundary => Frame::Boundary(with_cost(version, body)?),
        FrameType::NativeSnapshot => Frame::NativeSnapshot(all(body)?),
        FrameType::Modules => Frame::Modules(all(body)?),
        FrameType::Stacks => Frame::Stacks(all(body)?),
        FrameType::Event => Frame::Event(all(body)?),
        FrameType::Log => Frame::Log(all(body)?),
        FrameType::Error => Frame::Error(all(body)?),
        FrameType::Goodbye => Frame::Goodbye(with_cost(version, body)?),
        FrameType::OsSample => Frame::OsSample(all(body)?),
        FrameType::Order => Frame::Order(order(version, body)?),
        FrameType::LeakInfo => Frame::LeakInfo(all(body)?),
        FrameType::Handles => Frame::Handles(all(body)?),
        FrameType::Mappings => Frame::Mappings(all(body)?),
        FrameType::Freed => Frame::Freed(all(body)?),
        FrameType::NativeCopy => Frame::NativeCopy(all(body)?),
        FrameType::NativeHolders => Frame::NativeHolders(all(body)?),
        FrameType::JvmInfo => Frame::JvmInfo(all(body)?),
        FrameType::Classes => Frame::Classes(all(body)?),
        FrameType::HeapHistogram => Frame::HeapHistogram(all(body)?),
        FrameType::JavaState => Frame::JavaState(all(body)?),
        FrameType::JavaStacks => Frame::JavaStacks(all(body)?),
        FrameType::JavaSites => Frame::JavaSites(all(body)?),
        FrameType::Holders => Frame::Holders(all(body)?),
        FrameType::JavaExhausted => Frame::JavaExhausted(all(body)?),
        FrameType::JavaObjects => Frame::JavaObjects(all(body)?),
    })
}

impl Frame {
    /// The type this frame has on the wire.
    #[must_use]
    pub const fn frame_type(&self) -> FrameType {
        match self {
            Self::Hello(_) => FrameType::Hello,
            Self::Counters(_) => FrameType::Counters,
            Self::Boundary(_) => FrameType::Boundary,
            Self::NativeSnapshot(_) => FrameType::NativeSnapshot,
            Self::Modules(_) => FrameType::Modules,
            Self::Stacks(_) => FrameType::Stacks,
            Self::Event(_) => FrameType::Event,
            Self::Log(_) => FrameType::Log,
            Self::Error(_) => FrameType::Error,
            Self::Goodbye(_) => FrameType::Goodbye,
            Self::OsSample(_) => FrameType::OsSample,
            Self::Order(_) => FrameType::Order,
            Self::LeakInfo(_) => FrameType::LeakInfo,
            Self::Handles(_) => FrameType::Handles,
            Self::Mappings(_) => FrameType::Mappings,
            Self::Freed(_) => FrameType::Freed,
            Self::NativeCopy(_) => FrameType::NativeCopy,
            Self::NativeHolders(_) => FrameType::NativeHolders,
            Self::JvmInfo(_) => FrameType::JvmInfo,
            Self::Classes(_) => FrameType::Classes,
            Self::HeapHistogram(_) => FrameType::HeapHistogram,
            Self::JavaState(_) => FrameType::JavaState,
            Self::JavaStacks(_) => FrameType::JavaStacks,
            Self::JavaSites(_) => FrameType::JavaSites,
            Self::Holders(_) => FrameType::Holders,
            Self::JavaExhausted(_) => FrameType::JavaExhausted,
            Self::JavaObjects(_) => FrameType::JavaObjects,
        }
    }
}

impl FrameType {
    /// The type with this number.
    #[must_use]
    pub const fn from_number(number: u16) -> Option<Self> {
        Some(match number {
            1 => Self::Hello,
            2 => Self::Counters,
            3 => Self::Boundary,
            4 => Self::NativeSnapshot,
            5 => Self::Modules,
            6 => Self::Stacks,
            7 => Self::Event,
            8 => Self::Log,
            9 => Self::Error,
            10 => Self::Goodbye,
            11 => Self::OsSample,
            12 => Self::Order,
            13 => Self::LeakInfo,
            14 => Self::Handles,
            15 => Self::NativeCopy,
            16 => Self::NativeHolders,
            17 => Self::Mappings,
            18 => Self::Freed,
            32 => Self::JvmInfo,
            33 => Self::Classes,
            34 => Self::HeapHistogram,
            35 => Self::JavaState,
            36 => Self::JavaStacks,
            37 => Self::JavaSites,
            38 => Self::Holders,
            39 => Self::JavaExhausted,
            40 => Self::JavaObjects,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;
    use alloc::vec;

    use proptest::prelude::*;

    use crate::java::{
        ClassCount, HolderKind, JavaExhausted, JavaObjects, JavaSite, ObjectBorn, ObjectFreed,
    };

    use super::*;
    use crate::frame::{
        Freed, Handle, Handles, LeakInfo, Log, LogLevel, Mapped, MappedKind, Mappings, SnapshotRecord,
    };
    use crate::{AgentCost, Counters, Goodbye, GoodbyeReason, NativeSnapshot, SnapshotScope};

    fn log(text: &str) -> Frame {
        Frame::Log(Log { level: LogLevel::Info, text: String::from(text) })
    }

    #[test]
    fn an_agent_takes_orders_and_nothing_else() {
        let order = Order { boundary: 3, reply: Reply::of(5) };
        let mut bytes = Vec::new();
        encode(&Frame::Order(order), 1, &mut bytes);
        assert_eq!(decode_order(&bytes), Some(order));
        assert_eq!(bytes, framed_at(1, FrameType::Order as u16, 1, &[3, 5]), "as it always was");
        bytes[HEADER_BYTES] ^= 1;
        assert_eq!(decode_order(&bytes), None, "damaged");
        let mut other = Vec::new();
        encode(&Frame::Counters(Counters::default()), 1, &mut other);
        assert_eq!(decode_order(&other), None);
    }

    #[test]
    fn an_order_names_up_to_48_classes_in_version_2() {
        for named in [vec![], vec![300, 1], (1..=48).collect::<Vec<u32>>()] {
            let order = Order { boundary: 3, reply: Reply::explain(named.iter().copied().collect()) };
            let mut bytes = Vec::new();
            let written = encode(&Frame::Order(order), 1, &mut bytes);
            assert_eq!((bytes[6], decode_order(&bytes)), (2, Some(order)));
            let frame = Frame::Order(order);
            assert_eq!(decode(&bytes, 0), Ok(Decoded::Frame { frame, t_ns: 1, bytes: written }));
        }
        let mut body = vec![3, 4, 49];
        body.extend([1; 49]);
        assert_eq!(decode_order(&framed(FrameType::Order as u16, 2, &body)), None, "one too many");
        assert_eq!(decode_order(&framed(FrameType::Order as u16, 2, &body[..5])), None, "cut");
        assert_eq!(decode_order(&framed(FrameType::Order as u16, 1, &[3, 4, 0])), None, "of version 2");
    }

    #[test]
    fn a_frame_comes_back_as_it_went() {
        let snapshot = Frame::NativeSnapshot(NativeSnapshot {
            boundary: 7,
            scope: SnapshotScope::Changes,
            part: 2,
            records: vec![SnapshotRecord { stack: 3, size: 148, count: u64::MAX }],
        });
        let mut bytes = Vec::new();
        let n = encode(&snapshot, 99, &mut bytes);
        assert_eq!(n, bytes.len());
        assert_eq!(decode(&bytes, 0), Ok(Decoded::Frame { frame: snapshot, t_ns: 99, bytes: n }));
    }

    #[test]
    fn a_part_of_the_platforms_list_comes_back_as_it_went() {
        let frame = Frame::LeakInfo(LeakInfo {
            boundary: 3,
            part: 1,
            overall_bytes: 288,
            record_bytes: 144,
            total_bytes: 65_536,
            backtrace_size: 16,
            records: vec![7; 144],
        });
        let mut bytes = Vec::new();
        let written = encode(&frame, 5, &mut bytes);
        assert_eq!(decode(&bytes, 0), Ok(Decoded::Frame { frame, t_ns: 5, bytes: written }));
    }

    #[test]
    fn handles_come_back_as_they_went() {
        let handles = |first| vec![Handle { id: first, stack: 7 }, Handle { id: u32::MAX, stack: 0 }];
        let frame = Frame::Handles(Handles { boundary: 3, descriptors: handles(4), threads: handles(4711) });
        let mut bytes = Vec::new();
        let written = encode(&frame, 5, &mut bytes);
        assert_eq!(decode(&bytes, 0), Ok(Decoded::Frame { frame, t_ns: 5, bytes: written }));
    }

    #[test]
    fn mappings_come_back_as_they_went() {
        use MappedKind::{Anonymous, Break, File, Segment, Shared, Unremoved};
        for (number, kind) in [Anonymous, Shared, File, Break, Segment, Unremoved].iter().enumerate() {
            assert_eq!(
                (usize::from(kind.number()), MappedKind::from_number(kind.number())),
                (number, Some(*kind))
            );
        }
        let mapped = vec![
            Mapped { stack: 7, kind: MappedKind::File.number(), count: 2, bytes: 1 << 40 },
            Mapped { stack: 8, kind: u8::MAX, count: 0, bytes: 0 },
        ];
        let frame = Frame::Mappings(Mappings { boundary: 3, lost: true, mapped });
        let mut bytes = Vec::new();
        let written = encode(&frame, 5, &mut bytes);
        assert_eq!(decode(&bytes, 0), Ok(Decoded::Frame { frame, t_ns: 5, bytes: written }));
    }

    #[test]
    fn tests_of_which_nothing_is_left_come_back_as_they_went() {
        let frame = Frame::Freed(Freed { boundaries: vec![4, u32::MAX] });
        let mut bytes = Vec::new();
        let written = encode(&frame, 5, &mut bytes);
        assert_eq!(decode(&bytes, 0), Ok(Decoded::Frame { frame, t_ns: 5, bytes: written }));
    }

    #[test]
    fn java_frames_come_back_as_they_went() {
        let site = JavaSite { stack: 9, class: 3, samples: 2, bytes: u64::MAX };
        let exhausted = JavaExhausted {
            what: "Java heap space".into(),
            flags: 3,
            heap_used: Some(1 << 40),
            heap_max: None,
            classes: vec![ClassCount { class: 3, instances: 7, bytes: 112 }],
            sites: vec![site],
            dump: Some("/s/java_pid7.hprof".into()),
        };
        let objects = JavaObjects {
            base_ns: u64::MAX,
            lost: 5,
            born: vec![ObjectBorn { object: 1, class: 3, stack: 0, bytes: 24, after_ns: 0 }],
            freed: vec![ObjectFreed { object: 1, after_ns: 1_000_000 }],
        };
        for frame in [Frame::JavaExhausted(exhausted), Frame::JavaObjects(objects)] {
            let mut bytes = Vec::new();
            let written = encode(&frame, 11, &mut bytes);
            assert_eq!(decode(&bytes, 0), Ok(Decoded::Frame { frame, t_ns: 11, bytes: written }));
        }
    }

    #[test]
    fn the_kind_of_a_reference_is_its_text_on_the_wire() {
        for (kind, text) in [
            (HolderKind::ClassLoader, "class loader"),
            (HolderKind::from(String::from("static")), "static"),
            (HolderKind::Other(String::from("from the future")), "from the future"),
        ] {
            let bytes = postcard::to_allocvec(&kind).unwrap();
            assert_eq!(bytes, postcard::to_allocvec(text).unwrap());
            assert_eq!(all(&bytes), Some(kind));
        }
    }

    #[test]
    fn every_shorter_input_is_incomplete_not_an_error() {
        let mut bytes = Vec::new();
        let n = encode(&log("half"), 1, &mut bytes);
        for end in 0..n {
            assert!(matches!(decode(&bytes[..end], 0), Ok(Decoded::Incomplete { .. })), "{end}");
        }
    }

    #[test]
    fn one_flipped_bit_is_found_and_its_offset_told() {
        let mut bytes = Vec::new();
        encode(&log("flip"), 1, &mut bytes);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            match decode(&bad, 1234) {
                Err(e) => assert_eq!(e.offset, 1234),
                // A changed length may ask for more bytes than there are, which is not yet an error.
                Ok(Decoded::Incomplete { .. }) => assert!(bit < 32, "bit {bit}"),
                Ok(other) => panic!("bit {bit}: {other:?}"),
            }
        }
    }

    /// A frame as a later version would write it: same framing, other type or body.
    fn foreign(frame_type: u16, version: u8) -> Vec<u8> {
        framed(frame_type, version, b"from the future")
    }

    fn framed(frame_type: u16, version: u8, body: &[u8]) -> Vec<u8> {
        framed_at(5, frame_type, version, body)
    }

    fn framed_at(t_ns: u64, frame_type: u16, version: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&u32::try_from(body.len()).unwrap().to_le_bytes());
        bytes.extend_from_slice(&frame_type.to_le_bytes());
        bytes.extend_from_slice(&[version, 0]);
        bytes.extend_from_slice(&t_ns.to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes), body);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn unknown_types_and_versions_are_skipped_by_their_length() {
        for (t, v) in [(60, 1), (u16::MAX, 9), (FrameType::Log as u16, 2)] {
            let bytes = foreign(t, v);
            let want = Decoded::Unknown { frame_type: t, version: v, bytes: bytes.len() };
            assert_eq!(decode(&bytes, 0), Ok(want));
        }
    }

    #[test]
    fn a_goodbye_of_version_1_told_no_cost_of_recording() {
        let cost = AgentCost { boundary_ns: 300, truncated_stacks: 2, ..AgentCost::default() };
        let goodbye = |cost| {
            let counters = Counters::default();
            Frame::Goodbye(Goodbye { reason: GoodbyeReason::Exit, status: Some(3), counters, cost })
        };
        let body = body(&goodbye(cost)).unwrap();
        let old = framed(FrameType::Goodbye as u16, 1, &body[..body.len() - 1]);
        let want = Decoded::Frame { frame: goodbye(cost), t_ns: 5, bytes: old.len() };
        assert_eq!(decode(&old, 0), Ok(want));
        let mixed = framed(FrameType::Goodbye as u16, 1, &body);
        assert_eq!(decode(&mixed, 0).unwrap_err().kind, DecodeErrorKind::Body(FrameType::Goodbye));
        let (mut new, cost) = (Vec::new(), AgentCost { recording_ns: 77, ..cost });
        let bytes = encode(&goodbye(cost), 5, &mut new);
        assert_eq!(decode(&new, 0), Ok(Decoded::Frame { frame: goodbye(cost), t_ns: 5, bytes }));
    }

    #[test]
    fn a_body_of_another_layout_under_a_known_type_is_an_error() {
        let bytes = foreign(FrameType::OsSample as u16, 1);
        assert_eq!(decode(&bytes, 8).unwrap_err().kind, DecodeErrorKind::Body(FrameType::OsSample));
    }

    #[test]
    fn a_claimed_length_sizes_nothing() {
        let mut bytes = vec![0xff_u8; 64];
        bytes[4] = 1;
        assert_eq!(decode(&bytes, 3).unwrap_err().kind, DecodeErrorKind::TooLong(u32::MAX));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            match decode(&bytes, 0) {
                Ok(Decoded::Frame { bytes: n, .. } | Decoded::Unknown { bytes: n, .. }) => prop_assert!(n <= bytes.len()),
                Ok(Decoded::Incomplete { bytes: n }) => prop_assert!(n > bytes.len()),
                Err(e) => prop_assert_eq!(e.offset, 0),
            }
        }

        #[test]
        fn a_garbage_body_with_a_true_checksum_never_panics(t in 0_u16..42, body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = Vec::new();
            bytes.extend_from_slice(&u32::try_from(body.len()).unwrap().to_le_bytes());
            bytes.extend_from_slice(&t.to_le_bytes());
            bytes.extend_from_slice(&[1, 0]);
            bytes.extend_from_slice(&[0; 8]);
            let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes), &body);
            bytes.extend_from_slice(&crc.to_le_bytes());
            bytes.extend_from_slice(&body);
            let incomplete = matches!(decode(&bytes, 0), Ok(Decoded::Incomplete { .. }));
            prop_assert!(!incomplete);
        }
    }
}
