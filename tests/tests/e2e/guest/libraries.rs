//! Libraries that are loaded and unloaded at run time, and those that the loader binds past the agent.

use std::path::PathBuf;

use memgate_e2e::{Project, samples};
use memgate_model::Verdict;
use memgate_wire::{ErrorCode, GoodbyeReason};

use crate::agent::spool;
use crate::guest::life::{Guest, compiled, gate, program};

fn plugin() -> PathBuf {
    compiled("plugin.so", "life_plugin.c", "cc", &["-shared", "-fPIC"])
}

fn guest(name: &str, how: &str) -> Guest {
    Guest::new(&format!("libraries-{name}"), &program("libraries"), &[plugin().to_str().unwrap(), how])
}

#[test]
fn what_a_library_allocated_is_recorded_while_it_is_there_and_after_it_has_gone() {
    for (how, own) in [("keep", 1), ("close", 0), ("reload", 0)] {
        let driven = guest(how, how).drive().ends_with(0);
        let stream = driven.main(&program("libraries"));
        stream.is_exact(&[(4241, 3), (333, own), (444, 0), (100, 0)]);
        assert_eq!(stream.goodbye().unwrap().counters.unknown_frees, 0, "{how}");
    }
}

#[test]
fn a_library_whose_constructor_forks_is_loaded_as_ever() {
    let child = |driven: &crate::guest::life::Driven| {
        driven.forked().any(|s| s.goodbye().is_some_and(|b| b.reason == GoodbyeReason::QuickExit))
    };
    let driven = guest("forking", "keep").variable("LIFE_FORKING_CONSTRUCTOR", "1").drive().ends_with(0);
    driven.main(&program("libraries")).is_exact(&[(4241, 3), (333, 1)]);
    assert!(child(&driven), "its child has a stream");

    // The library is loaded before main, and thus before the recording starts.
    let library = plugin();
    let path = library.to_str().unwrap();
    let linked = compiled("libraries_linked", "life_libraries.c", "cc", &["-Wl,--no-as-needed", path]);
    let guest =
        Guest::new("libraries-linked", &linked, &[path, "close"]).variable("LIFE_FORKING_CONSTRUCTOR", "1");
    let driven = guest.drive().ends_with(0);
    driven.main(&linked).is_exact(&[(4241, 3), (333, 0)]);
    assert!(!child(&driven));
}

/// The loader uses the return address of `dlopen` to find the caller's run path: a call from the agent would
/// use the wrong one.
#[test]
fn a_library_is_found_by_the_run_path_of_the_program() {
    let library = plugin();
    let folder = format!("-Wl,-rpath,{}", library.parent().unwrap().display());
    let program = compiled("libraries_by_path", "life_libraries.c", "cc", &[&folder]);
    let driven = Guest::new("libraries-by-path", &program, &["plugin.so", "keep"]).drive().ends_with(0);
    driven.main(&program).is_exact(&[(4241, 3)]);
}

/// Regression: the report lacked the allocations of such a library, and did not say so.
#[test]
fn a_library_bound_past_the_agent_is_said_and_never_passed() {
    let libraries = program("libraries");
    let library = plugin();
    for how in ["deepbind", "dlmopen"] {
        let driven = guest(how, how).drive().ends_with(0);
        let stream = driven.main(&libraries);
        let [error] = stream.errors()[..] else { panic!("{:?}", stream.errors()) };
        assert_eq!(error.code, ErrorCode::Blind);
        assert!(error.text.contains("plugin.so was loaded with RTLD_DEEPBIND"), "{}", error.text);
        let run = gate(&format!("libraries-{how}"), &libraries, &[library.to_str().unwrap(), how]);
        run.ends_with(2).says("not measured").says("for the gate");
        assert_eq!(run.report().verdict, Verdict::Error, "{run}");
    }
    // A library that was requested this way but not found has no effect.
    guest("not-found", "not found").drive().ends_with(0).main(&libraries).is_exact(&[(4241, 3)]);
}

/// Loads a library with this constructor, then prints `as ever`. An alarm ends a hang.
fn loads(name: &str, constructor: &str, main: &str) {
    let library = format!(
        r#"#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
extern char** environ;
{constructor}"#
    );
    let flags = ["-shared", "-fPIC", "-O1", "-pthread"];
    let library = samples::own(&format!("{name}.so"), "c", &library, "cc", &flags);
    let program = format!(
        r#"#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int began[2];
static void* load(void* unused) {{ (void)unused; return dlopen("{}", RTLD_NOW); }}
{main}"#,
        library.display()
    );
    let flags = ["-O1", "-rdynamic", "-pthread", "-ldl"];
    let program = samples::own(name, "c", &program, "cc", &flags);
    let (printed, _) = spool::in_three_ways(&program, &Project::new(name));
    assert_eq!(printed, ["as ever\n"; 3]);
}

/// Regression: the agent looked up a C library function at its first call. A thread that made that call then
/// waited for the loader's lock, which the constructor's thread holds.
#[test]
fn a_library_whose_constructor_waits_for_a_thread_is_loaded_as_ever() {
    let constructor = r#"
static void* work(void* unused) {
    pid_t child;
    char* words[] = {"true", 0};
    if (open("/dev/null", O_RDONLY) < 0 || eventfd(0, 0) < 0 || socket(AF_UNIX, SOCK_STREAM, 0) < 0) return "";
    if (posix_spawnp(&child, "true", 0, 0, words, environ) || waitpid(child, 0, 0) != child) return "";
    child = vfork();
    if (child == 0) {
        execvp("true", words);
        _exit(9);
    }
    return waitpid(child, 0, 0) == child ? 0 : "";
}
__attribute__((constructor)) static void begin(void) {
    pthread_t thread;
    void* failed;
    if (pthread_create(&thread, 0, work, 0) || pthread_join(thread, &failed) || failed) puts("failed");
}
"#;
    let main = r#"int main(void) {
    alarm(30);
    if (!load(0)) puts(dlerror());
    puts("as ever");
    return 0;
}
"#;
    loads("loads_and_waits", constructor, main);
}

/// Regression: while a thread was loading a library, a signal handler waited for that thread forever, and so did
/// a forked child, in which the thread does not exist.
#[test]
fn a_process_ends_at_once_while_a_library_is_loaded() {
    let constructor = r#"
extern int began[2];
__attribute__((constructor)) static void begin(void) {
    if (write(began[1], "", 1) != 1) puts("failed");
    for (;;) pause();
}
"#;
    let main = r#"static void ends(int signal) { (void)signal; _exit(0); }
static void child_ends(void (*how)(int)) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        alarm(30);
        how(0);
    }
    if (waitpid(child, &status, 0) != child || status) puts("failed");
}
int main(void) {
    pthread_t thread;
    char byte;
    alarm(30);
    if (pipe(began) || pthread_create(&thread, 0, load, 0) || read(began[0], &byte, 1) != 1) return 9;
    child_ends(_exit);
    child_ends(_Exit);
    child_ends(quick_exit);
    puts("as ever");
    fflush(stdout);
    signal(SIGUSR1, ends);
    return raise(SIGUSR1) + 9;
}
"#;
    loads("ends_while_loading", constructor, main);
}
