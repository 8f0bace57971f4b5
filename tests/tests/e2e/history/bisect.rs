//! Finds the commit that introduced a leak: `memgate bisect`, and its steps under the real `git bisect run`.

use std::fs;
use std::path::Path;
use std::process::Command;

use memgate_e2e::{Project, memgate, samples};
use memgate_model::Verdict;

use crate::history::commits::git;

/// Leaks if the working tree has a file `leaks`.
const TILES: &str = "#include <gtest/gtest.h>\n#include <unistd.h>\nchar* volatile kept;\n\
    __attribute__((noinline)) void load() { kept = new char[61]; }\n\
    TEST(Tiles, Load) { if (!access(\"leaks\", F_OK)) load(); }\nTEST(Tiles, Idle) {}\n";

fn commit(project: &Project, changes: &[(&str, bool)]) -> String {
    for (file, exists) in changes {
        if *exists {
            project.write(file, "x");
            git(project, &["add", file]);
        } else {
            git(project, &["rm", "-q", file]);
        }
    }
    git(project, &["commit", "-q", "--allow-empty", "-m", "x"]);
    git(project, &["rev-parse", "HEAD"])
}

#[test]
fn git_finds_the_commit_that_brought_a_leak() {
    let project = Project::new("bisect");
    git(&project, &["init", "-q"]);
    fs::copy(samples::own_suite("tiles", TILES), project.folder().join("engine_tests")).unwrap();
    let program = Path::new("./engine_tests");
    commit(&project, &[]);
    project.run(program).ends_with(0);
    commit(&project, &[]);
    commit(&project, &[("broken", true)]);
    commit(&project, &[("broken", false)]);
    let guilty = commit(&project, &[("leaks", true)]);
    commit(&project, &[]);
    commit(&project, &[]);
    let run = project.run(program);
    run.ends_with(1);
    assert_eq!(run.test("Tiles.Load").verdict, Verdict::Fail);
    let id = run.test("Tiles.Load").leaks[0].id.clone();

    // A threshold that allows the leak does not hide it.
    project.write("memgate.yaml", "version: 1\nthresholds: { native.live_bytes: 1 KiB }\n");
    let recipe = project.memgate(&["bisect", &id]);
    recipe.ends_with(0);
    assert!(recipe.stdout.contains("5 commits were not measured"), "{recipe}");
    let memgate = format!("{} run", memgate().display());
    let script = recipe.stdout.replace("memgate run", &memgate).replace("BUILD", "test ! -e broken");
    let script = script.replace("COMMAND'", "./engine_tests'").replace("git bisect reset\n", "");
    let output = Command::new("sh").current_dir(project.folder()).args(["-ec", &script]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n{said}\n{told}");
    assert!(said.contains(&format!("{guilty} is the first bad commit")), "{said}\n{told}");
    assert!(told.contains(&format!("bisect: {id} is not here (exit code 0)")), "{told}");

    project.memgate(&["history", "add", ".memgate/latest"]).ends_with(2).says("it is a step of a bisection");

    // A step that cannot run, or a typing error, must not mark a commit as bad.
    let step = ["run", "--bisect", "--leak", &id, "--filter", "Tiles.Load", "--"];
    project.memgate(&[&step[..], &["./no-such-program"]].concat()).ends_with(125);
    project.memgate(&["run", "--bisect", "--lek", &id, "--", "./engine_tests"]).ends_with(128);
    project.memgate(&["run", "--bisect", "--leak", &id[..9], "--", "./engine_tests"]).ends_with(128);
    project.memgate(&[&step[..5], &["No.Such", "--", "./engine_tests"]].concat()).ends_with(125);
    project.memgate(&["bisect", "n1-0000000000000000"]).ends_with(2).says("no such leak");
    let cut = &id[..id.len() - 1];
    project.memgate(&["history", "leak", cut]).ends_with(2).says(&format!("did you mean {id}?"));
    project.memgate(&["bisect", cut]).ends_with(2).says(&format!("did you mean {id}?"));
}
