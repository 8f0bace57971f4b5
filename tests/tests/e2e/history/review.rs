//! Reviews compared with the commit that they were merged with: leaks that the base has too do not fail them,
//! whatever the source of the base, even when the server no longer answers.

use std::fs;
use std::process::Command;

use memgate_e2e::{Project, Run, samples};

use crate::history::commits::{build, git};
use crate::server::upload::{Heard, free_address, serve, token, with_token};

/// The test with its leak of `bytes`, and optionally another one.
pub(crate) fn build_other(project: &Project, name: &str, bytes: usize, more: &str) {
    let built = samples::own_suite(
        name,
        &format!(
            "#include <gtest/gtest.h>\n#include <string>\n\
             __attribute__((noinline)) char* read_title(const std::string& text) {{ char* t = new char[{bytes}]; t[0] = text[0]; return t; }}\n\
             __attribute__((noinline)) char* draw(char c) {{ char* t = new char[83]; t[0] = c; return t; }}\n\
             TEST(Title, IsRead) {{ char* t = read_title(\"x\"); ASSERT_NE(t, nullptr); }}\n\
             TEST(Title, IsEmpty) {{ {more} }}\n"
        ),
    );
    fs::copy(built, project.folder().join("engine_tests")).unwrap();
}

/// Messages must differ: two commits in the same second, with the same parent and message, would be
/// identical.
fn commit(project: &Project, message: &str) -> String {
    git(project, &["commit", "-q", "--allow-empty", "-m", message]);
    git(project, &["rev-parse", "HEAD"])
}

/// The commit that CI checks out for a pull request: the branch merged into the current `main`.
pub(crate) fn merge(project: &Project) -> String {
    git(project, &["checkout", "-q", "--detach", "main"]);
    git(project, &["merge", "-q", "--no-ff", "-m", "merge", "fix"]);
    git(project, &["rev-parse", "HEAD"])
}

pub(crate) fn in_ci<'c>(command: &'c mut Command, sha: &str) -> &'c mut Command {
    command.envs([
        ("GITHUB_ACTIONS", "true"),
        ("GITHUB_REF", "refs/pull/7/merge"),
        ("GITHUB_HEAD_REF", "fix"),
        ("GITHUB_BASE_REF", "main"),
        ("GITHUB_SHA", sha),
    ])
}

fn review(project: &Project, sha: &str) -> Run {
    project.finish(in_ci(&mut project.command(&["run", "--", "./engine_tests"]), sha))
}

/// A repository with a branch that left `main` at its first commit.
fn repository(name: &str) -> Project {
    let project = Project::new(name);
    git(&project, &["init", "-q"]);
    commit(&project, "first");
    git(&project, &["checkout", "-q", "-b", "fix"]);
    commit(&project, "fix");
    git(&project, &["checkout", "-q", "main"]);
    project
}

fn configure(project: &Project, history: &str) {
    project.write("memgate.yaml", format!("version: 1\nproject: tiles\nhistory:\n{history}"));
}

#[test]
fn a_review_answers_for_its_own_leaks_and_the_server_may_be_away() {
    let project = repository("review");
    let token = token(&project, "tiles", &["main"]);
    let address = free_address();
    let server = serve(&project, &address);
    configure(&project, &format!("  server: http://{address}\n  token: ${{UPLOAD_TOKEN}}\n  wait: 1s\n"));
    build(&project, true);
    let base = commit(&project, "leak");
    with_token(&project, &token, &["run", "--", "./engine_tests"]).ends_with(1).says("uploaded: ");

    let sha = merge(&project);
    let known = review(&project, &sha);
    let said = format!("base: main {}", &base[..10]);
    known.ends_with(0).says(&said).says("is on main").says("1 to look at");
    let page = project.read(".memgate/latest/report.html");
    assert!(page.contains(&said) && page.contains("known on the base"), "every form of the report says it");
    assert_eq!(serde_json::to_value(known.report().base).unwrap()["before"], 0);

    // main gets a commit that was not measured, and the branch another leak.
    git(&project, &["checkout", "-q", "main"]);
    commit(&project, "unmeasured");
    let sha = merge(&project);
    build_other(&project, "review_new", 61, "ASSERT_NE(draw('x'), nullptr);");
    let run = review(&project, &sha);
    run.ends_with(1).says(&format!("{said}, 1 before")).says("new: ");
    assert_eq!(format!("{:?}", run.test("Title.IsRead").verdict), "Warn", "{run}");
    assert_eq!(format!("{:?}", run.test("Title.IsEmpty").verdict), "Fail", "{run}");
    build_other(&project, "review_grew", 122, "");
    review(&project, &sha).ends_with(1).says("larger: 122 B");

    drop(server);
    let away = review(&project, &sha);
    away.ends_with(1).says("larger: 122 B").says(&format!("{said}, 1 before, fetched "));
    let gate = project.memgate(&["gate", ".memgate/latest"]);
    gate.ends_with(1);
    assert!(gate.stdout.contains("larger: 122 B") && gate.stdout.contains(&said), "{gate}");
    let fetch = project.finish(in_ci(&mut project.command(&["baseline", "fetch"]), &sha));
    fetch.ends_with(2).says("fetched ");
    fs::remove_file(project.folder().join(".memgate/base.json")).unwrap();
    build(&project, true);
    let nobody = review(&project, &sha);
    nobody.ends_with(1).says("base: none (").says(&address);
    let server: Heard = serve(&project, &address);
    let fetch = project.finish(in_ci(&mut project.command(&["baseline", "fetch"]), &sha));
    fetch.ends_with(0).says("1 leaks alive");
    drop(server);
    let gate = project.memgate(&["gate", ".memgate/latest"]);
    gate.ends_with(0);
    assert!(gate.stdout.contains("known: "), "what was fetched since counts: {gate}");
}

#[test]
fn the_local_history_is_a_base_where_it_is_asked_for_and_tells_waivers_that_have_to_go() {
    let project = repository("review-local");
    build(&project, true);
    commit(&project, "leak");
    let run = project.memgate(&["run", "--", "./engine_tests"]);
    run.ends_with(1);
    let id = run.report().suites[0].tests.iter().find_map(|test| test.leaks.first()).unwrap().id.clone();
    let sha = merge(&project);
    let run = review(&project, &sha);
    run.ends_with(1);
    assert!(
        run.report().base.is_none() && !run.stderr.contains("base: "),
        "by default nothing is known: {run}"
    );
    let leaks = project.memgate(&["history", "leaks", "--branch", "fix → main"]);
    assert!(leaks.ends_with(0).stdout.contains("has 1 leak: only lines keep leaks"), "{leaks}");
    configure(&project, "  known: allow\n");
    let run = review(&project, &sha);
    run.ends_with(1).says("base: none (no whole run of main");
    project.write("memgate.yaml", "version: 1\nproject: review-local\nhistory: { known: allow }\n");
    let run = review(&project, &sha);
    run.ends_with(0).says("no new leak in ").says("1 with leaks that the base has too");
    assert_eq!(format!("{:?}", run.test("Title.IsRead").verdict), "Pass", "{run}");

    // main fixes it: reintroducing it is reported, and the waiver must be removed.
    git(&project, &["checkout", "-q", "main"]);
    build(&project, false);
    let fix = commit(&project, "clean");
    project.memgate(&["run", "--", "./engine_tests"]).ends_with(0).says("1 fixed");
    let sha = merge(&project);
    build(&project, true);
    let run = review(&project, &sha);
    run.ends_with(1).says(&format!("regressed: {id} was fixed on main by {}", &fix[..10]));

    let waive = ["waive", &id, "--reason", "known", "--until", "never"];
    project.memgate(&waive).ends_with(0);
    git(&project, &["checkout", "-q", "main"]);
    build(&project, false);
    commit(&project, "clean again");
    let run = project.memgate(&["run", "--", "./engine_tests"]);
    run.ends_with(0).says(&format!("its leak is fixed by {}, remove it", &fix[..10]));
    let failing = "version: 1\nproject: review-local\nhistory: { stale_waivers: fail }\n";
    project.write("memgate.yaml", failing);
    let run = project.memgate(&["run", "--", "./engine_tests"]);
    run.ends_with(1).says(&format!("FAIL     leak {id}"));
    run.says("1 waiver to remove (history.stale_waivers: fail)");
}
