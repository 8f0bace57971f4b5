//! Processes that create processes: from many threads, in storms, in shared memory, into other programs.

use memgate_e2e::samples;
use memgate_model::Verdict;
use memgate_wire::{BoundaryKind, Frame, GoodbyeReason};

use crate::guest::life::{Driven, Guest, gate, program};

fn drive(how: &str, status: i32) -> Driven {
    Guest::new(&format!("forks-{}", how.replace(' ', "-")), &program("forks"), &[how])
        .drive()
        .ends_with(status)
}

#[test]
fn forks_from_many_threads_end_as_they_should_and_each_child_has_its_own_stream() {
    let driven = drive("threads fork", 3);
    assert!(driven.stdout.contains("160 of 160 children are right"), "{}", driven.stdout);
    driven.main(&program("forks")).is_exact(&[(4241, 3), (4253, 0)]);
    assert_eq!(driven.forked().count(), 160);
    assert!(driven.forked().all(|child| child.goodbye().is_some_and(|bye| bye.counters.unknown_frees == 0)));
    let quick = |s: &&_| matches!(crate::guest::life::Stream::goodbye(s), Some(b) if b.reason == GoodbyeReason::QuickExit);
    assert_eq!(driven.forked().filter(quick).count(), 4 * (14 + 13), "by _exit and by quick_exit");
}

#[test]
fn a_fork_storm_leaves_a_stream_for_each_of_its_processes() {
    let driven = drive("storm", 3);
    assert_eq!((driven.stdout.as_str(), driven.forked().count()), ("all are right\ndone\n", 127));
    driven.main(&program("forks")).is_exact(&[(4241, 3), (4253, 0)]);
}

/// Regression: `entr` hung. Its SIGCHLD handler ends the process, and ran while the agent held its locks for
/// the fork.
#[test]
fn a_signal_handler_that_ends_the_process_may_come_in_the_midst_of_a_fork() {
    let driven = drive("signal", 3);
    assert_eq!(driven.stdout, "all are right\ndone\n");
    driven.main(&program("forks")).is_exact(&[(4241, 3)]);
    assert!(driven.forked().all(|child| child.goodbye().is_some()));
}

/// Regression: the agent copied the names of tests before it marked itself busy. The fork then waited for the
/// lock of its heap, in the thread that held it.
#[test]
fn a_signal_handler_that_forks_may_come_in_where_a_test_begins_or_ends() {
    let source = r#"#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile int forks, failed;
static char name[4000];
static void handle(int signal) {
    (void)signal;
    int status;
    pid_t child = fork();
    if (child == 0) _exit(7);
    failed |= waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 7;
    forks++;
}
int main(void) {
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 700}, {0, 700}};
    void (*begins)(const char*, const char*) = dlsym(RTLD_DEFAULT, "memgate_test_begin");
    void (*ends)(const char*, const char*, int) = dlsym(RTLD_DEFAULT, "memgate_test_end");
    void (*mark)(const char*) = dlsym(RTLD_DEFAULT, "memgate_mark");
    memset(name, 'x', sizeof name - 1);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    while (forks < 200) {
        if (!begins) continue;
        begins("suite", name);
        mark(name);
        ends("suite", name, 0);
    }
    signal(SIGALRM, SIG_IGN);
    puts(failed ? "failed" : "200 forks");
    return 0;
}
"#;
    let program = samples::own("forks_at_tests", "c", source, "cc", &["-O1", "-ldl"]);
    let driven = Guest::new("forks-at-tests", &program, &[]).drive().ends_with(0);
    assert_eq!(driven.stdout, "200 forks\n");
    let stream = driven.main(&program);
    let ends = |frame: &Frame| matches!(frame, Frame::Boundary(b) if b.kind == BoundaryKind::TestEnd);
    assert!(stream.frames.iter().any(ends) && stream.goodbye().is_some());
}

/// Regression: a child that shares its parent's memory and left by `_exit` ended the parent's recording
/// without a message.
#[test]
fn a_child_in_its_parents_memory_does_not_end_the_parents_recording() {
    let forks = program("forks");
    let driven = drive("vfork", 3);
    let stream = driven.main(&forks);
    stream.is_exact(&[(4241, 4)]);
    let goodbye = stream.goodbye().unwrap();
    assert_eq!(goodbye.reason, GoodbyeReason::Exit);
    assert_eq!(goodbye.counters.frees, 2000, "what came after the children is recorded");

    let driven = drive("clone", 3);
    let stream = driven.main(&forks);
    stream.is_exact(&[(4241, 3), (4253, 0)]);
    let goodbye = stream.goodbye().unwrap();
    // 200 frees of the child that shares this memory, 2,000 later. Frees of a child that bypasses the fork
    // handlers are not counted.
    assert_eq!((goodbye.reason, goodbye.counters.frees), (GoodbyeReason::Exit, 2200));
    assert_eq!(driven.forked().count(), 0);
}

#[test]
fn spawned_programs_and_shells_work_as_ever() {
    let driven = drive("spawn", 3);
    assert_eq!(driven.stdout.matches("from the new program").count(), 20);
    assert!(driven.stdout.contains("system: status 17\nby popen\n"), "{}", driven.stdout);
    driven.main(&program("forks")).is_exact(&[(4241, 3)]);
}

#[test]
fn a_daemon_is_recorded_to_its_end() {
    let driven = drive("daemon", 3);
    driven.main(&program("forks")).is_exact(&[(4241, 3), (4253, 0)]);
    let [first, second, daemon] = driven.forked().collect::<Vec<_>>()[..] else { panic!("three forks") };
    // Sorted by process id, which is the order of creation.
    assert!([first, second].iter().all(|s| s.goodbye().unwrap().reason == GoodbyeReason::QuickExit));
    assert_eq!(daemon.goodbye().unwrap().counters.frees, 1000);
    // The program's own status is 3. memgate does not wait for processes that it left running.
    let run = gate("daemon", &program("forks"), &["daemon"]);
    run.ends_with(1).says("failed by itself");
}

#[test]
fn a_process_that_becomes_another_program_is_not_measured_and_no_failure_of_the_tests() {
    let forks = program("forks");
    for how in ["exec", "exec in thread"] {
        let driven = drive(how, 0);
        assert_eq!(driven.stdout, "from the new program\n");
        let stream = driven.main(&forks);
        assert!(stream.goodbye().is_none() && stream.errors().is_empty());
    }
    let run = gate("exec", &forks, &["exec"]);
    run.ends_with(2).says("became another program (exec)").says("not measured");
    assert_eq!(run.report().verdict, Verdict::Error, "{run}");
}

#[test]
fn an_exec_that_fails_changes_nothing_and_one_of_itself_begins_anew() {
    let forks = program("forks");
    drive("exec that fails", 3).main(&forks).is_exact(&[(4241, 3)]);
    let driven = drive("exec itself", 3);
    let [before, after] = driven.mains(&forks).collect::<Vec<_>>()[..] else { panic!("two streams") };
    assert_eq!(before.hello.pid, after.hello.pid);
    assert!(!before.frames.iter().any(|frame| matches!(frame, Frame::NativeSnapshot(_))));
    after.is_exact(&[(4241, 3)]);
}
