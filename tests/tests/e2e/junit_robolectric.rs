//! Robolectric: real Android framework classes in a class loader of their own, leaked Activities named with who holds them.

use std::process::Command;

use memgate_e2e::jvm;
use memgate_e2e::say;
use memgate_model::{TestReport, Verdict};

#[test]
fn an_activity_that_is_kept_is_named_with_its_holder() {
    let Some(jdk) = jvm::jdks().into_iter().find(|jdk| jdk.release == 17) else { return };
    let project = jvm::project("robolectric", "jvm-robolectric");
    let mut fetch = Command::new("mvn");
    fetch.args(["-q", "-B", "test-compile"]).current_dir(project.folder()).env("JAVA_HOME", &jdk.home);
    let fetched = fetch.output().unwrap();
    if !fetched.status.success() {
        let why = String::from_utf8_lossy(&fetched.stdout);
        return say(&format!("skipped: Robolectric and its Android jars cannot be fetched:\n{why}"));
    }
    let arguments = ["run", "--", "mvn", "-q", "-B", "test"];
    let run = project.finish(project.command(&arguments).env("JAVA_HOME", &jdk.home));
    run.ends_with(1);
    let test = |name: &str| run.test(&format!("com.example.viewer.ViewerTest.{name}"));
    let clean = test("isClean");
    assert_eq!(clean.verdict, Verdict::Pass, "{}: {:?}", clean.reason, clean.leaks);
    leaks(&test("isKeptByAStatic"), "HistoryActivity", "static com.example.viewer.HistoryActivity.SHOWN");
    leaks(&test("isKeptByItsListener"), "DownloadActivity", "static com.example.viewer.Downloads.INSTANCE");
}

/// One more activity in each iteration, held by this.
fn leaks(test: &TestReport, activity: &str, root: &str) {
    assert_eq!(test.verdict, Verdict::Fail, "{}: {}", test.id, test.reason);
    let class = format!("com.example.viewer.{activity}");
    let all: Vec<String> =
        test.leaks.iter().map(|leak| format!("{} {:?}", leak.title, leak.holder)).collect();
    let named = |leak: &&memgate_model::Leak| {
        leak.class.as_ref() == Some(&class) || leak.holder.iter().any(|step| step.class == class)
    };
    let leak = test.leaks.iter().find(named).unwrap_or_else(|| panic!("{class} is not named: {all:#?}"));
    let from = &leak.holder[0];
    assert_eq!(format!("{} {}.{}", from.kind, from.owner, from.name), root, "{all:#?}");
}
