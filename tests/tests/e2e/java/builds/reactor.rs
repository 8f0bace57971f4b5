//! Every module whose tests the build reports is measured, or is an error with its name.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use memgate_e2e::{Project, Run, junit, jvm};
use memgate_model::Verdict;

const FIRST: &str = "import org.junit.jupiter.api.Test;

class FirstTest {
    @Test
    void isClean() {}
}
";

/// Surefire's report of tests that ran in Maven itself, or by TestNG.
const STORE: &str = "<testsuite name=\"com.example.StoreTest\"><properties>\
<property name=\"java.home\" value=\"/jdk\"/></properties>\
<testcase name=\"opens\" classname=\"com.example.StoreTest\" time=\"0.1\"/>\
<testcase name=\"closes\" classname=\"com.example.StoreTest\" time=\"0.1\"/></testsuite>";

/// A build instead of Maven: it runs the words of `first` in the folder of one module, and only reports
/// another module.
fn build(project: &Project, first: &[String]) -> Run {
    let first: String = first.iter().map(|word| format!("'{word}' ")).collect();
    let script = project.write(
        "build.sh",
        format!(
            "#!/bin/sh\nset -e\ncd 'first module'\n{first}\ncd ../store\nmkdir -p target/surefire-reports\n\
             cp ../store.xml target/surefire-reports/TEST-com.example.StoreTest.xml\n"
        ),
    );
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir_all(project.folder().join("store")).unwrap();
    project.write("memgate.yaml", "version: 1\nsuites:\n  all: { run: [./build.sh], runner: junit }\n");
    project.memgate(&["run"])
}

#[test]
fn a_module_whose_virtual_machine_was_not_seen_is_an_error_by_its_name() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let project = Project::new("junit reactor");
    let module = project.folder().join("first module");
    let classes = junit::compile(&jdk, &module, &[("FirstTest", FIRST)]);
    // The launcher's jar is in a folder with a blank in its name, as Surefire's is if the project's folder
    // has one.
    let jar = module.join("the launcher").join(junit::jar().file_name().unwrap());
    fs::create_dir_all(jar.parent().unwrap()).unwrap();
    fs::copy(junit::jar(), &jar).unwrap();
    let java = jdk.home.join("bin/java").display().to_string();
    let jar = "the launcher/".to_owned() + &jar.file_name().unwrap().to_string_lossy();
    let scan = "--scan-class-path=classes";
    let words = [
        "-jar",
        &jar,
        "execute",
        "--disable-banner",
        "--class-path=classes",
        scan,
        "--reports-dir=target/surefire-reports",
    ];
    let first: Vec<String> = std::iter::once(java).chain(words.map(str::to_owned)).collect();
    assert!(classes.join("FirstTest.class").exists());

    project.write("store.xml", STORE);
    let run = build(&project, &first);
    run.ends_with(2);
    assert_eq!(run.test("FirstTest.isClean").verdict, Verdict::Pass, "{run}");
    let report = run.report();
    let [error] = report.errors.as_slice() else { panic!("{:?}\n{run}", report.errors) };
    assert_eq!(error.r#where, "store");
    assert_eq!(
        error.what,
        "not measured: the build reports 2 tests that no measured virtual machine ran (com.example.StoreTest)"
    );

    // Only a report of scripts, or a report from another run: everything was measured.
    project.write("store.xml", "<testsuite><testcase name=\"a\" classname=\"cart\"/></testsuite>");
    build(&project, &first).ends_with(0);
}
