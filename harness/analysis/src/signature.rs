//! Identity of a leak: an id from its stack that stays the same after rebuilds, with address randomisation and with a
//! new libc.
//!
//! Only the project's own frames of a resolved stack are kept: not those of libc, the language runtime, the test runner
//! or the agent. The id is made from their names, without everything that a compiler or another version of a library
//! may change. The report shows the same frames unchanged.

mod frames;
mod function_name;

use memgate_model::Frame;

use crate::resolve::ResolvedStack;
pub(crate) use frames::normalised_module;
use frames::{GENERATED, Kind, Known, runner_begins};
pub(crate) use function_name::normalised;

/// Where allocations with one signature were made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// `n1-…`.
    pub(crate) id: String,
    /// The project's own frames, innermost first.
    pub(crate) frames: Vec<Frame>,
    pub(crate) truncated: bool,
    /// `module!function` of every frame, as shown and normalised, for waivers.
    pub(crate) names: Vec<String>,
    /// Here the C library registers a function to run at exit.
    pub(crate) notes_exit: bool,
    /// A test framework called a test that allocates here.
    pub(crate) in_test: bool,
}

impl Place {
    /// Does Rust's own code allocate here: its start-up before the program's `main`, or its test harness outside of
    /// tests? It keeps such memory until the process ends.
    pub(crate) fn is_rusts_own(&self) -> bool {
        let has = |part: &str| self.names.iter().any(|name| name.contains(part));
        let starts = has("!std::rt::lang_start") && !has("__rust_begin_short_backtrace");
        starts || has("!test::test_main") && !has("!test::__rust_begin_short_backtrace")
    }

    /// Does a listener of GoogleTest's events allocate here? That code belongs to no test.
    pub(crate) fn is_listeners(&self) -> bool {
        self.names.iter().any(|name| name.contains("!testing::internal::TestEventRepeater::On"))
    }

    /// Does glibc keep this memory until the process ends: the locale, the time zone, sources of messages and users,
    /// converters of character sets, loaded libraries? A program cannot free it, and it is bounded. Internal symbols of
    /// glibc have a prefix if they are known.
    pub(crate) fn is_glibcs_own(&self) -> bool {
        let mut functions = self.names.iter().filter_map(|name| name.strip_prefix("libc.so.6!"));
        if functions.any(|function| KEPT_BY_GLIBC.contains(&plain(function))) {
            return true;
        }
        // Below `dlopen` constructors of the library also allocate.
        fn split(name: &str) -> Option<(bool, &str)> {
            name.split_once(['!', '+']).map(|(module, function)| (is_glibc(module), plain(function)))
        }
        let mut innermost = self.names.iter().map_while(|name| split(name).filter(|(is_glibc, _)| *is_glibc));
        innermost.any(|(_, function)| LOADER.contains(&function))
    }
}

/// The C library or its loader?
fn is_glibc(module: &str) -> bool {
    ["libc.so", "ld-linux"].into_iter().any(|start| module.starts_with(start))
}

/// The name of a function of glibc without the prefix of an internal symbol.
fn plain(function: &str) -> &str {
    function.trim_start_matches("__GI_").trim_start_matches('_')
}

/// Functions of glibc whose own allocations last as long as the library that they loaded, or as the last error.
const LOADER: [&str; 6] = ["dlopen", "dl_open", "dlclose", "dl_close", "dlerror_run", "dlerror"];

/// Functions of glibc whose allocations are permanent and bounded.
const KEPT_BY_GLIBC: [&str; 34] = [
    "setlocale",
    "tzset",
    "tzset_internal",
    "tz_convert",
    "localtime",
    "mktime",
    "bindtextdomain",
    "textdomain",
    "dcigettext",
    "getpwnam",
    "getpwuid",
    "getgrnam",
    "getgrgid",
    "gethostbyname",
    "gethostbyname2",
    "gethostbyaddr",
    "getservbyname",
    "getservbyport",
    "getprotobyname",
    "getprotobynumber",
    "nss_database_get",
    "nss_module_allocate",
    "nss_action_allocate",
    "global_state_allocate",
    "resolv_conf_get_current",
    "resolv_context_get",
    "gaiconf_init",
    "check_pf",
    "gconv_find_transform",
    "gconv_find_shlib",
    "gconv_load_cache",
    "gconv_load_conf",
    "strerror_l",
    "strsignal",
];

/// Names the place of a stack.
pub(crate) fn place(stack: &ResolvedStack) -> Place {
    let known: Vec<Known<'_>> = stack.frames.iter().map(Known::new).collect();
    let inside = &known[..runner_begins(&known)];
    // Generated code has other addresses in each run.
    let is_named = |known: &Known<'_>| known.frame.module != GENERATED;
    let kept = |part: &'_ [Known<'_>], kinds: &[Kind]| -> Vec<usize> {
        (0..part.len()).filter(|i| kinds.contains(&part[*i].kind) && is_named(&part[*i])).collect()
    };
    let near = [Kind::Own, Kind::Library];
    let any = [Kind::Own, Kind::Library, Kind::System, Kind::Runner];
    // Functions of the system that generated code calls are the same for every caller: they are no place.
    let is_placed = known.iter().all(is_named);
    let alone = [kept(inside, &any), kept(&known, &any)].into_iter().filter(|_| is_placed);
    let kept = [kept(inside, &[Kind::Own]), kept(inside, &near)]
        .into_iter()
        .chain(alone)
        .find(|kept| !kept.is_empty())
        .unwrap_or_default();
    let kept: Vec<&Known<'_>> = kept.into_iter().map(|i| &known[i]).collect();
    let keys = kept.iter().map(|k| k.key.as_str());
    // Inlined function objects have no name of their own. Their files distinguish them.
    let homeless = kept.iter().all(|k| k.is_nameless);
    let files = kept.iter().filter(|_| homeless).filter_map(|k| k.frame.file.as_deref());
    let files = files.map(|file| file.rsplit('/').next().unwrap_or(file));
    let names = known.iter().flat_map(|k| {
        let shown = k.frame.function.as_deref().map(|f| format!("{}!{f}", k.frame.module));
        shown.into_iter().chain([k.key.clone()])
    });
    Place {
        id: id("n1-", keys.chain(files)),
        names: names.collect(),
        notes_exit: notes_exit(&stack.frames),
        in_test: inside.len() < known.len() && inside.iter().any(|k| k.kind == Kind::Own),
        frames: kept.into_iter().map(|k| k.frame.clone()).collect(),
        truncated: stack.truncated,
    }
}

/// `__new_exitfn`, which the C library calls in `atexit`. It has no name without debug information.
fn notes_exit(frames: &[Frame]) -> bool {
    let is_libc = |frame: &Frame| normalised_module(&frame.module) == "libc.so";
    let is_named = |frame: &Frame| frame.function.as_deref().is_none_or(|function| function.contains("exit"));
    frames.first().is_some_and(|frame| is_libc(frame) && is_named(frame))
        && !frames.iter().skip(1).take(1).any(is_libc)
}

/// Id of a leak without a call stack, unique to this test.
pub(crate) fn id_of_test(suite: &str, test: &str) -> String {
    id("n1-", ["no stack", suite, test].into_iter())
}

/// Id of growth that several places share, unique to this test: which of them have a part in it may differ from run to
/// run. `when` distinguishes two such leaks of a test.
pub(crate) fn id_of_several(suite: &str, test: &str, when: &str) -> String {
    id("n1-", ["several places", when, suite, test].into_iter())
}

/// Id of a descriptor or thread with unknown origin: `kind` is `descriptor` or `thread`, `name` its normalised name.
pub(crate) fn os_id(kind: &str, name: &str) -> String {
    id("o1-", [kind, name].into_iter())
}

/// Id of what one place of the code opened or started. It uses only the place, because the same code opens files of
/// different names.
pub(crate) fn os_id_of_place(kind: &str, place: &Place) -> String {
    id("o1-", [kind, &place.id].into_iter())
}

/// Id of mapped memory: by the place that mapped it, otherwise by the kind of mapping.
pub(crate) fn mapped_id(place: Option<&Place>, of: &[String]) -> String {
    match place {
        Some(place) => id("m1-", [place.id.as_str()].into_iter()),
        None => id("m1-", of.first().map(String::as_str).into_iter()),
    }
}

/// Id of a leak of Java objects: class and steps of the holder path (or frames), normalised.
pub(crate) fn java_id<'a>(class: &'a str, place: impl Iterator<Item = &'a str>) -> String {
    id("j1-", std::iter::once(class).chain(place))
}

/// Id of a leak in a heap dump: a prefix of LeakCanary's fingerprint, which is itself a hash.
pub(crate) fn heap_id(fingerprint: &str) -> String {
    format!("h1-{}", fingerprint.get(..16).unwrap_or(fingerprint))
}

/// Id of too many objects of a class in a heap dump.
pub(crate) fn heap_class_id(class: &str) -> String {
    id("h1-", ["class", class].into_iter())
}

fn id<'a>(prefix: &str, parts: impl Iterator<Item = &'a str>) -> String {
    format!("{prefix}{:016x}", hash(parts))
}

/// FNV-1a over the parts. Each part is followed by a byte that no name contains. The finalizer of MurmurHash3 makes
/// similar names differ in every digit. This is part of the id format and cannot change.
fn hash<'a>(parts: impl Iterator<Item = &'a str>) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for part in parts {
        for byte in part.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dsl::frame;

    /// Regression test: each Rust program had a warning for the 544 bytes that its start-up keeps.
    #[test]
    fn what_rust_allocates_outside_of_main_and_of_tests_is_its_own() {
        let start = [
            ("app", "std::sys::pal::unix::stack_overflow::imp::init"),
            ("app", "std::rt::lang_start_internal"),
            ("app", "std::rt::lang_start::<()>"),
            ("app", "main"),
        ];
        assert!(place(&stack(&start)).is_rusts_own());
        let in_main = [
            ("app", "app::cache"),
            ("app", "app::main"),
            ("app", "std::sys::backtrace::__rust_begin_short_backtrace::<fn(), ()>"),
            ("app", "std::rt::lang_start::<()>::{closure#0}"),
        ];
        assert!(!place(&stack(&[&in_main[..], &start[1..]].concat())).is_rusts_own());
        assert!(!place(&stack(&[("app", "cache()"), ("app", "main")])).is_rusts_own());
        let harness =
            [("app", "test::run_tests::<F>"), ("app", "test::test_main_static"), ("app", "app::main")];
        let harness = [&harness[..], &in_main[2..], &start[1..]].concat();
        assert!(place(&stack(&harness)).is_rusts_own());
        let test = [("app", "app::tests::keeps"), ("app", "test::__rust_begin_short_backtrace::<(), fn()>")];
        assert!(!place(&stack(&[&test[..], &harness].concat())).is_rusts_own());
    }

    #[test]
    fn what_a_listener_of_googletest_allocates_is_not_the_tests() {
        let around = [("t", "testing::TestInfo::Run()"), ("t", "RUN_ALL_TESTS()"), ("t", "main")];
        let event = "testing::internal::TestEventRepeater::OnTestEnd(testing::TestInfo const&)";
        let listener = [("t", "Results::OnTestEnd(testing::TestInfo const&)"), ("t", event)];
        assert!(place(&stack(&[&listener[..], &around].concat())).is_listeners());
        let test = [("t", "Results::OnTestEnd(testing::TestInfo const&)"), ("t", "A_B_Test::TestBody()")];
        assert!(!place(&stack(&[&test[..], &around].concat())).is_listeners());
    }

    #[test]
    fn what_a_test_allocates_is_told_from_what_its_program_allocates() {
        let of = |frames: &[(&str, &str)]| place(&stack(frames)).in_test;
        let doctest = [("t", "doctest::Context::run()"), ("t", "main")];
        assert!(of(&[&[("t", "parse()"), ("t", "DOCTEST_ANON_FUNC_2()")], &doctest[..]].concat()));
        assert!(!of(&doctest), "the framework itself");
        assert!(!of(&[("t", "parse()"), ("t", "main")]));
        let result = "core::result::Result<(), alloc::string::String>";
        let object = format!("<fn() -> {result} as core::ops::function::FnOnce<()>>::call_once");
        let begins = format!("test::__rust_begin_short_backtrace::<{result}, fn() -> {result}>");
        let libtest = [
            ("t", object.as_str()),
            ("t", begins.as_str()),
            ("t", "test::run_test_in_process"),
            ("t", "test::run_test::{closure#1}"),
            ("libc.so.6", "start_thread"),
        ];
        let test =
            [("t", "app::parse"), ("t", "app::tests::parses"), ("t", "app::tests::parses::{{closure}}")];
        assert!(of(&[&test[..], &libtest].concat()));
        assert!(!of(&libtest[1..]) && !of(&libtest[2..]), "the framework itself");
    }

    fn stack(frames: &[(&str, &str)]) -> ResolvedStack {
        let frames = frames.iter().map(|(module, function)| frame(module, function)).collect();
        ResolvedStack { frames, truncated: false }
    }

    #[test]
    fn what_glibc_keeps_is_known_by_its_functions() {
        let of = |libc: &str| {
            place(&stack(&[("libc.so.6", "__GI___strdup"), ("libc.so.6", libc), ("app", "main")]))
                .is_glibcs_own()
        };
        assert!(["setlocale", "__GI_setlocale", "__tz_convert", "getpwuid"].into_iter().all(of));
        assert!(!["newlocale", "fopen", "getaddrinfo", "setenv", "getpwuid_r"].into_iter().any(of));
        assert!(["__gconv_find_transform", "getservbyname", "gaiconf_init"].into_iter().all(of));
        assert!(!["iconv_open", "__gconv_open", "__pthread_create_2_1"].into_iter().any(of));
        assert!(!place(&stack(&[("app", "setlocale"), ("app", "main")])).is_glibcs_own());
        // Memory that the loader allocates is its own. Memory that a library allocates while it is loaded is not.
        let loader = [("ld-linux-x86-64.so.2", "_dl_new_object"), ("libc.so.6", "dlopen"), ("app", "main")];
        assert!(place(&stack(&loader)).is_glibcs_own());
        let last_error = [("libc.so.6", "___asprintf"), ("libc.so.6", "__dlerror"), ("app", "main")];
        assert!(place(&stack(&last_error)).is_glibcs_own());
        let constructor = [&[("libc.so.6", "strdup"), ("libplugin.so", "register()")], &loader[..]].concat();
        assert!(!place(&stack(&constructor)).is_glibcs_own());
    }

    #[test]
    fn function_objects_without_a_name_are_told_apart_by_their_files() {
        let of = |function: &str, file: &str| {
            let mut stack = stack(&[("app", function), ("app", "std::thread::_State_impl<X>::_M_run()")]);
            stack.frames[0].file = Some(file.to_owned());
            place(&stack).id
        };
        assert_ne!(of("operator()", "src/registry.cc"), of("operator()", "src/serializer.cc"));
        assert_eq!(of("operator()", "src/registry.cc"), of("operator()", "/build/src/registry.cc"));
        let named = "Registry::Collect()::{lambda()#1}::operator()";
        assert_eq!(of(named, "src/registry.cc"), of(named, "src/moved.cc"), "a name is enough");
    }

    #[test]
    fn what_the_c_library_notes_to_run_at_exit_is_known_with_and_without_its_names() {
        let of = |frames: &[(&str, &str)]| place(&stack(frames)).notes_exit;
        assert!(of(&[("libc.so.6", "__new_exitfn"), ("app", "Schema::GetString()")]));
        assert!(of(&[("libc.so.6", ""), ("app", "Schema::GetString()")]));
        assert!(!of(&[("libc.so.6", "getdelim"), ("app", "Schema::GetString()")]));
        assert!(!of(&[("libc.so.6", ""), ("libc.so.6", ""), ("app", "main")]));
        assert!(!of(&[("app", "at_exit")]));
    }

    fn kept(frames: &[(&str, &str)]) -> Vec<String> {
        let place = place(&stack(frames));
        place.frames.into_iter().map(|f| f.function.unwrap_or_default()).collect()
    }

    const GTEST_MAIN: [(&str, &str); 6] = [
        (
            "t",
            "void testing::internal::HandleExceptionsInMethodIfSupported<testing::Test, void>(testing::Test*)",
        ),
        ("t", "testing::Test::Run()"),
        ("t", "testing::UnitTest::Run()"),
        ("t", "main"),
        ("libc.so.6", "__libc_start_main"),
        ("t", "_start"),
    ];

    #[test]
    fn keeps_the_projects_own_frames_up_to_the_test_body() {
        let mut frames = vec![
            ("libmemgate_agent.so", "malloc"),
            ("libstdc++.so.6", "operator new(unsigned long)"),
            ("t", "__gnu_cxx::new_allocator<int>::allocate(unsigned long, void const*)"),
            ("t", "std::vector<int, std::allocator<int> >::push_back(int const&)"),
            (
                "t",
                "_ZSt11make_sharedIN5tiles4TileEJEESt10shared_ptrINSt9enable_ifIXntsrSt8is_arrayIT_E5valueES5_E4typeEEDpOT0_",
            ),
            ("t", "MapCache::insert(Tile const&)"),
            ("libtiles.so.2", "tiles::each(std::function<void (int)> const&)"),
            ("t", "MapCache_scroll_Test::TestBody()"),
        ];
        frames.extend(GTEST_MAIN);
        assert_eq!(
            kept(&frames),
            [
                "MapCache::insert(Tile const&)",
                "tiles::each(std::function<void (int)> const&)",
                "MapCache_scroll_Test::TestBody()"
            ]
        );
    }

    #[test]
    fn a_mock_the_test_calls_is_not_the_runner_that_calls_the_test() {
        let mut frames = vec![
            ("libc.so.6", "malloc"),
            ("t", "testing::internal::FunctionMocker<void (int)>::Invoke(int)"),
            ("t", "Engine::step()"),
            ("t", "Engine_steps_Test::TestBody()"),
        ];
        frames.extend(GTEST_MAIN);
        assert_eq!(kept(&frames), ["Engine::step()", "Engine_steps_Test::TestBody()"]);
    }

    /// Regression: the id of a leak changed with each version of these libraries.
    #[test]
    fn the_runner_of_any_known_framework_is_no_part_of_an_id() {
        let (test, bare) = (("t", "refuses_a_truncated_object"), ("t", "yajl_tree_parse"));
        let alone = id_of(&[bare, test]);
        let runners: [&[(&str, &str)]; 8] = [
            &[
                (
                    "t",
                    "boost::detail::function::void_function_invoker0<void (*)(), void>::invoke(boost::detail::function::function_buffer&)",
                ),
                ("t", "boost::function0<void>::operator()() const"),
                ("t", "boost::detail::forward::operator()()"),
                (
                    "t",
                    "int boost::detail::do_invoke<boost::shared_ptr<translator>, boost::function<int ()> >(int)",
                ),
                ("t", "boost::execution_monitor::catch_signals(boost::function<int ()> const&)"),
                ("t", "boost::unit_test::framework::run(unsigned long, bool)"),
            ],
            &[
                ("t", "boost::detail::function::void_function_invoker<void (*)(), void>::invoke(int)"),
                ("libboost_unit_test_framework.so.1.74.0", ""),
                ("libboost_unit_test_framework.so.1.74.0", "boost::execution_monitor::execute(int)"),
            ],
            &[
                ("t", "TestTree::qt_static_metacall(QObject*, QMetaObject::Call, int, void**)"),
                ("libQt5Core.so.5", "QMetaMethod::invoke(QObject*, Qt::ConnectionType) const"),
                ("libQt5Test.so.5", ""),
                ("libQt5Test.so.5", "QTest::qExec(QObject*, int, char**)"),
            ],
            &[
                ("t", "Catch::TestInvokerAsFunction::invoke() const"),
                ("t", "Catch::RunContext::invokeActiveTestCase()"),
                ("t", "Catch::Session::run()"),
            ],
            &[("t", "doctest::Context::run()")],
            &[("t", "PlatformSpecificSetJmpImplementation"), ("t", "Utest::run()")],
            &[("t", "UnityDefaultTestRun")],
            &[("libcmocka.so.0", ""), ("libcmocka.so.0", "_cmocka_run_group_tests")],
        ];
        for runner in runners {
            let frames = [&[("libc.so.6", "malloc"), bare, test], runner, &[("t", "main")]].concat();
            assert_eq!(kept(&frames), [bare.1, test.1]);
            assert_eq!(id_of(&frames), alone);
        }
        let own = [("t", "boost::function0<void>::operator()() const"), test, ("t", "UnityDefaultTestRun")];
        assert_eq!(kept(&own).len(), 2, "code under test may use boost::function");
    }

    #[test]
    fn a_thread_has_no_runner_frames() {
        let frames = [
            ("libc.so.6", "malloc"),
            ("t", "Worker::run()"),
            ("t", "std::thread::_State_impl<std::thread::_Invoker<std::tuple<void (*)()> > >::_M_run()"),
            ("libstdc++.so.6", "execute_native_thread_routine"),
            ("libc.so.6", "start_thread"),
        ];
        assert_eq!(kept(&frames), ["Worker::run()"]);
    }

    #[test]
    fn falls_back_to_the_nearest_frames_there_are() {
        assert_eq!(kept(&[("libc.so.6", "malloc"), ("libc.so.6", "fopen")]), ["malloc", "fopen"]);
        let library = [("libc.so.6", "malloc"), ("t", "std::string::append(char const*)"), ("t", "_start")];
        assert_eq!(kept(&library), ["std::string::append(char const*)"]);
        assert_eq!(kept(&GTEST_MAIN[..3]).len(), 3);
        assert_eq!(kept(&[]), [""; 0]);
    }

    fn id_of(frames: &[(&str, &str)]) -> String {
        place(&stack(frames)).id
    }

    #[test]
    fn an_id_survives_another_build_and_another_libc() {
        let one = id_of(&[
            ("libc.so.6", "malloc"),
            ("libtiles.so.2.1", "MapCache::insert(Tile const&)"),
            ("t", "go()::{lambda(int)#1}::operator()(int) const"),
        ]);
        let other = id_of(&[
            ("libc-2.31.so", "__libc_malloc"),
            ("libstdc++.so.6", "operator new(unsigned long)"),
            ("libtiles.so.3", "MapCache::insert(Tile const&) [clone .isra.0]"),
            ("t", "go()::{lambda(int)#2}::operator()(int) const"),
        ]);
        assert_eq!(one, other);
        assert!(one.starts_with("n1-") && one.len() == 19);
        assert_ne!(one, id_of(&[("libtiles.so", "MapCache::insert(Tile const&)")]));
    }

    /// Waivers of users contain these ids: a change of this value breaks them.
    #[test]
    fn the_hash_is_part_of_the_format() {
        let frames = [("t", "MapCache::insert(Tile const&)"), ("t", "MapCache_scroll_Test::TestBody()")];
        assert_eq!(id_of(&frames), "n1-439569219cc7ab51");
        assert_eq!(os_id("descriptor", "/tmp/log"), "o1-36cb3740d127b118");
    }

    #[test]
    fn without_symbols_the_offset_in_the_module_names_the_place() {
        let at = |offset| {
            let mut stripped = stack(&[("libtiles.so.2", "")]);
            stripped.frames[0].offset = offset;
            place(&stripped)
        };
        assert_eq!(at(0x1f0).names, ["libtiles.so+0x1f0"]);
        assert_ne!(at(0x1f0).id, at(0x1f4).id);
    }

    #[test]
    fn waivers_see_every_frame_as_shown_and_normalised() {
        let place = place(&stack(&[("libc.so.6", "malloc"), ("libfontconfig.so.1", "FcInit(int)")]));
        let names = [
            "libc.so.6!malloc",
            "libc.so!malloc",
            "libfontconfig.so.1!FcInit(int)",
            "libfontconfig.so!FcInit",
        ];
        assert_eq!(place.names, names);
    }

    /// Regression test: the id of a leak that only generated code allocates was made of its address.
    #[test]
    fn code_without_a_file_is_no_part_of_an_id() {
        let at = |offset: u64, called_by: &[(&str, &str)]| {
            let mut stack = stack(called_by);
            stack.frames.insert(0, Frame { module: GENERATED.to_owned(), offset, ..Frame::default() });
            place(&stack)
        };
        assert_eq!(at(0x7f01, &[]).id, at(0x7f02, &[]).id);
        assert!(at(0x7f01, &[]).frames.is_empty(), "a leak without a stack has an id of its test");
        let mut new = stack(&[("libstdc++.so.6", "operator new(unsigned long)")]);
        new.frames.push(Frame { module: GENERATED.to_owned(), offset: 0x7f01, ..Frame::default() });
        assert!(place(&new).frames.is_empty(), "{:?}", place(&new));
        assert_ne!(at(0x7f01, &[("app", "scan()")]).id, at(0x7f01, &[("app", "read()")]).id);
    }
}
