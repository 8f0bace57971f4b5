//! Who holds the leaks of a native test: each case of `holders.cc` has its root, and a search that is not
//! possible is reported. The tested program does not notice the search.

use std::process::Command;
use std::sync::OnceLock;

use memgate_e2e::{Project, Run, samples, skip};
use memgate_model::{Leak, Reach, Verdict};

/// The leaking function, the state of its blocks, the first step that holds them (its kind and its variable
/// or function), and the minimum number of steps.
const TRUTH: [(&str, Reach, &str, &str, usize); 43] = {
    use Reach::{IndirectlyLost, Lost, LostCycle, Reachable};
    [
        ("static_global", Reachable, "static", "global_list", 1),
        ("static_file", Reachable, "static", "file_list", 1),
        ("static_function", Reachable, "static", "static_function()::function_list", 1),
        ("static_vector", Reachable, "static", "tiles::kept", 1),
        ("static_map", Reachable, "static", "tiles::by_number", 1),
        ("static_hashed", Reachable, "static", "tiles::hashed", 1),
        ("static_deque", Reachable, "static", "tiles::(anonymous namespace)::recent", 2),
        ("static_list", Reachable, "static", "tiles::listed", 1),
        ("static_forward_list", Reachable, "static", "tiles::forwarded", 1),
        ("static_set", Reachable, "static", "tiles::names", 1),
        ("static_string", Reachable, "static", "tiles::text", 1),
        ("static_shared", Reachable, "static", "tiles::shared", 1),
        ("static_callback", Reachable, "static", "tiles::calls", 1),
        ("static_member", Reachable, "static", "app", 1),
        ("static_member_of_member", Reachable, "static", "app", 1),
        ("static_class_member", Reachable, "static", "Registry::cache", 1),
        ("static_inline_member", Reachable, "static", "Registry::index", 1),
        ("static_array_of_pointers", Reachable, "static", "slots", 1),
        ("static_interior_pointer", Reachable, "static", "interior", 1),
        ("static_last_byte", Reachable, "static", "last_bytes", 1),
        ("static_singleton", Reachable, "static", "static_singleton()::instance", 2),
        ("static_early", Reachable, "static", "early", 2),
        ("static_tree", Reachable, "static", "root", 1),
        ("static_growing_table", Reachable, "static", "table", 1),
        ("static_aligned", Reachable, "static", "aligned", 1),
        ("static_large", Reachable, "static", "large", 1),
        ("static_million", Reachable, "static", "million", 1),
        ("static_polymorphic", Reachable, "static", "shapes", 1),
        ("stack_main", Reachable, "stack", "main", 1),
        ("stack_thread", Reachable, "stack", "hold_on_stack(Keeper&)", 1),
        ("stack_array_of_thread", Reachable, "stack", "hold_deep_on_stack(Keeper&)", 1),
        ("thread_local_variable", Reachable, "thread-local", "thread_list", 1),
        ("thread_local_vector", Reachable, "thread-local", "thread_texts", 1),
        (
            "thread_local_function",
            Reachable,
            "thread-local",
            "thread_local_function()::function_thread_list",
            1,
        ),
        ("thread_local_of_thread", Reachable, "thread-local", "thread_list", 1),
        ("thread_local_specific", Reachable, "thread data", "", 1),
        ("mapped_page", Reachable, "mapped memory", "", 1),
        ("lose()", Lost, "", "", 0),
        ("lose_cycle", LostCycle, "", "", 0),
        ("make_owned", IndirectlyLost, "lost block", "make_owner()", 1),
        ("lose_ring", LostCycle, "", "", 0),
        ("lose_itself", Lost, "", "", 0),
        ("mask", Lost, "", "", 0),
    ]
};

/// Regression: a program of another framework ended with a warning, also if one of its tests had lost memory. Later,
/// its singletons were leaks too if another block was lost.
#[test]
fn a_plain_program_fails_for_what_its_tests_lost_and_names_who_holds_the_rest() {
    let source = "#include <stdlib.h>\n#include <string.h>\nchar *held, *beside, *kept[4];\n\
        __attribute__((noinline)) char *parse(const char *text) { char *copy = strdup(text); return *text == 'x' ? nullptr : copy; }\n\
        __attribute__((noinline)) char *keep() { return strdup(\"held too\"); }\n\
        __attribute__((noinline)) void test(char what) {\n\
        if (what == 'b') beside = keep();\n\
        if (what == 'f') for (int i = 0; i < 4; i++) kept[i] = parse(i < 3 ? \"held\" : \"x\");\n\
        else if (what == 'h') held = parse(\"held\"); else parse(\"x\"); }\n\
        namespace doctest { struct Context { __attribute__((noinline)) int run(char what) { test(what); return 0; } }; }\n\
        __attribute__((noinline)) int report(int status) { volatile char text[4096]; for (auto &c : text) c = 0; return status + text[7]; }\n\
        int main(int, char **a) { if (*a[1] == 'm') { parse(\"x\"); return report(0); }\n\
        doctest::Context context; return report(context.run(*a[1])) + (held && held[0] != 'h')\n\
        + (kept[0] && kept[0][0] != 'h') + (beside && beside[0] != 'h'); }\n";
    let program = samples::own("plain_losses", "cc", source, "c++", &["-std=c++17", "-O1", "-g"]);
    let judged = |what: &str, status: i32| {
        let project = Project::new(&format!("plain-losses-{what}"));
        let run = project.memgate(&["run".as_ref(), "--".as_ref(), program.as_os_str(), what.as_ref()]);
        run.ends_with(status);
        let test = run.test("plain_losses");
        assert_eq!(test.leaks.len(), 1, "{run}");
        let leak = test.leaks[0].clone();
        assert_eq!(leak.frames[0].function.as_deref(), Some("parse(char const*)"), "{run}");
        let holder = leak.holder.first().map(|step| step.owner.clone()).unwrap_or_default();
        if what == "few" {
            run.says("FAIL");
            run.says("2 B in 1 allocation lost (allowed 0 B): no pointer to them is left at the end of main");
            run.says(" (3 of 4 blocks; 1 lost)");
        }
        if what == "both" {
            run.says("2 B per iteration (allowed 0 B)   1 allocation\n");
            run.says("; not judged: 9 B in 1 allocation more alive at exit");
            run.says("history: 1 new");
        }
        (test.verdict, leak.hold.as_ref().map(|hold| hold.reach), holder)
    };
    assert_eq!(judged("few", 1), (Verdict::Fail, Some(Reach::Reachable), "kept".to_owned()), "most are held");
    assert_eq!(judged("lost", 1), (Verdict::Fail, Some(Reach::Lost), String::new()));
    assert_eq!(
        judged("both", 1),
        (Verdict::Fail, Some(Reach::Lost), String::new()),
        "the held one is no leak"
    );
    assert_eq!(judged("held", 0), (Verdict::Warn, Some(Reach::Reachable), "held".to_owned()));
    assert_eq!(judged("main", 0), (Verdict::Warn, Some(Reach::Lost), String::new()), "no test");
}

/// Regression: the end of the program was not answered during the search, and after two seconds its descriptors and
/// threads counted as not measured.
#[test]
fn a_program_with_millions_of_blocks_ends_while_they_are_searched() {
    let source = "#include <stdlib.h>\nstruct node { struct node *next; long value; } *all;\n\
        int main(void) { for (int i = 0; i < 3000000; i++) {\n\
        struct node *one = malloc(sizeof *one); one->next = all; all = one; } return 0; }\n";
    let program = samples::own("many_blocks", "c", source, "cc", &["-O1", "-g"]);
    let project = Project::new("many-blocks");
    let run = project.memgate(&["run".as_ref(), "--".as_ref(), program.as_os_str()]);
    run.ends_with(0);
    let test = run.test("many_blocks");
    assert!(test.reason.starts_with("not judged: 45.8 MiB in 3000000 allocations alive at exit; "), "{run}");
    run.says("held by  static all");
}

fn session() -> &'static (Project, Run) {
    static SESSION: OnceLock<(Project, Run)> = OnceLock::new();
    SESSION.get_or_init(|| {
        let source = samples::sources().join("holders.cc");
        let flags = ["-std=c++17", "-O1", "-g", source.to_str().unwrap(), "-lgtest", "-lpthread"];
        Project::of_run("holders", &samples::compile("holders", "c++", &flags, &[]))
    })
}

/// The largest leak with a function of this name in its stack.
fn leak_of(leaks: &[Leak], function: &str) -> Option<Leak> {
    let is_named = |leak: &&Leak| {
        let names = leak.frames.iter().filter_map(|frame| frame.function.as_deref());
        names.into_iter().any(|name| name.starts_with(function))
    };
    leaks.iter().find(is_named).cloned()
}

#[test]
fn every_way_to_hold_a_leak_has_its_root() {
    let (_, run) = session();
    run.ends_with(1);
    let tests = run.suite().tests;
    let leaks: Vec<Leak> = tests.iter().flat_map(|test| test.leaks.clone()).collect();
    let mut wrong = Vec::new();
    for (function, reach, kind, owner, steps) in TRUTH {
        let Some(leak) = leak_of(&leaks, function) else {
            wrong.push(format!("{function}: no such leak"));
            continue;
        };
        let found = leak.hold.as_ref().map(|hold| hold.reach);
        let first = leak.holder.first().map_or(("", ""), |step| (step.kind.as_str(), step.owner.as_str()));
        if found != Some(reach) || first != (kind, owner) || leak.holder.len() < steps {
            wrong.push(format!("{function}: {found:?} {:?}", leak.holder));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}\n{run}", wrong.len(), TRUTH.len(), wrong.join("\n"));
    let line = |name: &str| {
        let source = std::fs::read_to_string(samples::sources().join("holders.cc")).unwrap();
        let at = source.lines().position(|line| line.ends_with(&format!("// HELD: {name}"))).unwrap();
        format!("holders.cc:{}", at + 1)
    };
    run.says(&format!("held by  static interior ({})", line("interior")));
    run.says("held by  the stack of thread stack keeper, in hold_on_stack(Keeper&)");
    run.says(&format!("held by  thread-local thread_list ({}) of thread tls keeper", line("thread_list")));
    run.says("lost: no pointer to it is left");
    run.says("lost with  a lost block: 72 B allocated in make_owner()");
}

/// The page, the JUnit file and SARIF use the same words; judging the session again gives the same holders.
#[test]
fn holders_are_in_every_report_and_in_a_session_that_is_judged_again() {
    let (project, _) = session();
    let held = "held by  static interior (holders.cc:";
    assert!(project.read(".memgate/latest/report.html").contains(held));
    for format in ["junit", "markdown"] {
        let written = project.memgate(&["gate", "--format", format, ".memgate/latest"]);
        assert!(written.stdout.contains(held), "{format}: {written}");
    }
    let again = project.memgate(&["gate", ".memgate/latest"]);
    again.ends_with(1);
    assert!(
        again.stdout.contains(held) && again.stdout.contains("lost: no pointer to it is left"),
        "{again}"
    );
    let sarif = project.memgate(&["gate", "--format", "sarif", ".memgate/latest"]);
    assert!(sarif.stdout.contains(&held.replace("  ", " ")), "{sarif}");
}

#[test]
fn a_leak_is_waived_by_its_holder() {
    let (project, _) = session();
    let waiver =
        "version: 1\nwaivers:\n  - { holder: \"Registry::*\", reason: it is a cache, until: never }\n";
    project.write("memgate-waivers.yaml", waiver);
    let gate = project.memgate(&["gate", "--format", "json", ".memgate/latest"]);
    std::fs::remove_file(project.folder().join("memgate-waivers.yaml")).unwrap();
    let leaks = gate.test("Holders.Static").leaks;
    let waived: Vec<_> = leaks.iter().filter(|leak| leak.waiver.is_some()).collect();
    assert!(waived.len() >= 2, "{gate}");
    assert!(waived.iter().all(|leak| leak.holder[0].owner.starts_with("Registry::")), "{gate}");
}

/// A program that counts its children must not see a child or a SIGCHLD that is not its own.
const COUNTS: &str = r#"
#include <gtest/gtest.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile sig_atomic_t ended;
static void note(int) { ended = 1; }
static char* volatile lost;
static void look() {
    // Behind everything that memgate does: no child, no signal, and the descriptors as they were.
    bool none = wait(nullptr) == -1 && errno == ECHILD;
    dprintf(2, "children: %s, signals: %d\n", none ? "none" : "some", static_cast<int>(ended));
    if (!none || ended) abort();
}
TEST(Counts, Children) { lost = new char[71]; }
int main(int argc, char** argv) {
    signal(SIGCHLD, note);
    atexit(look);
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
"#;

#[test]
fn a_program_that_counts_its_children_sees_none() {
    let program =
        samples::own("counts", "cc", COUNTS, "c++", &["-std=c++17", "-O1", "-g", "-lgtest", "-lpthread"]);
    let project = Project::new("holders-children");
    let run = project.run(&program);
    run.ends_with(1);
    let test = run.test("Counts.Children");
    assert_eq!(test.verdict, Verdict::Fail, "{run}");
    assert_eq!(test.leaks[0].hold.as_ref().map(|hold| hold.reach), Some(Reach::Lost), "{run}");
}

/// A process that filters its system calls is not asked to fork: the filter may end it.
const FILTERS: &str = r#"
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <stddef.h>
static char* volatile lost;
TEST(Filters, Fork) { lost = new char[73]; }
int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_clone, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 77;
    return RUN_ALL_TESTS();
}
"#;

#[test]
fn a_process_that_filters_its_system_calls_is_not_copied_and_that_is_said() {
    let program =
        samples::own("filters", "cc", FILTERS, "c++", &["-std=c++17", "-O1", "-g", "-lgtest", "-lpthread"]);
    if Command::new(&program).status().unwrap().code() == Some(77) {
        return skip("no filters of system calls here");
    }
    let project = Project::new("holders-filters");
    let run = project.run(&program);
    run.ends_with(1);
    run.says("holder not searched: the process filters its system calls (seccomp): it is not asked to fork");
}

#[test]
fn holders_can_be_switched_off() {
    let project = Project::new("holders-off");
    project.write("memgate.yaml", "version: 1\nmeasure:\n  native: { holders: off }\n");
    let run = project.run_filtered("Leaks.Strdup", &samples::suite("leaks"));
    run.ends_with(1);
    assert_eq!(run.test("Leaks.Strdup").leaks[0].hold, None);
}
