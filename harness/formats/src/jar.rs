//! Reads the class path in the manifest of a jar: Surefire's booter jar contains nothing else.
//!
//! Only `META-INF/MANIFEST.MF` is read from the jar ([`crate::zip`]), at most [`MAX_MANIFEST_BYTES`] of it.

use crate::zip::{Damaged, entries};

const MANIFEST: &[u8] = b"META-INF/MANIFEST.MF";
/// Enough for a class path of 100,000 jars.
const MAX_MANIFEST_BYTES: u64 = 32 << 20;

/// Why no class path was read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JarError {
    /// The file is no zip file, or its structure is damaged.
    #[error("read the jar: {0}")]
    Damaged(#[from] Damaged),
    /// The jar has no manifest.
    #[error("read the jar: it has no manifest")]
    NoManifest,
}

/// The entries of `Class-Path` in the manifest of a jar, as written: relative to the jar's own folder.
///
/// # Errors
/// The file is no jar.
pub fn manifest_class_path(jar: &[u8]) -> Result<Vec<String>, JarError> {
    let manifest = manifest(jar)?;
    let text = String::from_utf8_lossy(&manifest).replace("\r\n", "\n");
    // A line that begins with a blank continues the one before.
    let text = text.replace("\n ", "");
    let paths = text.lines().find_map(|line| line.strip_prefix("Class-Path:")).unwrap_or_default();
    Ok(paths.split_whitespace().map(str::to_owned).collect())
}

fn manifest(jar: &[u8]) -> Result<Vec<u8>, JarError> {
    let entries = entries(jar)?;
    let manifest = entries.iter().find(|entry| entry.name == MANIFEST).ok_or(JarError::NoManifest)?;
    Ok(manifest.content(MAX_MANIFEST_BYTES)?)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::DeflateEncoder;

    use super::*;
    use crate::zip::{DIRECTORY_ENTRY, END, LOCAL_ENTRY};

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
            // Sizes come after the entry, as Java's own writer puts them.
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
