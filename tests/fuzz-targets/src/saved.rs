//! Files that memgate reads back: `report.json`, the baseline, `session.json` with the facts of a run, and
//! shards of a run, each with its description. Byte 0 selects one.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use memgate_analysis::GatePolicy;
use memgate_config::Baseline;
use memgate_history::shards::{Merged, ShardDescription, ShardReport, merge};
use memgate_model::{Metric, Per, RunReport, Verdict};
use memgate_reports::{Flavour, HumanOptions, JunitOptions, from_json, human, json, junit};

use crate::folder;
use memgate::reading::Records;
use memgate::run::judge::judge;
use memgate::run::resolve::Symbols;
use memgate::session::Session;
use memgate::session::facts::Facts;
use memgate::symbol_files::SymbolFiles;

/// Folder of a session with one stream.
fn session() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let frames = folder("saved").join("frames");
        std::fs::create_dir_all(&frames).expect("a folder for frames");
        let stream = &include_bytes!("../../../fuzz/seeds/session/leaks")[4..];
        std::fs::write(frames.join("1-1.mgf"), stream).expect("room for a stream");
        folder("saved")
    })
}

fn render(report: &RunReport) {
    for colour in [false, true] {
        let options = HumanOptions { colour, width: Some(60), verbose: colour, report_path: None };
        let text = human(report, &options);
        assert!(colour || !text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }
    for flavour in [Flavour::Strict, Flavour::Extended] {
        // The writer refuses an invalid time; it can write everything else.
        let _xml = junit(report, &JunitOptions { flavour, ..JunitOptions::default() });
    }
    let text = json(report).expect("JSON holds every report");
    assert_eq!(json(&from_json(text.as_bytes()).expect("it reads back")).expect("JSON holds it"), text);
}

/// Runs one input.
///
/// # Panics
/// When a checked property does not hold; this is a finding.
pub fn run(data: &[u8]) {
    let Some((which, bytes)) = data.split_first() else { return };
    match which % 4 {
        0 => match from_json(bytes) {
            Ok(report) => {
                render(&report);
                let mut baseline = Baseline::default();
                baseline.accept(&report, false);
                let text = baseline.to_json().expect("JSON holds every baseline");
                assert_eq!(Baseline::from_json(&text).expect("it reads back"), baseline);
            }
            Err(why) => assert!(!why.to_string().is_empty()),
        },
        1 => match Baseline::from_json(&String::from_utf8_lossy(bytes)) {
            Ok(baseline) => {
                let text = baseline.to_json().expect("JSON holds every baseline");
                assert_eq!(Baseline::from_json(&text).expect("it reads back"), baseline);
                for (suite, figures) in &baseline.suites {
                    for test in figures.tests.keys() {
                        let _figure =
                            baseline.test_figure(suite, test, Metric::NativeLiveBytes, Per::Iteration);
                    }
                }
            }
            Err(why) => assert!(!why.to_string().is_empty()),
        },
        2 => {
            let folder = session();
            std::fs::write(folder.join("session.json"), bytes).expect("room for the session");
            let session = Session::open(folder).expect("the session is there");
            let Ok(Some(facts)) = Facts::load(&session) else { return };
            let again = serde_json::to_value(&facts).expect("JSON holds all facts");
            assert_eq!(serde_json::from_value::<Facts>(again).ok(), Some(facts.clone()));
            let mut symbols = Symbols::new(SymbolFiles::default());
            let frames = session.frames();
            let policy = GatePolicy::default();
            let report = judge(&facts, Records::new(), &frames, &policy, &mut symbols, &Arc::default());
            let fell_elsewhere = facts.may_be_empty || !facts.suites.is_empty();
            assert!(report.verdict != Verdict::Pass || fell_elsewhere, "nothing is no pass");
            render(&report);
        }
        _ => {
            let Ok(shards) = serde_json::from_slice::<Vec<(ShardDescription, Option<RunReport>)>>(bytes)
            else {
                return;
            };
            let missing = (1..).zip(&shards).any(|(index, (shard, _))| shard.number.index() != index)
                || shards.iter().any(|(shard, _)| shard.number.of() as usize != shards.len());
            let shard = |(description, report)| ShardReport {
                description,
                report,
                session: "s".to_owned(),
                started: String::new(),
            };
            let all: Vec<ShardReport> = shards.into_iter().map(shard).collect();
            let mut backward = all.clone();
            backward.reverse();
            let Some(Merged { report, .. }) = merge(all, None, Vec::new(), "m") else { return };
            assert!(!missing || report.verdict >= Verdict::Error, "what is missing is no pass");
            if !missing {
                let again = merge(backward, None, Vec::new(), "m").map(|merged| merged.report);
                assert_eq!(again.as_ref(), Some(&report), "in any order");
            }
            render(&report);
        }
    }
}
