//! The option string. The agent itself is a cdylib that takes over `malloc`, so its pure parts are tested from their source.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "a part of another crate, compiled alone")]

#[path = "../src/options.rs"]
mod options;

use std::time::Duration;

use options::{CarrierKind, Detail, Options, Target, fits};

#[test]
fn every_option_is_understood() {
    let text = "dir=/a%3Bb;target=gtest;target=exe:/x/y;target=glob:*_tests;target=all;detail=growth;label=confirm 3%25;\
                wait_ms=250;harness=1;token=s3cret;carrier=unix:@name";
    let o = Options::parse(text);
    assert_eq!((o.directory.as_str(), o.label.as_str(), o.token.as_str()), ("/a;b", "confirm 3%", "s3cret"));
    let exe = Target::Executable("/x/y".to_owned());
    assert_eq!(o.targets, [Target::GoogleTest, exe, Target::Glob("*_tests".to_owned()), Target::All]);
    assert_eq!((o.detail, o.wait, o.harness), (Detail::Growth, Duration::from_millis(250), true));
    assert_eq!(o.carrier, CarrierKind::Unix("@name".to_owned()));
    assert!(o.complaints.is_empty(), "{:?}", o.complaints);
}

#[test]
fn what_is_not_understood_is_told_and_changes_nothing() {
    for bad in [
        "nonsense",
        "wait_ms=-1",
        "detail=all",
        "target=",
        "carrier=tcp:0.0.0.0:80",
        "carrier=tcp:127.0.0.1:x",
        "=",
        "dir",
    ] {
        let o = Options::parse(bad);
        let told = !o.complaints.is_empty();
        assert_eq!(told, bad != "dir", "{bad}");
        assert_eq!(
            (o.carrier, o.detail, o.wait),
            (CarrierKind::Spool, Detail::Survivors, Duration::from_secs(2)),
            "{bad}"
        );
    }
}

#[test]
fn broken_escapes_stay_as_they_are() {
    for (text, want) in
        [("%", "%"), ("%4", "%4"), ("%zz", "%zz"), ("a%00b", "a\0b"), ("%ff", "\u{fffd}"), ("%C3%A4", "ä")]
    {
        assert_eq!(Options::parse(&format!("label={text}")).label, want);
    }
}

#[test]
fn patterns_take_any_text_for_a_star() {
    for (pattern, text, want) in [
        ("*", "", true),
        ("*_tests", "/b/engine_tests", true),
        ("*_tests", "/b/engine_tests.old", false),
        ("/b/?", "/b/x", true),
        ("/b/?", "/b/", false),
        ("*a*b*c", "aabbcab", false),
        ("*a*b*c", "aabbcabc", true),
        ("", "x", false),
    ] {
        assert_eq!(fits(pattern.as_bytes(), text.as_bytes()), want, "{pattern} {text}");
    }
    let stars = "*a".repeat(40);
    assert!(!fits(stars.as_bytes(), "a".repeat(39).as_bytes()), "and in time");
}
