//! A device's information on a process: `dumpsys meminfo`, as text and as protobuf, and the texts of `/proc`.
//! Line ends do not matter, a line that may continue yields nothing, truncation yields no other figures, and
//! every answer has figures.

use memgate_formats::meminfo::{ProcessMemory, read_meminfo, read_meminfo_proto};
use memgate_formats::proc_text::{read_smaps_rollup, read_status};

fn has_figures(processes: &[ProcessMemory]) {
    for process in processes {
        assert!(process.rows["TOTAL"].values().any(|figure| *figure > 0));
    }
    assert!(!processes.is_empty());
}

/// The text with the line ends of an old device's terminal.
fn with_returns(text: &[u8]) -> Vec<u8> {
    let mut returned = Vec::new();
    for byte in text {
        returned.extend((*byte == b'\n').then_some(b'\r'));
        returned.push(*byte);
    }
    returned
}

/// Figures read from the beginning of a text equal those of the whole text, or are missing.
fn cut_off(text: &[u8]) {
    let (half, rest) = text.split_at(text.len() / 2);
    let end = rest.iter().position(|byte| *byte == b'\n').map_or(half.len(), |at| half.len() + at + 1);
    let beginning = &text[..end];
    if let (Ok(cut), Ok(whole)) = (read_status(beginning), read_status(text)) {
        assert_eq!(cut.threads, whole.threads);
        let figures = [(cut.rss, whole.rss), (cut.swap, whole.swap)];
        assert!(figures.iter().all(|(cut, whole)| cut.is_none() || cut == whole), "{figures:?}");
    }
    if let (Ok(cut), Ok(whole)) = (read_smaps_rollup(beginning), read_smaps_rollup(text)) {
        assert_eq!(
            (cut.rss, cut.pss, cut.unique(), cut.swap),
            (whole.rss, whole.pss, whole.unique(), whole.swap)
        );
    }
}

/// Runs one input.
///
/// # Panics
/// When a checked property does not hold; this is a finding.
pub fn run(data: &[u8]) {
    if let Ok(processes) = read_meminfo_proto(data) {
        has_figures(&processes);
        // In protobuf, two concatenated messages are their union.
        let twice = [data, data].concat();
        assert_eq!(read_meminfo_proto(&twice), Ok([processes.clone(), processes].concat()));
    }
    let memory = read_meminfo(data);
    if let Ok(processes) = &memory {
        has_figures(processes);
    }
    let (status, rollup) = (read_status(data), read_smaps_rollup(data));
    let read = memory.is_ok() || status.is_ok() || rollup.is_ok();
    assert!(!read || data.ends_with(b"\n"), "the last line may go on");
    if !data.contains(&b'\r') {
        let returned = with_returns(data);
        assert_eq!(read_meminfo(&returned), memory);
        assert_eq!(read_status(&returned), status);
        assert_eq!(read_smaps_rollup(&returned), rollup);
    }
    cut_off(data);
}
