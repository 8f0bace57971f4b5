//! Blocks that Android's malloc_debug lists at the ends of tests, from the process to the verdict. A library
//! that replaces it (`tests/samples/bionic/malloc_debug.c`) returns lists as Android does; the app is that of
//! the stand-in device.

use std::path::PathBuf;

use memgate::reading::stream::read;
use memgate_e2e::samples::{compile, own};
use memgate_e2e::stand_in::adbs;
use memgate_e2e::{Project, repository};
use memgate_wire::{Frame, LeakInfo};

use crate::android::instrumentation::app::{decoder, device_with_malloc_debug, project};
use crate::android::native::{is_judged, run};

/// A JVM allocates all the time: only blocks of these sizes are listed.
const OPTIONS: &str = "backtrace backtrace_min_size=1000 backtrace_max_size=2100";

fn library() -> PathBuf {
    let source = repository().join("tests/samples/bionic/malloc_debug.c");
    let text = std::fs::read_to_string(source).unwrap();
    let flags = ["malloc_debug.c", "-shared", "-fPIC", "-O2", "-g", "-fno-builtin", "-lpthread"];
    compile("libmalloc_debug.so", "cc", &flags, &[("malloc_debug.c", &text)])
}

/// The lists in the streams of a session.
fn lists(project: &Project) -> Vec<LeakInfo> {
    let mut lists = Vec::new();
    for stream in project.streams() {
        read(&stream, |frame, _| {
            if let Frame::LeakInfo(list) = frame {
                lists.push(list);
            }
        })
        .unwrap();
    }
    lists
}

#[test]
fn what_malloc_debug_lists_of_an_app_is_judged_where_memgates_tracker_does_not_run() {
    let Some((adb, decoder)) = adbs().pop().zip(decoder(&[])) else { return };
    let Some((device, _app)) = device_with_malloc_debug(34, decoder, library(), OPTIONS) else { return };
    let project = project("malloc-debug-lists", "");
    let run = run(&project, &adb, &device, "");
    is_judged(&run);
    device.assert_clean();
    let lists = lists(&project);
    assert!(!lists.is_empty(), "{run}");
    for list in &lists {
        assert_eq!((list.backtrace_size, list.record_bytes), (16, 144));
        assert!(list.overall_bytes % 144 == 0 && list.total_bytes > 0);
    }
}

const SUITE: &str = r"
#include <cstdlib>
#include <gtest/gtest.h>

static char *volatile kept;

__attribute__((noinline)) static char *row() { return static_cast<char *>(malloc(1009)); }

TEST(Rows, Kept) { kept = row(); }
TEST(Rows, Freed) { free(row()); }
";

/// The program has Android's functions, which would list the same block.
#[test]
fn where_memgates_tracker_runs_malloc_debug_is_not_asked_and_nothing_counts_twice() {
    let library = library();
    let flags = [
        "-std=c++17",
        "-O1",
        "-g",
        "-Wl,--no-as-needed",
        library.to_str().unwrap(),
        "-lgtest",
        "-lgtest_main",
        "-lpthread",
    ];
    let suite = own("rows", "cc", SUITE, "c++", &flags);
    let project = Project::new("malloc-debug-tracked");
    let mut command = project.command(&["run", "--", suite.to_str().unwrap()]);
    let run = project.finish(command.env("LIBC_DEBUG_MALLOC_OPTIONS", "backtrace"));
    run.ends_with(1);
    let kept = run.test("Rows.Kept");
    let [leak] = kept.leaks.as_slice() else { panic!("{:#?}\n{run}", kept.leaks) };
    assert_eq!((leak.count_per_iteration, leak.bytes_per_iteration), (1.0, 1009.0), "{run}");
    assert!(run.test("Rows.Freed").leaks.is_empty(), "{run}");
    assert_eq!(lists(&project), [], "{run}");
}
