//! 64 threads that allocate, class loaders that come and go, the agent attached late: nothing breaks, and the
//! agent does not grow. `MEMGATE_SOAK_SECONDS=600` is the long form (`tests/prove jvm`).

use std::collections::BTreeSet;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use memgate_e2e::jvm::{self, Jdk};
use memgate_e2e::waiting::Running;
use memgate_e2e::{Project, probes, say};
use memgate_wire::spool::CONTROL_BYTES;
use memgate_wire::{BoundaryKind, Frame};
use tungstenite::Message;

use crate::agent::socket::{TOKEN, connected, let_in};

/// Allowed growth of the agent's mappings between the second quarter of a run and its end.
const GROWTH_BYTES: u64 = 1 << 20;

#[test]
fn under_load_nothing_breaks_and_nothing_grows() {
    for jdk in jvm::jdks_in_turn(0) {
        soak(&jdk, "sampled", "sampling=4096;windows=budget");
    }
}

#[test]
fn following_under_load_loses_rather_than_waits() {
    for jdk in jvm::jdks_in_turn(1) {
        let frames = soak(
            &jdk,
            "followed",
            "follow=com.example.Soak$Item,com.example.Soak$Loaded;follow_every=100;windows=budget",
        );
        let objects =
            || frames.iter().filter_map(|f| if let Frame::JavaObjects(o) = f { Some(o) } else { None });
        let born: BTreeSet<u64> = objects().flat_map(|o| o.born.iter().map(|born| born.object)).collect();
        let freed: BTreeSet<u64> = objects().flat_map(|o| o.freed.iter().map(|freed| freed.object)).collect();
        let lost = objects().map(|o| o.lost).max().unwrap_or(0);
        assert!(born.len() > 10_000, "{} born, {lost} lost", born.len());
        // Their holders had ended before the last collection.
        let alive = born.difference(&freed).count() as u64;
        assert!(alive <= lost, "{alive} of {} never ended, {lost} lost", born.len());
    }
}

#[test]
fn a_client_of_the_socket_may_come_and_go() {
    for jdk in jvm::jdks_in_turn(0) {
        let name = format!("memgate-soak-{}-{}", std::process::id(), jdk.release);
        let project = Project::new(&format!("jvm-soak-socket-{}", jdk.release));
        let more = format!("carrier=unix:@{name};token={TOKEN};sampling=16384;windows=budget");
        let soaking = begun(&jdk, &project, &more);
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let mut frames = 0;
        for _ in 0..4 {
            let mut socket = let_in(connected(|| UnixStream::connect_addr(&address)));
            for _ in 0..4 {
                match socket.read() {
                    Ok(Message::Binary(_)) => frames += 1,
                    other => panic!("JDK {}: {other:?}", jdk.release),
                }
            }
            // It closes without a WebSocket close.
            drop(socket);
        }
        ended(&jdk, soaking);
        assert_eq!(frames, 16);
    }
}

/// Starts a JVM under load and attaches the agent twice.
fn begun(jdk: &Jdk, project: &Project, more: &str) -> Running {
    let seconds = std::env::var("MEMGATE_SOAK_SECONDS").unwrap_or_else(|_| "8".to_owned());
    let options = probes::options(jdk, project, more);
    let java = [&["-Xcheck:jni", "-Xmx512m"][..], &probes::REACHABLE].concat();
    let words = probes::java(jdk, &java, &["com.example.Soak", &seconds]);
    let mut command = Command::new(&words[0]);
    let soaking = Running::start(command.args(&words[1..]).stdin(Stdio::null()));
    let mut soaking = soaking.with_patience(Duration::from_secs(seconds.parse().unwrap()));
    soaking.hears("ready");
    probes::attach(jdk, soaking.id(), &options);
    probes::attach(jdk, soaking.id(), &options);
    soaking
}

/// Waits for its normal end; returns its last output.
fn ended(jdk: &Jdk, soaking: Running) -> String {
    let output = soaking.output();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (rest, stderr) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "JDK {}: {}\n{rest}\n{stderr}", jdk.release, output.status);
    assert!(rest.starts_with("over: ") && rest.lines().count() == 1, "-Xcheck:jni: {rest}\n{stderr}");
    rest
}

fn soak(jdk: &Jdk, name: &str, more: &str) -> Vec<Frame> {
    let project = Project::new(&format!("jvm-soak-{name}-{}", jdk.release));
    let rest = ended(jdk, begun(jdk, &project, more));
    let mut streams = probes::streams(&project);
    assert_eq!(streams.len(), 1, "attached twice, one stream");
    let stream = streams.remove(0);
    let mapped: Vec<u64> = stream
        .iter()
        .filter_map(|(at, frame)| match frame {
            Frame::Boundary(b) if b.kind == BoundaryKind::TestEnd => {
                Some(b.cost.mapped_bytes - window_at(*at))
            }
            _ => None,
        })
        .collect();
    let frames: Vec<Frame> = stream.into_iter().map(|(_, frame)| frame).collect();
    assert!(matches!(frames.last(), Some(Frame::Goodbye(_))), "{:?}", frames.last());
    assert!(mapped.len() >= 8, "{} windows", mapped.len());
    let (early, last) = (mapped[mapped.len() / 4], mapped[mapped.len() - 1]);
    say(&format!(
        "JDK {} {name}: {} windows, the agent maps {early} bytes, then {last}; {}",
        jdk.release,
        mapped.len(),
        rest.trim_end()
    ));
    assert!(last <= early + GROWTH_BYTES, "the agent grows: {mapped:?}");
    frames
}

/// Size of the file's mapped window at this position: windows grow up to a limit, which is no growth of the
/// agent.
fn window_at(at: usize) -> u64 {
    let (mut end, mut window) = (CONTROL_BYTES as u64, 64 << 10);
    loop {
        end += window;
        if (at as u64) < end {
            return window;
        }
        window = (window * 4).min(16 << 20);
    }
}
