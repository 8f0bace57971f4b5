//! Followed classes: every allocation and every end, by allocation site, and the commands that work while the
//! tests run.

use std::fs;
use std::time::Duration;

use memgate_e2e::jvm::{self, Jdk};
use memgate_e2e::waiting::{Running, until};
use memgate_e2e::{Project, Run, probes};
use memgate_model::{Followed, FollowedSite};

fn run(jdk: &Jdk, name: &str, follow: &str) -> Run {
    let project = Project::new(&format!("jvm-follow-{name}-{}", jdk.release));
    project.write("memgate.yaml", format!("version: 1\nmeasure: {{ screen: off, java: {{ {follow} }} }}\n"));
    let java = probes::java(jdk, &[], &[probes::RUNNER, "writesNotes"]);
    project.run_command(&java)
}

fn followed(run: &Run) -> Followed {
    run.report().followed.unwrap_or_else(|| panic!("nothing was followed:\n{run}"))
}

fn site<'a>(followed: &'a Followed, class: &str) -> &'a FollowedSite {
    let mut of_class = followed.sites.iter().filter(|site| site.class == class);
    let site = of_class.next().unwrap_or_else(|| panic!("no {class}: {followed:?}"));
    assert!(of_class.next().is_none(), "one place allocates {class}: {followed:?}");
    site
}

#[test]
fn every_allocation_and_every_end_is_counted() {
    for jdk in jvm::jdks() {
        let run = run(&jdk, "all", "follow: ['com.example.Probes$*', '!com.example.Probes$Draft']");
        let all = followed(&run);
        let notes = site(&all, "com.example.Probes$Note");
        assert_eq!(
            (notes.allocations, notes.live, notes.lifetimes.iter().sum()),
            (7000, 700, 6300),
            "{all:?}"
        );
        assert_eq!((notes.bytes, notes.live_bytes), (7000 * 16, 700 * 16));
        assert_eq!(all.lost, 0);
        assert!(!all.sites.iter().any(|site| site.class.ends_with("Draft")), "left out: {all:?}");
        let frame = &notes.frames[0];
        assert_eq!(frame.function.as_deref(), Some("com.example.Probes.writesNotes"));
        assert_eq!(frame.file.as_deref(), Some("Probes.java"));
        let said = "7000 × com.example.Probes$Note, 109.4 KiB   700 alive, 10.9 KiB   lived ";
        assert!(run.stderr.contains(said) || run.stdout.contains(said), "{run}");
    }
}

#[test]
fn one_object_of_many_is_enough_and_small_ones_may_be_left_out() {
    for jdk in jvm::jdks() {
        let every = followed(&run(&jdk, "every", "follow: ['com.example.Probes$Note'], follow_every: 7"));
        assert_eq!(site(&every, "com.example.Probes$Note").allocations, 1000, "JDK {}", jdk.release);
        let large = run(&jdk, "large", "follow: ['com.example.Probes$*'], follow_at_least: 1 KiB");
        assert_eq!(large.report().followed, None, "JDK {}", jdk.release);
    }
}

#[test]
fn the_total_counts_the_sites_that_are_not_shown_too() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let follow = "follow: ['com.example.Probes$*'], follow_sites";
    let all = run(&jdk, "total", &format!("{follow}: 100"));
    let one = run(&jdk, "total", &format!("{follow}: 1"));
    let (every, few) = (followed(&all), followed(&one));
    assert!(every.sites.len() > 1 && few.sites.len() == 1 && few.left_out > 0, "{every:?}");
    let sum = every.sites.iter().map(|site| site.allocations).sum::<u64>();
    assert_eq!((every.all.allocations, few.all.allocations), (sum, sum), "{few:?}");
    one.says(&format!("{sum} objects allocated"));
}

#[test]
fn without_being_asked_nothing_is_followed() {
    for jdk in jvm::jdks() {
        let run = run(&jdk, "nothing", "sampling: 64 KiB");
        assert_eq!(run.report().followed, None);
        assert!(!run.stdout.contains("FOLLOWED") && !run.stderr.contains("FOLLOWED"), "{run}");
    }
}

#[test]
fn the_class_that_allocates_is_blamed_unless_it_is_to_be_ignored() {
    for jdk in jvm::jdks() {
        let notes = "follow: ['com.example.Probes$Note']";
        let all = followed(&run(&jdk, "blame", notes));
        let [by] = all.blame.as_slice() else { panic!("{all:?}") };
        assert_eq!((by.class.as_str(), by.allocations, by.live), ("com.example.Probes", 7000, 700));
        let ignore = format!("{notes}, blame_ignore: ['java.*', 'jdk.*', 'com.example.Probes*']");
        let run = run(&jdk, "blame-ignore", &ignore);
        assert_eq!(followed(&run).blame[0].class, "org.junit.runner.JUnitCore");
        assert!(run.stderr.contains("allocated by  org.junit.runner.JUnitCore   7000 objects"), "{run}");
        let target =
            followed(&self::run(&jdk, "blame-target", &format!("{notes}, blame_target: ['org.example.*']")));
        assert_eq!(target.blame[0].class, "(elsewhere)");
    }
}

#[test]
fn so_many_objects_are_followed_and_so_many_sites_reported_as_are_asked_for() {
    for jdk in jvm::jdks() {
        let follow = "follow: ['com.example.Probes$*'], follow_at_most: 50, follow_sites: 1";
        let all = followed(&run(&jdk, "most", follow));
        assert_eq!(all.sites.len(), 1, "{all:?}");
        assert_eq!(all.sites[0].allocations, 50);
        assert!(all.lost >= 6950, "what is beyond is told: {all:?}");
    }
}

/// Waits until the file contains this text. The limit only ends a hang; a busy machine may be slow.
fn wait_for(project: &Project, file: &str, text: &str) {
    let path = project.folder().join(file);
    until(Duration::from_secs(240), text, || {
        fs::read_to_string(&path).is_ok_and(|found| found == text).then_some(())
    });
}

#[test]
fn following_pauses_resumes_and_begins_anew_while_the_tests_run() {
    for jdk in jvm::jdks() {
        let project = Project::new(&format!("jvm-follow-orders-{}", jdk.release));
        let follow = "follow: ['com.example.Probes$Note']";
        project
            .write("memgate.yaml", format!("version: 1\nmeasure: {{ screen: off, java: {{ {follow} }} }}\n"));
        let java = probes::java(&jdk, &[], &[probes::RUNNER, "writesNotesWhenTold"]);
        let arguments: Vec<String> = ["run", "--"].map(str::to_owned).into_iter().chain(java).collect();
        let running = Running::start(&mut project.command(&arguments));
        let notes = || {
            let shown = project.memgate(&["follow", "--json"]);
            shown.ends_with(0);
            let all: Followed =
                serde_json::from_str(&shown.stdout).unwrap_or_else(|e| panic!("{e}\n{shown}"));
            (all.sites.iter().map(|site| site.allocations).sum::<u64>(), all.pauses)
        };

        wait_for(&project, "at", "0");
        assert_eq!(notes(), (100, 0), "what the agent has kept back is there too");
        project.memgate(&["follow", "pause"]).ends_with(0).says("following paused in 1 virtual machine");
        project.write("go", "1");
        wait_for(&project, "at", "1");
        assert_eq!(notes(), (100, 1));
        project.memgate(&["follow", "resume"]).ends_with(0).says("following goes on in 1 virtual machine");
        project.write("go", "2");
        wait_for(&project, "at", "2");
        let shown = project.memgate(&["follow"]);
        shown.ends_with(0);
        assert!(shown.stdout.contains("200 × com.example.Probes$Note"), "{shown}");
        assert!(shown.stdout.contains("paused once"), "{shown}");
        project.memgate(&["follow", "reset"]).ends_with(0).says("following begins anew in 1 virtual machine");
        // Repeatedly, until the JVM has ended.
        let again = Running::start(&mut project.command(&["follow", "--every", "250ms"]));
        project.write("go", "3");
        let again = String::from_utf8(again.output().stdout).unwrap();
        assert!(again.matches("FOLLOWED").count() > 0, "{again}");

        let output = running.output();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(notes(), (100, 1), "the notes behind the reset");
        let late = project.memgate(&["follow", "pause"]);
        late.ends_with(2).says("no virtual machine of this session runs any more");
    }
}

#[test]
fn a_session_without_followed_objects_says_how_to_get_them() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let project = Project::new("jvm-follow-none");
    project.write("memgate.yaml", "version: 1\nmeasure: { screen: off }\n");
    let java = probes::java(&jdk, &[], &[probes::RUNNER, "isClean"]);
    project.run_command(&java);
    project
        .memgate(&["follow"])
        .ends_with(2)
        .says("no Java objects are followed in it")
        .says("measure.java.follow");
    project.memgate(&["follow", "--session", "nowhere"]).ends_with(2).says("nowhere");
}
