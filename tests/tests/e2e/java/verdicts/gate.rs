//! `memgate gate` on some of a Java run's recordings: a test that the run failed never passes.

use memgate_e2e::{Project, junit, jvm, probes};
use memgate_model::{Runner, Verdict};
use memgate_wire::Frame;

const LEAKS: &str = "import java.util.*;
import org.junit.jupiter.api.Test;

class LeaksTest {
    static final List<Object> kept = new ArrayList<>();

    static final class Page {
        final long[] words = new long[4];
    }

    @Test
    void keeps() {
        kept.add(new Page());
        kept.add(new Page());
    }

    @Test
    void isClean() {}
}
";
const LEAKING: &str = "LeaksTest.keeps";

/// The purpose of a stream.
fn label(stream: &std::path::Path) -> String {
    let frames = probes::frames(&probes::stream_bytes(stream));
    let told = frames.into_iter().find_map(|(_, frame)| match frame {
        Frame::Hello(hello) => Some(hello.label),
        _ => None,
    });
    told.unwrap_or_else(|| panic!("{} says no hello", stream.display()))
}

#[test]
fn the_recording_of_a_confirmation_alone_fails_what_the_run_failed() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let project = Project::new("junit-gate");
    let classes = junit::compile(&jdk, project.folder(), &[("LeaksTest", LEAKS)]);
    let java = junit::java(&jdk, &[], &classes);
    let run = project.run_command(&java);
    run.ends_with(1);
    let suite = run.suite();
    let mut confirmed = Vec::new();
    for stream in project.streams() {
        let label = label(&stream);
        let parts: Vec<&str> = label.split('\t').collect();
        let gate = project.memgate(&["gate", "--format", "json", stream.to_str().unwrap()]);
        match parts.as_slice() {
            ["confirm", name, test] => {
                assert_eq!(*name, suite.name);
                confirmed.push((*test).to_owned());
                let alone = gate.suite();
                assert_eq!((&alone.name, alone.runner), (&suite.name, Runner::Junit), "{gate}");
                // The class leaks because its test does.
                let leaks = *test == LEAKING || *test == "LeaksTest";
                gate.ends_with(i32::from(leaks));
                let told: Vec<_> =
                    gate.test(test).leaks.into_iter().map(|leak| (leak.id, leak.title)).collect();
                let right: Vec<_> =
                    run.test(LEAKING).leaks.into_iter().map(|leak| (leak.id, leak.title)).collect();
                assert_eq!(told, if leaks { right } else { Vec::new() }, "{test}: {gate}");
            }
            ["rounds", _] => {
                gate.ends_with(0);
                assert_eq!(gate.test("LeaksTest").verdict, Verdict::Warn, "suspected, not confirmed: {gate}");
            }
            // This run only determines which tests of the class grow, and thereby what is confirmed.
            ["narrow", ..] => {
                gate.ends_with(2);
                assert!(gate.problems().contains("no tests were seen"), "{gate}");
            }
            _ => {
                gate.ends_with(2);
                assert!(gate.problems().contains("not screened: no rounds were run"), "{gate}");
            }
        }
    }
    confirmed.sort();
    assert_eq!(confirmed, ["LeaksTest", LEAKING]);
}
