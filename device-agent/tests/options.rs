//! The option string. The agent itself is a cdylib that takes over `malloc`, so its pure parts are
//! tested from their source.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "a part of another crate, compiled alone")]

#[path = "../src/options.rs"]
mod options;
#[path = "../src/platform/places.rs"]
mod places;

use std::time::Duration;

use options::{CarrierKind, Detail, Options, Target, app_socket, fits};
use places::{in_data, is_options, option_files, package_of};

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

#[test]
fn an_app_listens_under_its_own_name() {
    let o = Options::parse("carrier=app;package=com.example.app;os=1;windows=each");
    assert_eq!((o.carrier, o.package.as_str(), o.os), (CarrierKind::App, "com.example.app", true));
    assert_eq!(app_socket("com.example.app", 4711), "memgate-com.example.app-4711");
    // A name in the abstract space has 107 bytes at most.
    let long = app_socket(&"x".repeat(300), u32::MAX);
    assert_eq!(long, format!("memgate-{}-{}", "x".repeat(80), u32::MAX));
    assert!(long.len() <= 107);
    assert_eq!(app_socket(&"ä".repeat(60), 1).len(), "memgate--1".len() + 80);
    assert!(app_socket(&format!("a{}", "ä".repeat(50)), 1).len() <= 107);
}

#[test]
fn the_app_is_found_on_the_command_line() {
    for (command_line, package) in [
        ("com.example.app\0", "com.example.app"),
        // A process of the app's own choice; and the name is padded when it was set over a longer
        // one.
        ("com.example.app:remote\0\0\0\0", "com.example.app"),
        // Started by `wrap.sh`, before it has its name.
        (
            "/system/bin/app_process64\0/system/bin\0--application\0--nice-name=com.example.app\0com.android.internal.os.WrapperInit\0",
            "com.example.app",
        ),
        ("app_process64\0/system/bin\0", ""),
        ("", ""),
    ] {
        assert_eq!(package_of(command_line.as_bytes()), package, "{command_line:?}");
    }
}

#[test]
fn options_are_looked_for_beside_the_library_and_in_the_apps_data() {
    let data = ["/data/user/10/com.example.app", "/data/data/com.example.app"].map(in_data);
    assert_eq!(data[0], "/data/user/10/com.example.app/code_cache/memgate.options");
    let cache = "/data/user/10/com.example.app/code_cache";
    for library in [format!("{cache}/libmemgate_agent.so"), format!("{cache}/startup_agents/x.so")] {
        let files = option_files(&library, "com.example.app", 1_010_123);
        assert_eq!(files, [data[0].clone(), data[0].clone(), data[1].clone()], "{library}");
    }
    // A library of the package lies elsewhere; without a name there is no folder of data.
    let library = "/data/app/~~x==/com.example.app-y==/lib/arm64/libmemgate_agent.so";
    assert_eq!(option_files(library, "com.example.app", 1_010_123), data);
    assert!(option_files("libmemgate_agent.so", "", 0).is_empty());
    assert!(option_files("", "../../x", 0).is_empty(), "a name is no path");
}

#[test]
fn what_an_entry_is_told_is_a_path_or_the_options() {
    assert!(is_options("carrier=app;token=x"));
    // What startup_agents passes, and a path that holds an equals sign.
    assert!(!is_options("/data/user/0/com.example.app"));
    assert!(!is_options("/data/app/~~x==/memgate.options"));
    assert!(!is_options(""));
}
