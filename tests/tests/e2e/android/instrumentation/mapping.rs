//! An app that R8 has renamed: on a device too, classes are followed, leaks named and failures reported by
//! the original names.

use std::fs;

use memgate_e2e::stand_in::{Adb, StandIn, adbs};
use memgate_e2e::{Project, Run, repository};

use crate::android::instrumentation::app::{configure, device_with_renamed, project, renamed, run_on};

const LEAKING: &str = "com.example.tracks.TileCacheTest.keepsAllTiles";
const FAILING: &str = "com.example.tracks.RouteTest.readsWords";
const TILE: &str = "com.example.tracks.TileCache$Tile";
const CLASSES: &str = "com.example.tracks.TileCacheTest#keepsAllTiles,com.example.tracks.RouteTest";

/// Runs these classes with this mapping.
fn run(adb: &Adb, device: &StandIn, name: &str, mapping: &str) -> (Run, Project) {
    let project = project(name, "");
    let follows = format!("measure: {{ java: {{ follow: ['{TILE}'] }} }}\n");
    let more = format!("    mapping: {mapping}\n    arguments: {{ class: \"{CLASSES}\" }}\n");
    configure(&project, &follows, &more);
    (run_on(adb, device, &project, &["run", "--suite", "tracks"]), project)
}

#[test]
fn a_renamed_app_is_followed_and_its_leaks_and_failures_have_the_names_that_were_written() {
    let Some((adb, (device, _app))) = adbs().pop().zip(device_with_renamed(34)) else { return };
    let mapping = &renamed().unwrap().mapping;
    let (run, project) = run(&adb, &device, "instrumentation-mapping", mapping.to_str().unwrap());
    run.ends_with(1);
    let map = fs::read_to_string(mapping).unwrap();
    let new = |class: &str| {
        let line = map.lines().find_map(|line| line.strip_prefix(&format!("{class} -> ")));
        line.unwrap_or_else(|| panic!("{class} was not renamed:\n{map}")).trim_end_matches(':').to_owned()
    };

    // The device's output has the new names.
    let printed = fs::read_dir(project.session().join("instrumentation")).unwrap();
    let printed: String = printed.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    let place = "com.example.tracks.Route.point(Route.java:";
    assert!(printed.contains("no point: somewhere") && !printed.contains(place), "{printed}");
    // memgate's output has the original names, with the line that throws.
    let source = repository().join("tests/samples/android/app/com/example/tracks/Route.java");
    let source = fs::read_to_string(source).unwrap();
    let line = source.lines().position(|line| line.contains("\"no point: \"")).unwrap() + 1;
    assert!(run.stdout.contains(&format!("failed: {FAILING}")), "{run}");
    assert!(run.stdout.contains(&format!("at {place}{line})")), "{run}");

    let leak = &run.test(LEAKING).leaks[0];
    assert_eq!(leak.title, format!("5 × {TILE}"), "{run}");
    let from = &leak.holder[0];
    assert_eq!(
        format!("{} {}.{}", from.kind, from.owner, from.name),
        "static com.example.tracks.TileCache.ALL"
    );

    // The class was requested by its original name; the agent saw the new one.
    let followed = run.report().followed.unwrap_or_else(|| panic!("nothing was followed:\n{run}"));
    let told: Vec<(&str, u64, u64)> =
        followed.sites.iter().map(|site| (site.class.as_str(), site.allocations, site.live)).collect();
    assert_eq!(told, [(TILE, 5, 5)], "{run}");
    let frames: Vec<&str> =
        followed.sites[0].frames.iter().filter_map(|frame| frame.function.as_deref()).collect();
    assert!(frames.contains(&"com.example.tracks.TileCache.load"), "{frames:?}");
    let renamed = new(TILE);
    let report = fs::read_to_string(project.session().join("report.json")).unwrap();
    assert!(!report.contains(&format!("\"{renamed}\"")), "{renamed}: {report}");
    device.assert_clean();
}

#[test]
fn of_several_mapping_files_none_is_guessed_and_the_device_is_left_alone() {
    let Some(adb) = adbs().pop() else { return };
    let device = StandIn::builder().start();
    let folder = Project::new("instrumentation-mappings");
    folder.write("free/mapping.txt", "# pg_map_id: 1111111\ncom.example.tracks.TileCache -> x.a:\n");
    folder.write("paid/mapping.txt", "# pg_map_id: 2222222\ncom.example.tracks.TileCache -> x.b:\n");
    let (run, _project) = run(&adb, &device, "instrumentation-several", folder.folder().to_str().unwrap());
    run.ends_with(2)
        .says("which of 2 mapping files is the one cannot be told")
        .says("the suite `tracks`, which has no `apks`")
        .says("free/mapping.txt (1111111)")
        .says("paid/mapping.txt (2222222)")
        .says("name the mapping.txt of the tested build, or the APKs that are tested (`suites.NAME.apks`)");
    assert!(run.report.is_none(), "{run}");
    assert_eq!(device.commands(), [] as [String; 0]);
}
