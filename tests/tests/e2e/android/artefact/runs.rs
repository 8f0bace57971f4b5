//! The library built for Android's x86-64 runs here, on `tests/samples/bionic/libc.c`, which provides what
//! bionic has and glibc lacks. This tests its constructor, its hooks, its per-thread data (thread keys), its
//! frame pointer walk and its exit, but not Android's loader or Java runtime.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use memgate_e2e::samples::successful;
use memgate_e2e::{Project, repository, skip_without};
use memgate_wire::{Counters, Frame, Runtime, capability};
use object::{Object, ObjectSymbol};

fn library() -> Option<PathBuf> {
    let folder = std::env::var_os("MEMGATE_ANDROID_AGENT").map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| repository().join("target/android"));
    let library = folder.join("x86_64/libmemgate_agent.so");
    if !library.exists() {
        skip_without(&format!("{} (ci/android/build)", library.display()));
        return None;
    }
    Some(library)
}

/// Compiles a file of `tests/samples/bionic`.
fn compiled(project: &Project, source: &str, name: &str, arguments: &[&str]) -> PathBuf {
    let to = project.folder().join(name);
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-g", "-fno-omit-frame-pointer", "-pthread"]).args(arguments);
    successful(cc.arg(repository().join("tests/samples/bionic").join(source)).arg("-o").arg(&to));
    to
}

/// Compiles the app, and what bionic has.
fn app(project: &Project) -> PathBuf {
    for library in ["libc.so", "libdl.so"] {
        compiled(project, "libc.c", library, &["-shared", "-fPIC", &format!("-Wl,-soname,{library}")]);
    }
    compiled(project, "app.c", "app", &[])
}

#[test]
fn another_process_of_the_app_does_not_wait_for_the_harness_when_it_starts() {
    const WAIT: Duration = Duration::from_secs(30);
    let Some(library) = library() else { return };
    let project = Project::new("android-artefact-process");
    let app = app(&project);
    let options = format!(
        "dir={};harness=1;wait_ms={};package=com.example.app",
        project.folder().display(),
        WAIT.as_millis()
    );
    let mut remote = Command::new(&app);
    remote.arg0("com.example.app:remote").env("LD_PRELOAD", &library);
    remote.env("LD_LIBRARY_PATH", project.folder()).env("MEMGATE_AGENT_OPTIONS", options);
    let began = Instant::now();
    assert_eq!(successful(&mut remote), "done\n");
    assert!(began.elapsed() < WAIT);
}

#[test]
fn an_app_ignores_the_options_of_a_harness_that_was_killed_long_ago() {
    const WAIT: Duration = Duration::from_secs(30);
    let Some(library) = library() else { return };
    let project = Project::new("android-artefact-left-behind");
    let app = app(&project);
    let cache = project.folder().join("com.example.app/code_cache");
    std::fs::create_dir_all(&cache).unwrap();
    let (delivered, options) = (cache.join("libmemgate_agent.so"), cache.join("memgate.options"));
    std::fs::copy(library, &delivered).unwrap();
    let frames = project.folder().join("frames");
    std::fs::create_dir(&frames).unwrap();
    // The number of streams after a start of the app with such a file.
    let starts = |more: &str, age: u64| {
        std::fs::write(&options, format!("dir={};package=com.example.app;{more}\n", frames.display()))
            .unwrap();
        let file = std::fs::File::options().write(true).open(&options).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        let mut app = Command::new(&app);
        app.env("LD_PRELOAD", &delivered).env("LD_LIBRARY_PATH", project.folder()).arg0("com.example.app");
        assert_eq!(successful(&mut app), "done\n");
        std::fs::read_dir(&frames).unwrap().count()
    };
    let began = Instant::now();
    assert_eq!(starts(&format!("harness=1;wait_ms={}", WAIT.as_millis()), 11 * 60), 0, "left behind");
    assert!(began.elapsed() < WAIT);
    assert_eq!(starts("harness=1;wait_ms=1", 5), 1, "of a harness that waits");
    assert_eq!(starts("wait_ms=0", 11 * 60), 2, "of a user without a harness");
}

#[test]
fn native_allocations_are_tracked_with_their_stacks() {
    let Some(library) = library() else { return };
    let project = Project::new("android-artefact-runs");
    let app = app(&project);
    let frames = project.folder().join("frames");
    std::fs::create_dir(&frames).unwrap();
    let told = successful(
        Command::new(&app).env("LD_PRELOAD", &library).env("LD_LIBRARY_PATH", project.folder()).env(
            "MEMGATE_AGENT_OPTIONS",
            format!("dir={};wait_ms=0;package=com.example.app", frames.display()),
        ),
    );
    assert_eq!(told, "done\n");
    let entry = std::fs::read_dir(&frames).unwrap().next().expect("a stream").unwrap();
    let frames = crate::agent::spool::frames(&entry.path());

    let Some(Frame::Hello(hello)) = frames.first() else { panic!("{frames:#?}") };
    assert_eq!((hello.abi.as_str(), hello.runtime), ("x86_64-linux-android", Runtime::Native));
    assert!(hello.blind.is_none(), "{hello:?}");
    for capability in [capability::NATIVE_LIVE, capability::NATIVE_STACKS] {
        assert!(hello.offers(capability), "{hello:?}");
    }
    let Some(Frame::Goodbye(goodbye)) = frames.last() else { panic!("{frames:#?}") };
    let Counters { allocations, frees, unknown_frees, .. } = goodbye.counters;
    // 3 × 1000 times two allocations, each freed (the first one by `realloc`), plus libc's own for threads
    // and output.
    assert!((6000..6100).contains(&frees) && (6003..6100).contains(&allocations), "{goodbye:?}");
    // Blocks from before the agent may be freed; the 3000 frees of a null pointer do not count.
    assert!(unknown_frees < 100, "{goodbye:?}");
    assert!(
        frames.iter().any(|f| matches!(f, Frame::OsSample(s) if s.rss_bytes > 0 && !s.fds.is_empty())),
        "{frames:#?}"
    );

    let found = survivors(&frames, &app);
    for (bytes, count, want) in [(4711, 1, vec!["lose", "main"]), (148, 2, vec!["lose", "thread"])] {
        let of_size: Vec<_> = found.iter().filter(|(size, ..)| *size == bytes).collect();
        assert_eq!(of_size.iter().map(|(_, count, _)| count).sum::<u64>(), count, "{found:?}");
        for (_, _, stack) in of_size {
            assert!(stack.starts_with(&want.iter().map(|&f| f.to_owned()).collect::<Vec<_>>()), "{stack:?}");
        }
    }
}

/// Live blocks at the end: bytes, count, and the program's functions on the stack, innermost first.
fn survivors(frames: &[Frame], app: &Path) -> Vec<(u64, u64, Vec<String>)> {
    let bytes = std::fs::read(app).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let modules =
        frames.iter().filter_map(|f| if let Frame::Modules(m) = f { Some(&m.modules) } else { None });
    let bias = modules.flatten().find(|m| Path::new(&m.path) == app).unwrap().bias;
    let nodes: Vec<_> = frames
        .iter()
        .filter_map(|f| if let Frame::Stacks(s) = f { Some(&s.nodes) } else { None })
        .flatten()
        .collect();
    let function = |pc: u64| {
        let at = pc.wrapping_sub(1).wrapping_sub(bias);
        let symbol = file.symbols().find(|s| (s.address()..s.address() + s.size()).contains(&at))?;
        Some(symbol.name().ok()?.to_owned())
    };
    let stack = |mut id: u32| {
        let mut functions = Vec::new();
        while let Some(node) = nodes.iter().find(|n| n.id == id) {
            functions.extend(function(node.pc));
            id = node.parent;
        }
        functions
    };
    frames
        .iter()
        .filter_map(|f| if let Frame::NativeSnapshot(s) = f { Some(&s.records) } else { None })
        .flatten()
        .map(|r| (r.size, r.count, stack(r.stack)))
        .collect()
}
