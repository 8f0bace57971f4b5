//! Other allocators in the process: before the agent, after it, linked in. Each is measured exactly or
//! reported as not measured.

use std::path::PathBuf;
use std::process::Command;

use crate::guest::life::{Guest, compiled, gate, is_not_measured, library, program};
use crate::guest::rules;

/// Library, linker flag, name in paths, packages.
const ALLOCATORS: [(&str, &str, &str, &str); 3] = [
    ("libjemalloc.so.2", "-ljemalloc", "jemalloc", "libjemalloc2 and libjemalloc-dev"),
    (
        "libtcmalloc_minimal.so.4",
        "-ltcmalloc_minimal",
        "tcmalloc",
        "libtcmalloc-minimal4 and libgoogle-perftools-dev",
    ),
    ("libmimalloc.so.2.0", "-lmimalloc", "mimalloc", "libmimalloc2.0 and libmimalloc-dev"),
];

/// Blocks that `life_allocators.c` keeps.
const KEPT: &[(u64, u64)] = &[(4241, 3), (4243, 2), (4259, 1), (4261, 1), (4271, 1), (4288, 1)];

fn replaced_new() -> PathBuf {
    compiled("operator_new", "life_operator_new.cc", "c++", &[])
}

#[test]
fn the_whole_family_in_threads_is_recorded_exactly() {
    let program = program("allocators");
    let driven = Guest::new("allocators", &program, &[]).drive().ends_with(0);
    assert_eq!(driven.stdout, "kept 9, usable: yes\n");
    let stream = driven.main(&program);
    stream.is_exact(KEPT);
    let counters = stream.goodbye().unwrap().counters;
    // 4 x 20,000 rounds of the churn; more than a third of them with two allocations (a realloc is a free and
    // an allocation).
    assert!(counters.allocations > 80_000 && counters.unknown_frees == 0, "{counters:?}");
    gate("allocators", &program, &[]).ends_with(0);
}

#[test]
fn a_replaced_operator_new_is_recorded_and_counted_once() {
    let program = replaced_new();
    let driven = Guest::new("operator-new", &program, &[]).drive().ends_with(0);
    assert_eq!(driven.stdout, "replaced\n");
    driven.main(&program).is_exact(&[(4241, 3)]);
}

#[test]
fn an_allocator_preloaded_behind_the_agent_is_the_one_it_hands_on_to() {
    for (name, _, whom, package) in ALLOCATORS {
        let Some(library) = library(name, package) else { continue };
        let (c, new) = (program("allocators"), replaced_new());
        let driven =
            Guest::new(&format!("behind-{whom}"), &c, &[]).preload(&library, false).drive().ends_with(0);
        driven.main(&c).is_exact_or_says(KEPT, whom);
        // The program's own operator new precedes that of the library, and calls malloc.
        let driven = Guest::new(&format!("behind-{whom}-new"), &new, &[]).preload(&library, false).drive();
        driven.ends_with(0).main(&new).is_exact(&[(4241, 3)]);
    }
}

/// Functions that a library does not define come from the C library, with and without the agent.
#[test]
fn a_library_with_a_part_of_the_family_leaves_the_rest_to_the_c_library() {
    let program = program("family");
    let part = compiled("libpartial.so", "life_partial.c", "cc", &["-shared", "-fPIC", "-fno-builtin"]);
    for before in [false, true] {
        let guest = Guest::new(&format!("partial-{before}"), &program, &[]).preload(&part, before);
        assert_eq!(guest.drive().ends_with(0).stdout, "all\n", "preloaded before the agent: {before}");
    }
    assert_eq!(Guest::new("family", &program, &[]).drive().ends_with(0).stdout, "all\n");
}

/// Refusals of an allocator, and how it reports them, pass through unchanged. (jemalloc has no `pvalloc`: its
/// replacement refuses as the C library's would.)
#[test]
fn every_function_of_another_allocator_answers_as_it_does_alone() {
    for (name, _, whom, package) in ALLOCATORS {
        let Some(library) = library(name, package) else { continue };
        let calls = rules::program("guest_calls");
        rules::alike_with(&format!("calls-{whom}"), |preload, options| {
            let mut command = Command::new(&calls);
            let preload = format!("{preload}:{}", library.display());
            command.arg("others").env("LD_PRELOAD", preload).env("MEMGATE_AGENT_OPTIONS", options);
            command
        });
    }
}

#[test]
fn an_allocator_preloaded_before_the_agent_is_named_as_the_reason_that_nothing_is_measured() {
    for (name, _, whom, package) in ALLOCATORS {
        let Some(library) = library(name, package) else { continue };
        for program in [program("allocators"), replaced_new()] {
            let file = program.file_name().unwrap().to_str().unwrap();
            let guest = Guest::new(&format!("before-{whom}-{file}"), &program, &[]).preload(&library, true);
            let driven = guest.drive().ends_with(0);
            let stream = driven.main(&program);
            assert!(stream.hello.blind.is_some(), "{whom}, {file}");
            stream.is_exact_or_says(&[], whom);
        }
    }
}

#[test]
fn an_allocator_linked_to_the_program_is_measured_exactly_or_named() {
    for (_, flag, whom, package) in ALLOCATORS {
        // The linker looks for this name; the shared library alone is not enough.
        if library(&format!("{}.so", flag.replace("-l", "lib")), package).is_none() {
            continue;
        }
        let program = compiled(whom, "life_allocators.c", "cc", &["-Wl,--no-as-needed", flag]);
        let driven = Guest::new(&format!("linked-{whom}"), &program, &[]).drive().ends_with(0);
        driven.main(&program).is_exact_or_says(KEPT, whom);
        if whom == "jemalloc" {
            is_not_measured(&gate("linked-jemalloc", &program, &[]), &["libjemalloc.so.2", "for the gate"]);
        }
    }
}

/// Regression: this passed without a message because the program's malloc was compared with itself.
#[test]
fn an_allocator_in_the_program_itself_is_never_passed_silently() {
    let mut programs = vec![program("own_malloc")];
    let archives = [
        ("libjemalloc.a", ["-lm", "-lstdc++"], "libjemalloc-dev"),
        ("libtcmalloc_minimal.a", ["-lstdc++", "-lm"], "libgoogle-perftools-dev"),
    ];
    for (archive, needs, package) in archives {
        if library(archive, package).is_some() {
            let file = format!("-l:{archive}");
            programs.push(compiled(archive, "life_allocators.c", "cc", &[&file, needs[0], needs[1]]));
        }
    }
    for program in programs {
        let name = program.file_name().unwrap().to_str().unwrap();
        let driven = Guest::new(&format!("inside-{name}"), &program, &[]).drive().ends_with(0);
        let stream = driven.main(&program);
        assert!(stream.hello.blind.is_some(), "{name}");
        stream.is_exact_or_says(&[], name);
        is_not_measured(
            &gate(&format!("inside-{name}"), &program, &[]),
            &["malloc of", name, "for the gate"],
        );
    }
}
