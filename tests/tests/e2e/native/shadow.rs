//! The shadow call stack, as the build of a program includes it.

use std::process::Command;

use memgate_e2e::{Project, samples};

const BUILD: &str = "cmake_minimum_required(VERSION 3.13)
project(app CXX C)
set(CMAKE_CXX_STANDARD 17)
add_subdirectory(memgate-shadow)
add_executable(torture torture.cc)
target_link_libraries(torture PRIVATE memgate_shadow)
";

/// The program compares each stack with that of the system's unwinder.
#[test]
fn a_program_that_takes_the_kit_in_has_stacks_that_are_never_wrong() {
    let project = Project::new("shadow-kit");
    let kit = project.folder().join("memgate-shadow");
    let written = project.memgate(&["shadow-kit", "memgate-shadow"]);
    written.ends_with(0);
    for name in ["memgate_shadow.h", "memgate_shadow.c", "CMakeLists.txt", "Android.mk"] {
        assert!(written.stderr.contains(name) && kit.join(name).is_file(), "{written}");
    }
    project.write("CMakeLists.txt", BUILD);
    let source = samples::sources().join("../proofs/shadow.cc");
    project.write("torture.cc", std::fs::read(source).unwrap());
    let cmake = |arguments: &[&str]| {
        samples::successful(Command::new("cmake").args(arguments).current_dir(project.folder()));
    };
    cmake(&["-B", "build", "-DCMAKE_BUILD_TYPE=RelWithDebInfo"]);
    cmake(&["--build", "build"]);
    let stacks = |section: &str| {
        let mut torture = Command::new(project.folder().join("build/torture"));
        samples::successful(torture.args([section, "20"]))
    };
    for section in ["exceptions", "longjumps", "coroutines", "shapes"] {
        let told = stacks(section);
        assert!(told.ends_with(", 0 wrong\n") && !told.starts_with("0 captures"), "{section}: {told}");
    }
    let cut = |section: &str| stacks(section).contains(", 0 cut,");
    assert!(cut("shapes") && cut("exceptions"), "nothing is missing where everything can be proven");
    assert!(stacks("plant").contains(", 3 wrong"), "wrong ones are seen");
}

#[test]
fn a_folder_that_cannot_be_written_is_told() {
    let project = Project::new("shadow-kit-file");
    project.write("taken", "");
    let run = project.memgate(&["shadow-kit", "taken"]);
    run.ends_with(2);
    assert!(run.stderr.contains("taken"), "{run}");
}
