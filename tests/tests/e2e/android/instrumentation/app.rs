//! The app of `tests/samples/android` on a stand-in device: `am instrument` starts it in a real JVM, with
//! Robolectric's framework, AndroidX Test's own runner arguments and result printer, and the agent that was
//! delivered to the device.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};

use memgate_e2e::jvm::{self, Jdk};
use memgate_e2e::samples::{compile, successful};
use memgate_e2e::stand_in::{
    Adb, AdbServer, Builder, Instrument, Instrumentation, Package, StandIn, Terminal,
};
use memgate_e2e::{Project, Run, agent, repository, skip_without, waiting};
use tempfile::TempDir;

pub(crate) const APP: &str = "com.example.tracks";
/// The folder of a project with the agents for Android.
pub(crate) const AGENTS: &str = "agents";
pub(crate) const TESTS: &str = "com.example.tracks.test";
pub(crate) const RUNNER: &str = "androidx.test.runner.AndroidJUnitRunner";
/// Robolectric 4.14 supports Java releases up to 23; this one is used.
const RELEASE: u32 = 17;

/// The class path of the app's process: the "APKs".
#[derive(Debug)]
struct Apks {
    jdk: Jdk,
    framework: PathBuf,
    class_path: String,
    /// The compiled classes of the sample, and its project.
    classes: PathBuf,
    project: PathBuf,
}

/// Built once; `None`, with a message, if something it needs is missing.
fn apks() -> Option<&'static Apks> {
    static APKS: OnceLock<Option<Apks>> = OnceLock::new();
    APKS.get_or_init(build).as_ref()
}

fn build() -> Option<Apks> {
    let jdk = jvm::jdks().into_iter().find(|jdk| jdk.release == RELEASE)?;
    let project = jvm::project("android-app", "android");
    let mut fetch = Command::new("mvn");
    fetch.args(["-q", "-B", "package"]).current_dir(project.folder()).env("JAVA_HOME", &jdk.home);
    let fetched = waiting::output(&mut fetch);
    if !fetched.status.success() {
        let why = String::from_utf8_lossy(&fetched.stdout);
        skip_without(&format!("Robolectric and AndroidX Test to fetch, with their jars:\n{why}"));
        return None;
    }
    let target = project.folder().join("target");
    let mut jars = files(&target.join("jars"));
    for aar in files(&target.join("aar")) {
        let folder = target.join("classes").join(aar.file_stem().unwrap());
        fs::create_dir_all(&folder).unwrap();
        let mut unpack = Command::new(jdk.home.join("bin/jar"));
        successful(
            unpack.args(["xf".as_ref(), aar.as_os_str(), "classes.jar".as_ref()]).current_dir(&folder),
        );
        jars.push(folder.join("classes.jar"));
    }
    let framework = target.join("framework");
    // Needed for compilation, and outside of the framework's own class loader for names in annotations.
    jars.push(framework.join("android-all-instrumented-14-robolectric-10818077-i7.jar"));
    let classes = target.join("apk");
    let java = repository().join("device-agent/java");
    let sources = [
        java.join("agent/src/main/java"),
        java.join("android-junit4/src/main/java"),
        project.folder().join("app"),
        project.folder().join("tests"),
        project.folder().join("device"),
    ];
    let mut javac = jdk.javac();
    javac.args(["-g", "-nowarn", "-Xlint:none", "-d"]).arg(&classes).arg("-cp").arg(joined(&jars));
    successful(javac.args(sources.iter().flat_map(|folder| java_files(folder))));
    let services = "META-INF/services";
    fs::create_dir_all(classes.join(services)).unwrap();
    for service in files(&project.folder().join("device").join(services)) {
        fs::copy(&service, classes.join(services).join(service.file_name().unwrap())).unwrap();
    }
    jars.insert(0, classes.clone());
    let project = project.folder().to_owned();
    Some(Apks { jdk, framework, class_path: joined(&jars), classes, project })
}

/// A part of the app as renamed by R8, with R8's mapping file.
#[derive(Debug, Clone)]
pub(crate) struct Renamed {
    classes: PathBuf,
    pub(crate) mapping: PathBuf,
}

/// Built once; `None`, with a message, if something it needs is missing.
pub(crate) fn renamed() -> Option<&'static Renamed> {
    static RENAMED: OnceLock<Option<Renamed>> = OnceLock::new();
    RENAMED.get_or_init(|| Some(rename(apks()?))).as_ref()
}

/// The jar of R8, which also contains D8.
pub(crate) fn r8() -> Option<PathBuf> {
    Some(apks()?.project.join("target/r8/r8.jar"))
}

/// Classes that do not depend on Android, with their tests.
const RENAMED: [&str; 2] = ["Route", "TileCache"];

fn rename(apks: &Apks) -> Renamed {
    let target = apks.project.join("target");
    let renamed = Renamed { classes: target.join("renamed"), mapping: target.join("mapping/mapping.txt") };
    fs::create_dir_all(&renamed.classes).unwrap();
    fs::create_dir_all(renamed.mapping.parent().unwrap()).unwrap();
    let is_meant = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        RENAMED.iter().any(|class| name.starts_with(class))
    };
    let mut r8 = Command::new(apks.jdk.home.join("bin/java"));
    r8.args(["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"])
        .arg(apks.project.join("target/r8/r8.jar"))
        .arg("com.android.tools.r8.R8");
    r8.args(["--classfile", "--release", "--lib"]).arg(&apks.jdk.home);
    r8.arg("--pg-conf").arg(apks.project.join("device/renamed.pro"));
    r8.arg("--pg-map-output").arg(&renamed.mapping).arg("--output").arg(&renamed.classes);
    successful(r8.args(files(&apks.classes.join("com/example/tracks")).iter().filter(|path| is_meant(path))));
    renamed
}

fn joined(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn java_files(folder: &Path) -> Vec<PathBuf> {
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) =
        files(folder).into_iter().partition(|path| path.is_dir());
    let sources = files.into_iter().filter(|path| path.extension().is_some_and(|e| e == "java"));
    sources.chain(folders.iter().flat_map(|folder| java_files(folder))).collect()
}

/// The app.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tracks {
    processes: Arc<Mutex<BTreeMap<u32, Process>>>,
    /// Folder of the agent's library, if the test APK contains it.
    brings: Option<PathBuf>,
    /// The app's own library, if any. Its APK then has a `wrap.sh`, which preloads the agent.
    native: Option<PathBuf>,
    /// Set if `wrap.sh` enables malloc_debug instead: its library and options.
    malloc_debug: Option<(PathBuf, &'static str)>,
    /// Classes that precede those of the app.
    renamed: Option<PathBuf>,
    /// The app as dex: its process is genuine ART (tests/art).
    dex: Option<PathBuf>,
    /// Processes that were asked to load the agent.
    asked: Arc<Mutex<BTreeSet<u32>>>,
}

/// A process of the app, with its temporary folder: it is killed, so it cannot clean up itself.
#[derive(Debug)]
struct Process {
    java: Child,
    _temporary: TempDir,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.java.kill().unwrap();
        self.java.wait().unwrap();
    }
}

/// A device with the app and its tests; `None`, with a message, if the app cannot be built here.
pub(crate) fn device(api: u32) -> Option<(StandIn, Tracks)> {
    apks()?;
    Some(with_app(api, None, None))
}

/// As [`device`], of this model.
pub(crate) fn device_of(model: &str) -> Option<(StandIn, Tracks)> {
    apks()?;
    Some(installed(StandIn::builder().model(model), Tracks::default()))
}

/// As [`device`], with classes that R8 has renamed.
pub(crate) fn device_with_renamed(api: u32) -> Option<(StandIn, Tracks)> {
    let tracks = Tracks { renamed: Some(renamed()?.classes.clone()), ..Tracks::default() };
    Some(installed(StandIn::builder().api(api), tracks))
}

/// A device whose runtime is genuine ART, with this app as dex.
pub(crate) fn device_in_art(api: u32, dex: PathBuf) -> (StandIn, Tracks) {
    installed(StandIn::builder().api(api), Tracks { dex: Some(dex), ..Tracks::default() })
}

/// As [`device`], with the agent's library in the test APK.
pub(crate) fn device_with_library(api: u32) -> Option<(StandIn, Tracks)> {
    apks()?;
    Some(with_app(api, Some(library()), None))
}

/// As [`device`], with a library of the app and a `wrap.sh` in its APK.
pub(crate) fn device_with_wrap(api: u32) -> Option<(StandIn, Tracks)> {
    device_with_decoder(api, decoder(&[])?)
}

/// As [`device_with_wrap`], with this build of the library.
pub(crate) fn device_with_decoder(api: u32, library: PathBuf) -> Option<(StandIn, Tracks)> {
    apks()?;
    Some(with_app(api, None, Some(library)))
}

/// As [`device_with_wrap`], with a `wrap.sh` that enables malloc_debug and loads nothing of memgate.
pub(crate) fn device_with_malloc_debug(
    api: u32,
    decoder: PathBuf,
    library: PathBuf,
    options: &'static str,
) -> Option<(StandIn, Tracks)> {
    apks()?;
    let malloc_debug = Some((library, options));
    let tracks = Tracks { native: Some(decoder), malloc_debug, ..Tracks::default() };
    Some(installed(StandIn::builder().api(api), tracks))
}

/// Builds the app's own library, with additional flags.
pub(crate) fn decoder(more: &[&str]) -> Option<PathBuf> {
    let home = &apks()?.jdk.home;
    let [java, linux] =
        ["include", "include/linux"].map(|folder| format!("-I{}", home.join(folder).display()));
    let source = fs::read_to_string(repository().join("tests/samples/android/native/decoder.c")).unwrap();
    let flags = ["decoder.c", "-shared", "-fPIC", "-O1", "-g", &java, &linux];
    Some(compile("libtracks.so", "cc", &[&flags[..], more].concat(), &[("decoder.c", &source)]))
}

/// A library for `System.loadLibrary("memgate_agent")` that acts for HotSpot's agent as a phone's runtime
/// does: it attaches the agent.
fn library() -> PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let folder = Project::new("android-library").folder().to_owned();
        let source = repository().join("tests/samples/android/device/library.c");
        let mut cc = Command::new("c++");
        cc.args(["-x", "c", "-shared", "-fPIC", "-o"]).arg(folder.join("libmemgate_agent.so")).arg(source);
        successful(cc.arg("-ldl"));
        folder
    };
    LIBRARY.get_or_init(build).clone()
}

fn with_app(api: u32, brings: Option<PathBuf>, native: Option<PathBuf>) -> (StandIn, Tracks) {
    let tracks = Tracks { brings, native, ..Tracks::default() };
    installed(StandIn::builder().api(api), tracks)
}

fn installed(device: Builder, tracks: Tracks) -> (StandIn, Tracks) {
    let device = device.package(Package::app(APP)).package(Package::test(TESTS, RUNNER, APP));
    (device.instrument(tracks.clone()).start(), tracks)
}

/// A folder in which `memgate run` finds the suite, with the agent for the device's ABI in [`AGENTS`].
pub(crate) fn project(name: &str, more: &str) -> Project {
    let project = Project::new(name);
    let failing = format!(
        "  failing:\n    runner: instrumentation\n    package: {TESTS}\n    arguments: {{ class: com.example.tracks.FailingTest }}\n{more}"
    );
    project.write(
        "memgate.yaml",
        format!("version: 1\nsuites:\n  tracks:\n    runner: instrumentation\n    package: {TESTS}\n{more}{failing}"),
    );
    let agents = project.folder().join(AGENTS).join("x86_64");
    fs::create_dir_all(&agents).unwrap();
    fs::copy(agent(), agents.join("libmemgate_agent.so")).unwrap();
    project
}

/// Writes a memgate.yaml whose only suite is `tracks`; `more` are keys of the suite.
pub(crate) fn configure(project: &Project, settings: &str, more: &str) {
    project.write(
        "memgate.yaml",
        format!(
            "version: 1\n{settings}suites:\n  tracks:\n    runner: instrumentation\n    package: {TESTS}\n    timeout: 300s\n{more}"
        ),
    );
}

/// A command that finds the devices of this server and the agents for them.
pub(crate) fn on_devices(project: &Project, server: &AdbServer, arguments: &[&str]) -> Command {
    let mut command = project.command(arguments);
    command.envs(server.environment()).env("MEMGATE_ANDROID_AGENT", project.folder().join(AGENTS));
    command
}

/// Types `memgate ARGUMENTS` where this adb finds this device.
pub(crate) fn run_on(adb: &Adb, device: &StandIn, project: &Project, arguments: &[&str]) -> Run {
    let server = AdbServer::start(adb);
    server.connect(device);
    project.finish(&mut on_devices(project, &server, arguments))
}

impl Tracks {
    /// JVM arguments for the agents that the device would load into a process of the app.
    fn agents(device: &StandIn, options: &Path, library: fn(PathBuf) -> PathBuf) -> Vec<String> {
        let startup = device.startup_agents(APP).into_iter();
        let set = device.agent_app(APP).map(|agent| device.host_path(&agent));
        let loaded = |library: PathBuf| format!("-agentpath:{}={}", library.display(), options.display());
        startup.chain(set).map(library).map(loaded).collect()
    }

    /// HotSpot cannot load an agent that was built for Android; ART can.
    fn library_for_art(delivered: PathBuf) -> PathBuf {
        std::env::var_os("MEMGATE_ART_AGENT").map_or(delivered, PathBuf::from)
    }

    /// A device's runtime passes the data folder, or nothing, and Android's agent finds its file there. This
    /// machine's agent needs the path.
    fn options(device: &StandIn) -> PathBuf {
        device.host_path(&StandIn::data_folder(APP)).join("code_cache/memgate.options")
    }

    fn start(&self, device: &StandIn, arguments: &[(String, String)]) -> Process {
        if let Some(dex) = &self.dex {
            return Self::start_art(device, dex, arguments);
        }
        let apks = apks().unwrap();
        let temporary = tempfile::tempdir_in(apks.project.join("target")).unwrap();
        let first = self.renamed.iter().map(|classes| format!("{}:", classes.display())).collect::<String>();
        let mut java = Command::new(apks.jdk.home.join("bin/java"));
        if let Some(folder) = &self.brings {
            java.arg(format!("-Djava.library.path={}", folder.display()));
            java.env("STANDIN_AGENT", agent()).env("STANDIN_OPTIONS", Self::options(device));
        }
        if let Some(library) = &self.native {
            java.arg(format!("-Dtracks.decoder={}", library.display()));
        }
        java.args(Self::agents(device, &Self::options(device), |delivered| delivered))
            .args(["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Drobolectric.offline=true"])
            .arg(format!("-Drobolectric.dependency.dir={}", apks.framework.display()))
            .arg(format!("-Djava.io.tmpdir={}", temporary.path().display()))
            .args(["-cp", &format!("{first}{}", apks.class_path), "standin.AppProcess"])
            .args(arguments.iter().flat_map(|(key, value)| [key, value]))
            .env_remove("LD_PRELOAD")
            .envs(self.wrapped(device))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Process { java: java.spawn().unwrap(), _temporary: temporary }
    }

    fn start_art(device: &StandIn, dex: &Path, arguments: &[(String, String)]) -> Process {
        let agents = Self::agents(device, &Self::options_for_art(device), Self::library_for_art);
        let mut art = Command::new(repository().join("tests/art/start"));
        let more = std::env::var("MEMGATE_ART_OPTIONS").unwrap_or_default();
        art.arg(dex).args(agents).args(more.split_whitespace()).arg("standin.ArtProcess");
        art.args(arguments.iter().flat_map(|(key, value)| [key, value]));
        // Stdin takes the requests of the system.
        art.env_remove("LD_PRELOAD").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Process { java: art.spawn().unwrap(), _temporary: tempfile::tempdir().unwrap() }
    }

    fn options_for_art(device: &StandIn) -> PathBuf {
        let options = Self::options(device);
        if let Ok(told) = fs::read_to_string(&options)
            && !told.contains("machine=art")
        {
            // Android's agent needs no `machine` option; the device's files have other paths here.
            let here = format!(";dex={}/", device.host_path("/").display());
            fs::write(&options, format!("{};machine=art", told.trim_end().replace(";dex=/", &here))).unwrap();
        }
        options
    }

    /// Sends a request of the system to an ART process.
    fn order(&self, pid: u32, order: &str) {
        let mut processes = self.processes.lock().unwrap();
        let orders = processes.get_mut(&pid).and_then(|process| process.java.stdin.as_mut()).unwrap();
        writeln!(orders, "{order}").unwrap();
    }

    /// The variables that `wrap.sh` sets: the agent is preloaded and gets its options; Android's agent finds
    /// its options file itself.
    fn wrapped(&self, device: &StandIn) -> Vec<(&'static str, OsString)> {
        if let Some((library, options)) = &self.malloc_debug {
            return vec![("LD_PRELOAD", library.into()), ("LIBC_DEBUG_MALLOC_OPTIONS", options.into())];
        }
        let agent = device.startup_agents(APP).into_iter().next().filter(|_| self.native.is_some());
        let Some(agent) = agent else { return Vec::new() };
        let options = fs::read_to_string(Self::options(device)).unwrap();
        vec![("LD_PRELOAD", agent.into()), ("MEMGATE_AGENT_OPTIONS", options.trim_end().into())]
    }

    fn end(&self, device: &StandIn, pid: u32) {
        device.process_ended(pid);
        // Dropped, which waits for its end, without the lock.
        let process = self.processes.lock().unwrap().remove(&pid);
        drop(process);
    }
}

impl Instrument for Tracks {
    fn instrument(&self, device: &StandIn, call: &Instrumentation, terminal: &mut Terminal) -> u8 {
        assert!(call.raw && call.wait, "without -r and -w nothing is told: {call:?}");
        let mut process = self.start(device, &call.arguments);
        let pid = process.java.id();
        let output = process.java.stdout.take().unwrap();
        let errors = process.java.stderr.take().unwrap();
        self.processes.lock().unwrap().insert(pid, process);
        device.process(APP, pid);
        // Stderr becomes logcat.
        let log = device.clone();
        let logging = std::thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                log.log(&line);
            }
        });
        let (mut complete, mut heard) = (false, true);
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // A client that has left reads nothing; the app continues.
            heard = heard && terminal.out(format!("{line}\n").as_bytes()).is_ok();
            if line.starts_with("INSTRUMENTATION_CODE: ") {
                complete = true;
                break;
            }
        }
        // The system ends the app as soon as its instrumentation ends.
        self.end(device, pid);
        if !complete && heard {
            drop(
                terminal.out(b"INSTRUMENTATION_RESULT: shortMsg=Process crashed.\nINSTRUMENTATION_CODE: 0\n"),
            );
        }
        logging.join().unwrap();
        0
    }

    fn attach_agent(&self, device: &StandIn, process: &str, path: &str, options: &str) -> Result<(), String> {
        let pid: u32 = process.parse().map_err(|_not_a_number| {
            format!("java.lang.IllegalArgumentException: Unknown process: {process}")
        })?;
        // A process that still starts refuses the agent.
        if self.asked.lock().unwrap().insert(pid) {
            return Err(format!("java.lang.IllegalArgumentException: Unknown process: {process}"));
        }
        if self.dex.is_some() {
            let options = Self::options_for_art(device);
            let library = Self::library_for_art(device.host_path(path));
            self.order(pid, &format!("attach {}={}", library.display(), options.display()));
            return Ok(());
        }
        let options = device.host_path(options);
        let mut jcmd = Command::new(apks().unwrap().jdk.home.join("bin/jcmd"));
        jcmd.args([&pid.to_string(), "JVMTI.agent_load"]).arg(device.host_path(path));
        jcmd.arg(format!("\"{}\"", options.display()));
        // As on a device, nobody waits for it or learns whether the agent was loaded.
        std::thread::spawn(move || waiting::output(&mut jcmd));
        Ok(())
    }

    fn dump_heap(
        &self,
        device: &StandIn,
        process: &str,
        _native: bool,
        collect: bool,
        path: &Path,
    ) -> Result<(), String> {
        if self.dex.is_some() {
            self.order(process.parse().unwrap(), &format!("dump {}", path.display()));
            device.wait_until("the dump is whole", |_| path.exists());
            return Ok(());
        }
        let mut jcmd = Command::new(apks().unwrap().jdk.home.join("bin/jcmd"));
        jcmd.args([process, "GC.heap_dump"]).args((!collect).then_some("-all")).arg(path);
        let dumped = waiting::output(&mut jcmd);
        if dumped.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&dumped.stdout).into_owned())
        }
    }

    fn force_stop(&self, device: &StandIn, package: &str) {
        if package == APP {
            let pids: Vec<u32> = self.processes.lock().unwrap().keys().copied().collect();
            for pid in pids {
                self.end(device, pid);
            }
        }
    }
}
