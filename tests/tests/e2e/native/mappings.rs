//! Memory that a test maps without the allocator and never unmaps is reported as a separate leak, with the
//! place that mapped it.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use memgate_e2e::{Project, Run, samples};
use memgate_model::{Leak, LeakKind, Metric, Verdict};
use memgate_wire::{Frame, MappedKind};

use crate::agent::spool;
use crate::guest::life::Guest;

/// Tests that leak mappings of each kind, and tests that only seem to.
const SUITE: &str = include_str!("../../../samples/native/mappings.cc");

fn session() -> &'static (Project, Run) {
    static SESSION: OnceLock<(Project, Run)> = OnceLock::new();
    SESSION.get_or_init(|| Project::of_run("mappings", &samples::own_suite("mappings", SUITE)))
}

fn mapped(run: &Run, test: &str) -> Vec<Leak> {
    run.test(test).leaks.into_iter().filter(|leak| leak.kind == LeakKind::Mapped).collect()
}

/// Checks that each leak of the suite is reported with its place and figures, and nothing else.
pub(crate) fn tells_each_leak(run: &Run) {
    run.ends_with(1);
    let want = [
        ("Anonymous", "map::tiles()", "2 mappings of anonymous memory, 64.0 KiB", 2.0, 65536.0),
        ("File", "map::font()", "1 mapping of a file, 4.0 KiB", 1.0, 4096.0),
        (
            "Growing",
            "map::log_grows()",
            "growing mapping of anonymous memory, 8.0 KiB more per iteration",
            0.0,
            8192.0,
        ),
        ("PartlyUnmapped", "map::aligned()", "1 mapping of anonymous memory, 32.0 KiB", 1.0, 32768.0),
        ("Committed", "map::committed()", "1 mapping of anonymous memory, 12.0 KiB", 1.0, 12288.0),
        ("Break", "map::break_moves()", "1 mapping of the program break, 8.0 KiB", 1.0, 8192.0),
        (
            "Attached",
            "map::attached(int)",
            "1 mapping of an attached System V segment, 20.0 KiB",
            1.0,
            20480.0,
        ),
        (
            "NotRemoved",
            "map::segment(unsigned long)",
            "1 mapping of a System V segment that is not removed, 12.0 KiB",
            1.0,
            12288.0,
        ),
    ];
    for (test, function, title, count, bytes) in want {
        let test = run.test(&format!("Leaks.{test}"));
        let leaks: Vec<&Leak> = test.leaks.iter().filter(|leak| leak.kind == LeakKind::Mapped).collect();
        let [leak] = leaks.as_slice() else { panic!("one leak in {}:\n{run}", test.id) };
        assert!(leak.id.starts_with("m1-"), "{leak:#?}");
        assert_eq!(leak.title, title, "{leak:#?}");
        assert_eq!((leak.count_per_iteration, leak.bytes_per_iteration), (count, bytes), "{leak:#?}");
        assert_eq!(leak.frames[0].function.as_deref(), Some(function), "{leak:#?}");
        let file = leak.frames[0].file.as_deref();
        assert!(file.is_some_and(|file| file.ends_with("mappings.cc")), "{leak:#?}");
        let figure = &test.metrics[&Metric::NativeMappedBytes];
        assert_eq!((test.verdict, figure.value), (Verdict::Fail, bytes), "{run}");
    }
    run.says("64.0 KiB of mapped memory per iteration (allowed 0 B)");
    for test in ["Unmaps", "Ring", "Reserves", "MapsOnce", "Detaches"] {
        let test = run.test(&format!("Clean.{test}"));
        assert_eq!((test.verdict, test.leaks.len()), (Verdict::Pass, 0), "{run}");
    }
    assert_eq!(
        run.test("Clean.MapsOnce").one_time[0].title,
        "1 mapping of anonymous memory, 256.0 KiB",
        "{run}"
    );
}

#[test]
fn what_is_mapped_and_stays_is_told_with_the_place_that_mapped_it() {
    let (project, run) = session();
    tells_each_leak(run);
    for format in ["html", "junit", "sarif", "markdown"] {
        let shown = project.memgate(&["report", "--format", format]).stdout;
        assert!(shown.contains("map::tiles()"), "{format}:\n{shown}");
    }
}

#[test]
fn a_mapping_can_be_allowed_and_waived() {
    let (session, run) = session();
    let project = Project::new("mappings-allowed");
    let waived = mapped(run, "Leaks.File").remove(0).id;
    project.write(
        "memgate.yaml",
        "version: 1\nthresholds:\n  tests:\n    - match: \"*Anonymous\"\n      native.mapped_bytes: 64 KiB\n",
    );
    project.memgate(&["waive", &waived, "--reason", "known", "--until", "never"]).ends_with(0);
    let session = session.session();
    let gate = project.memgate(&["gate", "--format", "json", session.to_str().unwrap()]);
    gate.ends_with(1);
    let verdict = |test: &str| gate.test(&format!("Leaks.{test}")).verdict;
    assert_eq!(
        ["Anonymous", "File", "Growing"].map(verdict),
        [Verdict::Pass, Verdict::Pass, Verdict::Fail],
        "{gate}"
    );
    assert_eq!(mapped(&gate, "Leaks.File")[0].waiver.as_deref(), Some("known"), "{gate}");
}

/// An allocator that maps memory for each block and never unmaps it, as a library after the agent.
const ARENA: &str = r#"#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
static void* more(size_t bytes) {
    size_t* at = mmap(NULL, bytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return NULL;
    at[511] = bytes;
    return at + 512;
}
void* malloc(size_t bytes) { return more(bytes); }
void* calloc(size_t count, size_t bytes) { return more(count * bytes); }
void* realloc(void* old, size_t bytes) {
    void* new = more(bytes);
    if (old && new) memcpy(new, old, ((size_t*)old)[-1] < bytes ? ((size_t*)old)[-1] : bytes);
    return new;
}
void free(void* block) { (void)block; }
int posix_memalign(void** out, size_t align, size_t bytes) {
    return align > 4096 || !(*out = more(bytes)) ? ENOMEM : 0;
}
"#;

/// One test allocates and frees, for which its allocator maps memory; the other maps memory itself.
const ALLOCATES: &str = r#"#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
TEST(Arena, Allocates) {
    for (int i = 0; i < 5; i++) {
        void* volatile block = malloc(100);
        free(block);
    }
    EXPECT_EQ(poll(nullptr, 0, 5), 0);
}
TEST(Arena, Maps) {
    void* at = mmap(nullptr, 20480, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_EQ(poll(nullptr, 0, 5) + (at == MAP_FAILED), 0);
}
"#;

#[test]
fn what_an_allocator_maps_is_no_leak_of_the_test() {
    let arena = samples::own("libarena.so", "c", ARENA, "cc", &["-shared", "-fPIC", "-O1", "-fno-builtin"]);
    let folder = arena.parent().unwrap().to_str().unwrap();
    let suite = samples::own(
        "arena",
        "cc",
        ALLOCATES,
        "c++",
        &[
            "-O1",
            "-g",
            arena.to_str().unwrap(),
            "-lgtest_main",
            "-lgtest",
            "-lpthread",
            &format!("-Wl,-rpath,{folder}"),
        ],
    );
    let run = Project::new("mappings-arena").run(&suite);
    run.ends_with(1);
    assert_eq!(run.test("Arena.Allocates").verdict, Verdict::Pass, "{run}");
    assert_eq!(mapped(&run, "Arena.Maps")[0].bytes_per_iteration, 20480.0, "{run}");
}

/// Uses every way to map memory, and then what must not change the records: failed calls, a signal handler, a
/// child of `vfork`. Prints the mappings at the end.
const PROGRAM: &str = r#"#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#define PAGE 4096L

static char* handled;
static char* map(long pages) {
    return mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
static void handle(int signal) { (void)signal; handled = map(3); }

int main(void) {
    char* moved = map(5);
    moved[0] = 42;
    errno = 4711;
    char* fixed = mmap(NULL, 64 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    moved = mremap(moved, 5 * PAGE, 7 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, fixed + 8 * PAGE);
    printf("moved %d %d\n", moved == fixed + 8 * PAGE, moved[0]);
    void* shared = mmap(NULL, 11 * PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    printf("again %d\n", mremap(shared, 0, 9 * PAGE, MREMAP_MAYMOVE) != MAP_FAILED);
    void* keyed = mmap(NULL, 19 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("keyed %d\n", pkey_mprotect(keyed, 19 * PAGE, PROT_READ, -1));
    signal(SIGUSR1, handle);
    raise(SIGUSR1);
    printf("handled %d\n", handled != MAP_FAILED);
    long before = (long)sbrk(0);
    printf("break %d\n", brk((char*)before + 13 * PAGE) == 0 && (long)sbrk(-2 * PAGE) == before + 13 * PAGE);
    printf("errno %d\n", errno);
    errno = 0;
    void* none = mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("none %d %d\n", none == MAP_FAILED, errno);
    printf("odd %d %d\n", munmap(moved + 1, PAGE), errno);
    none = mremap(moved, 7 * PAGE, 1L << 60, 0);
    printf("failed %d %d\n", none == MAP_FAILED, moved[0]);
    int status;
    pid_t child = vfork();
    if (child == 0) {
        munmap(shared, 0);
        map(17);
        _exit(0);
    }
    waitpid(child, &status, 0);
    return 0;
}
"#;

#[test]
fn every_way_to_map_is_noted_and_works_as_before() {
    let program = samples::own_program("maps", PROGRAM);
    let project = Project::new("maps");
    let ([plain, dormant, tracked], frames) = spool::in_three_ways(&program, &project);
    let want =
        "moved 1 42\nagain 1\nkeyed 0\nhandled 1\nbreak 1\nerrno 4711\nnone 1 22\nodd -1 22\nfailed 1 42\n";
    assert_eq!((plain.as_str(), dormant.as_str(), tracked.as_str()), (want, want, want));

    let mut known = BTreeMap::new();
    for frame in frames {
        if let Frame::Mappings(told) = frame {
            assert!(!told.lost);
            known.extend(
                told.mapped.into_iter().map(|group| ((group.stack, group.kind), (group.count, group.bytes))),
            );
        }
    }
    let mut mapped: Vec<_> = known
        .into_iter()
        .filter(|(_, (count, _))| *count > 0)
        .map(|((_, kind), (_, bytes))| (bytes / 4096, MappedKind::from_number(kind).unwrap()))
        .collect();
    mapped.sort_unstable();
    // The last three pages are mapped by the signal handler. Nine of eleven shared pages are mapped again. Eleven
    // pages remain of the moved break. The child's mappings stay in our memory too, but count as the child's and
    // are not reported.
    let want = [
        (3, MappedKind::Anonymous),
        (7, MappedKind::Anonymous),
        (9, MappedKind::Shared),
        (11, MappedKind::Shared),
        (11, MappedKind::Break),
        (19, MappedKind::Anonymous),
    ];
    assert_eq!(mapped, want);
}

/// Starts a program in which certain futex calls are refused, as by an old kernel or a sandbox. The agent
/// uses them to tell a child of `vfork` from its parent.
const REFUSES: &str = r#"#include <errno.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int count, char** arguments) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FUTEX_LOCK_PI_PRIVATE, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof steps / sizeof *steps, steps};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 9;
    return count > 1 ? execv(arguments[1], arguments + 1) : 9;
}
"#;

/// Regression: none of the program's mappings were recorded, and a threshold passed.
#[test]
fn where_nobody_can_tell_whose_call_it_is_mapped_memory_is_not_measured() {
    let maps = r#"#include <stdio.h>
#include <sys/mman.h>
int main(void) {
    void* at = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("%d\n", at != MAP_FAILED);
    return 0;
}
"#;
    let (refuses, maps) =
        (samples::own_program("refuses_lock_pi", REFUSES), samples::own_program("maps_once", maps));
    let driven = Guest::new("refuses-lock-pi", &refuses, &[maps.to_str().unwrap()]).drive().ends_with(0);
    assert_eq!(driven.stdout, "1\n");
    let stream = driven.main(&maps);
    assert!(stream.errors().is_empty() && stream.goodbye().is_some(), "all else is measured");
    let lost = |frame: &Frame| matches!(frame, Frame::Mappings(told) if told.lost);
    assert!(stream.frames.iter().any(lost), "{:?}", stream.frames);
}

/// The program attaches a segment, but may not query segments.
const NO_QUESTIONS: &str = r#"#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>
int main(void) {
    int segment = shmget(IPC_PRIVATE, 4096, 0600);
    void* first = shmat(segment, NULL, 0);
    shmctl(segment, IPC_RMID, NULL);
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_shmctl, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof steps / sizeof *steps, steps};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 9;
    void* second = shmat(segment, NULL, 0);
    printf("%d %d %d\n", second != (void*)-1, shmdt(first), shmdt(second));
    return 0;
}
"#;

#[test]
fn a_program_that_may_not_ask_for_segments_lives_and_its_mapped_memory_is_not_measured() {
    let program = samples::own_program("attaches_unasked", NO_QUESTIONS);
    let (told, frames) = spool::in_three_ways(&program, &Project::new("attaches-unasked"));
    assert_eq!(told, ["1 0 0\n"; 3]);
    let lost = |frame: &Frame| matches!(frame, Frame::Mappings(told) if told.lost);
    assert!(frames.iter().any(lost), "{frames:?}");
    assert!(!frames.iter().any(|frame| matches!(frame, Frame::Error(_))), "all else is measured");
}
