//! Libraries that come and go at run time, and those that the loader binds past the agent.

use std::path::PathBuf;

use memgate_model::Verdict;
use memgate_wire::{ErrorCode, GoodbyeReason};

use crate::guest_life::{Guest, compiled, gate, program};

fn plugin() -> PathBuf {
    compiled("plugin.so", "life_plugin.c", "cc", &["-shared", "-fPIC"])
}

fn guest(name: &str, how: &str) -> Guest {
    Guest::new(&format!("libraries-{name}"), &program("libraries"), &[plugin().to_str().unwrap(), how])
}

#[test]
fn what_a_library_allocated_is_recorded_while_it_is_there_and_after_it_has_gone() {
    for (how, own) in [("keep", 1), ("close", 0), ("reload", 0)] {
        let driven = guest(how, how).drive().ends_with(0);
        let stream = driven.main(&program("libraries"));
        stream.is_exact(&[(4241, 3), (333, own), (444, 0), (100, 0)]);
        assert_eq!(stream.goodbye().unwrap().counters.unknown_frees, 0, "{how}");
    }
}

#[test]
fn a_library_whose_constructor_forks_is_loaded_as_ever() {
    let child = |driven: &crate::guest_life::Driven| {
        driven.forked().any(|s| s.goodbye().is_some_and(|b| b.reason == GoodbyeReason::QuickExit))
    };
    let driven = guest("forking", "keep").variable("LIFE_FORKING_CONSTRUCTOR", "1").drive().ends_with(0);
    driven.main(&program("libraries")).is_exact(&[(4241, 3), (333, 1)]);
    assert!(child(&driven), "its child has a stream");

    // Before main, and thus before anything is recorded.
    let library = plugin();
    let path = library.to_str().unwrap();
    let linked = compiled("libraries_linked", "life_libraries.c", "cc", &["-Wl,--no-as-needed", path]);
    let guest =
        Guest::new("libraries-linked", &linked, &[path, "close"]).variable("LIFE_FORKING_CONSTRUCTOR", "1");
    let driven = guest.drive().ends_with(0);
    driven.main(&linked).is_exact(&[(4241, 3), (333, 0)]);
    assert!(!child(&driven));
}

/// The loader looks at the return address of `dlopen` to find the caller's run path: the agent's
/// would be another one.
#[test]
fn a_library_is_found_by_the_run_path_of_the_program() {
    let library = plugin();
    let folder = format!("-Wl,-rpath,{}", library.parent().unwrap().display());
    let program = compiled("libraries_by_path", "life_libraries.c", "cc", &[&folder]);
    let driven = Guest::new("libraries-by-path", &program, &["plugin.so", "keep"]).drive().ends_with(0);
    driven.main(&program).is_exact(&[(4241, 3)]);
}

/// Once, what such a library allocated was missing in a report that said nothing about it.
#[test]
fn a_library_bound_past_the_agent_is_said_and_never_passed() {
    let libraries = program("libraries");
    let library = plugin();
    for how in ["deepbind", "dlmopen"] {
        let driven = guest(how, how).drive().ends_with(0);
        let stream = driven.main(&libraries);
        let [error] = stream.errors()[..] else { panic!("{:?}", stream.errors()) };
        assert_eq!(error.code, ErrorCode::Blind);
        assert!(error.text.contains("plugin.so was loaded with RTLD_DEEPBIND"), "{}", error.text);
        let run = gate(&format!("libraries-{how}"), &libraries, &[library.to_str().unwrap(), how]);
        run.ends_with(2).says("not measured").says("for the gate");
        assert_eq!(run.report().verdict, Verdict::Error, "{run}");
    }
    // One that was asked for so, and was not found, is nothing.
    guest("not-found", "not found").drive().ends_with(0).main(&libraries).is_exact(&[(4241, 3)]);
}
