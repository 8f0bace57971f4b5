//! Heap dumps and leak-info buffers: the figures read are consistent, and a snapshot does not differ from
//! itself.

use memgate_formats::malloc_debug::{OutValues, Snapshot, compare, read_heap_dump, read_leak_info};

fn check(snapshot: &Snapshot) {
    let bytes: u128 = snapshot.records.iter().map(|r| u128::from(r.size) * u128::from(r.count)).sum();
    let count: u128 = snapshot.records.iter().map(|r| u128::from(r.count)).sum();
    assert_eq!((bytes, count), (u128::from(snapshot.total_bytes), u128::from(snapshot.total_count)));
    assert!(snapshot.records.windows(2).all(|pair| pair[0].bytes() >= pair[1].bytes()));
    assert!(compare(snapshot, snapshot).is_empty());
    for pc in snapshot.records.iter().flat_map(|record| &record.frames) {
        assert!(snapshot.maps.place(*pc).is_none_or(|place| !place.name.is_empty()));
    }
    assert!(snapshot.oddities.iter().all(|odd| !odd.to_string().is_empty()));
}

/// Runs one input.
///
/// # Panics
/// When a checked property does not hold; this is a finding.
pub fn run(data: &[u8]) {
    if let Ok(snapshot) = read_heap_dump(data) {
        check(&snapshot);
    }
    let Some((how, buffer)) = data.split_first_chunk::<4>() else { return };
    let word = if how[0] & 1 == 0 { 4 } else { 8 };
    let backtrace_size = u64::from(how[1]);
    let out = OutValues {
        overall_size: buffer.len() as u64,
        info_size: (2 + backtrace_size) * word,
        total_memory: (how[0] & 2 == 0).then(|| u64::from(how[2]) << (how[3] & 31)),
        backtrace_size,
        android_api: [None, Some(24), Some(28), Some(34)][usize::from(how[0] >> 2 & 3)],
    };
    if let Ok(snapshot) = read_leak_info(buffer, &out) {
        check(&snapshot);
    }
}
