//! `tests/samples/jvm/probes`: Java programs that look like JUnit runs and do what is hard to do with JUnit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use memgate_wire::spool::{CONTROL_BYTES, Extent};
use memgate_wire::{Decoded, Frame, decode};

use crate::jvm::Jdk;
use crate::samples::successful;
use crate::{Project, agent, repository, waiting};

/// The main class that looks like JUnit's.
pub const RUNNER: &str = "org.junit.runner.JUnitCore";

/// JVM options for a process that [`attach`] will reach. The attach listener runs from the start: otherwise
/// `jcmd` wakes it with signals, and on a busy machine each signal that arrives too late prints all threads.
pub const REACHABLE: [&str; 2] = ["-XX:+EnableDynamicAgentLoading", "-XX:+StartAttachListener"];

/// Compiles all probes, once per JDK; returns the folder of the classes.
#[must_use]
pub fn compiled(jdk: &Jdk) -> PathBuf {
    static COMPILED: Mutex<BTreeMap<u32, PathBuf>> = Mutex::new(BTreeMap::new());
    COMPILED.lock().unwrap().entry(jdk.release).or_insert_with(|| compile(jdk)).clone()
}

fn compile(jdk: &Jdk) -> PathBuf {
    let classes = Project::new(&format!("jvm-probes-{}", jdk.release)).folder().to_owned();
    let probes = repository().join("tests/samples/jvm/probes");
    let hooks = repository().join("device-agent/java/agent/src/main/java");
    let mut javac = jdk.javac();
    javac.args(["-g", "-nowarn", "-implicit:none", "-sourcepath"]).arg(hooks).arg("-d").arg(&classes);
    successful(javac.args(sources(&probes)));
    classes
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    files.into_iter().chain(folders.iter().flat_map(|folder| sources(folder))).collect()
}

/// Command line: this JDK's `java`, these options, the probes on the class path, then `main`.
#[must_use]
pub fn java(jdk: &Jdk, options: &[&str], main: &[&str]) -> Vec<String> {
    let mut words = vec![jdk.home.join("bin/java").display().to_string()];
    words.extend(options.iter().map(|&option| option.to_owned()));
    words.extend(["-cp".to_owned(), compiled(jdk).display().to_string()]);
    words.extend(main.iter().map(|&word| word.to_owned()));
    words
}

/// The folder of the agent's jars as the program keeps them; the options of every run name it.
#[must_use]
pub fn jars(jdk: &Jdk) -> String {
    static JARS: OnceLock<String> = OnceLock::new();
    let find = || {
        let project = Project::new("jvm-probes-jars");
        project.write("memgate.yaml", "version: 1\nmeasure: { screen: off }\n");
        let run = project.run_command(&java(jdk, &[], &[RUNNER, "isClean"]));
        let options = std::fs::read_to_string(project.session().join("java/0001.options")).unwrap();
        let jars = options.trim_end().split(';').find_map(|pair| pair.strip_prefix("jars="));
        jars.unwrap_or_else(|| panic!("no jars in {options}\n{run}")).to_owned()
    };
    JARS.get_or_init(find).clone()
}

/// Writes agent options for a JVM that the user starts: a spool in the project's folder `frames`, plus
/// `more`.
#[must_use]
pub fn options(jdk: &Jdk, project: &Project, more: &str) -> PathBuf {
    let frames = project.folder().join("frames");
    std::fs::create_dir_all(&frames).unwrap();
    project.write("options", format!("dir={};wait_ms=0;java=1;jars={};{more}", frames.display(), jars(jdk)))
}

/// Attaches the agent to a running JVM.
pub fn attach(jdk: &Jdk, pid: u32, options: &Path) {
    let mut jcmd = Command::new(jdk.home.join("bin/jcmd"));
    jcmd.args([&pid.to_string(), "JVMTI.agent_load"]).arg(agent()).arg(format!("\"{}\"", options.display()));
    // A busy machine may not answer within jcmd's ten seconds.
    let answered = (0..3).map(|_| waiting::output(&mut jcmd)).find(|output| output.status.success());
    let said =
        answered.map_or_else(|| successful(&mut jcmd), |o| String::from_utf8_lossy(&o.stdout).into_owned());
    assert!(said.contains("return code: 0"), "{said}");
}

/// The frames of the streams in `frames`, one list per stream, each frame with its file offset.
#[must_use]
pub fn streams(project: &Project) -> Vec<Vec<(usize, Frame)>> {
    let entries = std::fs::read_dir(project.folder().join("frames")).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| frames(&stream_bytes(path))).collect()
}

/// The bytes of a stream, decompressed if needed.
#[must_use]
pub fn stream_bytes(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap();
    let is_packed = bytes.starts_with(&zstd::zstd_safe::MAGICNUMBER.to_le_bytes());
    if is_packed { zstd::decode_all(bytes.as_slice()).unwrap() } else { bytes }
}

/// The frames of a stream, each with its file offset.
#[must_use]
pub fn frames(stream: &[u8]) -> Vec<(usize, Frame)> {
    let end = Extent::of(stream).end.map_or(stream.len(), |end| usize::try_from(end).unwrap());
    let (mut at, mut frames) = (CONTROL_BYTES, Vec::new());
    while at < end {
        let Decoded::Frame { frame, bytes, .. } = decode(&stream[at..end], at as u64).unwrap() else {
            panic!("byte {at} is no frame")
        };
        frames.push((at, frame));
        at += bytes;
    }
    frames
}
