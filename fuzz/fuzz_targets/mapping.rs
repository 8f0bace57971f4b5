//! A mapping file, and what is retraced with it; and the texts a device answers with.
#![no_main]

use libfuzzer_sys::fuzz_target;
use memgate_formats::mapping::Mapping;
use memgate_formats::meminfo::read_meminfo;
use memgate_formats::proc_text::{read_smaps_rollup, read_status, read_unix_sockets};

fuzz_target!(|data: &[u8]| {
    if let Ok(processes) = read_meminfo(data) {
        assert!(processes.iter().all(|process| process.rows["TOTAL"].values().any(|figure| *figure > 0)));
    }
    let _ = (read_status(data), read_smaps_rollup(data), read_unix_sockets(data));
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (mapping, trace) = text.split_once("\n\n\n").unwrap_or((text, "\tat a.a.a(SourceFile:1)\n"));
    let Ok(mapping) = Mapping::read(mapping) else { return };
    let retraced = mapping.trace(trace);
    assert!(retraced.lines().count() >= trace.lines().count(), "{retraced}");
    if mapping.is_empty() {
        assert_eq!(retraced, trace);
    }
});
