//! Parses the buffer that `get_malloc_leak_info` fills (Android 10 and later: `android_mallopt`, same layout).
//!
//! ```text
//! overall_size / info_size records, little-endian:
//! +0       word   size | (allocated after the fork from the zygote) << 31
//! +word    word   num
//! +2*word  word   pc[backtrace_size], the unused ones 0
//! ```
//! A word has 4 or 8 bytes: `info_size = (2 + backtrace_size) * word` shows which.

use super::aggregate::{Num, TooMuch, Written, aggregate};
use super::{Format, Maps, Record, Snapshot};

const ZYGOTE_CHILD: u64 = 1 << 31;
/// First API level at which `num` is a count.
const COUNTS_SINCE: u32 = 28;

/// Values that the call wrote in addition to the buffer, into variables that were set to zero before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutValues {
    /// Bytes of the buffer.
    pub overall_size: u64,
    /// Bytes of one record.
    pub info_size: u64,
    /// Bytes of all listed allocations; unknown if only the buffer was kept.
    pub total_memory: Option<u64>,
    /// Program counters of one record.
    pub backtrace_size: u64,
    /// API level of the system, if known: up to 27 `num` is not a count.
    pub android_api: Option<u32>,
}

/// Why a buffer cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeakInfoError {
    /// All out values are zero.
    #[error(
        "nothing was measured: all out values are zero, so malloc_debug was off, its options were rejected, or it recorded no stacks yet"
    )]
    NothingMeasured,
    /// The values and the buffer are from different calls.
    #[error("the out values tell of {told} bytes, the buffer has {found}")]
    OtherLength {
        /// `overall_size`.
        told: u64,
        /// Bytes of the buffer.
        found: u64,
    },
    /// The out values contradict themselves.
    #[error(
        "info_size {info_size} does not fit to backtrace_size {backtrace_size}: it is (2 + backtrace_size) words of 4 or 8 bytes"
    )]
    Shape {
        /// The reported value.
        info_size: u64,
        /// The reported value.
        backtrace_size: u64,
    },
    /// The buffer is not a whole number of records.
    #[error("{found} bytes are no whole number of records of {info_size}")]
    PartOfARecord {
        /// Bytes of the buffer.
        found: u64,
        /// The reported value.
        info_size: u64,
    },
    /// A record that no malloc_debug writes: the out values are wrong, or the bytes are no such buffer.
    #[error("byte {offset}: {why} (record {record})")]
    Record {
        /// Which, from 0.
        record: u64,
        /// Where it begins.
        offset: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// More bytes than 64 bits can count.
    #[error("the records add up to more than 2^64 bytes")]
    TooMuch,
}

/// Reads a buffer with its out values.
///
/// # Errors
/// [`LeakInfoError`]: nothing measured, or buffer and values do not fit together.
pub fn read_leak_info(buffer: &[u8], out: &OutValues) -> Result<Snapshot, LeakInfoError> {
    let OutValues { overall_size, info_size, total_memory, backtrace_size, android_api } = *out;
    if (overall_size, info_size, backtrace_size) == (0, 0, 0) && total_memory.unwrap_or(0) == 0 {
        return Err(LeakInfoError::NothingMeasured);
    }
    let found = buffer.len() as u64;
    if overall_size != found {
        return Err(LeakInfoError::OtherLength { told: overall_size, found });
    }
    let (word, format) = word(info_size, backtrace_size)?;
    let step = usize::try_from(info_size)
        .map_err(|_too_large| LeakInfoError::Shape { info_size, backtrace_size })?;
    let chunks = buffer.chunks_exact(step);
    if !chunks.remainder().is_empty() {
        return Err(LeakInfoError::PartOfARecord { found, info_size });
    }
    let mut records = Vec::new();
    let num = match android_api {
        Some(api) if api < COUNTS_SINCE => Num::Doubtful,
        Some(_) => Num::Counts,
        None => Num::Perhaps,
    };
    for (index, bytes) in (0_u64..).zip(chunks) {
        let offset = index.saturating_mul(info_size);
        let record =
            record(bytes, word, num).map_err(|why| LeakInfoError::Record { record: index, offset, why })?;
        records.push(record);
    }
    aggregate(Written {
        format,
        records,
        num,
        stated_total: total_memory,
        backtrace_size: Some(backtrace_size),
        build_fingerprint: None,
        maps: Maps::default(),
        oddities: Vec::new(),
    })
    .map_err(|TooMuch| LeakInfoError::TooMuch)
}

/// The size of a word, and the format.
fn word(info_size: u64, backtrace_size: u64) -> Result<(usize, Format), LeakInfoError> {
    let words = backtrace_size.checked_add(2);
    let fits = |bytes: u64| words.and_then(|words| words.checked_mul(bytes)) == Some(info_size);
    if fits(8) {
        Ok((8, Format::LeakInfo64))
    } else if fits(4) {
        Ok((4, Format::LeakInfo32))
    } else {
        Err(LeakInfoError::Shape { info_size, backtrace_size })
    }
}

fn record(bytes: &[u8], word: usize, meaning: Num) -> Result<Record, &'static str> {
    let mut words = bytes.chunks_exact(word).map(little_endian);
    let (size, num) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if size >> 32 != 0 {
        return Err("a size of more than 32 bits, flag included");
    }
    // Android 7 writes the depth of the stack into `num`. It may be 0.
    if num == 0 && (size == 0 || meaning == Num::Counts) {
        return Err("a record of no allocation");
    }
    let mut frames: Vec<u64> = words.collect();
    let depth = frames.iter().rposition(|pc| *pc != 0).map_or(0, |last| last.saturating_add(1));
    frames.truncate(depth);
    if frames.contains(&0) {
        return Err("a program counter of 0 within the stack");
    }
    frames.shrink_to_fit();
    Ok(Record {
        zygote_child: size & ZYGOTE_CHILD != 0,
        size: size & !ZYGOTE_CHILD,
        count: num,
        frames,
        named: Vec::new(),
    })
}

fn little_endian(word: &[u8]) -> u64 {
    word.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::malloc_debug::Oddity;

    fn words(word: usize, values: &[u64]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()[..word].to_vec()).collect()
    }

    fn out(buffer: &[u8], info_size: u64, backtrace_size: u64, total: u64) -> OutValues {
        let overall_size = buffer.len() as u64;
        OutValues {
            overall_size,
            info_size,
            total_memory: Some(total),
            backtrace_size,
            android_api: Some(28),
        }
    }

    #[test]
    fn both_word_sizes_are_told_by_the_out_values() {
        for (word, format) in [(4, Format::LeakInfo32), (8, Format::LeakInfo64)] {
            let buffer = words(word, &[0x8001_0000, 4, 0x1234, 0x5678, 0, 24, 5, 0x42, 0, 0]);
            let read =
                read_leak_info(&buffer, &out(&buffer, 5 * word as u64, 3, 4 * 65536 + 5 * 24)).unwrap();
            assert_eq!(read.format, format);
            let told: Vec<_> =
                read.records.iter().map(|r| (r.zygote_child, r.size, r.count, r.frames.clone())).collect();
            assert_eq!(told, [(true, 65536, 4, vec![0x1234, 0x5678]), (false, 24, 5, vec![0x42])]);
            assert_eq!(read.oddities, []);
        }
    }

    #[test]
    fn zeros_in_all_out_values_are_no_empty_heap() {
        assert_eq!(read_leak_info(&[], &OutValues::default()), Err(LeakInfoError::NothingMeasured));
        let total = OutValues { total_memory: Some(0), ..OutValues::default() };
        assert_eq!(read_leak_info(&[], &total), Err(LeakInfoError::NothingMeasured));
    }

    #[test]
    fn out_values_of_another_buffer_are_refused_with_the_place() {
        let buffer = words(8, &[24, 1, 7, 0]);
        let told = |change: fn(&mut OutValues)| {
            let mut out = out(&buffer, 32, 2, 24);
            change(&mut out);
            read_leak_info(&buffer, &out).unwrap_err().to_string()
        };
        assert!(
            told(|out| out.overall_size = 6510615555426900570)
                .contains("tell of 6510615555426900570 bytes, the buffer has 32")
        );
        assert!(told(|out| out.info_size = 33).contains("info_size 33 does not fit to backtrace_size 2"));
        assert!(told(|out| out.backtrace_size = u64::MAX).contains("does not fit"));
        assert!(
            told(|out| (out.info_size, out.backtrace_size) = (40, 3))
                .contains("32 bytes are no whole number of records of 40")
        );
        // Read as 32-bit: the upper half of `size` becomes `num`, and so on.
        assert!(
            told(|out| (out.info_size, out.backtrace_size) = (16, 2))
                .contains("byte 0: a record of no allocation")
        );
    }

    #[test]
    fn what_no_writer_writes_is_refused() {
        for (record, why) in [
            ([1 << 32, 1, 5, 5], "more than 32 bits"),
            ([0, 0, 0, 0], "of no allocation"),
            ([8, 0, 5, 5], "of no allocation"),
            ([8, 1, 0, 5], "a program counter of 0"),
        ] {
            let buffer = words(8, &[&[8, 1, 5, 5], &record[..]].concat());
            let error = read_leak_info(&buffer, &out(&buffer, 32, 2, 8)).unwrap_err().to_string();
            assert!(
                error.contains(why) && error.contains("byte 32") && error.contains("record 1"),
                "{error}"
            );
        }
    }

    #[test]
    fn up_to_android_8_every_record_is_one_allocation() {
        // Android 7: the depth of the stack in place of the count.
        let buffer = words(8, &[100, 2, 1, 2, 100, 2, 1, 2, 9, 0, 0, 0]);
        for (android_api, total_memory) in [(Some(24), Some(209)), (Some(24), None), (None, Some(209))] {
            let out = OutValues { android_api, total_memory, ..out(&buffer, 32, 2, 0) };
            let read = read_leak_info(&buffer, &out).unwrap();
            let told: Vec<_> = read.records.iter().map(|record| (record.size, record.count)).collect();
            assert_eq!(told, [(100, 2), (9, 1)], "{android_api:?} {total_memory:?}");
            assert!(read.oddities.contains(&Oddity::NumIsNoCount));
        }
    }
}
