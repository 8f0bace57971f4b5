//! Records the programs that this process starts, in the list that the harness prepared (`memgate_wire::starts`). This
//! shows the harness test programs without the agent.
//!
//! Data flow: `entry::exec` interposes the C library's functions that start programs → [`begin`] → the mapped list. All
//! this code may run in the child of a `vfork` and in a signal handler, so it uses no heap, no lock and no descriptor.
//! It checks two files.
#![expect(clippy::arithmetic_side_effects, reason = "places in a mapping of fixed size, which checks each")]

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU32, Ordering};
use std::ffi::CString;
use std::sync::OnceLock;

use memgate_ffi::exec::{self, Right, Room, Strings, may, mode_of_file};
use memgate_ffi::process;
use memgate_ffi::shared::{BriefFile, SharedMap, futex_wake};
use memgate_wire::starts::{self, BYTES, HEAD, MAX_BODY, RECORDS, SLOT_COUNT, SLOTS, flag};

/// Maximum number of slots that are tried for one record.
const ATTEMPTS: usize = 128;
/// Longest path that is built from a folder of `PATH` and a name.
const MOST_PATH: usize = 1024;
const _: () = assert!(MOST_PATH + MAX_BODY <= Room::FRONT, "a room has both");
/// Maximum size and number of the recorded arguments.
const MOST_ARGUMENT_BYTES: usize = 512;
const MOST_ARGUMENTS: usize = 24;

const SET_ID: u32 = 0o6000;

const PRELOAD: &[u8] = b"LD_PRELOAD=";
const OPTIONS: &[u8] = b"MEMGATE_AGENT_OPTIONS=";
const ASAN: &[u8] = b"ASAN_OPTIONS=";
/// AddressSanitizer ends programs that have any library before its own.
const ASAN_ORDER: &[u8] = b"verify_asan_link_order";

struct List {
    map: SharedMap,
    /// Path of the agent, as given to the loader.
    agent: CString,
    /// Folder for spool files.
    folder: CString,
    /// Effective user of the process at its start.
    user: u32,
}

static LIST: OnceLock<List> = OnceLock::new();

/// The way in which the program to start is named.
#[derive(Clone, Copy)]
pub(crate) enum Named {
    /// By its path.
    Path,
    /// By a name that is searched in `PATH`, unless it contains a slash.
    InPath,
}

/// A recorded start.
#[derive(Default)]
pub(crate) struct Noted {
    count: Option<&'static AtomicU32>,
    /// The environment that the program needs instead of its own, in this scratch memory.
    environment: Option<(*const *const c_char, Room)>,
}

impl Noted {
    /// The environment that the program needs.
    pub(crate) fn environment(&self, own: *const *const c_char) -> *const *const c_char {
        self.environment.as_ref().map_or(own, |(changed, _)| *changed)
    }

    /// Undoes the record: the start failed.
    pub(crate) fn failed(&self) {
        if let Some(count) = self.count {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Starts recording in the list at `path`. `folder`: the folder for spool files.
pub(crate) fn note_in(path: &str, folder: &str) {
    let Ok(file) = BriefFile::open(path) else { return };
    // An access after the end of the mapped file would end the guest.
    let Some(map) = file.map(0, BYTES).ok().filter(|_| file.is_as_long_as(BYTES as u64)) else { return };
    let agent = CString::new(process::path_of(note_in as fn(&str, &str) as usize));
    let (Ok(agent), Ok(folder)) = (agent, CString::new(folder)) else { return };
    // The constructor runs once.
    drop(LIST.set(List { map, agent, folder, user: exec::effective_user() }));
}

/// Records that this process is not recorded, and why: the list is the only information that the harness gets about it.
pub(crate) fn note_itself(why: u8, executable: &str, argument: Option<&str>) {
    let Some(list) = LIST.get() else { return };
    let Some(mut room) = Room::new() else { return };
    let mut body = Body::new(room.front(), why);
    for text in ["", executable].into_iter().chain(argument) {
        body.push_text(text.as_bytes());
    }
    list.insert(&body);
}

/// Records a program that is about to start.
pub(crate) fn begin<'a>(
    (program, named): (&CStr, Named),
    arguments: impl Iterator<Item = &'a CStr> + Clone,
    environment: Strings<'_>,
) -> Noted {
    LIST.get().map_or_else(Noted::default, |list| {
        exec::with_errno_kept(|| list.begin((program, named), arguments, environment))
    })
}

impl List {
    fn begin<'a>(
        &'static self,
        (program, named): (&CStr, Named),
        arguments: impl Iterator<Item = &'a CStr> + Clone,
        environment: Strings<'_>,
    ) -> Noted {
        let Some(mut room) = Room::new() else {
            self.loses();
            return Noted::default();
        };
        let flags = self.flags(environment, room.front());
        let changed = self.changed(flags, environment, &mut room);
        let mut count = None;
        let (place, body) = room.front().split_at_mut(MOST_PATH);
        let found = match named {
            Named::Path => Some(program),
            Named::InPath => find_in_path(program, environment_path(), place),
        };
        let found = found.and_then(|path| Some((path, mode_of_file(path)?)));
        if let Some((path, mode)) =
            found.filter(|_| !arguments.clone().any(|a| starts::runs_no_suite(a.to_bytes())))
        {
            let name = path.to_bytes();
            let tells = mode & SET_ID != 0 || flags != 0 && starts::passes_on(name);
            let mut body = Body::new(body, flags);
            if name.starts_with(b"/") {
                body.push_text(b"")
            } else {
                body.push_folder()
            }
            body.push_text(name);
            if tells {
                body.push_arguments(arguments);
            }
            count = self.insert(&body);
        }
        Noted { count, environment: changed.map(|changed| (changed, room)) }
    }

    fn flags(&self, environment: Strings<'_>, place: &mut [u8]) -> u8 {
        let preload = environment.value(PRELOAD).unwrap_or_default();
        let is_carried = place_of(preload, self.agent.to_bytes()).is_some()
            && environment.value(OPTIONS).is_some_and(|options| !options.is_empty());
        if !is_carried {
            return flag::BARE;
        }
        let mut flags = 0;
        let is_same = exec::effective_user() == self.user;
        let mut may = |right, path: &CStr| {
            if is_same { may(right, path) } else { exec::may_when_started(right, path, place) }
        };
        if !may(Right::Read, &self.agent) {
            flags |= flag::UNREADABLE;
        }
        if !may(Right::Create, &self.folder) {
            flags |= flag::NO_FOLDER;
        }
        flags
    }

    /// The changed environment in which the program runs as it would without the agent. `None`: no change is needed, or
    /// there is no memory. A change is needed because the loader prints a line for a library that it cannot read, and
    /// because AddressSanitizer ends a program if the agent is loaded before it, unless that check is disabled.
    fn changed(&self, flags: u8, environment: Strings<'_>, room: &mut Room) -> Option<*const *const c_char> {
        if flags & flag::UNREADABLE != 0 {
            let value = environment.value(PRELOAD)?;
            let at = place_of(value, self.agent.to_bytes())?;
            let before = value.get(..at)?.strip_suffix(b":").unwrap_or(value.get(..at)?);
            let behind = value.get(at + self.agent.to_bytes().len()..)?;
            let behind = behind.strip_prefix(b":").or(behind.strip_prefix(b" ")).unwrap_or(behind);
            let parts: &[&[u8]] = match (before, behind) {
                (b"", b"") => &[],
                (before, b"") => &[before],
                (b"", behind) => &[behind],
                (before, behind) => &[before, b":", behind],
            };
            return room.environment(environment, &[(PRELOAD, parts)]);
        }
        if flags & flag::BARE != 0 {
            return None;
        }
        let value = environment.value(ASAN).unwrap_or_default();
        if value.windows(ASAN_ORDER.len()).any(|part| part == ASAN_ORDER) {
            return None;
        }
        let colon: &[u8] = if value.is_empty() { b"" } else { b":" };
        room.environment(environment, &[(ASAN, &[value, colon, ASAN_ORDER, b"=0"])])
    }

    /// Adds one to the record's count and returns the count; `None`: there is no room.
    fn insert(&'static self, body: &Body<'_>) -> Option<&'static AtomicU32> {
        let count = body.bytes().and_then(|body| self.insert_bytes(body));
        if count.is_none() {
            self.loses();
        }
        count
    }

    fn loses(&self) {
        if let Some(lost) = self.map.word(starts::LOST) {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn insert_bytes(&'static self, body: &[u8]) -> Option<&'static AtomicU32> {
        let hash = starts::hash(body);
        let first = usize::try_from(hash % SLOT_COUNT as u64).ok()?;
        let mut written = None;
        for i in (first..first + ATTEMPTS).map(|i| i % SLOT_COUNT) {
            let slot = self.map.word(SLOTS + 4 * i)?;
            let mut at = slot.load(Ordering::Acquire);
            if at == 0 {
                // Another thread or process may take the slot. Then the written record is put into the next free slot.
                let new = match written {
                    Some(new) => new,
                    None => self.write(hash, body)?,
                };
                written = Some(new);
                match slot.compare_exchange(0, new, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => {
                        let changed = self.map.word(starts::CHANGED)?;
                        changed.fetch_add(1, Ordering::Release);
                        futex_wake(changed);
                        return self.map.word(usize::try_from(new).ok()? + starts::COUNT);
                    }
                    Err(now) => at = now,
                }
            }
            let at = usize::try_from(at).ok()?;
            let length = self.map.word(at + 12)?.load(Ordering::Relaxed);
            if self.map.long(at)?.load(Ordering::Relaxed) == hash && usize::try_from(length) == Ok(body.len())
            {
                let count = self.map.word(at + starts::COUNT)?;
                count.fetch_add(1, Ordering::Relaxed);
                return Some(count);
            }
        }
        None
    }

    /// Writes a record that is not visible yet, and returns its offset.
    fn write(&self, hash: u64, body: &[u8]) -> Option<u32> {
        let bytes = u32::try_from((HEAD + body.len()).next_multiple_of(8)).ok()?;
        let room = u32::try_from(BYTES - RECORDS).ok()?;
        let taken = self.map.word(starts::TAKEN)?;
        let before = taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |t| {
                t.checked_add(bytes).filter(|&end| end <= room)
            })
            .ok()?;
        let at = RECORDS + usize::try_from(before).ok()?;
        self.map.long(at)?.store(hash, Ordering::Relaxed);
        self.map.word(at + starts::COUNT)?.store(1, Ordering::Relaxed);
        self.map.word(at + 12)?.store(u32::try_from(body.len()).ok()?, Ordering::Relaxed);
        self.map.write(at + HEAD, body);
        u32::try_from(at).ok()
    }
}

/// A record that is being built.
struct Body<'a> {
    bytes: &'a mut [u8],
    length: usize,
    is_whole: bool,
}

impl<'a> Body<'a> {
    fn new(room: &'a mut [u8], flags: u8) -> Self {
        let bytes = room.get_mut(..MAX_BODY).unwrap_or_default();
        let mut body = Self { bytes, length: 0, is_whole: true };
        body.push(&[flags]);
        body
    }

    fn push(&mut self, bytes: &[u8]) {
        match self.bytes.get_mut(self.length..self.length + bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.length += bytes.len();
            }
            None => self.is_whole = false,
        }
    }

    fn push_text(&mut self, text: &[u8]) {
        self.push(text);
        self.push(b"\0");
    }

    fn push_folder(&mut self) {
        let room = self.bytes.get_mut(self.length..).unwrap_or_default();
        let got = exec::current_folder(room);
        self.is_whole &= got != 0;
        self.length += got;
        self.push(b"\0");
    }

    /// Adds as many arguments as fit. The first ones identify the program that is started next.
    fn push_arguments<'b>(&mut self, arguments: impl Iterator<Item = &'b CStr>) {
        let mut left = MOST_ARGUMENT_BYTES.min(self.bytes.len().saturating_sub(self.length));
        for argument in arguments.take(MOST_ARGUMENTS).map(CStr::to_bytes) {
            let Some(rest) = left.checked_sub(argument.len() + 1) else { return };
            left = rest;
            self.push_text(argument);
        }
    }

    fn bytes(&self) -> Option<&[u8]> {
        self.bytes.get(..self.length).filter(|_| self.is_whole)
    }
}

/// Position of `path` in a list of libraries.
fn place_of(list: &[u8], path: &[u8]) -> Option<usize> {
    let is_separator = |at: Option<&u8>| at.is_none_or(|b| matches!(b, b':' | b' '));
    let fits = |at: &usize| {
        let before = at.checked_sub(1).and_then(|before| list.get(before));
        is_separator(before) && is_separator(list.get(at + path.len()))
    };
    list.windows(path.len().max(1)).enumerate().filter(|(_, part)| *part == path).map(|(at, _)| at).find(fits)
}

fn environment_path() -> &'static [u8] {
    Strings::environment().value(b"PATH=").unwrap_or(b"/bin:/usr/bin")
}

/// The file that `execvp` would start. If folders are searched, its path is built in `place`.
fn find_in_path<'a>(name: &'a CStr, folders: &[u8], place: &'a mut [u8]) -> Option<&'a CStr> {
    if name.to_bytes().contains(&b'/') {
        return Some(name);
    }
    for folder in folders.split(|b| *b == b':') {
        let between: &[u8] = if folder.is_empty() || folder.ends_with(b"/") { b"" } else { b"/" };
        if join(place, [folder, between, name.to_bytes_with_nul()]) {
            let candidate = CStr::from_bytes_until_nul(place).ok()?;
            if may(Right::Run, candidate) && mode_of_file(candidate).is_some() {
                break;
            }
        }
        *place.first_mut()? = 0;
    }
    CStr::from_bytes_until_nul(place).ok().filter(|found| !found.is_empty())
}

/// Joins the parts. False: there is no room for them.
fn join(place: &mut [u8], parts: [&[u8]; 3]) -> bool {
    let mut at = 0;
    for part in parts {
        let Some(room) = place.get_mut(at..at + part.len()) else { return false };
        room.copy_from_slice(part);
        at += part.len();
    }
    true
}
