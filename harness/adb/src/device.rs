//! One device: opens its services, waits for it, and reports its state if it does not answer.
//!
//! A request that has not begun waits until an offline device is back, and is then tried again. Once a service runs,
//! its loss is an error, and the caller decides whether to begin again.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use super::AdbError;
use super::listing::{Listed, State};
use super::program::said;
use super::server::Server;
use super::wire::{Broken, Connection, unsayable};

/// Limits for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Its total time, from the moment the device has granted it.
    pub time: Duration,
    /// Maximum size of its result.
    pub bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { time: Duration::from_secs(30), bytes: 16 << 20 }
    }
}

/// A device that the server knows. Cheap to clone; requests may run at once.
#[derive(Debug, Clone)]
pub struct Device {
    server: Server,
    serial: Arc<str>,
    features: Arc<[String]>,
    bounds: Bounds,
    patience: Duration,
}

/// How long to wait for a device by default: adb reconnects to a lost one within about 10 s.
const PATIENCE: Duration = Duration::from_secs(30);
/// The device accepts a known key within this time. Until then the device is reported as unauthorized.
const AUTHORIZING: Duration = Duration::from_secs(3);
/// How many times a device may be offline when asked although the server says that it is ready.
const TRIES: u32 = 3;
/// Limit for asking the state of a device: the server knows it without asking the device.
const STATE_LIMIT: Duration = Duration::from_secs(10);

impl Server {
    /// The device with this serial; without a serial, the only device. Waits for an offline device.
    ///
    /// # Errors
    /// There is no device, the choice is not clear, or the device cannot be used.
    pub async fn choose(&self, wanted: Option<&str>) -> Result<Device, AdbError> {
        let devices = self.states().await?;
        let serial = match (wanted, devices.as_slice()) {
            (Some(wanted), _) if devices.iter().any(|device| device.serial == wanted) => wanted.to_owned(),
            (_, []) if wanted.is_none() => {
                return Err(AdbError::NoDevices { address: self.address().to_string() });
            }
            (Some(wanted), _) => {
                return Err(AdbError::UnknownSerial { serial: wanted.to_owned(), known: devices });
            }
            (None, [only]) => only.serial.clone(),
            (None, _) => return Err(AdbError::ManyDevices(self.devices().await?)),
        };
        Device::ready(self.clone(), serial).await
    }

    /// Every device that can be used. If there is none, the first that is connected is waited for.
    ///
    /// # Errors
    /// There is no device, or none can be used.
    pub async fn all(&self) -> Result<Vec<Device>, AdbError> {
        let mut listed = self.states().await?;
        let is_ready = |device: &Listed| device.state == State::Device;
        match listed.iter().any(is_ready) {
            true => listed.retain(is_ready),
            false => listed.truncate(1),
        }
        if listed.is_empty() {
            return Err(AdbError::NoDevices { address: self.address().to_string() });
        }
        let mut ready = Vec::new();
        for device in listed {
            ready.push(Device::ready(self.clone(), device.serial).await?);
        }
        Ok(ready)
    }
}

impl Device {
    /// A device that answers; waits for an offline device.
    async fn ready(server: Server, serial: String) -> Result<Self, AdbError> {
        let mut device = Self {
            server,
            serial: serial.into(),
            features: Arc::new([]),
            bounds: Bounds::default(),
            patience: PATIENCE,
        };
        device.wait_for_device(PATIENCE).await?;
        let request = format!("host-serial:{}:features", device.serial);
        let features = device.server.text(&request, PATIENCE).await?;
        device.features = features.split(',').map(str::to_owned).collect();
        Ok(device)
    }

    /// The name by which adb knows it.
    #[must_use]
    pub fn serial(&self) -> &str {
        &self.serial
    }

    /// The server that knows it.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Uses other bounds for requests that give none.
    #[must_use]
    pub fn with_bounds(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    /// Sets how long to wait for an offline device before a request begins.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    pub(super) fn bounds(&self) -> Bounds {
        self.bounds
    }

    pub(super) fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|f| f == feature)
    }

    /// Its state in the server's list; `None`: the server does not know it (any more).
    ///
    /// # Errors
    /// The server cannot be asked.
    pub async fn state(&self) -> Result<Option<State>, AdbError> {
        self.server.state_of(&self.serial).await
    }

    /// Waits until it answers. If a user must first authorize this machine or boot the device, it returns an error at
    /// once.
    ///
    /// # Errors
    /// The device does not answer within `limit`.
    pub async fn wait_for_device(&self, limit: Duration) -> Result<(), AdbError> {
        let mut until = Instant::now() + limit;
        let mut tracker = self.server.track().await?;
        let mut why = self.unknown(Vec::new());
        while let Ok(devices) = timeout_at(until, tracker.next()).await {
            let devices = devices?;
            let state = devices
                .iter()
                .find(|device| *device.serial == *self.serial)
                .map(|device| device.state.clone());
            why = match state {
                Some(State::Device) => return Ok(()),
                Some(state) => self.useless(state, "reach it"),
                None => self.unknown(devices),
            };
            match &why {
                AdbError::Unauthorized { .. } => until = until.min(Instant::now() + AUTHORIZING),
                why if why.device_is_gone() => {}
                _ => break,
            }
        }
        Err(why)
    }

    /// Opens a service of the device. `during` names it in errors.
    pub(super) async fn open(&self, service: &str, during: &str) -> Result<Connection, AdbError> {
        if let Some(why) = unsayable(service) {
            return Err(AdbError::Unsayable { start: service.chars().take(40).collect(), why });
        }
        let until = Instant::now() + self.patience;
        let mut tries = 0;
        loop {
            let opened = self.within(self.bounds.time, during, self.try_open(service, during)).await;
            tries += 1;
            match opened {
                Err(why) if why.device_is_gone() && tries < TRIES => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(why);
                    }
                    self.wait_for_device(left).await?;
                }
                opened => return opened,
            }
        }
    }

    async fn try_open(&self, service: &str, during: &str) -> Result<Connection, AdbError> {
        let transport = format!("host:transport:{}", self.serial);
        let mut connection = match self.server.open(&transport).await {
            Err(AdbError::Refused { message, .. }) => return Err(self.refused(message, during).await),
            opened => opened?,
        };
        match connection.ask(service).await {
            Ok(()) => Ok(connection),
            Err(broken) => Err(self.broken(broken, during).await),
        }
    }

    /// The error for an exchange that failed.
    pub(super) async fn broken(&self, broken: Broken, during: &str) -> AdbError {
        let (serial, during) = (self.serial.to_string(), during.to_owned());
        match broken {
            Broken::Closed => AdbError::Lost { serial, during, state: self.state_now().await },
            Broken::Fail(message) => self.refused(message, &during).await,
            Broken::Garbage(what) => AdbError::Garbage { during, what },
        }
    }

    /// The server sends the same word if a device is gone and if it does not have the service.
    async fn refused(&self, message: String, during: &str) -> AdbError {
        let started = |text| message.starts_with(text);
        if started("device offline") {
            return self.useless(State::Offline, during);
        }
        if started("device unauthorized") {
            return self.useless(State::Unauthorized, during);
        }
        if started("device still") {
            return self.useless(State::Connecting, during);
        }
        let missing = message.starts_with("device '") && message.ends_with("not found");
        match timeout(STATE_LIMIT, self.state()).await {
            // The device is back already.
            Ok(Ok(Some(State::Device))) if missing => self.useless(State::Connecting, during),
            Ok(Ok(Some(State::Device))) | Ok(Err(_)) | Err(_) => {
                AdbError::Refused { during: format!("{during} on {}", self.serial), message }
            }
            Ok(Ok(Some(state))) => self.useless(state, during),
            Ok(Ok(None)) => self.unknown(self.server.devices().await.unwrap_or_default()),
        }
    }

    /// The device's state, if it can be found out quickly.
    async fn state_now(&self) -> Option<State> {
        timeout(STATE_LIMIT, self.state()).await.ok()?.ok()?
    }

    fn useless(&self, state: State, during: &str) -> AdbError {
        let (serial, during) = (self.serial.to_string(), during.to_owned());
        match state {
            State::Device | State::Offline | State::Connecting | State::Authorizing => {
                AdbError::Offline { serial, during, state }
            }
            State::Unauthorized => AdbError::Unauthorized { serial, during },
            state => AdbError::Unusable { serial, during, state },
        }
    }

    fn unknown(&self, known: Vec<Listed>) -> AdbError {
        AdbError::UnknownSerial { serial: self.serial.to_string(), known }
    }

    pub(super) async fn within<T>(
        &self,
        limit: Duration,
        during: &str,
        answer: impl Future<Output = Result<T, AdbError>>,
    ) -> Result<T, AdbError> {
        let late = |_| AdbError::Timeout { during: format!("{during} on {}", self.serial), limit };
        timeout(limit, answer).await.map_err(late)?
    }

    /// Installs one app from its APK, or from several parts. `options` are those of `adb install`.
    ///
    /// # Errors
    /// There is no `adb`, it would kill the running server, or it cannot install.
    pub async fn install(&self, apks: &[&Path], options: &[&str], limit: Duration) -> Result<(), AdbError> {
        let program = self.server.peaceful_program("install an app").await?;
        let mut arguments =
            vec!["-L".into(), self.server.address().for_program().into(), "-s".into(), self.serial().into()];
        arguments.push(if apks.len() > 1 {
            "install-multiple".into()
        } else {
            std::ffi::OsString::from("install")
        });
        arguments.extend(options.iter().map(Into::into));
        for apk in apks {
            // Absolute, so that a path is not taken for an option.
            let local = |source| AdbError::Local { action: "find", path: apk.to_path_buf(), source };
            arguments.push(std::path::absolute(apk).map_err(local)?.into());
        }
        let ended = program.run(arguments, limit).await?;
        if ended.exit.is_success() && String::from_utf8_lossy(&ended.stdout).contains("Success") {
            return Ok(());
        }
        Err(AdbError::Install { serial: self.serial.to_string(), said: said(&ended) })
    }
}
