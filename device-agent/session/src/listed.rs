//! Writes the lists of Android's malloc debugging as frames before a boundary, but only if memgate's own tracker does
//! not run, so that nothing is counted twice. Outside of Android, a process has malloc debugging if a library provides
//! Android's functions. This is checked once per process.

use memgate_ffi::malloc_debug::{Listed, Source};
use memgate_wire::{Frame, LeakInfo};

use crate::recording;
use crate::stream::Session;

/// Maximum bytes of records in a frame.
const PART_BYTES: usize = 256 << 10;

impl Session {
    /// Writes the current list, if malloc debugging is on. Making a list blocks every `malloc` of the app.
    pub(crate) fn append_listed(&mut self, boundary: u32) {
        if recording::is_tracking() {
            return;
        }
        let Some(Listed { records, record_bytes, total_bytes, backtrace_size }) =
            self.lists.get_or_init(Source::find).and_then(Source::take)
        else {
            return;
        };
        // Writes the modules that contain these addresses.
        self.append_modules();
        let records_per_part = PART_BYTES.checked_div(record_bytes).unwrap_or(0).max(1);
        let whole = records_per_part.saturating_mul(record_bytes).max(1);
        for (part, chunk) in (0..).zip(records.chunks(whole)) {
            if !self.make_room(chunk.len().saturating_mul(3)) {
                return;
            }
            self.append(&Frame::LeakInfo(LeakInfo {
                boundary,
                part,
                overall_bytes: records.len() as u64,
                record_bytes: record_bytes as u64,
                total_bytes: total_bytes as u64,
                backtrace_size: backtrace_size as u64,
                records: chunk.to_vec(),
            }));
            self.flush();
        }
    }
}
