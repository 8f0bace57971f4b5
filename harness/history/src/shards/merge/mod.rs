//! Merges shards into one report: the report of one machine, except for times and one-time allocations of processes.
//!
//! Data flow: shards → the last attempt at each (`attempts`) → problems of the whole (`check`), suites of the same name
//! (`suites`), their tests (`suite_tests`), and what belongs to the run (`run`) → [`Merged`].
//!
//! The order in which shards arrive does not matter. Of several attempts at a shard, the last counts. Figures of a
//! suite as a whole are listed by shard and never added; the suite itself shows the largest.

mod run;
mod suite_tests;
mod suites;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use memgate_model::{Problem, RunReport, Shard, ShardNumber, SuiteReport, Verdict};

use super::{ShardReport, check};

/// The result of merging shards.
#[derive(Debug, Clone, PartialEq)]
pub struct Merged {
    /// The merged report.
    pub report: RunReport,
    /// Shards are missing or inconsistent: the report says why.
    pub incomplete: bool,
}

/// Merges all shards into one report. `session`: the name of the merged session. `expected`: how many shards there must
/// be. `broken`: problems of inputs that are no shards but should be. `None`: none of the shards has a report.
#[must_use]
pub fn merge(
    mut shards: Vec<ShardReport>,
    expected: Option<u32>,
    broken: Vec<Problem>,
    session: &str,
) -> Option<Merged> {
    let key = |it: &ShardReport| (it.description.number, it.started.clone(), it.session.clone());
    shards.sort_by_key(key);
    // A copy is not another attempt.
    shards.dedup_by_key(|shard| key(shard));
    let (last, earlier) = attempts(&shards);
    let mut errors = broken;
    errors.extend(check::problems(&last, expected));
    let incomplete = !errors.is_empty();
    let reports: Vec<(&ShardReport, &RunReport)> =
        last.iter().filter_map(|shard| Some((*shard, shard.report.as_ref()?))).collect();
    let (_, first) = reports.first()?;
    for (shard, problem) in
        reports.iter().flat_map(|(shard, report)| report.errors.iter().map(move |it| (shard, it)))
    {
        let r#where = format!("{}, {}", check::place(shard.description.number), problem.r#where);
        errors.push(Problem { r#where, ..problem.clone() });
    }
    let narrowed = last.iter().any(|shard| shard.description.narrowed);
    let suites = suites::suites(&reports);
    let verdict = if incomplete { Verdict::Error } else { Verdict::Pass };
    let verdict = verdict.max(Verdict::of_suites(&suites)).max(own_verdicts(&reports));
    let is_whole = |report: &RunReport| {
        report.verdict != Verdict::Error && report.suites.iter().all(SuiteReport::is_whole)
    };
    let all_whole = reports.iter().all(|(_, report)| is_whole(report));
    let waivers = run::waivers(&reports, narrowed || incomplete || !all_whole);
    let of_waivers =
        waivers.iter().filter(|_| !narrowed && !incomplete).filter_map(|waiver| waiver.fixed.as_ref());
    let verdict = of_waivers.map(|fixed| fixed.level.verdict()).fold(verdict, Verdict::max);
    let report = RunReport {
        verdict,
        exit_code: verdict.exit_code(reports.iter().any(|(_, report)| report.exit_code == 1)),
        session: session.to_owned(),
        started: reports.iter().map(|(_, report)| report.started.clone()).min().unwrap_or_default(),
        duration_s: reports.iter().map(|(_, report)| report.duration_s).fold(0.0, f64::max),
        agent_cost: run::agent_cost(reports.iter().map(|(_, report)| &report.agent_cost)),
        suites,
        waivers,
        errors,
        // A shard warns of the command only.
        warnings: reports
            .iter()
            .flat_map(|(_, report)| report.warnings.clone())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect(),
        followed: run::followed(reports.iter().filter_map(|(_, report)| report.followed.as_ref())),
        shards: last.iter().map(|shard| entry(shard, earlier.get(&shard.description.number))).collect(),
        ..(*first).clone()
    };
    Some(Merged { report, incomplete })
}

/// The last attempt at each shard, and the earlier ones of the same run by shard.
fn attempts(shards: &[ShardReport]) -> (Vec<&ShardReport>, BTreeMap<ShardNumber, Vec<&ShardReport>>) {
    let mut last = Vec::<&ShardReport>::new();
    let mut earlier = BTreeMap::<ShardNumber, Vec<&ShardReport>>::new();
    for shard in shards {
        match last.last_mut().filter(|before| before.description.number == shard.description.number) {
            Some(before) => {
                earlier.entry(shard.description.number).or_default().push(before);
                *before = shard;
            }
            None => last.push(shard),
        }
    }
    for (number, attempts) in &mut earlier {
        let counts = last.iter().find(|shard| shard.description.number == *number);
        attempts.retain(|attempt| counts.is_some_and(|counts| is_attempt(attempt, counts)));
    }
    (last, earlier)
}

/// Is it an earlier attempt at the same shard, and not left over from another run?
fn is_attempt(earlier: &ShardReport, counts: &ShardReport) -> bool {
    let pipeline = |shard: &ShardReport| {
        let origin = shard.report.as_ref().and_then(|report| report.origin.as_ref());
        origin.and_then(|origin| origin.ci.as_ref()).map(|ci| ci.pipeline.clone())
    };
    let told = earlier.report.is_some() && counts.report.is_some();
    earlier.description.commit == counts.description.commit
        && (!told || pipeline(earlier) == pipeline(counts))
}

/// The entry of a shard in the report.
fn entry(shard: &ShardReport, earlier: Option<&Vec<&ShardReport>>) -> Shard {
    let earlier = earlier.map_or(&[][..], Vec::as_slice);
    let verdicts = |it: &ShardReport| -> BTreeMap<(String, String), Verdict> {
        let suites = it.report.iter().flat_map(|report| &report.suites);
        let tests = suites.flat_map(|suite| suite.tests.iter().map(move |test| (suite, test)));
        tests.map(|(suite, test)| ((suite.name.clone(), test.id.clone()), test.verdict)).collect()
    };
    let now = verdicts(shard);
    let differs = |it: &&ShardReport| -> Vec<String> {
        let before = verdicts(it);
        let other =
            before.into_iter().filter(|(test, verdict)| now.get(test).is_some_and(|now| now != verdict));
        other.map(|((suite, test), _)| format!("{suite}::{test}")).collect()
    };
    let disagree: BTreeSet<String> = earlier.iter().flat_map(differs).collect();
    let report = shard.report.as_ref();
    Shard {
        session: shard.session.clone(),
        started: report.map_or_else(|| shard.started.clone(), |report| report.started.clone()),
        replaces: earlier.iter().map(|it| it.session.clone()).collect(),
        disagree: disagree.into_iter().collect(),
        ..shard.description.entry(report)
    }
}

/// The worst verdict of a shard itself: its errors, or a command that failed. A shard without units or without judged
/// tests does not count.
fn own_verdicts(reports: &[(&ShardReport, &RunReport)]) -> Verdict {
    let counts = |report: &&RunReport| report.verdict != Verdict::NotJudged || report.exit_code == 1;
    let all = reports.iter().map(|(_, report)| *report);
    Verdict::worst(all.filter(counts).map(|report| report.verdict)).unwrap_or(Verdict::Pass)
}
