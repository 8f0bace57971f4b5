//! Tests of the whole page: no text from outside becomes active in it, and its numbers are those of the JSON.

use memgate_model::{
    Blamed, Followed, FollowedSite, FollowedTotal, LeakKind, Runner, TestReport, Verdict, WaiverState,
};

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
        // The only exception is the CI job, which is just a link.
        let job = "<a rel=\"noopener noreferrer\" href=\"https://ci.example.com/7\">";
        let linked = usize::from(report.origin.is_some());
        assert_eq!(page.matches(job).count(), linked, "{name}");
        assert_eq!(page.matches("http://").count() + page.matches("https://").count(), linked, "{name}");
        assert!(page.contains("default-src &#39;none&#39;; style-src &#39;sha256-"), "{name}");
    }
}

#[test]
fn names_made_to_break_out_stay_text() {
    let page = html(&sample::hostile()).unwrap();
    // Tabs are allowed, because they separate the fields of lines.
    assert!(page.chars().all(|c| matches!(c, '\n' | '\t') || !c.is_control()), "no control character");
    assert!(!page.contains('\u{202e}') && page.contains("a\\u{0}b\\u{1b}[31mred"));
    assert!(!page.contains("<&\"'>"), "quotes and brackets are escaped");
    assert_eq!(page.matches("</script>").count(), page.matches("<script").count());
}

#[test]
fn the_verdict_and_its_reason_come_first() {
    let page = html(&sample::mixed()).unwrap();
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text}"));
    assert!(
        at("<h1><span class=\"badge fail\">FAIL</span> recurse0 leaks 48.0 KiB per run") < at("id=tests")
    );
    assert!(at("<p class=counts>1 of 10 tests leaks") < at("class=reasons"));
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
            let whole = page.contains(&format!("{}::{}", suite.name, test.id));
            assert!(whole || page.contains(&format!("\t{}\n", test.id)), "{}", test.id);
            for leak in test.leaks.iter().chain(&test.one_time) {
                assert!(page.contains(&leak.id), "{}", leak.id);
            }
        }
    }
    assert!(page.contains("memgate.yaml:24"), "the line of the threshold");
    assert!(page.contains("16.2 KiB (16640 B)"), "to the byte");
    assert!(page.contains("7 % more than without it") && page.contains("12.3 MiB"));
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
    assert!(page.contains("<dt>rounds of loaders</dt><dd>12.8 s, 5.1 × the tests alone (2.5 s)"), "{page}");
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

/// Every figure of a test is shown in the page as in `report.json`.
#[test]
fn figures_are_those_of_the_json() {
    let report = sample::mixed();
    let page = html(&report).unwrap();
    let text = json(&report).unwrap();
    for test in report.entries() {
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
fn tests_that_left_nothing_are_lines_and_what_they_have_in_common_is_told_once() {
    let page = html(&sample::clean()).unwrap();
    let (_, lines) = page.split_once("<script type=\"text/plain\" id=clean>").unwrap();
    let lines: Vec<_> = lines.split_once("</script>").unwrap().0.lines().collect();
    assert_eq!(lines, ["0\t31.3\tCodec.decodes", "0\t31.3\tCodec.encodes", "0\t31.3\tCodec.refuses"]);
    assert_eq!(page.matches("It ran once, and what it left behind").count(), 1);
    assert_eq!(page.matches("<div class=body>").count(), 0);
    let failed = html(&sample::leak()).unwrap();
    assert_eq!(failed.matches("<div class=body>").count(), 1);
    assert!(sample::leak().verdict == Verdict::Fail && failed.contains("class=\"chart\""));
}

#[test]
fn bodies_of_other_tests_that_passed_wait_to_be_opened() {
    let page = html(&sample::mixed()).unwrap();
    let (_, bodies) = page.split_once("<script type=\"text/plain\" id=bodies>").unwrap();
    let passed = ["Fonts.load", "Fonts.measure", "Labels.draws", "MapView.needsGpu"];
    assert_eq!(bodies.split_once("</script>").unwrap().0.lines().count(), passed.len(), "{passed:?}");
}

#[test]
fn a_test_that_did_not_run_alone_is_not_said_to_be_of_a_class_that_did_not_grow() {
    let class = TestReport { is_class: true, verdict: Verdict::Fail, ..sample::test("ATest") };
    let open = TestReport {
        verdict: Verdict::NotJudged,
        reason: "its class grew, and was not confirmed: BTest".to_owned(),
        ..sample::test("BTest.b")
    };
    let mut suite = sample::suite("unit", Verdict::Fail, vec![class, sample::test("ATest.a"), open]);
    suite.runner = Runner::Junit;
    let page = html(&sample::run(Verdict::Fail, 1, vec![suite])).unwrap();
    assert!(page.contains("in the last rounds of the suite, or is judged as a whole."), "{page}");
    let unknown = "What the test leaves behind is unknown: its class grew, and was not confirmed: BTest.";
    assert!(page.contains(unknown), "{page}");
}

#[test]
fn two_clean_tests_of_one_name_have_addresses_of_their_own() {
    let mut report = sample::clean();
    report.suites[0].tests[1].id = "Codec.decodes".to_owned();
    let page = html(&report).unwrap();
    assert!(page.contains("\n0\t31.3\tCodec.decodes\tt:codec_tests::Codec.decodes~2\n"), "{page}");
}

#[test]
fn the_head_says_of_which_commit_and_job_it_is() {
    let page = html(&sample::mixed()).unwrap();
    for part in [
        "<dt>commit</dt><dd>3f0c1b2a9d on fix/tiles into main</dd>",
        "href=\"https://ci.example.com/7\">github tests #812</a>",
        "builder-3, Debian GNU/Linux 12 (bookworm), Linux 6.1.0, x86_64, 8 processors",
        "<dt>versions</dt><dd>memgate 0.9.1</dd>",
        "<nav aria-label=Contents><a href=#problems>",
        "repeating tests</dt><dd>2.5 s of 15.2 s in all",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let mut report = sample::mixed();
    report.origin.as_mut().unwrap().ci.as_mut().unwrap().url = "javascript:alert(1)".to_owned();
    assert!(!html(&report).unwrap().contains("javascript:"));
}

#[test]
fn each_leak_has_its_address_and_commands_that_can_be_copied() {
    let page = html(&sample::mixed()).unwrap();
    for part in [
        "data-leak=\"n1-00000000000000cc\"",
        "href=\"#l:n1-00000000000000cc\"",
        "<code class=command>memgate waive n1-00000000000000cc --reason &quot;…&quot; --until 2027-03-01</code> <button",
        "<code class=command>memgate run --filter MapCache.scroll -- ctest --test-dir &#39;build dir&#39;</code> <button",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let measured = "<span class=\"key value\"></span>measured";
    assert!(html(&sample::leak()).unwrap().contains(measured), "the line between the others has its entry");
}
