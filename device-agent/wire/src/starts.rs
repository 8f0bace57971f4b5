//! The list of starts: the programs that a command started, directly or indirectly, noted by the agents in the
//! processes that start them.
//!
//! The harness creates the file with all its blocks. The agent in every process of the command maps the whole file, so
//! that a note needs no descriptor, no path and no right that the process may have given up before it starts a program.
//! Records are never removed.
//!
//! | offset | field |
//! |---|---|
//! | 0 | [`MAGIC`] |
//! | 8 | u32, futex: counts records |
//! | 12 | u32: bytes after [`RECORDS`] that are taken |
//! | 16 | u32: starts for which there was no room |
//! | [`SLOTS`] | a hash table of [`SLOT_COUNT`] u32: offsets of records, 0: free |
//! | [`RECORDS`] | the records |
//!
//! A record: u64 hash of its body, u32 how often (failed attempts are subtracted), u32 bytes of the body; the body:
//! [`flag`] bits in one byte, then folder, path and arguments, each followed by a NUL. A record is complete before
//! its offset is written into a slot.

use alloc::string::String;
use alloc::vec::Vec;

/// First bytes of the file.
pub const MAGIC: [u8; 8] = *b"MGSTART1";
/// Bytes of the file.
pub const BYTES: usize = 2 << 20;
/// Offset of the word that counts records.
pub const CHANGED: usize = 8;
/// Offset of the word with the bytes that are taken.
pub const TAKEN: usize = 12;
/// Offset of the word that counts starts without room.
pub const LOST: usize = 16;
/// Offset of the table.
pub const SLOTS: usize = 4096;
/// Slots in the table.
pub const SLOT_COUNT: usize = 8192;
/// Offset of the first record.
pub const RECORDS: usize = SLOTS + 4 * SLOT_COUNT;
/// Bytes of a record before its body.
pub const HEAD: usize = 16;
/// Offset in a record of the word that counts its starts.
pub const COUNT: usize = 8;
/// Longest body.
pub const MAX_BODY: usize = 3072;

/// Facts about a program when it starts.
pub mod flag {
    /// Its environment does not load the agent, or not with its options.
    pub const BARE: u8 = 1;
    /// The agent's file cannot be read there: another user, another root folder.
    pub const UNREADABLE: u8 = 2;
    /// The session's folder cannot be written there.
    pub const NO_FOLDER: u8 = 4;
    /// The agent is in the program, but could not record.
    pub const SILENT: u8 = 8;
    /// A virtual machine noted itself: it runs JUnit tests while native tests are measured. Its main class or jar is
    /// the only argument.
    pub const JUNIT: u8 = 16;
}

/// Programs that only start others: their arguments name the next program.
const PASSES_ON: [&[u8]; 26] = [
    b"sh",
    b"bash",
    b"dash",
    b"ash",
    b"ksh",
    b"zsh",
    b"env",
    b"nice",
    b"nohup",
    b"timeout",
    b"setsid",
    b"stdbuf",
    b"time",
    b"xargs",
    b"setpriv",
    b"chroot",
    b"unshare",
    b"taskset",
    b"ionice",
    b"chrt",
    b"sudo",
    b"doas",
    b"su",
    b"runuser",
    b"busybox",
    b"xvfb-run",
];

/// A program that was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// How often it was started.
    pub count: u32,
    /// [`flag`] bits.
    pub flags: u8,
    /// The folder in which a relative path begins; empty for an absolute one.
    pub folder: String,
    /// Its file.
    pub path: String,
    /// Its arguments, beginning with its own name; empty if they do not matter.
    pub arguments: Vec<String>,
}

/// Does a program with this path only start another?
#[must_use]
pub fn passes_on(path: &[u8]) -> bool {
    let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
    PASSES_ON.contains(&name)
}

/// Does this argument make a GoogleTest program list its tests, print its help, or run one half of a death test? If so,
/// it is no suite.
#[must_use]
pub fn runs_no_suite(argument: &[u8]) -> bool {
    let flag = [b"--".as_slice(), b"-", b"/"].iter().find_map(|dash| argument.strip_prefix(*dash));
    flag.is_some_and(|flag| {
        matches!(flag, b"gtest_list_tests" | b"help" | b"h" | b"?")
            || flag.starts_with(b"gtest_internal_run_death_test")
    })
}

/// FNV-1a.
#[must_use]
pub fn hash(body: &[u8]) -> u64 {
    body.iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Reads the records in the table of a file. Invalid records are left out, because the file may be damaged.
#[must_use]
pub fn read(file: &[u8]) -> Vec<Start> {
    let table = file.get(SLOTS..RECORDS).unwrap_or_default();
    offsets(table).filter_map(|at| record(file.get(usize::try_from(at).ok()?..)?)).collect()
}

/// Offsets of the records, from the bytes of the table.
pub fn offsets(table: &[u8]) -> impl Iterator<Item = u32> + '_ {
    table
        .chunks_exact(4)
        .filter_map(|slot| Some(u32::from_le_bytes(*slot.first_chunk()?)))
        .filter(|at| *at != 0)
}

/// Reads a record and ignores what follows it.
#[must_use]
pub fn record(record: &[u8]) -> Option<Start> {
    let (head, rest) = record.split_first_chunk::<HEAD>()?;
    let [.., c0, c1, c2, c3, b0, b1, b2, b3] = *head;
    let count = u32::from_le_bytes([c0, c1, c2, c3]);
    let bytes = usize::try_from(u32::from_le_bytes([b0, b1, b2, b3])).ok()?;
    let (flags, texts) = rest.get(..bytes)?.split_first()?;
    let mut texts =
        texts.strip_suffix(b"\0")?.split(|b| *b == 0).map(|text| String::from_utf8_lossy(text).into_owned());
    let (folder, path) = (texts.next()?, texts.next()?);
    Some(Start { count, flags: *flags, folder, path, arguments: texts.collect() })
}

#[cfg(test)]
mod tests {
    use alloc::borrow::ToOwned;
    use alloc::vec;

    use super::*;

    fn file(bodies: &[&[u8]]) -> Vec<u8> {
        let mut file = vec![0; BYTES];
        let mut at = RECORDS;
        for (i, body) in bodies.iter().enumerate() {
            file[SLOTS + 4 * i * 7..][..4].copy_from_slice(&u32::try_from(at).unwrap().to_le_bytes());
            file[at..][..8].copy_from_slice(&hash(body).to_le_bytes());
            file[at + COUNT..][..4].copy_from_slice(&3_u32.to_le_bytes());
            file[at + 12..][..4].copy_from_slice(&u32::try_from(body.len()).unwrap().to_le_bytes());
            file[at + HEAD..][..body.len()].copy_from_slice(body);
            at += (HEAD + body.len()).next_multiple_of(8);
        }
        file
    }

    #[test]
    fn what_was_noted_is_read() {
        let starts = read(&file(&[b"\x01/b\0./t\0", b"\0\0/usr/bin/sudo\0sudo\0./t\0"]));
        let want = |flags, folder: &str, path: &str, arguments: &[&str]| Start {
            count: 3,
            flags,
            folder: folder.to_owned(),
            path: path.to_owned(),
            arguments: arguments.iter().map(|&a| a.to_owned()).collect(),
        };
        assert_eq!(
            starts,
            [want(flag::BARE, "/b", "./t", &[]), want(0, "", "/usr/bin/sudo", &["sudo", "./t"])]
        );
    }

    #[test]
    fn a_damaged_file_is_read_as_far_as_it_makes_sense() {
        let mut damaged = file(&[b"\x01/b\0./t\0", b"\0\0/u\0"]);
        damaged[RECORDS + 12..][..4].copy_from_slice(&u32::MAX.to_le_bytes());
        damaged[SLOTS + 400..][..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(read(&damaged).len(), 1);
        for end in [0, 10, SLOTS, RECORDS, RECORDS + 3] {
            assert!(read(&damaged[..end]).is_empty());
        }
    }

    #[test]
    fn listings_and_death_tests_are_no_suites() {
        for (argument, none) in [
            ("--gtest_list_tests", true),
            ("--gtest_internal_run_death_test=/a|3", true),
            ("--help", true),
            ("-h", true),
            ("--gtest_filter=A.*", false),
            ("--host", false),
            ("h", false),
        ] {
            assert_eq!(runs_no_suite(argument.as_bytes()), none, "{argument}");
        }
    }
}
