//! What the agent asks of Android's runtime, tested on HotSpot, which has the same functions except for the
//! extensions: collections with finalizers between them, a heap walk by class, natives that are bound to a
//! class of the tests once it is loaded.

use std::path::Path;
use std::process::Command;

use memgate_e2e::jvm::{self, Jdk};
use memgate_e2e::samples::successful;
use memgate_e2e::waiting::Running;
use memgate_e2e::{Project, agent, repository};
use memgate_wire::java::{ClassCount, Holders};
use memgate_wire::{BoundaryKind, Frame};

/// Acts as a listener in a test APK: the class with the natives is part of the app, and windows end where it
/// says.
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
    for jdk in jvm::jdks_in_turn(0) {
        let project = Project::new(&format!("android-runtime-{}", jdk.release));
        let frames = run(&jdk, &project, "");
        // Histograms before the first window do not contain the class.
        assert_eq!(
            after_each_window(&frames, "com.example.App$Tile"),
            [3, 6, 9, 12, 15, 18],
            "JDK {}",
            jdk.release
        );
        // The first collection keeps objects that wait for their finalizer, the second does not.
        let finalized = after_each_window(&frames, "com.example.App$Finalized");
        assert_eq!(finalized, [0; 6], "JDK {}", jdk.release);
    }
}

#[test]
fn the_runner_s_class_loader_is_asked_for_the_listener_before_it_is_given_one() {
    let options = ";dex=/data/memgate-listener.dex;runner=com.example.App";
    let refused = |frames: &[Frame]| -> Vec<String> {
        let text = |frame: &Frame| match frame {
            Frame::Error(error) => Some(error.text.clone()),
            _ => None,
        };
        frames.iter().filter_map(text).collect()
    };
    for jdk in jvm::jdks_in_turn(1) {
        let project = Project::new(&format!("android-listener-{}", jdk.release));
        // HotSpot does not load dex files; the app continues.
        let frames = run(&jdk, &project, options);
        let why = "memgate's listener could not be put into the app: the virtual machine does not offer this";
        assert_eq!(refused(&frames), [why], "JDK {}", jdk.release);
        assert_eq!(after_each_window(&frames, "com.example.App$Tile").len(), 6);

        let brought = "package io.memgate.android; public class MemgateListener {}";
        let brought = project.write("io/memgate/android/MemgateListener.java", brought);
        compiled(&jdk, &project, &brought);
        assert_eq!(refused(&run(&jdk, &project, options)), Vec::<String>::new(), "JDK {}", jdk.release);
    }
}

#[test]
fn who_holds_what_grew_is_told_when_the_harness_orders_it() {
    let asked = ["com.example.App$Tile"];
    for jdk in jvm::jdks_in_turn(0) {
        let project = Project::new(&format!("android-holders-{}", jdk.release));
        assert_eq!(holders(&played(&jdk, &project, &[])), [], "nobody asked: JDK {}", jdk.release);
        let told = holders(&played(&jdk, &project, &asked));
        assert!(!told.is_empty(), "JDK {}", jdk.release);
        for holders in told {
            let way: Vec<_> =
                holders.paths.iter().flat_map(|path| &path.links).map(|link| &*link.name).collect();
            assert!(way.contains(&"KEPT"), "JDK {}: {holders:#?}", jdk.release);
            // The instances of one window.
            assert_eq!(holders.instances, 3, "JDK {}", jdk.release);
        }
    }
}

fn holders(frames: &[Frame]) -> Vec<Holders> {
    let of = |frame: &Frame| match frame {
        Frame::Holders(holders) => Some(holders.clone()),
        _ => None,
    };
    frames.iter().filter_map(of).collect()
}

/// Runs with a harness that acknowledges each boundary and orders the holders of the classes in `explained`.
fn played(jdk: &Jdk, project: &Project, explained: &[&str]) -> Vec<Frame> {
    let mut java = measured(jdk, project, "wait_ms=20000;harness=1", "");
    let player = repository().join("tests/art/player.py");
    let frames = project.folder().join("frames");
    let player = Running::start(Command::new("python3").arg(player).arg(&frames).arg("60").args(explained));
    successful(&mut java);
    let played = player.output();
    assert!(played.status.success(), "{}", String::from_utf8_lossy(&played.stderr));
    told(project)
}

fn compiled(jdk: &Jdk, project: &Project, source: &Path) {
    let hooks = repository().join("device-agent/java/agent/src/main/java");
    let mut javac = jdk.javac();
    javac.args(["-nowarn", "-sourcepath"]).arg(hooks).arg("-d").arg(project.folder().join("classes"));
    successful(javac.arg(source));
}

fn run(jdk: &Jdk, project: &Project, more: &str) -> Vec<Frame> {
    successful(&mut measured(jdk, project, "wait_ms=0", more));
    told(project)
}

/// The app with the agent, which gets the wait options and `more`.
fn measured(jdk: &Jdk, project: &Project, waits: &str, more: &str) -> Command {
    compiled(jdk, project, &project.write("com/example/App.java", APP));
    let (classes, frames) = (project.folder().join("classes"), project.folder().join("frames"));
    if frames.exists() {
        std::fs::remove_dir_all(&frames).unwrap();
    }
    std::fs::create_dir_all(&frames).unwrap();
    let told = format!("dir={};{waits};java=1;target=all;windows=each;machine=art{more}", frames.display());
    let options = project.write("options", told);
    let mut java = Command::new(jdk.home.join("bin/java"));
    java.arg(format!("-agentpath:{}={}", agent().display(), options.display()));
    java.args(["-Xcheck:jni", "-cp"]).arg(&classes).arg("com.example.App");
    java
}

fn told(project: &Project) -> Vec<Frame> {
    let entry = std::fs::read_dir(project.folder().join("frames")).unwrap().next().unwrap().unwrap();
    crate::agent::spool::frames(&entry.path())
}

/// Instances of a class at the end of each window, from its last histogram.
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
