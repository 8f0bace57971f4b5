//! Streams to records: the frames of one process, live or from its file, into an `Observer`.

use std::path::Path;

use memgate_analysis::{Observer, ProcessRecord};
use memgate_wire::Frame;
use memgate_wire::spool::state;

use crate::recorder::chain;
use crate::stream;

/// What is wrong with a stream whose carrier could take no more.
pub(super) const NO_ROOM: &str = "recording stopped: there was no room to write \
                                  (a full disk, a limit of file sizes or memory, or a folder out of reach since)";

/// Gives a frame to the observer, from whichever side it comes.
pub(crate) fn push(observer: &mut Observer, frame: Frame, t_ns: u64) {
    match frame {
        Frame::OsSample(_) => observer.push_os(frame, t_ns),
        other => observer.push(other, t_ns),
    }
}

/// The record of a whole stream. Never fails: what is wrong with the stream is part of the record.
#[must_use]
pub fn read_record(path: &Path) -> ProcessRecord {
    let mut observer = Observer::new();
    match stream::read_process(path, |frame, t_ns| push(&mut observer, frame, t_ns)) {
        Ok(end) => match end.state {
            state::FULL => observer.damage(NO_ROOM),
            state::STOPPED if observer.record().errors.is_empty() => {
                observer.damage("recording stopped early".to_owned());
            }
            _ => {}
        },
        Err(why) => observer.damage(format!("failed to {}", chain(&why))),
    }
    observer.into_record()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_stream_gives_a_damaged_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1-1.mgf");
        std::fs::write(&path, [7; 64]).unwrap();
        let record = read_record(&path);
        assert!(record.hello.is_none());
        assert!(record.damaged.unwrap().contains("1-1.mgf"), "the damage names its file");
        assert!(read_record(&folder.path().join("none.mgf")).damaged.is_some());
    }
}
