//! The rules of a good guest, one test each: `tests/samples/proofs/guest_*.c` run plain and tracked, without
//! any difference.
//!
//! Data flow: [`program`] compiles a guest once → [`alike`] runs it without and with the agent, without a
//! harness, and compares status and output except for lines that begin with `#` → [`Tracked`] holds its
//! output and the frames of its streams, main process first.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use memgate_e2e::{Project, agent, repository, samples, say};
use memgate_wire::{ErrorCode, Frame, Goodbye, ProcessRole};

/// Maximum stack that a hook may use below the call. Where the allocator itself needs more, the hook's own
/// frame is added to that.
const HOOK_BYTES: i64 = 1024;
const HOOK_FRAME: i64 = 128;

/// Compiles a guest, named without `.c`.
pub(crate) fn program(name: &str) -> PathBuf {
    compiled(name, name, &["-Wl,-z,now", "-lpthread", "-ldl"])
}

/// As [`program`], compiled in another way.
pub(crate) fn compiled(name: &str, output: &str, flags: &[&str]) -> PathBuf {
    let folder = repository().join("tests/samples/proofs");
    let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
    let file = format!("{name}.c");
    let arguments =
        [&[file.as_str(), "-std=gnu11", "-O1", "-g", "-Wno-deprecated-declarations"], flags].concat();
    samples::compile(output, "cc", &arguments, &[(&file, &read(&file)), ("guest.h", &read("guest.h"))])
}

/// Result of a tracked run.
pub(crate) struct Tracked {
    pub(crate) plain: String,
    pub(crate) told: String,
    /// Frames of each stream, that of the main process first.
    pub(crate) streams: Vec<Vec<Frame>>,
}

impl Tracked {
    /// The goodbye frame of the main process.
    pub(crate) fn goodbye(&self) -> &Goodbye {
        let said = self.streams[0].iter().find_map(|frame| match frame {
            Frame::Goodbye(goodbye) => Some(goodbye),
            _ => None,
        });
        said.expect("the main process says goodbye")
    }

    /// Did recording stop because memory ran out?
    pub(crate) fn stopped(&self) -> bool {
        self.streams[0].iter().any(|frame| {
            matches!(frame, Frame::Error(e) if matches!(e.code, ErrorCode::OutOfMemory | ErrorCode::OutOfTable))
        })
    }

    /// The number before this word in a line of either run: plain, tracked.
    pub(crate) fn figures(&self, line: &str, word: &str) -> (i64, i64) {
        let of = |text: &str| {
            let line =
                text.lines().find(|l| l.starts_with(line)).unwrap_or_else(|| panic!("no `{line}`:\n{text}"));
            let before = line.split_once(word).map(|(before, _)| before).unwrap();
            before.split_whitespace().next_back().unwrap().parse().unwrap()
        };
        (of(&self.plain), of(&self.told))
    }

    /// Checks the books: the last snapshot contains what the guest reports as `alive SIZE COUNT`, and agrees
    /// with the counters.
    #[track_caller]
    pub(crate) fn agrees(&self) {
        let parts = self.streams[0].iter().filter_map(|frame| match frame {
            Frame::NativeSnapshot(part) => Some(&part.records),
            _ => None,
        });
        let records: Vec<(u64, u64)> = parts.flatten().map(|r| (r.size, r.count)).collect();
        let lines = self.told.lines().filter_map(|line| line.strip_prefix("alive "));
        let mut compared = 0;
        for line in lines {
            let (size, count) = line.split_once(' ').unwrap();
            let (size, count): (u64, u64) = (size.parse().unwrap(), count.parse().unwrap());
            let found: u64 = records.iter().filter(|(s, _)| *s == size).map(|(_, n)| n).sum();
            assert_eq!(found, count, "blocks of {size} bytes in {records:?}");
            compared += 1;
        }
        assert!(compared > 0, "it says what is alive:\n{}", self.told);
        let c = &self.goodbye().counters;
        assert_eq!(c.allocations - c.frees, records.iter().map(|(_, n)| n).sum::<u64>(), "{records:?}");
        assert_eq!(c.allocated_bytes - c.freed_bytes, records.iter().map(|(s, n)| s * n).sum::<u64>());
    }
}

/// Runs a guest plain and tracked; `name` names the folder of its streams.
#[track_caller]
pub(crate) fn alike(name: &str, guest: &str, arguments: &[&str]) -> Tracked {
    let path = program(guest);
    alike_with(name, |preload, options| {
        let mut command = Command::new(&path);
        command.args(arguments).env("LD_PRELOAD", preload).env("MEMGATE_AGENT_OPTIONS", options);
        command
    })
}

/// As [`alike`], for a command built from the preload list and the agent's options.
#[track_caller]
pub(crate) fn alike_with(name: &str, command: impl Fn(&str, &str) -> Command) -> Tracked {
    let project = Project::new(name);
    let run = |preload: &str| {
        let options = format!("dir={};target=all;wait_ms=0", project.folder().display());
        let output = command(preload, &options).env_remove("LD_LIBRARY_PATH").output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status, text(output.stdout), text(output.stderr))
    };
    let (plain, tracked) = (run(""), run(agent().to_str().unwrap()));
    let same = |(status, out, err): &(ExitStatus, String, String)| {
        (*status, out.lines().filter(|l| !l.starts_with('#')).collect::<Vec<_>>().join("\n"), err.clone())
    };
    assert_eq!(same(&plain), same(&tracked), "plain, and tracked");
    let mut streams: Vec<Vec<Frame>> =
        spools(project.folder()).iter().map(|p| crate::agent::spool::frames(p)).collect();
    streams.sort_by_key(
        |frames| matches!(frames.first(), Some(Frame::Hello(h)) if h.role == ProcessRole::ForkChild),
    );
    Tracked { plain: plain.1, told: tracked.1, streams }
}

/// All files that the agent left in a folder; only streams are expected.
fn spools(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let other = paths.iter().find(|p| p.extension().is_none_or(|e| e != "mgf"));
    assert!(other.is_none(), "it is no stream: {other:?}");
    paths
}

#[test]
fn every_function_answers_as_the_c_library_does_and_sets_errno_as_it_does() {
    let run = alike("rules-calls", "guest_calls", &[]);
    assert!(run.told.contains("malloc(most): null, errno 12"), "{}", run.told);
    let alive = |size, count| {
        let sizes = run.streams[0].iter().filter_map(|frame| match frame {
            Frame::NativeSnapshot(part) => {
                Some(part.records.iter().filter(|r| r.size == size).map(|r| r.count))
            }
            _ => None,
        });
        assert_eq!(sizes.flatten().sum::<u64>(), count, "blocks of {size} bytes");
    };
    // Blocks that are kept, kept in spite of a failed realloc, or moved by realloc; and none that realloc to
    // 0 freed.
    for (size, count) in [(70_001, 10), (70_003, 3), (1009, 1), (4001, 1), (1013, 0), (1019, 0), (2027, 0)] {
        alive(size, count);
    }
}

#[test]
fn blocks_of_another_allocator_in_free_are_counted_and_passed_on() {
    let run = alike("rules-unknown", "guest_unknown", &[]);
    assert_eq!(run.goodbye().counters.unknown_frees, 300, "{}", run.told);
    run.agrees();
}

#[test]
fn the_guests_heap_looks_the_same() {
    let run = alike("rules-heap", "guest_heap", &[]);
    assert!(run.told.starts_with("at the start: arena 0,"), "nothing was in it before:\n{}", run.told);
}

#[test]
fn no_hook_needs_more_than_a_kibibyte_of_stack() {
    let path = program("guest_stack");
    // The output consists of the figures, which differ: mark the lines with `#`.
    let run = alike_with("rules-stack", |preload, options| {
        let mut command = Command::new("sh");
        command.args(["-c", "LD_PRELOAD=$1 \"$0\" | sed 's/^/# /'", path.to_str().unwrap(), preload]);
        command.env("MEMGATE_AGENT_OPTIONS", options);
        command
    });
    let figures = |text: &str| -> Vec<(String, i64)> {
        let lines = text.lines().map(|l| l.trim_start_matches("# ").split_once(": ").unwrap());
        lines.map(|(name, bytes)| (name.to_owned(), bytes.parse().unwrap())).collect()
    };
    let (plain, tracked) = (figures(&run.plain), figures(&run.told));
    assert!(tracked.len() >= 25, "{}", run.told);
    for ((name, plain), (other, bytes)) in plain.iter().zip(&tracked) {
        assert_eq!(name, other);
        assert!(
            *bytes <= HOOK_BYTES.max(plain + HOOK_FRAME),
            "{name}: {bytes} bytes of stack, {plain} plain"
        );
    }
    let most = tracked.iter().max_by_key(|(_, bytes)| bytes).unwrap();
    assert!(most.1 > 100, "it was measured: {most:?}");
    say(&format!("most stack: {} bytes in {}", most.1, most.0));
}

#[test]
fn small_stacks_are_large_enough() {
    for place in ["thread", "coroutine", "handler"] {
        for (what, streams) in [("allocate", 1), ("fork", 2), ("_exit", 1), ("_Exit", 1), ("dlclose", 1)] {
            let run = alike(&format!("rules-small-{place}-{what}"), "guest_small", &[place, what]);
            assert_eq!(run.streams.len(), streams, "{place}, {what}");
            assert!(!run.stopped(), "{place}, {what}");
            // A process that ended by `_exit` has written its goodbye too.
            assert!(run.goodbye().counters.allocations > 0);
        }
    }
}

/// Prints the stack that each way of starting a program needs when its environment has to be changed, and by
/// how many pages the process grows after many starts.
const STARTS: &str = r#"#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
enum { PAINTED = 16 << 10 };
static unsigned char stack[PAINTED] __attribute__((aligned(16)));
extern char** environ;
static char* words[] = {"true", NULL};
static int by_path(void* unused) { (void)unused; execve("/bin/true", words, environ); _exit(9); }
static int by_name(void* unused) { (void)unused; execvpe("true", words, environ); _exit(9); }
static int spread(void* unused) { (void)unused; execlp("true", "true", "1", "2", "3", "4", "5", "6", (char*)NULL); _exit(9); }
static void start(const char* name, int (*how)(void*)) {
    int status, untouched = 0;
    memset(stack, 0xA7, PAINTED);
    int child = clone(how, stack + PAINTED, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
    if (waitpid(child, &status, 0) != child || status) exit(9);
    while (untouched < PAINTED && stack[untouched] == 0xA7) untouched++;
    if (name) printf("%s: %d\n", name, PAINTED - untouched);
}
static long pages(void) {
    long size = -1;
    FILE* file = fopen("/proc/self/statm", "r");
    if (fscanf(file, "%ld", &size) != 1) exit(9);
    fclose(file);
    return size;
}
int main(void) {
    start("execve", by_path);
    start("execvpe", by_name);
    start("execlp", spread);
    long before = pages();
    for (int i = 0; i < 50; i++) start(NULL, by_path);
    printf("pages: %ld\n", pages() - before);
    return 0;
}
"#;

/// Regression: each start in the child of a `vfork` left a mapping in the parent, and took 4.6 KiB of stack.
#[test]
fn starting_a_program_needs_little_stack_and_keeps_no_memory() {
    let program = samples::own("starts", "c", STARTS, "cc", &["-std=gnu11", "-O1", "-Wl,-z,now"]);
    let project = Project::new("rules-starts");
    let list = project.folder().join("starts");
    fs::write(&list, vec![0; memgate_wire::starts::BYTES]).unwrap();
    let mut command = Command::new(&program);
    let options =
        format!("dir={0};target=exe:/nowhere;starts={1}", project.folder().display(), list.display());
    command.env_remove("ASAN_OPTIONS").env("LD_PRELOAD", agent()).env("MEMGATE_AGENT_OPTIONS", options);
    let told = samples::successful(&mut command);
    let figures: Vec<(&str, i64)> = told
        .lines()
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, figure)| (name, figure.parse().unwrap()))
        .collect();
    let [starts @ .., ("pages", 0)] = figures.as_slice() else { panic!("{told}") };
    assert!(starts.len() == 3 && starts.iter().all(|(_, bytes)| *bytes <= HOOK_BYTES + HOOK_FRAME), "{told}");
    let words = fs::read(&list).unwrap();
    assert_ne!(words[memgate_wire::starts::CHANGED], 0, "they were noted");
}
