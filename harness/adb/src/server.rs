//! The adb server: whether it runs, its devices, and the chosen device.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::AdbError;
use super::address::Address;
use super::listing::{self, Listed, State};
use super::program::{self, Program};
use super::wire::{Broken, Connection, start_of};

/// Limit for answers that the server gives without asking a device. After its start it searches for USB devices for up
/// to 3 s.
pub(super) const SERVER_LIMIT: Duration = Duration::from_secs(10);
/// A disconnected device disappears from the list within this time; otherwise the disconnection is repeated.
const FORGETS_WITHIN: Duration = Duration::from_secs(3);
/// While connecting, the server waits for the device.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);

/// An adb server, running or not. Every request has its own connection, so requests may run at the same time.
#[derive(Debug, Clone)]
pub struct Server {
    address: Arc<Address>,
    program: Arc<Option<PathBuf>>,
}

impl Server {
    /// The server at this address; this program starts it if nothing listens.
    #[must_use]
    pub fn new(address: Address, program: Option<PathBuf>) -> Self {
        Self { address: Arc::new(address), program: Arc::new(program) }
    }

    /// The server that `adb` itself would use here.
    ///
    /// # Errors
    /// `ADB_SERVER_SOCKET` or a similar variable is not valid.
    pub fn from_environment() -> Result<Self, AdbError> {
        Ok(Self::new(
            Address::of(|name| std::env::var_os(name))?,
            program::find(|name| std::env::var_os(name)),
        ))
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The program that starts it and installs.
    #[must_use]
    pub fn program(&self) -> Option<&PathBuf> {
        self.program.as_ref().as_ref()
    }

    /// Its version; starts a server if nothing listens.
    ///
    /// # Errors
    /// There is no server and none can be started, or another program listens there.
    pub async fn ensure(&self) -> Result<u32, AdbError> {
        match self.version().await {
            Err(AdbError::NoServer { .. }) if self.address.is_here() => {
                self.needed_program("start the adb server")?.start_server(&self.address).await?;
                self.version().await
            }
            answer => answer,
        }
    }

    /// Its version; starts nothing.
    ///
    /// # Errors
    /// There is no server, or another program listens there.
    pub async fn version(&self) -> Result<u32, AdbError> {
        let request = "host:version";
        let text = self.text(request, SERVER_LIMIT).await?;
        let garbage = |_why| Broken::Garbage(format!("`{}` is no version", start_of(&text)));
        u32::from_str_radix(&text, 16).map_err(|why| self.broken(request, garbage(why)))
    }

    /// The connected devices, with details.
    ///
    /// # Errors
    /// The server cannot be asked.
    pub async fn devices(&self) -> Result<Vec<Listed>, AdbError> {
        let mut devices = self.states().await?;
        if !devices.is_empty() {
            listing::add_details(&mut devices, &self.text("host:devices-l", SERVER_LIMIT).await?);
        }
        Ok(devices)
    }

    pub(super) async fn states(&self) -> Result<Vec<Listed>, AdbError> {
        let request = "host:devices";
        let text = self.text(request, SERVER_LIMIT).await?;
        listing::read(&text).map_err(|broken| self.broken(request, broken))
    }

    /// Connects a network device. A device that is connected but offline is connected again.
    ///
    /// # Errors
    /// It cannot be reached, or it refuses.
    pub async fn connect(&self, host_port: &str) -> Result<(), AdbError> {
        let request = format!("host:connect:{host_port}");
        let mut said = self.text(&request, CONNECT_LIMIT).await?;
        if said.starts_with("already connected") && self.state_of(host_port).await? != Some(State::Device) {
            match self.disconnect(host_port).await {
                // Refused: the server has dropped the device meanwhile.
                Ok(()) | Err(AdbError::Refused { .. }) => {}
                Err(why) => return Err(why),
            }
            said = self.text(&request, CONNECT_LIMIT).await?;
        }
        // The server grants the request even if the device does not answer. Only the text shows whether the device did.
        if said.starts_with("connected to") || said.starts_with("already connected to") {
            return Ok(());
        }
        Err(AdbError::Refused { during: format!("connect to {host_port}"), message: said.trim().to_owned() })
    }

    /// Disconnects a network device. The server answers at once but disconnects a moment later. Until then it reports
    /// the device as connected, so this call waits for the disconnection.
    ///
    /// # Errors
    /// The server does not know the device.
    pub async fn disconnect(&self, host_port: &str) -> Result<(), AdbError> {
        let request = format!("host:disconnect:{host_port}");
        self.text(&request, SERVER_LIMIT).await?;
        let forgotten = async {
            loop {
                if let Ok(unlisted) = timeout(FORGETS_WITHIN, self.until_unlisted(host_port)).await {
                    return unlisted;
                }
                // If another client connects it at that moment, the server loses our request.
                match self.text(&request, SERVER_LIMIT).await {
                    Ok(_) | Err(AdbError::Refused { .. }) => {}
                    Err(why) => return Err(why),
                }
            }
        };
        self.within(&request, CONNECT_LIMIT, forgotten).await
    }

    async fn until_unlisted(&self, serial: &str) -> Result<(), AdbError> {
        let mut tracker = self.track().await?;
        while tracker.next().await?.iter().any(|device| device.serial == serial) {}
        Ok(())
    }

    /// Ends the server. Call it only for a server that no other client uses.
    ///
    /// # Errors
    /// The server cannot be asked.
    pub async fn stop(&self) -> Result<(), AdbError> {
        let request = "host:kill";
        self.within(request, SERVER_LIMIT, self.open(request)).await.map(drop)
    }

    pub(super) async fn state_of(&self, serial: &str) -> Result<Option<State>, AdbError> {
        Ok(self.states().await?.into_iter().find(|device| device.serial == serial).map(|device| device.state))
    }

    /// The program, if it would not kill this server.
    pub(super) async fn peaceful_program(&self, what: &'static str) -> Result<Program, AdbError> {
        let program = self.needed_program(what)?;
        let (server_version, program_version) = (self.ensure().await?, program.version().await?);
        if server_version == program_version {
            return Ok(program);
        }
        Err(AdbError::ServerVersion {
            address: self.address.to_string(),
            server_version,
            program: program.path().to_owned(),
            program_version,
        })
    }

    fn needed_program(&self, what: &'static str) -> Result<Program, AdbError> {
        self.program().cloned().map(Program::new).ok_or(AdbError::NoProgram { what })
    }

    /// A connection on which the server has granted `request`.
    pub(super) async fn open(&self, request: &str) -> Result<Connection, AdbError> {
        let source = |source| AdbError::NoServer { address: self.address.to_string(), source };
        let mut connection = Connection::over(self.address.connect().await.map_err(source)?);
        connection.ask(request).await.map_err(|broken| self.broken(request, broken))?;
        Ok(connection)
    }

    pub(super) async fn text(&self, request: &str, limit: Duration) -> Result<String, AdbError> {
        let answer = async {
            let mut connection = self.open(request).await?;
            connection.text().await.map_err(|broken| self.broken(request, broken))
        };
        self.within(request, limit, answer).await
    }

    pub(super) async fn within<T>(
        &self,
        request: &str,
        limit: Duration,
        answer: impl Future<Output = Result<T, AdbError>>,
    ) -> Result<T, AdbError> {
        let late = |_| AdbError::Timeout { during: self.during(request), limit };
        timeout(limit, answer).await.map_err(late)?
    }

    pub(super) fn broken(&self, request: &str, broken: Broken) -> AdbError {
        let during = self.during(request);
        match broken {
            Broken::Closed => {
                AdbError::ServerLost { address: self.address.to_string(), request: request.to_owned() }
            }
            Broken::Fail(message) => AdbError::Refused { during, message },
            Broken::Garbage(what) => AdbError::Garbage { during, what },
        }
    }

    fn during(&self, request: &str) -> String {
        format!("ask the adb server at {} for `{request}`", self.address)
    }
}
