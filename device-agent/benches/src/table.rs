//! Makes the table and its verdicts from samples. Ratios are medians of the ratios within one round.

use crate::inputs::Kind;
use crate::measure::Sample;

/// The bounds for all rows; those of churn are defined with the workloads.
mod bound {
    pub(super) const REAL_MEDIAN: f64 = 1.45;
    pub(super) const REAL_WORST: f64 = 1.6;
    pub(super) const PEER_EACH: f64 = 1.0 / 2.0;
    pub(super) const PEER_ALL: f64 = 1.0 / 3.5;
    pub(super) const MEMORY: f64 = 1.35;
    pub(super) const MEMORY_DIVERSE: f64 = 1.6;
    pub(super) const MEMORY_MIB: f64 = 4.0;
    pub(super) const DORMANT: f64 = 1.02;
    /// The agent's own figure may differ from the added cost by this fraction of it, or by one percent of the run.
    pub(super) const SAID: f64 = 0.2;
    pub(super) const SAID_POINTS: f64 = 0.01;
}

/// The runs of one workload in one round, one after the other.
#[derive(Default)]
pub(crate) struct Round {
    pub(crate) plain: Vec<Sample>,
    pub(crate) tracked: Vec<Sample>,
    pub(crate) dormant: Vec<Sample>,
    pub(crate) peer: Vec<Sample>,
}

/// The results of a workload.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    plain_s: f64,
    tracked: f64,
    peer: Option<f64>,
    /// Our added CPU time divided by that of the peer.
    quotient: Option<f64>,
    plain_mib: f64,
    tracked_mib: f64,
    dormant: Option<f64>,
    control: Option<f64>,
    /// The agent's own figure for its cost, and its measured cost, as fractions of the untracked run.
    said: f64,
    added: f64,
}

impl Row {
    /// Other processes can only add to a run's CPU time, so the fastest of equal runs in a round counts. The cost of a
    /// dormant agent is very small, so it is compared between the fastest of all runs.
    pub(crate) fn new(name: &'static str, kind: Kind, rounds: &[Round]) -> Self {
        let ratio = |pick: fn(&Round) -> &[Sample]| {
            let of = |r: &Round| Some(fastest(pick(r).iter())? / fastest(r.plain.iter())?);
            median(rounds.iter().filter_map(of).collect())
        };
        let memory = |pick: fn(&Round) -> &[Sample]| {
            median(rounds.iter().flat_map(pick).map(|s| s.peak_mib).collect()).unwrap_or(0.0)
        };
        let tracked = ratio(|r| &r.tracked).unwrap_or(0.0);
        let peer = ratio(|r| &r.peer);
        let plain = || rounds.iter().flat_map(|r| &r.plain);
        let plain_s = fastest(plain());
        let (even, odd) = (fastest(plain().step_by(2)), fastest(plain().skip(1).step_by(2)));
        Self {
            name,
            kind,
            plain_s: median(plain().map(|s| s.cpu_s).collect()).unwrap_or(0.0),
            tracked,
            peer,
            quotient: peer.map(|peer| (tracked - 1.0).max(0.0) / (peer - 1.0)),
            plain_mib: memory(|r| &r.plain),
            tracked_mib: memory(|r| &r.tracked),
            dormant: fastest(rounds.iter().flat_map(|r| &r.dormant)).zip(plain_s).map(|(d, p)| d / p),
            control: even.zip(odd).map(|(a, b)| a / b),
            said: median(rounds.iter().filter_map(said).collect()).unwrap_or(0.0),
            added: tracked - 1.0,
        }
    }

    fn is_real(&self) -> bool {
        matches!(self.kind, Kind::Real { .. })
    }
}

/// As the report computes it: the agent's figure divided by the process's time without it. Boundaries are reported in
/// wall time, so the fastest run counts here, too.
fn said(round: &Round) -> Option<f64> {
    let told = round.tracked.iter().filter_map(|s| s.told).min()?.as_secs_f64();
    Some(told / (fastest(round.tracked.iter())? - told))
}

/// The head of the table.
pub(crate) const HEAD: &str = "\
workload        plain s   ours  heaptrack  added ours/heaptrack  RSS plain   RSS ours  dormant  control  said/added";

/// One line of the table.
pub(crate) fn line(row: &Row) -> String {
    let or_dash = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.3}"));
    format!(
        "{:<14} {:>8.3} {:>6.3} {:>10} {:>21} {:>6.1} MiB {:>5.1} MiB {:>8} {:>8} {:>5.2}/{:.2}",
        row.name,
        row.plain_s,
        row.tracked,
        or_dash(row.peer),
        or_dash(row.quotient),
        row.plain_mib,
        row.tracked_mib,
        or_dash(row.dormant),
        or_dash(row.control),
        row.said,
        row.added,
    )
}

/// One bound and the measured value.
pub(crate) struct Verdict {
    text: String,
    pub(crate) holds: bool,
}

impl Verdict {
    /// `seen` is at most `limit`.
    pub(crate) fn of(what: &str, seen: f64, limit: f64) -> Self {
        Self { text: format!("{what}: {seen:.3}, at most {limit:.3}"), holds: seen <= limit }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}  {}", if self.holds { "holds   " } else { "EXCEEDED" }, self.text)
    }
}

/// `allow`: the fraction by which CPU ratios may exceed their bounds on a machine that also runs other programs.
pub(crate) fn verdicts(rows: &[Row], allow: f64) -> Vec<Verdict> {
    let mut all = Vec::new();
    let mut judge = |what: &str, seen: f64, limit: f64, slack: f64| {
        let slack = if slack > 0.0 && seen > limit { limit * slack } else { 0.0 };
        let within = if slack > 0.0 { " (and what is allowed)" } else { "" };
        all.push(Verdict::of(&format!("{what}{within}"), seen, limit + slack));
    };
    let real: Vec<&Row> = rows.iter().filter(|row| row.is_real()).collect();
    if let Some(middle) = median(real.iter().map(|row| row.tracked).collect()) {
        judge("CPU, median of the programs", middle, bound::REAL_MEDIAN, allow);
    }
    for row in rows {
        let limit = match row.kind {
            Kind::Real { .. } => bound::REAL_WORST,
            Kind::Churn { bound } => bound,
        };
        judge(&format!("CPU, {}", row.name), row.tracked, limit, allow);
    }
    for row in &real {
        if let Some(quotient) = row.quotient {
            judge(&format!("added CPU by heaptrack's, {}", row.name), quotient, bound::PEER_EACH, allow);
        }
    }
    let quotients: Vec<f64> = real.iter().filter_map(|row| row.quotient).collect();
    if let Some(mean) = geometric_mean(&quotients) {
        judge("added CPU by heaptrack's, all programs", mean, bound::PEER_ALL, allow);
    }
    for row in rows {
        let factor = match row.kind {
            Kind::Real { diverse: true } => bound::MEMORY_DIVERSE,
            _ => bound::MEMORY,
        };
        let limit = row.plain_mib * factor + bound::MEMORY_MIB;
        judge(&format!("peak memory in MiB, {}", row.name), row.tracked_mib, limit, 0.0);
    }
    for row in rows {
        let apart = (row.said - row.added).abs();
        if apart > bound::SAID_POINTS {
            judge(
                &format!("what the agent says it costs, {}: off by", row.name),
                apart / row.added,
                bound::SAID,
                allow,
            );
        }
    }
    if let Some(dormant) = median(real.iter().filter_map(|row| row.dormant).collect()) {
        let noise = real.iter().filter_map(|row| row.control).map(|control| (control - 1.0).abs());
        let noise = median(noise.collect()).unwrap_or(0.0);
        let what =
            format!("CPU while dormant, median of the programs (plain against plain: {noise:.3} apart)");
        judge(&what, dormant, bound::DORMANT, 0.0);
    }
    all
}

/// The smallest CPU time, in seconds.
fn fastest<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<f64> {
    samples.map(|s| s.cpu_s).min_by(f64::total_cmp)
}

/// The geometric mean of the quotients of the programs.
pub(crate) fn mean_quotient(rows: &[Row]) -> Option<f64> {
    geometric_mean(
        &rows.iter().filter(|row| row.is_real()).filter_map(|row| row.quotient).collect::<Vec<_>>(),
    )
}

/// A quotient of 0 (no visible cost) would make the whole mean 0, so it counts as 1/100.
fn geometric_mean(values: &[f64]) -> Option<f64> {
    let logs: f64 = values.iter().map(|v| v.max(0.01).ln()).sum();
    #[expect(clippy::cast_precision_loss, reason = "a count of rows")]
    let count = values.len() as f64;
    (!values.is_empty()).then(|| (logs / count).exp())
}

pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = *values.get((values.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}
