//! The page in a real browser: what a person sees and does, at two widths, in light and in dark.

use std::fs;
use std::process::Command;

use memgate_e2e::{has_tool, peer, repository};
use serde_json::Value;

use crate::leaks_session;

/// Where browsers are called by these names.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

fn browser() -> Option<&'static str> {
    let found = BROWSERS.into_iter().find(|name| Command::new(name).arg("--version").output().is_ok());
    if found.is_none() {
        memgate_e2e::say("skipped: there is no chromium here");
    }
    found
}

/// `UPDATE_PICTURE=1` replaces the picture of the README.
#[test]
fn the_page_works_in_a_browser() {
    let (Some(browser), true) = (browser(), has_tool("node")) else { return };
    let (project, _) = leaks_session();
    let pictures = project.folder().join("pictures");
    fs::create_dir_all(&pictures).unwrap();
    let mut command = Command::new("node");
    command.arg(repository().join("tests/peers/browser.mjs")).arg(browser);
    command
        .arg(project.session().join("report.html"))
        .arg(&pictures)
        .args(peer("node_modules/axe-core/axe.min.js"));
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let found: Value = serde_json::from_str(&text)
        .unwrap_or_else(|e| panic!("{e}: {text}\n{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(found["error"], Value::Null, "{found:#}");
    assert_eq!(found["console"], serde_json::json!([]), "nothing on the console");
    assert_eq!(found["requests"], serde_json::json!([]), "nothing is loaded from anywhere");
    assert_eq!(found["axe"], serde_json::json!([]), "no violation of accessibility");

    let views = found["views"].as_array().unwrap();
    assert_eq!(views.len(), 4);
    for view in views {
        assert_eq!(view["wider"], 0, "nothing stands out at the side: {view}");
        assert!(view["charts"].as_u64() > Some(1) && view["icicle"].as_u64() > Some(3), "{view}");
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
    assert_eq!(found["keyboard"], true, "Enter opens a test");
    assert!(found["icicle"].as_str().unwrap().starts_with("all: "));
    assert_ne!(found["icicle_down"], found["icicle"], "an arrow goes down");
    assert_eq!(found["icicle_zoomed"], "100%", "Enter zooms in");
    if std::env::var_os("UPDATE_PICTURE").is_some() {
        fs::copy(pictures.join("readme.png"), repository().join("docs/report.png")).unwrap();
    }
}
