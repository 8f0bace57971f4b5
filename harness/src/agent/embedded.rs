//! The agent inside this program, and the files it becomes.
//!
//! `build/main.rs` embeds the shared library and the jars of its Java part; the dynamic linker and the virtual machine
//! need files. They are unpacked once, to a cache folder named by their hash. They are reused only if they are ours and
//! byte for byte the embedded ones, in a folder that only we or root can change or replace ([`trusted`]): otherwise
//! another user could run code in every tested process. So folders shared with other users, such as /tmp, are not used.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{OFlags, StatVfsMountFlags};
use sha2::{Digest, Sha256};

/// Path of another agent to use instead of the embedded one.
const AGENT_VARIABLE: &str = "MEMGATE_AGENT";

/// Path of a folder with an agent for each Android ABI: `arm64-v8a/libmemgate_agent.so`.
pub(crate) const ANDROID_AGENT_VARIABLE: &str = "MEMGATE_ANDROID_AGENT";

const LIBRARY: &str = "libmemgate_agent.so";

const AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libmemgate_agent.so"));

/// The Java part. Empty if there was no `javac` when this program was built.
const JARS: [(&str, &[u8]); 3] = [
    (HOOKS_JAR, include_bytes!(concat!(env!("OUT_DIR"), "/memgate-agent-java.jar"))),
    (LISTENER_JAR, include_bytes!(concat!(env!("OUT_DIR"), "/memgate-junit-platform.jar"))),
    (LAUNCHER_JAR, include_bytes!(concat!(env!("OUT_DIR"), "/memgate-launcher.jar"))),
];

/// File name of the jar through which Java code calls the agent.
pub(crate) const HOOKS_JAR: &str = "memgate-agent-java.jar";
/// File name of the jar with the listener for the JUnit Platform, which also names tests.
pub(crate) const LISTENER_JAR: &str = "memgate-junit-platform.jar";
/// File name of the jar that runs tests again.
pub(crate) const LAUNCHER_JAR: &str = "memgate-launcher.jar";

/// File name of the jar for the test APKs of Android apps.
pub(crate) const ANDROID_JAR: &str = "memgate-android-junit4.jar";

const ANDROID_JAR_BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/memgate-android-junit4.jar"));

/// Number of hexadecimal digits of the hash in the folder's name.
const HASH_DIGITS: usize = 16;

/// Root's own cache folder. Tests started by root may run as other users, who cannot read root's home.
const SYSTEM_CACHE: &str = "/var/cache/memgate";

/// Write permission for group and others, and for the group alone.
const OTHERS_MAY_WRITE: u32 = 0o022;
const GROUP_MAY_WRITE: u32 = 0o020;
/// In such a folder, only the owner of an entry may rename or remove it.
const STICKY: u32 = 0o1000;

/// Why there is no agent to preload.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// The configured agent does not exist.
    #[error("use the agent that {AGENT_VARIABLE} names, {}", path.display())]
    Named {
        /// Its path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// There is no agent for the ABI of an app.
    #[error("find an agent for the ABI {abi}: {ANDROID_AGENT_VARIABLE} {why}")]
    NoAndroid {
        /// The ABI.
        abi: String,
        /// What is wrong with the variable.
        why: String,
    },
    /// There are no jars.
    #[error("measure a Java virtual machine: this memgate was built where no javac was found")]
    NoJava,
    /// No folder can be used.
    #[error("unpack the agent: {}", no_folder(.0))]
    NoFolder(Vec<String>),
}

fn no_folder(problems: &[String]) -> String {
    let why = if problems.is_empty() {
        "neither XDG_CACHE_HOME nor HOME names a folder".into()
    } else {
        problems.join("; ")
    };
    format!("{why}; name a folder of your own with XDG_CACHE_HOME")
}

/// The path of an agent that can be preloaded.
///
/// # Errors
/// When no cache folder can be used, with the reason for each.
pub(crate) fn agent() -> Result<PathBuf, EmbeddedError> {
    if let Some(path) = env::var_os(AGENT_VARIABLE).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        let named = |source| EmbeddedError::Named { path: path.clone(), source };
        let absolute = fs::canonicalize(&path).map_err(named)?;
        File::open(&absolute).map_err(named)?;
        return Ok(absolute);
    }
    let folder = unpack(&[(LIBRARY, AGENT)], &own_cache_folders())?;
    Ok(folder.join(LIBRARY))
}

/// The agent for an app of this ABI on an Android device.
///
/// # Errors
/// When there is none.
pub(crate) fn android_agent(abi: &str) -> Result<PathBuf, EmbeddedError> {
    let none = |why: String| EmbeddedError::NoAndroid { abi: abi.to_owned(), why };
    let folder = env::var_os(ANDROID_AGENT_VARIABLE).filter(|folder| !folder.is_empty());
    let folder = folder.ok_or_else(|| none("names no folder".to_owned()))?;
    let path = Path::new(&folder).join(abi).join(LIBRARY);
    match File::open(&path) {
        Ok(_) => Ok(path),
        Err(why) => Err(none(format!("names a folder without it, {}: {why}", path.display()))),
    }
}

/// Whether there is an agent for an Android device, of any ABI.
///
/// # Errors
/// What is wrong with the variable that names their folder.
pub(crate) fn android_agents() -> Result<(), String> {
    agents_below(env::var_os(ANDROID_AGENT_VARIABLE).filter(|folder| !folder.is_empty()).as_deref())
}

fn agents_below(folder: Option<&OsStr>) -> Result<(), String> {
    let Some(folder) = folder else { return Err(format!("{ANDROID_AGENT_VARIABLE} names no folder")) };
    let wrong =
        |why: String| format!("{ANDROID_AGENT_VARIABLE} names {}: {why}", Path::new(folder).display());
    let mut abis = fs::read_dir(folder).map_err(|why| wrong(why.to_string()))?.flatten();
    match abis.any(|abi| abi.path().join(LIBRARY).is_file()) {
        true => Ok(()),
        false => Err(wrong(format!("no folder in it has a {LIBRARY}"))),
    }
}

/// The folder with the jars of the Java part.
///
/// # Errors
/// When they were not built, or no cache folder can be used.
pub(crate) fn jars() -> Result<PathBuf, EmbeddedError> {
    if JARS.iter().any(|(_, jar)| jar.is_empty()) {
        return Err(EmbeddedError::NoJava);
    }
    unpack(&JARS, &own_cache_folders())
}

/// The jar for the test APKs of Android apps: the listener, the code that repeats tests, and the calls from Java to the
/// agent.
///
/// # Errors
/// When it was not built.
pub(crate) fn android_jar() -> Result<&'static [u8], EmbeddedError> {
    if ANDROID_JAR_BYTES.is_empty() { Err(EmbeddedError::NoJava) } else { Ok(ANDROID_JAR_BYTES) }
}

fn own_cache_folders() -> Vec<PathBuf> {
    cache_folders(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME"), rustix::process::geteuid().is_root())
}

fn cache_folders(xdg_cache_home: Option<OsString>, home: Option<OsString>, is_root: bool) -> Vec<PathBuf> {
    let xdg = xdg_cache_home.map(PathBuf::from);
    let home = home.map(|home| Path::new(&home).join(".cache"));
    let private = [xdg, home].into_iter().flatten().map(|folder| folder.join("memgate"));
    let of_root = is_root.then(|| PathBuf::from(SYSTEM_CACHE));
    of_root.into_iter().chain(private).filter(|folder| folder.is_absolute()).collect()
}

/// A file name and its content.
type Embedded<'a> = (&'a str, &'a [u8]);

/// The folder that contains all of `files`.
fn unpack(files: &[Embedded<'_>], folders: &[PathBuf]) -> Result<PathBuf, EmbeddedError> {
    let mut problems = Vec::new();
    for folder in folders {
        let own = folder.join(hash(files));
        match files.iter().try_for_each(|file| unpack_into(*file, &own)) {
            Ok(()) => return Ok(own),
            Err(e) => problems.push(format!("{}: {e}", folder.display())),
        }
    }
    Err(EmbeddedError::NoFolder(problems))
}

fn unpack_into((name, contents): Embedded<'_>, folder: &Path) -> io::Result<()> {
    let path = folder.join(name);
    if path.as_os_str().as_bytes().iter().any(|b| matches!(b, b' ' | b':')) {
        return Err(io::Error::other("the dynamic linker splits LD_PRELOAD at spaces and colons"));
    }
    make(folder)?;
    if !is_current(contents, &path) {
        write(contents, &path)?;
    }
    usable(&path)
}

/// Creates the folder and the cache around it so that nobody else can write there, whatever the umask or existing
/// permissions allow.
fn make(folder: &Path) -> io::Result<()> {
    let is_shared = folder.starts_with(SYSTEM_CACHE);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    for own in [folder.parent(), Some(folder)].into_iter().flatten() {
        let found = fs::symlink_metadata(own)?;
        let wrong = found.mode() & OTHERS_MAY_WRITE != 0 || is_shared && found.mode() & 0o055 != 0o055;
        if wrong && found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() {
            fs::set_permissions(own, Permissions::from_mode(if is_shared { 0o755 } else { 0o700 }))?;
        }
    }
    trusted(folder)
}

/// Checks that every part of the path to this folder, links included, is ours or root's, and that nobody else can
/// change it.
fn trusted(folder: &Path) -> io::Result<()> {
    let real = fs::canonicalize(folder)?;
    for part in folder.ancestors().chain(real.ancestors()) {
        let found = fs::symlink_metadata(part)?;
        let is_safe = found.is_symlink() || found.mode() & STICKY != 0 || only_we_write(&found);
        if !is_ours_or_root_s(&found) || !is_safe {
            let why = "belongs to somebody else, or others may write there";
            return Err(io::Error::other(format!("{} {why}", part.display())));
        }
    }
    Ok(())
}

fn is_ours_or_root_s(found: &fs::Metadata) -> bool {
    found.uid() == rustix::process::geteuid().as_raw() || found.uid() == 0
}

/// A group with the same number as its user belongs only to that user, by the convention of most distributions, whose
/// umask lets it write.
fn only_we_write(found: &fs::Metadata) -> bool {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let is_our_group = found.gid() == 0 || found.gid() == group && group == user;
    let allowed = if is_our_group { OTHERS_MAY_WRITE & !GROUP_MAY_WRITE } else { OTHERS_MAY_WRITE };
    found.mode() & allowed == 0
}

/// A library on a mount without execute permission cannot be loaded.
fn usable(path: &Path) -> io::Result<()> {
    let mount = rustix::fs::statvfs(path)?;
    if mount.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err(io::Error::other("it is mounted noexec"));
    }
    Ok(())
}

/// Whether the file is ours and its content is the embedded one.
fn is_current(contents: &[u8], path: &Path) -> bool {
    let no_follow = OFlags::NOFOLLOW.bits().cast_signed();
    let Ok(file) = File::options().read(true).custom_flags(no_follow).open(path) else { return false };
    let Ok(metadata) = file.metadata() else { return false };
    let mut found = Vec::new();
    is_ours_or_root_s(&metadata)
        && metadata.mode() & OTHERS_MAY_WRITE == 0
        && metadata.len() == contents.len() as u64
        && file.take(metadata.len()).read_to_end(&mut found).is_ok()
        && found == contents
}

fn write(contents: &[u8], path: &Path) -> io::Result<()> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let new = path.with_extension(format!("{}-{number}.new", std::process::id()));
    let written = File::options().write(true).create_new(true).mode(0o755).open(&new).and_then(|mut file| {
        file.write_all(contents)?;
        // Independent of the umask: guests may run as another user.
        file.set_permissions(Permissions::from_mode(0o755))?;
        fs::rename(&new, path)
    });
    if written.is_err() {
        // The file may never have been created.
        drop(fs::remove_file(&new));
    }
    written
}

fn hash(files: &[Embedded<'_>]) -> String {
    let mut hash = Sha256::new();
    for (_, contents) in files {
        hash.update(contents);
    }
    hash.finalize().iter().take(HASH_DIGITS / 2).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("memgate");
        (folder, cache)
    }

    fn one(agent: &[u8], cache: &PathBuf) -> PathBuf {
        unpack(&[(LIBRARY, agent)], std::slice::from_ref(cache)).unwrap().join(LIBRARY)
    }

    #[test]
    fn a_folder_without_an_agent_for_android_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let below = |folder: &Path| agents_below(Some(folder.as_os_str()));
        assert_eq!(agents_below(None), Err("MEMGATE_ANDROID_AGENT names no folder".to_owned()));
        assert!(below(&folder.path().join("gone")).unwrap_err().contains("/gone: No such file"));
        assert!(below(folder.path()).unwrap_err().ends_with("no folder in it has a libmemgate_agent.so"));
        fs::create_dir(folder.path().join("x86_64")).unwrap();
        fs::write(folder.path().join("x86_64").join(LIBRARY), "").unwrap();
        assert_eq!(below(folder.path()), Ok(()));
    }

    #[test]
    fn it_is_unpacked_once_and_then_used_again() {
        let (_folder, cache) = cache();
        let path = one(b"agent", &cache);
        let first = fs::metadata(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"agent");
        assert_eq!(first.mode() & 0o777, 0o755);
        assert_eq!(one(b"agent", &cache), path);
        assert_eq!(fs::metadata(&path).unwrap().ino(), first.ino(), "the same file");
        assert_ne!(one(b"other", &cache), path, "another agent lies elsewhere");
    }

    #[test]
    fn a_file_of_other_content_or_open_to_others_is_replaced() {
        let (_folder, cache) = cache();
        let path = one(b"agent", &cache);
        fs::write(&path, b"agenT").unwrap();
        assert_eq!(one(b"agent", &cache), path);
        assert_eq!(fs::read(&path).unwrap(), b"agent");

        fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        one(b"agent", &cache);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o755);

        fs::remove_file(&path).unwrap();
        let elsewhere = cache.join("elsewhere");
        fs::write(&elsewhere, b"agent").unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        one(b"agent", &cache);
        assert!(fs::symlink_metadata(&path).unwrap().is_file(), "a link is not followed");
    }

    #[test]
    fn a_folder_that_cannot_take_it_is_passed_over_and_named_when_it_is_the_last() {
        let (folder, cache) = cache();
        let taken = folder.path().join("taken");
        fs::write(&taken, b"a file").unwrap();
        let open = folder.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        let open = open.join("memgate");
        let spaced = folder.path().join("my cache");
        let bad = [taken.clone(), open.clone(), spaced.clone()];
        let good = [bad.as_slice(), std::slice::from_ref(&cache)].concat();
        assert!(unpack(&[(LIBRARY, b"agent")], &good).unwrap().starts_with(&cache));

        let Err(EmbeddedError::NoFolder(problems)) = unpack(&[(LIBRARY, b"agent")], &bad) else { panic!() };
        let [first, second, third] = problems.as_slice() else { panic!("{problems:?}") };
        assert!(first.starts_with(&*taken.to_string_lossy()), "{first}");
        assert!(second.ends_with("open belongs to somebody else, or others may write there"), "{second}");
        assert!(third.ends_with("the dynamic linker splits LD_PRELOAD at spaces and colons"), "{third}");
    }

    #[test]
    fn a_cache_that_others_may_write_to_is_closed_to_them_and_what_it_holds_is_looked_at() {
        let (_folder, cache) = cache();
        let path = one(b"agent", &cache);
        fs::set_permissions(&cache, Permissions::from_mode(0o777)).unwrap();
        fs::write(&path, b"agenT").unwrap();
        assert_eq!(one(b"agent", &cache), path);
        assert_eq!(fs::metadata(&cache).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::read(&path).unwrap(), b"agent");
    }

    #[test]
    fn the_folders_are_those_of_the_user() {
        let folders = |xdg: Option<&str>, home: Option<&str>| {
            cache_folders(xdg.map(Into::into), home.map(Into::into), false)
        };
        assert_eq!(
            folders(Some("/x"), Some("/h")),
            [PathBuf::from("/x/memgate"), "/h/.cache/memgate".into()]
        );
        for unusable in [folders(Some("relative"), None), folders(None, Some(""))] {
            assert!(unusable.is_empty(), "{unusable:?}");
        }
        let Err(why) = unpack(&[(LIBRARY, b"agent")], &[]) else { panic!("there is no folder") };
        assert!(why.to_string().ends_with("name a folder of your own with XDG_CACHE_HOME"), "{why}");
    }

    #[test]
    fn root_s_agent_lies_where_other_users_can_read_it() {
        let folders = cache_folders(None, Some("/root".into()), true);
        assert_eq!(folders, [PathBuf::from(SYSTEM_CACHE), "/root/.cache/memgate".into()]);
    }
}
