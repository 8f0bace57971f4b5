//! The page as a whole: nothing from outside acts in it, its numbers are those of the JSON.

use memgate_model::{Blamed, Followed, FollowedSite, FollowedTotal, LeakKind, Verdict, WaiverState};

use super::html;
use crate::json::json;
use crate::sample;

#[test]
fn the_page_is_one_file_that_loads_nothing() {
    for (name, report) in sample::all() {
        let page = html(&report).unwrap();
        assert!(page.starts_with("<!DOCTYPE html>\n") && page.ends_with("</html>\n"), "{name}");
        for forbidden in ["src=", "<link", "<iframe", "@import", "url(", " style=", " onclick", "javascript:"]
        {
            assert!(!page.contains(forbidden), "{name}: {forbidden}");
        }
        assert_eq!(page.matches("http://").count() + page.matches("https://").count(), 0, "{name}");
        assert!(page.contains("default-src &#39;none&#39;; style-src &#39;sha256-"), "{name}");
    }
}

#[test]
fn names_made_to_break_out_stay_text() {
    let page = html(&sample::hostile()).unwrap();
    assert!(page.chars().all(|c| c == '\n' || !c.is_control()), "no control character");
    assert!(!page.contains('\u{202e}') && page.contains("a\\u{0}b\\u{1b}[31mred"));
    assert!(!page.contains("<&\"'>"), "quotes and brackets are escaped");
    assert_eq!(page.matches("</script>").count(), page.matches("<script").count());
}

#[test]
fn the_verdict_and_its_reason_come_first() {
    let page = html(&sample::mixed()).unwrap();
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text}"));
    assert!(at("<h1><span class=\"badge fail\">FAIL</span> 1 of ") < at("id=tests"));
    assert!(at("class=reasons") < at("id=tests"));
    let rows: Vec<_> =
        page.match_indices(" data-v=").map(|(i, m)| &page[i + m.len()..i + m.len() + 4]).collect();
    assert_eq!(rows[..3], ["fail", "erro", "warn"], "the worst first");
}

#[test]
fn every_part_of_the_report_is_told() {
    let report = sample::mixed();
    let page = html(&report).unwrap();
    for suite in &report.suites {
        for test in &suite.tests {
            assert!(page.contains(&format!("{}::{}", suite.name, test.id)), "{}", test.id);
            for leak in test.leaks.iter().chain(&test.one_time) {
                assert!(page.contains(&leak.id), "{}", leak.id);
            }
        }
    }
    assert!(page.contains("memgate.yaml:24"), "the line of the threshold");
    assert!(page.contains("16.2 KiB (16640 B)"), "to the byte");
    assert!(page.contains("7 % more than without the agent") && page.contains("12.3 MiB"));
    assert!(page.contains("the disk is full") && page.contains("2026-11-21T10:15:00+01:00"));
    assert!(page.contains("expired") && page.contains("matches nothing") && page.contains("2027-03-01"));
    assert!(page.contains("How verdicts are made") && page.contains("allocated once and kept"));
}

#[test]
fn memory_over_the_run_of_a_suite_has_the_ends_of_its_tests() {
    let page = html(&sample::mixed()).unwrap();
    for part in
        ["Memory over the run", "native.live_bytes over the whole suite", "os.rss over the whole suite"]
    {
        assert!(page.contains(part), "{part}");
    }
    assert!(page.contains("at most 512.0 KiB, in Tiles/Loader.loads/3; marks below: ends of tests"));
    assert!(!html(&sample::clean()).unwrap().contains("Memory over the run"));
}

#[test]
fn what_the_rounds_of_a_jvm_suite_cost_is_told() {
    let page = html(&sample::held()).unwrap();
    assert!(page.contains("<dt>rounds of loaders</dt><dd>12.8 s, 5.1 × the suite alone (2.5 s)"), "{page}");
}

#[test]
fn a_waiver_about_to_end_is_told() {
    let mut report = sample::mixed();
    report.waivers[0].until = "2026-11-24".to_owned();
    assert_eq!(report.waivers[0].state, WaiverState::InForce);
    assert!(html(&report).unwrap().contains("in force, ends in 3 days"));
}

#[test]
fn followed_objects_have_their_figures() {
    let mut report = sample::held();
    assert!(!html(&report).unwrap().contains("Followed objects"));
    let frames = report.suites[0].tests[0].leaks[0].frames.clone();
    let site = FollowedSite {
        class: "com.example.Tile".to_owned(),
        frames,
        allocations: 12,
        bytes: 49152,
        live: 3,
        live_bytes: 12288,
        lifetimes: vec![9, 0, 0, 0, 0, 0],
    };
    let by = Blamed {
        class: "com.example.TileLoader".to_owned(),
        allocations: 12,
        bytes: 49152,
        live: 3,
        live_bytes: 12288,
    };
    report.followed = Some(Followed {
        sites: vec![site],
        blame: vec![by],
        left_out: 2,
        all: FollowedTotal::default(),
        lost: 0,
        pauses: 1,
    });
    let page = html(&report).unwrap();
    for part in [
        "com.example.TileLoader.load",
        "<data value=\"49152\">48.0 KiB",
        "<data value=\"3\">3",
        "2 more sites",
        "lived &lt; 1 ms 9",
        "Allocating classes",
        "<th scope=row class=code>com.example.TileLoader<",
        "paused once: what was allocated then is missing",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn a_java_leak_shows_who_holds_it() {
    let page = html(&sample::held()).unwrap();
    assert!(
        page.contains("held by  static com.example.Registry.cache → java.util.HashMap.table[x]"),
        "{page}"
    );
    assert!(sample::held().suites[0].tests[0].leaks[0].kind == LeakKind::Java);
}

/// Every figure of a test stands in the page as it stands in `report.json`.
#[test]
fn figures_are_those_of_the_json() {
    let report = sample::mixed();
    let page = html(&report).unwrap();
    let text = json(&report).unwrap();
    for test in report.suites.iter().flat_map(|suite| &suite.tests) {
        for value in test.metrics.values() {
            assert!(
                page.contains(&format!("<data value=\"{}\">", value.value)),
                "{}: {}",
                test.id,
                value.value
            );
            assert!(text.contains(&format!("\"value\": {:?}", value.value)), "{}", value.value);
        }
    }
}

#[test]
fn bodies_of_tests_that_passed_wait_to_be_opened() {
    let page = html(&sample::clean()).unwrap();
    let (_, bodies) = page.split_once("<script type=\"text/plain\" id=bodies>").unwrap();
    assert_eq!(bodies.split_once("</script>").unwrap().0.lines().count(), 3);
    assert_eq!(page.matches("<div class=body>").count(), 0);
    let failed = html(&sample::leak()).unwrap();
    assert_eq!(failed.matches("<div class=body>").count(), 1);
    assert!(sample::leak().verdict == Verdict::Fail && failed.contains("class=\"chart\""));
}
