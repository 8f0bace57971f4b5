//! Robolectric: real Android framework classes in their own class loader; leaked Activities are named with
//! their holders.

use std::process::Command;

use memgate_e2e::jvm;
use memgate_e2e::{is_long, say, skip_without, waiting};
use memgate_model::{TestReport, Verdict};

/// The test, the leaked Activity, and the root of the path that holds it.
const LEAKS: [(&str, &str, &str); 2] = [
    (
        "isKeptByAStatic",
        "1 × com.example.viewer.HistoryActivity",
        "static com.example.viewer.HistoryActivity.SHOWN",
    ),
    (
        "isKeptByItsListener",
        "1 × com.example.viewer.DownloadActivity",
        "static com.example.viewer.Downloads.INSTANCE",
    ),
];

/// Robolectric 4.14.1 cannot read class files of a later Java ("Unsupported class file major version 69").
const RELEASE: u32 = 17;

#[test]
fn an_activity_that_is_kept_is_named_with_its_holder() {
    for jdk in jvm::jdks().into_iter().filter(|jdk| jdk.release == RELEASE) {
        let project = jvm::project(&format!("robolectric-{}", jdk.release), "jvm-robolectric");
        let most = if is_long() { LEAKS.len() } else { 1 };
        if most < LEAKS.len() {
            say("robolectric: one leaking test instead of two (MEMGATE_E2E_LONG=1 runs all)");
            let left_out = format!("@Test\n    public void {}", LEAKS[1].0);
            let tests = "src/test/java/com/example/viewer/ViewerTest.java";
            project.write(tests, project.read(tests).replace(&left_out, &left_out["@Test".len()..]));
        }
        let mut fetch = Command::new("mvn");
        fetch.args(["-q", "-B", "test-compile"]).current_dir(project.folder()).env("JAVA_HOME", &jdk.home);
        let fetched = waiting::output(&mut fetch);
        if !fetched.status.success() {
            let why = String::from_utf8_lossy(&fetched.stdout);
            return skip_without(&format!("Robolectric to fetch, with its Android jars:\n{why}"));
        }
        let arguments = ["run", "--", "mvn", "-q", "-B", "test"];
        let run = project.finish(project.command(&arguments).env("JAVA_HOME", &jdk.home));
        run.ends_with(1);
        let test = |name: &str| run.test(&format!("com.example.viewer.ViewerTest.{name}"));
        let clean = test("isClean");
        assert_eq!(clean.verdict, Verdict::Pass, "{}: {:?}", clean.reason, clean.leaks);
        for (name, title, root) in LEAKS.into_iter().take(most) {
            leaks(&test(name), title, root);
        }
    }
}

/// Checks for one more activity per iteration, held by `root`.
fn leaks(test: &TestReport, title: &str, root: &str) {
    assert_eq!(test.verdict, Verdict::Fail, "{}: {}", test.id, test.reason);
    let all: Vec<String> =
        test.leaks.iter().map(|leak| format!("{} {:?}", leak.title, leak.holder)).collect();
    let leak = &test.leaks[0];
    assert_eq!(leak.title, title, "{all:#?}");
    let from = &leak.holder[0];
    assert_eq!(format!("{} {}.{}", from.kind, from.owner, from.name), root, "{all:#?}");
}
