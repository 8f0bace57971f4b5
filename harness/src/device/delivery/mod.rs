//! Delivers the agent into an app on a device, and removes it again.
//!
//! Data flow: the library for the app's ABI → `/data/local/tmp` (where the shell may write) → through `run-as` into the
//! app's own `code_cache` (an app can load it only from there) → one of the [`Way`]s in which the runtime loads it at
//! the app's start. A startup agent also gets a dex file with the listener, and adds it to apps whose tests have none.
//! The agent's options are a file in `code_cache` that is written again for each run. Every change is noted before it
//! is made, and so is the start of the app; [`Delivery::remove`] undoes exactly these, however the run ends. If the
//! app's data is cleared between tests, everything is put back afterwards ([`Delivery::clear_data`]).
//!
//! None of this proves that the agent runs: `am` and the file system never report it. Only the handshake on the agent's
//! socket does.

pub mod dex;
mod facts;
mod way;

use std::path::{Path, PathBuf};
use std::time::Duration;

use memgate_adb::{AdbError, Bounds, Device, command, run_as};
use memgate_wire::options::Options;

use crate::exit::chain;

pub use facts::{App, AppError, app, current_user};
pub use way::{Way, ways};

/// The shell can write here.
pub const STAGING: &str = "/data/local/tmp";
/// Relative to the app's data folder. All files in the second folder are loaded at every start of the app: it must
/// contain only the library.
const CODE_CACHE: &str = "code_cache";
const STARTUP_AGENTS: &str = "code_cache/startup_agents";
const LIBRARY: &str = "libmemgate_agent.so";
/// The agent itself looks for this file.
const OPTIONS: &str = "code_cache/memgate.options";
/// For an app whose tests contain no listener.
const LISTENER: &str = "code_cache/memgate-listener.dex";
/// Limits of one command to the device.
const ORDER: Bounds = Bounds { time: Duration::from_secs(20), bytes: 1 << 20 };

/// A change on a device, to be undone.
#[derive(Debug, PartialEq)]
enum Trace {
    /// A file or folder of ours, relative to the app's data folder.
    OfApp { path: &'static str, folder: bool },
    /// A file in the staging folder.
    Staged(String),
    /// `am set-agent-app` was called.
    AgentApp,
    /// The app was started, and its end was not seen.
    App,
}

/// The agent in one app on one device.
#[derive(Debug)]
pub struct Delivery {
    device: Device,
    app: App,
    way: Way,
    /// Part of the file names in the staging folder, which others use too.
    nonce: String,
    /// The delivered library, to deliver it again; `None`: the test APK contains it.
    library: Option<PathBuf>,
    /// A dex file with the listener, if there is one to deliver.
    listener: Option<PathBuf>,
    traces: Vec<Trace>,
}

impl Delivery {
    /// Changes nothing yet: [`Delivery::remove`] undoes what is done from here on.
    #[must_use]
    pub fn new(device: Device, app: App, way: Way, nonce: String) -> Self {
        Self {
            device: device.with_bounds(ORDER),
            app,
            way,
            nonce,
            library: None,
            listener: None,
            traces: Vec::new(),
        }
    }

    /// Part of the names of files in the staging folder.
    #[must_use]
    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    /// Uses this way from now on.
    pub const fn go(&mut self, way: Way) {
        self.way = way;
    }

    /// Also delivers this dex file if a startup agent can add it to the app.
    pub fn with_listener(&mut self, dex: PathBuf) {
        self.listener = Some(dex);
    }

    /// Path of the listener's dex file on the device.
    #[must_use]
    pub fn listener(&self) -> Option<String> {
        let brought = self.listener.is_some() && self.way == Way::StartupAgents;
        brought.then(|| format!("{}/{LISTENER}", self.app.data_folder()))
    }

    /// The current way.
    #[must_use]
    pub const fn way(&self) -> Way {
        self.way
    }

    /// The app.
    #[must_use]
    pub const fn app(&self) -> &App {
        &self.app
    }

    /// Delivers the library; `None`: the test APK contains it.
    ///
    /// # Errors
    /// When the device refuses, or is lost.
    pub async fn bring(&mut self, library: Option<&Path>) -> Result<(), AdbError> {
        self.library = library.map(Path::to_owned);
        // The system creates this folder when the app starts, and `pm clear` removes it. The options need it too.
        self.as_app(&["mkdir", "-p", CODE_CACHE]).await?;
        let Some(library) = library else { return Ok(()) };
        let to = match self.way {
            Way::StartupAgents => {
                if !self.is_there(STARTUP_AGENTS).await? {
                    self.trace(Trace::OfApp { path: STARTUP_AGENTS, folder: true });
                    self.as_app(&["mkdir", "-p", STARTUP_AGENTS]).await?;
                }
                "code_cache/startup_agents/libmemgate_agent.so"
            }
            Way::AgentApp | Way::Attach | Way::Packaged => "code_cache/libmemgate_agent.so",
        };
        self.put(library, "so", to, "700").await?;
        if let Some(dex) = self.listener.clone().filter(|_| self.way == Way::StartupAgents) {
            // Android 14 loads only files that are not writable; such a file cannot be overwritten either.
            self.as_app(&["rm", "-f", LISTENER]).await?;
            self.put(&dex, "dex", LISTENER, "400").await?;
        }
        if self.way == Way::AgentApp {
            self.trace(Trace::AgentApp);
            let path = self.library_path();
            self.order(&command(&["am", "set-agent-app", &self.app.package, &path])).await?;
        }
        Ok(())
    }

    /// Copies a file into the app's own folders.
    async fn put(&mut self, file: &Path, kind: &str, to: &'static str, mode: &str) -> Result<(), AdbError> {
        let staged = format!("{STAGING}/memgate-{}.{kind}", self.nonce);
        self.trace(Trace::Staged(staged.clone()));
        self.device.push(file, &staged, 0o644).await?;
        self.trace(Trace::OfApp { path: to, folder: false });
        self.as_app(&["cp", &staged, to]).await?;
        self.as_app(&["chmod", mode, to]).await?;
        self.unstage(&staged).await
    }

    /// Writes the options of the runs that start from now on.
    ///
    /// # Errors
    /// When the device refuses, or is lost.
    pub async fn tell(&mut self, options: &Options) -> Result<(), AdbError> {
        let staged = format!("{STAGING}/memgate-{}.options", self.nonce);
        self.trace(Trace::Staged(staged.clone()));
        let text = format!("{options}\n");
        self.device.push_bytes(text.as_bytes(), &staged, 0o644).await?;
        self.trace(Trace::OfApp { path: OPTIONS, folder: false });
        self.as_app(&["cp", &staged, OPTIONS]).await?;
        self.as_app(&["chmod", "600", OPTIONS]).await?;
        self.unstage(&staged).await
    }

    /// Lets Android clear the data of the app and of `tests`, its test package, as the Test Orchestrator does before
    /// each test. Then delivers the library again, because it was in that data. The options are written again for each
    /// run anyway. Run-time permissions of the app are lost too: nothing of ours needs them.
    ///
    /// # Errors
    /// When the device refuses, or is lost.
    pub async fn clear_data(&mut self, tests: &str) -> Result<(), AdbError> {
        let user = self.app.user.map(|user| user.to_string());
        for package in [self.app.package.as_str(), tests] {
            let user = user.iter().flat_map(|user| ["--user", user.as_str()]);
            let words: Vec<&str> = ["pm", "clear"].into_iter().chain(user).chain([package]).collect();
            self.order(&command(&words)).await?;
        }
        self.bring(self.library.clone().as_deref()).await
    }

    /// Notes a file of ours that may appear in the staging folder.
    pub fn note(&mut self, staged: String) {
        self.trace(Trace::Staged(staged));
    }

    /// The app is about to be started.
    pub fn starts(&mut self) {
        self.trace(Trace::App);
    }

    /// The app has ended.
    pub fn ended(&mut self) {
        self.traces.retain(|trace| *trace != Trace::App);
    }

    fn trace(&mut self, trace: Trace) {
        match trace {
            known if self.traces.contains(&known) => {}
            // Removed last, when it is empty.
            folder @ Trace::OfApp { folder: true, .. } => self.traces.insert(0, folder),
            other => self.traces.push(other),
        }
    }

    /// The argument of `am attach-agent` for the running app, if this is the way. `am` never says whether it loaded the
    /// agent.
    #[must_use]
    pub fn attached(&self) -> Option<String> {
        let agent = format!("{}={}/{OPTIONS}", self.library_path(), self.app.data_folder());
        (self.way == Way::Attach).then_some(agent)
    }

    /// Undoes all changes. Failures are returned, each with its reason; a device that is gone is not asked again for
    /// each change.
    pub async fn remove(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        let mut gone: Option<String> = None;
        for trace in std::mem::take(&mut self.traces).into_iter().rev() {
            let stays = self.stays(&trace);
            if let Some(why) = &gone {
                left.push(format!("{stays}: {why}"));
                continue;
            }
            if let Err(why) = self.undo(&trace).await {
                let text = chain(&why);
                left.push(format!("{stays}: failed to {text}"));
                if why.device_is_gone()
                    || matches!(why, AdbError::Timeout { .. } | AdbError::Unauthorized { .. })
                {
                    gone = Some("the device did not answer".to_owned());
                }
            }
        }
        left
    }

    /// The message that this change could not be undone.
    fn stays(&self, trace: &Trace) -> String {
        match trace {
            Trace::OfApp { path, .. } => format!("{}/{path} was not removed", self.app.data_folder()),
            Trace::Staged(path) => format!("{path} was not removed"),
            Trace::AgentApp => format!("what `am set-agent-app {}` set was not removed", self.app.package),
            Trace::App => format!("the app {} was not ended", self.app.package),
        }
    }

    async fn undo(&self, trace: &Trace) -> Result<(), AdbError> {
        match trace {
            Trace::OfApp { path, folder: false } => self.as_app(&["rm", "-f", path]).await,
            Trace::OfApp { path, folder: true } => {
                // If somebody else's file was added to it, the folder stays.
                let emptied = self.device.shell(&self.command_of_app(&["rmdir", path])).await?;
                drop(emptied);
                Ok(())
            }
            Trace::Staged(path) => self.order(&command(&["rm", "-f", path])).await,
            Trace::AgentApp => self.order(&command(&["am", "set-agent-app", &self.app.package])).await,
            Trace::App => self.order(&command(&["am", "force-stop", &self.app.package])).await,
        }
    }

    async fn unstage(&mut self, staged: &str) -> Result<(), AdbError> {
        self.order(&command(&["rm", "-f", staged])).await?;
        self.traces.retain(|trace| !matches!(trace, Trace::Staged(path) if path == staged));
        Ok(())
    }

    async fn is_there(&self, path: &str) -> Result<bool, AdbError> {
        let told = self.device.shell(&self.command_of_app(&["test", "-d", path])).await?;
        Ok(told.exit == 0)
    }

    fn library_path(&self) -> String {
        format!("{}/{CODE_CACHE}/{LIBRARY}", self.app.data_folder())
    }

    fn command_of_app(&self, words: &[&str]) -> String {
        run_as(&self.app.package, self.app.user, words)
    }

    async fn as_app(&self, words: &[&str]) -> Result<(), AdbError> {
        self.order(&self.command_of_app(words)).await
    }

    async fn order(&self, command: &str) -> Result<(), AdbError> {
        self.device.shell(command).await?.success(command).map(drop)
    }
}
