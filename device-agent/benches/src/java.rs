//! Measures the cost of the agent in a Java virtual machine: `java/JavaBench.java` measures, this module judges.
//!
//! Data flow: the bench and the agent's one Java class are compiled into the scratch folder → loaded and idle: whole
//! processes, alternately plain and with the agent; sampling: switched on and off in one process, and async-profiler in
//! another process; boundaries: one process for each size of heap → quotients within a round → medians → table and
//! bounds. Time is CPU time.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use memgate_wire::spool::offset;

use crate::table::{Verdict, median};

const BENCH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/java/JavaBench.java");
const HOOKS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../java/agent/src/main/java/io/memgate/agent/Hooks.java");
/// The peer, on Maven Central.
const PEER: &str = "tools.profiler:async-profiler:4.0";
const PEER_LIBRARY: &str = "linux-x64/libasyncProfiler.so";

/// Number of live objects, and the heap that they need in MiB.
const HEAPS: [(u32, u32); 3] = [(1_000_000, 512), (10_000_000, 2_048), (40_000_000, 6_144)];

/// Number of virtual machines of each kind: compiled code differs between virtual machines.
const MACHINES: u32 = 5;
/// Bounds of the quotients.
const IDLE: f64 = 1.02;
const BY_PEER: f64 = 1.03;
const JSON: f64 = 1.05;
const BY_COLLECTION: f64 = 1.8;
const BY_DUMP: f64 = 0.35;
/// Exact survivors: the instances are visited once to mark the old ones, and once to mark the new ones (and once more
/// if no instance of a class survived, which is not measured here). In addition, the walk to the holders of the
/// survivors costs several passes over all references. It is reported, without a bound.
const SURVIVORS_BY_COLLECTION: f64 = 1.5;

/// Times by the name of what they measure, in the order in which they were taken.
type Times = BTreeMap<String, Vec<f64>>;

/// Everything that is needed to start the bench.
struct Setup<'a> {
    folder: &'a Path,
    agent: &'a Path,
    java: PathBuf,
    class_path: OsString,
    /// The peer's library.
    peer: Option<PathBuf>,
}

/// Runs everything (or the parts whose names contain one of `only`) and prints the results.
pub(crate) fn run(
    folder: &Path,
    agent: &Path,
    rounds: u32,
    peer: bool,
    only: &[String],
) -> Result<Vec<Verdict>, String> {
    let java = java_home()?.join("bin/java");
    let classes = folder.join("java");
    let jars = folder.join("jars");
    fs::create_dir_all(&jars).map_err(|e| format!("make {}: {e}", jars.display()))?;
    compile(&java, &classes, &jars)?;
    let mut class_path = classes.into_os_string();
    let peer = if peer {
        let (jar, library) = fetch_peer(&java, folder)?;
        class_path.push(":");
        class_path.push(jar);
        Some(library)
    } else {
        None
    };
    let setup = Setup { folder, agent, java, class_path, peer };
    println!("\nJava, CPU time; quotients within a round, median of {rounds} rounds");
    let is_wanted = |name: &str| only.is_empty() || only.iter().any(|only| name.contains(only));
    let mut verdicts = Vec::new();
    if is_wanted("idle") {
        verdicts.push(idle(&setup, rounds)?);
    }
    for workload in
        ["micro", "json"].into_iter().filter(|workload| is_wanted(&format!("sampling, {workload}")))
    {
        verdicts.extend(sampling(&setup, workload, rounds)?);
    }
    for (objects, mebibytes) in
        HEAPS.into_iter().filter(|(objects, _)| is_wanted(&format!("{objects} objects")))
    {
        verdicts.extend(heap(&setup, objects, mebibytes, rounds.min(5))?);
    }
    Ok(verdicts)
}

/// The agent is loaded and idle: no sampling, no boundary.
fn idle(setup: &Setup<'_>, rounds: u32) -> Result<Verdict, String> {
    let mut quotients = Vec::new();
    let mut noise = Vec::new();
    for _ in 0..rounds {
        let mut fastest = [f64::MAX; 3];
        for _ in 0..3 {
            for (best, with) in fastest.iter_mut().zip([false, true, false]) {
                let options = with.then_some("detail=survivors;windows=budget;sampling=off;wait_ms=0");
                let times = setup.java(options, 512, &["work", "json", "6"])?;
                *best = best.min(times.values().flatten().sum());
            }
        }
        quotients.push(fastest[1] / fastest[0]);
        noise.push(fastest[2] / fastest[0]);
    }
    let (quotient, noise) = (middle(quotients)?, middle(noise)?);
    println!("loaded and idle, json: {quotient:.3} of plain (plain again {noise:.3})");
    Ok(Verdict::of("Java, loaded and idle: CPU by plain", quotient, IDLE))
}

/// The agent and the peer, alternately, each switched on and off in its own virtual machine, because only one agent per
/// virtual machine can sample.
fn sampling(setup: &Setup<'_>, workload: &str, rounds: u32) -> Result<Vec<Verdict>, String> {
    let (follow, rounds) = (offset::FOLLOW.to_string(), rounds.to_string());
    let spools = setup.spools().to_string_lossy().into_owned();
    let (mut noise, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..MACHINES {
        let arguments = ["sampling", workload, &rounds, &spools, &follow];
        let times = setup.java(Some("detail=survivors;windows=budget;wait_ms=0"), 1024, &arguments)?;
        ours.push(quotient(&times, "on", "off")?);
        noise.push(quotient(&times, "again", "off")?);
        if let Some(library) = &setup.peer {
            let times = setup.java(None, 1024, &["peer", workload, &rounds, &library.to_string_lossy()])?;
            theirs.push(quotient(&times, "on", "off")?);
        }
    }
    let (noise, ours) = (middle(noise)?, middle(ours)?);
    print!("sampling, {workload}: {ours:.3} of off (off again {noise:.3})");
    let mut verdicts = Vec::new();
    if let Ok(theirs) = middle(theirs) {
        let by_peer = ours / theirs;
        print!(", async-profiler alloc=512k,live {theirs:.3}; ours by theirs {by_peer:.3}");
        let what = format!("Java, sampling, {workload}: CPU by async-profiler's");
        verdicts.push(Verdict::of(&what, by_peer, BY_PEER));
    }
    println!();
    if workload == "json" {
        verdicts.push(Verdict::of("Java, sampling, json: CPU by untracked", ours, JSON));
    }
    Ok(verdicts)
}

fn heap(setup: &Setup<'_>, objects: u32, mebibytes: u32, rounds: u32) -> Result<Vec<Verdict>, String> {
    let offsets = [offset::BOUNDARY, offset::ACKNOWLEDGED, offset::ORDERS, offset::HARNESS, offset::CLASSES]
        .map(|at| at.to_string())
        .join(",");
    let dump = setup.folder.join("heap.hprof");
    let (spools, dump) = (setup.spools(), dump.to_string_lossy());
    let arguments =
        ["heap", &spools.to_string_lossy(), &offsets, &objects.to_string(), &rounds.to_string(), &dump];
    let times =
        setup.java(Some("detail=growth;windows=each;sampling=off;wait_ms=2000"), mebibytes, &arguments)?;
    let taken = |what: &str| times.get(what).map_or(0.0, |all| median(all.clone()).unwrap_or(0.0) / 1e6);
    let quotient = |of: &str, by: &str| quotient(&times, of, by);
    let (by_collection, by_dump) = (quotient("boundary", "collection")?, quotient("boundary", "dump")?);
    let (survivors, explained) = (quotient("survivors", "collection")?, quotient("explained", "collection")?);
    println!(
        "{objects} objects, ms: collection {:.0}, boundary {:.0} ({by_collection:.2} of it), heap dump {:.0} (boundary {by_dump:.2} \
         of it), exact survivors {:.0} ({survivors:.2} collections), explaining with holders {:.0} ({explained:.2})",
        taken("collection"),
        taken("boundary"),
        taken("dump"),
        taken("survivors"),
        taken("explained"),
    );
    let name = |what: &str| format!("Java, {objects} objects: {what}");
    Ok(vec![
        Verdict::of(&name("boundary by a collection"), by_collection, BY_COLLECTION),
        Verdict::of(&name("boundary by a heap dump"), by_dump, BY_DUMP),
        Verdict::of(
            &name("exact survivors of a grown class by a collection"),
            survivors,
            SURVIVORS_BY_COLLECTION,
        ),
    ])
}

fn middle(values: Vec<f64>) -> Result<f64, String> {
    median(values).ok_or_else(|| "measure Java: there was no round".to_owned())
}

/// The median of the quotients within the rounds.
fn quotient(times: &Times, of: &str, by: &str) -> Result<f64, String> {
    match (times.get(of), times.get(by)) {
        (Some(of), Some(by)) if of.len() == by.len() && !of.is_empty() => {
            middle(of.iter().zip(by).map(|(of, by)| of / by).collect())
        }
        _ => Err(format!("read what the Java bench measured: {of} by {by} is not there")),
    }
}

impl Setup<'_> {
    fn spools(&self) -> PathBuf {
        self.folder.join("java-spools")
    }

    /// Runs the bench, with the agent if `options` are given. Returns what it printed.
    fn java(&self, options: Option<&str>, mebibytes: u32, arguments: &[&str]) -> Result<Times, String> {
        let spools = self.spools();
        fs::create_dir_all(&spools).map_err(|e| format!("make {}: {e}", spools.display()))?;
        let mut command = Command::new(&self.java);
        command.args([format!("-Xms{mebibytes}m"), format!("-Xmx{mebibytes}m")]);
        if let Some(options) = options {
            let file = self.folder.join("java-options");
            let text = format!(
                "dir={};target=all;java=1;jars={};{options}\n",
                spools.display(),
                self.folder.join("jars").display()
            );
            fs::write(&file, text).map_err(|e| format!("write {}: {e}", file.display()))?;
            command.arg(format!("-agentpath:{}={}", self.agent.display(), file.display()));
        } else {
            // The bench needs the agent's class in any case.
            let mut boot = OsString::from("-Xbootclasspath/a:");
            boot.push(self.folder.join("jars/memgate-agent-java.jar"));
            command.arg(boot);
        }
        command.arg("-cp").arg(&self.class_path).arg("JavaBench").args(arguments);
        let output = command
            .stderr(Stdio::inherit())
            .output()
            .map_err(|e| format!("run {}: {e}", self.java.display()))?;
        fs::remove_dir_all(&spools).map_err(|e| format!("remove {}: {e}", spools.display()))?;
        if !output.status.success() {
            return Err(format!("run the Java bench {arguments:?}: {}", output.status));
        }
        let mut times = Times::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            if let Some((what, Ok(nanoseconds))) =
                line.split_once(' ').map(|(what, number)| (what, number.parse::<f64>()))
            {
                times.entry(what.to_owned()).or_default().push(nanoseconds);
            }
        }
        Ok(times)
    }
}

/// `$JAVA_HOME`; without it, the home of the `java` in the path.
fn java_home() -> Result<PathBuf, String> {
    if let Some(home) = std::env::var_os("JAVA_HOME") {
        return Ok(home.into());
    }
    let output = Command::new("java")
        .args(["-XshowSettings:properties", "-version"])
        .output()
        .map_err(|e| format!("find a JDK: run java: {e}"))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let home = text.lines().find_map(|line| line.trim().strip_prefix("java.home = "));
    home.map(PathBuf::from).ok_or_else(|| "find a JDK: `java` does not tell its java.home".to_owned())
}

/// Compiles the bench and the agent's class, which it calls. Only that class goes into the jar that the agent requires;
/// the jar of the listener, which is not needed here, has no classes of its own.
fn compile(java: &Path, classes: &Path, jars: &Path) -> Result<(), String> {
    let tool = |name: &str| java.with_file_name(name);
    let hooks = classes.with_file_name("hooks");
    succeed(Command::new(tool("javac")).arg("-d").arg(&hooks).arg(HOOKS))?;
    succeed(Command::new(tool("javac")).arg("-cp").arg(&hooks).arg("-d").arg(classes).arg(BENCH))?;
    for (jar, content) in [("memgate-agent-java.jar", "io"), ("memgate-junit-platform.jar", "io/memgate")] {
        succeed(Command::new(tool("jar")).arg("cf").arg(jars.join(jar)).arg("-C").arg(&hooks).arg(content))?;
    }
    Ok(())
}

/// The peer's jar and library.
fn fetch_peer(java: &Path, folder: &Path) -> Result<(PathBuf, PathBuf), String> {
    succeed(
        Command::new("mvn")
            .args(["-q", "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"])
            .arg(format!("-Dartifact={PEER}"))
            .arg(format!("-DoutputDirectory={}", folder.display())),
    )?;
    let jar = folder.join("async-profiler-4.0.jar");
    succeed(
        Command::new(java.with_file_name("jar")).arg("xf").arg(&jar).arg(PEER_LIBRARY).current_dir(folder),
    )?;
    Ok((jar, folder.join(PEER_LIBRARY)))
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|e| format!("run {program}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("run {command:?}: {status}")) }
}
