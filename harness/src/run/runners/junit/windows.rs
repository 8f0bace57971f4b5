//! `screen: baseline`: compares the survivors of the windows in the build's own run with those of an accepted run.
//!
//! Data flow: accepted windows of the plan → a list for the agent, so that it measures after the same test classes
//! ([`listed`]) → windows of this run → those with no more survivors than accepted need no rounds ([`compare`]) →
//! `windows.json` in the session ([`keep`]), from which `memgate baseline accept` takes them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use memgate_analysis::{ClassWindow, Left};
use memgate_config::{Screen, WindowBaseline};
use memgate_model::{Metric, format_amount, format_bytes};
use memgate_wire::options::Windows;

use super::ours::Junit;
use crate::agent::text;
use crate::exit::ExpectedError;
use crate::plan::Plan;
use crate::run::engine::Context;
use crate::session::{Session, WINDOWS_FILE};

/// Selects where the agent measures in the build's own run. `write` puts a text into a file of the session.
pub(super) fn where_to_measure(
    plan: &Plan,
    write: impl FnOnce(&str) -> Result<PathBuf, ExpectedError>,
) -> Result<Windows, ExpectedError> {
    match plan.screen {
        Screen::Off => Ok(Windows::Nowhere),
        Screen::Thorough => Ok(Windows::Budget),
        Screen::Baseline if plan.windows.is_empty() => Ok(Windows::Budget),
        Screen::Baseline => Ok(Windows::Listed(text(&write(&listed(plan))?))),
    }
}

/// `+ CLASS` if a window ends after the class, `- CLASS` if it continues.
fn listed(plan: &Plan) -> String {
    let mut ends = BTreeMap::<&str, bool>::new();
    for window in plan.windows.values().flatten() {
        for (i, class) in window.classes.iter().enumerate() {
            *ends.entry(class).or_default() |= i + 1 == window.classes.len();
        }
    }
    ends.iter().map(|(class, ends)| format!("{} {class}\n", if *ends { '+' } else { '-' })).collect()
}

/// The result of comparing a suite with its baseline.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// Test classes that left no more than accepted.
    pub(super) unchanged: BTreeSet<String>,
    /// Why the first of the others are screened, in words.
    pub(super) changed: Vec<String>,
}

/// Compares the windows of a suite with the accepted ones; `None`: there are no accepted ones.
pub(super) fn compare(context: &Context<'_>, suite: &str, junit: &Junit) -> Option<Compared> {
    let accepted = context.plan.windows.get(suite)?;
    let mut compared = Compared::default();
    for window in &junit.windows {
        match differs(window, accepted) {
            None => compared.unchanged.extend(window.classes.iter().cloned()),
            Some(why) => compared.changed.push(format!("{} {why}", shown(&window.classes))),
        }
    }
    // A class may also be in another window (another fork ran a part of it): it is unchanged only if both are.
    let open: BTreeSet<&String> =
        junit.windows.iter().filter(|w| differs(w, accepted).is_some()).flat_map(|w| &w.classes).collect();
    compared.unchanged.retain(|class| !open.contains(class));
    Some(compared)
}

/// Why a window has to be screened; `None`: it left no more than accepted.
fn differs(window: &ClassWindow, accepted: &[WindowBaseline]) -> Option<String> {
    if let Some(why) = &window.unusable {
        return Some(format!("cannot be compared: {why}"));
    }
    let Some(before) = accepted.iter().find(|before| before.classes == window.classes) else {
        return Some("did not run like this before".to_owned());
    };
    let Some(accepted) = &before.left else {
        let why =
            "was not accepted as clean: it had a failed test, a warning or a leak then, maybe a waived one";
        return Some(why.to_owned());
    };
    let beyond = window.beyond(&left(accepted));
    let (name, now) = beyond.first()?;
    let more = beyond.len().saturating_sub(1);
    let more = if more > 0 { format!(" and {more} more classes") } else { String::new() };
    let (was, was_bytes) = accepted.get(*name).copied().unwrap_or_default();
    let of_vm = Metric::ALL.into_iter().find(|metric| metric.name() == *name);
    Some(match of_vm {
        Some(metric) => {
            let sums = [now.instances.saturating_add(now.bytes), was.saturating_add(was_bytes)];
            let [now, before] = sums.map(|sum| format_amount(metric, sum as f64));
            let before = if sums[1] > 0 { before } else { "none".to_owned() };
            format!("left {now} ({before} accepted){more}")
        }
        None if now.instances > was => {
            format!("left {} × {name} ({was} were accepted){more}", now.instances)
        }
        None => {
            let [now, was] = [now.bytes, was_bytes].map(|bytes| format_bytes(bytes as f64));
            format!("left {now} of {name} ({was} were accepted){more}")
        }
    })
}

fn shown(classes: &[String]) -> String {
    match classes {
        [] => "a window without tests".to_owned(),
        [class] => class.clone(),
        [class, rest @ ..] => format!("{class} and {} more", rest.len()),
    }
}

fn left(accepted: &BTreeMap<String, (u64, u64)>) -> BTreeMap<String, Left> {
    let left = |(name, (instances, bytes)): (&String, &(u64, u64))| {
        (name.clone(), Left { instances: *instances, bytes: *bytes })
    };
    accepted.iter().map(left).collect()
}

/// The windows of a suite in the form that can be accepted.
pub(super) fn to_accept(context: &Context<'_>, suite: &str, junit: &Junit) -> Vec<WindowBaseline> {
    let accepted = context.plan.windows.get(suite).map_or(&[][..], Vec::as_slice);
    let plain = |class: &String| !class.is_empty() && !class.contains(char::is_whitespace);
    let named = junit.windows.iter().filter(|w| w.classes.iter().all(plain));
    named
        .map(|window| {
            let mut left: BTreeMap<String, (u64, u64)> =
                window.left.iter().map(|(name, left)| (name.clone(), (left.instances, left.bytes))).collect();
            // Both runs were found to be clean: survivors of either are allowed.
            let before = accepted.iter().find(|before| before.classes == window.classes);
            for (name, (instances, bytes)) in before.iter().filter_map(|b| b.left.as_ref()).flatten() {
                let kept = left.entry(name.clone()).or_default();
                *kept = (kept.0.max(*instances), kept.1.max(*bytes));
            }
            let left = window.unusable.is_none().then_some(left);
            WindowBaseline { classes: window.classes.clone(), left }
        })
        .collect()
}

/// Writes the windows of all suites into the session.
pub(super) fn keep(
    session: &Session,
    suites: &BTreeMap<String, Vec<WindowBaseline>>,
) -> Result<(), ExpectedError> {
    if suites.values().all(Vec::is_empty) {
        return Ok(());
    }
    let path = session.folder().join(WINDOWS_FILE);
    let text = serde_json::to_string_pretty(suites).map_err(|why| ExpectedError::failed(&why))?;
    fs::write(&path, text).map_err(ExpectedError::file("write", &path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(classes: &[&str], tiles: u64) -> ClassWindow {
        ClassWindow {
            classes: classes.iter().map(|&c| c.to_owned()).collect(),
            left: BTreeMap::from([(
                "com.example.Tile".to_owned(),
                Left { instances: tiles, bytes: tiles * 24 },
            )]),
            unusable: None,
        }
    }

    #[test]
    fn a_window_is_screened_when_it_left_more_than_accepted() {
        let accepted = [WindowBaseline {
            classes: vec!["ATest".into(), "BTest".into()],
            left: Some(BTreeMap::from([("com.example.Tile".to_owned(), (3, 72))])),
        }];
        for (window, why) in [
            (window(&["ATest", "BTest"], 3), None),
            (window(&["ATest", "BTest"], 2), None),
            (window(&["ATest", "BTest"], 4), Some("left 4 × com.example.Tile (3 were accepted)")),
            (window(&["ATest"], 3), Some("did not run like this before")),
            (
                ClassWindow { unusable: Some("ATest.a failed".into()), ..window(&["ATest", "BTest"], 3) },
                Some("cannot be compared: ATest.a failed"),
            ),
        ] {
            assert_eq!(differs(&window, &accepted).as_deref(), why);
        }
    }

    /// Regression: `left 0 × java.direct_bytes (0 were accepted)`.
    #[test]
    fn bytes_are_told_where_they_are_what_is_more() {
        let differs = |name: &str, now: Left, was: Option<(u64, u64)>| {
            let left = was.map(|was| BTreeMap::from([(name.to_owned(), was)]));
            let accepted = [WindowBaseline { classes: vec!["ATest".into()], left }];
            let left = BTreeMap::from([(name.to_owned(), now)]);
            super::differs(&ClassWindow { left, ..window(&["ATest"], 0) }, &accepted).unwrap()
        };
        let left = |instances, bytes| Left { instances, bytes };
        assert_eq!(
            differs("java.direct_bytes", left(0, 1 << 20), Some((0, 0))),
            "left 1.0 MiB of direct buffers (none accepted)"
        );
        assert_eq!(
            differs("byte[]", left(2, 1 << 20), Some((2, 1 << 16))),
            "left 1.0 MiB of byte[] (64.0 KiB were accepted)"
        );
        assert_eq!(
            differs("byte[]", left(2, 9), None),
            "was not accepted as clean: it had a failed test, a warning or a leak then, maybe a waived one"
        );
    }
}
