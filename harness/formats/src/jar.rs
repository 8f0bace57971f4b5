//! The class path that the manifest of a jar names: Surefire's booter jar holds nothing else.
//!
//! Layout (PKWARE's APPNOTE): entries, then a central directory of them, then an end record of 22 bytes with the directory's offset. An
//! entry is stored (0) or deflated (8). Only `META-INF/MANIFEST.MF` is read, and of it no more than [`MAX_MANIFEST_BYTES`].

use std::io::Read as _;

use flate2::read::DeflateDecoder;

const MANIFEST: &[u8] = b"META-INF/MANIFEST.MF";
/// A class path of 100,000 jars.
const MAX_MANIFEST_BYTES: u64 = 32 << 20;
const END: [u8; 4] = *b"PK\x05\x06";
const END_BYTES: usize = 22;
const DIRECTORY_ENTRY: [u8; 4] = *b"PK\x01\x02";
const LOCAL_ENTRY: [u8; 4] = *b"PK\x03\x04";

/// Why no class path was read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JarError {
    /// It is no zip file, or one that is damaged here.
    #[error("read the jar: {0} is missing or damaged")]
    Damaged(&'static str),
    /// It has no manifest.
    #[error("read the jar: it has no manifest")]
    NoManifest,
}

/// The entries of `Class-Path` in the manifest of a jar, as they stand there: relative to the jar's own place.
///
/// # Errors
/// It is no jar.
pub fn manifest_class_path(jar: &[u8]) -> Result<Vec<String>, JarError> {
    let manifest = manifest(jar)?;
    let text = String::from_utf8_lossy(&manifest).replace("\r\n", "\n");
    // A line goes on in the next one, behind a blank.
    let text = text.replace("\n ", "");
    let paths = text.lines().find_map(|line| line.strip_prefix("Class-Path:")).unwrap_or_default();
    Ok(paths.split_whitespace().map(str::to_owned).collect())
}

fn manifest(jar: &[u8]) -> Result<Vec<u8>, JarError> {
    let at =
        jar.windows(END.len()).rposition(|four| four == END).ok_or(JarError::Damaged("its end record"))?;
    let end =
        jar.get(at..).filter(|end| end.len() >= END_BYTES).ok_or(JarError::Damaged("its end record"))?;
    let damaged = || JarError::Damaged("its directory");
    let entries = u16_at(end, 10).ok_or_else(damaged)?;
    let mut place = usize::try_from(u32_at(end, 16).ok_or_else(damaged)?).map_err(|_too_far| damaged())?;
    for _ in 0..entries {
        let entry = jar.get(place..).filter(|e| e.starts_with(&DIRECTORY_ENTRY)).ok_or_else(damaged)?;
        let lengths = [28, 30, 32].map(|at| u16_at(entry, at).map(usize::from));
        let [Some(name), Some(extra), Some(comment)] = lengths else { return Err(damaged()) };
        if entry.get(46..).and_then(|rest| rest.get(..name)) == Some(MANIFEST) {
            return content(jar, entry);
        }
        let length = [46, name, extra, comment].into_iter().fold(0, usize::saturating_add);
        place = place.saturating_add(length);
    }
    Err(JarError::NoManifest)
}

fn content(jar: &[u8], entry: &[u8]) -> Result<Vec<u8>, JarError> {
    let damaged = || JarError::Damaged("its manifest");
    let number = |at: usize| u32_at(entry, at).and_then(|n| usize::try_from(n).ok()).ok_or_else(damaged);
    let (packed, local) = (number(20)?, number(42)?);
    let local = jar.get(local..).filter(|e| e.starts_with(&LOCAL_ENTRY)).ok_or_else(damaged)?;
    let lengths = [26, 28].map(|at| u16_at(local, at).map(usize::from));
    let [Some(name), Some(extra)] = lengths else { return Err(damaged()) };
    let from = 30_usize.saturating_add(name).saturating_add(extra);
    let bytes = local.get(from..).and_then(|rest| rest.get(..packed)).ok_or_else(damaged)?;
    let mut content = Vec::new();
    match u16_at(entry, 10) {
        Some(0) => content.extend_from_slice(bytes),
        Some(8) => {
            let read = DeflateDecoder::new(bytes).take(MAX_MANIFEST_BYTES).read_to_end(&mut content);
            read.map_err(|_damaged| damaged())?;
        }
        _ => return Err(damaged()),
    }
    Ok(content)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|two| u16::from_le_bytes(*two))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|four| u32::from_le_bytes(*four))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::DeflateEncoder;

    use super::*;

    const TEXT: &str = "Manifest-Version: 1.0\r\nClass-Path: a.jar ../../m/b\r\n .jar file:/c/d%20e/\r\nMain-Class: B\r\n\r\n";

    /// A jar of these entries, deflated or stored.
    fn jar(entries: &[(&str, &str)], deflated: bool) -> Vec<u8> {
        let (mut jar, mut directory) = (Vec::new(), Vec::new());
        for (name, text) in entries {
            let mut packed = text.as_bytes().to_vec();
            if deflated {
                let mut encoder = DeflateEncoder::new(Vec::new(), Compression::none());
                encoder.write_all(text.as_bytes()).unwrap();
                packed = encoder.finish().unwrap();
            }
            let method: u16 = if deflated { 8 } else { 0 };
            let length = u32::try_from(packed.len()).unwrap().to_le_bytes();
            let name_length = u16::try_from(name.len()).unwrap().to_le_bytes();
            let place = u32::try_from(jar.len()).unwrap().to_le_bytes();
            directory.extend([&DIRECTORY_ENTRY[..], &[0; 6], &method.to_le_bytes(), &[0; 8]].concat());
            directory
                .extend([&length[..], &[0; 4], &name_length, &[0; 12], &place, name.as_bytes()].concat());
            // Sizes stand behind the entry, as Java's own writer leaves them.
            jar.extend(
                [&LOCAL_ENTRY[..], &[0; 22], &name_length, &[0; 2], name.as_bytes(), &packed].concat(),
            );
        }
        let place = u32::try_from(jar.len()).unwrap().to_le_bytes();
        let count = u16::try_from(entries.len()).unwrap().to_le_bytes();
        jar.extend([&directory, &END[..], &[0; 6], &count, &[0; 4], &place, &[0; 2]].concat());
        jar
    }

    #[test]
    fn the_class_path_of_a_manifest_is_read_over_its_line_breaks() {
        for deflated in [true, false] {
            let jar = jar(&[("a.txt", "x"), ("META-INF/MANIFEST.MF", TEXT)], deflated);
            let paths = manifest_class_path(&jar).unwrap();
            assert_eq!(paths, ["a.jar", "../../m/b.jar", "file:/c/d%20e/"], "{deflated}");
        }
    }

    #[test]
    fn what_is_no_jar_is_an_error_and_never_a_panic() {
        let whole = jar(&[("META-INF/MANIFEST.MF", TEXT)], true);
        for end in 0..whole.len() {
            assert!(manifest_class_path(&whole[..end]).is_err(), "{end}");
        }
        for at in 0..whole.len() {
            let mut spoiled = whole.clone();
            spoiled[at] ^= 0xff;
            let _either = manifest_class_path(&spoiled);
        }
        assert_eq!(manifest_class_path(&jar(&[("a", "b")], false)), Err(JarError::NoManifest));
    }
}
