//! Turns the written records into one per flag, size and stack, and decides what `num` means.

use super::{Format, Maps, Oddity, Record, Snapshot};

/// How far `num` can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Num {
    /// It is a count: Android 9 and later.
    Counts,
    /// The stated total decides whether it is a count. Without a total it is one.
    Perhaps,
    /// Android 8.1 and before: it is a count only if the stated total confirms this.
    Doubtful,
}

/// The input as it was read, before adding up.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) format: Format,
    pub(super) records: Vec<Record>,
    pub(super) num: Num,
    pub(super) stated_total: Option<u64>,
    pub(super) backtrace_size: Option<u64>,
    pub(super) build_fingerprint: Option<String>,
    pub(super) maps: Maps,
    /// Oddities found so far.
    pub(super) oddities: Vec<Oddity>,
}

/// The figures do not fit into 64 bits: no process has that much memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooMuch;

pub(super) fn aggregate(written: Written) -> Result<Snapshot, TooMuch> {
    let Written {
        format,
        mut records,
        num,
        stated_total,
        backtrace_size,
        build_fingerprint,
        maps,
        mut oddities,
    } = written;
    let as_written = len(&records);
    if !num_counts(&records, num, stated_total) && records.iter().any(|record| record.count != 1) {
        records.iter_mut().for_each(|record| record.count = 1);
        oddities.push(Oddity::NumIsNoCount);
    }
    let mut records = merged(records)?;
    records.sort_by(|a, b| b.bytes().cmp(&a.bytes()).then_with(|| key(a).cmp(&key(b))));
    let (total_bytes, total_count) = totals(&records).ok_or(TooMuch)?;
    if len(&records) != as_written {
        oddities.push(Oddity::Duplicates { records: as_written, distinct: len(&records) });
    }
    if let Some(stated) = stated_total.filter(|stated| *stated != total_bytes) {
        oddities.push(Oddity::TotalDiffers { stated, summed: total_bytes });
    }
    oddities.extend(about_stacks(&records, backtrace_size, &maps));
    Ok(Snapshot {
        format,
        records,
        total_bytes,
        total_count,
        backtrace_size,
        build_fingerprint,
        maps,
        oddities,
    })
}

fn num_counts(records: &[Record], num: Num, stated_total: Option<u64>) -> bool {
    let times_num = totals(records).map(|(bytes, _)| bytes);
    let once = records.iter().try_fold(0_u64, |sum, record| sum.checked_add(record.size));
    match (num, stated_total) {
        (Num::Counts, _) | (Num::Perhaps, None) => true,
        (Num::Perhaps, stated) => times_num == stated || once != stated,
        (Num::Doubtful, None) => false,
        (Num::Doubtful, stated) => times_num == stated,
    }
}

fn merged(mut records: Vec<Record>) -> Result<Vec<Record>, TooMuch> {
    records.sort_by(|a, b| key(a).cmp(&key(b)));
    let mut distinct: Vec<Record> = Vec::new();
    for record in records {
        match distinct.last_mut() {
            Some(last) if key(last) == key(&record) => {
                last.count = last.count.checked_add(record.count).ok_or(TooMuch)?;
                if last.named.is_empty() {
                    last.named = record.named;
                }
            }
            _ => distinct.push(record),
        }
    }
    Ok(distinct)
}

fn key(record: &Record) -> (bool, u64, &[u64]) {
    (record.zygote_child, record.size, &record.frames)
}

/// Bytes and allocations.
fn totals(records: &[Record]) -> Option<(u64, u64)> {
    records.iter().try_fold((0_u64, 0_u64), |(bytes, count), record| {
        let more = record.size.checked_mul(record.count)?;
        Some((bytes.checked_add(more)?, count.checked_add(record.count)?))
    })
}

fn about_stacks(records: &[Record], backtrace_size: Option<u64>, maps: &Maps) -> Vec<Oddity> {
    let mut odd = Vec::new();
    let (mut count, mut bytes, mut full, mut frames) = (0_u64, 0_u64, 0_u64, 0_u64);
    for record in records {
        if record.frames.is_empty() {
            count = count.saturating_add(record.count);
            bytes = bytes.saturating_add(record.bytes());
        } else if Some(record.frames.len() as u64) == backtrace_size {
            full = full.saturating_add(1);
        }
        let nowhere = record.frames.iter().filter(|pc| maps.place(**pc).is_none()).count();
        frames = frames.saturating_add(nowhere as u64);
    }
    if count > 0 {
        odd.push(Oddity::NoStack { count, bytes });
    }
    match backtrace_size {
        Some(1) if full > 0 => odd.push(Oddity::OneFrame),
        Some(backtrace_size) if full > 0 => odd.push(Oddity::FullStacks { records: full, backtrace_size }),
        _ => {}
    }
    if frames > 0 && !maps.is_empty() {
        odd.push(Oddity::AnonymousFrames { frames });
    }
    odd
}

fn len(records: &[Record]) -> u64 {
    records.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(size: u64, count: u64, frames: &[u64]) -> Record {
        Record { zygote_child: false, size, count, frames: frames.to_vec(), named: Vec::new() }
    }

    fn read(num: Num, stated_total: Option<u64>, records: &[Record]) -> Result<Snapshot, TooMuch> {
        aggregate(Written {
            format: Format::LeakInfo64,
            records: records.to_vec(),
            num,
            stated_total,
            backtrace_size: Some(16),
            build_fingerprint: None,
            maps: Maps::default(),
            oddities: Vec::new(),
        })
    }

    /// Two sites that allocate alternately: Android 9 and later write one record for each allocation.
    #[test]
    fn a_leak_that_alternates_with_another_shows_as_growth_of_one_record() {
        let written: Vec<_> =
            (0..10).flat_map(|_| [record(24, 1, &[1, 9]), record(24, 1, &[2, 9])]).collect();
        let read = read(Num::Counts, Some(480), &written).unwrap();
        let counts: Vec<_> = read.records.iter().map(|record| (record.count, record.frames[0])).collect();
        assert_eq!(counts, [(10, 1), (10, 2)]);
        assert_eq!(read.oddities, [Oddity::Duplicates { records: 20, distinct: 2 }]);
        assert_eq!((read.total_bytes, read.total_count), (480, 20));
    }

    #[test]
    fn the_flag_of_the_zygote_keeps_records_apart() {
        let child = Record { zygote_child: true, ..record(8, 1, &[1]) };
        assert_eq!(read(Num::Counts, None, &[record(8, 1, &[1]), child]).unwrap().records.len(), 2);
    }

    #[test]
    fn the_stated_total_decides_whether_num_counts() {
        let depth_as_num = [record(100, 3, &[1, 2, 3]), record(100, 3, &[1, 2, 3]), record(7, 2, &[4, 5])];
        let counts = [record(100, 3, &[1, 2, 3])];
        for (num, stated, records, want, odd) in [
            (Num::Doubtful, Some(207), &depth_as_num[..], 207, vec!["num_is_no_count", "duplicates"]),
            (Num::Perhaps, Some(207), &depth_as_num[..], 207, vec!["num_is_no_count", "duplicates"]),
            (Num::Doubtful, None, &depth_as_num[..], 207, vec!["num_is_no_count", "duplicates"]),
            (Num::Doubtful, Some(300), &counts[..], 300, vec![]),
            (Num::Doubtful, Some(5), &counts[..], 100, vec!["num_is_no_count", "total_differs"]),
            (Num::Perhaps, Some(5), &counts[..], 300, vec!["total_differs"]),
            (Num::Perhaps, None, &counts[..], 300, vec![]),
            (Num::Counts, Some(100), &counts[..], 300, vec!["total_differs"]),
        ] {
            let read = read(num, stated, records).unwrap();
            let kinds: Vec<_> = read.oddities.iter().map(Oddity::kind).collect();
            assert_eq!((read.total_bytes, kinds), (want, odd), "{num:?} {stated:?}");
        }
    }

    #[test]
    fn figures_beyond_all_memory_are_refused() {
        assert_eq!(read(Num::Counts, None, &[record(u64::MAX, 2, &[])]), Err(TooMuch));
        assert_eq!(read(Num::Counts, None, &[record(0, u64::MAX, &[]), record(0, 1, &[])]), Err(TooMuch));
        assert_eq!(
            read(Num::Counts, None, &[record(1 << 63, 1, &[1]), record(1 << 63, 1, &[2])]),
            Err(TooMuch)
        );
    }

    #[test]
    fn stacks_that_are_empty_or_full_are_told() {
        let deep: Vec<u64> = (1..=16).collect();
        let read = read(Num::Counts, None, &[record(5, 2, &[]), record(9, 1, &deep)]).unwrap();
        let want =
            [Oddity::NoStack { count: 2, bytes: 10 }, Oddity::FullStacks { records: 1, backtrace_size: 16 }];
        assert_eq!(read.oddities, want);
    }
}
