//! What Android's malloc debugging lists, as frames before a boundary: only where memgate's own
//! tracker does not run, so that nothing is counted twice. A process of another system has it where
//! a library brings Android's functions; one look per process tells.

use memgate_ffi::malloc_debug::{Listed, Source};
use memgate_wire::{Frame, LeakInfo};

use crate::recording;
use crate::stream::Session;

/// Bytes of records in a frame.
const PART_BYTES: usize = 256 << 10;

impl Session {
    /// Where malloc debugging is on, what is listed now. Each list holds up every `malloc` of the
    /// app while it is made.
    pub(crate) fn append_listed(&mut self, boundary: u32) {
        if recording::is_tracking() {
            return;
        }
        let Some(Listed { records, record_bytes, total_bytes, backtrace_size }) =
            self.lists.get_or_init(Source::find).and_then(Source::take)
        else {
            return;
        };
        // Whose addresses these are.
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
