//! Two boundaries with nothing between them show the same heap: on that every figure of a leak rests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use memgate_e2e::jvm::{self, Jdk};
use memgate_e2e::samples::successful;
use memgate_e2e::{Project, agent, probes, repository, say};
use memgate_wire::Frame;
use memgate_wire::java::ClassCount;

/// In the place of memgate's launcher, and does nothing but end windows.
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
/// The virtual machine loads and compiles what ends a window while the first ones end.
const WARM_UP: usize = 30;

/// Objects and bytes by which the heaps of two neighbouring windows differ at most.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Difference {
    objects: u64,
    bytes: u64,
}

/// Where collection and count are one safepoint, and where they are not.
#[test]
fn idle_boundaries_are_equal() {
    for jdk in jvm::jdks() {
        let classes = compiled(&jdk);
        for collector in ["G1", "Parallel", "Serial", "Z", "Shenandoah"] {
            let Some(difference) = idle(&jdk, &classes, collector) else { continue };
            say(&format!("JDK {}, {collector}: {difference:?}", jdk.release));
            assert_eq!(difference, Difference::default(), "JDK {}, {collector}", jdk.release);
        }
    }
}

fn compiled(jdk: &Jdk) -> PathBuf {
    let project = Project::new(&format!("jvm-idle-classes-{}", jdk.release));
    let source = project.write("io/memgate/launcher/Main.java", IDLE);
    let hooks = repository().join("device-agent/java/agent/src/main/java");
    let classes = project.folder().join("classes");
    let mut javac = Command::new(jdk.home.join("bin/javac"));
    javac.args(["-implicit:none", "-sourcepath"]).arg(hooks).arg("-d").arg(&classes).arg(source);
    successful(&mut javac);
    classes
}

/// `None`: this kit has no such collector, which is said.
fn idle(jdk: &Jdk, classes: &Path, collector: &str) -> Option<Difference> {
    let java = jdk.home.join("bin/java").display().to_string();
    let option = format!("-XX:+Use{collector}GC");
    if !Command::new(&java).args([&option, "-version"]).output().unwrap().status.success() {
        say(&format!("skipped: JDK {} has no {collector}GC", jdk.release));
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

/// Between neighbouring windows of a stream, behind the first ones.
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
