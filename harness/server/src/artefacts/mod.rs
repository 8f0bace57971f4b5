//! Files of a run besides its figures: its report page, and heap dumps on request.
//!
//! Data flow: bytes → a [`Spool`], at once or in pieces → checked → an object in a folder ([`folder`]) or in a bucket
//! ([`bucket`]) → a row in the database; without the row nobody sees the object. Artefacts older than [`KEPT`] are
//! removed, once a run that came later is a day old: first the object, then its row. Pieces that nobody continued for a
//! day are removed too.

mod bucket;
mod folder;
mod spool;

use std::fs::File;
use std::io::{self, Read, Seek as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flate2::read::MultiGzDecoder;

use self::bucket::Bucket;
pub use self::bucket::{Answered, Exchange, Sent};
use self::folder::Folder;
use self::spool::Spools;
pub(crate) use self::spool::{NoSpool, Spool};
use crate::store::{Store, StoreError};

/// Headers of a file that comes in pieces: bytes before this piece, and bytes of the whole file.
pub const OFFSET: &str = "upload-offset";
/// See [`OFFSET`].
pub const LENGTH: &str = "upload-length";
/// The name of a run's report page.
pub const PAGE: &str = "report.html";
/// Size limits in bytes of a packed page, and of an unpacked page.
pub(crate) const MOST_OF_A_PACKED_PAGE: u64 = 16 << 20;
const MOST_OF_A_PAGE: u64 = 256 << 20;
/// Size limit in bytes of any other artefact.
pub(crate) const MOST: u64 = 4 << 30;
/// Limits of one run: its number of files, and their bytes.
pub(crate) const MOST_FILES: usize = 50;
pub(crate) const MOST_OF_A_RUN: u64 = 16 << 30;
const LONGEST_NAME: usize = 100;
/// The folder of uploads in progress.
pub const ARRIVING: &str = "arriving";
/// How long artefacts are kept.
pub const KEPT: Duration = Duration::from_secs(60 * 24 * 3600);

/// Where artefacts are kept.
#[derive(Debug, Clone)]
pub struct Artefacts {
    place: Place,
    spools: Spools,
}

#[derive(Debug, Clone)]
enum Place {
    Folder(Folder),
    Bucket(Arc<Bucket>),
}

/// Why artefacts cannot be kept. The text goes after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum ArtefactError {
    /// The folder cannot be created.
    #[error("make {0}: {1}")]
    Make(String, io::Error),
    /// The address of the bucket is invalid, or its keys are missing.
    #[error("keep artefacts in {0}: {1}")]
    Bucket(String, String),
    /// An artefact cannot be removed.
    #[error("remove {0}: {1}")]
    Remove(String, io::Error),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Artefacts {
    /// Opens a folder, creating it if it is missing, or `s3://BUCKET/PREFIX`, whose keys `variable` looks up. Uploads
    /// for a bucket stay in the folder `arriving` until they are complete.
    ///
    /// # Errors
    /// The folder cannot be created, or the bucket's address or keys are missing.
    pub fn open(
        place: &str,
        arriving: &Path,
        variable: impl Fn(&str) -> Option<String>,
        exchange: &Exchange,
    ) -> Result<Self, ArtefactError> {
        let failed = |folder: &Path, why| ArtefactError::Make(folder.display().to_string(), why);
        let Some(address) = place.strip_prefix("s3://") else {
            let folder = Folder::open(Path::new(place)).map_err(|why| failed(Path::new(place), why))?;
            // On the same disk: a complete file only needs a rename.
            let arriving = folder.path().join(ARRIVING);
            let spools = Spools::open(&arriving).map_err(|why| failed(&arriving, why))?;
            return Ok(Self { place: Place::Folder(folder), spools });
        };
        let bucket = Bucket::open(address, variable, Arc::clone(exchange));
        let bucket = bucket.map_err(|why| ArtefactError::Bucket(place.to_owned(), why))?;
        let spools = Spools::open(arriving).map_err(|why| failed(arriving, why))?;
        Ok(Self { place: Place::Bucket(Arc::new(bucket)), spools })
    }

    /// Opens the spool of an artefact for one sender. Also returns the bytes in the run's other spools.
    pub(crate) fn spool(&self, run: i64, name: &str) -> Result<(Spool, u64), NoSpool> {
        self.spools.of(run, name)
    }

    /// Keeps a complete spool as an artefact.
    pub(crate) fn put(&self, run: i64, name: &str, spool: &Spool) -> io::Result<()> {
        match &self.place {
            Place::Folder(folder) => folder.put(&key(run, name), spool),
            Place::Bucket(bucket) => bucket.put(&key(run, name), spool),
        }
    }

    pub(crate) fn get(&self, run: i64, name: &str) -> io::Result<Box<dyn Read + Send>> {
        match &self.place {
            Place::Folder(folder) => folder.get(&key(run, name)),
            Place::Bucket(bucket) => bucket.get(&key(run, name)),
        }
    }

    fn remove(&self, run: i64, name: &str) -> io::Result<()> {
        match &self.place {
            Place::Folder(folder) => folder.remove(&key(run, name)),
            Place::Bucket(bucket) => bucket.remove(&key(run, name)),
        }
    }

    /// Removes partial uploads that nobody continues; returns the number of files.
    ///
    /// # Errors
    /// The folder cannot be read, or a file in it cannot be removed.
    pub fn remove_parts(&self) -> Result<u64, ArtefactError> {
        self.spools.remove_old().map_err(|why| ArtefactError::Remove(ARRIVING.to_owned(), why))
    }

    /// Removes the artefacts that have expired by that time; returns the number of files. A failed removal does not
    /// stop the others.
    ///
    /// # Errors
    /// The database fails, or files cannot be removed: then the first of them is reported.
    pub async fn retain(&self, store: &Store, now_us: i64) -> Result<u64, ArtefactError> {
        let mut removed = 0;
        loop {
            let (before, mut stays) = (removed, None);
            for (project, run, name) in store.ended_artefacts(now_us).await? {
                let (kept, named) = (self.clone(), name.clone());
                let done = tokio::task::spawn_blocking(move || kept.remove(run, &named)).await;
                match done.unwrap_or_else(|why| Err(io::Error::other(why))) {
                    Ok(()) => {
                        store.remove_artefact(project, run, &name).await?;
                        removed += 1;
                    }
                    Err(why) => {
                        stays.get_or_insert(ArtefactError::Remove(key(run, &name), why));
                    }
                }
            }
            match stays {
                Some(why) if removed == before => return Err(why),
                None if removed == before => return Ok(removed),
                _ => {}
            }
        }
    }
}

fn key(run: i64, name: &str) -> String {
    format!("{:02x}/{run}/{name}", run & 0xff)
}

/// Is the name a valid file name on every system, and not a hidden one?
#[must_use]
pub fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !name.is_empty() && name.len() <= LONGEST_NAME && !name.starts_with('.') && name.bytes().all(plain)
}

/// Is the file a page, packed by gzip, of no more than 256 MiB? `Err`: what is wrong.
pub(crate) fn check_page(file: &mut File) -> Result<(), String> {
    let rewound = file.rewind();
    let inflated = rewound
        .and_then(|()| io::copy(&mut MultiGzDecoder::new(file).take(MOST_OF_A_PAGE + 1), &mut io::sink()));
    match inflated {
        Err(why) => Err(format!("it does not inflate: {why}")),
        Ok(length) if length > MOST_OF_A_PAGE => Err("it is longer than 256 MiB".to_owned()),
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn spool(kept: &Artefacts, run: i64, name: &str, bytes: &[u8]) -> Spool {
        let Ok((mut spool, _)) = kept.spool(run, name) else { panic!("{run} {name}") };
        spool.file.write_all(bytes).unwrap();
        spool
    }

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(text).unwrap();
        gzip.finish().unwrap()
    }

    fn in_folder(folder: &Path) -> Artefacts {
        let nobody: Exchange = Arc::new(|_| Err("nobody is asked here".to_owned()));
        Artefacts::open(folder.to_str().unwrap(), Path::new(""), |_| None, &nobody).unwrap()
    }

    #[test]
    fn what_was_put_is_there_until_it_is_removed_and_nothing_half_written_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let kept = in_folder(&folder.path().join("new/pages"));
        for (run, text) in [(7, &b"one"[..]), (263, b"its neighbour")] {
            let arrived = spool(&kept, run, PAGE, text);
            kept.put(run, PAGE, &arrived).unwrap();
            arrived.remove().unwrap();
        }
        let mut read = Vec::new();
        kept.get(7, PAGE).unwrap().read_to_end(&mut read).unwrap();
        assert_eq!(read, b"one");
        kept.remove(7, PAGE).unwrap();
        kept.remove(7, PAGE).unwrap();
        assert!(kept.get(7, PAGE).is_err() && kept.get(263, PAGE).is_ok());
        assert_eq!(fs::read_dir(folder.path().join("new/pages/arriving")).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_cannot_be_removed_stops_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let kept = in_folder(&folder.path().join("kept"));
        crate::store::tests::block_on(async {
            let store = crate::store::tests::sqlite(&folder, "history.db").await;
            let run = crate::store::tests::add_one(&store).await;
            for name in ["a", "b", "c"] {
                kept.put(run, name, &spool(&kept, run, name, b"bytes")).unwrap();
                let row = crate::view::ArtefactRow { name: name.to_owned(), bytes: 5 };
                store.add_artefact("tiles", run, &row, 0).await.unwrap();
            }
            // A folder cannot be removed as a file.
            let path = folder.path().join("kept").join(key(run, "a"));
            fs::remove_file(&path).unwrap();
            fs::create_dir(&path).unwrap();
            let later = jiff::Timestamp::now().as_microsecond() + 2 * 24 * 3600 * 1_000_000;
            let failed = kept.retain(&store, later).await.unwrap_err().to_string();
            assert!(failed.starts_with(&format!("remove {}: ", key(run, "a"))), "{failed}");
            let left = store.artefacts("tiles", run).await.unwrap();
            assert_eq!(left.iter().map(|row| &row.name).collect::<Vec<_>>(), ["a"]);
            store.close().await;
        });
    }

    #[test]
    fn what_does_not_inflate_is_no_page() {
        let folder = tempfile::tempdir().unwrap();
        let kept = in_folder(folder.path());
        let check = |bytes: &[u8]| {
            let mut arrived = spool(&kept, 7, PAGE, bytes);
            let checked = check_page(&mut arrived.file);
            arrived.remove().unwrap();
            checked
        };
        let whole = packed(b"a page");
        assert_eq!(check(&whole), Ok(()));
        for bytes in [&b"<html>"[..], &whole[..whole.len() - 3], b""] {
            assert!(check(bytes).unwrap_err().contains("does not inflate"), "{bytes:?}");
        }
        let bomb = packed(&vec![0; usize::try_from(MOST_OF_A_PAGE).unwrap() + 1]);
        assert!(check(&bomb).unwrap_err().contains("longer than 256 MiB"));
    }

    #[test]
    fn names_lead_nowhere_else() {
        assert!(is_name(PAGE) && is_name("java_pid7_limit.hprof.gz"));
        for name in ["", ".", "..", ".hidden", "a/b", "a\\b", "a b", "ä", "a\0", &"x".repeat(101)] {
            assert!(!is_name(name), "{name:?}");
        }
    }
}
