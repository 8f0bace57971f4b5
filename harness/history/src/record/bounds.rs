//! Keeps what is stored of a run within bounds. Names, stacks and holders come from tests: long texts are cut, and too
//! many entries are refused.

use std::borrow::Cow;

use memgate_model::{HolderStep, Leak, TestReport};

use crate::digest::sha256_hex;

/// Maximum number of leaks in a run.
pub(super) const MOST_LEAKS: usize = 20_000;
/// Maximum number of pairs of a test and its leak.
pub(super) const MOST_SIGHTINGS: usize = 500_000;
/// Maximum number of frames in a stack. Others are cut, and the leak is marked as `truncated`.
pub(super) const MOST_FRAMES: usize = 512;
/// Maximum number of owners of a leak.
const MOST_OWNERS: usize = 20;
/// Bytes of a name that is too long that are shown.
const MOST_SHOWN: usize = 60;
/// Maximum length of a text, in bytes. Longer ones are cut.
pub const LONGEST_TEXT: usize = 4096;
/// Maximum length of the name of a test or leak, in bytes. A longer name of a test is cut and ends with its hash, so
/// that it differs from other cut names.
pub const LONGEST_NAME: usize = 1024;

/// A report that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// It has more of something than is allowed.
    #[error("keep {found} {what}: {most} are the most of a run")]
    TooMany {
        /// The kind of entry.
        what: &'static str,
        /// The number of entries.
        found: usize,
        /// The maximum number.
        most: usize,
    },
    /// A name is too long.
    #[error("keep the {what} `{start}…`: its name has {found} bytes, {LONGEST_NAME} are the most")]
    LongName {
        /// The kind of entry.
        what: &'static str,
        /// The start of the name.
        start: String,
        /// Its length.
        found: usize,
    },
    /// An entry without a name cannot be distinguished from others, and has no page address.
    #[error("keep a {0} without a name")]
    NoName(&'static str),
}

const fn is_long(name: &str) -> bool {
    name.len() > LONGEST_NAME
}

/// Refuses a name that is too long.
pub(super) fn not_long(what: &'static str, name: &str) -> Result<(), RecordError> {
    if !is_long(name) {
        return Ok(());
    }
    let start = name.get(..name.floor_char_boundary(MOST_SHOWN)).unwrap_or_default();
    Err(RecordError::LongName { what, start: start.to_owned(), found: name.len() })
}

/// The name of a test. A name that is too long becomes its beginning and the hash of the whole name.
pub(super) fn name_of(test: &TestReport) -> Cow<'_, str> {
    if !is_long(&test.id) {
        return Cow::Borrowed(&test.id);
    }
    let hash = sha256_hex(test.id.as_bytes());
    let kept = test.id.floor_char_boundary(LONGEST_NAME - hash.len() - '…'.len_utf8());
    Cow::Owned(format!("{}…{hash}", test.id.get(..kept).unwrap_or_default()))
}

/// Maximum number of other holders of a native leak that are kept.
pub(super) const MOST_OTHERS: usize = 8;

/// A leak with limited lists and texts.
pub(super) fn shortened(leak: &Leak) -> Leak {
    let mut leak = leak.clone();
    leak.waiver = None;
    leak.waived_up_to = None;
    leak.title = cut(&leak.title);
    leak.class = leak.class.as_deref().map(cut);
    leak.truncated |= leak.frames.len() > MOST_FRAMES;
    leak.frames.truncate(MOST_FRAMES);
    leak.holder.truncate(MOST_FRAMES);
    leak.owners.truncate(MOST_OWNERS);
    for owner in &mut leak.owners {
        *owner = cut(owner);
    }
    for frame in &mut leak.frames {
        frame.function = frame.function.as_deref().map(cut);
        frame.file = frame.file.as_deref().map(cut);
        frame.module = cut(&frame.module);
    }
    leak.holder.iter_mut().for_each(shorten_step);
    if let Some(hold) = &mut leak.hold {
        hold.note = hold.note.as_deref().map(cut);
        hold.others.truncate(MOST_OTHERS);
        for other in &mut hold.others {
            // Only the root is shown.
            other.holder.truncate(1);
            other.holder.iter_mut().for_each(shorten_step);
        }
    }
    leak
}

fn shorten_step(step: &mut HolderStep) {
    for text in [&mut step.kind, &mut step.owner, &mut step.name, &mut step.class] {
        *text = cut(text);
    }
}

pub(super) fn cut(text: &str) -> String {
    if text.len() <= LONGEST_TEXT {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(LONGEST_TEXT - '…'.len_utf8());
    format!("{}…", text.get(..end).unwrap_or_default())
}

pub(super) const fn limited(what: &'static str, found: usize, most: usize) -> Result<(), RecordError> {
    if found > most { Err(RecordError::TooMany { what, found, most }) } else { Ok(()) }
}

pub(super) const fn named(what: &'static str, name: &str) -> Result<(), RecordError> {
    if name.is_empty() { Err(RecordError::NoName(what)) } else { Ok(()) }
}
