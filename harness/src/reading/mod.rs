//! Reads streams into records.
//!
//! Data flow: the bytes of a file that may still be written, or of a packed one ([`packed`]) → [`stream`]: its frames →
//! lists of Android's malloc debugging become snapshots ([`malloc_debug`]), Java names the original ones → an
//! `Observer`, one for each process.

pub mod malloc_debug;
pub(crate) mod packed;
mod source;
pub mod stream;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use memgate_analysis::{Observer, ProcessRecord, SeenError};
use memgate_wire::spool::state;
use memgate_wire::{ErrorCode, ErrorFrame, Frame};

use self::malloc_debug::MallocDebugAdapter;
use crate::exit::failed_to;
use crate::names::{Mappings, Renamer};

/// The damage of a stream whose carrier was full.
pub(super) const NO_ROOM: &str = "recording stopped: there was no room to write \
                                  (a full disk, a limit of file sizes or memory, or a folder out of reach since)";

/// Records by the name of their stream.
pub type Records = BTreeMap<String, ProcessRecord>;

/// A stream being read: frames in, a record out.
#[derive(Debug)]
pub(crate) struct Reading {
    observer: Observer,
    names: Renamer,
    listed: MallocDebugAdapter,
}

impl Reading {
    pub(crate) fn new(names: Renamer) -> Self {
        Self { observer: Observer::new(), names, listed: MallocDebugAdapter::default() }
    }

    /// Adds a live frame or one from a file.
    pub(crate) fn push(&mut self, frame: Frame, t_ns: u64) {
        let Self { observer, names, listed } = self;
        listed.frame(names.frame(frame), |frame| observer.push(frame, t_ns));
        if let Some(why) = names.complaint().or_else(|| listed.complaint()) {
            observer.damage(why);
        }
    }

    /// Marks the stream as damaged.
    pub(crate) fn damage(&mut self, what: impl Into<String>) {
        self.observer.damage(what);
    }

    /// The record so far.
    pub(crate) fn record(&self) -> &ProcessRecord {
        self.observer.record()
    }

    /// The record, at the end of the stream.
    pub(crate) fn end(&mut self) -> ProcessRecord {
        std::mem::take(&mut self.observer).into_record()
    }
}

/// The record of a whole stream. Never fails: errors of the stream are part of the record.
#[must_use]
pub fn read_record(path: &Path, names: &Arc<Mappings>) -> ProcessRecord {
    let mut reading = Reading::new(names.renamer_of(path));
    match stream::read_process(path, |frame, t_ns| reading.push(frame, t_ns)) {
        Ok(end) => match end.state {
            state::FULL => reading.damage(NO_ROOM),
            state::STOPPED if reading.record().errors.is_empty() => {
                reading.damage("recording stopped early".to_owned());
            }
            _ => {}
        },
        Err(why) => reading.damage(failed_to(&why)),
    }
    reading.end()
}

/// The same for a process that memgate followed. Its descriptors and threads are in a file next to the stream. If that
/// file was lost, it is unknown what a test left of them: this is an error.
#[must_use]
pub fn read_followed(path: &Path, names: &Arc<Mappings>) -> ProcessRecord {
    let mut record = read_record(path, names);
    let samples = stream::os_path(path);
    if fs::metadata(&samples).map_or(0, |file| file.len()) == 0 {
        let name = samples.file_name().unwrap_or_default().to_string_lossy();
        let text = format!("its descriptors and threads are not in the session ({name} is missing or empty)");
        record.errors.push(SeenError { t_ns: 0, error: ErrorFrame { code: ErrorCode::Unlisted, text } });
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_stream_gives_a_damaged_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1-1.mgf");
        std::fs::write(&path, [7; 64]).unwrap();
        let names = Arc::default();
        let record = read_record(&path, &names);
        assert!(record.hello.is_none());
        assert!(record.damaged.unwrap().contains("1-1.mgf"), "the damage names its file");
        assert!(read_record(&folder.path().join("none.mgf"), &names).damaged.is_some());
    }
}
