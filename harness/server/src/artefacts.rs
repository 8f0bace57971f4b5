//! What belongs to a run beside its figures: its report page, as the run made it. Files in a folder, none of them in
//! the database.
//!
//! Data flow: a page, packed by gzip → checked (it inflates, within bounds) → a file of its run, written beside and
//! renamed; the first one stays → served as it is packed. What is older than [`KEPT`] is removed.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use flate2::read::MultiGzDecoder;

/// Kibibytes of a packed page.
pub(crate) const MOST_PACKED_KIB: u32 = 16 << 10;
/// Bytes of a page.
const MOST: u64 = 256 << 20;
/// How long pages are kept.
pub const KEPT: Duration = Duration::from_secs(60 * 24 * 3600);

/// A folder of pages.
#[derive(Debug, Clone)]
pub struct Artefacts(PathBuf);

impl Artefacts {
    /// In this folder, which is made where it is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self(folder.to_owned()))
    }

    fn path(&self, run: i64) -> PathBuf {
        self.0.join(format!("{:02x}", run & 0xff)).join(format!("{run}.html.gz"))
    }

    /// Is there a page of this run?
    #[must_use]
    pub fn has(&self, run: i64) -> bool {
        self.path(run).is_file()
    }

    /// The page of a run, packed.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn read(&self, run: i64) -> io::Result<Vec<u8>> {
        fs::read(self.path(run))
    }

    /// Keeps the page of a run; one that is there stays.
    ///
    /// # Errors
    /// `InvalidData`: it is not packed by gzip, or too long. Else it cannot be written.
    pub(crate) fn add(&self, run: i64, packed: &[u8]) -> io::Result<()> {
        let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let length = io::copy(&mut MultiGzDecoder::new(packed).take(MOST + 1), &mut io::sink())
            .map_err(|why| wrong(&format!("it does not inflate: {why}")))?;
        if length > MOST {
            return Err(wrong("it is longer than 256 MiB"));
        }
        let path = self.path(run);
        let folder = path.parent().unwrap_or(&self.0);
        fs::create_dir_all(folder)?;
        // Whoever reads sees all of it, or nothing.
        let part = folder.join(format!("{run}.{}.part", std::process::id()));
        let mut file = File::create_new(&part)?;
        let written = file.write_all(packed).and_then(|()| file.sync_all());
        let linked = written.and_then(|()| match fs::hard_link(&part, &path) {
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        });
        fs::remove_file(&part)?;
        linked
    }

    /// Removes what is older than [`KEPT`] at that time; how many pages that were.
    ///
    /// # Errors
    /// The folder cannot be read, or a page not be removed.
    pub fn retain(&self, now: SystemTime) -> io::Result<u64> {
        let mut removed = 0;
        for folder in fs::read_dir(&self.0)? {
            let folder = folder?.path();
            if !folder.is_dir() {
                continue;
            }
            for page in fs::read_dir(folder)? {
                let page = page?;
                let age = now.duration_since(page.metadata()?.modified()?).unwrap_or_default();
                if age > KEPT {
                    fs::remove_file(page.path())?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(text).unwrap();
        gzip.finish().unwrap()
    }

    #[test]
    fn the_first_page_of_a_run_stays_until_it_is_old() {
        let folder = tempfile::tempdir().unwrap();
        let pages = Artefacts::open(&folder.path().join("new/pages")).unwrap();
        assert!(!pages.has(7) && pages.read(7).is_err());
        pages.add(7, &packed(b"one")).unwrap();
        pages.add(7, &packed(b"two")).unwrap();
        pages.add(263, &packed(b"its neighbour")).unwrap();
        assert_eq!((pages.has(7), pages.read(7).unwrap()), (true, packed(b"one")));
        assert_eq!(pages.retain(SystemTime::now() + KEPT / 2).unwrap(), 0);
        assert_eq!(
            pages.retain(SystemTime::now() + KEPT * 2).unwrap(),
            2,
            "and nothing half written is left"
        );
        assert!(!pages.has(7));
    }

    #[test]
    fn what_does_not_inflate_is_no_page() {
        let folder = tempfile::tempdir().unwrap();
        let pages = Artefacts::open(folder.path()).unwrap();
        let whole = packed(b"a page");
        for bytes in [&b"<html>"[..], &whole[..whole.len() - 3], b""] {
            assert_eq!(pages.add(7, bytes).unwrap_err().kind(), io::ErrorKind::InvalidData, "{bytes:?}");
        }
        let bomb = packed(&vec![0; usize::try_from(MOST).unwrap() + 1]);
        assert!(
            pages.add(7, &bomb).unwrap_err().to_string().contains("longer than 256 MiB") && !pages.has(7)
        );
    }
}
