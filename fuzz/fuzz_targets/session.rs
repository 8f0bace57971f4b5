//! From frames to the report: observer, screen, judge, and every reporter. Bytes 0 to 3 say how the process is run; each hello
//! begins a process: the first is the screen's, the others repeat its suspects.
//!
//! Besides living through it: nobody passes who was not measured to the end.
#![no_main]

use std::collections::BTreeMap;
use std::time::Duration;

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use memgate::suite::gtest::{self, Repeat};
use memgate_analysis::{
    Confirmation, ConfirmationInput, Ending, GatePolicy, Limits, Observer, ProcessInput, ProcessRecord,
    Repetition, Resolve, ResolvedStack, RunInput, SuiteInput, judge, screen,
};
use memgate_fuzz::{decoded, mutate_frames, sealed};
use memgate_model::{BoundaryQuality, Level, RunReport, Verdict};
use memgate_reports::{Flavour, HumanOptions, from_json, human, json, junit};
use memgate_wire::{Frame, GoodbyeReason};

const PREFIX: usize = 4;
const SUITE: &str = "suite";

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate_frames(data, size, max_size, seed, PREFIX, fuzzer_mutate)
});

/// Names of functions as a hostile file could give them.
struct Named(Vec<String>);

impl Resolve for Named {
    fn frames(&mut self, record: &ProcessRecord, stack: u32) -> ResolvedStack {
        let (steps, truncated) = record.stack(stack);
        let frames = steps.iter().map(|step| {
            let at = usize::try_from(step.pc).unwrap_or(0) % (self.0.len() + 1);
            memgate_model::Frame {
                function: self.0.get(at).cloned(),
                module: format!("/lib/{:x}.so", step.pc & 3),
                offset: step.pc,
                file: None,
                line: None,
                inlined: step.pc & 4 != 0,
            }
        });
        ResolvedStack { frames: frames.collect(), truncated }
    }
}

/// The records, one for each hello; few limits, so that they are met too.
fn records(stream: &[u8]) -> Vec<ProcessRecord> {
    let small = Limits { records: 200, windows: 60, stacks: 400, names: 50, modules: 20 };
    let mut observers: Vec<Observer> = Vec::new();
    for (frame, t_ns) in decoded(stream).0 {
        if observers.is_empty() || (matches!(frame, Frame::Hello(_)) && observers.len() < 6) {
            observers.push(Observer::with_limits(small));
        }
        let Some(observer) = observers.last_mut() else { continue };
        match frame {
            Frame::OsSample(_) => observer.push_os(frame, t_ns),
            frame => observer.push(frame, t_ns),
        }
    }
    observers.into_iter().map(Observer::into_record).collect()
}

fn ending(bits: u8) -> Ending {
    match bits & 7 {
        0..4 => Ending::Unknown,
        4 => Ending::Exited(0),
        5 => Ending::Exited(1),
        6 => Ending::Signalled(9),
        _ => Ending::TimedOut(Duration::from_secs(3)),
    }
}

fn names(record: &ProcessRecord) -> Vec<String> {
    let Some(hello) = &record.hello else { return Vec::new() };
    let mut names = hello.arguments.clone();
    names.extend(hello.capabilities.iter().cloned());
    names
}

fn render(report: &RunReport) {
    for (colour, width, verbose) in [(false, None, true), (true, Some(0), false), (false, Some(41), true)] {
        let options = HumanOptions { colour, width, verbose, report_path: Some("r.json".to_owned()) };
        let text = human(report, &options);
        assert!(!text.is_empty());
        assert!(colour || !text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }
    for flavour in [Flavour::Strict, Flavour::Extended] {
        let xml = junit(report, flavour).expect("JUnit holds every report");
        let xml = String::from_utf8(xml).expect("XML is UTF-8");
        let legal = |c: char| matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
        assert!(xml.chars().all(legal), "{xml:?}");
    }
    let text = json(report).expect("JSON holds every report");
    let again = from_json(text.as_bytes()).expect("it reads back");
    assert_eq!(json(&again).expect("JSON holds every report"), text);
}

fuzz_target!(|data: &[u8]| {
    let Some((&[how, end, tuning, more], stream)) = data.split_first_chunk::<PREFIX>() else { return };
    let mut records = records(&sealed(stream));
    if records.is_empty() {
        return;
    }
    let mut repeated = records.split_off(1).into_iter();
    let boundary = [BoundaryQuality::Exact, BoundaryQuality::Process][usize::from(how & 1)];
    let policy = GatePolicy {
        warm_up: u32::from(tuning & 3),
        iterations: u32::from(tuning >> 2 & 7),
        max_iterations: u32::from(tuning >> 5) * 5,
        min_run: Duration::from_millis(u64::from(more & 1)),
        unconfirmed: if more & 2 == 0 { Level::Warn } else { Level::Fail },
        today: "2026-11-21".to_owned(),
        ..GatePolicy::default()
    };
    let first = records.remove(0);
    if let Some(hello) = &first.hello {
        let _again = gtest::confirm(hello, None, "*", Repeat::Times(3));
        let _suite = gtest::SuiteId::of(hello).to_string();
    }
    let suspects = screen(&[&first], SUITE, &policy);
    let mut confirmations = BTreeMap::new();
    for suspect in suspects {
        let confirmation = match (more >> 2 & 3, repeated.next()) {
            (0 | 1, Some(record)) => {
                let mut live = Confirmation::new(&policy, SUITE, &suspect.test);
                let _next = live.observe(&record, Duration::from_secs(1));
                ConfirmationInput::Repeated(Box::new(ProcessInput { record, ending: ending(end >> 3) }))
            }
            (2, Some(record)) => {
                let runs = [Some(record), repeated.next(), repeated.next()];
                let run = |(i, record): (usize, ProcessRecord)| Repetition {
                    n: u64::from(how) << (i * 20),
                    process: ProcessInput { record, ending: ending(end >> 3) },
                };
                ConfirmationInput::Lengths(runs.into_iter().flatten().enumerate().map(run).collect())
            }
            (3, _) => ConfirmationInput::Broken("it broke".to_owned()),
            _ => continue,
        };
        confirmations.insert(
            if boundary == BoundaryQuality::Process { SUITE.to_owned() } else { suspect.test },
            confirmation,
        );
    }
    let whole = first.hello.as_ref().is_some_and(|hello| hello.blind.is_none())
        && first.goodbye.is_some()
        && first.damaged.is_none();
    let became_another = first.goodbye.as_ref().is_some_and(|g| g.reason == GoodbyeReason::Exec);
    let is_main = first.is_main();
    let mut resolve = Named(names(&first));
    let input = RunInput {
        project: "p".to_owned(),
        session: "s".to_owned(),
        started: "2026-11-21T00:00:00Z".to_owned(),
        suites: vec![SuiteInput {
            name: SUITE.to_owned(),
            runner: "gtest".to_owned(),
            boundary,
            screened: Duration::from_secs(1),
            screen: vec![ProcessInput { record: first, ending: ending(end) }],
            confirmations,
            problems: Vec::new(),
            java: None,
        }],
        ..RunInput::default()
    };
    let report = judge(&input, &policy, &mut resolve);
    if report.verdict == Verdict::Pass && report.exit_code == 0 {
        assert!(
            whole && is_main && !became_another,
            "what was not measured to its end passes: whole {whole}, main {is_main}, exec {became_another}: {report:?}"
        );
        assert!(report.suites.iter().any(|suite| !suite.tests.is_empty()), "no test is never a pass");
    }
    // Tests of the user's own that fail make it 1, whatever the verdict; 0 is for what was measured.
    let harmless = matches!(report.verdict, Verdict::Pass | Verdict::NotJudged | Verdict::Warn);
    assert!(report.exit_code != 0 || harmless, "{report:?}");
    render(&report);
});
