//! Leaked descriptors and threads are reported one by one, with the place that opened or started them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::OnceLock;

use memgate_e2e::{Project, Run, samples};
use memgate_model::{Leak, LeakKind, Verdict};
use memgate_wire::{BoundaryKind, Frame};

use crate::agent::spool;
use crate::leaks_session;

/// Two tests with leaks that look alike from outside, two with the same leak, and one without a leak. Each
/// waits a moment, so that a confirmation repeats it hundreds of times, not a hundred thousand.
const SUITE: &str = r#"#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cstdio>
#include <thread>
#define NOINLINE __attribute__((noinline))

namespace net {
NOINLINE int dial() {
    int peer = socket(AF_UNIX, SOCK_STREAM, 0);
    return poll(nullptr, 0, 5) + (peer < 0);
}
NOINLINE int listen_for_peers() {
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    return poll(nullptr, 0, 5) + (server < 0);
}
NOINLINE int start_pump() {
    std::thread([] { for (;;) pause(); }).detach();
    return poll(nullptr, 0, 5);
}
}  // namespace net

TEST(Net, Dials) { EXPECT_EQ(net::dial(), 0); }
TEST(Net, Listens) { EXPECT_EQ(net::listen_for_peers(), 0); }
TEST(Net, Pumps) { EXPECT_EQ(net::start_pump(), 0); }
TEST(Other, Dials) { EXPECT_EQ(net::dial(), 0); }
TEST(Other, Closes) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    close(ends[0]);
    close(ends[1]);
    FILE* file = fopen("/dev/null", "r");
    fclose(file);
    std::thread([] {}).join();
}
"#;

fn session() -> &'static (Project, Run) {
    static SESSION: OnceLock<(Project, Run)> = OnceLock::new();
    SESSION.get_or_init(|| Project::of_run("handles", &samples::own_suite("handles", SUITE)))
}

#[track_caller]
fn leak(run: &Run, test: &str) -> Leak {
    let leaks: Vec<Leak> =
        run.test(test).leaks.into_iter().filter(|leak| leak.kind == LeakKind::Os).collect();
    let [leak] = leaks.as_slice() else { panic!("one such leak in {test}:\n{run}") };
    assert!(leak.id.starts_with("o1-"), "{leak:#?}");
    leak.clone()
}

fn functions(leak: &Leak) -> Vec<&str> {
    leak.frames.iter().filter_map(|frame| frame.function.as_deref()).collect()
}

#[test]
fn what_leaks_is_told_with_the_place_that_opened_or_started_it() {
    let (project, run) = session();
    run.ends_with(1);
    let want = [
        ("Net.Dials", "net::dial()", "descriptor socket:[…]"),
        ("Net.Listens", "net::listen_for_peers()", "descriptor socket:[…]"),
        ("Net.Pumps", "net::start_pump()", "thread handles"),
        ("Other.Dials", "net::dial()", "descriptor socket:[…]"),
    ];
    for (test, function, title) in want {
        let leak = leak(run, test);
        assert_eq!(functions(&leak).first(), Some(&function), "{leak:#?}");
        assert!(functions(&leak).iter().any(|f| f.contains("TestBody")), "{leak:#?}");
        assert!(leak.title.ends_with(title), "{leak:#?}");
        assert!(leak.frames[0].file.as_deref().is_some_and(|file| file.ends_with("handles.cc")), "{leak:#?}");
    }
    assert_eq!(run.test("Other.Closes").verdict, Verdict::Pass, "{run}");
    run.says("net::listen_for_peers()");
    for format in ["html", "junit", "sarif", "markdown"] {
        let shown = project.memgate(&["report", "--format", format]).stdout;
        assert!(shown.contains("net::listen_for_peers()"), "{format}:\n{shown}");
    }
}

#[test]
fn a_waiver_of_one_hides_no_other_of_its_kind() {
    let (session, run) = session();
    let project = Project::new("handles-waived");
    let waived = leak(run, "Net.Dials").id;
    assert_ne!(waived, leak(run, "Net.Listens").id);
    assert_ne!(waived, leak(run, "Other.Dials").id, "called by another test");
    let reason = ["--reason", "known", "--until", "never"];
    project.memgate(&[&["waive", &waived], reason.as_slice()].concat()).ends_with(0);
    let session = session.session();
    let gate = project.memgate(&["gate", "--format", "json", session.to_str().unwrap()]);
    gate.ends_with(1);
    assert_eq!(leak(&gate, "Net.Dials").waiver.as_deref(), Some("known"), "{gate}");
    let verdict = |test: &str| gate.test(test).verdict;
    assert_eq!(
        ["Net.Dials", "Net.Listens", "Other.Dials"].map(verdict),
        [Verdict::Pass, Verdict::Fail, Verdict::Fail],
        "{gate}"
    );
}

#[test]
fn a_waiver_may_be_limited_to_tests() {
    let (session, _) = session();
    let project = Project::new("handles-waived-by-test");
    project.write(
        "memgate.yaml",
        "version: 1\nwaivers:\n  - frame: net::dial*\n    test: Net.*\n    reason: known\n    until: never\n",
    );
    let session = session.session();
    let gate = project.memgate(&["gate", "--format", "json", session.to_str().unwrap()]);
    gate.ends_with(1);
    let verdict = |test: &str| gate.test(test).verdict;
    assert_eq!(["Net.Dials", "Other.Dials"].map(verdict), [Verdict::Pass, Verdict::Fail], "{gate}");
    let waivers = gate.report().waivers;
    assert_eq!((waivers[0].matches.as_str(), waivers[0].used), ("frame net::dial* in Net.*", 1));
}

#[test]
fn the_samples_descriptor_and_thread_have_a_place() {
    let (_, run) = leaks_session();
    assert_eq!(functions(&leak(run, "Leaks.Descriptor"))[0], "leaks::ask_device()");
    assert_eq!(functions(&leak(run, "Leaks.ParkedThread"))[0], "leaks::start_watcher()");
}

/// Uses every call that opens descriptors, then actions that must not change the records: a failed call, a close,
/// a child of `vfork` that closes and opens. Prints the open descriptors at the end.
const PROGRAM: &str = r#"#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int opened[64], count, ends[2], server;
static volatile int cleaned, in_handler;

static void keep(int fd) { opened[count++] = fd; }
static void clean(void* unused) { (void)unused; cleaned = 1; }

static void* waits(void* unused) {
    pthread_cleanup_push(clean, unused);
    accept(server, NULL, NULL);
    pthread_cleanup_pop(0);
    return NULL;
}

static void* answers(void* argument) { return (char*)argument + 1; }
static void handle(int signal) { (void)signal; in_handler = open("/dev/null", O_RDONLY); }

static void child_that_shares_our_memory(void) {
    int status;
    pid_t child = vfork();
    if (child == 0) {
        for (int i = 0; i < count; i++) close(opened[i]);
        open("/dev/zero", O_RDONLY);
        dup2(2, 40);
        _exit(0);
    }
    waitpid(child, &status, 0);
}

int main(void) {
    char name[] = "handles.XXXXXX";
    struct sockaddr_un address = {AF_UNIX, ""};
    struct stat made;
    sigset_t none;
    void* result;
    pthread_t thread;
    sigemptyset(&none);

    keep(open("made", O_CREAT | O_RDWR | O_TRUNC, 0640));
    fstat(opened[0], &made);
    printf("mode %o\n", made.st_mode & 0777);
    keep(openat(AT_FDCWD, "made", O_RDONLY));
    keep(creat("made", 0600));
    keep(mkstemp(name));
    unlink(name);
    unlink("made");
    keep(memfd_create("memory", 0));
    keep(dup(0));
    keep(dup2(0, 30));
    keep(dup3(0, 31, O_CLOEXEC));
    keep(fcntl(0, F_DUPFD, 32));
    keep(fcntl(0, F_DUPFD_CLOEXEC, 33));
    keep(epoll_create1(0));
    keep(eventfd(0, 0));
    keep(timerfd_create(CLOCK_MONOTONIC, 0));
    keep(signalfd(-1, &none, 0));
    keep(inotify_init());
    pipe(ends);
    keep(ends[0]);
    keep(ends[1]);
    pipe2(ends, O_CLOEXEC);
    keep(ends[0]);
    keep(ends[1]);
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    keep(ends[0]);
    keep(ends[1]);
    keep(server = socket(AF_UNIX, SOCK_STREAM, 0));
    keep(fileno(fopen("/dev/null", "r")));
    keep(fileno(tmpfile()));
    keep(dirfd(opendir("/")));
    signal(SIGUSR1, handle);
    raise(SIGUSR1);
    keep(in_handler);

    bind(server, (struct sockaddr*)&address, sizeof(sa_family_t));
    listen(server, 1);
    pthread_create(&thread, NULL, waits, NULL);
    struct pollfd moment;
    poll(&moment, 0, 50);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    printf("cancelled %d, cleaned %d\n", result == PTHREAD_CANCELED, cleaned);
    pthread_create(&thread, NULL, answers, name);
    pthread_join(thread, &result);
    printf("answers %d\n", result == name + 1);

    errno = 0;
    int missing = open("/nowhere", O_RDONLY);
    printf("missing %d %d\n", missing, errno);
    errno = 4711;
    close(open("/dev/null", O_RDONLY));
    fclose(fopen("/dev/null", "r"));
    closedir(opendir("/"));
    printf("errno %d\n", errno);
    child_that_shares_our_memory();
    for (int i = 0; i < count; i++) printf("open %d\n", opened[i]);
    return 0;
}
"#;

#[test]
fn every_way_to_open_is_noted_and_works_as_before() {
    let program = samples::own_program("opens", PROGRAM);
    let project = Project::new("opens");
    let ([plain, dormant, tracked], frames) = spool::in_three_ways(&program, &project);
    assert!(plain.contains("mode 640\ncancelled 1, cleaned 1\nanswers 1\nmissing -1 2\n"), "{plain}");
    assert!(plain.contains("errno 4711\n"), "{plain}");
    assert_eq!((&dormant, &tracked), (&plain, &plain));

    let mut known = BTreeMap::new();
    for frame in frames {
        if let Frame::Handles(handles) = frame {
            known.extend(handles.descriptors.into_iter().map(|handle| (handle.id, handle.stack)));
        }
    }
    known.retain(|_, stack| *stack != 0);
    let open = tracked.lines().filter_map(|line| line.strip_prefix("open "));
    let mut open: Vec<u32> = open.map(|number| number.parse().unwrap()).collect();
    open.sort_unstable();
    assert_eq!(known.keys().copied().collect::<Vec<_>>(), open, "what is open, and nothing else");
    // One call makes both ends of a pipe or pair.
    let mut stacks: Vec<u32> = known.into_values().collect();
    stacks.sort_unstable();
    stacks.dedup();
    assert_eq!(stacks.len(), open.len() - 3, "a place of its own for each");
}

/// The harness samples the start of a test if the test before may not have settled: a joined thread may still
/// exist.
#[test]
fn a_test_after_one_that_began_a_thread_is_looked_at_and_quiet_ones_need_not_be() {
    let suite = samples::own_suite(
        "looks",
        "#include <gtest/gtest.h>\n#include <thread>\n\
         TEST(Joined, Begins) { std::thread([] {}).join(); }\nTEST(Joined, After) {}\n\
         class Quiet : public testing::TestWithParam<int> {};\nTEST_P(Quiet, Test) {}\n\
         INSTANTIATE_TEST_SUITE_P(Many, Quiet, testing::Range(0, 300));\n",
    );
    let project = Project::new("looks");
    project.memgate(&["run", "--no-confirm", "--", suite.to_str().unwrap()]).ends_with(0);
    let (mut starts, mut looks) = (Vec::new(), BTreeSet::new());
    for file in fs::read_dir(project.session().join("frames")).unwrap() {
        for frame in spool::frames(&file.unwrap().path()) {
            match frame {
                Frame::Boundary(it) if it.kind == BoundaryKind::TestStart => {
                    starts.push((it.test, it.sequence))
                }
                Frame::OsSample(sample) => {
                    looks.insert(sample.boundary);
                }
                _ => {}
            }
        }
    }
    assert_eq!(starts.len(), 302);
    let after = starts.iter().find(|(test, _)| test == "After").unwrap().1;
    assert!(looks.contains(&after));
    let unseen = starts.iter().filter(|(_, sequence)| !looks.contains(sequence)).count();
    assert!(unseen > 0, "{unseen} of 302 tests began without a look");
}

/// For future threads, the C library keeps the stacks of ended threads and what it allocated with them. That
/// is not a leak if the thread was joined or detached in any way. A thread that is never joined or detached
/// leaks it, even if it got a cached stack.
const THREADS: &str = r#"#include <gtest/gtest.h>
#include <errno.h>
#include <future>
#include <pthread.h>
#include <semaphore.h>
#include <thread>
#include <time.h>
#include <unistd.h>
static void* nothing(void*) { return nullptr; }
static void* waits(void*) { usleep(20000); return nullptr; }
static void* detaches_itself(void*) { pthread_detach(pthread_self()); return nullptr; }
static pthread_t begin(void* (*what)(void*), const pthread_attr_t* how = nullptr) {
    pthread_t thread;
    EXPECT_EQ(0, pthread_create(&thread, how, what, nullptr));
    return thread;
}
static timespec in(clockid_t clock, int seconds) {
    timespec time;
    clock_gettime(clock, &time);
    time.tv_sec += seconds;
    return time;
}
// A test ends when its threads have: the last one may still be there.
static void rest() { usleep(50000); }

TEST(GivenUp, Joined) { std::thread([] {}).join(); }
TEST(GivenUp, JoinedTogether) {
    for (int i = 0; i < 2; i++) {
        std::thread threads[10];
        for (auto& thread : threads) thread = std::thread([] { usleep(1000); });
        for (auto& thread : threads) thread.join();
    }
}
TEST(GivenUp, Result) {
    pthread_t thread = begin([](void*) -> void* { return stdout; });
    void* result = nullptr;
    EXPECT_EQ(0, pthread_join(thread, &result));
    EXPECT_NE(nullptr, result);
}
TEST(GivenUp, Detached) { for (int i = 0; i < 50; i++) std::thread([] {}).detach(); rest(); }
TEST(GivenUp, DetachesItself) { for (int i = 0; i < 50; i++) begin(detaches_itself); rest(); }
TEST(GivenUp, BegunDetached) {
    pthread_attr_t how;
    pthread_attr_init(&how);
    pthread_attr_setdetachstate(&how, PTHREAD_CREATE_DETACHED);
    for (int i = 0; i < 20; i++) begin(nothing, &how);
    pthread_attr_destroy(&how);
    rest();
}
TEST(GivenUp, JoinedIfEnded) { pthread_t thread = begin(waits); while (pthread_tryjoin_np(thread, nullptr)) usleep(1000); }
TEST(GivenUp, JoinedInTime) {
    pthread_t thread = begin(waits);
    timespec now = in(CLOCK_REALTIME, 0), later = in(CLOCK_MONOTONIC, 9);
    EXPECT_NE(0, pthread_timedjoin_np(thread, nullptr, &now));
    EXPECT_EQ(0, pthread_clockjoin_np(thread, nullptr, CLOCK_MONOTONIC, &later));
}
TEST(GivenUp, Async) { EXPECT_EQ(3, std::async(std::launch::async, [] { return 3; }).get()); }
TEST(Kept, Never) { begin(nothing); usleep(1000); }
// It has not ended, and nobody tries again.
TEST(Kept, Tried) {
    static sem_t ends;
    ASSERT_EQ(0, sem_init(&ends, 0, 0));
    pthread_t thread = begin([](void*) -> void* { sem_wait(&ends); return nullptr; });
    EXPECT_EQ(EBUSY, pthread_tryjoin_np(thread, nullptr));
    EXPECT_EQ(0, sem_post(&ends));
    usleep(1000);
}
"#;

#[test]
fn what_is_kept_of_an_ended_thread_is_a_leak_if_nobody_gave_it_up() {
    let suite = samples::own_suite("threads", THREADS);
    let run = Project::new("threads").run(&suite);
    run.ends_with(1);
    run.says("threads  11 tests");
    run.says("confirming 2");
    for name in ["Never", "Tried"] {
        let test = run.test(&format!("Kept.{name}"));
        assert_eq!(test.verdict, Verdict::Fail, "{run}");
        // The last thread may still exist when the test ends.
        let kept: Vec<&Leak> = test.leaks.iter().filter(|leak| leak.kind == LeakKind::Native).collect();
        let [leak] = kept[..] else { panic!("{:?}", test.leaks) };
        assert!((0.9..1.1).contains(&leak.count_per_iteration), "{}", leak.title);
        let own = format!("Kept_{name}_Test::");
        assert!(functions(leak).iter().any(|name| name.starts_with(&own)), "{:?}", functions(leak));
    }
}

/// Regression: a test whose threads end by themselves after it leaked, now and then, the threads and what they held.
#[test]
fn threads_that_end_by_themselves_after_their_test_are_no_leak() {
    let suite = samples::own_suite(
        "later",
        r#"#include <gtest/gtest.h>
#include <atomic>
#include <cstdlib>
#include <thread>
#include <unistd.h>
static std::atomic<int> executions;
// Its memory and itself are there until no test has run for a while.
static void ends_later() {
    void* held = malloc(40);
    asm volatile("" : : "r"(held) : "memory");
    for (int seen = -1; seen != executions; usleep(60000)) seen = executions;
    free(held);
}
TEST(Later, Ends) { ++executions; std::thread(ends_later).detach(); }
TEST(Later, Stays) { std::thread([] { for (;;) pause(); }).detach(); }
"#,
    );
    let run = Project::new("later").run(&suite);
    run.ends_with(1);
    let verdicts = ["Later.Ends", "Later.Stays"].map(|test| run.test(test).verdict);
    assert_eq!(verdicts, [Verdict::Pass, Verdict::Fail], "{run}");
}

/// The tests open descriptors so fast that all would be used up long before two seconds have passed.
#[test]
fn a_leak_is_told_before_the_process_has_no_more_descriptors() {
    let suite = samples::own_suite(
        "many_descriptors",
        "#include <gtest/gtest.h>\n#include <fcntl.h>\n#include <unistd.h>\n#include <sys/resource.h>\n\
         static void open_some(int count) { while (count-- > 0) open(\"/dev/null\", O_RDONLY); }\n\
         TEST(Many, TwoEachTime) { open_some(2); }\n\
         TEST(Many, FiftyEachTime) { open_some(50); }\n\
         TEST(Many, HundredsOnce) { static bool once = (open_some(400), true); EXPECT_TRUE(once); }\n",
    );
    let project = Project::new("many-descriptors");
    let words = ["run", "--", suite.to_str().unwrap()];
    let run = project.limited(&words, "ulimit -n 1024");
    run.ends_with(1);
    for (test, verdict, reason) in [
        ("Many.TwoEachTime", Verdict::Fail, "2 descriptors per iteration (allowed 0)"),
        ("Many.FiftyEachTime", Verdict::Fail, "50 descriptors per iteration (allowed 0)"),
        ("Many.HundredsOnce", Verdict::Pass, "one-time: 400 descriptors"),
    ] {
        let told = run.test(test);
        assert_eq!(told.verdict, verdict, "{}", told.reason);
        assert!(told.reason.starts_with(reason), "{}", told.reason);
    }
}

#[test]
fn more_descriptors_than_can_be_listed_are_not_measured() {
    let suite = samples::own_suite(
        "too_many_descriptors",
        "#include <gtest/gtest.h>\n#include <fcntl.h>\n#include <unistd.h>\n\
         TEST(TooMany, Opens) { for (int i = 0; i < 5000; i++) ASSERT_GE(open(\"/dev/null\", O_RDONLY), 0); }\n",
    );
    let project = Project::new("too-many-descriptors");
    let words = ["run", "--", suite.to_str().unwrap()];
    let run = project.limited(&words, "ulimit -n 8192");
    run.ends_with(2);
    let told = run.test("TooMany.Opens");
    assert_eq!(told.verdict, Verdict::Error, "{}", told.reason);
    let why = "not measured: its descriptors and threads could not be listed";
    assert!(told.reason.starts_with(why), "{}", told.reason);
    // Judging the session again gives the same result.
    project.memgate(&["gate", ".memgate/latest"]).ends_with(2);
    project.write("memgate.yaml", "version: 1\nthresholds: { os.fds: off, os.threads: off }\n");
    let run = project.limited(&words, "ulimit -n 8192");
    run.ends_with(0);
    assert_eq!(run.report().verdict, Verdict::Pass, "{run}");
}

/// Regression: such a thread began after the end of its test. No test was charged for what is kept of it, and the
/// test passed.
#[test]
fn a_thread_that_begins_late_and_that_nobody_joins_is_a_leak_of_the_test_that_started_it() {
    let suite = samples::own_suite(
        "late_threads",
        "#include <gtest/gtest.h>\n#include <pthread.h>\n#include <sched.h>\n#include <thread>\n\
         static void *ends(void *) { return nullptr; }\n\
         // On one processor the thread begins when its starter waits.\n\
         static void stay_here() { cpu_set_t here; CPU_ZERO(&here); CPU_SET(sched_getcpu(), &here);\n\
             sched_setaffinity(0, sizeof here, &here); }\n\
         TEST(Threads, Joined) { stay_here(); std::thread([] {}).join(); }\n\
         TEST(Threads, JoinedByNobody) { stay_here(); pthread_t t; pthread_create(&t, nullptr, ends, nullptr); }\n\
         TEST(Threads, NotStarted) {}\n",
    );
    let run = Project::new("late-threads").run(&suite);
    run.ends_with(1);
    let verdict = |test: &str| run.test(test).verdict;
    assert_eq!(
        ["Threads.Joined", "Threads.JoinedByNobody", "Threads.NotStarted"].map(verdict),
        [Verdict::Pass, Verdict::Fail, Verdict::Pass],
        "{run}"
    );
    let leaks = run.test("Threads.JoinedByNobody").leaks;
    assert!(functions(&leaks[0]).iter().any(|f| f.contains("JoinedByNobody")), "{leaks:#?}");
}
