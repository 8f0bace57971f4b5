//! Every change among the devices that a server knows.

use super::AdbError;
use super::listing::{Listed, read};
use super::server::{SERVER_LIMIT, Server};
use super::wire::{Connection, Frame};

/// Lists the devices now and whenever one changes.
const TRACK: &str = "host:track-devices";

/// Hears of every change among the devices.
#[derive(Debug)]
pub struct Tracker {
    server: Server,
    connection: Connection,
    frame: Frame,
}

impl Server {
    /// Hears of every change.
    ///
    /// # Errors
    /// The server cannot be asked.
    pub async fn track(&self) -> Result<Tracker, AdbError> {
        let connection = self.within(TRACK, SERVER_LIMIT, self.open(TRACK)).await?;
        Ok(Tracker { server: self.clone(), connection, frame: Frame::default() })
    }
}

impl Tracker {
    /// The devices as they are now, then after each change; without details. May be cancelled and
    /// called again.
    ///
    /// # Errors
    /// The server is gone, or speaks nonsense.
    pub async fn next(&mut self) -> Result<Vec<Listed>, AdbError> {
        let heard = self.connection.frame(&mut self.frame).await;
        heard.and_then(|text| read(&text)).map_err(|broken| self.server.broken(TRACK, broken))
    }
}
