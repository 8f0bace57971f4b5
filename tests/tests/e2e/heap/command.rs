//! `memgate heap` on dumps that JVMs write of a program whose objects are known.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use memgate_e2e::jvm::{Jdk, jdks, jdks_in_turn};
use memgate_e2e::samples::successful;
use memgate_e2e::{Project, Run, repository};
use serde_json::Value;

/// Compiles a sample program; returns the folder of its classes.
fn compiled(project: &Project, jdk: &Jdk, program: &str) -> PathBuf {
    let source = repository().join("tests/samples/jvm/heap").join(program);
    let classes = project.folder().join("classes");
    successful(jdk.javac().arg("-g").arg("-d").arg(&classes).arg(source));
    classes
}

/// Runs the program with this collector; returns its dump.
fn dump(project: &Project, jdk: &Jdk, collector: &str, options: &[&str]) -> PathBuf {
    let classes = compiled(project, jdk, "Held.java");
    let name = if options.is_empty() { "held.hprof" } else { "held.hprof.gz" };
    let path = project.folder().join(name);
    let mut java = Command::new(jdk.home.join("bin/java"));
    java.args([&format!("-XX:+Use{collector}"), "-Xmx256m", "-XX:+StartAttachListener", "-cp"])
        .arg(classes)
        .arg("Held")
        .args(options)
        .arg(&path);
    successful(&mut java);
    path
}

fn heap(project: &Project, command: &str, dump: &Path, more: &[&str]) -> Run {
    let arguments = [&["heap", command, dump.to_str().unwrap()], more].concat();
    project.memgate(&arguments)
}

fn json(project: &Project, command: &str, dump: &Path, more: &[&str]) -> Value {
    let run = heap(project, command, dump, &[more, &["--json"]].concat());
    run.ends_with(0);
    serde_json::from_str(&run.stdout).unwrap()
}

fn class<'a>(told: &'a Value, name: &str) -> &'a Value {
    let classes = told["classes"].as_array().unwrap();
    classes.iter().find(|class| class["class"] == name).unwrap_or_else(|| panic!("no {name} in {told}"))
}

/// Checks that the planted objects are found, whatever the collector and its order of objects.
fn planted(project: &Project, dump: &Path, what: &str) {
    let all = ["--top", "100000"];
    let classes = json(project, "classes", dump, &all);
    assert_eq!(class(&classes, "Held$Session")["count"], 1000, "{what}");
    let retained = json(project, "classes", dump, &[&all[..], &["--retained"]].concat());
    let sessions = &class(&retained, "Held$Session");
    // A reference of 8 bytes, a boolean, and a hundred bytes of payload.
    assert_eq!((&sessions["bytes"], &sessions["retained"]), (&9000.into(), &109_000.into()), "{what}");
    let paths = json(project, "paths", dump, &["Held$Session"]);
    let path = paths["paths"][0]["path"].as_array().unwrap();
    let names: Vec<&str> = path.iter().map(|node| node["class"].as_str().unwrap()).collect();
    assert_eq!(names[names.len() - 3..], ["Held", "java.util.HashMap", "Held$Session"], "{what}");
    let key = path[names.len() - 2]["reference"]["name"].as_str().unwrap();
    assert!(key.starts_with("[\"user-") && key.ends_with("\"]"), "{what}: {key}");
    let threads = json(project, "threads", dump, &[]);
    let threads = threads["threads"].as_array().unwrap();
    let worker = threads.iter().find(|thread| thread["name"] == "the worker");
    let worker = worker.unwrap_or_else(|| panic!("{what}: {threads:?}"));
    assert_eq!(worker["state"], "WAITING", "{what}");
    let frames = worker["frames"].as_array().unwrap();
    let work = frames.iter().find(|frame| frame["method"] == "Held.work").unwrap();
    assert!(work["place"].as_str().unwrap().starts_with("Held.java:"), "{what}: {work}");
    let locals = work["locals"].as_array().unwrap();
    assert!(locals.iter().any(|local| local["class"] == "Held$OfWorker"), "{what}: {work}");
}

#[test]
fn planted_objects_are_found_in_dumps_of_every_collector() {
    for jdk in jdks_in_turn(1) {
        for collector in ["SerialGC", "ParallelGC", "G1GC", "ZGC", "ShenandoahGC"] {
            let project = Project::new(&format!("heap-{}-{collector}", jdk.release));
            let path = dump(&project, &jdk, collector, &[]);
            let what = format!("JDK {} {collector}", jdk.release);
            planted(&project, &path, &what);
            heap(&project, "check", &path, &[]).ends_with(0);
        }
    }
}

#[test]
fn a_dump_that_hotspot_packed_is_the_same_dump() {
    for jdk in jdks_in_turn(0) {
        let project = Project::new(&format!("heap-{}-packed", jdk.release));
        let path = dump(&project, &jdk, "G1GC", &["-gz=1"]);
        assert_eq!(fs::read(&path).unwrap()[..2], [0x1f, 0x8b]);
        planted(&project, &path, &format!("JDK {} -gz", jdk.release));
    }
}

/// Instances by class, as `jcmd PID GC.class_histogram` prints them.
fn histogram(path: &Path) -> HashMap<String, u64> {
    let text = fs::read_to_string(path).unwrap();
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let (number, count) = (words.next()?, words.next()?);
        let class = words.nth(1)?.to_owned();
        number.ends_with(':').then_some((class, count.parse().ok()?))
    };
    text.lines().filter_map(row).collect()
}

#[test]
fn objects_are_as_many_as_jcmd_counts() {
    for jdk in jdks_in_turn(0) {
        let project = Project::new(&format!("heap-{}-histogram", jdk.release));
        let path = dump(&project, &jdk, "SerialGC", &["-gz=1"]);
        let at = |when| histogram(&PathBuf::from(format!("{}.{when}", path.display())));
        let (before, after) = (at("before"), at("after"));
        let told = json(&project, "classes", &path, &["--top", "100000"]);
        let told: HashMap<&str, u64> = told["classes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|class| (class["class"].as_str().unwrap(), class["count"].as_u64().unwrap()))
            .collect();
        // Compares only classes whose count is stable and whose name is the same in a dump (not arrays or
        // hidden classes); a dump lists class objects separately.
        let steady = before.iter().filter(|(class, count)| {
            let named = !class.starts_with('[') && !class.contains('/') && *class != "java.lang.Class";
            named && after.get(*class) == Some(count)
        });
        let steady: Vec<(&String, &u64)> = steady.collect();
        assert!(steady.len() > 200, "{}", steady.len());
        let differs: Vec<_> =
            steady.iter().filter(|(class, count)| told.get(class.as_str()) != Some(*count)).collect();
        assert!(differs.is_empty(), "JDK {}: {differs:?}", jdk.release);
    }
}

#[test]
fn what_a_thread_without_a_carrier_holds_has_a_path() {
    for jdk in jdks().into_iter().filter(|jdk| jdk.release >= 21) {
        let project = Project::new(&format!("heap-{}-virtual", jdk.release));
        let path = dump(&project, &jdk, "G1GC", &[]);
        let paths = json(&project, "paths", &path, &["Held$OfVirtual"]);
        let path = paths["paths"][0]["path"].as_array().unwrap();
        assert_eq!(path.last().unwrap()["class"], "Held$OfVirtual", "{paths}");
    }
}

/// The commands that show stacks, or compare dumps, with the mapping file of this dump and one of another build.
fn has_original_names_everywhere(project: &Project, path: &Path, (mapping, other): (&str, &str)) {
    let threads = heap(project, "threads", path, &["--mapping", mapping]);
    threads.ends_with(0);
    assert!(threads.stdout.contains("com.acme.Holder.main"), "{threads}");
    let again = path.display().to_string();
    for by in ["class", "path", "container"] {
        let diff = |more: &[&str]| heap(project, "diff", path, &[&[&again, "--by", by], more].concat());
        let run = diff(&["--mapping", mapping]);
        run.ends_with(0);
        assert!(!run.stdout.contains("com.acme.Session"), "nothing changed: {run}");
        let run = diff(&["--mapping", mapping, "--old-mapping", other]);
        assert!(run.stdout.contains("com.acme.Session"), "another name: {run}");
    }
    let ledger = project.folder().join("ledger.json").display().to_string();
    heap(project, "ledger", path, &[&ledger, "--mapping", mapping]).ends_with(0);
    let written = fs::read_to_string(&ledger).unwrap();
    assert!(written.contains("com.acme.Session") && !written.contains("Held$Session"));
    heap(project, "growth", path, &[&again, &again, "--mapping", mapping]).ends_with(0);
    let run = heap(project, "growth", path, &[&again, &ledger, "--mapping", mapping]);
    run.ends_with(2).says("ledger.json is a ledger: no mapping file changes its names");
}

#[test]
fn leaks_fail_and_what_is_not_whole_does_not_pass() {
    for jdk in jdks_in_turn(1) {
        let project = Project::new(&format!("heap-{}-leaks", jdk.release));
        let path = dump(&project, &jdk, "G1GC", &[]);
        heap(&project, "analyze", &path, &[]).ends_with(2).says("nothing was looked for");
        let rules = "[[rule]]\nclass = \"Held$Session\"\nfield = \"closed\"\nleaking = \"true\"\n";
        let rules = project.write("rules.toml", rules);
        let run = heap(&project, "analyze", &path, &["--rules", rules.to_str().unwrap()]);
        run.ends_with(1);
        assert!(run.stdout.contains("Held$Session × 10 "), "{run}");
        assert!(run.stdout.contains("Leaking: YES (Held$Session#closed is true)"), "{run}");
        assert!(!run.stdout.contains(r"\u{"), "an escaped character of the drawing: {run}");
        let run = heap(&project, "analyze", &path, &["--rules", rules.to_str().unwrap(), "--exact"]);
        assert!(
            run.stdout.contains("Held$Session × 10 ") && run.stdout.contains("· retained by the first "),
            "{run}"
        );

        // The same for a renamed program: rules use the original names.
        let mapping =
            "com.acme.Holder -> Held:\ncom.acme.Session -> Held$Session:\n    boolean over -> closed\n";
        let mapping = project.write("mapping.txt", mapping).display().to_string();
        let rules = "[[rule]]\nclass = \"com.acme.Session\"\nfield = \"over\"\nleaking = \"true\"\n";
        let rules = project.write("original.toml", rules).display().to_string();
        heap(&project, "analyze", &path, &["--rules", &rules]).ends_with(2);
        let run = heap(&project, "analyze", &path, &["--rules", &rules, "--mapping", &mapping]);
        run.ends_with(1);
        assert!(run.stdout.contains("Leaking: YES (Session#over is true)"), "{run}");
        assert!(run.stdout.contains("com.acme.Holder"), "{run}");
        let named = json(&project, "classes", &path, &["--mapping", &mapping, "--top", "100000"]);
        assert_eq!(class(&named, "com.acme.Session")["count"], 1000);
        let other = project.write("other.txt", "com.acme.Other -> a.b:\n").display().to_string();
        let run = heap(&project, "classes", &path, &["--mapping", &other]);
        run.ends_with(0).says("other.txt names no class of").says("is it of this build?");
        has_original_names_everywhere(&project, &path, (&mapping, &other));
        let text =
            heap(&project, "analyze", &path, &["--rules", &rules, "--mapping", &mapping, "--leakcanary"]);
        text.ends_with(1);
        assert!(
            text.stdout.starts_with("====================================\nHEAP ANALYSIS RESULT\n"),
            "{text}"
        );
        assert!(text.stdout.contains("\n1 APPLICATION LEAKS\n"), "{text}");
        assert!(text.stdout.contains("\nDisplaying only 1 leak trace out of 10 with the same"), "{text}");

        let whole = fs::read(&path).unwrap();
        let cut = project.write("cut.hprof", &whole[..whole.len() * 2 / 3]);
        let run = heap(&project, "analyze", &cut, &[]);
        run.ends_with(2).says("it ends in the middle");
        heap(&project, "paths", &cut, &["com.acme.None"])
            .ends_with(2)
            .says("the dump is not whole, and the rest");
        heap(&project, "classes", &cut, &["--allow-truncated"]).ends_with(0);
        heap(&project, "classes", &cut, &[]).ends_with(2);

        let before = path.to_str().unwrap();
        let run = project.memgate(&["heap", "diff", before, before, "--fail-over", "0"]);
        run.ends_with(0);
        let run = project.memgate(&["heap", "diff", cut.to_str().unwrap(), before, "--fail-over", "1000"]);
        run.ends_with(1);

        let cut = cut.to_str().unwrap();
        let ledger = |dump: &str, to: &str, more: &[&str]| {
            project.memgate(&[&["heap", "ledger", dump, to], more].concat())
        };
        ledger(before, "whole.json", &[]).ends_with(0);
        ledger(cut, "cut.json", &["--allow-truncated"]).ends_with(0);
        ledger(cut, "cut.json", &[]).ends_with(2).says("it ends in the middle");
        let diff = ["heap", "diff", "--by", "container", "whole.json", "cut.json", "--fail-over", "1 GiB"];
        project.memgate(&diff).ends_with(2).says("cut.json: its dump was not whole");
        project.memgate(&[&diff[..], &["--allow-truncated"]].concat()).ends_with(0);
    }
}

#[test]
fn a_leak_of_the_baseline_does_not_fail_and_packages_add_up() {
    for jdk in jdks_in_turn(1) {
        let project = Project::new(&format!("heap-{}-baseline", jdk.release));
        let path = dump(&project, &jdk, "G1GC", &[]);
        project.write(
            "rules.toml",
            "[[rule]]\nclass = \"Held$Session\"\nfield = \"closed\"\nleaking = \"true\"\n",
        );
        let analyze =
            |more: &[&str]| heap(&project, "analyze", &path, &[&["--rules", "rules.toml"], more].concat());
        project.write("known.json", analyze(&["--json"]).stdout);
        analyze(&["--baseline", "known.json"]).ends_with(0).says("1 of 1 leaks are in the baseline");
        project.write("none.json", "{\"schema_version\": 1, \"leaks\": [], \"leaks_in_all\": 0}");
        analyze(&["--baseline", "none.json"]).ends_with(1).says("0 of 1 leaks are in the baseline");
        project.write("part.json", "{\"schema_version\": 1, \"leaks\": [], \"leaks_in_all\": 3}");
        analyze(&["--baseline", "part.json"]).ends_with(2).says("it lists 0 of 3 leaks").says("part.json");
        analyze(&["--baseline", "rules.toml"]).ends_with(2).says("it is no answer of");

        let all = json(&project, "dominators", &path, &["--top", "1000"]);
        for group in ["class", "package", "loader"] {
            let told = json(&project, "dominators", &path, &["--group", group, "--top", "100000"]);
            assert_eq!((&told["count"], &told["bytes"]), (&all["reachable"], &all["bytes"]), "{group}");
            let name = match group {
                "class" => "Held$Session",
                "package" => "java.util.concurrent.locks",
                _ => "(boot loader)",
            };
            assert!(class(&told, name)["retained"].as_u64().unwrap() > 0, "{group}");
        }
    }
}

#[test]
fn a_trimmed_dump_is_smaller_and_tells_the_same() {
    for jdk in jdks_in_turn(0) {
        let project = Project::new(&format!("heap-{}-trim", jdk.release));
        let path = dump(&project, &jdk, "G1GC", &[]);
        let small = project.folder().join("small.hprof.gz");
        let run = heap(&project, "trim", &path, &[small.to_str().unwrap(), "--prove"]);
        run.ends_with(0).says("and the same leaks");
        let (before, after) = (fs::metadata(&path).unwrap().len(), fs::metadata(&small).unwrap().len());
        assert!(after * 5 < before, "{before} became {after}");
        let plain = project.folder().join("plain.hprof");
        heap(&project, "restore", &small, &[plain.to_str().unwrap()]).ends_with(0);
        let texts = fs::read(&plain).unwrap();
        let holds = |text: &[u8]| texts.windows(text.len()).any(|at| at == text);
        assert!(holds(b"the worker") && holds(b"Held$Session") && !holds(b"user-991"));
        let retained = json(&project, "classes", &plain, &["--top", "100000", "--retained"]);
        assert_eq!(retained, json(&project, "classes", &path, &["--top", "100000", "--retained"]));

        let private = project.folder().join("private.hprof.zst");
        let run = heap(&project, "trim", &path, &[private.to_str().unwrap(), "--prove", "--private"]);
        run.ends_with(0).says("and the same leaks");
        assert!(fs::metadata(&private).unwrap().len() < after, "numbers are gone too");
        assert_eq!(retained, json(&project, "classes", &private, &["--top", "100000", "--retained"]));

        let twins = project.folder().join("twins.hprof");
        heap(&project, "trim", &path, &[twins.to_str().unwrap(), "--keep-duplicates"]).ends_with(0);
        let bytes = fs::read(&twins).unwrap();
        assert!(!bytes.windows(8).any(|at| at == b"user-991"), "its texts are gone all the same");
        let copies = |dump: &Path| -> Vec<(u64, u64)> {
            let told = json(&project, "strings", dump, &["--top", "100000"]);
            let all = told["strings"]["duplicates"].as_array().unwrap();
            let sizes =
                all.iter().map(|text| (text["bytes"].as_u64().unwrap(), text["copies"].as_u64().unwrap()));
            sizes.filter(|(bytes, _)| *bytes >= 8).collect()
        };
        // The copy keeps some texts unchanged. These equal none of the replaced ones, so the figures may differ a bit.
        let (before, after) = (copies(&path), copies(&twins));
        assert!(before.len() > 10 && after.len() * 10 >= before.len() * 9, "{before:?} {after:?}");
        assert_eq!(after[0], before[0], "{before:?} {after:?}");
    }
}

/// The page of a dump: it shows what the other commands print, in full, escaped, and works in a browser.
#[test]
fn a_page_of_a_dump_tells_leaks_sizes_threads_and_texts() {
    for jdk in jdks_in_turn(0) {
        let project = Project::new(&format!("heap-{}-page", jdk.release));
        let path = dump(&project, &jdk, "G1GC", &[]);
        let page = project.folder().join("heap.html");
        let rules = "[[rule]]\nclass = \"Held$Session\"\nfield = \"closed\"\nleaking = \"true\"\n";
        project.write("rules.toml", rules);
        let more = ["--rules", "rules.toml", "--html", page.to_str().unwrap()];
        heap(&project, "analyze", &path, &more).ends_with(1);
        let text = fs::read_to_string(&page).unwrap();
        for told in [
            "<h3>Held$Session</h3>",
            "static Held.SESSIONS",
            "Retained sizes; the table has the same figures",
            "the worker",
            "Held.java:",
            "What copies waste most",
            "default-src &#39;none&#39;",
        ] {
            assert!(text.contains(told), "{told}");
        }
        assert!(!text.contains("<script") && !text.contains("\\n"), "{}", page.display());
        let folder = project.folder().join("pages");
        fs::create_dir_all(&folder).unwrap();
        let address = format!("file://{}", page.display());
        let Some(found) = crate::reports::page::served(&folder, &[address]) else { return };
        assert_eq!(found["axe"], serde_json::json!([]), "no violation of accessibility: {found:#}");
        for view in found["views"].as_array().unwrap() {
            assert_eq!((&view["wider"], &view["scripts"]), (&0.into(), &0.into()), "{view}");
        }
    }
}

#[test]
fn half_a_copy_does_not_stay() {
    let project = Project::new("heap-half");
    let cut = project.write("cut.hprof", b"JAVA PROFILE 1.0.2\0\0\0\0\x08\0\0\0\0\0\0\0\0\x01\0");
    let to = project.folder().join("to.hprof");
    for command in ["trim", "restore"] {
        heap(&project, command, &cut, &[to.to_str().unwrap()]).ends_with(2).says("cut.hprof");
        assert!(!to.exists(), "{command}");
    }
}

#[test]
fn a_copy_destroys_nothing_that_is_there() {
    let project = Project::new("heap-there");
    let whole = b"JAVA PROFILE 1.0.2\0\0\0\0\x08\0\0\0\0\0\0\0\0\x2c\0\0\0\0\0\0\0\0";
    let dump = project.write("a.hprof", whole);
    let link = project.folder().join("b.hprof");
    fs::hard_link(&dump, &link).unwrap();
    let named = link.to_str().unwrap();
    for (command, more) in [("trim", &[named][..]), ("trim", &[named, "--zero"]), ("restore", &[named])] {
        heap(&project, command, &dump, more).ends_with(2).says("into itself");
        assert_eq!((fs::read(&dump).unwrap(), fs::read(&link).unwrap()), (whole.to_vec(), whole.to_vec()));
    }
    let cut = project.write("cut.hprof", &whole[..whole.len() - 9]);
    let good = project.write("good.hprof", "an older one");
    heap(&project, "trim", &cut, &[good.to_str().unwrap()]).ends_with(2).says("cut.hprof");
    assert_eq!(fs::read(&good).unwrap(), b"an older one");
    heap(&project, "trim", &dump, &[good.to_str().unwrap()]).ends_with(0);
    assert_eq!(fs::read(&good).unwrap(), whole);
}

#[test]
fn another_file_is_an_error_with_its_name() {
    let project = Project::new("heap-none");
    let none = project.write("none.hprof", "PK");
    for command in ["analyze", "classes", "dominators", "threads", "check"] {
        let run = heap(&project, command, &none, &[]);
        run.ends_with(2).says("none.hprof").says("it is no heap dump of Java");
    }
    let rules = project.write("rules.toml", "[[rule]]\nclas = \"a.B\"\n");
    let dump =
        project.write("empty.hprof", b"JAVA PROFILE 1.0.2\0\0\0\0\x08\0\0\0\0\0\0\0\0\x2c\0\0\0\0\0\0\0\0");
    let run = heap(&project, "analyze", &dump, &["--rules", rules.to_str().unwrap()]);
    run.ends_with(2).says("rules.toml").says("line 2");
}

#[test]
fn containers_that_grow_from_dump_to_dump_are_named_and_nothing_else() {
    for jdk in jdks_in_turn(1) {
        let project = Project::new(&format!("heap-{}-growth", jdk.release));
        let classes = compiled(&project, &jdk, "Shop.java");
        let mut java = Command::new(jdk.home.join("bin/java"));
        successful(java.arg("-cp").arg(classes).arg("Shop").arg(project.folder()).arg("5"));
        let days = ["day0.hprof", "day1.hprof", "day2.hprof", "day3.hprof", "day4.hprof"];
        let growth = |files: &[&str]| project.memgate(&[&["heap", "growth"], files].concat());
        for files in [&days[..3], &days] {
            let run = growth(files);
            run.ends_with(1);
            let held: Vec<&str> = run.stdout.lines().filter(|line| line.contains("held by ")).collect();
            assert_eq!(held.len(), 2, "{run}");
            assert!(run.stdout.contains("Shop$Order: 2 more from dump to dump"), "{run}");
            for container in ["Shop.BY_ID: java.util.HashMap", "Shop.HISTORY: java.util.LinkedList"] {
                assert!(run.stdout.contains(&format!("held by static {container}")), "{run}");
            }
        }
        growth(&[&days[..], &["--loops", "3"]].concat()).ends_with(0);
        growth(&days[..2]).ends_with(2).says("2 dumps decide nothing");
        // A shell may expand `*.hprof` in the wrong order.
        let wrong = growth(&[days[0], days[2], days[1], days[3]]);
        wrong.ends_with(2).says("day1.hprof was written before day2.hprof").says("the oldest dump first");
        let wrong = project.memgate(&["heap", "diff", days[4], days[0], "--fail-over-count", "7"]);
        wrong.ends_with(2).says("day0.hprof was written before day4.hprof");
        project.memgate(&["heap", "diff", days[4], days[0]]).ends_with(0);

        // String literals of the program are HotSpot symbols too.
        let holds = |file: &str, text: &str| {
            let bytes = fs::read(project.folder().join(file)).unwrap();
            bytes.windows(text.len()).any(|at| at == text.as_bytes())
        };
        project.memgate(&["heap", "trim", "--zero", days[0], "bare.hprof"]).ends_with(0);
        for text in ["com.sun.management:type=HotSpotDiagnostic", "guest \u{1}"] {
            assert!(holds(days[0], text) && !holds("bare.hprof", text), "{text}");
        }
        assert!(holds("bare.hprof", "Shop$Order"));

        // The difference of two dumps: what changed, and where.
        let diff = |more: &[&str]| {
            project.memgate(&[&["heap", "diff", "day0.hprof", "day4.hprof", "--top", "1000"], more].concat())
        };
        let by = |what: &str| {
            let told = diff(&["--by", what, "--json"]);
            told.ends_with(0);
            let told: Value = serde_json::from_str(&told.stdout).unwrap();
            let places = told["places"].as_array().unwrap().clone();
            places.into_iter().filter(|place| place["class"] == "Shop$Order").collect::<Vec<_>>()
        };
        let containers = by("container");
        assert_eq!(containers.len(), 2, "{containers:?}");
        assert!(containers.iter().all(|of| of["count"] == 8 && of["count_after"] == 10), "{containers:?}");
        let [orders] = by("path").try_into().unwrap();
        let last = orders["path"].as_array().unwrap().last().unwrap().clone();
        assert_eq!((&orders["count"], &last["class"]), (&8.into(), &"Shop$Order".into()), "{orders}");
        diff(&["--fail-over-count", "7", "--by", "path"]).ends_with(1);
        let told = diff(&["--by", "container", "--fail-over-count", "100000"]);
        told.ends_with(0);
        assert!(told.stdout.contains("held by static Shop.HISTORY: java.util.LinkedList"), "{told}");

        // Dumps may be deleted once their ledgers have been written.
        let told = growth(&[&days[..], &["--json"]].concat()).stdout;
        let ledgers: Vec<String> = days.iter().map(|day| day.replace("hprof", "json")).collect();
        for (day, ledger) in days.iter().zip(&ledgers) {
            project.memgate(&["heap", "ledger", day, ledger]).ends_with(0);
            fs::remove_file(project.folder().join(day)).unwrap();
        }
        let ledgers: Vec<&str> = ledgers.iter().map(String::as_str).collect();
        let again = growth(&[&ledgers[..], &["--json"]].concat());
        again.ends_with(1);
        assert_eq!(again.stdout, told, "the same without the dumps");
        project.write("none.json", "{\"schema_version\": 9}");
        growth(&[&ledgers[..2], &["none.json"]].concat()).ends_with(2).says("none.json").says("heap ledger");
    }
}
