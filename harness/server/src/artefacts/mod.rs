//! What belongs to a run beside its figures: its report page, and heap dumps where somebody asks for them.
//!
//! Data flow: bytes → a [`Spool`], at once or in pieces → checked → an object of a folder ([`folder`]) or of a bucket
//! ([`bucket`]) → a row in the database, without which nobody sees it. What is older than [`KEPT`] is removed: first
//! the object, then its row. Pieces that nobody continued for a day go too.

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

/// Headers of a file that comes in pieces: bytes before this piece, bytes of the file.
pub const OFFSET: &str = "upload-offset";
/// See [`OFFSET`].
pub const LENGTH: &str = "upload-length";
/// The name of a run's report page.
pub const PAGE: &str = "report.html";
/// Bytes of a packed page, and of a page.
pub(crate) const MOST_OF_A_PACKED_PAGE: u64 = 16 << 20;
const MOST_OF_A_PAGE: u64 = 256 << 20;
/// Bytes of anything else.
pub(crate) const MOST: u64 = 4 << 30;
/// Of one run.
pub(crate) const MOST_FILES: usize = 50;
pub(crate) const MOST_OF_A_RUN: u64 = 16 << 30;
const LONGEST_NAME: usize = 100;
/// The folder of what arrives.
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

/// Why artefacts cannot be kept there. The text goes after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum ArtefactError {
    /// The folder cannot be made.
    #[error("make {0}: {1}")]
    Make(String, io::Error),
    /// The address of a bucket is none, or its keys are not there.
    #[error("keep artefacts in {0}: {1}")]
    Bucket(String, String),
    /// They cannot be removed.
    #[error("remove {0}: {1}")]
    Remove(String, io::Error),
    /// Nobody knows which have ended.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Artefacts {
    /// In a folder, which is made where it is not there, or in `s3://BUCKET/PREFIX`, with `variable` to look up its
    /// keys; what arrives for a bucket is in the folder `arriving` until it is whole.
    ///
    /// # Errors
    /// It cannot be made, or its address or keys are missing.
    pub fn open(
        place: &str,
        arriving: &Path,
        variable: impl Fn(&str) -> Option<String>,
        exchange: &Exchange,
    ) -> Result<Self, ArtefactError> {
        let failed = |folder: &Path, why| ArtefactError::Make(folder.display().to_string(), why);
        let Some(address) = place.strip_prefix("s3://") else {
            let folder = Folder::open(Path::new(place)).map_err(|why| failed(Path::new(place), why))?;
            // On the same disk: a file that is whole only gets another name.
            let arriving = folder.path().join(ARRIVING);
            let spools = Spools::open(&arriving).map_err(|why| failed(&arriving, why))?;
            return Ok(Self { place: Place::Folder(folder), spools });
        };
        let bucket = Bucket::open(address, variable, Arc::clone(exchange));
        let bucket = bucket.map_err(|why| ArtefactError::Bucket(place.to_owned(), why))?;
        let spools = Spools::open(arriving).map_err(|why| failed(arriving, why))?;
        Ok(Self { place: Place::Bucket(Arc::new(bucket)), spools })
    }

    /// What has arrived of an artefact, for one sender, with the bytes of the run's others.
    pub(crate) fn spool(&self, run: i64, name: &str) -> Result<(Spool, u64), NoSpool> {
        self.spools.of(run, name)
    }

    /// Keeps what has arrived.
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

    /// Removes what arrived in part and nobody continues; how many files that were.
    ///
    /// # Errors
    /// Its folder cannot be read, or a file of it cannot be removed.
    pub fn remove_parts(&self) -> Result<u64, ArtefactError> {
        self.spools.remove_old().map_err(|why| ArtefactError::Remove(ARRIVING.to_owned(), why))
    }

    /// Removes what has ended at that time; how many files that were. What cannot be removed stops nothing else.
    ///
    /// # Errors
    /// The database says no, or the store did for this file, the first of those that stay.
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

/// A name that is a file's name everywhere, and hides nowhere.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !name.is_empty() && name.len() <= LONGEST_NAME && !name.starts_with('.') && name.bytes().all(plain)
}

/// Is it a page, packed by gzip, of no more than 256 MiB? `Err`: what is wrong.
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
        let database = format!("sqlite:{}", folder.path().join("history.db").display());
        crate::store::tests::block_on(async {
            let store = Store::open(&database).await.unwrap();
            let run = crate::store::tests::add_one(&store).await;
            for name in ["a", "b", "c"] {
                kept.put(run, name, &spool(&kept, run, name, b"bytes")).unwrap();
                let row = crate::view::ArtefactRow { name: name.to_owned(), bytes: 5 };
                store.add_artefact("tiles", run, &row, 0).await.unwrap();
            }
            // A folder is no file to remove.
            let path = folder.path().join("kept").join(key(run, "a"));
            fs::remove_file(&path).unwrap();
            fs::create_dir(&path).unwrap();
            let failed = kept.retain(&store, i64::MAX).await.unwrap_err().to_string();
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
