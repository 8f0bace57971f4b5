//! Programs into which the agent cannot be loaded, or not in the usual way: musl, static, set-user-id.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use memgate_e2e::{has_tool, samples};

use crate::guest::life::{Guest, compiled, gate, is_not_measured, is_root, program};

const SOURCE: &str = "life_plain.c";

/// Programs of other kinds, each with whether the agent is loaded into it.
fn foreign() -> Vec<(PathBuf, bool)> {
    let mut programs = vec![
        (compiled("static_glibc", SOURCE, "cc", &["-static"]), false),
        (compiled("static_pie_glibc", SOURCE, "cc", &["-static-pie"]), false),
    ];
    if has_tool("musl-gcc") {
        programs.push((compiled("static_musl", SOURCE, "musl-gcc", &["-static"]), false));
        if Path::new("/lib/ld-musl-x86_64.so.1").exists() {
            programs.push((compiled("dynamic_musl", SOURCE, "musl-gcc", &[]), true));
        } else {
            memgate_e2e::skip_without("loader of musl (package musl)");
        }
    }
    programs
}

#[test]
fn foreign_programs_run_as_ever_and_are_measured_exactly_or_said_not_to_be() {
    for (program, loads) in foreign() {
        let name = program.file_name().unwrap().to_str().unwrap();
        let driven = Guest::new(&format!("foreign-{name}"), &program, &[]).drive().ends_with(0);
        assert_eq!(
            (driven.stdout.as_str(), driven.streams.len()),
            ("some text\n", usize::from(loads)),
            "{name}"
        );
        let run = gate(&format!("foreign-{name}"), &program, &[]);
        assert_eq!(run.stdout, "some text\n");
        if loads {
            driven.main(&program).is_exact(&[(4241, 3)]);
            run.ends_with(0);
        } else {
            is_not_measured(&run, &["linked statically", "link it dynamically"]);
        }
    }
}

#[test]
fn foreign_programs_beside_the_tested_one_stay_as_they_are() {
    let script: String = foreign().iter().map(|(program, _)| format!("{}; ", program.display())).collect();
    let plain = compiled("plain", SOURCE, "cc", &[]);
    let script = format!("{script}{} && exit 9", plain.display());
    let driven = Guest::new("foreign-tree", "/bin/sh".as_ref(), &["-c", &script]).drive().ends_with(9);
    assert_eq!(driven.stdout.matches("some text").count(), foreign().len() + 1);
    driven.main(&plain).is_exact(&[(4241, 3)]);
}

/// A folder that every user can access; removed after the test, even if it fails.
struct Open(PathBuf);

impl Open {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("memgate-{name}-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        Self(folder)
    }

    fn put(&self, program: &Path, mode: u32) -> PathBuf {
        let copy = self.0.join(program.file_name().unwrap());
        fs::copy(program, &copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(mode)).unwrap();
        copy
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

const NOBODY: [&str; 6] = ["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"];

#[test]
fn a_set_user_id_program_in_the_tree_runs_with_its_rights_and_without_the_agent() {
    if !is_root("set-user-id programs") || !has_tool("setpriv") {
        return;
    }
    let folder = Open::new("setuid");
    let helper = folder.put(&program("surroundings"), 0o4755);
    let tested = folder.put(&compiled("plain", SOURCE, "cc", &[]), 0o755);
    let script = format!("{} privileged; echo $?; {}", helper.display(), tested.display());
    let arguments = [&NOBODY[..], &["sh", "-c", &script]].concat();
    let guest = Guest::new("setuid", "setpriv".as_ref(), &arguments).in_reach_of_everybody(&folder.0);
    let driven = guest.drive().ends_with(0);
    if driven.stdout.contains("runs as the file's owner: no") {
        memgate_e2e::skip(&format!("set-user-id has no effect in {}", folder.0.display()));
        return;
    }
    assert_eq!(driven.stdout, "runs as the file's owner: yes\n0\nsome text\n");
    assert_eq!(driven.mains(&helper).count(), 0);
    driven.main(&tested).is_exact(&[(4241, 3)]);
    // For root, a set-user-id file owned by root changes nothing: give it another owner.
    std::os::unix::fs::chown(&helper, Some(65534), None).unwrap();
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o4755)).unwrap();
    is_not_measured(
        &gate("setuid", &helper, &["privileged"]),
        &["privileges of its file", "run a copy of it without set-user-id bits"],
    );
}

/// glibc repeats the call in every thread of the process and fails if one thread cannot do it. A thread of the
/// agent would make it fail.
#[test]
fn a_process_that_gives_up_its_user_goes_on_being_recorded() {
    if !is_root("giving up rights") || !has_tool("setpriv") {
        return;
    }
    let folder = Open::new("setresuid");
    let program = folder.put(&program("surroundings"), 0o755);
    let guest = Guest::new("setresuid", &program, &["setresuid"]).in_reach_of_everybody(&folder.0);
    let driven = guest.drive().ends_with(3);
    assert!(!driven.stdout.contains(": no"), "{}", driven.stdout);
    driven.main(&program).is_exact(&[(4241, 3), (4253, 0)]);
    assert!(driven.forked().all(|child| child.goodbye().is_some()) && driven.forked().count() == 1);
}

/// Simulates musl since 1.2.4: answers the agent's lookups as musl does. It jumps to the real function, because
/// the loader checks the caller.
const TELLS_NO_64: &str = r#"#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
void* dlsym(void* handle, const char* name) {
    void* (*real)(void*, const char*) = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    return strstr(name, "64") ? NULL : real(handle, name);
}
"#;

/// Regression: a program that uses these names could not open any file.
#[test]
fn functions_whose_names_with_a_64_the_c_library_does_not_tell_work_as_ever() {
    let library = samples::own("tells_no_64.so", "c", TELLS_NO_64, "cc", &["-shared", "-fPIC", "-O2"]);
    let program = samples::own_program(
        "calls_64",
        r#"#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
int main(void) {
    int file = open64("/dev/zero", O_RDONLY), other = openat64(AT_FDCWD, "/dev/zero", O_RDONLY);
    FILE* stream = fopen64("/dev/null", "r");
    void* at = mmap64(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0);
    printf("%d %d %d %d %d\n", file, other, fcntl64(file, F_DUPFD, 20), stream != NULL, at != MAP_FAILED);
    return 0;
}
"#,
    );
    let driven = Guest::new("tells-no-64", &program, &[]).preload(&library, true).drive().ends_with(0);
    assert_eq!(driven.stdout, "3 4 20 1 1\n");
}
