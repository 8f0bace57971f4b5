use super::*;

fn hello(arguments: &[&str]) -> Hello {
    Hello {
        pid: 7,
        executable: "/build/tests".into(),
        arguments: arguments.iter().map(ToString::to_string).collect(),
        working_directory: "/build".into(),
        ..Hello::default()
    }
}

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

#[test]
fn processes_of_one_executable_with_the_same_own_arguments_are_one_suite() {
    let first = SuiteId::of(&hello(&["tests", "--gtest_filter=A.b", "--data", "x"]));
    let second = SuiteId::of(&hello(&["/build/tests", "--data", "x", "--gtest_also_run_disabled_tests"]));
    assert_eq!(first, second);
    assert_eq!(first.to_string(), "/build/tests --data x");
    assert_ne!(first, SuiteId::of(&hello(&["tests", "--data", "y"])));
}

#[test]
fn a_confirming_process_keeps_what_is_the_tests_and_drops_what_selects() {
    let environ: Vec<(OsString, OsString)> = [
        ("PATH", "/bin"),
        ("LD_PRELOAD", "/agent.so:/theirs.so"),
        ("MEMGATE_AGENT_OPTIONS", "dir=/x"),
        ("GTEST_FILTER", "B.*"),
        ("GTEST_TOTAL_SHARDS", "4"),
        ("GTEST_DEATH_TEST_STYLE", "threadsafe"),
        ("XML_OUTPUT_FILE", "/x.xml"),
        ("GTEST_DATA_DIR", "/data"),
    ]
    .iter()
    .map(|(name, value)| (name.into(), value.into()))
    .collect();
    let hello = hello(&[
        "./tests",
        "--gtest_filter=A.*",
        "--gtest_repeat=3",
        "--gtest_shuffle",
        "--gtest_output=xml:out.xml",
        "-gtest_break_on_failure",
        "--gtest_also_run_disabled_tests",
        "--gtest_death_test_style=threadsafe",
        "--data=x",
    ]);
    let launch = confirm(&hello, Some(&environ), "A.b", Repeat::Forever);
    assert_eq!(launch.program, PathBuf::from("/build/tests"));
    assert_eq!(launch.arg0, Some("./tests".into()));
    assert_eq!(launch.directory, Some("/build".into()));
    assert_eq!(
        launch.arguments,
        [
            "--gtest_also_run_disabled_tests",
            "--gtest_death_test_style=threadsafe",
            "--data=x",
            "--gtest_filter=A.b",
            "--gtest_repeat=-1"
        ]
    );
    let Environment::Exactly(kept) = launch.environment else { panic!() };
    let kept: Vec<_> = kept.iter().map(|(name, _)| name.to_str().unwrap()).collect();
    assert_eq!(kept, ["PATH", "LD_PRELOAD", "GTEST_DEATH_TEST_STYLE", "GTEST_DATA_DIR"]);
    let times = confirm(&hello, Some(&environ), "A.b", Repeat::Times(40)).arguments;
    assert_eq!(times.last(), Some(&"--gtest_repeat=40".into()));
}

#[test]
fn an_environment_that_could_not_be_read_is_ours_without_what_selects() {
    let launch = confirm(&hello(&["tests"]), None, "A.b", Repeat::Times(1));
    let Environment::Inherit { set, remove } = launch.environment else { panic!() };
    assert_eq!(set, []);
    for name in ["GTEST_FILTER", "GTEST_SHARD_INDEX", "XML_OUTPUT_FILE"] {
        assert!(remove.contains(&name.into()), "{name}");
    }
}

#[test]
fn a_listing_is_read_with_its_comments_and_what_the_program_prints_around_it() {
    let output = b"Running main() from gtest_main.cc\nReady.\n\
        Plain.\n  one\n  DISABLED_two\n\
        Typed/0.  # TypeParam = int\n  works\n\
        Inst/Param.\r\n  works/0  # GetParam() = \"a.  # b\"\r\n  works/1  # GetParam() = 2\r\n\
        All done\n";
    let want =
        ["Plain.one", "Plain.DISABLED_two", "Typed/0.works", "Inst/Param.works/0", "Inst/Param.works/1"];
    assert_eq!(parse_list(output).unwrap(), want);
    assert_eq!(parse_list(b"").unwrap(), Vec::<String>::new());
}

#[test]
fn a_listing_that_stops_in_the_middle_is_an_error() {
    for (output, line) in [("A.\n  one\nB.\n", 3), ("A.\n  one\n  tw", 3), ("A.", 1), ("A.\n  one", 2)] {
        let error = parse_list(output.as_bytes()).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("list the tests: the listing ends in the middle of line {line}")
        );
    }
}

#[test]
fn a_filter_selects_one_test_whatever_its_name() {
    for (id, all, want) in [
        ("A.b", &["A.b", "A.bc", "XA.b"][..], "A.b"),
        ("A.x", &["A.x", "A.y", "A.x", "A.y"], "A.x"),
        ("I/A.b/x-y", &["I/A.b/x-y"], "I/A.b/x?y"),
        ("A.b-1", &["A.b-1", "A.b_1", "A.b+1"], "A.b?1-A.b+1:A.b_1"),
        ("A.b*", &["A.b*", "A.bc", "A.bcd"], "A.b?-A.bc"),
        ("A:B.c", &["A:B.c"], "A?B.c"),
        ("A.\u{fffd}b\u{fffd}", &["A.\u{fffd}b\u{fffd}", "A.b", "A.bc", "A.c"], "A.*b*-A.b:A.bc"),
    ] {
        assert_eq!(filter_for(id, &names(all)).unwrap(), want, "{id}");
    }
}

#[test]
fn a_test_that_cannot_be_told_from_another_is_an_error() {
    for (id, all, want) in [
        ("A.b", &["A.c"][..], "select \"A.b\": the executable lists no such test"),
        ("A.x-y", &["A.x-y", "A.x:y"], "select \"A.x-y\": no filter tells it from \"A.x:y\""),
    ] {
        assert_eq!(filter_for(id, &names(all)).unwrap_err().to_string(), want);
    }
}

#[test]
fn a_filter_selects_several_tests_and_no_other() {
    let all = names(&["A.a", "A.x-y", "A.x:y", "A.x+y", "B.a"]);
    for (ids, want) in [
        (&["A.a", "B.a"][..], "A.a:B.a"),
        (&["A.a", "A.x-y", "A.x:y"], "A.a:A.x?y:A.x?y-A.x+y"),
        (&["A.x-y", "A.x:y", "A.x+y"], "A.x?y:A.x?y:A.x+y"),
    ] {
        assert_eq!(filter_for_all(&names(ids), &all).unwrap(), want);
    }
    let error = filter_for_all(&names(&["A.a", "A.x-y"]), &all).unwrap_err().to_string();
    assert_eq!(error, "select \"A.x-y\": no filter tells it from \"A.x:y\"");
}

#[tokio::test]
async fn an_executable_that_fails_to_list_is_an_error_with_how_it_ended() {
    let mut listing = list(&hello(&["tests"]), None);
    listing.directory = None;
    listing.program = "false".into();
    let limit = Duration::from_secs(20);
    let error = list_tests(listing.clone(), limit).await.unwrap_err();
    assert_eq!(error.to_string(), "list the tests: it ended with exit code 1");
    listing.program = "printf".into();
    listing.arguments = vec!["A.\\n  one\\n".into()];
    assert_eq!(list_tests(listing, limit).await.unwrap(), ["A.one"]);
}

#[test]
fn what_ran_below_fakeroot_is_started_below_a_new_one() {
    let environ: Vec<(OsString, OsString)> =
        [("FAKEROOTKEY", "1234"), ("LD_PRELOAD", "libfakeroot-sysv.so:/agent.so:/theirs.so"), ("A", "b")]
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
    let launch = confirm(&hello(&["./tests", "--own"]), Some(&environ), "A.b", Repeat::Forever);
    assert_eq!(launch.program, PathBuf::from("fakeroot"));
    assert_eq!(
        launch.arguments,
        ["--", "/build/tests", "--own", "--gtest_filter=A.b", "--gtest_repeat=-1"].map(OsString::from)
    );
    let kept = [("LD_PRELOAD", "/agent.so:/theirs.so"), ("A", "b")].map(|(n, v)| (n.into(), v.into()));
    assert_eq!(launch.environment, Environment::Exactly(kept.to_vec()));
}
