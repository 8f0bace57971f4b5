//! The agent comes into a virtual machine that runs: tests from then on are seen, and a second time changes nothing.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use memgate_e2e::jvm::{self, Jdk};
use memgate_e2e::{Project, probes};
use memgate_wire::{BoundaryKind, Frame, Outcome, Runtime};

struct Running {
    child: Child,
    stdin: ChildStdin,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

fn running(jdk: &Jdk) -> Running {
    let words =
        probes::java(jdk, &["-Xcheck:jni", "-XX:+EnableDynamicAgentLoading"], &["com.example.Attached"]);
    let mut child = Command::new(&words[0])
        .args(&words[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut running = Running { child, stdin, lines: BufReader::new(stdout).lines() };
    running.hears("ready");
    running
}

impl Running {
    fn hears(&mut self, what: &str) {
        let line = self.lines.next().unwrap_or_else(|| panic!("it ended before it said {what}")).unwrap();
        assert_eq!(line, what, "-Xcheck:jni has something to say");
    }

    fn runs(&mut self, test: &str) {
        writeln!(self.stdin, "{test}").unwrap();
        self.hears(&format!("ran {test}"));
    }

    fn ends(self) {
        let Self { child, stdin, lines } = self;
        drop(stdin);
        let rest: Vec<String> = lines.map(Result::unwrap).collect();
        assert!(rest.is_empty(), "-Xcheck:jni: {rest:?}");
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn tests_that_run_after_it_was_attached_are_seen() {
    for jdk in jvm::jdks() {
        let project = Project::new(&format!("jvm-attach-{}", jdk.release));
        let options = probes::options(&jdk, &project, "follow=com.example.Probes$Note");
        let mut running = running(&jdk);
        running.runs("unseen");
        probes::attach(&jdk, running.child.id(), &options);
        running.runs("first");
        probes::attach(&jdk, running.child.id(), &options);
        running.runs("second");
        running.ends();

        let streams = probes::streams(&project);
        let [stream] = &streams[..] else { panic!("{} streams", streams.len()) };
        let frames: Vec<&Frame> = stream.iter().map(|(_, frame)| frame).collect();
        let Frame::Hello(hello) = frames[0] else { panic!("{:?}", frames[0]) };
        assert_eq!((hello.runtime, hello.blind.as_deref()), (Runtime::HotSpot, None));
        let events: Vec<&str> = frames
            .iter()
            .filter_map(|f| if let Frame::Event(e) = f { Some(e.name.as_str()) } else { None })
            .collect();
        assert_eq!(events, ["attached", "follow", "attached again"]);
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
        probes::attach(&jdk, running.child.id(), &project.folder().join("missing"));
        running.runs("alone");
        let options = probes::options(&jdk, &project, "");
        probes::attach(&jdk, running.child.id(), &options);
        running.runs("seen");
        running.ends();
        assert_eq!(probes::streams(&project).len(), 1, "the second time it had options");
    }
}
