//! Reads APKs within limits: it reads and writes at most as much as an app can contain, whatever the archive claims or
//! unpacks to.

use std::fs;
use std::path::Path;

use memgate_formats::zip::{Damaged, Entry, entries};

use crate::exit::ExpectedError;

/// Maximum size of an APK, and of all its wanted content together.
const LARGEST: u64 = 4 << 30;

/// Calls `each` with every entry whose name is wanted, and its content of at most `largest` bytes.
///
/// # Errors
/// When it cannot be read, is not an APK, is damaged or too large, with `hint`; or an error of `each`.
pub(crate) fn read(
    path: &Path,
    (wanted, largest): (impl Fn(&str) -> bool, u64),
    hint: &str,
    each: impl FnMut(&Entry<'_>, &str, Vec<u8>) -> Result<(), ExpectedError>,
) -> Result<(), ExpectedError> {
    let wrong = |why: String| ExpectedError::Session { path: path.to_owned(), why, hint: hint.to_owned() };
    if fs::metadata(path).map_err(ExpectedError::file("read", path))?.len() > LARGEST {
        return Err(wrong("it is larger than 4 GiB".to_owned()));
    }
    let bytes = fs::read(path).map_err(ExpectedError::file("read", path))?;
    within(LARGEST, &bytes, (wanted, largest), &wrong, each)
}

/// Reads at most `left` bytes of content in total.
fn within(
    mut left: u64,
    bytes: &[u8],
    (wanted, largest): (impl Fn(&str) -> bool, u64),
    wrong: &dyn Fn(String) -> ExpectedError,
    mut each: impl FnMut(&Entry<'_>, &str, Vec<u8>) -> Result<(), ExpectedError>,
) -> Result<(), ExpectedError> {
    let damaged = |why: Damaged| wrong(format!("it is no APK, or damaged: {why}"));
    for entry in entries(bytes).map_err(damaged)? {
        let name = String::from_utf8_lossy(entry.name);
        if !wanted(&name) {
            continue;
        }
        let content = entry.content(largest).map_err(damaged)?;
        left = left
            .checked_sub(content.len() as u64)
            .ok_or_else(|| wrong("what is wanted of it unpacks to more than 4 GiB".to_owned()))?;
        each(&entry, &name, content)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stored entry with this name, followed by a directory that lists it `times` times.
    fn archive(name: &str, content: &str, times: u16) -> Vec<u8> {
        let length = u32::try_from(content.len()).unwrap().to_le_bytes();
        let entry = [&[0; 4], &length[..], &length, &[u8::try_from(name.len()).unwrap(), 0, 0, 0]].concat();
        let mut zip = [&b"PK\x03\x04"[..], &[0; 10], &entry, name.as_bytes(), content.as_bytes()].concat();
        let directory = u32::try_from(zip.len()).unwrap().to_le_bytes();
        for _ in 0..times {
            zip.extend([&b"PK\x01\x02"[..], &[0; 12], &entry, &[0; 14], name.as_bytes()].concat());
        }
        let count = times.to_le_bytes();
        zip.extend([&b"PK\x05\x06"[..], &[0; 4], &count, &count, &[0; 4], &directory, &[0; 2]].concat());
        zip
    }

    /// A directory may list the same content thousands of times.
    #[test]
    fn what_unpacks_to_more_than_an_app_can_have_is_an_error() {
        let zip = archive("lib/x86_64/liba.so", "ELF library", 3);
        let wrong = |why| ExpectedError::Session { path: "app.apk".into(), why, hint: String::new() };
        let read = |left, name: &str| {
            let (mut read, name) = (0, name.to_owned());
            let each = |_: &Entry<'_>, _: &str, content: Vec<u8>| {
                read += content.len();
                Ok(())
            };
            let outcome = within(left, &zip, (|entry: &str| entry.starts_with(&name), 100), &wrong, each);
            (read, outcome.map_err(|why| why.to_string()))
        };
        assert_eq!(read(33, "lib/"), (33, Ok(())));
        let (bytes, why) = read(32, "lib/");
        assert_eq!(bytes, 22);
        assert!(why.unwrap_err().contains("unpacks to more than 4 GiB"));
        assert_eq!(read(0, "assets/"), (0, Ok(())));
    }
}
