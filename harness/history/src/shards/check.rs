//! Do shards make up a whole? What is missing, what does not fit together, what ran where it should not: an error of the
//! merged run, so that no shard that never ran is a pass.

use std::collections::{BTreeMap, BTreeSet};

use memgate_model::{Part, Problem};

use super::split::class_of;
use super::{Partition, ShardReport, UnitKind};

/// Units that are named of many.
const SHOWN: usize = 10;

/// Everything that keeps these shards, one for each part, from being the whole. `expected`: how many there must be.
pub(super) fn problems(shards: &[&ShardReport], expected: Option<u32>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let Some(first) = shards.first() else { return problems };
    let of = expected.unwrap_or_else(|| first.partition.part.of());
    for shard in shards.iter().filter(|shard| shard.partition.part.of() != of) {
        let what = format!("it is part {}, and there must be {of} of them", shard.partition.part);
        problems.push(problem(shard, what, "merge the shards of one run"));
    }
    missing(shards, of, &mut problems);
    for shard in shards {
        if shard.report.is_none() {
            let what = "it ended before it had a report: what fell to it was not measured".to_owned();
            problems.push(problem(shard, what, "run it again"));
        }
        differences(first, shard, &mut problems);
        ran_elsewhere(shard, &mut problems);
    }
    divided(shards, &mut problems);
    if shards.iter().all(|shard| shard.partition.counts().1 == 0) {
        problems.push(Problem {
            r#where: "shards".to_owned(),
            what: "there is no test in any of them".to_owned(),
            hint: "is the filter right?".to_owned(),
        });
    }
    problems
}

fn problem(shard: &ShardReport, what: String, hint: &str) -> Problem {
    Problem { r#where: place(shard.partition.part), what, hint: hint.to_owned() }
}

fn place(part: Part) -> String {
    format!("shard {part}")
}

fn missing(shards: &[&ShardReport], of: u32, problems: &mut Vec<Problem>) {
    let there: BTreeSet<u32> = shards.iter().map(|shard| shard.partition.part.index()).collect();
    let missing: Vec<String> =
        (1..=of).filter(|index| !there.contains(index)).map(|index| format!("{index}/{of}")).collect();
    if missing.is_empty() {
        return;
    }
    let (shards, are) = if missing.len() == 1 { ("shard", "is") } else { ("shards", "are") };
    problems.push(Problem {
        r#where: "shards".to_owned(),
        what: format!("{shards} {} {are} missing: what fell there was not measured", shown(&missing)),
        hint: "did the job run, and was its session kept?".to_owned(),
    });
}

/// What must be the same everywhere, and is not.
fn differences(first: &ShardReport, shard: &ShardReport, problems: &mut Vec<Problem>) {
    type Figure = fn(&Partition) -> String;
    let of: [(&str, Figure); 6] = [
        ("commit", |it| it.commit.clone()),
        ("version of memgate", |it| it.memgate.clone()),
        ("memgate.yaml or options", |it| it.config.clone()),
        ("baseline", |it| it.baseline.clone()),
        ("timings", |it| it.timings.clone()),
        ("selection of tests", |it| it.narrowed.to_string()),
    ];
    let reference = first.partition.part;
    let (a, b) = (&first.partition, &shard.partition);
    for (name, of) in of {
        let (a, b) = (of(a), of(b));
        if a != b {
            let short = |text: &str| {
                if text.is_empty() { "none".to_owned() } else { text.chars().take(12).collect() }
            };
            let what = format!("another {name} than shard {reference}: {}, there {}", short(&b), short(&a));
            problems.push(problem(shard, what, "all shards of a run need the same"));
        }
    }
    let units = |it: &Partition| -> BTreeMap<String, BTreeSet<String>> {
        it.suites.iter().map(|suite| (suite.suite.clone(), suite.units.iter().cloned().collect())).collect()
    };
    let (a, b) = (units(a), units(b));
    let nothing = BTreeSet::new();
    for suite in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
        let (a, b) = (a.get(suite).unwrap_or(&nothing), b.get(suite).unwrap_or(&nothing));
        for (units, has) in [(a.difference(b), "does not have"), (b.difference(a), "alone has")] {
            let units: Vec<String> = units.cloned().collect();
            if !units.is_empty() {
                let what = format!("it {has} {} of {suite}, compared with shard {reference}", shown(&units));
                problems.push(problem(shard, what, "was it built from the same sources?"));
            }
        }
    }
}

/// Tests that fell to another shard and ran here.
fn ran_elsewhere(shard: &ShardReport, problems: &mut Vec<Problem>) {
    let suites = || shard.partition.suites.iter().filter(|suite| suite.kind != UnitKind::Program);
    let all: BTreeSet<&str> = suites().flat_map(|suite| &suite.units).map(String::as_str).collect();
    let own: BTreeSet<&str> = suites().flat_map(|suite| &suite.own).map(String::as_str).collect();
    let tests = shard.report.iter().flat_map(|report| &report.suites).flat_map(|suite| &suite.tests);
    let units: BTreeSet<&str> =
        tests.flat_map(|test| [Some(test.id.as_str()), class_of(&test.id)]).flatten().collect();
    let foreign: Vec<String> = units
        .into_iter()
        .filter(|unit| all.contains(unit) && !own.contains(unit))
        .map(str::to_owned)
        .collect();
    if !foreign.is_empty() {
        let what = format!("{} ran here, and fell to another shard", shown(&foreign));
        problems.push(problem(shard, what, "does the suite select its tests itself?"));
    }
}

/// Does every unit belong to one shard?
fn divided(shards: &[&ShardReport], problems: &mut Vec<Problem>) {
    let mut owners = BTreeMap::<(&str, &str), u32>::new();
    for suite in shards.iter().flat_map(|shard| &shard.partition.suites) {
        for unit in &suite.units {
            owners.entry((&suite.suite, unit)).or_default();
        }
        for unit in &suite.own {
            *owners.entry((&suite.suite, unit)).or_default() += 1;
        }
    }
    for (wrong, what) in
        [(0, "belong to none of these shards: not measured"), (2, "belong to several shards")]
    {
        let units =
            owners.iter().filter(|(_, count)| if wrong == 0 { **count == 0 } else { **count >= wrong });
        let units: Vec<String> = units.map(|((suite, unit), _)| format!("{suite}::{unit}")).collect();
        if !units.is_empty() {
            problems.push(Problem {
                r#where: "shards".to_owned(),
                what: format!("{} {what}", shown(&units)),
                hint: String::new(),
            });
        }
    }
}

/// `a, b and 12 more`.
fn shown(names: &[String]) -> String {
    let first = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}
