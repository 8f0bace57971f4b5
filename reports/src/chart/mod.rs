//! Charts: memory over time with its boundaries, of a test and of a whole suite, and the values of each iteration, on
//! which the verdict is based.
//!
//! Data flow: the points of a test or a suite → [`Plot`] (series, lines and texts; nothing is drawn yet) → [`draw`] on
//! one of plotters' backends → [`svg`] (inline in a page, in its colours, or as a file) or [`png`] (for mail). Both use
//! the one embedded font, so that no machine needs fonts.

mod draw;
mod plot;
mod png;
mod svg;

pub(crate) use plot::{Lane, Plot, Role, lanes, plots_of, plots_of_suite};
pub(crate) use png::png;
pub(crate) use svg::{inline_svg, svg_file};

use memgate_model::{RunReport, TestReport};

use crate::error::RenderError;

/// A chart with the name of its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChartFile {
    /// `engine.MapCache.scroll.growth.native.live_bytes.svg`
    pub name: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Most tests whose charts are written as files; those that did not pass come first.
const MAX_TESTS: usize = 200;

/// Most suites whose charts are written as files.
const MAX_SUITES: usize = 50;

/// SVG and PNG files of the charts of suites, of every test that did not pass, and of as many others as fit.
///
/// # Errors
/// When a chart cannot be drawn.
pub fn charts(report: &RunReport) -> Result<Vec<ChartFile>, RenderError> {
    let mut files: Vec<ChartFile> = Vec::new();
    for Planned { stem, plot, .. } in planned(report) {
        files.push(ChartFile { name: format!("{stem}.svg"), bytes: svg_file(&plot)?.into_bytes() });
        files.push(ChartFile { name: format!("{stem}.png"), bytes: png(&plot)? });
    }
    Ok(files)
}

/// A chart that becomes a file.
pub(crate) struct Planned<'a> {
    /// Its test; `None`: it belongs to a suite.
    pub(crate) test: Option<&'a TestReport>,
    /// Name of the file, without `.svg` or `.png`.
    pub(crate) stem: String,
    plot: Plot,
}

/// Every chart that becomes a file.
pub(crate) fn planned(report: &RunReport) -> Vec<Planned<'_>> {
    let mut tests: Vec<(&str, &TestReport)> = report
        .suites
        .iter()
        .flat_map(|suite| suite.tests.iter().map(|test| (suite.name.as_str(), test)))
        .filter(|(_, test)| !test.curve.is_empty() || !test.growth.is_empty())
        .collect();
    tests.sort_by_key(|(_, test)| std::cmp::Reverse(test.verdict));
    tests.truncate(MAX_TESTS);
    let of_tests =
        tests.into_iter().map(|(suite, test)| (Some(test), format!("{suite}.{}", test.id), plots_of(test)));
    let suites = report.suites.iter().flat_map(lanes).take(MAX_SUITES);
    let of_suites = suites.map(|suite| (None, suite.name.clone(), plots_of_suite(&suite)));
    let mut names = std::collections::BTreeSet::new();
    let mut planned = Vec::new();
    for (test, of, plots) in of_tests.chain(of_suites) {
        for plot in plots {
            let mut stem = file_name(&format!("{of}.{}", plot.name()));
            while !names.insert(stem.clone()) {
                stem.push('_');
            }
            planned.push(Planned { test, stem, plot });
        }
    }
    planned
}

/// Keeps the characters that every file system accepts, and limits the length.
fn file_name(text: &str) -> String {
    const LONGEST: usize = 180;
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' };
    let name: String = text.chars().map(safe).take(LONGEST).collect();
    // The name must not mean a hidden file or a parent folder.
    name.trim_start_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn every_chart_is_written_twice_under_a_name_of_its_own() {
        for (name, report) in sample::all() {
            let files = charts(&report).unwrap();
            let names: std::collections::BTreeSet<_> = files.iter().map(|file| &file.name).collect();
            assert_eq!(names.len(), files.len(), "{name}");
            for ChartFile { name, bytes } in &files {
                assert!(!name.contains('/') && !name.starts_with('.'), "{name}");
                let begins: &[u8] = if name.ends_with(".png") { b"\x89PNG" } else { b"<svg" };
                assert!(bytes.starts_with(begins), "{name}");
            }
        }
        let names: Vec<_> = charts(&sample::leak()).unwrap().into_iter().map(|file| file.name).collect();
        assert_eq!(
            names,
            [
                "engine_tests.MapCache.scroll.growth.native.live_bytes.svg",
                "engine_tests.MapCache.scroll.growth.native.live_bytes.png",
                "engine_tests.MapCache.scroll.curve.native.live_bytes.svg",
                "engine_tests.MapCache.scroll.curve.native.live_bytes.png",
            ]
        );
    }

    #[test]
    fn a_name_of_a_test_is_no_path() {
        for (text, name) in [
            ("../../etc/passwd", "_.._etc_passwd"),
            ("Tiles/Loader.loads/3", "Tiles_Loader.loads_3"),
            ("ä\0", "__"),
        ] {
            assert_eq!(file_name(text), name);
        }
        assert_eq!(file_name(&"x".repeat(999)).len(), 180);
    }
}
