//! The guest changes its environment: descriptors, namespaces, its root folder. Nothing of the agent gets in
//! its way.

use memgate_model::Verdict;

use crate::guest::life::{Driven, Guest, gate, is_root, program};

fn drive(how: &str) -> Driven {
    let name = format!("surroundings-{}", how.replace(' ', "-"));
    Guest::new(&name, &program("surroundings"), &[how]).drive().ends_with(3)
}

/// 5,000 more blocks are alive at the end, so the spool must grow again and needs a descriptor for a moment.
#[test]
fn a_guest_that_closes_or_takes_every_number_finds_its_files_untouched() {
    for how in ["closefrom", "close_range", "dup2 high"] {
        let driven = drive(how);
        assert!(!driven.stdout.contains(": no"), "{how}: {}", driven.stdout);
        let stream = driven.main(&program("surroundings"));
        // Blocks of 4,241 bytes: one before, three in between, and one of the 5,000.
        stream.is_exact(&[(4241, 5)]);
        let kept: u64 = (64..5064).map(|size| stream.kept(size)).sum();
        assert_eq!(kept, 5000 + 4, "{how}");
    }
}

#[test]
fn without_a_free_descriptor_the_recording_goes_on_and_no_file_of_the_guest_is_written_to() {
    let driven = drive("few descriptors");
    assert!(!driven.stdout.contains(": no"), "{}", driven.stdout);
    let stream = driven.main(&program("surroundings"));
    // Blocks of 4,241 bytes: one before, two of the many, three in between and one more.
    stream.is_exact(&[(4241, 7), (20_001, 2)]);
    assert!(stream.frames.len() > 10, "more than its first 64 KiB hold");
}

#[test]
fn name_spaces_are_left_and_entered_as_ever() {
    for how in ["unshare user", "unshare mount", "unshare pid", "setns"] {
        let driven = drive(how);
        if driven.stdout.contains("unshare: no") || driven.stdout.contains("setns: no") {
            memgate_e2e::skip(&format!("{how} is forbidden here"));
            continue;
        }
        assert!(!driven.stdout.contains(": no"), "{how}: {}", driven.stdout);
        let kept = if how.starts_with("unshare") && how != "unshare pid" { 3 } else { 1 };
        driven.main(&program("surroundings")).is_exact(&[(4241, kept)]);
        if how == "unshare pid" {
            let [first] = driven.forked().collect::<Vec<_>>()[..] else { panic!("one child") };
            assert_eq!((first.hello.pid, first.goodbye().is_some()), (1, true), "as it sees itself");
        }
    }
}

#[test]
fn a_whole_tree_in_name_spaces_of_its_own_is_recorded() {
    let forks = program("forks");
    let namespaces = ["-U", "-m", "-p", "-f", "--mount-proc", forks.to_str().unwrap(), "storm"];
    let possible =
        std::process::Command::new("unshare").args(["-U", "-m", "-p", "-f", "--mount-proc", "true"]).output();
    if !possible.is_ok_and(|output| output.status.success()) {
        memgate_e2e::skip("unshare cannot make such name spaces here");
        return;
    }
    let driven = Guest::new("surroundings-unshare", "unshare".as_ref(), &namespaces).drive().ends_with(3);
    driven.main(&forks).is_exact(&[(4241, 3)]);
    assert!(driven.forked().count() >= 127, "and unshare's own child");
}

#[test]
fn another_root_folder_hides_the_spool_and_that_is_said_when_it_needs_room() {
    if !is_root("chroot") {
        return;
    }
    let program = program("surroundings");
    let driven = drive("chroot");
    assert!(!driven.stdout.contains(": no"), "{}", driven.stdout);
    driven.main(&program).is_exact(&[(4241, 3)]);
    let run = gate("chroot", &program, &["chroot", "much"]);
    run.ends_with(1).says("or a folder out of reach since");
    assert_eq!(run.report().verdict, Verdict::Error, "{run}");
}
