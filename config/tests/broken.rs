//! Broken documents with the exact messages that a user reads. One snapshot contains all of them, to be read from
//! top to bottom.

use memgate_config::Config;

fn env(name: &str) -> Option<String> {
    match name {
        "LIMIT" => Some("hunter2".to_owned()),
        "HOME" => Some("/home/x".to_owned()),
        _ => None,
    }
}

fn errors(source: &str) -> String {
    Config::parse(source, "memgate.yaml", &env, None).expect_err("the document is broken").to_string()
}

/// Label and document.
const BROKEN: &[(&str, &str)] = &[
    ("empty_file", ""),
    ("only_comments", "# nothing yet\n\n"),
    ("no_version", "project: tiles\n"),
    ("version_2", "version: 2\nproject: tiles\n"),
    ("unknown_key", "version: 1\nmeasure:\n  warmup: 3\n"),
    ("unknown_key_far_from_any", "version: 1\nmeasure:\n  zzz: 3\n"),
    ("unknown_key_at_the_top", "version: 1\nsuits:\n  engine: { run: [a] }\n"),
    ("duplicate_key", "version: 1\nmeasure:\n  warm_up: 3\n  iterations: 10\n  warm_up: 4\n"),
    ("duplicate_suite", "version: 1\nsuites:\n  engine: { run: [a] }\n  engine: { run: [b] }\n"),
    ("duplicate_metric", "version: 1\nthresholds:\n  os.fds: 0\n  os.fds: 1\n"),
    ("wrong_type_list_for_number", "version: 1\nmeasure:\n  iterations: [10]\n"),
    ("wrong_type_text_for_number", "version: 1\nmeasure: { iterations: ten }\n"),
    ("wrong_type_text_for_table", "version: 1\nmeasure: fast\n"),
    ("wrong_type_text_for_list", "version: 1\nsuites:\n  engine: { run: build/engine_tests }\n"),
    ("wrong_type_root", "- version: 1\n"),
    ("no_value", "version: 1\nproject:\nthresholds:\n  os.fds:\n"),
    (
        "out_of_range",
        "version: 1\nmeasure:\n  iterations: 2\n  confidence: 1\n  timeout: 0s\n  interval: 1ms\n  confirm_budget: 1s\n",
    ),
    (
        "java_out_of_range",
        "version: 1\nmeasure:\n  java:\n    sampling: 1 KiB\n    follow: [com.*.Tile, com.example.*]\n    follow_every: 0\n    heap_limit: 100%\n    heap_dump: always\n",
    ),
    ("bad_size", "version: 1\nthresholds:\n  native.live_bytes: 64 kibs\n  os.rss: -3\n"),
    ("bad_duration", "version: 1\nmeasure:\n  timeout: 60\n  settle: soon\n"),
    ("bad_choice", "version: 1\nmeasure:\n  unconfirmed: wran\n  screen: none\n"),
    ("history_neither_off_nor_a_table", "version: 1\nhistory: never\n"),
    (
        "history_with_a_bad_line_and_label",
        "version: 1\nhistory:\n  line: main\n  lines: [\"rel[ease\"]\n  labels: { runner: [a] }\n",
    ),
    (
        "history_that_uploads_without_encryption_and_with_its_token",
        "version: 1\nhistory:\n  server: http://memgate.example.com\n  token: mgt_secret\n  upload: always\n  wait: 1h\n",
    ),
    ("history_with_a_token_and_no_server", "version: 1\nhistory:\n  token: ${MEMGATE_TOKEN}\n"),
    ("bad_target", "version: 1\nsuites:\n  all: { run: [ctest], targets: [\"build/{a,b}\"] }\n"),
    ("unknown_metric", "version: 1\nthresholds:\n  native.live_byte: 0\n"),
    ("unknown_metric_far_from_any", "version: 1\nthresholds:\n  cpu: 0\n"),
    ("size_for_a_count", "version: 1\nthresholds:\n  os.fds: 64 KiB\n  os.threads: { fail: 1 MB }\n"),
    ("relative_to_nothing", "version: 1\nthresholds:\n  os.rss: +10%\n  os.pss: { warn: +2 MiB }\n"),
    ("percent_of_nothing", "version: 1\nthresholds:\n  os.rss: { fail: 10%, against: baseline }\n"),
    ("threshold_without_limit", "version: 1\nthresholds:\n  os.rss: { per: suite }\n"),
    ("limit_and_fail", "version: 1\nthresholds:\n  os.rss: { fail: 1 MiB, limit: 2 MiB }\n"),
    ("warning_never_given", "version: 1\nthresholds:\n  os.rss: { fail: 1 MiB, warn: 2 MiB }\n"),
    (
        "override_per_suite_and_without_match",
        "version: 1\nthresholds:\n  tests:\n    - { match: \"*\", os.rss: { fail: 1 MiB, per: suite } }\n    - { os.fds: 2 }\n",
    ),
    ("suite_without_run", "version: 1\nsuites:\n  engine: { timeout: 5s }\n  other:\n"),
    ("suite_with_empty_run", "version: 1\nsuites:\n  engine: { run: [] }\n  other: { run: [\"\"] }\n"),
    ("suite_with_bad_name", "version: 1\nsuites:\n  \"a/b\": { run: [x] }\n"),
    (
        "suite_of_another_runner",
        "version: 1\nsuites:\n  a: { run: [x], devices: all }\n  b: { run: [x], runner: gtst }\n",
    ),
    (
        "mapping_that_names_no_file",
        "version: 1\nsuites:\n  a: { run: [x], runner: junit, mapping: [a.txt, \"\", [b.txt]] }\n  b: { run: [x], runner: junit, mapping: { file: a.txt } }\n  c: { run: [x], runner: gtest, mapping: [a.txt] }\n",
    ),
    ("repetitions_of_gtest", "version: 1\nsuites:\n  a: { run: [x, \"--n={n}\"], runner: gtest }\n"),
    ("mistyped_repetitions", "version: 1\nsuites:\n  a: { run: [x, \"--n={N}\"] }\n"),
    ("bracket_in_a_flow_argument", "version: 1\nsuites:\n  a: { run: [x, --n={n}], runner: command }\n"),
    ("variable_in_a_flow_table", "version: 1\nreports: { json: { path: ${OUT} } }\n"),
    ("unclosed_bracket", "version: 1\nsuites:\n  engine: { run: [build/engine_tests }\nproject: tiles\n"),
    ("unclosed_bracket_at_the_end", "version: 1\nsuites:\n  engine: { run: [build/engine_tests\n"),
    ("unclosed_quote", "version: 1\nproject: \"tiles\nmeasure: { }\n"),
    ("tab_indentation", "version: 1\nmeasure:\n\twarm_up: 3\n"),
    ("missing_colon", "version: 1\nproject tiles\nmeasure: {}\n"),
    ("bad_indentation", "version: 1\nmeasure:\n  warm_up: 3\n iterations: 10\n"),
    ("value_begins_with_at", "version: 1\nwaivers:\n  - { leak: n1-5f1c09a2b47d1e03, owner: @maps }\n"),
    ("value_begins_with_star", "version: 1\nsuites:\n  a: { run: [x], targets: [*_tests] }\n"),
    ("tag", "version: !int 1\n"),
    ("merge_of_no_table", "version: 1\nmeasure: { <<: 5 }\n"),
    ("nul_bytes", "version: 1\nproject: a\0b\n"),
    ("control_characters", "version: 1\nproject: \"a\\e[31m\"\nmeasure: { \"\\e[31m\": 1 }\n"),
    ("two_documents", "version: 1\n---\nversion: 1\n"),
    (
        "bad_dates",
        "version: 1\nwaivers:\n  - { frame: a, reason: r, until: 2027-02-29 }\n  - { frame: b, reason: r, until: 01.03.2027 }\n",
    ),
    (
        "incomplete_waivers",
        "version: 1\nwaivers:\n  - leak: n1-5f1c09a2b47d1e03\n  - { reason: r, until: never }\n  - { frame: a, class: b, reason: r, until: never }\n  - { leak: n1-5f1c, reason: r, until: never }\n",
    ),
    (
        "waived_twice",
        "version: 1\nwaivers:\n  - { frame: a, reason: r, until: never }\n  - { frame: a, reason: s, until: 2027-01-01 }\n",
    ),
    ("report_without_path", "version: 1\nreports:\n  junit: { flavour: strict }\n  json: {}\n  pdf: {}\n"),
    (
        "two_reports_in_one_file",
        "version: 1\nreports:\n  junit: { path: out/a.xml }\n  sarif: { path: ./out/b/../a.xml }\n",
    ),
    (
        "a_report_in_the_configuration",
        "version: 1\nreports:\n  markdown: { path: ./memgate.yaml }\nthresholds:\n  tests: [{ match: \"unit::A.*\" }]\n",
    ),
    ("mail_that_cannot_be_sent", "version: 1\nreports:\n  mail: { server: mail.example.com, to: [a@b.c] }\n"),
    ("mail_to_nobody", "version: 1\nreports:\n  mail:\n    server: smtp+plain://ci@localhost:99999\n"),
    (
        "mail_with_mistakes",
        "version: 1\nreports:\n  mail:\n    server: smtp+plain://ci@localhost\n    password: ${PASSWORD}\n    to: [maps-team, \"a b@c\", \"Doe, Jane <j@b.c>\", '\"Doe, Jane\" <j@b.c>']\n    timeout: 0s\n    when: sometimes\n",
    ),
    (
        "secrets_in_the_file",
        "version: 1\nreports:\n  mail: { server: \"smtps://ci:hunter2@mail.example.com\", password: hunter2, to: [a@b.c] }\n  webhooks:\n    - { chat: slack, url: \"https://hooks.example.com/hunter2\" }\n    - { chat: teams, url: \"${URL}\", secret: \"${X:-hunter2}\" }\n    - { chat: irc }\n",
    ),
    ("missing_variable", "version: 1\nsuites:\n  a: { run: [\"${BUILD}/tests\", \"${HOME}\"] }\n"),
    ("malformed_variable", "version: 1\nproject: \"${BUILD\"\nbaseline: \"${}\"\n"),
    (
        "value_of_a_variable_is_not_shown",
        "version: 1\nmeasure:\n  timeout: ${LIMIT}\nthresholds:\n  os.fds: ${LIMIT}\n",
    ),
    ("secret_in_the_shown_line", "version: 1\nreports: { mail: { password: hunter2 }, junti: {} }\n"),
    ("key_that_is_a_list", "version: 1\n? [a, b]\n: 1\n"),
    (
        "all_mistakes_at_once",
        "version: 1\nproject: tiles\nsuites:\n  engine: { run: [build/engine_tests], runer: gtest }\nmeasure:\n  iteration: 10\n  timeout: 5 min\nthresholds:\n  native.live_bytes: 12 mibb\n  os.fd: 1\nwaivers:\n  - leak: n1-5f1c09a2b47d1e03\n    until: never\nreports:\n  junit: { path: out.xml, flavour: loose }\n",
    ),
];

#[test]
fn broken_documents_say_what_is_wrong_and_where() {
    let told = BROKEN.iter().map(|(label, source)| format!("── {label}\n{}\n", errors(source).trim_end()));
    insta::assert_snapshot!("messages", told.collect::<Vec<_>>().join("\n"));
}

#[test]
fn mistakes_of_both_files_are_shown_together() {
    let waivers = "waivers:\n  - { frame: a, reason: r, until: tomorrow }\n";
    let error =
        Config::parse("version: 1\nx: 1\n", "memgate.yaml", &env, Some(("memgate-waivers.yaml", waivers)));
    let error = error.unwrap_err();
    let places =
        error.iter().map(|d| format!("{}:{}:{}", d.file(), d.line(), d.column())).collect::<Vec<_>>();
    assert_eq!(places, ["memgate.yaml:2:1", "memgate-waivers.yaml:2:35"]);
}

#[test]
fn colour_is_by_choice() {
    let error = Config::parse("x: 1\n", "memgate.yaml", &env, None).unwrap_err();
    assert!(!error.render(false).contains('\u{1b}'));
    assert!(error.render(true).contains('\u{1b}'));
}

/// Without a limit, each case would run forever or use up all memory, and this test would not end.
#[test]
fn hostile_documents_are_refused_by_a_bound() {
    let laughs = |levels: usize| {
        let mut text = "version: 1\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..levels {
            let below = format!("*a{}, ", level - 1).repeat(10);
            text.push_str(&format!("a{level}: &a{level} [{}]\n", below.trim_end_matches(", ")));
        }
        text
    };
    let cases = [
        ("a billion laughs", laughs(12), "holds more than 50000 values"),
        (
            "an alias to itself",
            "version: 1\nsuites: &a { x: *a }\n".to_owned(),
            "an alias refers to the value it is part of",
        ),
        ("nested lists", format!("version: {}", "[".repeat(100_000)), "nests deeper than 32 levels"),
        (
            "nested tables",
            (0..500).map(|n| format!("{}a:\n", " ".repeat(n))).collect(),
            "nests deeper than 32 levels",
        ),
        ("a huge file", "#".repeat(2 << 20), "larger than 1024 KiB"),
        ("many mistakes", (0..20_000).map(|n| format!("key{n}: 1\n")).collect(), "… and 19900 more"),
        (
            "a long line",
            format!("version: 1\nproject: [\"{}\"]", "x".repeat(500_000)),
            "`project` must be a text",
        ),
    ];
    for (label, source, expected) in cases {
        let text = errors(&source);
        assert!(text.contains(expected), "{label}: {}", &text[..text.len().min(2_000)]);
        assert!(text.len() < 100_000, "{label}: {} bytes of text", text.len());
    }
}

/// A truncated document is an error or a smaller file, never a panic.
#[test]
fn every_prefix_of_an_example_is_read_or_refused() {
    let source = include_str!("../examples/full.yaml");
    for (end, _) in source.char_indices() {
        if let Err(error) = Config::parse(&source[..end], "memgate.yaml", &env, None) {
            assert!(!error.to_string().is_empty());
        }
    }
}
