//! A stand-in device. It speaks the device's side of adb's transport over TCP, so that a real adb server
//! accepts it, and answers what memgate and adb ask of a device from its own tables. It never runs a shell of
//! this machine.
//!
//! Data flow: [`AdbServer`] (a real `adb`, private) ⇄ TCP ⇄ `transport` → `services` (shell, files, sockets)
//! → `commands` over `files` (a temporary folder), the properties and packages of [`Builder`], and
//! [`Instrument`], which runs the tests of an app. An unknown request gets the answer that a device gives. It
//! is recorded, and fails the test when the device is dropped.

mod adb;
mod commands;
mod faults;
mod files;
mod instrument;
mod line;
mod packages;
mod port;
mod processes;
mod services;
mod sync;
mod terminal;
mod transport;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

pub use adb::{Adb, AdbServer, adbs};
use faults::Faults;
pub use faults::{Fault, What, When};
use files::Files;
pub use instrument::{Instrument, Instrumentation, NoTests};
pub use packages::Package;
use port::Port;
pub use terminal::Terminal;
use transport::Transport;

/// How long a test waits for an event; long enough for a busy machine.
const LONG: Duration = Duration::from_secs(180);

/// Serves a stream to an abstract socket: reads and writes until it returns.
pub type Handler = Arc<dyn Fn(&mut dyn Stream) + Send + Sync>;

/// Both directions of a stream to a socket of the device.
pub trait Stream: io::Read + io::Write {}

impl<T: io::Read + io::Write> Stream for T {}

/// A stand-in device. Clones share the same device; when a test drops its last clone, recorded unknown
/// requests fail the test.
#[derive(Clone)]
pub struct StandIn {
    inner: Arc<Inner>,
    /// `None` in clones that the device's own threads hold.
    _owner: Option<Arc<Owner>>,
}

struct Owner(Arc<Inner>);

struct Inner {
    made: Builder,
    port: Port,
    files: Files,
    state: Mutex<State>,
    changed: Condvar,
    faults: Mutex<Faults>,
}

#[derive(Default)]
struct State {
    properties: BTreeMap<String, String>,
    processes: BTreeMap<u32, String>,
    agent_apps: BTreeMap<String, String>,
    installed: Vec<String>,
    log: Vec<String>,
    commands: Vec<String>,
    unknown: Vec<String>,
    open: Vec<String>,
    transports: Vec<Weak<Transport>>,
    unplugged: bool,
    silent: bool,
    unauthorized: bool,
    ended: bool,
}

/// Configures a stand-in device.
#[derive(Clone)]
pub struct Builder {
    api: u32,
    model: String,
    features: String,
    key: bool,
    properties: BTreeMap<String, String>,
    packages: Vec<Package>,
    handlers: BTreeMap<String, Handler>,
    answers: BTreeMap<String, (String, u8)>,
    instrument: Arc<dyn Instrument>,
}

impl Builder {
    /// Sets the API level; default 34.
    #[must_use]
    pub fn api(mut self, api: u32) -> Self {
        self.api = api;
        self
    }

    /// Sets the instruction sets; default `x86_64`.
    #[must_use]
    pub fn abi(self, list: &str) -> Self {
        self.property("ro.product.cpu.abilist", list)
    }

    /// Sets the model name.
    #[must_use]
    pub fn model(mut self, model: &str) -> Self {
        model.clone_into(&mut self.model);
        self
    }

    /// Sets the features offered to adb; default `shell_v2,cmd,stat_v2`. Never `delayed_ack`.
    #[must_use]
    pub fn features(mut self, features: &str) -> Self {
        features.clone_into(&mut self.features);
        self
    }

    /// Makes the device ask for a key; it accepts any key.
    #[must_use]
    pub fn asks_for_a_key(mut self) -> Self {
        self.key = true;
        self
    }

    /// Sets a system property.
    #[must_use]
    pub fn property(mut self, name: &str, value: &str) -> Self {
        self.properties.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Installs an app.
    #[must_use]
    pub fn package(mut self, package: Package) -> Self {
        self.packages.push(package);
        self
    }

    /// Serves an abstract socket with `handler`, instead of this machine's socket of that name.
    #[must_use]
    pub fn abstract_handler(
        mut self,
        name: &str,
        handler: impl Fn(&mut dyn Stream) + Send + Sync + 'static,
    ) -> Self {
        self.handlers.insert(name.to_owned(), Arc::new(handler));
        self
    }

    /// Sets output and exit status for exactly this command line.
    #[must_use]
    pub fn answer(mut self, command: &str, printed: &str, status: u8) -> Self {
        self.answers.insert(command.to_owned(), (printed.to_owned(), status));
        self
    }

    /// Sets the implementation that runs the tests of apps.
    #[must_use]
    pub fn instrument(mut self, instrument: impl Instrument) -> Self {
        self.instrument = Arc::new(instrument);
        self
    }

    /// Starts the device.
    #[must_use]
    pub fn start(self) -> StandIn {
        let files = Files::new(&self.packages);
        let mut properties = BTreeMap::from(
            [
                ("ro.build.version.sdk", self.api.to_string().as_str()),
                ("ro.build.version.release", &self.api.saturating_sub(20).to_string()),
                ("ro.build.type", "user"),
                ("ro.debuggable", "0"),
                ("ro.product.cpu.abilist", "x86_64"),
                ("ro.product.model", &self.model),
                ("sys.boot_completed", "1"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        properties.extend(self.properties.clone());
        let inner = Arc::new(Inner {
            port: Port::reserve(),
            made: Self { properties: properties.clone(), ..self },
            files,
            state: Mutex::new(State { properties, ..State::default() }),
            changed: Condvar::new(),
            faults: Mutex::default(),
        });
        StandIn { inner: Arc::clone(&inner), _owner: None }.listen();
        StandIn { _owner: Some(Arc::new(Owner(Arc::clone(&inner)))), inner }
    }
}

impl StandIn {
    /// A builder for a device of API level 34 without apps.
    #[must_use]
    pub fn builder() -> Builder {
        Builder {
            api: 34,
            model: "Stand In".to_owned(),
            features: "shell_v2,cmd,stat_v2".to_owned(),
            key: false,
            properties: BTreeMap::new(),
            packages: Vec::new(),
            handlers: BTreeMap::new(),
            answers: BTreeMap::new(),
            instrument: Arc::new(NoTests),
        }
    }

    /// The serial by which adb names it once connected.
    #[must_use]
    pub fn serial(&self) -> String {
        self.inner.port.address().to_string()
    }

    /// The path on this machine of a path of the device.
    #[must_use]
    pub fn host_path(&self, path: &str) -> PathBuf {
        self.inner.files.host_path(path)
    }

    /// The data folder of an app.
    #[must_use]
    pub fn data_folder(package: &str) -> String {
        format!("/data/user/0/{package}")
    }

    /// Current value of a property; `None` if empty.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<String> {
        self.state().properties.get(name).cloned()
    }

    /// Registers a process of the device, which is really a process of this machine; `name` is that of its
    /// app.
    pub fn process(&self, name: &str, pid: u32) {
        self.state().processes.insert(pid, name.to_owned());
        self.inner.changed.notify_all();
    }

    /// Removes a process that has ended.
    pub fn process_ended(&self, pid: u32) {
        self.state().processes.remove(&pid);
        self.inner.changed.notify_all();
    }

    /// Its processes.
    #[must_use]
    pub fn processes(&self) -> BTreeMap<u32, String> {
        self.state().processes.clone()
    }

    /// Writes a line into its log.
    pub fn log(&self, line: &str) {
        self.state().log.push(line.to_owned());
    }

    /// The agent that `am set-agent-app` left for an app.
    #[must_use]
    pub fn agent_app(&self, package: &str) -> Option<String> {
        self.state().agent_apps.get(package).cloned()
    }

    /// The agents an app starts with (`code_cache/startup_agents`), as files of this machine.
    #[must_use]
    pub fn startup_agents(&self, package: &str) -> Vec<PathBuf> {
        let folder = self.host_path(&format!("{}/code_cache/startup_agents", Self::data_folder(package)));
        let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
        let mut agents: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
        agents.sort();
        agents
    }

    /// Its API level.
    #[must_use]
    pub fn api(&self) -> u32 {
        self.inner.made.api
    }

    /// An installed app.
    #[must_use]
    pub fn package(&self, name: &str) -> Option<&Package> {
        self.inner.made.packages.iter().find(|package| package.name == name)
    }

    /// All command lines received, in order.
    #[must_use]
    pub fn commands(&self) -> Vec<String> {
        self.state().commands.clone()
    }

    /// Installed apps: the words of the command and the received bytes.
    #[must_use]
    pub fn installed(&self) -> Vec<String> {
        self.state().installed.clone()
    }

    /// Takes the recorded unknown requests; those taken no longer fail the test.
    #[must_use]
    pub fn take_unknown(&self) -> Vec<String> {
        std::mem::take(&mut self.state().unknown)
    }

    /// What differs from the start: files, properties, agents of apps, processes, open streams.
    #[must_use]
    pub fn leftovers(&self) -> Vec<String> {
        let mut left = self.inner.files.changes();
        let state = self.state();
        let before = &self.inner.made.properties;
        let changed = state.properties.iter().filter(|(name, value)| before.get(*name) != Some(value));
        left.extend(changed.map(|(name, value)| format!("property {name}={value}")));
        let lost = before.keys().filter(|name| !state.properties.contains_key(*name));
        left.extend(lost.map(|name| format!("property {name} is gone")));
        left.extend(state.agent_apps.iter().map(|(package, agent)| format!("agent app {package}: {agent}")));
        left.extend(state.processes.iter().map(|(pid, name)| format!("process {pid} {name}")));
        left.extend(state.open.iter().map(|service| format!("stream {service}")));
        left
    }

    /// Waits until no stream is open: a service whose stream was cut off ends a moment later.
    #[track_caller]
    pub fn wait_until_idle(&self) {
        self.wait_until("no stream is open", |device| device.state().open.is_empty());
    }

    /// Waits until nothing is left over: a service that was cut off ends a moment later.
    #[track_caller]
    pub fn assert_clean(&self) {
        let until = Instant::now() + LONG;
        loop {
            let left = self.leftovers();
            let now = Instant::now();
            if left.is_empty() {
                return;
            }
            assert!(now < until, "left on the device: {left:#?}");
            self.wait(Duration::from_millis(100));
        }
    }

    /// Waits until `holds`.
    ///
    /// # Panics
    /// If `holds` stays false.
    #[track_caller]
    pub fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let until = Instant::now() + LONG;
        while !holds(self) {
            assert!(Instant::now() < until, "waited in vain: {what}");
            self.wait(Duration::from_millis(100));
        }
    }

    /// Waits for a change, at most this long: changes of files send no notification.
    fn wait(&self, most: Duration) {
        drop(self.inner.changed.wait_timeout(self.state(), most).unwrap_or_else(PoisonError::into_inner));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn not_known(&self, what: &str) {
        self.state().unknown.push(what.to_owned());
    }

    fn opened(&self, service: &str) {
        self.state().open.push(service.to_owned());
        self.inner.changed.notify_all();
    }

    fn closed(&self, service: &str) {
        let mut state = self.state();
        if let Some(at) = state.open.iter().position(|open| open == service) {
            state.open.remove(at);
        }
        drop(state);
        self.inner.changed.notify_all();
    }

    fn banner(&self) -> String {
        let model = &self.inner.made.model;
        let features = &self.inner.made.features;
        format!(
            "device::ro.product.name=memgate;ro.product.model={model};ro.product.device=standin;features={features}"
        )
    }

    fn root(&self) -> &Path {
        self.inner.files.root()
    }

    /// Starts to listen; connections are accepted once this returns.
    fn listen(&self) {
        let device = Self { inner: Arc::clone(&self.inner), _owner: None };
        self.inner.port.open(move |stream| {
            let device = device.clone();
            // It ends with an error when the server hangs up or sends garbage; nobody needs to know.
            thread::spawn(move || drop(transport::serve(&device, stream, services::serve)));
        });
    }

    fn adopt(&self, transport: &Arc<Transport>) {
        let mut state = self.state();
        state.transports.push(Arc::downgrade(transport));
        let gone = state.unplugged || state.ended;
        drop(state);
        if gone {
            transport.close();
        }
    }

    fn disown(&self, transport: &Arc<Transport>) {
        let gone = Arc::downgrade(transport);
        self.state().transports.retain(|other| !other.ptr_eq(&gone));
        self.inner.changed.notify_all();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let device = StandIn { inner: Arc::clone(&self.0), _owner: None };
        device.state().ended = true;
        device.inner.port.close();
        device.hang_up();
        // Its threads may outlive the test program, but its folder must not.
        drop(std::fs::remove_dir_all(device.root()));
        let unknown = device.take_unknown();
        if !thread::panicking() {
            assert!(unknown.is_empty(), "the stand-in device does not know: {unknown:#?}");
        }
    }
}
