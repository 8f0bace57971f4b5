//! Leaked bytes by stack, for flame graphs: folded stacks, speedscope's JSON, and the icicle view
//! of the page.
//!
//! Data flow: every leak that no waiver covers → one [`Stack`], outermost frame first → text or JSON. If the allocation
//! of a Java object is not known, the path that holds it replaces the stack.

use std::collections::BTreeMap;

use memgate_model::{Frame, Leak, LeakKind, RunReport};
use serde::Serialize;

use crate::error::RenderError;
use crate::names::of_frame;
use crate::visible::visible;

/// A stack with the bytes that one more iteration leaks there.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stack {
    pub(crate) kind: LeakKind,
    pub(crate) bytes: f64,
    /// Outermost first.
    pub(crate) frames: Vec<String>,
}

/// Every stack that leaks bytes, the largest first; the same stack of several tests is merged.
pub(crate) fn stacks(report: &RunReport) -> Vec<Stack> {
    let mut by_frames: BTreeMap<(u8, Vec<String>), Stack> = BTreeMap::new();
    let leaks = report.entries().flat_map(|test| &test.leaks);
    // Objects of a heap dump do not belong to an iteration, and their allocation was not recorded.
    let grows = |leak: &&Leak| leak.kind != LeakKind::Heap && leak.bytes_per_iteration > 0.0;
    for leak in leaks.filter(|leak| leak.waiver.is_none()).filter(grows) {
        let frames = names(leak);
        let java = u8::from(leak.kind == LeakKind::Java);
        let stack =
            by_frames.entry((java, frames.clone())).or_insert(Stack { kind: leak.kind, bytes: 0.0, frames });
        stack.bytes += leak.bytes_per_iteration;
    }
    let mut stacks: Vec<Stack> = by_frames.into_values().collect();
    stacks.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
    stacks
}

/// Functions of the stack of a leak, outermost first; without a stack, its holders.
#[must_use]
pub fn names(leak: &Leak) -> Vec<String> {
    let mut names: Vec<String> = own(leak).iter().rev().map(of_frame).collect();
    if names.is_empty() {
        names.extend(
            leak.holder.iter().map(|step| visible(&format!("{}.{}", step.owner, step.name)).into_owned()),
        );
    }
    if leak.truncated {
        names.insert(0, "(not unwound to its root)".to_owned());
    }
    if let Some(class) = &leak.class {
        names.push(visible(class).into_owned());
    }
    if names.is_empty() {
        names.push(visible(&leak.title).into_owned());
    }
    names
}

/// The frames of a leak up to the test. In Java, the frames after it are the runner's; native stacks come without them.
pub(crate) fn own(leak: &Leak) -> &[Frame] {
    const FOREIGN: [&str; 9] = [
        "java.",
        "javax.",
        "jdk.",
        "sun.",
        "org.junit.",
        "junit.",
        "io.memgate.",
        "org.apache.maven.",
        "org.gradle.",
    ];
    let foreign = |frame: &Frame| {
        frame.function.as_deref().is_some_and(|name| FOREIGN.iter().any(|package| name.starts_with(package)))
    };
    let end = match leak.kind {
        LeakKind::Java => {
            leak.frames.iter().rposition(|frame| !foreign(frame)).map_or(leak.frames.len(), |at| at + 1)
        }
        LeakKind::Native | LeakKind::Os | LeakKind::Mapped | LeakKind::Heap => leak.frames.len(),
    };
    leak.frames.get(..end).unwrap_or_default()
}

/// Folded stacks, as `flamegraph.pl` and similar tools read them: `main;load;insert 49152`, bytes per iteration.
#[must_use]
pub fn folded(report: &RunReport) -> String {
    let mut text = String::new();
    for Stack { bytes, frames, .. } in stacks(report) {
        let frames: Vec<_> = frames.iter().map(|frame| frame.replace(';', ":")).collect();
        text += &format!("{} {}\n", frames.join(";"), whole(bytes));
    }
    text
}

/// At least one, because a smaller amount would not be shown at all.
fn whole(bytes: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; `as` saturates")]
    let whole = bytes.round().max(1.0) as u64;
    whole
}

#[derive(Serialize)]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    shared: Shared,
    profiles: Vec<Profile>,
    name: &'a str,
    #[serde(rename = "activeProfileIndex")]
    active: usize,
    exporter: &'static str,
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<SharedFrame>,
}

#[derive(Serialize)]
struct SharedFrame {
    name: String,
}

#[derive(Serialize)]
struct Profile {
    r#type: &'static str,
    name: &'static str,
    unit: &'static str,
    #[serde(rename = "startValue")]
    start: f64,
    #[serde(rename = "endValue")]
    end: f64,
    samples: Vec<Vec<usize>>,
    weights: Vec<f64>,
}

/// A profile for speedscope.app: bytes per iteration, separate for native and Java.
///
/// # Errors
/// When JSON cannot be written.
pub fn speedscope(report: &RunReport) -> Result<String, RenderError> {
    let stacks = stacks(report);
    let mut shared = Frames::default();
    let mut profile = |name, java: bool| {
        let of_kind = stacks.iter().filter(|stack| (stack.kind == LeakKind::Java) == java);
        let (samples, weights): (Vec<_>, Vec<_>) =
            of_kind.map(|stack| (shared.indices(&stack.frames), stack.bytes)).unzip();
        Profile {
            r#type: "sampled",
            name,
            unit: "bytes",
            start: 0.0,
            end: weights.iter().sum(),
            samples,
            weights,
        }
    };
    let mut profiles =
        vec![profile("native: bytes per iteration", false), profile("Java: bytes per iteration", true)];
    // The format needs at least one profile, even an empty one.
    let empty = profiles.iter().all(|profile| profile.samples.is_empty());
    profiles.retain(|profile| empty || !profile.samples.is_empty());
    let file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        profiles,
        shared: Shared { frames: shared.names.into_iter().map(|name| SharedFrame { name }).collect() },
        name: &visible(&report.project),
        active: 0,
        exporter: "memgate",
    };
    let mut text = serde_json::to_string(&file).map_err(RenderError::Json)?;
    text.push('\n');
    Ok(text)
}

/// Distinct names with their indices.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    pub(crate) names: Vec<String>,
    known: BTreeMap<String, usize>,
}

impl Frames {
    pub(crate) fn indices(&mut self, frames: &[String]) -> Vec<usize> {
        frames.iter().map(|name| self.index(name)).collect()
    }

    fn index(&mut self, name: &str) -> usize {
        if let Some(index) = self.known.get(name) {
            return *index;
        }
        let index = self.names.len();
        self.known.insert(name.to_owned(), index);
        self.names.push(name.to_owned());
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn folded_stacks_begin_at_the_test_and_end_where_it_was_allocated() {
        assert_eq!(
            folded(&sample::leak()),
            "MapCache_scroll_Test::TestBody();MapView::scroll(int);MapCache::insert(Tile const&) 49152\n"
        );
        let java = folded(&sample::held());
        assert_eq!(
            java, "com.example.TileLoader.load;com.example.Tile 49152\n",
            "the waived one is left out"
        );
    }

    #[test]
    fn a_java_stack_ends_at_the_test_not_in_its_runner() {
        let mut report = sample::held();
        let frames = &mut report.suites[0].tests[0].leaks[0].frames;
        for function in [
            "com.example.TileCacheTest.evicts",
            "java.lang.reflect.Method.invoke",
            "org.junit.runner.JUnitCore.run",
        ] {
            let frame = Frame { function: Some(function.to_owned()), ..frames[0].clone() };
            frames.push(frame);
        }
        assert!(folded(&report).starts_with("com.example.TileCacheTest.evicts;com.example.TileLoader.load;"));
    }

    #[test]
    fn a_name_cannot_add_a_frame_or_a_line() {
        let text = folded(&sample::hostile());
        assert_eq!(text.lines().count(), 1, "{text}");
        let mut report = sample::leak();
        report.suites[0].tests[1].leaks[0].frames[0].function = Some("a;b\nc".to_owned());
        assert!(folded(&report).ends_with(";a:b\\nc 49152\n"));
    }

    #[test]
    fn speedscope_gets_bytes_that_agree_with_the_report() {
        for (name, report) in sample::all() {
            let file: serde_json::Value = serde_json::from_str(&speedscope(&report).unwrap()).unwrap();
            let frames = file["shared"]["frames"].as_array().unwrap().len();
            let mut sum = 0.0;
            for profile in file["profiles"].as_array().unwrap() {
                for sample in profile["samples"].as_array().unwrap() {
                    assert!(sample.as_array().unwrap().iter().all(|i| i.as_u64().unwrap() < frames as u64));
                }
                let weights = profile["weights"].as_array().unwrap().iter().map(|w| w.as_f64().unwrap());
                assert_eq!(profile["endValue"].as_f64().unwrap(), weights.clone().sum::<f64>(), "{name}");
                sum += weights.sum::<f64>();
            }
            let leaks = report.entries().flat_map(|t| &t.leaks);
            let all: f64 = leaks.filter(|l| l.waiver.is_none()).map(|l| l.bytes_per_iteration).sum();
            assert_eq!(sum, all, "{name}");
        }
    }
}
