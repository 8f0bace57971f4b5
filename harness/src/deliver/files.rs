//! Files and the terminal.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use memgate_config::{JunitFlavour, MarkdownFor, Reports};
use memgate_model::RunReport;
use memgate_reports::chat::{Chat, chat};
use memgate_reports::mail::Surroundings;
use memgate_reports::{
    COMMENT_BYTES, Changes, ChartFile, Checkout, Flavour, HumanOptions, JunitOptions, ReportKind,
    STEP_SUMMARY_BYTES, charts, render,
};
use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::context::{checkout, from_the_job};
use crate::cli::Format;
use crate::exit::{self, ExpectedError};
use crate::output::{Console, Screen};
use crate::session::write_atomically;

/// Renders `report` for printing. `full` is the path of the full report.
///
/// # Errors
/// When the format cannot represent it.
pub(crate) fn rendered(
    report: &RunReport,
    format: Format,
    full: Option<&Path>,
    screen: Screen,
) -> Result<Vec<u8>, ExpectedError> {
    let kind = match format {
        Format::Human => ReportKind::Human(HumanOptions {
            colour: screen.colour,
            width: screen.width,
            verbose: screen.verbose,
            report_path: full.map(|path| path.display().to_string()),
        }),
        Format::Json => ReportKind::Json,
        Format::Junit => {
            ReportKind::Junit(JunitOptions { places: checkout(report), ..JunitOptions::default() })
        }
        Format::Html => ReportKind::Html,
        Format::Markdown => ReportKind::Markdown(STEP_SUMMARY_BYTES),
        Format::Annotations => ReportKind::Annotations(checkout(report)),
        Format::Codequality => ReportKind::CodeQuality(checkout(report)),
        Format::Metrics => ReportKind::Metrics,
        Format::Sarif => ReportKind::Sarif(checkout(report)),
        Format::Folded => ReportKind::Folded,
        Format::Speedscope => ReportKind::Speedscope,
    };
    bytes(report, &kind)
}

/// Writes every format into one folder, including charts and chat messages.
///
/// # Errors
/// The first failure; the others are still written.
pub(crate) fn write_everything(report: &RunReport, folder: &Path) -> Result<(), ExpectedError> {
    let (places, charts) = (checkout(report), folder.join("charts"));
    let kinds = ReportKind::every(&places, &from_the_job(&charts));
    let mut written: Vec<_> =
        kinds.iter().map(|(name, kind)| write(report, &folder.join(name), kind)).collect();
    let (changes, context) = (Changes::since(&[], report), Surroundings::default());
    for (name, to) in [("slack.json", Chat::Slack), ("teams.json", Chat::Teams), ("lark.json", Chat::Lark)] {
        let message = format!("{:#}\n", chat(report, &changes, &context, to));
        written.push(
            write_atomically(&folder.join(name), message.as_bytes())
                .map_err(|why| ExpectedError::failed(&why)),
        );
    }
    written.push(write_charts(report, &charts));
    written.into_iter().collect()
}

/// Writes `report.json` and `report.html` into the session folder, and the configured reports. A failure does not stop
/// the others.
///
/// # Errors
/// The first failure; the others are warnings.
pub(crate) fn write_all(
    report: &RunReport,
    session: Option<&Path>,
    wanted: &Reports,
    console: &Console,
) -> Result<(), ExpectedError> {
    let mut failed = failures(report, session, wanted, console).into_iter();
    let Some(first) = failed.next() else { return Ok(()) };
    failed.for_each(|why| console.warning(&exit::chain(&why)));
    Err(first)
}

/// Checks the configured paths: a mistake is reported before the tests run, not after them.
///
/// # Errors
/// The first path at which nothing can be written.
pub(crate) fn check(wanted: &Reports) -> Result<(), ExpectedError> {
    let files = [
        ("json", &wanted.json),
        ("html", &wanted.html),
        ("sarif", &wanted.sarif),
        ("codequality", &wanted.codequality),
        ("metrics", &wanted.metrics),
        ("folded", &wanted.folded),
        ("speedscope", &wanted.speedscope),
    ];
    let files = files.into_iter().filter_map(|(key, path)| Some((key, path.as_deref()?)));
    let junit = wanted.junit.iter().map(|junit| ("junit", junit.path.as_path()));
    let markdown = wanted.markdown.iter().map(|markdown| ("markdown", markdown.path.as_path()));
    for (key, path) in files.chain(junit).chain(markdown) {
        let is_free = if path.is_dir() { Err("it is a folder".to_owned()) } else { Ok(()) };
        let folder = path.parent().unwrap_or(path);
        is_free.and_then(|()| takes_files(folder)).map_err(|why| unwritable(key, path, &why))?;
    }
    match &wanted.charts {
        Some(folder) => takes_files(folder).map_err(|why| unwritable("charts", folder, &why)),
        None => Ok(()),
    }
}

fn unwritable(key: &str, path: &Path, why: &str) -> ExpectedError {
    ExpectedError::usage(
        format!("`reports.{key}` cannot be written to {}: {why}", path.display()),
        "name another path in memgate.yaml, or make room there",
    )
}

/// Whether files can be created in this folder, which may not exist yet.
fn takes_files(folder: &Path) -> Result<(), String> {
    for folder in folder.ancestors() {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let told = |why: std::io::Error| format!("{}: {why}", folder.display());
        match std::fs::metadata(folder) {
            Ok(found) if !found.is_dir() => return Err(format!("{} is no folder", folder.display())),
            Ok(_) => {
                let wanted = Access::WRITE_OK | Access::EXEC_OK;
                return accessat(CWD, folder, wanted, AtFlags::empty()).map_err(|why| told(why.into()));
            }
            Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(why) => return Err(told(why)),
        }
    }
    Ok(())
}

/// Writes all files. Returns what could not be written.
fn failures(
    report: &RunReport,
    session: Option<&Path>,
    wanted: &Reports,
    console: &Console,
) -> Vec<ExpectedError> {
    let mut files: Vec<(PathBuf, ReportKind)> = Vec::new();
    if let Some(folder) = session {
        files.push((folder.join("report.json"), ReportKind::Json));
        files.push((folder.join("report.html"), ReportKind::Html));
    }
    let needs_places = wanted.sarif.is_some() || wanted.codequality.is_some() || wanted.junit.is_some();
    let places = if needs_places { checkout(report) } else { Checkout::default() };
    for (path, kind) in [
        (&wanted.json, ReportKind::Json),
        (&wanted.html, ReportKind::Html),
        (&wanted.sarif, ReportKind::Sarif(places.clone())),
        (&wanted.codequality, ReportKind::CodeQuality(places.clone())),
        (&wanted.metrics, ReportKind::Metrics),
        (&wanted.folded, ReportKind::Folded),
        (&wanted.speedscope, ReportKind::Speedscope),
    ] {
        files.extend(path.clone().map(|path| (path, kind)));
    }
    files.extend(wanted.junit.as_ref().map(|junit| {
        let flavour = match junit.flavour {
            JunitFlavour::Extended => Flavour::Extended,
            JunitFlavour::Strict => Flavour::Strict,
        };
        let charts = wanted.charts.as_deref().map(from_the_job);
        (junit.path.clone(), ReportKind::Junit(JunitOptions { flavour, charts, places }))
    }));
    files.extend(wanted.markdown.as_ref().map(|markdown| {
        let most = match markdown.r#for {
            MarkdownFor::Summary => STEP_SUMMARY_BYTES,
            MarkdownFor::Comment => COMMENT_BYTES,
        };
        (markdown.path.clone(), ReportKind::Markdown(most))
    }));
    let mut written: Vec<_> = files.iter().map(|(path, kind)| write(report, path, kind)).collect();
    let merges = wanted.junit.iter().flat_map(|junit| &junit.merge);
    for pattern in merges {
        match matching(pattern) {
            Ok(paths) => written.extend(merge_all(report, pattern, &paths, console)),
            Err(why) => written.push(Err(why)),
        }
    }
    written.extend(wanted.charts.as_ref().map(|folder| write_charts(report, folder)));
    written.into_iter().filter_map(Result::err).collect()
}

/// Adds leaks to the files that match a pattern. Warns if the pattern leads to no test of the run.
fn merge_all(
    report: &RunReport,
    pattern: &Path,
    paths: &[PathBuf],
    console: &Console,
) -> Vec<Result<(), ExpectedError>> {
    let merged: Vec<_> = paths.iter().map(|path| merge_into(report, path, console)).collect();
    let nothing = if merged.is_empty() {
        "matches no file"
    } else {
        "matches only files that have no test of this run"
    };
    let found = merged.iter().any(|tests| !matches!(tests, Ok(0)));
    if !found && report.suites.iter().any(|suite| !suite.tests.is_empty()) {
        console.warning(&format!("`reports.junit.merge`: {} {nothing}", pattern.display()));
    }
    merged.into_iter().map(|tests| tests.map(|_| ())).collect()
}

/// Adds leaks to a result file of the test runner. Returns the number of its tests that are tests of the run.
fn merge_into(report: &RunReport, path: &Path, console: &Console) -> Result<usize, ExpectedError> {
    let xml = std::fs::read(path).map_err(ExpectedError::file("read", path))?;
    let merged = memgate_reports::merge(report, &xml).map_err(|why| ExpectedError::Session {
        path: path.to_owned(),
        why: format!("it is no JUnit XML: {why}"),
        hint: "`reports.junit.merge` names files of the test runner".to_owned(),
    })?;
    if !merged.unclear.is_empty() {
        console.warning(&format!(
            "{} shows no leak of {}: several suites have a test of this name, and the file may be of each",
            path.display(),
            merged.unclear.join(", ")
        ));
    }
    if merged.cases > 0 {
        write_atomically(path, &merged.xml).map_err(|why| ExpectedError::failed(&why))?;
    }
    Ok(merged.known)
}

/// The files that match a pattern. A wildcard matches names within one folder, `**` any number of folders.
fn matching(pattern: &Path) -> Result<Vec<PathBuf>, ExpectedError> {
    let mut found = vec![PathBuf::new()];
    for part in pattern.components() {
        let text = part.as_os_str().to_string_lossy();
        if !text.contains(['*', '?']) {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        if text == "**" {
            found = found.iter().flat_map(|folder| with_folders_below(folder)).collect();
            found.sort();
            found.dedup();
            continue;
        }
        let glob = globset::Glob::new(&text).map_err(|why| {
            ExpectedError::usage(format!("`{}` is no pattern: {why}", pattern.display()), "")
        })?;
        let glob = glob.compile_matcher();
        let entries = found.iter().flat_map(|folder| inside(folder));
        let entries = entries.filter(|entry| glob.is_match(entry.file_name()));
        found = entries.map(|entry| entry.path()).collect();
    }
    found.retain(|path| path.is_file());
    found.sort();
    Ok(found)
}

/// What a folder contains. The empty path is the current folder.
fn inside(folder: &Path) -> impl Iterator<Item = std::fs::DirEntry> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    std::fs::read_dir(folder).into_iter().flatten().flatten()
}

/// A folder and all folders below it, except hidden ones. Links are not followed.
fn with_folders_below(folder: &Path) -> Vec<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    let mut next = 0;
    while let Some(folder) = folders.get(next).cloned() {
        let is_folder = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        let is_hidden = |entry: &std::fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b".");
        let below = inside(&folder).filter(|entry| is_folder(entry) && !is_hidden(entry));
        folders.extend(below.map(|entry| folder.join(entry.file_name())));
        next += 1;
    }
    folders
}

fn write_charts(report: &RunReport, folder: &Path) -> Result<(), ExpectedError> {
    for ChartFile { name, bytes } in charts(report).map_err(|why| ExpectedError::failed(&why))? {
        write_atomically(&folder.join(name), &bytes).map_err(|why| ExpectedError::failed(&why))?;
    }
    Ok(())
}

fn write(report: &RunReport, path: &Path, kind: &ReportKind) -> Result<(), ExpectedError> {
    write_atomically(path, &bytes(report, kind)?).map_err(|why| ExpectedError::failed(&why))
}

fn bytes(report: &RunReport, kind: &ReportKind) -> Result<Vec<u8>, ExpectedError> {
    render(report, kind).map_err(|why| ExpectedError::failed(&why))
}

#[cfg(test)]
mod tests {
    use memgate_config::JunitReport;
    use memgate_model::Verdict;

    use super::*;
    use crate::cli::ColorChoice;

    fn report() -> RunReport {
        RunReport {
            started: "2026-11-21T10:00:00Z".into(),
            duration_s: 1.0,
            ..RunReport::new("tiles", "s", Verdict::Pass, Vec::new())
        }
    }

    #[test]
    fn a_path_at_which_no_report_can_be_written_is_told_before_the_tests_run() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| Some(folder.path().join(name));
        std::fs::write(folder.path().join("file"), "").unwrap();
        std::fs::create_dir_all(folder.path().join("folder/inside")).unwrap();
        let check = |wanted: Reports| check(&wanted).map_err(|why| why.to_string());
        assert_eq!(check(Reports { html: at("new/folders/x.html"), ..Reports::default() }), Ok(()));
        assert_eq!(check(Reports { html: at("file"), ..Reports::default() }), Ok(()), "it is replaced");
        assert_eq!(check(Reports { charts: at("folder/inside"), ..Reports::default() }), Ok(()));
        for (wanted, key, why) in [
            (Reports { html: at("file/x.html"), ..Reports::default() }, "html", "file is no folder"),
            (Reports { sarif: at("file/a/b/x.sarif"), ..Reports::default() }, "sarif", "file is no folder"),
            (Reports { json: at("folder/inside"), ..Reports::default() }, "json", "it is a folder"),
            (Reports { charts: at("file"), ..Reports::default() }, "charts", "file is no folder"),
        ] {
            let told = check(wanted).unwrap_err();
            assert!(told.contains(&format!("`reports.{key}`")) && told.contains(why), "{told}");
        }
    }

    #[test]
    fn one_report_that_fails_does_not_keep_the_others_from_being_written() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["file", "other"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let wanted = Reports {
            json: Some(folder.path().join("file/inside.json")),
            metrics: Some(folder.path().join("other/metrics.txt")),
            junit: Some(JunitReport {
                path: folder.path().join("new/junit.xml"),
                flavour: JunitFlavour::Strict,
                merge: Vec::new(),
            }),
            ..Reports::default()
        };
        let console = Console::new(ColorChoice::Never);
        let failed = failures(&report(), Some(folder.path()), &wanted, &console);
        let [json, metrics] = failed.as_slice() else { panic!("each is told: {failed:?}") };
        assert!(json.to_string().contains("/file"), "{json}");
        assert!(metrics.to_string().contains("/other"), "{metrics}");
        for name in ["report.json", "report.html", "new/junit.xml"] {
            assert!(folder.path().join(name).is_file(), "{name}");
        }
    }

    /// A test that crashed may leave an incomplete file.
    #[test]
    fn a_file_of_the_runner_that_is_broken_does_not_keep_leaks_out_of_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        std::fs::write(file("TEST-a.xml"), "<testsuite><testcase").unwrap();
        let case = r#"<testsuite failures="0"><testcase name="scroll" classname="Map"/></testsuite>"#;
        std::fs::write(file("TEST-b.xml"), case).unwrap();
        let junit = JunitReport {
            path: file("junit.xml"),
            flavour: JunitFlavour::Extended,
            merge: vec![file("TEST-*.xml")],
        };
        let wanted = Reports { junit: Some(junit), ..Reports::default() };
        let mut leaking = serde_json::to_value(report()).unwrap();
        leaking["suites"] = serde_json::json!([{ "name": "engine", "runner": "gtest", "boundary": "exact",
            "verdict": "fail", "screened_s": 1.0, "reason": "", "metrics": {}, "tests": [{ "id": "Map.scroll",
            "outcome": "passed", "verdict": "fail", "reason": "", "duration_s": 0.1, "confirmed": true,
            "metrics": {}, "leaks": [], "one_time": [], "curve": [] }] }]);
        let leaking = serde_json::from_value(leaking).unwrap();
        let error = write_all(&leaking, None, &wanted, &Console::new(ColorChoice::Never)).unwrap_err();
        assert!(error.to_string().contains("TEST-a.xml"), "{error}");
        assert!(std::fs::read_to_string(file("TEST-b.xml")).unwrap().contains("<failure "));
    }

    #[test]
    fn everything_is_written_into_one_folder() {
        let folder = tempfile::tempdir().unwrap();
        write_everything(&report(), folder.path()).unwrap();
        let mut names: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        // A run without a test has no chart.
        let all = [
            "annotations.txt",
            "codequality.json",
            "comment.md",
            "junit-strict.xml",
            "junit.xml",
            "lark.json",
            "leaks.folded",
            "leaks.speedscope.json",
            "memgate.sarif",
            "metrics.txt",
            "report.html",
            "report.json",
            "report.txt",
            "slack.json",
            "summary.md",
            "teams.json",
        ];
        assert_eq!(names, all);
    }

    #[test]
    fn files_of_the_runner_are_found_by_pattern() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a/reports/TEST-x.xml", "b/reports/TEST-y.xml", "b/reports/other.txt", "c/TEST-z.xml"] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let found = |pattern: &str| -> Vec<String> {
            let found = matching(&folder.path().join(pattern)).unwrap();
            found
                .iter()
                .map(|p| p.strip_prefix(folder.path()).unwrap().to_string_lossy().into_owned())
                .collect()
        };
        assert_eq!(found("*/reports/TEST-*.xml"), ["a/reports/TEST-x.xml", "b/reports/TEST-y.xml"]);
        assert_eq!(found("c/TEST-z.xml"), ["c/TEST-z.xml"]);
        assert!(found("gone/*.xml").is_empty());
        let all = ["a/reports/TEST-x.xml", "b/reports/TEST-y.xml", "c/TEST-z.xml"];
        assert_eq!(found("**/TEST-*.xml"), all);
        assert_eq!(found("**/**/TEST-*.xml"), all, "each once");
        assert_eq!(found("**/reports/*.txt"), ["b/reports/other.txt"]);
    }

    /// A memgate.yaml in the current folder leaves its paths relative.
    #[test]
    fn a_pattern_may_begin_with_a_wildcard() {
        let found = matching(Path::new("*/deliver/fil?s.rs")).unwrap();
        assert_eq!(found, [Path::new("./src/deliver/files.rs")]);
    }

    #[test]
    fn every_format_can_be_printed() {
        let screen = Screen { colour: false, width: None, verbose: false };
        for (format, part) in [
            (Format::Human, "no test ran"),
            (Format::Json, "\"verdict\": \"pass\""),
            (Format::Junit, "<testsuites"),
            (Format::Html, "<!DOCTYPE html>"),
            (Format::Markdown, "## ✅ memgate: no test ran"),
            (Format::Annotations, "::notice title=memgate::no test ran"),
            (Format::Codequality, "[]"),
            (Format::Metrics, "# EOF"),
            (Format::Sarif, "\"version\": \"2.1.0\""),
            (Format::Folded, ""),
            (Format::Speedscope, "speedscope"),
        ] {
            let text = String::from_utf8(rendered(&report(), format, None, screen).unwrap()).unwrap();
            assert!(text.contains(part), "{format:?}: {text}");
        }
    }
}
