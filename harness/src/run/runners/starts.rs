//! Finds test programs that a command started but that did not report. The agent in the starting process notes each
//! start. The harness inspects the file. A test that could not be measured becomes a suite with an error.
//!
//! Data flow: [`Starts::begin`] creates the list (`memgate_wire::starts`) → a thread looks at every new program's file
//! at once, because it may soon be removed → [`Starts::end`] → [`Listed::unseen`]: the tests among them that did not
//! say hello, with the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use memgate_map::{Bell, ControlPage, Woken};
use memgate_wire::starts::{self, BYTES, CHANGED, HEAD, LOST, MAGIC, MAX_BODY, RECORDS, SLOTS, Start, flag};
use rustix::fs::FallocateFlags;

use super::choose;
use crate::exit::ExpectedError;
use crate::session::Session;
use crate::suite::gtest::matches;
use crate::suite::{Evidence, Kind, Program, inspect};

/// File name in the session while the command runs.
const NAME: &str = "starts";
/// How often the list is read without news: before Linux 5.16, a bell that rings too early is noticed only then.
const IDLE: Duration = Duration::from_secs(1);

/// Folders of the system's programs, which are no tests.
const SYSTEM: [&str; 7] = ["/usr/bin", "/usr/sbin", "/usr/lib", "/usr/libexec", "/bin", "/sbin", "/lib"];

/// The list while a command runs.
pub(super) struct Starts {
    path: PathBuf,
    page: Arc<ControlPage>,
    bell: Arc<Bell>,
    thread: JoinHandle<io::Result<Looked>>,
}

/// Programs by the path with which they were started.
type Looked = BTreeMap<PathBuf, File>;

/// The file at a path when it was looked at.
enum File {
    Program(Program),
    /// Not a program: a folder, a script that cannot be read.
    Other,
    /// The file was already removed.
    Gone,
}

/// Everything that was started.
pub(super) struct Listed {
    starts: Vec<Start>,
    programs: Looked,
    /// Number of starts that found no room in the list.
    pub(super) lost: u32,
}

/// The tests of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tests {
    GoogleTest,
    /// It reports its own tests, and no target names it.
    Own,
    Other,
}

/// A test program that ran and was not measured.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Unseen {
    pub(super) tests: Tests,
    pub(super) path: String,
    pub(super) why: String,
    pub(super) remedy: &'static str,
}

impl Starts {
    /// Creates the list.
    pub(super) fn begin(session: &Session) -> Result<Self, ExpectedError> {
        let path = session.frames().join(NAME);
        let failed = |why: &dyn std::fmt::Display| {
            ExpectedError::machinery(format!("failed to lay out {}: {why}", path.display()), "")
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(|why| failed(&why))?;
        // Allocates the blocks: a guest that writes to a mapped hole on a full disk would be killed.
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, BYTES as u64).map_err(|why| failed(&why))?;
        file.write_all_at(&MAGIC, 0).map_err(|why| failed(&why))?;
        let page = Arc::new(ControlPage::map(file).map_err(|why| failed(&why))?);
        let bell = Arc::new(Bell::default());
        let (of_thread, ears) = (Arc::clone(&page), Arc::clone(&bell));
        let thread = thread::Builder::new()
            .name("memgate-starts".into())
            .spawn(move || watch(&of_thread, &ears))
            .map_err(|why| failed(&why))?;
        Ok(Self { path, page, bell, thread })
    }

    /// Path of the list.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the complete list after the command has ended.
    pub(super) fn end(self) -> Result<Listed, ExpectedError> {
        let failed = |why: io::Error| {
            ExpectedError::machinery(format!("failed to read {}: {why}", self.path.display()), "")
        };
        self.page.ring(&self.bell, CHANGED).map_err(failed)?;
        let broken = |_| io::Error::other("the thread that reads it has ended early");
        let programs = self.thread.join().map_err(broken).flatten().map_err(failed)?;
        let starts = read(&self.page).map_err(failed)?;
        let lost = self.page.load_u32(LOST).map_err(failed)?;
        // Processes that still run have it mapped and do not need the file name.
        fs::remove_file(&self.path).map_err(failed)?;
        Ok(Listed { starts, programs, lost })
    }
}

fn read(page: &ControlPage) -> io::Result<Vec<Start>> {
    let mut file = vec![0; BYTES];
    page.file().read_exact_at(&mut file, 0)?;
    Ok(starts::read(&file))
}

/// Looks at the file of every program as soon as it is started.
fn watch(page: &ControlPage, bell: &Bell) -> io::Result<Looked> {
    let (mut looked, mut known) = (Looked::new(), BTreeSet::new());
    let mut seen = 0;
    loop {
        let woken = page.wait(CHANGED, seen, bell, IDLE)?;
        seen = page.load_u32(CHANGED)?;
        for path in new_starts(page, &mut known)?.iter().flat_map(candidates) {
            if !looked.contains_key(&path) && !is_of_the_system(&path) {
                let program = look(&path);
                looked.insert(path, program);
            }
        }
        if woken == Woken::Bell {
            return Ok(looked);
        }
    }
}

/// The starts noted since the last call.
fn new_starts(page: &ControlPage, known: &mut BTreeSet<u32>) -> io::Result<Vec<Start>> {
    let mut table = vec![0; RECORDS - SLOTS];
    page.file().read_exact_at(&mut table, SLOTS as u64)?;
    let mut new = Vec::new();
    for at in starts::offsets(&table).filter(|at| known.insert(*at)) {
        let mut record = vec![0; HEAD + MAX_BODY];
        let got = page.file().read_at(&mut record, at.into())?;
        new.extend(starts::record(record.get(..got).unwrap_or_default()));
    }
    Ok(new)
}

fn look(path: &Path) -> File {
    let found = inspect(path.as_os_str(), None, Path::new("/")).ok();
    match found.and_then(|program| Some(Program { path: fs::canonicalize(path).ok()?, ..program })) {
        Some(program) => File::Program(program),
        None if matches!(fs::metadata(path), Err(why) if why.kind() == io::ErrorKind::NotFound) => File::Gone,
        None => File::Other,
    }
}

fn is_of_the_system(path: &Path) -> bool {
    SYSTEM.iter().any(|folder| path.starts_with(folder))
}

/// The files that a start may have run: its own, and if that only starts another program, the one named in its
/// arguments.
fn candidates(start: &Start) -> Vec<PathBuf> {
    let mut found = vec![Path::new(&start.folder).join(&start.path)];
    let folder = Path::new(&start.folder);
    let is_program = |word: &str| {
        let program = inspect(OsStr::new(word), std::env::var_os("PATH").as_deref(), folder);
        program.ok().map(|program| program.path)
    };
    let mut rest = start.arguments.iter().skip(1);
    while let Some(word) = rest.next() {
        if word == "-c" {
            let text = rest.next().map(String::as_str).unwrap_or_default();
            found.extend(commands(text).filter_map(is_program));
            break;
        }
        let Some(program) = is_program(word) else { continue };
        let passes_on = starts::passes_on(word.as_bytes());
        found.push(program);
        if !passes_on {
            break;
        }
    }
    found
}

/// The first words of the commands in a shell's text.
fn commands(text: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| matches!(c, ';' | '&' | '|' | '\n' | '(' | ')' | '{' | '}' | '`');
    let is_prefix = |word: &&str| {
        matches!(*word, "exec" | "then" | "do" | "else" | "!" | "if" | "while") || word.contains('=')
    };
    text.split(ends).filter_map(move |command| command.split_whitespace().find(|word| !is_prefix(word)))
}

impl Listed {
    /// The started tests that were not measured. `tests`: programs count as tests if they contain GoogleTest or report
    /// their own tests. `targets`: globs of further tests. `said_hello`: executables that were measured.
    pub(super) fn unseen(&self, tests: bool, targets: &[String], said_hello: &BTreeSet<&str>) -> Vec<Unseen> {
        let mut unseen = BTreeSet::new();
        for start in self.starts.iter().filter(|start| start.count > 0) {
            if start.flags & flag::JUNIT != 0 {
                let main = start.arguments.first().map(String::as_str).unwrap_or_default();
                let why = format!(
                    "it ran JUnit tests ({main}), and one command measures either native tests or JUnit tests"
                );
                let remedy = "give them a suite of their own in memgate.yaml, with `runner: junit`";
                unseen.insert(Unseen { tests: Tests::Other, path: start.path.clone(), why, remedy });
                continue;
            }
            let candidates = candidates(start);
            for (i, path) in candidates.iter().enumerate() {
                let Some(File::Program(program)) = self.programs.get(path) else { continue };
                let has_tests = program.is_gtest() || program.tells_tests();
                let is_test = tests && has_tests || is_target(program, targets);
                // A program named in the arguments is started without the agent.
                let flags = if i == 0 { start.flags } else { start.flags | flag::BARE };
                if !is_test || flags == 0 && said_hello.contains(&*program.path.to_string_lossy()) {
                    continue;
                }
                let (why, remedy) = reason(program, flags);
                let path = program.path.to_string_lossy().into_owned();
                let tests = match (program.is_gtest(), is_target(program, targets)) {
                    (true, _) => Tests::GoogleTest,
                    (false, true) => Tests::Other,
                    (false, false) => Tests::Own,
                };
                unseen.insert(Unseen { tests, path, why, remedy });
                break;
            }
        }
        let mut one_each: Vec<Unseen> = unseen.into_iter().collect();
        one_each.dedup_by(|a, b| a.path == b.path);
        one_each
    }

    /// Programs below a folder that ran and were not measured, because they contain no GoogleTest.
    pub(super) fn plain(
        &self,
        below: &Path,
        targets: &[String],
        said_hello: &BTreeSet<&str>,
    ) -> BTreeSet<&Path> {
        let is_plain = |program: &&Program| {
            matches!(program.kind, Kind::Elf(_))
                && !program.is_gtest()
                && !program.tells_tests()
                && !is_target(program, targets)
                && !said_hello.contains(&*program.path.to_string_lossy())
        };
        let ran = self.starts.iter().filter(|start| start.count > 0);
        ran.filter_map(|start| self.programs.get(&Path::new(&start.folder).join(&start.path)))
            .filter_map(|file| if let File::Program(program) = file { Some(program) } else { None })
            .filter(is_plain)
            .filter_map(|program| program.path.strip_prefix(below).ok())
            .collect()
    }

    /// The globs that match no program that ran.
    pub(super) fn without_program<'t>(
        &self,
        targets: &'t [String],
        said_hello: &BTreeSet<&str>,
    ) -> Vec<&'t str> {
        let ran = |glob: &str| {
            self.programs.values().any(|file| {
                matches!(file, File::Program(program) if matches(glob, &program.path.to_string_lossy()))
            }) || said_hello.iter().any(|path| matches(glob, path))
        };
        targets.iter().map(String::as_str).filter(|glob| !ran(glob)).collect()
    }

    /// Programs that ran and were removed before they were looked at, without those that were measured.
    pub(super) fn gone(&self, said_hello: &BTreeSet<&str>) -> BTreeSet<String> {
        let ran = self.starts.iter().filter(|start| start.count > 0);
        ran.map(|start| Path::new(&start.folder).join(&start.path))
            .filter(|path| matches!(self.programs.get(path), Some(File::Gone)))
            .filter(|path| !said_hello.iter().any(|said| is_same(Path::new(said), path)))
            .map(|path| path.to_string_lossy().into_owned())
            .collect()
    }
}

/// Whether the removed file, by the path it was started with, is this one.
fn is_same(said: &Path, gone: &Path) -> bool {
    let folder = gone.parent().and_then(|folder| fs::canonicalize(folder).ok());
    let resolved = folder.zip(gone.file_name()).map(|(folder, name)| folder.join(name));
    said == resolved.as_deref().unwrap_or(gone)
}

fn is_target(program: &Program, targets: &[String]) -> bool {
    let path = program.path.to_string_lossy();
    matches!(program.kind, Kind::Elf(_)) && targets.iter().any(|glob| matches(glob, &path))
}

fn reason(program: &Program, flags: u8) -> (String, &'static str) {
    if let Some(why) = program.blind() {
        return (why, choose::remedy(program));
    }
    let told = [
        (
            flag::UNREADABLE,
            "it ran where the agent's file cannot be read (another user, another root folder)",
            "run memgate itself there, as that user",
        ),
        (
            flag::NO_FOLDER,
            "it ran where the session's folder cannot be written (another user, another root folder)",
            "run memgate itself there, as that user",
        ),
        (
            flag::BARE,
            "it was started without memgate's variables in its environment (env -i, sudo, an LD_PRELOAD of its own)",
            "keep LD_PRELOAD, MEMGATE_AGENT_OPTIONS and ASAN_OPTIONS for it, or run memgate inside",
        ),
        (
            flag::SILENT,
            "the agent in it could not begin to record (no memory, no room on the disk)",
            "raise its limits, or make room",
        ),
    ];
    if let Some((_, why, remedy)) = told.into_iter().find(|(bit, _, _)| flags & bit != 0) {
        return (why.to_owned(), remedy);
    }
    match &program.kind {
        Kind::Elf(elf) if elf.gtest == Some(Evidence::OnlyText) => (
            "its symbols are stripped, and the agent does not find GoogleTest in it".to_owned(),
            "keep its symbols for the gate",
        ),
        Kind::Elf(elf) if elf.tells_tests => (
            "it reports its own tests (memgate.h), and below another command only GoogleTest is found"
                .to_owned(),
            "name it with --target (a glob of its path), or run it in a command of its own and not here",
        ),
        _ => (
            "the agent did not report from it".to_owned(),
            "`memgate doctor` says whether the agent can work here",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{Elf, Linkage};

    #[test]
    fn a_shell_s_text_names_its_commands() {
        let all: Vec<&str> =
            commands("cd x && A=1 ./t -v; exec ./u | tee log; if ./v; then ./w; fi").collect();
        assert_eq!(all, ["cd", "./t", "./u", "tee", "./v", "./w", "fi"]);
    }

    #[test]
    fn what_a_program_that_starts_others_starts_is_found_in_its_arguments() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().to_string_lossy().into_owned();
        fs::copy("/proc/self/exe", folder.path().join("t")).unwrap();
        let start = |arguments: &[&str]| Start {
            count: 1,
            flags: 0,
            folder: here.clone(),
            path: "/usr/bin/sudo".into(),
            arguments: arguments.iter().map(|&a| a.to_owned()).collect(),
        };
        let t = folder.path().join("./t");
        for (arguments, found) in [
            (&["sudo", "-u", "nobody", "./t", "--x"][..], true),
            (&["sudo", "env", "A=1", "./t"], true),
            (&["sudo", "sh", "-c", "cd /; ./t"], true),
            (&["sudo", "ls", "./t"], false),
            (&["sudo", "sh", "-c", "ls ./t"], false),
        ] {
            assert_eq!(candidates(&start(arguments)).contains(&t), found, "{arguments:?}");
        }
    }

    fn listed(starts: &[(&str, u8, u32)], gtest: Option<Evidence>, linkage: &Linkage) -> Listed {
        let start = |&(path, flags, count): &(&str, u8, u32)| Start {
            count,
            flags,
            folder: String::new(),
            path: path.to_owned(),
            arguments: Vec::new(),
        };
        let program = |&(path, _, _): &(&str, u8, u32)| {
            let kind = Kind::Elf(Elf { gtest, tells_tests: false, linkage: linkage.clone(), native: true });
            (path.into(), File::Program(Program { path: path.into(), kind, privileged: false }))
        };
        Listed {
            starts: starts.iter().map(start).collect(),
            programs: starts.iter().map(program).collect(),
            lost: 0,
        }
    }

    #[test]
    fn a_test_that_ran_without_the_agent_is_unseen_and_nothing_else_is() {
        let said = BTreeSet::from(["/b/t"]);
        let gtest = Some(Evidence::Symbol);
        for (starts, evidence, linkage, want) in [
            (&[("/b/t", 0, 1)][..], gtest, Linkage::Glibc, None),
            (&[("/b/u", 0, 1)], gtest, Linkage::Static, Some("linked statically")),
            (&[("/b/u", 0, 0)], gtest, Linkage::Static, None),
            (&[("/b/t", 0, 3), ("/b/t", flag::BARE, 1)], gtest, Linkage::Glibc, Some("env -i")),
            (&[("/b/u", 0, 1)], Some(Evidence::OnlyText), Linkage::Glibc, Some("stripped")),
            (&[("/b/u", flag::BARE, 1)], None, Linkage::Glibc, None),
        ] {
            let unseen = listed(starts, evidence, &linkage).unseen(true, &[], &said);
            assert_eq!(unseen.len(), usize::from(want.is_some()), "{starts:?}: {unseen:?}");
            assert!(want.is_none_or(|want| unseen[0].why.contains(want)), "{unseen:?}");
        }
        let mut gone = listed(&[("/b/t", 0, 1), ("/b/u", 0, 1), ("/b/v", 0, 0)], gtest, &Linkage::Glibc);
        gone.programs.values_mut().for_each(|file| *file = File::Gone);
        assert_eq!(
            gone.gone(&said),
            BTreeSet::from(["/b/u".to_owned()]),
            "neither measured nor failed to start"
        );

        let mut telling = listed(&[("/b/u", 0, 1)], None, &Linkage::Glibc);
        for file in telling.programs.values_mut() {
            let File::Program(Program { kind: Kind::Elf(elf), .. }) = file else { panic!() };
            elf.tells_tests = true;
        }
        let [unseen] = &telling.unseen(true, &[], &said)[..] else { panic!("it reports its own tests") };
        assert!(unseen.why.contains("memgate.h") && unseen.remedy.contains("--target"), "{unseen:?}");
        assert!(telling.unseen(true, &[], &BTreeSet::from(["/b/u"])).is_empty(), "it was measured");
        assert!(telling.plain(Path::new("/b"), &[], &said).is_empty(), "it has tests");

        let plain = listed(&[("/b/u", 0, 1)], None, &Linkage::Static);
        let u = "*/u".to_owned();
        assert_eq!(plain.plain(Path::new("/b"), &[], &said), BTreeSet::from([Path::new("u")]));
        assert!(
            plain.plain(Path::new("/b"), std::slice::from_ref(&u), &said).is_empty(),
            "a target is measured"
        );
        assert!(plain.plain(Path::new("/b"), &[], &BTreeSet::from(["/b/u"])).is_empty(), "it was measured");
        assert!(plain.plain(Path::new("/other"), &[], &said).is_empty(), "it is no program of this project");
        let tests = listed(&[("/b/u", 0, 1)], gtest, &Linkage::Glibc);
        assert!(tests.plain(Path::new("/b"), &[], &said).is_empty(), "it has tests");
        assert_eq!(plain.without_program(&[u, "*/typo".to_owned(), "/b/t".to_owned()], &said), ["*/typo"]);
        assert_eq!(plain.unseen(false, &["*/u".to_owned()], &said).len(), 1, "a target by its glob");
    }
}
