//! The agent is a good guest: its exports and dependencies, and the state that a process sees with the agent
//! loaded.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use memgate_e2e::samples::{own_program, successful};
use memgate_e2e::{Project, agent, has_tool};

/// C library functions that the agent replaces, and its own API. Any other exported symbol could override one
/// of the guest's.
const EXPORTED: &str = "\
    Agent_OnAttach Agent_OnLoad _Exit _exit quick_exit __libc_start_main dlclose dlmopen dlopen exit \
    execl execle execlp execv execve execvp execvpe posix_spawn posix_spawnp system prctl syscall \
    memgate_active memgate_free_malloc_leak_info memgate_get_malloc_leak_info memgate_has_gtest_listener \
    memgate_iteration memgate_mark memgate_settle memgate_test_begin memgate_test_end";

/// Also exported: functions that open and close descriptors and start threads.
const HANDLES: &str = "\
    open open64 openat openat64 __open_2 __open64_2 __openat_2 __openat64_2 creat creat64 mkstemp \
    mkstemp64 mkostemp mkostemp64 shm_open memfd_create posix_openpt socket socketpair accept accept4 \
    pipe pipe2 dup dup2 dup3 fcntl fcntl64 epoll_create epoll_create1 eventfd timerfd_create signalfd \
    inotify_init inotify_init1 fopen fopen64 tmpfile tmpfile64 popen opendir close fclose pclose \
    closedir pthread_create pthread_join pthread_detach pthread_tryjoin_np pthread_timedjoin_np \
    pthread_clockjoin_np";

/// Also exported: functions that map and unmap memory.
const MAPPINGS: &str = "\
    mmap mmap64 munmap mremap mprotect pkey_mprotect sbrk brk shmat shmdt shmget";

/// Also exported: the allocation functions.
const ALLOCATION: &str = "\
    malloc calloc realloc reallocarray free cfree posix_memalign aligned_alloc memalign valloc pvalloc \
    free_sized free_aligned_sized malloc_usable_size";

const MOST_BYTES: u64 = 45 << 15;
/// Room for two words of the tracker and for the thread-local data of Rust's standard library.
const MOST_TLS_BYTES: u64 = 256;

#[test]
fn it_exports_what_it_stands_in_for_and_nothing_else() {
    if !has_tool("nm") {
        return;
    }
    let listed = successful(Command::new("nm").args(["-D", "--defined-only"]).arg(agent()));
    let exported: BTreeSet<&str> = listed.lines().filter_map(|line| line.split_whitespace().last()).collect();
    let replaced: BTreeSet<&str> =
        [ALLOCATION, HANDLES, MAPPINGS].into_iter().flat_map(str::split_whitespace).collect();
    let missing: Vec<_> = replaced.difference(&exported).collect();
    assert!(missing.is_empty(), "what goes through {missing:?} would not be seen");
    let allowed = replaced.into_iter().chain(EXPORTED.split_whitespace()).collect();
    let others: Vec<_> = exported.difference(&allowed).collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn it_needs_the_c_library_alone_and_little_thread_local_storage() {
    if !has_tool("readelf") {
        return;
    }
    let dynamic = successful(Command::new("readelf").arg("-dW").arg(agent()));
    let needed: Vec<&str> = dynamic.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(!needed.is_empty());
    for library in needed {
        assert!(library.contains("[libc.so.") || library.contains("[ld-linux"), "{library}");
    }
    let headers = successful(Command::new("readelf").arg("-lW").arg(agent()));
    let tls = headers.lines().find(|line| line.trim_start().starts_with("TLS"));
    let bytes = tls.map_or(0, |line| {
        let size = line.split_whitespace().nth(5).unwrap().trim_start_matches("0x");
        u64::from_str_radix(size, 16).unwrap()
    });
    assert!(bytes <= MOST_TLS_BYTES, "{bytes} bytes of the static TLS block, which is small");
    assert!(fs::metadata(agent()).unwrap().len() <= MOST_BYTES);
}

/// A hook must leave no work to the loader: lazy binding of a function takes the loader's lock and 3 KiB of
/// stack.
#[test]
fn nothing_of_it_is_bound_late_writable_code_or_an_executable_stack() {
    if !has_tool("readelf") {
        return;
    }
    let dynamic = successful(Command::new("readelf").arg("-dW").arg(agent()));
    assert!(dynamic.contains("BIND_NOW") && dynamic.contains("STATIC_TLS"), "{dynamic}");
    assert!(!dynamic.contains("TEXTREL"), "{dynamic}");
    let headers = successful(Command::new("readelf").arg("-lW").arg(agent()));
    let flags = |kind: &str| -> Vec<String> {
        let lines = headers.lines().filter(|line| line.split_whitespace().next() == Some(kind));
        // Only the words between the sizes and the alignment are flags.
        let letters = |word: &&str| !word.starts_with(|c: char| c.is_ascii_digit());
        lines.map(|line| line.split_whitespace().skip(6).filter(letters).collect()).collect()
    };
    assert_eq!(flags("GNU_STACK"), ["RW"], "{headers}");
    assert!(flags("LOAD").iter().all(|f| !(f.contains('W') && f.contains('E'))), "{headers}");
}

/// With the general-dynamic model, a library would call the loader's `__tls_get_addr`, which may allocate in
/// the guest's heap. The one module number below is for this library's own replacement of that function.
#[test]
fn its_thread_local_storage_is_at_a_fixed_distance() {
    if !has_tool("readelf") || !has_tool("nm") {
        return;
    }
    let relocations = successful(Command::new("readelf").arg("-rW").arg(agent()));
    let number = |kind: &str| relocations.matches(kind).count();
    assert!(number("R_X86_64_TPOFF64") >= 1, "{relocations}");
    assert_eq!((number("TLSDESC"), number("R_X86_64_DTPOFF64")), (0, 0), "{relocations}");
    assert!(number("R_X86_64_DTPMOD64") <= 1, "{relocations}");
    let undefined = successful(Command::new("nm").args(["-D", "--undefined-only"]).arg(agent()));
    assert!(!undefined.contains("__tls_get_addr"), "{undefined}");
    // A symbol that is missing in the process (musl, a program without C++) must not end the program.
    let strong = undefined.lines().filter(|line| line.split_whitespace().next() == Some("U"));
    let foreign: Vec<&str> = strong.filter(|line| line.contains(" _Z") || line.contains(" _dl_")).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

/// Prefix of a command that closes all descriptors but the first three: those that the caller of the tests
/// left open belong neither to the agent nor to the program.
fn alone() -> Command {
    let alone = own_program(
        "alone",
        r#"#define _GNU_SOURCE
#include <stdio.h>
#include <unistd.h>

int main(int argc, char** argv) {
    closefrom(3);
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 127;
}
"#,
    );
    let mut command = Command::new(alone);
    // Callers pass `LD_PRELOAD` to `env` as an argument, so that neither `alone` nor `env` itself loads the
    // agent.
    command.arg("env").env_remove("LD_LIBRARY_PATH");
    command
}

/// Runs a program with the agent recording into `project`, but without a harness.
fn tracked(project: &Project, program: &Path) -> Output {
    let mut command = alone();
    command.arg(format!("LD_PRELOAD={}", agent().display()));
    command.arg(format!("MEMGATE_AGENT_OPTIONS=dir={};target=all;wait_ms=0", project.folder().display()));
    let output = command.arg(program).output().unwrap();
    let spools = fs::read_dir(project.folder()).unwrap().count();
    assert_eq!(spools, 1, "it is recorded, to one spool");
    output
}

/// Runs a program with and without the agent; checks that the output is the same, and returns it.
#[track_caller]
fn alike(name: &str, source: &str) -> String {
    let program = own_program(name, source);
    let without = alone().arg(&program).output().unwrap();
    let with = tracked(&Project::new(name), &program);
    let text = |output: &Output| String::from_utf8(output.stdout.clone()).unwrap();
    assert!(without.status.success(), "{without:?}");
    assert_eq!((with.status, text(&with)), (without.status, text(&without)));
    assert!(with.stderr.is_empty(), "the agent says nothing: {}", String::from_utf8_lossy(&with.stderr));
    text(&with)
}

#[test]
fn a_tracked_process_has_no_thread_and_no_descriptor_more() {
    let told = alike(
        "looks_at_itself",
        r#"#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void* volatile kept;

static void list(const char* folder, int links) {
    DIR* dir = opendir(folder);
    for (struct dirent* entry; (entry = readdir(dir));) {
        char path[300], target[300] = "";
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (links && readlink(path, target, sizeof target - 1) > 0) {
            /* The number of a pipe differs from run to run, and the directory is listed by its own number. */
            target[strcspn(target, ":[")] = 0;
            printf("%s %s\n", entry->d_name, strncmp(target, "/proc", 5) ? target : "/proc");
        } else {
            printf("a thread\n");
        }
    }
    closedir(dir);
}

int main(void) {
    kept = malloc(4711);
    list("/proc/self/task", 0);
    list("/proc/self/fd", 1);
    return 0;
}
"#,
    );
    assert_eq!(told, "a thread\n0 /dev/null\n1 pipe\n2 pipe\n3 /proc\n");
}

#[test]
fn errno_and_error_results_are_the_c_librarys() {
    let told = alike(
        "errors",
        r#"#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void* volatile kept;
static volatile size_t huge = SIZE_MAX / 2;

static void tell(const char* what, int holds) { printf("%s: %s\n", what, holds ? "yes" : "no"); }

int main(void) {
    void* block = &block;
    errno = 4711;
    kept = malloc(100);
    tell("success keeps errno", errno == 4711);
    free(kept);
    tell("free keeps errno", errno == 4711);
    tell("bad alignment is EINVAL", posix_memalign(&block, 3, 100) == EINVAL);
    tell("no memory is ENOMEM", posix_memalign(&block, 64, huge) == ENOMEM);
    tell("posix_memalign leaves the pointer alone when it fails", block == (void*)&block);
    tell("posix_memalign aligns", posix_memalign(&block, 4096, 100) == 0 && (uintptr_t)block % 4096 == 0);
    free(block);
    errno = 0;
    kept = malloc(huge);
    tell("malloc too large", !kept && errno == ENOMEM);
    errno = 0;
    kept = calloc(huge, 4);
    tell("calloc overflows", !kept && errno == ENOMEM);
    errno = 0;
    kept = reallocarray(NULL, huge, 4);
    tell("reallocarray overflows", !kept && errno == ENOMEM);
    kept = malloc(0);
    tell("malloc(0) is a block", kept != NULL);
    free(kept);
    free(NULL);
    kept = aligned_alloc(256, 512);
    tell("aligned_alloc aligns", (uintptr_t)kept % 256 == 0 && malloc_usable_size(kept) >= 512);
    free(kept);
    tell("usable size of nothing", malloc_usable_size(NULL) == 0);

    char* text = malloc(32);
    strcpy(text, "still there");
    errno = 0;
    char* moved = realloc(text, huge);
    tell("realloc fails", !moved && errno == ENOMEM);
    tell("the old block is untouched", strcmp(text, "still there") == 0);
    text = realloc(text, 100000);
    tell("realloc moves what is in it", strcmp(text, "still there") == 0);
    tell("realloc to 0 frees", realloc(text, 0) == NULL);
    return 0;
}
"#,
    );
    assert!(!told.contains(": no"), "{told}");
}

#[test]
fn a_block_whose_realloc_failed_is_still_counted() {
    let program = own_program(
        "failed_realloc",
        r#"#include <stdint.h>
#include <stdlib.h>

static void* volatile kept;
static volatile size_t huge = SIZE_MAX / 2;

int main(void) {
    kept = malloc(4711);
    return realloc(kept, huge) != NULL;
}
"#,
    );
    let project = Project::new("failed-realloc");
    assert!(tracked(&project, &program).status.success());
    let spool = fs::read_dir(project.folder()).unwrap().next().unwrap().unwrap().path();
    let survived = crate::agent::spool::frames(&spool).into_iter().any(|frame| match frame {
        memgate_wire::Frame::NativeSnapshot(part) => {
            part.records.iter().any(|r| (r.size, r.count) == (4711, 1))
        }
        _ => false,
    });
    assert!(survived, "4711 bytes were alive at the end");
}
