//! Files with symbols of native libraries, from `suites.NAME.symbols` and `--symbols`.
//!
//! Data flow: folders and APKs → folders; the libraries of an APK (`lib/ABI/*.so`) are unpacked into a folder of our
//! own, which is removed with [`SymbolFiles`] → the symbol look-up searches them by build id ([`memgate_symbols`]).

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::apk;
use crate::exit::ExpectedError;

/// Maximum size of a library in an APK.
const LARGEST_LIBRARY: u64 = 1 << 30;
const HINT: &str = "symbols come from folders with unstripped libraries, and from APKs";

/// Folders to search; those of APKs exist as long as this value.
#[derive(Debug, Default)]
pub struct SymbolFiles {
    folders: Vec<PathBuf>,
    packed: Vec<Packed>,
    unpacked: Vec<Unpacked>,
}

/// A library of an APK.
#[derive(Debug)]
pub(crate) struct Packed {
    /// File name of the APK.
    pub(crate) apk: String,
    /// File name of the library.
    pub(crate) library: String,
    /// Its offset in the APK, if it is not compressed: Android then maps it from there.
    pub(crate) place: Option<u64>,
}

/// Unpacked libraries of an APK, removed when dropped.
#[derive(Debug)]
struct Unpacked(PathBuf);

impl Drop for Unpacked {
    fn drop(&mut self) {
        // If that fails, a temporary folder remains, which does no harm.
        drop(fs::remove_dir_all(&self.0));
    }
}

impl SymbolFiles {
    /// Takes folders as they are, and unpacks APKs.
    ///
    /// # Errors
    /// When one is missing, or is neither a folder nor an APK with libraries.
    pub fn open(sources: &[PathBuf]) -> Result<Self, ExpectedError> {
        let mut files = Self::default();
        for source in sources {
            if fs::metadata(source).map_err(ExpectedError::file("read", source))?.is_dir() {
                files.folders.push(source.clone());
                continue;
            }
            let folder = unpack(source, &mut files.packed)?;
            files.folders.push(folder.0.clone());
            files.unpacked.push(folder);
        }
        Ok(files)
    }

    /// Whether no file was named.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.folders.is_empty()
    }

    /// All folders.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        self.folders.clone()
    }

    /// Only the folders of APKs.
    pub(crate) fn of_apks(&self) -> Vec<PathBuf> {
        self.unpacked.iter().map(|unpacked| unpacked.0.clone()).collect()
    }

    /// The libraries of APKs.
    pub(crate) fn packed(&self) -> &[Packed] {
        &self.packed
    }
}

/// Writes the libraries of an APK into a folder of their own.
fn unpack(path: &Path, packed: &mut Vec<Packed>) -> Result<Unpacked, ExpectedError> {
    let folder = temporary_folder()?;
    let is_library = |name: &str| name.starts_with("lib/") && name.ends_with(".so");
    let before = packed.len();
    apk::read(path, (is_library, LARGEST_LIBRARY), HINT, |entry, name, content| {
        let library = name.rsplit('/').next().unwrap_or(name);
        // Each ABI has a library with the same name.
        let own = folder.0.join(packed.len().to_string());
        fs::create_dir(&own).map_err(ExpectedError::file("create", &own))?;
        let file = own.join(library);
        fs::write(&file, content).map_err(ExpectedError::file("write", &file))?;
        let place = entry.is_stored().then(|| entry.place()).transpose().map_err(|why| wrong(path, &why))?;
        let apk = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        packed.push(Packed { apk, library: library.to_owned(), place: place.map(|place| place as u64) });
        Ok(())
    })?;
    if packed.len() > before { Ok(folder) } else { Err(wrong(path, &"it has no libraries (lib/ABI/*.so)")) }
}

fn wrong(apk: &Path, why: &dyn std::fmt::Display) -> ExpectedError {
    ExpectedError::Session { path: apk.to_owned(), why: why.to_string(), hint: HINT.to_owned() }
}

fn temporary_folder() -> Result<Unpacked, ExpectedError> {
    let root = std::env::temp_dir();
    for number in 0_u32.. {
        let folder = root.join(format!("memgate-symbols-{}-{number}", std::process::id()));
        match fs::DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return Ok(Unpacked(folder)),
            Err(why) if why.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(why) => return Err(ExpectedError::file("create", &folder)(why)),
        }
    }
    Err(ExpectedError::Machinery {
        what: format!("no temporary folder could be made in {}", root.display()),
        hint: "remove its folders memgate-symbols-*".to_owned(),
    })
}
