//! Two boundaries with nothing between them show the same heap; every leak figure depends on that.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use memgate_e2e::jvm::{self, Jdk};
use memgate_e2e::samples::successful;
use memgate_e2e::{Project, agent, probes, repository, say, skip, waiting};
use memgate_wire::Frame;
use memgate_wire::java::ClassCount;

/// Replaces memgate's launcher, and only ends windows.
const IDLE: &str = "package io.memgate.launcher;

import io.memgate.agent.Hooks;

public final class Main {
    public static void main(String[] arguments) {
        Hooks.reportedBy(\"launcher\");
        for (int window = 0; window < 60; window++) {
            Hooks.testStarted(\"Idle\", \"\");
            Hooks.window(\"Idle\", \"\", Hooks.PASSED);
        }
    }
}
";
/// Collections clear a million references; prints after how many windows some of them are not in their queue
/// yet.
const QUEUED: &str = "package io.memgate.launcher;

import io.memgate.agent.Hooks;
import java.lang.ref.ReferenceQueue;
import java.lang.ref.WeakReference;

public final class Main {
    public static void main(String[] arguments) throws Exception {
        Hooks.reportedBy(\"launcher\");
        ReferenceQueue<Object> queue = new ReferenceQueue<>();
        WeakReference<?>[] references = new WeakReference<?>[1_000_000];
        int late = 0;
        for (int window = 0; window < 5; window++) {
            for (int i = 0; i < references.length; i++) {
                references[i] = new WeakReference<>(new Object(), queue);
            }
            Hooks.testStarted(\"Queue\", \"\");
            Hooks.window(\"Queue\", \"\", Hooks.PASSED);
            int queued = 0;
            while (queue.poll() != null) {
                queued++;
            }
            late += queued < references.length ? 1 : 0;
            for (; queued < references.length; queued++) {
                queue.remove();
            }
        }
        System.out.println(late + \" late\");
    }
}
";
/// During the first windows the JVM loads and compiles the code that ends a window.
const WARM_UP: usize = 30;

/// Maximum difference in objects and bytes between the heaps of two neighbouring windows.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Difference {
    objects: u64,
    bytes: u64,
}

/// For collectors where collection and count are one safepoint, and for those where they are not.
#[test]
fn idle_boundaries_are_equal() {
    for jdk in jvm::jdks_in_turn(0) {
        let classes = compiled(&jdk, "idle", IDLE);
        for collector in ["G1", "Parallel", "Serial", "Z", "Shenandoah"] {
            let Some(difference) = idle(&jdk, &classes, collector) else { continue };
            say(&format!("JDK {}, {collector}: {difference:?}", jdk.release));
            assert_eq!(difference, Difference::default(), "JDK {}, {collector}", jdk.release);
        }
    }
}

/// A cache that empties itself by its reference queue is equally empty in each iteration, however busy the
/// machine is.
#[test]
fn references_that_a_collection_cleared_are_queued_when_the_window_is_over() {
    for jdk in jvm::jdks_in_turn(1) {
        let classes = compiled(&jdk, "queued", QUEUED);
        let project = Project::new(&format!("jvm-queued-{}", jdk.release));
        let options = probes::options(&jdk, &project, "");
        let mut java = Command::new(jdk.home.join("bin/java"));
        java.arg(format!("-agentpath:{}={}", agent().display(), options.display())).arg("-cp").arg(classes);
        assert_eq!(successful(java.arg("io.memgate.launcher.Main")), "0 late\n", "JDK {}", jdk.release);
    }
}

/// Compiles a program that replaces memgate's launcher.
fn compiled(jdk: &Jdk, name: &str, source: &str) -> PathBuf {
    let project = Project::new(&format!("jvm-{name}-classes-{}", jdk.release));
    let source = project.write("io/memgate/launcher/Main.java", source);
    let hooks = repository().join("device-agent/java/agent/src/main/java");
    let classes = project.folder().join("classes");
    let mut javac = jdk.javac();
    javac.args(["-implicit:none", "-sourcepath"]).arg(hooks).arg("-d").arg(&classes).arg(source);
    successful(&mut javac);
    classes
}

/// `None`, with a message, if this JDK does not have the collector.
fn idle(jdk: &Jdk, classes: &Path, collector: &str) -> Option<Difference> {
    let java = jdk.home.join("bin/java").display().to_string();
    let option = format!("-XX:+Use{collector}GC");
    if !waiting::output(Command::new(&java).args([&option, "-version"])).status.success() {
        skip(&format!("JDK {} has no {collector}GC", jdk.release));
        return None;
    }
    let project = Project::new(&format!("jvm-idle-{}-{collector}", jdk.release));
    let options = probes::options(jdk, &project, "");
    let mut idle = Command::new(&java);
    idle.arg(format!("-agentpath:{}={}", agent().display(), options.display()));
    successful(
        idle.args([&option, "-XX:SoftRefLRUPolicyMSPerMB=0", "-XX:MarkSweepDeadRatio=0", "-cp"])
            .arg(classes)
            .arg("io.memgate.launcher.Main"),
    );
    let [stream] = &probes::streams(&project)[..] else { panic!("not one stream") };
    Some(greatest(stream.iter().map(|(_, frame)| frame)))
}

/// Maximum difference between neighbouring windows of a stream, after the first windows.
fn greatest<'a>(frames: impl Iterator<Item = &'a Frame>) -> Difference {
    let (mut live, mut by_boundary) = (BTreeMap::new(), BTreeMap::new());
    for frame in frames {
        match frame {
            Frame::HeapHistogram(histogram) => {
                let difference: &mut Difference = by_boundary.entry(histogram.boundary).or_default();
                for &now in &histogram.records {
                    let none = ClassCount { instances: 0, bytes: 0, ..now };
                    let was: ClassCount = live.insert(now.class, now).unwrap_or(none);
                    difference.objects += was.instances.abs_diff(now.instances);
                    difference.bytes += was.bytes.abs_diff(now.bytes);
                }
            }
            Frame::Boundary(boundary) => {
                by_boundary.entry(boundary.sequence).or_default();
            }
            _ => {}
        }
    }
    let windows: Vec<Difference> = by_boundary.into_values().collect();
    let late = &windows[2 * WARM_UP..];
    assert!(late.len() >= WARM_UP, "{} boundaries", windows.len());
    let most = |of: fn(&Difference) -> u64| late.iter().map(of).max().unwrap();
    Difference { objects: most(|d| d.objects), bytes: most(|d| d.bytes) }
}
