//! Names the leaking function and the leaked amount in one line: `MapCache::insert leaks 48.0 KiB per run ·
//! src/map_cache.cpp:88`. Every report with room for one line shows this line.

use memgate_model::{
    Frame, HolderStep, Leak, LeakKind, Metric, RunReport, TestReport, Verdict, format_amount, format_bytes,
};

use crate::figures::{Figure, counts, direct_bytes, exceeding, is_certain};
use crate::holder::{is_of_nearly_all, short_holder, way};
use crate::names;
use crate::visible::visible;
use crate::worst::not_passed;

/// The line of a test that leaks, or may leak; `None`: no leak of the test is known.
pub(crate) fn of_test(test: &TestReport) -> Option<String> {
    let leak = largest(test)?;
    let held = held_by(leak, test);
    let more = match without_waiver(test).count() - 1 - held.len() {
        0 => String::new(),
        1 => ", and 1 more leak".to_owned(),
        more => format!(", and {more} more leaks"),
    };
    Some(line(leak, test, &held, &more))
}

/// The line of one leak of a test.
pub(crate) fn of_leak(leak: &Leak, test: &TestReport) -> String {
    line(leak, test, &[], "")
}

/// The line of a leak with all leaks of the test that it holds.
pub(crate) fn of_holder(leak: &Leak, test: &TestReport) -> String {
    line(leak, test, &held_by(leak, test), "")
}

/// The leaking function or class, without the amount: `MapCache::insert`, `com.example.Tile held by Registry.cache`.
#[must_use]
pub fn who(leak: &Leak) -> String {
    if leak.kind.is_java() {
        let class = visible(leak.class.as_deref().unwrap_or(&leak.title)).into_owned();
        let method = frame_to_blame(leak).and_then(|frame| frame.function.as_deref()).map(method);
        return match (short_holder(leak), method) {
            (Some(holder), _) => format!("{class} held by {holder}"),
            (None, Some(method)) => format!("{class} allocated by {method}"),
            (None, None) => class,
        };
    }
    match frame_to_blame(leak) {
        Some(Frame { function: Some(function), .. }) => visible(&names::short(function)).into_owned(),
        Some(frame) => names::in_module(frame),
        None => visible(&leak.title).into_owned(),
    }
}

/// The source line to look at first, `src/map_cache.cpp:88`; empty: not known.
#[must_use]
pub fn source_line(leak: &Leak) -> String {
    frame_to_blame(leak).and_then(place).unwrap_or_default()
}

fn line(leak: &Leak, test: &TestReport, held: &[&Leak], more: &str) -> String {
    let amount = match leak.kind {
        LeakKind::Os => visible(&leak.title).into_owned(),
        LeakKind::Mapped => format_amount(Metric::NativeMappedBytes, leak.bytes_per_iteration),
        _ => match direct_bytes(leak, test) {
            Some(bytes) => format_amount(Metric::JavaDirectBytes, bytes),
            None => {
                let with = held.iter().map(|held| held.bytes_per_iteration).sum::<f64>();
                format_bytes(leak.bytes_per_iteration + with)
            }
        },
    };
    // A leak that was not repeated is reported for the single execution.
    let per = match leak.kind {
        LeakKind::Heap => leak.kind.per(),
        _ if test.verdict != Verdict::Warn || test.confirmed => " per run",
        _ => "",
    };
    let per = if held.is_empty() { per.to_owned() } else { format!("{per} with what it holds") };
    let frame = frame_to_blame(leak);
    let place = frame.and_then(place).map_or_else(String::new, |place| format!(" · {place}"));
    if leak.kind.is_java() {
        let holder = short_holder(leak);
        let method = frame.and_then(|frame| frame.function.as_deref()).map(method);
        let by = match (holder, method) {
            (Some(holder), _) => format!(", held by {holder}"),
            (None, Some(method)) => format!(", allocated by {method}"),
            (None, None) => String::new(),
        };
        let bytes = if leak.bytes_per_iteration > 0.0 { format!(", {amount}{per}") } else { per };
        return format!("{}{bytes}{by}{more}{place}", visible(&leak.title));
    }
    let doubtful = matches!(test.verdict, Verdict::Warn | Verdict::Error) && !is_certain(test);
    let leaks = if doubtful { "may leak" } else { "leaks" };
    let who = match frame {
        Some(Frame { function: Some(function), .. }) => visible(&names::short(function)).into_owned(),
        Some(frame) => names::in_module(frame),
        // No frame is known to blame.
        None => {
            let leaked = if doubtful { "may be leaked" } else { "leaked" };
            return format!("{amount} {leaked}{per}{more}{place}");
        }
    };
    format!("{who} {leaks} {amount}{per}{more}{place}")
}

/// The line of the worst test that leaks.
pub(crate) fn of_run(report: &RunReport) -> Option<String> {
    not_passed(report).into_iter().find(|at| at.test.verdict == Verdict::Fail).and_then(|at| of_test(at.test))
}

/// The most important leak of those on which the verdict is based, or the leak that holds its blocks.
fn largest(test: &TestReport) -> Option<&Leak> {
    let metrics = exceeding(&test.metrics);
    let of = |figure: &Figure| without_waiver(test).find(|leak| counts(figure.metric, leak));
    let leak = if metrics.is_empty() { without_waiver(test).next() } else { metrics.iter().find_map(of) }?;
    Some(holding(leak, test))
}

/// The other leaks of the test whose blocks this one holds: they are gone when it is freed.
fn held_by<'t>(leak: &Leak, test: &'t TestReport) -> Vec<&'t Leak> {
    let is_same_place = |other: &&Leak| code_place(other) == code_place(leak);
    if leak.kind != LeakKind::Native || without_waiver(test).filter(is_same_place).count() > 1 {
        return Vec::new();
    }
    let is_held = |other: &&Leak| {
        other.kind == LeakKind::Native
            && is_of_nearly_all(other)
            && way(other).iter().any(|step| is_of(step, leak))
    };
    without_waiver(test).filter(|other| !is_same_place(other) && is_held(other)).collect()
}

/// The leak of the test that holds the blocks of this one, or this one. Whoever closes the file frees its buffer.
pub(crate) fn holding<'t>(leak: &'t Leak, test: &'t TestReport) -> &'t Leak {
    if !is_of_nearly_all(leak) {
        return leak;
    }
    // A step through the leak's own place (a list, a wrapper of malloc), or that of several leaks, identifies none.
    let steps = way(leak).iter().filter(|step| !is_of(step, leak));
    let mut holders = steps.filter_map(|step| {
        let mut fitting = without_waiver(test).filter(|other| is_of(step, other));
        fitting.next().filter(|_| fitting.next().is_none())
    });
    holders.next().unwrap_or(leak)
}

/// Is the step a block of this leak?
fn is_of(step: &HolderStep, leak: &Leak) -> bool {
    leak.kind == LeakKind::Native
        && ["block", "lost block"].contains(&step.kind.as_str())
        && code_place(leak).is_some_and(|place| place == (&step.owner, step.name.clone()))
}

/// Function and line that allocated the blocks of a leak, as steps of other leaks name them.
fn code_place(leak: &Leak) -> Option<(&str, String)> {
    let Frame { function, file, line, .. } = leak.frames.first()?;
    let file = file.as_deref().and_then(|file| file.rsplit('/').next());
    let place = file.zip(*line).map_or_else(String::new, |(file, line)| format!("{file}:{line}"));
    Some((function.as_deref()?, place))
}

/// Leaks of a test without a waiver, the one that its line names first.
pub(crate) fn worst_first(test: &TestReport) -> Vec<&Leak> {
    let mut leaks: Vec<_> = without_waiver(test).collect();
    if let Some(leading) = largest(test) {
        leaks.sort_by_key(|leak| leak.id != leading.id);
    }
    leaks
}

fn without_waiver(test: &TestReport) -> impl Iterator<Item = &Leak> {
    test.leaks.iter().filter(|leak| leak.waiver.is_none())
}

/// The innermost frame of the project's own code; if none is known, the innermost frame outside of system libraries.
fn frame_to_blame(leak: &Leak) -> Option<&Frame> {
    let is_platforms = |frame: &Frame| frame.function.as_deref().is_some_and(names::is_of_platform);
    // A Java thread counts as a thread of the system, and the JDK makes it.
    if leak.kind.is_java() || leak.kind == LeakKind::Os && leak.frames.iter().any(is_platforms) {
        return leak.frames.iter().find(|frame| frame.function.is_some() && !is_platforms(frame));
    }
    let own = |frame: &&Frame| frame.file.as_deref().is_some_and(|file| !file.starts_with(['/', '.', '<']));
    let library = |frame: &Frame| {
        let name = frame.function.as_deref().unwrap_or_default();
        ["std::", "__gnu_cxx::", "operator new", "alloc::", "core::"].iter().any(|of| name.starts_with(of))
            || frame.file.as_deref().is_some_and(|file| file.starts_with("/usr/"))
    };
    let named = || leak.frames.iter().filter(|frame| frame.function.is_some());
    let mut foreign = named().filter(|frame| !library(frame));
    let calls_an_allocator = |frame: &&Frame| !passes_to_malloc(frame);
    named()
        .filter(own)
        .find(calls_an_allocator)
        .or_else(|| named().filter(|frame| !library(frame)).find(calls_an_allocator))
        .or_else(|| leak.frames.iter().find(own))
        .or_else(|| foreign.next())
        .or_else(|| named().next())
        .or_else(|| leak.frames.first())
}

/// Is it a C function for all allocations of a project, like `xmalloc`, `uv__calloc`, `xmlStrdup`? If so, its caller is
/// to blame.
fn passes_to_malloc(frame: &Frame) -> bool {
    const ALLOCATORS: [&str; 7] = ["malloc", "calloc", "realloc", "zalloc", "strdup", "strndup", "memdup"];
    let function = frame.function.as_deref().unwrap_or_default();
    // The name `grow.part.0` means `grow`.
    let function = function.split('.').next().unwrap_or_default();
    let is_c = !function.contains(['(', ':', '<']);
    let begins_word = |pair: &[u8]| match pair {
        [before, letter] => {
            !before.is_ascii_uppercase() && letter.is_ascii_uppercase() || *before == b'_' && *letter != b'_'
        }
        _ => false,
    };
    let more_words =
        function.trim_start_matches('_').as_bytes().windows(2).filter(|pair| begins_word(pair)).count();
    let name = function.to_ascii_lowercase();
    is_c && more_words <= 1 && ALLOCATORS.iter().any(|allocator| name.ends_with(allocator))
}

fn place(frame: &Frame) -> Option<String> {
    let file = visible(frame.file.as_deref()?);
    Some(frame.line.map_or_else(|| file.to_string(), |line| format!("{file}:{line}")))
}

/// `TileLoader.load` for `com.example.TileLoader.load`.
fn method(function: &str) -> String {
    let mut parts = function.rsplitn(3, '.');
    let (method, class) = (parts.next().unwrap_or_default(), parts.next());
    let text = class.map_or_else(|| method.to_owned(), |class| format!("{class}.{method}"));
    visible(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use memgate_model::{Hold, Metric, OtherHold, Reach};

    use super::*;
    use crate::sample;

    #[test]
    fn who_leaks_is_told_without_how_much() {
        let leak = |report: &RunReport, test: usize| report.suites[0].tests[test].leaks[0].clone();
        let native = leak(&sample::leak(), 1);
        assert_eq!(
            (who(&native).as_str(), source_line(&native).as_str()),
            ("MapCache::insert", "src/map_cache.cpp:88")
        );
        assert_eq!(who(&leak(&sample::held(), 0)), "com.example.Tile held by Registry.cache");
        let nameless = Leak { frames: Vec::new(), ..native };
        assert_eq!((who(&nameless), source_line(&nameless)), (nameless.title.clone(), String::new()));
    }

    #[test]
    fn who_leaks_stands_before_how_much() {
        let line = |report: &RunReport, test: usize| of_test(&report.suites[0].tests[test]);
        let leak = "MapCache::insert leaks 48.0 KiB per run · src/map_cache.cpp:88";
        assert_eq!(line(&sample::leak(), 1).as_deref(), Some(leak));
        assert_eq!(of_run(&sample::leak()).as_deref(), Some(leak));
        let held = "12 × com.example.Tile, 48.0 KiB per run, held by Registry.cache · TileLoader.java:31";
        assert_eq!(line(&sample::held(), 0).as_deref(), Some(held));
        let mixed = sample::mixed();
        let several = "recurse0 leaks 48.0 KiB per run, and 2 more leaks · src/recurse.cpp:1";
        assert_eq!(line(&mixed, 1).as_deref(), Some(several));
        assert!(
            line(&mixed, 2).unwrap().starts_with("MapCache::insert may leak 48.0 KiB per run"),
            "it is inconclusive"
        );
        let mut warned = sample::leak();
        let test = warned.suites[0].tests.iter_mut().find(|test| !test.leaks.is_empty()).unwrap();
        (test.verdict, test.reason_beside_figures) = (Verdict::Warn, Some(String::new()));
        test.metrics
            .values_mut()
            .filter_map(|value| value.threshold.as_mut())
            .for_each(|limit| limit.level = memgate_model::Level::Warn);
        assert!(
            of_test(test).unwrap().starts_with("MapCache::insert leaks 48.0 KiB"),
            "its threshold only warns"
        );
        test.reason_beside_figures = Some("inconclusive: too few".to_owned());
        assert!(of_test(test).unwrap().starts_with("MapCache::insert may leak 48.0 KiB"));
        assert_eq!(line(&mixed, 3), None, "crashed");
        assert_eq!(of_run(&sample::clean()), None);
    }

    #[test]
    fn the_projects_own_frame_is_to_blame_not_the_library_it_calls() {
        let mut report = sample::leak();
        let leak = &mut report.suites[0].tests[1].leaks[0];
        let library = Frame {
            function: Some("std::vector<int, std::allocator<int> >::push_back(int)".to_owned()),
            file: Some("/usr/include/c++/12/bits/stl_vector.h".to_owned()),
            ..leak.frames[0].clone()
        };
        leak.frames.insert(0, library);
        let line = of_run(&report).unwrap();
        assert_eq!(line, "MapCache::insert leaks 48.0 KiB per run · src/map_cache.cpp:88");
        let leak = &mut report.suites[0].tests[1].leaks[0];
        leak.frames.iter_mut().for_each(|frame| (frame.file, frame.line) = (None, None));
        assert_eq!(of_run(&report).unwrap(), "MapCache::insert leaks 48.0 KiB per run");
        report.suites[0].tests[1].leaks[0].frames.clear();
        assert_eq!(of_run(&report).unwrap(), "48.0 KiB leaked per run");
    }

    /// Regression: Groovy's runtime was blamed for each object that a Spock test makes.
    #[test]
    fn the_librarys_caller_is_to_blame_in_kotlin_scala_and_groovy() {
        for library in [
            "org.codehaus.groovy.vmplugin.v8.IndyInterface.fromCache",
            "scala.concurrent.Future$.firstCompletedOf",
            "kotlin.concurrent.ThreadsKt.thread",
        ] {
            let calls =
                ["java.lang.invoke.DirectMethodHandle.allocateInstance", library, "lib.JsonSpec.reads"];
            let frame = sample::leak().suites[0].tests[1].leaks[0].frames[0].clone();
            let frames =
                calls.map(|call| Frame { function: Some(call.to_owned()), ..frame.clone() }).to_vec();
            // A Java thread is a leak of the system.
            for kind in [LeakKind::Java, LeakKind::Os] {
                let leak = Leak { kind, frames: frames.clone(), ..Leak::default() };
                let blamed = frame_to_blame(&leak).and_then(|frame| frame.function.as_deref());
                assert_eq!(blamed, Some("lib.JsonSpec.reads"));
            }
        }
    }

    /// Regression: the function that read first was blamed, not the one that never closed its file.
    #[test]
    fn the_leak_that_holds_another_one_is_to_blame() {
        let mut report = sample::leak();
        let test = &mut report.suites[0].tests[1];
        let mut opened = Leak { id: "n1-of-fopen".to_owned(), ..test.leaks[0].clone() };
        opened.bytes_per_iteration = 472.0;
        opened.frames[0].function = Some("Map::open()".to_owned());
        test.leaks.push(opened);
        let line = |test: &TestReport| of_test(test).unwrap();
        let both = "MapCache::insert leaks 48.0 KiB per run, and 1 more leak · src/map_cache.cpp:88";
        assert_eq!(line(test), both);
        let step = |kind: &str, owner: &str, name: &str| HolderStep {
            kind: kind.to_owned(),
            owner: owner.to_owned(),
            name: name.to_owned(),
            class: "472 B".to_owned(),
        };
        for (kind, owner, name, blamed) in [
            ("block", "Map::open()", "map_cache.cpp:88", true),
            ("lost block", "Map::open()", "map_cache.cpp:88", true),
            ("block", "Map::open()", "map_cache.cpp:89", false),
            ("stack", "Map::open()", "map_cache.cpp:88", false),
        ] {
            test.leaks[0].holder = vec![step("static", "_IO_list_all", "libc.so.6"), step(kind, owner, name)];
            let expected = if blamed {
                "Map::open leaks 48.5 KiB per run with what it holds · src/map_cache.cpp:88"
            } else {
                both
            };
            assert_eq!(line(test), expected, "{kind} {owner} {name}");
        }
        // Most blocks refer to each other, and some are lost with the other leak.
        let mut cyclic = test.clone();
        let behind = OtherHold {
            reach: Reach::IndirectlyLost,
            blocks: 5,
            holder: vec![step("lost block", "Map::open()", "map_cache.cpp:88")],
        };
        let hold =
            Hold { reach: Reach::LostCycle, of_reach: 7, blocks: 12, note: None, others: vec![behind] };
        (cyclic.leaks[0].hold, cyclic.leaks[0].holder) = (Some(hold), Vec::new());
        assert_eq!(
            line(&cyclic),
            "Map::open leaks 48.5 KiB per run with what it holds · src/map_cache.cpp:88"
        );
        // One of them is behind an unrelated leak.
        let hold = cyclic.leaks[0].hold.as_mut().unwrap();
        (hold.of_reach, hold.others[0].blocks) = (11, 1);
        assert_eq!(line(&cyclic), both);
        // A third of the blocks would be lost without the other leak.
        let hold = Hold { reach: Reach::Reachable, of_reach: 8, blocks: 12, note: None, others: Vec::new() };
        cyclic.leaks[0].hold = Some(hold);
        cyclic.leaks[0].holder = vec![step("block", "Map::open()", "map_cache.cpp:88")];
        assert_eq!(line(&cyclic), both);
        // The project's own malloc makes the blocks of both.
        let test = &mut report.suites[0].tests[1];
        test.leaks[1].frames[0] = test.leaks[0].frames[0].clone();
        test.leaks[0].holder = vec![step("block", "MapCache::insert(Tile const&)", "map_cache.cpp:88")];
        assert_eq!(line(test), both);
    }

    /// Before, all leaks of libuv were blamed on `uv__calloc`.
    #[test]
    fn the_caller_of_a_projects_own_malloc_is_to_blame() {
        let mut report = sample::leak();
        let leak = &mut report.suites[0].tests[1].leaks[0];
        let own = leak.frames[0].clone();
        leak.frames.insert(0, own);
        let mut blamed = |innermost: &str| {
            report.suites[0].tests[1].leaks[0].frames[0].function = Some(innermost.to_owned());
            who(&report.suites[0].tests[1].leaks[0])
        };
        for wrapper in
            ["xmalloc", "uv__calloc", "xmlStrdup", "CRYPTO_zalloc", "__wrap_malloc", "sqlite3Realloc.part.0"]
        {
            assert_eq!(blamed(wrapper), "MapCache::insert", "{wrapper}");
        }
        for own in ["leak_by_malloc", "uriDissectQueryMalloc", "Pool::malloc", "xmalloc(int)", "allocate"] {
            assert_eq!(blamed(own), own.trim_end_matches("(int)"), "{own}");
        }
        report.suites[0].tests[1].leaks[0].frames.truncate(1);
        report.suites[0].tests[1].leaks[0].frames[0].function = Some("xmalloc".to_owned());
        assert_eq!(who(&report.suites[0].tests[1].leaks[0]), "xmalloc", "nobody else is known");
    }

    #[test]
    fn a_descriptor_is_named_where_descriptors_fail_the_test() {
        let mut report = sample::mixed();
        let test = &mut report.suites[0].tests[1];
        test.metrics.retain(|metric, _| *metric == Metric::OsFds);
        let mut resident = test.clone();
        let figure = resident.metrics.remove(&Metric::OsFds).unwrap();
        resident.metrics.insert(Metric::JavaThreads, figure);
        assert_eq!(of_test(&resident), None, "no leak that is known explains the figure");
        assert!(
            of_test(test).unwrap().starts_with("1 × descriptor /tmp/tiles.log leaked per run"),
            "{:?}",
            of_test(test)
        );
    }

    #[test]
    fn a_title_names_the_heaviest_leak_with_its_own_amount() {
        let mut report = sample::mixed();
        let test = &mut report.suites[0].tests[1];
        test.leaks[1].bytes_per_iteration = 16.0;
        test.leaks[2].title = "1 × thread worker".to_owned();
        test.leaks.remove(0);
        let fds = test.metrics.remove(&Metric::OsFds).unwrap();
        test.metrics.insert(Metric::OsThreads, fds.clone());
        let bytes = test.metrics.get_mut(&Metric::NativeLiveBytes).unwrap();
        (bytes.value, bytes.low, bytes.high) = (16.0, 16.0, 16.0);
        bytes.threshold.as_mut().unwrap().limit = 0.0;
        let line = of_test(test).unwrap();
        assert_eq!(line, "1 × thread worker leaked per run, and 1 more leak");

        let mut report = sample::held();
        let test = &mut report.suites[0].tests[0];
        (test.leaks[0].class, test.leaks[0].title) =
            (Some("java.nio.DirectByteBuffer".to_owned()), "1 × java.nio.DirectByteBuffer".to_owned());
        test.metrics.insert(Metric::JavaDirectBytes, memgate_model::MetricValue { value: 8192.0, ..fds });
        let line = of_leak(&test.leaks[0], test);
        assert!(
            line.starts_with("1 × java.nio.DirectByteBuffer, 8.0 KiB of direct buffers per run, held by "),
            "{line}"
        );
        test.leaks.push(test.leaks[0].clone());
        let line = of_leak(&test.leaks[0], test);
        assert!(
            line.starts_with("1 × java.nio.DirectByteBuffer, 48.0 KiB per run"),
            "whose they are: {line}"
        );
    }
}
