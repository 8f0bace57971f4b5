//! Run reports for the tests of all reporters. Sizes are odd numbers if a sum should reveal its source.

use std::collections::BTreeMap;

use memgate_model::{
    AgentCost, BoundaryQuality, Ci, Commit, CurvePoint, Frame, GrowthPoint, HolderStep, Leak, LeakKind,
    Level, Machine, Metric, MetricValue, Origin, Outcome, Per, Problem, RunReport, Runner, ScreenCost,
    SuiteReport, TestReport, Threshold, Verdict, WaiverReport, WaiverState,
};

/// Every sample with its name.
pub(crate) fn all() -> Vec<(&'static str, RunReport)> {
    vec![
        ("clean", clean()),
        ("leak", leak()),
        ("mixed", mixed()),
        ("held", held()),
        ("hostile", hostile()),
        ("nothing", nothing()),
    ]
}

/// Three tests, nothing to report.
pub(crate) fn clean() -> RunReport {
    let tests = ["Codec.decodes", "Codec.encodes", "Codec.refuses"].map(test).to_vec();
    run(Verdict::Pass, 0, vec![suite("codec_tests", Verdict::Pass, tests)])
}

/// One suite, one leak: the example of the interface.
pub(crate) fn leak() -> RunReport {
    let leaking = TestReport {
        verdict: Verdict::Fail,
        confirmed: true,
        only_among_others: false,
        metrics: growth(49152.0, 49152.0, 49152.0, 12.0, 35),
        leaks: vec![insert_leak("n1-5f1c09a2b47d1e03")],
        curve: vec![
            CurvePoint { t_ns: 1_000_000, metric: Metric::NativeLiveBytes, value: 8192.0 },
            CurvePoint { t_ns: 3_500_000, metric: Metric::NativeLiveBytes, value: 57344.0 },
        ],
        growth: (1..=4_u32)
            .map(|n| GrowthPoint {
                iteration: u64::from(n),
                metric: Metric::NativeLiveBytes,
                value: 8192.0 + 49152.0 * f64::from(n),
            })
            .collect(),
        warm_up: 1,
        ..test("MapCache.scroll")
    };
    run(Verdict::Fail, 1, vec![suite("engine_tests", Verdict::Fail, vec![test("MapCache.opens"), leaking])])
}

/// Two suites with every verdict, every kind of waiver, and problems.
pub(crate) fn mixed() -> RunReport {
    let point = |t_ns, metric, value| CurvePoint { t_ns, metric, value };
    let engine = SuiteReport {
        curve: vec![
            point(100_000_000, Metric::NativeLiveBytes, 8192.0),
            point(2_000_000_000, Metric::NativeLiveBytes, 524_288.0),
            point(3_800_000_000, Metric::NativeLiveBytes, 16_640.0),
            point(100_000_000, Metric::OsRss, 5_242_880.0),
            point(3_800_000_000, Metric::OsRss, 6_291_456.0),
        ],
        test_ends: vec![
            (500_000_000, "MapCache.opens".to_owned()),
            (1_250_000_000, "MapCache.scroll".to_owned()),
            (2_500_000_000, "Tiles/Loader.loads/3".to_owned()),
        ],
        ..suite(
            "engine",
            Verdict::Fail,
            vec![
                test("MapCache.opens"),
                two_groups(),
                inconclusive(),
                crashed(),
                TestReport {
                    outcome: Outcome::Failed,
                    verdict: Verdict::NotJudged,
                    reason: "its own assertions failed".to_owned(),
                    ..test("MapView.zooms")
                },
                TestReport {
                    outcome: Outcome::Skipped,
                    verdict: Verdict::NotJudged,
                    ..test("MapView.needsGpu")
                },
                waived(),
                one_time("Fonts.load"),
                one_time("Fonts.measure"),
            ],
        )
    };
    let replay = SuiteReport {
        runner: Runner::Command,
        boundary: BoundaryQuality::Process,
        own_verdict: Some(Verdict::Warn),
        reason: "larger than in the baseline".to_owned(),
        metrics: [(
            Metric::OsRss,
            MetricValue {
                threshold: limit(10_485_760.0, Level::Warn, "memgate.yaml:31"),
                ..MetricValue::exact(12_582_912.0, Metric::OsRss, Per::Suite)
            },
        )]
        .into(),
        ..suite("replay", Verdict::Warn, vec![test("replay.sh")])
    };
    RunReport {
        agent_cost: AgentCost {
            cpu_ratio: Some(1.07),
            peak_bytes: 12_897_485,
            boundary_s: 0.1234,
            truncated_stacks: 3,
            repeated_s: 2.5,
            cpu_s: 0.0,
        },
        waivers: waivers(),
        followed: None,
        origin: Some(origin()),
        warnings: vec![
            "memgate.yaml:44: `engine::MapCash.*` matches no test: did you mean `engine::MapCache.scroll`?"
                .to_owned(),
        ],
        errors: vec![
            Problem {
                r#where: "build/tools/pack".to_owned(),
                what: "is linked statically: not measured".to_owned(),
                hint: "link it dynamically, or call the C API".to_owned(),
            },
            Problem {
                r#where: "session".to_owned(),
                what: "the disk is full".to_owned(),
                hint: String::new(),
            },
        ],
        ..run(Verdict::Fail, 1, vec![engine, replay])
    }
}

/// A job of a pull request.
fn origin() -> Origin {
    Origin {
        commit: Some(Commit {
            sha: "3f0c1b2a9d8e7f60514233241506978877665544".to_owned(),
            branch: "fix/tiles".to_owned(),
            target: "main".to_owned(),
            base_sha: String::new(),
            is_merge: false,
        }),
        ci: Some(Ci {
            provider: "github".to_owned(),
            number: "812".to_owned(),
            job: "tests".to_owned(),
            url: "https://ci.example.com/7".to_owned(),
            ..Ci::default()
        }),
        machine: Some(Machine {
            host: "builder-3".to_owned(),
            architecture: "x86_64".to_owned(),
            kernel: "Linux 6.1.0".to_owned(),
            system: "Debian GNU/Linux 12 (bookworm)".to_owned(),
            processors: 8,
        }),
        versions: [("memgate".to_owned(), "0.9.1".to_owned())].into(),
        command: ["memgate", "run", "--", "ctest", "--test-dir", "build dir"].map(str::to_owned).to_vec(),
    }
}

/// Names made to break formats and terminals.
pub(crate) fn hostile() -> RunReport {
    let evil =
        "a\0b\u{1b}[31mred\u{1b}]0;title\u{7}]]>\u{fffe}\r\n\t<&\"'>\u{202e}\u{9b}2J\u{fffd}".to_owned();
    let frame =
        Frame { file: Some(evil.clone()), line: Some(3), module: evil.clone(), ..frame(&evil, "", 0) };
    let broken = TestReport {
        id: format!("Evil.{evil}"),
        verdict: Verdict::Fail,
        reason: evil.clone(),
        leaks: vec![Leak {
            id: evil.clone(),
            title: evil.clone(),
            class: Some(evil.clone()),
            frames: vec![frame, Frame { function: None, module: evil.clone(), ..frame_at(0x1f, None) }],
            holder: vec![HolderStep {
                kind: evil.clone(),
                owner: evil.clone(),
                name: evil.clone(),
                class: evil.clone(),
            }],
            hold: None,
            ..insert_leak("")
        }],
        metrics: [(
            Metric::OsFds,
            MetricValue {
                low: f64::NEG_INFINITY,
                high: f64::INFINITY,
                iterations: 3,
                confidence: 0.95,
                threshold: limit(0.0, Level::Fail, &evil),
                ..MetricValue::exact(1.0, Metric::OsFds, Per::Iteration)
            },
        )]
        .into(),
        duration_s: f64::MAX,
        ..test("")
    };
    let loud = TestReport {
        verdict: Verdict::Warn,
        reason: format!("]]>{}", "\u{1b}[1mout]]>\0".repeat(80_000)),
        duration_s: -1.0,
        ..test("Evil.loud")
    };
    RunReport {
        project: evil.clone(),
        session: evil.clone(),
        started: evil.clone(),
        duration_s: f64::MAX,
        waivers: vec![WaiverReport {
            matches: evil.clone(),
            state: WaiverState::Expired,
            reason: evil.clone(),
            owner: Some(evil.clone()),
            until: evil.clone(),
            used: 0,
            named: false,
            fixed: None,
        }],
        followed: None,
        errors: vec![Problem { r#where: evil.clone(), what: evil.clone(), hint: evil.clone() }],
        ..run(
            Verdict::Fail,
            1,
            vec![SuiteReport { reason: evil.clone(), ..suite(&evil, Verdict::Fail, vec![broken, loud]) }],
        )
    }
}

/// A run that did not reach a test.
pub(crate) fn nothing() -> RunReport {
    let problem = Problem {
        r#where: "build/engine_tests".to_owned(),
        what: "no such file".to_owned(),
        hint: "build it first".to_owned(),
    };
    RunReport { errors: vec![problem], ..run(Verdict::Error, 2, Vec::new()) }
}

/// One test that passed and left nothing.
pub(crate) fn test(id: &str) -> TestReport {
    TestReport { duration_s: 0.0313, ..TestReport::new(id, Verdict::Pass) }
}

pub(crate) fn suite(name: &str, verdict: Verdict, tests: Vec<TestReport>) -> SuiteReport {
    SuiteReport { screened_s: 12.43, ..SuiteReport::new(name, Runner::Gtest, verdict, tests) }
}

pub(crate) fn run(verdict: Verdict, exit_code: i32, suites: Vec<SuiteReport>) -> RunReport {
    RunReport {
        exit_code,
        started: "2026-11-21T10:15:00+01:00".to_owned(),
        duration_s: 15.2,
        ..RunReport::new("tiles", "20261121-101500-4711", verdict, suites)
    }
}

fn two_groups() -> TestReport {
    let mut metrics = growth(16640.0, 16512.0, 16768.0, 3.0, 12);
    let fds = MetricValue {
        iterations: 12,
        confidence: 0.99,
        threshold: limit(0.0, Level::Fail, "default"),
        ..MetricValue::exact(1.0, Metric::OsFds, Per::Iteration)
    };
    metrics.insert(Metric::OsFds, fds);
    if let Some(bytes) = metrics.get_mut(&Metric::NativeLiveBytes) {
        bytes.threshold = limit(4096.0, Level::Fail, "memgate.yaml:24");
    }
    let deep = Leak {
        id: "n1-00000000000000aa".to_owned(),
        title: "2 × 128 B".to_owned(),
        bytes_per_iteration: 256.0,
        count_per_iteration: 2.0,
        frames: vec![
            frame_at(0x4a20, Some("libtiles.so")),
            Frame {
                inlined: true,
                ..frame(
                    "tiles::Loader<std::map<int, tiles::Tile>, std::less<int>>::operator<(tiles::Loader<std::map<int, tiles::Tile>, std::less<int>> const&) const",
                    "include/tiles/loader.hpp",
                    212,
                )
            },
            Frame { file: None, line: None, ..frame("tiles::load_all()", "", 0) },
        ],
        truncated: true,
        owners: vec!["@maps".to_owned(), "anna@example.com".to_owned()],
        ..insert_leak("")
    };
    let descriptor = Leak {
        id: "o1-1b2e09a2b47d1e03".to_owned(),
        kind: LeakKind::Os,
        title: "1 × descriptor /tmp/tiles.log".to_owned(),
        bytes_per_iteration: 0.0,
        count_per_iteration: 1.0,
        frames: Vec::new(),
        ..insert_leak("")
    };
    let many = Leak {
        frames: (0..30).map(|n| frame(&format!("recurse{n}()"), "src/recurse.cpp", n + 1)).collect(),
        ..insert_leak("n1-00000000000000cc")
    };
    TestReport {
        verdict: Verdict::Fail,
        confirmed: true,
        metrics,
        leaks: vec![many, deep, descriptor],
        one_time: vec![font_cache()],
        ..test("MapCache.scroll")
    }
}

/// Java objects: class and holder instead of sizes and stack.
pub(crate) fn held() -> RunReport {
    let step = |kind: &str, owner: &str, name: &str, class: &str| HolderStep {
        kind: kind.to_owned(),
        owner: owner.to_owned(),
        name: name.to_owned(),
        class: class.to_owned(),
    };
    let tiles = Leak {
        kind: LeakKind::Java,
        title: "12 × com.example.Tile".to_owned(),
        class: Some("com.example.Tile".to_owned()),
        holder: vec![
            step("static", "com.example.Registry", "cache", "java.util.HashMap"),
            step("field", "java.util.HashMap", "table[x]", "java.util.HashMap$Node"),
            step("field", "java.util.HashMap$Node", "value", "com.example.Tile"),
        ],
        hold: None,
        frames: vec![frame("com.example.TileLoader.load", "TileLoader.java", 31)],
        ..insert_leak("j1-5f1c09a2b47d1e03")
    };
    let waived =
        Leak { waiver: Some("upstream issue 1234".to_owned()), ..insert_leak("n1-00000000000000dd") };
    let java = |value, metric| MetricValue {
        iterations: 21,
        confidence: 0.99,
        threshold: limit(0.0, Level::Fail, "default"),
        ..MetricValue::exact(value, metric, Per::Iteration)
    };
    let metrics = [Metric::JavaLiveBytes, Metric::JavaLiveObjects];
    let evicts = TestReport {
        verdict: Verdict::Fail,
        confirmed: true,
        metrics: metrics.into_iter().zip([49152.0, 48.0]).map(|(m, value)| (m, java(value, m))).collect(),
        leaks: vec![tiles, waived],
        ..test("com.example.TileCacheTest.evicts")
    };
    let loaders = SuiteReport {
        runner: Runner::Junit,
        boundary: BoundaryQuality::Class,
        screen_cost: Some(ScreenCost { alone_s: 2.5, screened_s: 12.75, ratio: 5.1 }),
        ..suite("loaders", Verdict::Fail, vec![evicts])
    };
    run(Verdict::Fail, 1, vec![loaders])
}

fn inconclusive() -> TestReport {
    TestReport {
        verdict: Verdict::Warn,
        reason: "inconclusive after 40 iterations: grows in some of them".to_owned(),
        confirmed: true,
        metrics: growth(148.0, 0.0, 256.0, 0.5, 40),
        leaks: vec![Leak {
            waiver: None,
            title: "1 × 148 B in every second iteration".to_owned(),
            ..insert_leak("n1-00000000000000bb")
        }],
        ..test("Tiles/Loader.loads/3")
    }
}

fn crashed() -> TestReport {
    let point = |t_ns, value| CurvePoint { t_ns, metric: Metric::NativeLiveBytes, value };
    TestReport {
        outcome: Outcome::Crashed,
        verdict: Verdict::Error,
        reason: "ended by signal 11 (SIGSEGV)".to_owned(),
        curve: vec![
            point(500_000_000, 12_582_912.0),
            point(2_000_000_000, 503_316_480.0),
            point(3_700_000_000, 471_859_200.0),
        ],
        ..test("Loader.reads_broken_file")
    }
}

fn waived() -> TestReport {
    TestReport {
        confirmed: true,
        metrics: growth(36.0, 36.0, 36.0, 1.0, 10),
        leaks: vec![Leak {
            waiver: Some("fontconfig keeps its cache until FcFini".to_owned()),
            ..insert_leak("n1-00000000000000dd")
        }],
        ..test("Fonts.find")
    }
}

fn one_time(id: &str) -> TestReport {
    TestReport { confirmed: true, one_time: vec![font_cache()], ..test(id) }
}

fn font_cache() -> Leak {
    Leak {
        id: "n1-00000000000000ee".to_owned(),
        title: "3 × 4099 B".to_owned(),
        bytes_per_iteration: 12297.0,
        count_per_iteration: 3.0,
        frames: vec![frame("FcInit()", "src/fcinit.c", 12), frame("Fonts::load()", "src/fonts.cpp", 77)],
        ..insert_leak("")
    }
}

fn insert_leak(id: &str) -> Leak {
    Leak {
        id: id.to_owned(),
        kind: LeakKind::Native,
        title: "12 × 4096 B".to_owned(),
        bytes_per_iteration: 49152.0,
        count_per_iteration: 12.0,
        frames: vec![
            frame("MapCache::insert(Tile const&)", "src/map_cache.cpp", 88),
            frame("MapView::scroll(int)", "src/map_view.cpp", 41),
            frame("MapCache_scroll_Test::TestBody()", "tests/map_cache_test.cpp", 17),
        ],
        ..Leak::default()
    }
}

fn frame(function: &str, file: &str, line: u32) -> Frame {
    Frame {
        function: Some(function.to_owned()),
        file: Some(file.to_owned()),
        line: Some(line),
        module: "engine_tests".to_owned(),
        offset: 0x1000,
        inlined: false,
    }
}

fn frame_at(offset: u64, module: Option<&str>) -> Frame {
    Frame { module: module.unwrap_or("[unknown]").to_owned(), offset, ..Frame::default() }
}

fn growth(bytes: f64, low: f64, high: f64, count: f64, iterations: u32) -> BTreeMap<Metric, MetricValue> {
    let confirmed = |metric, value, low, high| MetricValue {
        low,
        high,
        iterations,
        confidence: 0.99,
        ..MetricValue::exact(value, metric, Per::Iteration)
    };
    [
        (
            Metric::NativeLiveBytes,
            MetricValue {
                threshold: limit(0.0, Level::Fail, "default"),
                ..confirmed(Metric::NativeLiveBytes, bytes, low, high)
            },
        ),
        (Metric::NativeLiveAllocations, confirmed(Metric::NativeLiveAllocations, count, count, count)),
    ]
    .into()
}

#[expect(clippy::unnecessary_wraps, reason = "it is the field's type")]
fn limit(limit: f64, level: Level, source: &str) -> Option<Threshold> {
    Some(Threshold { limit, level, source: source.into() })
}

fn waivers() -> Vec<WaiverReport> {
    let waiver = |matches: &str, state, until: &str, used| WaiverReport {
        matches: matches.to_owned(),
        state,
        reason: "fontconfig keeps its cache until FcFini".to_owned(),
        owner: Some("@maps".to_owned()),
        until: until.to_owned(),
        used,
        named: false,
        fixed: None,
    };
    vec![
        waiver("leak n1-00000000000000dd", WaiverState::InForce, "2027-03-01", 1),
        WaiverReport {
            owner: None,
            ..waiver("frame libfontconfig.so*!FcInit*", WaiverState::Expired, "2026-09-30", 0)
        },
        waiver("leak n1-0123456789abcdef", WaiverState::Unused, "never", 0),
    ]
}
