//! The committed examples, and what they mean.

use std::path::PathBuf;
use std::time::Duration;

use memgate_config::{
    Chat, Config, Devices, Encryption, FileRef, Limit, Place, Runner, Until, UploadMode, WaiverTarget, When,
};
use memgate_model::{LeakKind, Level, Metric, Per};

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples")
}

fn parse(source: &str) -> Config {
    Config::parse(source, "memgate.yaml", &|_| None, None).unwrap_or_else(|error| panic!("{error}"))
}

fn example(name: &str) -> Config {
    parse(&std::fs::read_to_string(directory().join(name)).expect("the example is there"))
}

#[test]
fn every_example_parses_and_names_its_schema() {
    let mut examples = 0;
    for entry in std::fs::read_dir(directory()).unwrap() {
        let path = entry.unwrap().path();
        let source = std::fs::read_to_string(&path).unwrap();
        let first = source.lines().next().unwrap();
        let schema = first.strip_prefix("# yaml-language-server: $schema=").unwrap();
        assert!(directory().join(schema).is_file(), "{}: {schema}", path.display());
        parse(&source);
        examples += 1;
    }
    assert!(examples >= 4);
}

#[test]
fn a_file_that_says_nothing_means_the_defaults() {
    let config = parse("version: 1\n");
    assert_eq!(config, Config::default());
    let zero = |metric| {
        config.thresholds.for_test("engine", "A.a", metric).map(|t| (t.per, t.fail, t.warn, t.place.clone()))
    };
    let fails_above_zero = Some((Per::Iteration, Some(Limit::Absolute(0)), None, Place::Default));
    assert_eq!(zero(Metric::NativeLiveBytes), fails_above_zero);
    assert_eq!(zero(Metric::OsFds), fails_above_zero);
    assert_eq!(zero(Metric::OsThreads), fails_above_zero);
    for metric in
        [Metric::JavaLiveBytes, Metric::JavaLiveObjects, Metric::JavaDirectBytes, Metric::JavaThreads]
    {
        assert_eq!(zero(metric), fails_above_zero, "{metric}");
    }
    for metric in [Metric::OsRss, Metric::JavaJniGlobals, Metric::JavaMetaspace, Metric::JavaAllocatedBytes] {
        assert_eq!(zero(metric), None, "{metric}");
    }
    assert_eq!(config.thresholds.for_suite().count(), 0);
    assert_eq!((config.measure.warm_up, config.measure.iterations), (3, 10));
    assert_eq!(config.measure.unconfirmed, Level::Warn);
    assert_eq!(config.measure.timeout, Duration::from_secs(60));
}

#[test]
fn the_full_example_means_what_it_says() {
    let config = example("full.yaml");
    assert_eq!(config.project.as_deref(), Some("tiles"));
    let suites = config.suites.iter().map(|s| (s.name.as_str(), s.runner, s.repeats())).collect::<Vec<_>>();
    assert_eq!(
        suites,
        [
            ("engine", Runner::Auto, false),
            ("replay", Runner::Command, true),
            ("loaders", Runner::Junit, false)
        ]
    );
    assert_eq!(config.suites[1].command(7), ["build/replay", "--count=7"]);
    assert_eq!(config.suites[1].place.to_string(), "memgate.yaml:8");

    let limit = |test, metric| config.thresholds.for_test("engine", test, metric).unwrap();
    let map_cache = limit("MapCache.scroll", Metric::NativeLiveBytes);
    assert_eq!(map_cache.fail, Some(Limit::Absolute(65_536)));
    assert_eq!(map_cache.place.to_string(), "memgate.yaml:39");
    assert_eq!(limit("Other.test", Metric::NativeLiveBytes).fail, Some(Limit::Absolute(0)));
    assert_eq!(limit("MapCache.scroll", Metric::OsFds).fail, Some(Limit::Absolute(0)));
    let rss = config.thresholds.for_suite().next().unwrap();
    assert_eq!(
        (rss.metric, rss.fail, rss.warn),
        (Metric::OsRss, None, Some(Limit::PercentAboveBaseline(10.0)))
    );
    assert!(config.thresholds.need_baseline());
    assert!((rss.warn.unwrap().resolve(Some(1000.0)).unwrap() - 1100.0).abs() < 1e-6);
    assert_eq!(rss.warn.unwrap().resolve(None), None);

    let targets = config.waivers.iter().map(|w| w.target.to_string()).collect::<Vec<_>>();
    assert_eq!(targets, ["leak n1-5f1c09a2b47d1e03", "frame libfontconfig.so*!FcInit*"]);
    assert_eq!(config.waivers[0].owner.as_deref(), Some("@maps"));
    assert_eq!(config.waivers[0].until.to_string(), "2027-03-01");
    assert_eq!(config.waivers[1].until, Until::Never);
    let tests: Vec<_> = config.waivers.iter().map(|w| w.test.as_ref().map(|test| test.text())).collect();
    assert_eq!(tests, [None, Some("engine::Label.*")]);
    assert_eq!(config.reports.junit.as_ref().unwrap().path, PathBuf::from("target/memgate/junit.xml"));
    let baseline = Place::File { file: "memgate.yaml".into(), line: 41 };
    assert_eq!(config.baseline, FileRef { path: "memgate-baseline.json".into(), place: baseline });

    // The password of `mail` comes from a variable that is not set. It is looked up only when a mail is sent.
    let mail = config.reports.mail.as_ref().unwrap();
    assert_eq!((mail.server.host.as_str(), mail.server.port), ("mail.example.com", 465));
    assert_eq!((mail.server.encryption, mail.when), (Encryption::Tls, When::Changed));
    assert_eq!(mail.password.as_deref(), Some("MEMGATE_SMTP_PASSWORD"));
    assert_eq!((mail.from.as_str(), mail.timeout), ("ci@mail.example.com", Duration::from_secs(30)));
    assert_eq!(mail.addresses, [("@maps".to_owned(), "maps-team@example.com".to_owned())]);
    let webhooks: Vec<_> = config.reports.webhooks.iter().map(|w| (w.chat, w.url.as_str(), w.when)).collect();
    assert_eq!(webhooks, [(Chat::Slack, "SLACK_URL", When::Failed), (Chat::Lark, "LARK_URL", When::Changed)]);

    let app = &config.instrumented[0];
    assert_eq!((app.name.as_str(), app.package.as_str()), ("app", "com.example.tiles.test"));
    assert_eq!((&app.devices, app.packaged), (&Devices::All, false));
    assert_eq!(app.apks, [PathBuf::from("app/build/outputs/apk/debug/app-debug.apk")]);
    assert_eq!(app.arguments, [("size".to_owned(), "large".to_owned())]);
    assert_eq!(app.mapping, [PathBuf::from("app/build/outputs/mapping/debug/mapping.txt")]);
    assert_eq!(app.symbols, [PathBuf::from("app/build/intermediates/merged_native_libs")]);
}

#[test]
fn mapping_files_are_one_or_several() {
    let mapping = |written: &str| {
        let config = parse(&format!(
            "version: 1\nsuites:\n  unit: {{ run: [gradle, test], runner: junit, mapping: {written} }}\n  app: {{ runner: instrumentation, package: a.test, mapping: {written} }}\n"
        ));
        assert_eq!(config.suites[0].mapping, config.instrumented[0].mapping);
        config.suites[0].mapping.clone()
    };
    assert_eq!(mapping("a.txt"), [PathBuf::from("a.txt")]);
    assert_eq!(mapping("[a.txt]"), mapping("a.txt"));
    assert_eq!(mapping("[b/mapping, a.txt]"), ["b/mapping", "a.txt"].map(PathBuf::from));
    assert_eq!(mapping("[]"), Vec::<PathBuf>::new());
}

#[test]
fn the_first_entry_that_names_the_metric_wins() {
    let config = parse(
        "version: 1\nthresholds:\n  os.fds: 1\n  tests:\n    - { match: \"*::A.*\", os.threads: off }\n    - { match: \"A.a\", os.threads: 5, os.fds: 2 }\n    - { match: \"engine::*\", os.fds: { fail: 3, per: test } }\n",
    );
    let fails = |suite, test, metric| {
        config.thresholds.for_test(suite, test, metric).map(|t| (t.fail.unwrap(), t.per))
    };
    assert_eq!(fails("engine", "A.a", Metric::OsThreads), None, "switched off by the first entry");
    assert_eq!(fails("engine", "A.a", Metric::OsFds), Some((Limit::Absolute(2), Per::Iteration)));
    assert_eq!(fails("engine", "B.b", Metric::OsFds), Some((Limit::Absolute(3), Per::Test)));
    assert_eq!(fails("other", "B.b", Metric::OsFds), Some((Limit::Absolute(1), Per::Iteration)));
    assert_eq!(fails("other", "B.b", Metric::OsThreads), Some((Limit::Absolute(0), Per::Iteration)));
}

#[test]
fn a_limit_of_the_suite_leaves_those_of_its_tests() {
    let limits = |yaml: &str| {
        let thresholds = parse(&format!("version: 1\nthresholds:\n{yaml}")).thresholds;
        let of_test =
            thresholds.for_test("engine", "A.a", Metric::NativeLiveBytes).map(|t| (t.fail.unwrap(), t.per));
        let of_suite = thresholds.for_suite().map(|t| t.fail.unwrap()).collect::<Vec<_>>();
        (of_test, of_suite)
    };
    let suite = "  native.live_bytes: { fail: 10 MiB, per: suite }\n";
    let most = vec![Limit::Absolute(10 << 20)];
    assert_eq!(limits(suite), (Some((Limit::Absolute(0), Per::Iteration)), most.clone()));
    assert_eq!(
        limits(&format!("{suite}  tests: [{{ match: \"*\", native.live_bytes: off }}]\n")),
        (None, most)
    );
    assert_eq!(limits("  native.live_bytes: off\n"), (None, Vec::new()));
}

#[test]
fn variables_anchors_and_merges_are_filled_in() {
    let env = |name: &str| (name == "BUILD").then(|| "/tmp/b".to_owned());
    let source = "version: 1\nsuites:\n  a: &a { run: [\"${BUILD}/a\", \"$$x\", 5], env: { N: 1, E: \"\" }, timeout: 1m }\n  b: { <<: *a, run: [\"${OTHER:-b}\"] }\n";
    let config = Config::parse(source, "memgate.yaml", &env, None).unwrap();
    assert_eq!(config.suites[0].run, ["/tmp/b/a", "$x", "5"]);
    assert_eq!(config.suites[0].env, [("N".to_owned(), "1".to_owned()), ("E".to_owned(), String::new())]);
    assert_eq!(config.suites[1].run, ["b"]);
    assert_eq!(config.suites[1].timeout, Some(Duration::from_secs(60)));
}

#[test]
fn empty_tables_count_as_absent() {
    let config = parse("version: 1\nsuites:\n# none yet\nmeasure:\nthresholds:\nwaivers:\nreports:\n");
    assert_eq!(config, Config::default());
}

#[test]
fn the_waivers_file_comes_after_the_ones_written_by_hand() {
    let main =
        "version: 1\nwaivers_file: ci/waivers.yaml\nwaivers:\n  - { frame: a, reason: r, until: never }\n";
    let waivers_file = Config::waivers_file_of(main, &|_| None);
    assert_eq!(waivers_file.path, PathBuf::from("ci/waivers.yaml"));
    let second = "version: 1\nwaivers:\n  - { class: com.example.Tile, reason: s, until: 2027-03-01 }\n";
    let config = Config::parse(main, "memgate.yaml", &|_| None, Some(("ci/waivers.yaml", second))).unwrap();
    assert!(matches!(config.waivers[0].target, WaiverTarget::Frame(_)));
    assert!(matches!(config.waivers[1].target, WaiverTarget::Class(_)));
    assert_eq!(config.waivers[1].place.to_string(), "ci/waivers.yaml:3");
    assert_eq!(Config::waivers_file_of("version: [", &|_| None), Config::default().waivers_file);
}

#[test]
fn mail_servers_are_named_by_their_scheme() {
    for (server, host, port, encryption, user, from) in [
        (
            "smtps://ci@mail.example.com",
            "mail.example.com",
            465,
            Encryption::Tls,
            Some("ci"),
            "ci@mail.example.com",
        ),
        (
            "smtp://mail.example.com",
            "mail.example.com",
            587,
            Encryption::StartTls,
            None,
            "memgate@mail.example.com",
        ),
        ("smtp+plain://localhost:2525/", "localhost", 2525, Encryption::None, None, "memgate@localhost"),
        ("smtps://a%40b.c@[::1]:4650", "::1", 4650, Encryption::Tls, Some("a@b.c"), "a@b.c"),
    ] {
        let config =
            parse(&format!("version: 1\nreports: {{ mail: {{ server: \"{server}\", to: [a@b.c] }} }}\n"));
        let mail = config.reports.mail.unwrap();
        let found = (
            mail.server.host.as_str(),
            mail.server.port,
            mail.server.encryption,
            mail.server.user.as_deref(),
        );
        assert_eq!(found, (host, port, encryption, user), "{server}");
        assert_eq!(mail.from, from);
    }
}

#[test]
fn history_is_kept_unless_it_is_off() {
    let of = |text: &str| parse(&format!("version: 1\n{text}")).history;
    assert!(of("").kept && !of("history: off\n").kept);
    assert_eq!(of("history:\n  # lines: [main]\n"), of(""), "a table without entries is no table");
    let full = example("full.yaml").history;
    assert_eq!((full.kept, full.lines), (true, vec!["main".to_owned(), "release/*".to_owned()]));
    assert_eq!(full.labels, [("runner".to_owned(), "ci-x86".to_owned())].into());
    let upload = full.upload.unwrap();
    assert_eq!(
        (upload.server.as_str(), upload.mode),
        ("https://memgate.example.com", UploadMode::BestEffort)
    );
    assert_eq!((upload.token.as_deref(), upload.wait.as_secs()), (Some("MEMGATE_TOKEN"), 30));
    assert!(example("full.yaml").secrets().contains(&("history.token", "MEMGATE_TOKEN")));
}

#[test]
fn every_path_of_a_report_can_be_moved() {
    let mut reports = example("full.yaml").reports;
    assert_eq!(reports.paths_mut().count(), 12);
    reports.paths_mut().for_each(|path| *path = PathBuf::from("/root").join(&*path));
    assert_eq!(reports.mail.unwrap().owners, Some("/root/.github/CODEOWNERS".into()));
}

#[test]
fn windows_line_ends_and_a_byte_order_mark_do_no_harm() {
    let source = "\u{feff}version: 1\r\nproject: tiles\r\nsuites:\r\n  a: { run: [x] }\r\n";
    let config = parse(source);
    assert_eq!(config.project.as_deref(), Some("tiles"));
    assert_eq!(config.suites[0].place.to_string(), "memgate.yaml:4");
}

#[test]
fn a_kind_of_leak_that_is_forbidden_passes_in_no_test() {
    let text = "version: 1\nthresholds:\n  native.live_bytes: 1 KiB\n  os.fds: off\n  tests:\n    - { match: \"*\", \
                native.live_bytes: off, os.threads: 3 }\n";
    let mut thresholds = parse(text).thresholds;
    thresholds.forbid(LeakKind::Native);
    let limit = |metric| thresholds.for_test("s", "t", metric).and_then(|threshold| threshold.fail);
    assert_eq!(limit(Metric::NativeLiveBytes), Some(Limit::Absolute(0)));
    assert_eq!(limit(Metric::NativeLiveAllocations), Some(Limit::Absolute(0)));
    assert_eq!(limit(Metric::OsThreads), Some(Limit::Absolute(3)), "other kinds keep their limits");
    assert_eq!(limit(Metric::OsFds), None);
}
