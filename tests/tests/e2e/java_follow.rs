//! Followed classes: every allocation and every end, by allocation site.

use memgate_e2e::jvm::{self, Jdk};
use memgate_e2e::{Project, Run, probes};
use memgate_model::{Followed, FollowedSite};

fn run(jdk: &Jdk, name: &str, follow: &str) -> Run {
    let project = Project::new(&format!("jvm-follow-{name}-{}", jdk.release));
    project.write("memgate.yaml", format!("version: 1\nmeasure: {{ screen: off, java: {{ {follow} }} }}\n"));
    let java = probes::java(jdk, &[], &[probes::RUNNER, "writesNotes"]);
    let arguments: Vec<String> = ["run", "--"].map(str::to_owned).into_iter().chain(java).collect();
    project.memgate(&arguments)
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
fn without_being_asked_nothing_is_followed() {
    for jdk in jvm::jdks() {
        let run = run(&jdk, "nothing", "sampling: 64 KiB");
        assert_eq!(run.report().followed, None);
        assert!(!run.stdout.contains("FOLLOWED") && !run.stderr.contains("FOLLOWED"), "{run}");
    }
}
