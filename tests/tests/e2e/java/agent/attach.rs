//! The agent attaches to a running JVM: it sees tests from then on, and attaching again changes nothing.

use std::io::Write as _;
use std::process::{ChildStdin, Command, Stdio};

use memgate_e2e::jvm::{self, Jdk};
use memgate_e2e::waiting::Running;
use memgate_e2e::{Project, probes};
use memgate_wire::{BoundaryKind, Frame, Outcome, Runtime};

/// A JVM that runs the tests named on its stdin.
struct Runner {
    java: Running,
    stdin: ChildStdin,
}

fn running(jdk: &Jdk) -> Runner {
    let java = [&["-Xcheck:jni"][..], &probes::REACHABLE].concat();
    let words = probes::java(jdk, &java, &["com.example.Attached"]);
    let mut java = Running::start(Command::new(&words[0]).args(&words[1..]).stdin(Stdio::piped()));
    let stdin = java.stdin();
    // The output of -Xcheck:jni would come in between.
    java.hears("ready");
    Runner { java, stdin }
}

impl Runner {
    fn runs(&mut self, test: &str) {
        writeln!(self.stdin, "{test}").unwrap();
        self.java.hears(&format!("ran {test}"));
    }

    fn ends(self) {
        drop(self.stdin);
        let output = self.java.output();
        assert!(output.status.success(), "{output:?}");
        assert!(output.stdout.is_empty(), "-Xcheck:jni: {output:?}");
    }
}

#[test]
fn tests_that_run_after_it_was_attached_are_seen() {
    for jdk in jvm::jdks() {
        let project = Project::new(&format!("jvm-attach-{}", jdk.release));
        let options = probes::options(&jdk, &project, "follow=com.example.Probes$Note");
        let mut running = running(&jdk);
        running.runs("unseen");
        probes::attach(&jdk, running.java.id(), &options);
        running.runs("first");
        probes::attach(&jdk, running.java.id(), &options);
        running.runs("second");
        running.ends();

        let streams = probes::streams(&project);
        let [stream] = &streams[..] else { panic!("{} streams", streams.len()) };
        let frames: Vec<&Frame> = stream.iter().map(|(_, frame)| frame).collect();
        let Frame::Hello(hello) = frames[0] else { panic!("{:?}", frames[0]) };
        assert_eq!((hello.runtime, hello.blind.as_deref()), (Runtime::HotSpot, None));
        let mut events: Vec<&str> = frames
            .iter()
            .filter_map(|f| if let Frame::Event(e) = f { Some(e.name.as_str()) } else { None })
            .collect();
        // Any thread that allocates may start the following, so the order varies.
        events.sort_unstable();
        assert_eq!(events, ["attached", "attached again", "follow"]);
        let ends: Vec<(&str, Option<Outcome>)> = frames
            .iter()
            .filter_map(|frame| match frame {
                Frame::Boundary(b) if b.kind == BoundaryKind::TestEnd => Some((b.test.as_str(), b.outcome)),
                _ => None,
            })
            .collect();
        assert_eq!(ends, [("first", Some(Outcome::Passed)), ("second", Some(Outcome::Passed))]);
        let objects =
            || frames.iter().filter_map(|f| if let Frame::JavaObjects(o) = f { Some(o) } else { None });
        let born: usize = objects().map(|o| o.born.len()).sum();
        let freed: usize = objects().map(|o| o.freed.len()).sum();
        assert_eq!((born, freed), (14_000, 12_600), "JDK {}", jdk.release);
        assert!(matches!(frames.last(), Some(Frame::Goodbye(_))), "{:?}", frames.last());
    }
}

#[test]
fn options_that_are_not_there_leave_it_as_it_is() {
    for jdk in jvm::jdks() {
        let project = Project::new(&format!("jvm-attach-nothing-{}", jdk.release));
        let mut running = running(&jdk);
        probes::attach(&jdk, running.java.id(), &project.folder().join("missing"));
        running.runs("alone");
        let options = probes::options(&jdk, &project, "");
        probes::attach(&jdk, running.java.id(), &options);
        running.runs("seen");
        running.ends();
        assert_eq!(probes::streams(&project).len(), 1, "the second time it had options");
    }
}
