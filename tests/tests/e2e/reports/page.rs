//! The page in a real browser: what a person sees and does, at two widths, in light and in dark mode; and its
//! maximum size.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use memgate_e2e::{Project, has_tool, peer, repository};
use memgate_model::{CurvePoint, LeakKind, Metric, RunReport, TestReport, Verdict};
use serde_json::Value;

use crate::leaks_session;

/// Names of the browser's command.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

fn browser() -> Option<&'static str> {
    let found = BROWSERS.into_iter().find(|name| Command::new(name).arg("--version").output().is_ok());
    if found.is_none() {
        memgate_e2e::skip_without("chromium");
    }
    found.filter(|_| has_tool("node"))
}

/// What `tests/peers/browser.mjs` finds in a page. The console must stay empty, and nothing may be loaded
/// from elsewhere.
fn driven(browser: &str, page: &Path, arguments: &[&Path]) -> Value {
    let arguments: Vec<&OsStr> =
        std::iter::once(page).chain(arguments.iter().copied()).map(Path::as_os_str).collect();
    found(browser, &arguments)
}

/// Opens pages of a server, each at two widths, in light and dark mode; pictures go into `folder`. `None` if
/// there is no browser.
pub(crate) fn served(folder: &Path, addresses: &[String]) -> Option<Value> {
    let browser = browser()?;
    let axe = peer("node_modules/axe-core/axe.min.js").unwrap_or_default();
    let mut arguments = vec![OsStr::new("--served"), folder.as_os_str(), axe.as_os_str()];
    arguments.extend(addresses.iter().map(OsStr::new));
    Some(found(browser, &arguments))
}

/// What the browser finds with these arguments; `None` if there is no browser.
pub(crate) fn browse(arguments: &[&str]) -> Option<Value> {
    Some(found(browser()?, &arguments.iter().map(OsStr::new).collect::<Vec<_>>()))
}

fn found(browser: &str, arguments: &[&OsStr]) -> Value {
    let mut command = Command::new("node");
    command.arg(repository().join("tests/peers/browser.mjs")).arg(browser).args(arguments);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let found: Value = serde_json::from_str(&text)
        .unwrap_or_else(|e| panic!("{e}: {text}\n{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(found["error"], Value::Null, "{found:#}");
    assert_eq!(found["console"], serde_json::json!([]), "nothing on the console");
    assert_eq!(found["requests"], serde_json::json!([]), "nothing is loaded from anywhere");
    found
}

/// The report of the leaking sample.
fn leaks_report() -> RunReport {
    serde_json::from_str(&leaks_session().0.read(".memgate/latest/report.json")).unwrap()
}

/// Writes a separate session with this report; returns its page as the program renders it.
fn page_of(project: &Project, report: &RunReport) -> std::path::PathBuf {
    project.write("session/report.json", serde_json::to_string(report).unwrap());
    let run = project.memgate(&["report", "session", "--format", "html"]);
    run.ends_with(0);
    project.write("report.html", run.stdout)
}

/// `UPDATE_PICTURE=1` replaces the picture of the README.
#[test]
fn the_page_works_in_a_browser() {
    let Some(browser) = browser() else { return };
    let (project, _) = leaks_session();
    let pictures = project.folder().join("pictures");
    fs::create_dir_all(&pictures).unwrap();
    let axe = peer("node_modules/axe-core/axe.min.js");
    let arguments: Vec<&Path> = std::iter::once(pictures.as_path()).chain(axe.as_deref()).collect();
    let found = driven(browser, &project.session().join("report.html"), &arguments);
    assert_eq!(found["axe"], serde_json::json!([]), "no violation of accessibility");

    let views = found["views"].as_array().unwrap();
    assert_eq!(views.len(), 4);
    for view in views {
        assert_eq!(view["wider"], 0, "nothing stands out at the side: {view}");
        assert!(view["charts"].as_u64() > Some(1) && view["icicle"].as_u64() > Some(3), "{view}");
        assert!(view["suite_charts"].as_u64() > Some(0), "memory over the run: {view}");
        let size = fs::metadata(pictures.join(view["picture"].as_str().unwrap())).unwrap().len();
        assert!(size > 20_000, "{view}: a picture of {size} bytes shows nothing");
    }
    assert_ne!(views[0]["background"], views[1]["background"], "dark is dark");

    let tests = found["tests"].as_array().unwrap();
    assert_eq!(tests.len(), 20);
    assert_eq!(found["search"]["names"], serde_json::json!([tests[0]]), "{}", found["search"]);
    assert_eq!(found["search"]["count"], "1 of 20 tests");
    assert!(found["by_name"].as_array().unwrap().is_sorted_by_key(|name| name.as_str().unwrap()));
    assert!(found["by_bytes"].as_array().unwrap().is_sorted_by(|a, b| a.as_f64() >= b.as_f64()));
    let failing = found["failing"].as_array().unwrap();
    assert!(failing.len() == 17 && failing.iter().all(|verdict| verdict == "fail"));

    let link = &found["deep_link"];
    for what in ["open", "body", "in_view", "focus"] {
        assert_eq!(link[what], true, "an address opens its test: {link}");
    }
    assert_eq!(found["leak_link"], true, "an address opens the test of a leak: {}", found["leak"]);
    assert_eq!(found["address"], format!("#q={}&verdict=fail", found["search"]["word"].as_str().unwrap()));
    assert_eq!(found["address_found"], found["search"]["names"], "an address has what is filtered");
    assert_eq!(found["copy"]["said"], "copied");
    assert!(found["copy"]["command"].as_str().unwrap().starts_with("memgate waive n1-"), "{}", found["copy"]);
    assert_eq!(found["keyboard"], true, "Enter opens a test");
    assert!(found["icicle"].as_str().unwrap().starts_with("all: "));
    assert_ne!(found["icicle_down"], found["icicle"], "an arrow goes down");
    assert_eq!(found["icicle_zoomed"], "100%", "Enter zooms in");
    if std::env::var_os("UPDATE_PICTURE").is_some() {
        fs::copy(pictures.join("readme.png"), repository().join("docs/report.png")).unwrap();
    }
}

/// More clean tests than are shown at once: each can be found by its name, and by its link.
#[test]
fn every_one_of_many_clean_tests_is_found() {
    let Some(browser) = browser() else { return };
    let mut report = leaks_report();
    let suite = &mut report.suites[0];
    let clean = suite.tests.iter().find(|test| test.clean).unwrap().clone();
    suite.tests.retain(|test| test.verdict == Verdict::Fail);
    let test = |number: usize| TestReport { id: format!("Many.test{number}/<b>"), ..clean.clone() };
    suite.tests.extend((0..5000).map(test));
    let project = Project::new("report-clean");
    let page = page_of(&project, &report);
    let size = fs::metadata(&page).unwrap().len();
    let found = driven(browser, &page, &[Path::new("--clean")]);
    memgate_e2e::say(&format!("a page of 5,000 clean tests and 17 that leak: {size} B"));
    assert_eq!(found["shown"], 17 + 200);
    assert_eq!(found["more"], "show 200 more of 4800 that passed");
    assert_eq!(found["after_more"], 17 + 400);
    assert_eq!(found["searched"], serde_json::json!(["leaks::Many.test4321/<b>"]));
    assert_eq!(found["count"], "1 of 5017 tests");
    let by_name = found["by_name"].as_array().unwrap();
    assert!(by_name.len() == 17 + 200 && by_name.is_sorted_by_key(|name| name.as_str().unwrap()));
    let link = &found["deep_link"];
    assert_eq!((&link["open"], &link["name"]), (&true.into(), &"leaks::Many.test3333/<b>".into()), "{link}");
    assert!(link["body"].as_str().unwrap().contains("It ran once, and what it left behind"), "{link}");
}

#[test]
fn leaked_bytes_are_seen_native_java_and_together() {
    let Some(browser) = browser() else { return };
    let mut report = leaks_report();
    let mut bytes = [0.0, 0.0];
    let leaks = report.suites.iter_mut().flat_map(|suite| &mut suite.tests).flat_map(|test| &mut test.leaks);
    for (number, leak) in leaks.filter(|leak| leak.bytes_per_iteration > 0.0).enumerate() {
        if number % 2 == 1 {
            leak.kind = LeakKind::Java;
            leak.class = Some("com.example.Tile".to_owned());
        }
        bytes[number % 2] += leak.bytes_per_iteration;
    }
    let project = Project::new("report-icicle");
    let found = driven(browser, &page_of(&project, &report), &[Path::new("--icicle")]);
    let count = |view: &str, kind: &str| found[view][kind].as_u64().unwrap();
    assert!(count("merged", "native") > 3 && count("merged", "java") > 3, "{found}");
    assert!(count("native", "native") > 3 && count("native", "java") == 0, "{found}");
    assert!(count("java", "native") == 0 && count("java", "java") > 3, "{found}");
    for (view, bytes) in [("merged", bytes[0] + bytes[1]), ("native", bytes[0]), ("java", bytes[1])] {
        let all = format!("all: {}, 100.0 %", memgate_model::format_bytes(bytes));
        assert_eq!(found[view]["all"], all, "{view}");
    }
}

/// Five thousand tests with two hundred samples each, as in real runs; one in twenty leaks. Compared with the
/// same number of empty rows, in CPU time of the page's main thread.
#[test]
fn five_thousand_tests_open_about_as_soon_as_their_bare_rows() {
    const TESTS: usize = 5000;
    const MOST: f64 = 3.0;
    let Some(browser) = browser() else { return };
    let mut report = leaks_report();
    let leaking = report.suites[0].tests.iter().find(|test| test.verdict == Verdict::Fail).unwrap().clone();
    let test = |number: usize| {
        let leaks = number.is_multiple_of(20);
        let sample = |at: usize| CurvePoint {
            t_ns: at as u64 * 10_000_000,
            metric: Metric::NativeLiveBytes,
            value: ((at * 2_654_435_761 + number * 97) % 8192) as f64,
        };
        let mut test = TestReport {
            id: format!("Suite{}.test{number}", number / 40),
            curve: (0..200).map(sample).collect(),
            ..leaking.clone()
        };
        if !leaks {
            (test.verdict, test.confirmed) = (Verdict::Pass, false);
            test.leaks.clear();
            test.growth.clear();
            test.one_time.clear();
        }
        test
    };
    report.suites[0].tests = (0..TESTS).map(test).collect();
    let project = Project::new("report-large");
    let row = |test: &TestReport| {
        format!("<details class=test><summary><b>PASS</b> <code>{}</code></summary></details>\n", test.id)
    };
    let rows: String = report.suites[0].tests.iter().map(row).collect();
    let bare = project.write("bare.html", format!("<!DOCTYPE html><title>rows</title>\n{rows}"));
    let bare = driven(browser, &bare, &[Path::new("--open")]);
    let found = driven(browser, &page_of(&project, &report), &[Path::new("--open")]);
    memgate_e2e::say(&format!(
        "5,000 tests: {} opened, {} searched; bare rows {}",
        found["open"], found["search"], bare["open"]
    ));
    assert_eq!((found["tests"].as_u64(), found["found"].as_u64()), (Some(5000), Some(250)));
    let main_thread = |found: &Value, what: &str| found[what]["main_thread"].as_f64().unwrap();
    let rows_alone = main_thread(&bare, "open");
    assert!(rows_alone > 0.01 && main_thread(&found, "open") < MOST * rows_alone, "{found} {bare}");
    assert!(main_thread(&found, "search") < rows_alone, "{found} {bare}");
}
