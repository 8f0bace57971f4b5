//! Leaks over commits: what a run adds to the history, and what `memgate history` and `memgate serve` show.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use memgate_e2e::{Project, Run, memgate, samples};

const TEST: &str = "engine_tests::Title.IsRead";

/// Builds the suite into the project: the same test, with or without its leak.
pub(crate) fn build(project: &Project, leaks: bool) {
    let (name, body) = if leaks { ("history_leak", "") } else { ("history_clean", "delete[] t;") };
    let built = samples::own_suite(
        name,
        &format!(
            "#include <gtest/gtest.h>\n#include <string>\n#line 1 \"{}/src/title.cc\"\n\
             __attribute__((noinline)) char* read_title(const std::string& text) {{ char* t = new char[61]; t[0] = text[0]; return t; }}\n\
             TEST(Title, IsRead) {{ char* t = read_title(\"x\"); ASSERT_NE(t, nullptr); {body} }}\n\
             TEST(Title, IsEmpty) {{}}\n",
            project.folder().display()
        ),
    );
    fs::copy(built, project.folder().join("engine_tests")).unwrap();
}

pub(crate) fn git(project: &Project, arguments: &[&str]) -> String {
    let identity = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"];
    let output =
        Command::new("git").current_dir(project.folder()).args(identity).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Makes a commit on the current branch and runs it.
fn commit_and_run(project: &Project, leaks: bool) -> (String, Run) {
    build(project, leaks);
    git(project, &["commit", "-q", "--allow-empty", "-m", "x"]);
    let run = project.run(Path::new("./engine_tests"));
    run.ends_with(i32::from(leaks));
    (git(project, &["rev-parse", "HEAD"]), run)
}

fn history(project: &Project, arguments: &[&str]) -> String {
    let run = project.memgate(&[&["history"], arguments].concat());
    run.ends_with(0);
    run.stdout
}

fn json(project: &Project, arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&history(project, &[arguments, &["--json"]].concat())).unwrap()
}

/// What a browser gets: status line with headers, and the page.
pub(crate) fn get(address: &str, path: &str, host: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

#[test]
fn a_leak_is_followed_from_its_first_commit_to_its_fix() {
    let project = Project::new("history");
    git(&project, &["init", "-q"]);
    project.write("CODEOWNERS", "* @everybody\n/src/ @titles anna@example.com\n");
    let (_, first) = commit_and_run(&project, false);
    assert!(!first.stderr.contains("history:"), "nothing changed:\n{first}");
    let (guilty, run) = commit_and_run(&project, true);
    run.says("history: 1 new");
    let id = run.test("Title.IsRead").leaks[0].id.clone();
    let leaks = history(&project, &["leaks"]);
    assert!(leaks.contains(&format!("new    {id}")) && leaks.contains(&guilty[..8]), "{leaks}");
    assert_eq!(run.test("Title.IsRead").leaks[0].owners, ["@titles", "anna@example.com"]);
    run.says("owner   @titles anna@example.com");
    let of = |owner: &str| json(&project, &["leaks", "--owner", owner])["leaks"].as_array().unwrap().len();
    assert_eq!((of("@titles"), of("anna@example.com"), of("@everybody")), (1, 1, 0));
    commit_and_run(&project, true);
    assert!(history(&project, &["leaks"]).contains("known"), "seen on two commits");
    let (fix, run) = commit_and_run(&project, false);
    run.says("history: 1 fixed");
    assert!(history(&project, &["leaks"]).contains("no leaks"));

    let fixed = json(&project, &["leaks", "--state", "fixed"]);
    assert_eq!(fixed["leaks"][0]["id"], id.as_str());
    assert_eq!(fixed["leaks"][0]["window"], serde_json::json!([false, true, true, false]));
    let leak = history(&project, &["leak", &id]);
    assert!(leak.contains("read_title") && leak.contains(&guilty[..8]), "{leak}");
    let test = json(&project, &["test", TEST, "--metric", "native.live_bytes"]);
    let values: Vec<f64> =
        test["points"].as_array().unwrap().iter().map(|point| point["value"].as_f64().unwrap()).collect();
    assert_eq!(values, [0.0, 61.0, 61.0, 0.0]);
    let runs = json(&project, &["runs"]);
    assert_eq!((runs["runs"].as_array().unwrap().len(), &runs["runs"][0]["sha"]), (4, &fix.into()));
    let values = history(&project, &["export"]);
    assert!(
        values.lines().any(|line| line.contains("Title.IsRead") && line.contains("native.live_bytes")),
        "{values}"
    );

    let again = project.memgate(&["history", "add", ".memgate/latest"]);
    again.ends_with(0).says("is in the history already");
    project.memgate(&["history", "test", "engine_tests::No.such"]).ends_with(2).says("no such test");
    project.memgate(&["history", "leaks", "--branch", "no"]).ends_with(2).says("no such line");

    shown_in_a_browser(&project, &id);
}

fn shown_in_a_browser(project: &Project, id: &str) {
    let mut command = project.command(&["serve", "--listen", "127.0.0.1:0"]);
    let mut server = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(server.stderr.take().unwrap()).read_line(&mut said).unwrap();
    let address = said
        .strip_prefix("http://")
        .and_then(|said| said.split(' ').next())
        .unwrap_or_else(|| panic!("{said}"));

    let page = |path: &str| {
        let (head, body) = get(address, path, address);
        assert!(
            head.starts_with("http/1.1 200") && head.contains("content-security-policy: default-src 'none'"),
            "{path}: {head}"
        );
        body
    };
    assert!(page("/p/history").contains("read_title"), "{}", page("/p/history"));
    let of_owner =
        |owner: &str| page(&format!("/p/history/leaks?state=any&owner={owner}")).contains("read_title");
    assert!(of_owner("@titles") && !of_owner("@everybody"));
    assert!(page(&format!("/p/history/leaks/{id}")).contains("fixed"));
    assert!(page("/p/history/tests/engine_tests/Title.IsRead").contains("61"));
    assert!(page("/p/history/runs").contains("main"));
    assert!(page("/p/history/tune").contains("# memgate tune: history · main · x86_64\n#"));
    let runs: serde_json::Value = serde_json::from_str(&page("/api/v1/projects/history/runs")).unwrap();
    let number = |index: usize| runs["runs"][index]["run"].clone();
    let pair = format!("compare/{}...{}", number(3), number(1));
    let compared = page(&format!("/p/history/{pair}"));
    assert!(
        compared.contains("read_title") && compared.contains("<svg class=diff") && compared.contains("+61 B")
    );
    let compared: serde_json::Value =
        serde_json::from_str(&page(&format!("/api/v1/projects/history/{pair}"))).unwrap();
    assert_eq!(
        (&compared["comparison"]["leaks"][0]["change"], &compared["comparison"]["leaks"][0]["id"]),
        (&"new".into(), &id.into())
    );
    let views: serde_json::Value =
        serde_json::from_str(&page("/api/v1/projects/history/leaks?state=fixed")).unwrap();
    assert_eq!(views["leaks"][0]["id"], id);
    assert!(get(address, "/p/nobody", address).0.starts_with("http/1.1 404"));
    looked_at(
        project,
        address,
        &[
            "/p/history".to_owned(),
            "/p/history/leaks?state=any".to_owned(),
            format!("/p/history/leaks/{id}"),
            "/p/history/tests/engine_tests/Title.IsRead".to_owned(),
            "/p/history/runs".to_owned(),
            "/p/history/tune".to_owned(),
            "/p/history/live".to_owned(),
            format!("/p/history/runs/{}", number(1)),
            format!("/p/history/{pair}"),
        ],
    );
    let (head, _) = get(address, "/p/history", "evil.example.com");
    assert!(!head.starts_with("http/1.1 200"), "a name that somebody else's DNS gives this address: {head}");

    assert!(Command::new("kill").arg(server.id().to_string()).status().unwrap().success());
    assert_eq!(server.wait().unwrap().code(), Some(0), "it ends when it is asked to");
}

/// Checks the pages as a person sees them; pictures go into `pages` of the project's folder.
/// `UPDATE_PICTURE=1` replaces the picture of the README.
fn looked_at(project: &Project, address: &str, pages: &[String]) {
    let folder = project.folder().join("pages");
    fs::create_dir_all(&folder).unwrap();
    let addresses: Vec<String> = pages.iter().map(|page| format!("http://{address}{page}")).collect();
    let Some(found) = crate::reports::page::served(&folder, &addresses) else { return };
    assert_eq!(found["axe"], serde_json::json!([]), "no violation of accessibility: {found:#}");
    assert_eq!(found["axe_ran"], memgate_e2e::peer("node_modules/axe-core/axe.min.js").is_some());
    let views = found["views"].as_array().unwrap();
    assert_eq!(views.len(), 4 * pages.len());
    for view in views {
        let scripts = i32::from(view["name"].as_str().unwrap().contains("-live"));
        assert_eq!((&view["wider"], &view["scripts"]), (&0.into(), &scripts.into()), "{view}");
        assert!(view["bytes"].as_u64().unwrap() < 300_000 && view["heading"].is_string(), "{view}");
    }
    if std::env::var_os("UPDATE_PICTURE").is_some() {
        let picture = folder.join("p-history-tests-engine-tests-Title-IsRead-1280-light.png");
        fs::copy(picture, memgate_e2e::repository().join("docs/history.png")).unwrap();
    }
}

#[test]
fn without_a_commit_each_run_counts_and_a_broken_history_changes_no_verdict() {
    let project = Project::new("history-plain");
    git(&project, &["init", "-q"]);
    build(&project, true);
    let run = || project.run(Path::new("./engine_tests"));
    run().ends_with(1).says("history: 1 new");
    run().ends_with(1);
    let leaks = history(&project, &["leaks"]);
    assert!(leaks.contains("known") && leaks.contains("2 of 2"), "{leaks}");

    // A CI artefact in a read-only folder. Root could write there, so another user reads it.
    read_by_somebody_else(&project);
    fs::write(project.folder().join(".memgate/history.db"), "no database").unwrap();
    run().ends_with(1).says("this run is not in the history");
    fs::remove_file(project.folder().join(".memgate/history.db")).unwrap();
    project.write("memgate.yaml", "version: 1\nhistory: off\n");
    run().ends_with(1);
    assert!(!project.folder().join(".memgate/history.db").exists());
    project.memgate(&["history", "leaks"]).ends_with(2).says("memgate run");
}

fn read_by_somebody_else(project: &Project) {
    let folder = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
    let file = folder.path().join("history.db");
    fs::copy(project.folder().join(".memgate/history.db"), &file).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o444)).unwrap();
    let program = folder.path().join("memgate");
    fs::copy(memgate(), &program).unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o555)).unwrap();
    let read = || {
        let mut command = Command::new(&program);
        command.current_dir("/").args(["history", "leaks", "--data"]).arg(folder.path());
        if rustix::process::geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        command.output().unwrap()
    };
    let shown = read();
    let said = String::from_utf8_lossy(&shown.stdout).into_owned() + &String::from_utf8_lossy(&shown.stderr);
    assert!(shown.status.success() && said.contains("read_title"), "{said}");
    fs::write(folder.path().join("history.db-wal"), "what a writer has not written down").unwrap_or_else(
        |why| {
            assert!(!rustix::process::geteuid().is_root(), "{why}");
        },
    );
    if folder.path().join("history.db-wal").exists() {
        let refused = read();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains("copy both files into a folder of your own"), "{said}");
    }
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_restore_that_fails_leaves_no_empty_history() {
    let project = Project::new("history-restore");
    project.memgate(&["serve", "token", "create", "--project", "tiles", "--data", "old"]).ends_with(0);
    project.memgate(&["serve", "backup", "whole.db", "--data", "old"]).ends_with(0);
    let whole = fs::read(project.folder().join("whole.db")).unwrap();
    project.write("cut.db", &whole[..whole.len() / 2]);
    let restore = |file: &str| project.memgate(&["serve", "restore", file, "--data", "new"]);
    let made = || fs::read_dir(project.folder().join("new")).unwrap().count();
    for broken in ["cut.db", "absent.db"] {
        restore(broken).ends_with(2).says(broken);
        assert_eq!(made(), 0, "{broken}");
    }
    restore("whole.db").ends_with(0).says("rows were restored");
    // A second restore is refused and destroys nothing.
    restore("whole.db").ends_with(2).says("something is there already");
    assert_eq!(made(), 1);
}

#[test]
fn of_several_projects_that_of_the_folder_is_shown() {
    let project = Project::new("several-projects");
    let suite = samples::own_suite("one_pass", "#include <gtest/gtest.h>\nTEST(One, Passes) {}\n");
    let named = |name: &str| drop(project.write("memgate.yaml", format!("version: 1\nproject: {name}\n")));
    for name in ["one", "two"] {
        named(name);
        project.run(&suite).ends_with(0);
    }
    let shown = project.memgate(&["history", "runs", "--json"]);
    shown.ends_with(0);
    assert!(shown.stdout.contains("\"two\"") && !shown.stdout.contains("\"one\""), "{shown}");
    named("three");
    project.memgate(&["history", "runs"]).ends_with(2).says("there are several projects").says("one, two");
}
