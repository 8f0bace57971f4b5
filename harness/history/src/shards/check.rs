//! Do shards make up a whole run? Anything missing, inconsistent, not run, or run in the wrong shard is an error of the
//! merged run. So a shard that never ran is no pass.

use std::collections::{BTreeMap, BTreeSet};

use memgate_model::{Problem, RunReport, ShardNumber, SuiteReport, format_list};

use super::split::class_of;
use super::{ShardDescription, ShardReport, SuiteUnits, UnitKind, is_disabled};

/// Most units to name.
const SHOWN: usize = 10;

/// All problems that keep these shards, one per number, from being a whole run. `expected`: how many there must be.
pub(super) fn problems(shards: &[&ShardReport], expected: Option<u32>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let Some(first) = shards.first() else { return problems };
    let of = expected.unwrap_or_else(|| first.description.number.of());
    for shard in shards.iter().filter(|shard| shard.description.number.of() != of) {
        let what = format!("it is part {}, and there must be {of} of them", shard.description.number);
        problems.push(problem(shard, what, "merge the shards of one run"));
    }
    missing(shards, of, &mut problems);
    let mut told = shards.iter().filter(|shard| shard.report.is_some());
    let reference = told.next().unwrap_or(first);
    for shard in shards {
        match &shard.report {
            None => {
                let what = "it ended before it had a report: what fell to it was not measured".to_owned();
                problems.push(problem(shard, what, "run it again"));
            }
            Some(report) => {
                differences(reference, shard, report, &mut problems);
                unlike(shard, report, &mut problems);
            }
        }
    }
    divided(shards, &mut problems);
    nothing_ran(shards, &mut problems);
    named_alike(shards, &mut problems);
    problems
}

fn problem(shard: &ShardReport, what: String, hint: &str) -> Problem {
    Problem { r#where: place(shard.description.number), what, hint: hint.to_owned() }
}

pub(super) fn place(number: ShardNumber) -> String {
    format!("shard {number}")
}

/// A problem of the run as a whole.
fn of_run(what: String, hint: &str) -> Problem {
    Problem { r#where: "shards".to_owned(), what, hint: hint.to_owned() }
}

fn missing(shards: &[&ShardReport], of: u32, problems: &mut Vec<Problem>) {
    let there: BTreeSet<u32> = shards.iter().map(|shard| shard.description.number.index()).collect();
    let missing: Vec<String> =
        (1..=of).filter(|index| !there.contains(index)).map(|index| format!("{index}/{of}")).collect();
    let (shards, are) = if missing.len() == 1 { ("shard", "is") } else { ("shards", "are") };
    if !missing.is_empty() {
        let what = format!(
            "{shards} {} {are} missing: what fell there was not measured",
            format_list(&missing, SHOWN)
        );
        problems.push(of_run(what, "did the job run, and was its session kept?"));
    }
}

/// Reports values that differ between shards but must be equal.
fn differences(first: &ShardReport, shard: &ShardReport, report: &RunReport, problems: &mut Vec<Problem>) {
    type Figure = fn(&ShardDescription) -> String;
    let of: [(&str, Figure); 8] = [
        ("commit", |it| it.commit.clone()),
        ("state of the project's files", |it| if it.dirty { "changed" } else { "committed" }.to_owned()),
        ("version of memgate", |it| it.memgate.clone()),
        ("memgate.yaml", |it| it.config.clone()),
        ("set of options", |it| it.options.clone()),
        ("baseline", |it| it.baseline.clone()),
        ("file of timings", |it| it.timings.clone()),
        ("selection of tests", |it| if it.narrowed { "some".to_owned() } else { "all".to_owned() }),
    ];
    let reference = first.description.number;
    let mut differs = |name: &str, (here, there): (String, String), hint: &str| {
        if here != there {
            let shown = |text: String| if text.is_empty() { "none".to_owned() } else { text };
            let what =
                format!("another {name} than shard {reference}: {}, there {}", shown(here), shown(there));
            problems.push(problem(shard, what, hint));
        }
    };
    for (name, of) in of {
        differs(name, (of(&shard.description), of(&first.description)), "all shards of a run need the same");
    }
    if let Some(there) = &first.report {
        let ci = |report: &RunReport| {
            report.origin.as_ref().and_then(|origin| origin.ci.clone()).unwrap_or_default()
        };
        differs(
            "pipeline",
            (ci(report).pipeline, ci(there).pipeline),
            "is it left over from an earlier run?",
        );
        let base = |report: &RunReport| report.base.clone().map(|base| base.sha).unwrap_or_default();
        differs(
            "base",
            (base(report), base(there)),
            "fetch it once, for all shards: `memgate baseline fetch`",
        );
    }
    let mut suites = BTreeMap::<&str, [&[String]; 2]>::new();
    for (side, description) in [&first.description, &shard.description].into_iter().enumerate() {
        for suite in &description.suites {
            suites.entry(&suite.suite).or_default()[side] = &suite.units;
        }
    }
    for (suite, [there, here]) in suites.into_iter().filter(|(_, [there, here])| there != here) {
        let (there, here) = (there.iter().collect::<BTreeSet<_>>(), here.iter().collect::<BTreeSet<_>>());
        for (units, has) in [(&there - &here, "does not have"), (&here - &there, "alone has")] {
            let units: Vec<&String> = units.into_iter().collect();
            if !units.is_empty() {
                let what = format!(
                    "it {has} {} of {suite}, compared with shard {reference}",
                    format_list(&units, SHOWN)
                );
                problems.push(problem(shard, what, "was it built from the same sources?"));
            }
        }
    }
}

/// Reports tests that were assigned to this shard but did not run in it, and tests that ran in it but were assigned to
/// another.
fn unlike(shard: &ShardReport, report: &RunReport, problems: &mut Vec<Problem>) {
    for units in shard.description.suites.iter().filter(|units| units.kind != UnitKind::Program) {
        let of_it = |suite: &&SuiteReport| units.measured.contains_key(&suite.name);
        let ran = report.suites.iter().filter(of_it).flat_map(|suite| &suite.tests);
        let ran: BTreeSet<&str> = match units.kind {
            UnitKind::Class => ran.filter_map(|test| class_of(&test.id)).collect(),
            UnitKind::Test | UnitKind::Program => ran.map(|test| test.id.as_str()).collect(),
        };
        let own: BTreeSet<&str> = units.own.iter().map(String::as_str).collect();
        let foreign =
            units.units.iter().filter(|unit| ran.contains(unit.as_str()) && !own.contains(unit.as_str()));
        tell(shard, units, foreign, "ran here, and fell to another shard", problems);
        if units.kind == UnitKind::Test {
            let missing = units.own.iter().filter(|unit| !ran.contains(unit.as_str()) && !is_disabled(unit));
            tell(shard, units, missing, "fell to this shard and did not run", problems);
        }
    }
}

fn tell<'a>(
    shard: &ShardReport,
    suite: &SuiteUnits,
    units: impl Iterator<Item = &'a String>,
    what: &str,
    problems: &mut Vec<Problem>,
) {
    let units: Vec<&String> = units.collect();
    if !units.is_empty() {
        let what = format!("{} of {} {what}", format_list(&units, SHOWN), suite.suite);
        problems.push(problem(shard, what, "does the suite select its tests itself?"));
    }
}

/// Does every unit belong to exactly one shard?
fn divided(shards: &[&ShardReport], problems: &mut Vec<Problem>) {
    let mut owners = BTreeMap::<(&str, &str), u32>::new();
    for suite in shards.iter().flat_map(|shard| &shard.description.suites) {
        for unit in &suite.units {
            owners.entry((&suite.suite, unit)).or_default();
        }
        for unit in suite.own.iter().collect::<BTreeSet<_>>() {
            *owners.entry((&suite.suite, unit)).or_default() += 1;
        }
    }
    type Wrong = fn(u32) -> bool;
    let wrong: [(Wrong, &str); 2] = [
        (|owners| owners == 0, "belong to none of these shards: not measured"),
        (|owners| owners > 1, "belong to several shards"),
    ];
    for (wrong, what) in wrong {
        let units = owners.iter().filter(|(_, owners)| wrong(**owners));
        let units: Vec<String> = units.map(|((suite, unit), _)| format!("{suite}::{unit}")).collect();
        if !units.is_empty() {
            problems.push(of_run(format!("{} {what}", format_list(&units, SHOWN)), ""));
        }
    }
}

/// Reports suites that no shard measured.
fn nothing_ran(shards: &[&ShardReport], problems: &mut Vec<Problem>) {
    let suites = || shards.iter().flat_map(|shard| &shard.description.suites);
    let measured: BTreeSet<&str> =
        suites().filter(|suite| !suite.measured.is_empty()).map(|suite| suite.suite.as_str()).collect();
    let all: BTreeSet<&str> = suites().map(|suite| suite.suite.as_str()).collect();
    let nothing: Vec<&str> = all.difference(&measured).copied().collect();
    if !nothing.is_empty() {
        let what = format!("no shard measured anything of {}", format_list(&nothing, SHOWN));
        problems.push(of_run(what, "is the filter right, and were its tests up to date or skipped?"));
    }
    if all.is_empty() {
        problems.push(of_run("there is no test in any of them".to_owned(), "is the filter right?"));
    }
}

/// Reports different programs with the same name in different shards, and one program with several names: rules for a
/// suite would apply in some shards only. (A Java folder may have several names: unit and integration tests.)
fn named_alike(shards: &[&ShardReport], problems: &mut Vec<Problem>) {
    const HINT: &str = "make them suites of memgate.yaml, each with a name of its own";
    let mut things = BTreeMap::<(&str, &str), (ShardNumber, &str)>::new();
    let mut names = things.clone();
    for (shard, suite) in
        shards.iter().flat_map(|shard| shard.description.suites.iter().map(move |suite| (shard, suite)))
    {
        let number = shard.description.number;
        for (name, thing) in &suite.measured {
            let (first, is) = *things.entry((&suite.suite, name)).or_insert((number, thing));
            if is != thing {
                let told = format!("its suite {name} is {thing}, that of shard {first} is {is}");
                problems.push(problem(shard, told, HINT));
            }
            let (first, is) = *names.entry((&suite.suite, thing)).or_insert((number, name));
            if is != name && suite.kind != UnitKind::Class {
                problems.push(problem(
                    shard,
                    format!("it calls {thing} {name}, shard {first} calls it {is}"),
                    HINT,
                ));
            }
        }
    }
}
