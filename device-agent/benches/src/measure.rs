//! One measured run: a workload in one of the modes → CPU time and peak memory of that process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use memgate_wire::spool::Extent;
use memgate_wire::{AgentCost, BoundaryKind, Decoded, Frame, decode};

use crate::inputs::Workload;

/// The library that Debian's `libheaptrack` preloads.
const HEAPTRACK: &str = "/usr/lib/heaptrack/libheaptrack_preload.so";

/// Memory limit for the peer: enough for every workload, and it stops a peer that grows without bound.
const PEER_LIMIT_MIB: u32 = 6 * 1024;

/// The library that is loaded into the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// Nothing.
    Plain,
    /// The agent, recording with full stacks into a spool without a reader.
    Tracked,
    /// The agent with options whose target is another program.
    Dormant,
    /// The library that heaptrack loads into the process; its output is discarded.
    Peer,
}

/// The resources that a run used.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    pub(crate) cpu_s: f64,
    pub(crate) peak_mib: f64,
    /// The agent's own figure for its cost.
    pub(crate) told: Option<Duration>,
}

/// Everything a run needs except its workload.
pub(crate) struct Bench {
    /// Scratch folder.
    pub(crate) folder: PathBuf,
    pub(crate) agent: PathBuf,
    pub(crate) measure: PathBuf,
    /// Agent options in addition to those of every run.
    pub(crate) extra: String,
}

impl Bench {
    /// Runs `workload` once.
    pub(crate) fn run(&self, workload: &Workload, mode: Mode) -> Result<Sample, String> {
        let spools = self.folder.join("spools");
        fs::create_dir_all(&spools).map_err(|e| format!("make {}: {e}", spools.display()))?;
        let result = self.folder.join("result");
        let settings = self.settings(workload, mode, &spools);
        let limit = if mode == Mode::Peer { PEER_LIMIT_MIB } else { 0 };
        let stdin = match &workload.stdin {
            Some(path) => fs::File::open(path).map_err(|e| format!("open {}: {e}", path.display()))?.into(),
            None => Stdio::null(),
        };
        let output = Command::new(&self.measure)
            .arg(&result)
            .args([limit.to_string(), settings.len().to_string()])
            .args(&settings)
            .args(&workload.command)
            .stdin(stdin)
            .stderr(Stdio::null())
            .output()
            .map_err(|e| format!("run {}: {e}", workload.name))?;
        let text = fs::read_to_string(&result).map_err(|e| format!("read {}: {e}", result.display()))?;
        let numbers: Vec<f64> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        let &[whole_ns, peak_kib, 0.0] = numbers.as_slice() else {
            return Err(format!("{} {mode:?} did not succeed: {text}", workload.name));
        };
        let printed = String::from_utf8_lossy(&output.stdout);
        let cpu_ns = if workload.own_clock { printed.trim().parse().unwrap_or(whole_ns) } else { whole_ns };
        let told = if mode == Mode::Tracked { Some(last_cost(&spools, workload.own_clock)?) } else { None };
        fs::remove_dir_all(&spools).map_err(|e| format!("remove {}: {e}", spools.display()))?;
        Ok(Sample { cpu_s: cpu_ns / 1e9, peak_mib: peak_kib / 1024.0, told })
    }

    fn settings(&self, workload: &Workload, mode: Mode, spools: &Path) -> Vec<String> {
        let mut settings = workload.environment.clone();
        let target = match mode {
            Mode::Tracked => "all",
            _ => "exe:/nowhere",
        };
        match mode {
            Mode::Plain => {}
            Mode::Tracked | Mode::Dormant => {
                settings.push(format!("LD_PRELOAD={}", self.agent.display()));
                let options = options(spools, target);
                settings.push(format!("MEMGATE_AGENT_OPTIONS={options}{}", self.extra));
            }
            Mode::Peer => {
                settings.push(format!("LD_PRELOAD={HEAPTRACK}"));
                settings.push("DUMP_HEAPTRACK_OUTPUT=/dev/null".to_owned());
            }
        }
        settings
    }
}

/// The agent's options for a run without a harness.
pub(crate) fn options(spools: &Path, target: &str) -> String {
    format!("dir={};target={target};wait_ms=0", spools.display())
}

/// Is the peer installed?
pub(crate) fn peer_is_there() -> bool {
    Path::new(HEAPTRACK).exists()
}

/// The cost in the goodbye of the only spool in `folder`, which also proves that the run was recorded. With
/// `without_end`, the program measures its own time, which does not include the agent's work at its end.
fn last_cost(folder: &Path, without_end: bool) -> Result<Duration, String> {
    let read = |e: std::io::Error| format!("read {}: {e}", folder.display());
    let spool = fs::read_dir(folder).map_err(read)?.next().ok_or("find a spool: the run was not recorded")?;
    let bytes = fs::read(spool.map_err(read)?.path()).map_err(read)?;
    let extent = Extent::of(&bytes);
    let end = extent.end.and_then(|end| usize::try_from(end).ok()).unwrap_or(bytes.len());
    let mut rest = usize::try_from(extent.start).ok().and_then(|start| bytes.get(start..end)).unwrap_or(&[]);
    let (mut cost, mut start_ns) = (None::<AgentCost>, 0);
    loop {
        let skip = match decode(rest, 0).map_err(|e| format!("read a spool: {e}"))? {
            Decoded::Frame { frame, bytes, .. } => {
                match frame {
                    Frame::Boundary(b) if b.kind == BoundaryKind::ProcessStart => {
                        start_ns = b.cost.boundary_ns
                    }
                    Frame::Goodbye(goodbye) => {
                        if goodbye.counters.allocations == 0 {
                            return Err("record: the agent saw no allocation".to_owned());
                        }
                        cost = Some(goodbye.cost);
                    }
                    _ => {}
                }
                bytes
            }
            Decoded::Unknown { bytes, .. } => bytes,
            Decoded::Incomplete { .. } => break,
        };
        rest = rest.get(skip..).unwrap_or(&[]);
    }
    let cost = cost.ok_or("find a goodbye in the spool")?;
    let boundary_ns = if without_end { start_ns } else { cost.boundary_ns };
    Ok(Duration::from_nanos(boundary_ns.saturating_add(cost.recording_ns)))
}
