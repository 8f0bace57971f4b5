//! What the agent asks Android's runtime, asked of HotSpot, which has the same functions but for the extensions: collections with finalizers
//! between them, a walk over the heap by class, natives that are bound to a class of the tests when it is there.

use std::process::Command;

use memgate_e2e::jvm::{self, Jdk};
use memgate_e2e::samples::successful;
use memgate_e2e::{Project, agent, repository};
use memgate_wire::java::ClassCount;
use memgate_wire::{BoundaryKind, Frame};

/// As a listener in a test APK: the class with the natives comes with it, and windows end where it says.
const APP: &str = "package com.example;

import io.memgate.agent.Hooks;
import java.util.ArrayList;
import java.util.List;

public final class App {
    static final class Tile { long a, b; }
    static final class Finalized {
        @Override protected void finalize() {}
    }
    static final List<Object> KEPT = new ArrayList<>();

    public static void main(String[] arguments) {
        if (!Hooks.active()) throw new AssertionError(\"nothing is bound\");
        Hooks.reportedBy(\"android\");
        for (int window = 0; window < 6; window++) {
            Hooks.testStarted(\"com.example.AppTest\", \"grows\");
            for (int i = 0; i < 3; i++) KEPT.add(new Tile());
            for (int i = 0; i < 100; i++) { new Tile(); new Finalized(); }
            Hooks.window(\"com.example.AppTest\", \"grows\", Hooks.PASSED);
        }
    }
}
";

#[test]
fn an_app_is_counted_by_class_without_a_command_of_hotspots() {
    for jdk in jvm::jdks() {
        let project = Project::new(&format!("android-runtime-{}", jdk.release));
        let frames = run(&jdk, &project);
        // Before the first window there is no histogram of the class.
        assert_eq!(
            after_each_window(&frames, "com.example.App$Tile"),
            [3, 6, 9, 12, 15, 18],
            "JDK {}",
            jdk.release
        );
        // The first collection keeps what waits for its finalizer, the second does not.
        let finalized = after_each_window(&frames, "com.example.App$Finalized");
        assert_eq!(finalized, [0; 6], "JDK {}", jdk.release);
    }
}

fn run(jdk: &Jdk, project: &Project) -> Vec<Frame> {
    let source = project.write("com/example/App.java", APP);
    let (classes, frames) = (project.folder().join("classes"), project.folder().join("frames"));
    std::fs::create_dir_all(&frames).unwrap();
    let hooks = repository().join("device-agent/java/agent/src/main/java");
    let mut javac = Command::new(jdk.home.join("bin/javac"));
    successful(javac.args(["-nowarn", "-sourcepath"]).arg(hooks).arg("-d").arg(&classes).arg(source));
    let told = format!("dir={};wait_ms=0;java=1;target=all;windows=each;machine=art", frames.display());
    let options = project.write("options", told);
    let mut java = Command::new(jdk.home.join("bin/java"));
    java.arg(format!("-agentpath:{}={}", agent().display(), options.display()));
    successful(java.args(["-Xcheck:jni", "-cp"]).arg(&classes).arg("com.example.App"));
    let entry = std::fs::read_dir(&frames).unwrap().next().unwrap().unwrap();
    crate::spool::frames(&entry.path())
}

/// Instances of a class at the end of each window, of its last histogram.
fn after_each_window(frames: &[Frame], class: &str) -> Vec<u64> {
    let (mut number, mut now, mut all) = (None, 0, Vec::new());
    for frame in frames {
        match frame {
            Frame::Classes(classes) => {
                number = number.or(classes.classes.iter().find(|c| c.name == class).map(|c| c.id));
            }
            Frame::HeapHistogram(histogram) => {
                let record = |r: &&ClassCount| Some(r.class) == number;
                now = histogram.records.iter().find(record).map_or(now, |r| r.instances);
            }
            Frame::Boundary(b) if b.kind == BoundaryKind::TestEnd => all.push(now),
            _ => {}
        }
    }
    all
}
