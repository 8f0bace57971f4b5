//! The part of `tests/samples/android` that needs no framework, in genuine ART: `memgate run` with a real adb
//! and the stand-in device, whose app `tests/art/start` starts. `tests/art/run` builds the dex and runs these
//! tests.

use std::path::PathBuf;

use memgate_e2e::stand_in::{StandIn, adbs};
use memgate_e2e::{Project, Run};
use memgate_model::{BoundaryQuality, Leak, Runner, Verdict};

use crate::android::instrumentation::app::{
    Tracks, configure, device as device_in_hotspot, device_in_art, project, run_on,
};

const TILE: &str = "com.example.tracks.TileCache$Tile";
const LEAKING: &str = "com.example.tracks.TileCacheTest.keepsAllTiles";

fn device() -> (StandIn, Tracks) {
    of_release(30)
}

fn of_release(api: u32) -> (StandIn, Tracks) {
    with_app("tracks.jar", api)
}

fn with_app(dex: &str, api: u32) -> (StandIn, Tracks) {
    let apps = std::env::var_os("MEMGATE_ART_APPS").expect("tests/art/run names the folder of apps");
    device_in_art(api, PathBuf::from(apps).join(dex))
}

/// `memgate run` of these test classes on a device.
fn run(name: &str, device: &StandIn, classes: &[&str], measure: &str) -> Run {
    run_with(name, device, classes, (measure, "")).1
}

/// As [`run`], with settings and additional keys of the suite.
fn run_with(
    name: &str,
    device: &StandIn,
    classes: &[&str],
    (measure, suite): (&str, &str),
) -> (Project, Run) {
    let adb = adbs().pop().expect("adb is there");
    let project = project(&format!("art-{name}"), "");
    let named = |class: &&str| {
        if class.contains('.') { (*class).to_owned() } else { format!("com.example.tracks.{class}") }
    };
    let classes: Vec<String> = classes.iter().map(named).collect();
    let more = format!("    arguments: {{ class: \"{}\" }}\n{suite}", classes.join(","));
    configure(&project, measure, &more);
    let run = run_on(&adb, device, &project, &["run", "--suite", "tracks"]);
    (project, run)
}

fn verdicts(run: &Run) -> Vec<(String, Verdict)> {
    let mut all: Vec<_> = run.suite().tests.into_iter().map(|test| (test.id, test.verdict)).collect();
    all.sort_by(|one, other| one.0.cmp(&other.0));
    let named = |(id, verdict): (String, Verdict)| (id.rsplit('.').next().unwrap().to_owned(), verdict);
    all.into_iter().map(named).collect()
}

fn leak(run: &Run) -> Leak {
    run.test(LEAKING).leaks.first().cloned().unwrap_or_else(|| panic!("no leak: {run}"))
}

#[test]
#[ignore = "needs ART: tests/art/run"]
fn a_planted_leak_has_the_id_it_has_in_hotspot_and_clean_tests_pass() {
    let classes = ["CleanTest", "TileCacheTest"];
    let (device, _app) = device();
    let art = run("leak", &device, &classes, "");
    art.ends_with(1);
    let suite = art.suite();
    assert_eq!((suite.runner, suite.boundary), (Runner::Instrumentation, BoundaryQuality::Exact));
    assert_eq!(art.report().errors, [], "{art}");
    let pass = |test: &str| (test.to_owned(), Verdict::Pass);
    let leaks = ("keepsAllTiles".to_owned(), Verdict::Fail);
    let right = [pass("adds"), pass("allocatesAndForgets"), leaks, pass("keepsRecentTiles")];
    assert_eq!(verdicts(&art), right, "{art}");
    let found = leak(&art);
    assert_eq!((found.class.as_deref(), found.count_per_iteration), (Some(TILE), 5.0), "{art}");
    let from = found.holder.first().map(|from| format!("{} {}.{}", from.kind, from.owner, from.name));
    assert_eq!(from.as_deref(), Some("static com.example.tracks.TileCache.ALL"), "{art}");
    let site = |leak: &Leak| leak.frames.first().and_then(|frame| frame.function.clone());
    assert_eq!(site(&found).as_deref(), Some("com.example.tracks.TileCache.lambda$load$0"), "{found:?}");
    device.assert_clean();

    let (device, _app) = device_in_hotspot(30).expect("the app is built for HotSpot too");
    let hotspot = run("leak-hotspot", &device, &classes, "");
    let twin = leak(&hotspot);
    assert_eq!((&twin.id, site(&twin)), (&found.id, site(&found)), "{art}{hotspot}");
}

/// The suite of `memgate demo`, run by `java` in HotSpot and by `am instrument` in ART.
#[test]
#[ignore = "needs ART: tests/art/run"]
fn the_demos_leaks_have_the_ids_in_art_that_they_have_in_hotspot() {
    let tests = ["Caches", "MapView", "Page", "Settings", "TileCache", "Titles"]
        .map(|test| format!("com.example.{test}Test"));
    let named: Vec<&str> = tests.iter().map(String::as_str).collect();
    let (device, _app) = with_app("demo.jar", 30);
    let art = run("demo", &device, &named, "");
    art.ends_with(1);

    let apps = PathBuf::from(std::env::var_os("MEMGATE_ART_APPS").expect("as above"));
    let jars = std::env::var("MEMGATE_ART_JUNIT").expect("tests/art/run names JUnit's jars");
    let path = format!("{}:{jars}", apps.join("classes/demo").display());
    let java = ["run", "--", "java", "-cp", &path, "org.junit.runner.JUnitCore"];
    let hotspot = Project::new("art-demo-hotspot").memgate(&[&java[..], &named].concat());
    hotspot.ends_with(1);

    let ids = |run: &Run| -> Vec<(String, Vec<String>)> {
        let mut all: Vec<_> =
            run.suite().tests.into_iter().filter(|test| test.verdict == Verdict::Fail).collect();
        all.sort_by(|one, other| one.id.cmp(&other.id));
        all.into_iter().map(|test| (test.id, test.leaks.into_iter().map(|leak| leak.id).collect())).collect()
    };
    assert_eq!(ids(&art), ids(&hotspot), "{art}{hotspot}");
}

#[test]
#[ignore = "needs ART: tests/art/run"]
fn followed_objects_are_counted_exactly_with_their_stacks() {
    let (device, _app) = device();
    let run = run(
        "follow",
        &device,
        &["TileCacheTest"],
        &format!("measure: {{ java: {{ follow: ['{TILE}'] }} }}\n"),
    );
    run.ends_with(1);
    let followed = run.report().followed.unwrap_or_else(|| panic!("nothing was followed:\n{run}"));
    let allocated: u64 = followed.sites.iter().map(|site| site.allocations).sum();
    assert_eq!((allocated, followed.lost), (5 + 40, 0), "{followed:?}");
    let all =
        followed.sites.iter().find(|site| site.allocations == 5).unwrap_or_else(|| panic!("{followed:?}"));
    assert_eq!((all.class.as_str(), all.live), (TILE, 5), "{followed:?}");
    let frames: Vec<&str> = all.frames.iter().filter_map(|frame| frame.function.as_deref()).collect();
    assert!(frames.contains(&"com.example.tracks.TileCache.load"), "{frames:?}");
}

#[test]
#[ignore = "needs ART: tests/art/run"]
fn a_test_that_fails_is_not_judged_and_one_that_takes_its_process_along_is_no_pass() {
    let (device, _app) = device();
    let failing = run("failing", &device, &["FailingTest"], "");
    failing.ends_with(1);
    assert!(failing.stdout.contains("failed: com.example.tracks.FailingTest.fails"), "{failing}");
    let right = [("fails".to_owned(), Verdict::NotJudged), ("keeps".to_owned(), Verdict::Fail)];
    assert_eq!(verdicts(&failing), right, "{failing}");
    let crashing = run("crashing", &device, &["CleanTest", "CrashingTest"], "");
    crashing.ends_with(1);
    let ends = verdicts(&crashing).into_iter().find(|(test, _)| test == "ends");
    assert!(ends.is_none_or(|(_, verdict)| verdict != Verdict::Pass), "{crashing}");
    let full = run("memory", &device, &["MemoryTest", "CleanTest"], "");
    full.ends_with(1);
    assert!(full.stdout.contains("java.lang.OutOfMemoryError"), "{full}");
    let pass = |test: &str| (test.to_owned(), Verdict::Pass);
    let right = [pass("adds"), pass("allocatesAndForgets"), ("fillsTheHeap".to_owned(), Verdict::NotJudged)];
    assert_eq!(verdicts(&full), right, "{full}");
    device.assert_clean();
}

/// The app contains no listener: ART's class loader gets memgate's.
#[test]
#[ignore = "needs ART: tests/art/run"]
fn an_app_without_memgates_listener_gets_it_with_the_agent() {
    let (device, _app) = with_app("tracks-bare.jar", 30);
    let run = run("bare", &device, &["TileCacheTest"], "");
    run.ends_with(1);
    assert_eq!((leak(&run).class.as_deref(), leak(&run).count_per_iteration), (Some(TILE), 5.0), "{run}");
    device.assert_clean();
}

#[test]
#[ignore = "needs ART: tests/art/run"]
fn an_agent_that_comes_late_finds_the_leak() {
    let (device, _app) = of_release(28);
    let run = run("late", &device, &["TileCacheTest"], "");
    run.ends_with(1).says("the agent comes by am attach-agent");
    assert_eq!((leak(&run).class.as_deref(), leak(&run).count_per_iteration), (Some(TILE), 5.0), "{run}");
    device.assert_clean();
}

#[test]
#[ignore = "needs ART: tests/art/run"]
fn what_sixty_four_threads_keep_is_counted_and_threads_that_end_are_no_leak() {
    let (device, _app) = device();
    let run = run("threads", &device, &["ThreadsTest"], "");
    run.ends_with(1);
    let leaks = ("keepsOneOfEachThread".to_owned(), Verdict::Fail);
    assert_eq!(verdicts(&run), [("allocatesAndForgets".to_owned(), Verdict::Pass), leaks], "{run}");
    let leak = &run.test("com.example.tracks.ThreadsTest.keepsOneOfEachThread").leaks[0];
    assert_eq!(leak.class.as_deref(), Some("com.example.tracks.ThreadsTest$Note"), "{run}");
    assert_eq!(leak.count_per_iteration, 64.0, "{run}");
    assert_eq!(leak.holder[0].name, "KEPT", "{run}");
}

#[test]
#[ignore = "needs ART: tests/art/run"]
fn a_dump_that_art_wrote_is_judged_trimmed_and_analysed() {
    let (device, _app) = device();
    let heap = format!("    heap: {{ at: suite_end, keep: always, fail: {{ class: {{ '{TILE}': 3 }} }} }}\n");
    let (project, run) = run_with("dump", &device, &["TileCacheTest"], ("", &heap));
    run.ends_with(1);
    // Five objects of one cache, sixteen of the other.
    let found = run.test("heap dump at the end of the suite");
    assert_eq!(found.verdict, Verdict::Fail, "{run}");
    assert!(found.leaks[0].title.starts_with(&format!("21 × {TILE}")), "{}", found.leaks[0].title);
    let dump = project.session().join("heap-dumps/0001-tracks.hprof.gz");
    let path = project.memgate(&["heap", "paths", dump.to_str().unwrap(), TILE]);
    assert!(path.stdout.contains("static TileCache.ALL"), "{path}");
    let whole = project.memgate(&["heap", "check", dump.to_str().unwrap()]);
    whole.ends_with(0);
    device.assert_clean();
}

#[test]
#[ignore = "needs ART: tests/art/run"]
fn clean_tests_are_silent_in_twenty_of_twenty_runs() {
    for number in 0..20 {
        let (device, _app) = device();
        let run = run(&format!("clean-{number}"), &device, &["CleanTest"], "");
        run.ends_with(0);
        assert!(
            run.suite().tests.iter().all(|test| test.leaks.is_empty() && test.one_time.is_empty()),
            "{run}"
        );
    }
}
