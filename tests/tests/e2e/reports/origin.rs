//! The origin that a report records, the commands shown next to a leak, and the size of reports with many
//! tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use memgate_e2e::{Project, samples};

const SHA: &str = "3f0c1b2a9d8e7f60514233241506978877665544";

fn one_leak() -> PathBuf {
    samples::own_suite(
        "origin_leak",
        "#include <gtest/gtest.h>\n#include <string>\n\
         __attribute__((noinline)) char* read_title(const std::string& text) { char* t = new char[61]; t[0] = text[0]; return t; }\n\
         TEST(Title, IsRead) { ASSERT_NE(read_title(\"x\"), nullptr); }\n\
         TEST(Title, IsEmpty) {}\n",
    )
}

/// Every file below a folder, with its contents.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.insert(path.clone(), fs::read(path).unwrap());
        }
    }
    found
}

#[test]
fn a_report_says_of_which_commit_and_job_it_is_and_the_clone_stays_as_it_is() {
    let project = Project::new("origin");
    project.write(".git/HEAD", "ref: refs/heads/main\n");
    project.write(".git/refs/heads/main", format!("{SHA}\n"));
    let before = contents(&project.folder().join(".git"));
    let suite = one_leak();
    let run = project.run_filtered("Title.IsEmpty", &suite);
    run.ends_with(0);
    assert_eq!(contents(&project.folder().join(".git")), before, "nothing is written to the clone");
    let origin = run.report().origin.unwrap();
    let commit = origin.commit.unwrap();
    assert_eq!((commit.sha.as_str(), commit.branch.as_str()), (SHA, "main"));
    assert!(origin.ci.is_none() && origin.versions.contains_key("memgate"), "{run}");
    assert!(!origin.machine.unwrap().host.is_empty());

    let arguments = ["run".as_ref(), "--".as_ref(), suite.as_os_str()];
    let mut command = project.command(&arguments);
    command.envs([
        ("GITLAB_CI", "true"),
        ("CI_COMMIT_REF_NAME", "fix/title"),
        ("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "main"),
        ("CI_COMMIT_SHA", "00000000000000000000000000000000000000aa"),
        ("CI_JOB_URL", "https://gitlab.example.com/job/9"),
        ("CI_JOB_TOKEN", "hunter2"),
    ]);
    let run = project.finish(&mut command);
    run.ends_with(1).says("FAIL  Title.IsRead   read_title leaks 61 B per run · ");
    let page = project.read(".memgate/latest/report.html");
    for part in ["0000000000 on fix/title into main", "href=\"https://gitlab.example.com/job/9\">gitlab</a>"]
    {
        assert!(page.contains(part), "{part}");
    }
    for name in ["report.json", "session.json", "report.html"] {
        assert!(!project.read(&format!(".memgate/latest/{name}")).contains("hunter2"), "{name}");
    }
    let gate = project.memgate(&["gate", ".memgate/latest", "--format", "json"]);
    assert_eq!(gate.report().origin, run.report().origin, "judged again it comes from the same commit");
}

/// The commands as a user copies them from the page.
#[test]
fn the_commands_beside_a_leak_run_its_test_alone_and_accept_it() {
    let project = Project::new("origin-commands");
    project.run(&one_leak()).ends_with(1);
    let page = project.read(".memgate/latest/report.html");
    let commands: Vec<String> = page
        .split("<code class=command>")
        .skip(1)
        .map(|rest| rest.split("</code>").next().unwrap().replace("&quot;", "\"").replace("&#39;", "'"))
        .collect();
    let [waive, again] = commands.as_slice() else { panic!("{commands:?}") };
    // A shell splits the command into words.
    let typed = |command: &str| {
        let rest = command.strip_prefix("memgate ").unwrap_or_else(|| panic!("{command}"));
        let words = Command::new("sh").arg("-c").arg(format!("printf '%s\\n' {rest}")).output().unwrap();
        let words = String::from_utf8(words.stdout).unwrap();
        project.memgate(&words.lines().collect::<Vec<_>>())
    };
    let run = typed(again);
    run.ends_with(1);
    assert_eq!(run.suite().tests.len(), 1, "only this test: {run}");
    typed(waive).ends_with(2).says("write why the leak is accepted");
    typed(&waive.replace('…', "upstream")).ends_with(0).says("waived n1-");
    let run = typed(again);
    run.ends_with(0);
    assert!(run.test("Title.IsRead").leaks[0].waiver.is_some(), "{run}");
}

/// Each clean test takes one line of the page and of `report.json`. Compressed, as CI uploads it, a session
/// of 50,000 tests stays below 20 MB.
#[test]
fn five_thousand_tests_with_parameters_take_a_line_each() {
    const TESTS: u64 = 5000;
    /// Content of a page and a report besides tests: style, script, curves of the suite.
    const FRAME: u64 = 64 << 10;
    let suite = samples::own_suite(
        "many_parameters",
        "#include <gtest/gtest.h>\n#include <vector>\n\
         class Multiplication : public ::testing::TestWithParam<int> {};\n\
         TEST_P(Multiplication, AgreesWithTheReference) { std::vector<int> v(GetParam() % 100); ASSERT_LT(v.size(), 100u); }\n\
         INSTANTIATE_TEST_SUITE_P(Matrix, Multiplication, ::testing::Range(0, 5000));\n",
    );
    let project = Project::new("many-parameters");
    let run = project.run(&suite);
    run.ends_with(0);
    assert_eq!(run.suite().tests.len(), 5000);
    let session = fs::canonicalize(project.session()).unwrap();
    let size = |name: &str| fs::metadata(session.join(name)).unwrap().len();
    let (json, page) = (size("report.json"), size("report.html"));
    let streams = fs::read_dir(session.join("frames")).unwrap();
    let frames: u64 = streams.map(|stream| stream.unwrap().metadata().unwrap().len()).sum();
    let packed = Command::new("tar").arg("-czf").arg("-").arg("-C").arg(&session).arg(".").output().unwrap();
    assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
    let packed = packed.stdout.len() as u64;
    memgate_e2e::say(&format!(
        "{TESTS} tests: report.json {json} B, report.html {page} B, frames {frames} B, session packed {packed} B"
    ));
    assert!(json <= 400 * TESTS + FRAME, "{json}");
    assert!(page <= 200 * TESTS + FRAME, "{page}");
    assert!(frames <= 60 * TESTS + 2048, "{frames}");
    assert!(packed <= (20 << 20) * TESTS / 50_000, "{packed}");
}
