//! Whose code a frame is: the project's, a library's, the system's, a test framework's or memgate's. Known by the names
//! of modules and functions.

use memgate_model::Frame;

use super::function_name::normalised;

/// The module of code without a file. Such generated code has other addresses in each run.
pub(super) const GENERATED: &str = "[unknown]";

/// Owner of the code of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The project, or a library that it uses.
    Own,
    /// The language's standard library or an allocation function, in any module (it may be inlined).
    Library,
    /// libc, the loader.
    System,
    /// A test framework.
    Runner,
    /// memgate.
    Agent,
}

/// A frame with its normalised names.
#[derive(Debug)]
pub(super) struct Known<'a> {
    pub(super) frame: &'a Frame,
    pub(super) kind: Kind,
    /// Starts the test. This frame and all outer frames belong to the runner.
    starts_test: bool,
    /// Between a runner and its test.
    passes_on: bool,
    /// A call operator of an unnamed function object.
    pub(super) is_nameless: bool,
    /// `module!function`, or `module+offset` without a symbol.
    pub(super) key: String,
}

impl<'a> Known<'a> {
    pub(super) fn new(frame: &'a Frame) -> Self {
        let module = normalised_module(&frame.module);
        let function = frame.function.as_deref().map(normalised);
        let kind = if is_library_source(frame) { Kind::Library } else { kind(&module, function.as_deref()) };
        let starts_test = function.as_deref().is_some_and(starts_test);
        let passes_on = kind == Kind::Runner
            || function.as_deref().is_some_and(passes_on)
            || frame.function.as_deref().is_some_and(calls_closure);
        let is_nameless = matches!(
            function.as_deref(),
            Some("operator()" | "_FUN" | "__invoke" | "{lambda}" | "{lambda}::operator()" | "{lambda}::_FUN")
        );
        let key = match function {
            Some(function) => format!("{module}!{function}"),
            None => format!("{module}+{:#x}", frame.offset),
        };
        Self { frame, kind, starts_test, passes_on, is_nameless, key }
    }
}

/// Inlined functions of a header-only library: the debug information names them without their
/// namespace (`allocate`).
fn is_library_source(frame: &Frame) -> bool {
    frame.inlined && frame.file.as_deref().is_some_and(|file| file.contains("/include/c++/"))
}

/// File name without the version (`libfoo.so.1.2` and `libfoo-1.2.so` become `libfoo.so`) and without the random part
/// of an unpacked file.
pub(crate) fn normalised_module(module: &str) -> String {
    let name = without_random_parts(module.rsplit('/').next().unwrap_or(module));
    let name = name.as_str();
    let Some(at) = name.find(".so").filter(|at| matches!(name.as_bytes().get(at + 3), None | Some(b'.')))
    else {
        return name.to_owned();
    };
    let stem = &name[..at];
    let unversioned = stem.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let stem = unversioned.strip_suffix('-').filter(|_| unversioned.len() < stem.len()).unwrap_or(stem);
    format!("{stem}.so")
}

/// A jar's libraries are unpacked into files with a UUID or a random number of at least this many digits in their names
/// (`java.io.File.createTempFile`). `#` replaces these.
fn without_random_parts(name: &str) -> String {
    const DIGITS: usize = 10;
    const UUID: [usize; 5] = [8, 4, 4, 4, 12];
    let is_hex = |part: &&str| part.bytes().all(|b| b.is_ascii_hexdigit());
    let parts: Vec<&str> = name.split('-').collect();
    let uuid = parts
        .windows(UUID.len())
        .position(|parts| parts.iter().zip(UUID).all(|(part, digits)| part.len() == digits && is_hex(part)));
    if let Some(at) = uuid {
        let (before, rest) = (&parts[..at], &parts[at + UUID.len()..]);
        return [before, &["#"], rest].concat().join("-");
    }
    let mut told = String::new();
    let mut rest = name;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let digits = rest[at..].bytes().take_while(u8::is_ascii_digit).count();
        told.push_str(&rest[..at]);
        told.push_str(if digits < DIGITS { &rest[at..at + digits] } else { "#" });
        rest = &rest[at + digits..];
    }
    told + rest
}

fn kind(module: &str, function: Option<&str>) -> Kind {
    const SYSTEM: [&str; 18] = [
        "libc",
        "libstdc++",
        "libc++",
        "libc++abi",
        "libgcc_s",
        "libpthread",
        "libdl",
        "librt",
        "libm",
        "libasan",
        "[vdso]",
        "linux-vdso",
        "libunwind",
        "libresolv",
        "libnss_files",
        "libutil",
        "libjvm",
        GENERATED,
    ];
    let stem = module.strip_suffix(".so").unwrap_or(module);
    if stem == "libmemgate_agent" {
        Kind::Agent
    } else if is_runner(stem) {
        Kind::Runner
    } else if stem == "ld" || stem.starts_with("ld-") || SYSTEM.contains(&stem) {
        Kind::System
    } else {
        function.map_or(Kind::Own, kind_of_function)
    }
}

fn kind_of_function(function: &str) -> Kind {
    // The names with `_Z` are those that a demangler could not read.
    const LIBRARY: [&str; 14] = [
        "std::",
        "__gnu_cxx::",
        "__cxxabiv1::",
        "core::",
        "alloc::",
        "hashbrown::",
        "operator new",
        "__cxa_",
        "__rust_",
        "_ZSt",
        "_ZNSt",
        "_ZNKSt",
        "_ZN9__gnu_cxx",
        "_ZNK9__gnu_cxx",
    ];
    const ALLOCATION: [&str; 20] = [
        "malloc",
        "calloc",
        "realloc",
        "reallocarray",
        "free",
        "posix_memalign",
        "aligned_alloc",
        "memalign",
        "valloc",
        "pvalloc",
        "strdup",
        "strndup",
        "wcsdup",
        "asprintf",
        "vasprintf",
        "getline",
        "getdelim",
        "__rdl_alloc",
        "__rg_alloc",
        "operator delete",
    ];
    const SYSTEM: [&str; 7] = [
        "_start",
        "__libc_start_main",
        "__libc_start_call_main",
        "start_thread",
        "clone",
        "clone3",
        "__clone",
    ];
    const RUNNER: [&str; 6] = [
        "testing::",
        "boost::unit_test::",
        "boost::execution_monitor::",
        "Catch::",
        "doctest::",
        "CppUnit::",
    ];
    if RUNNER.iter().any(|r| function.starts_with(r)) {
        Kind::Runner
    } else if SYSTEM.contains(&function) {
        Kind::System
    } else if LIBRARY.iter().any(|l| function.starts_with(l)) || ALLOCATION.contains(&function) {
        Kind::Library
    } else {
        Kind::Own
    }
}

/// Is it the library of a test framework? Some have names with a suffix for each kind of build.
fn is_runner(stem: &str) -> bool {
    const WITH_SUFFIX: [&str; 3] = ["libgtest", "libgmock", "libboost_unit_test_framework"];
    const LIBRARIES: [&str; 5] = ["libQt5Test", "libQt6Test", "libCatch2", "libcppunit", "libcmocka"];
    WITH_SUFFIX.iter().any(|name| stem.starts_with(name)) || LIBRARIES.contains(&stem)
}

/// The functions of test frameworks that call a test, but none that a test calls.
fn starts_test(function: &str) -> bool {
    const RUNNER: [&str; 31] = [
        "testing::Test::Run",
        "testing::TestInfo::Run",
        "testing::TestSuite::Run",
        "testing::TestCase::Run",
        "testing::UnitTest::Run",
        "testing::internal::UnitTestImpl::RunAllTests",
        "testing::internal::HandleExceptionsInMethodIfSupported",
        "testing::internal::HandleSehExceptionsInMethodIfSupported",
        "RUN_ALL_TESTS",
        "boost::execution_monitor::catch_signals",
        "boost::execution_monitor::execute",
        "boost::execution_monitor::vexecute",
        "boost::unit_test::unit_test_monitor_t::execute_and_translate",
        "QTest::qRun",
        "QTest::qExec",
        "Catch::RunContext::invokeActiveTestCase",
        "doctest::Context::run",
        "CppUnit::TestCase::run",
        "helperDoTestSetup",
        "helperDoTestBody",
        "helperDoTestTeardown",
        "PlatformSpecificSetJmpImplementation",
        "Utest::run",
        "UnityDefaultTestRun",
        "cmocka_run_one_test_or_fixture",
        "_cmocka_run_group_tests",
        "CU_run_suite",
        "CU_run_all_tests",
        "tcase_run_tfun_nofork",
        "tcase_run_tfun_fork",
        "srunner_run_tagged",
    ];
    // Rust's own, with its type parameters.
    RUNNER.contains(&function) || function.starts_with("test::__rust_begin_short_backtrace")
}

/// Rust's call of a closure through a trait: `<fn() as core::ops::function::FnOnce<()>>::call_once`.
fn calls_closure(function: &str) -> bool {
    function.rsplit_once("core::ops::function::FnOnce").is_some_and(|(_, rest)| rest.contains("::call_once"))
}

/// The functions of other libraries by which a test framework calls a test.
fn passes_on(function: &str) -> bool {
    const BY: [&str; 5] = [
        "boost::function",
        "boost::detail::function::",
        "boost::detail::forward::",
        "boost::detail::do_invoke",
        "QMetaMethod",
    ];
    BY.iter().any(|by| function.starts_with(by)) || function.ends_with("::qt_static_metacall")
}

/// Index of the innermost frame of the runner that calls the test. The test's own frames come before it.
pub(super) fn runner_begins(known: &[Known<'_>]) -> usize {
    let Some(starts) = known.iter().position(|k| k.starts_test) else { return known.len() };
    let inside = &known[..starts];
    let test = inside.iter().rposition(|k| !k.passes_on).map_or(0, |test| test + 1);
    if inside[..test].iter().any(|k| k.kind == Kind::Own) { test } else { starts }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_lose_their_version() {
        let cases = [
            ("/usr/lib/libfoo.so.1.2", "libfoo.so"),
            ("libc-2.31.so", "libc.so"),
            ("libstdc++.so.6.0.30", "libstdc++.so"),
            ("engine_tests", "engine_tests"),
            ("libmpg123.so.0", "libmpg123.so"),
            ("app.sources", "app.sources"),
            ("ld-linux-x86-64.so.2", "ld-linux-x86.so"),
            ("/tmp/libzstd-jni-1.5.2-37238947298.so", "libzstd-jni-1.5.2-#.so"),
            ("/tmp/libtcnative_x86_64938472983479.so", "libtcnative_x86_#.so"),
            ("/tmp/jna9384729834798.tmp", "jna#.tmp"),
            (
                "/tmp/snappy-1.1.10-6f9619ff-8b86-d011-b42d-00cf4fc964ff-libsnappyjava.so",
                "snappy-1.1.10-#-libsnappyjava.so",
            ),
        ];
        for (module, expected) in cases {
            assert_eq!(normalised_module(module), expected);
        }
    }
}
