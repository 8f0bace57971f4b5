//! Reports every change of the devices that a server knows.

use super::AdbError;
use super::listing::{Listed, read};
use super::server::{SERVER_LIMIT, Server};
use super::wire::{Connection, Frame};

/// Lists the devices now and after every change.
const TRACK: &str = "host:track-devices";

/// Receives every change of the devices.
#[derive(Debug)]
pub struct Tracker {
    server: Server,
    connection: Connection,
    frame: Frame,
}

impl Server {
    /// Starts to receive every change.
    ///
    /// # Errors
    /// The server cannot be asked.
    pub async fn track(&self) -> Result<Tracker, AdbError> {
        let connection = self.within(TRACK, SERVER_LIMIT, self.open(TRACK)).await?;
        Ok(Tracker { server: self.clone(), connection, frame: Frame::default() })
    }
}

impl Tracker {
    /// The current devices, then those after each change; without details. May be cancelled and called again.
    ///
    /// # Errors
    /// The server is gone, or violates the protocol.
    pub async fn next(&mut self) -> Result<Vec<Listed>, AdbError> {
        let heard = self.connection.frame(&mut self.frame).await;
        heard.and_then(|text| read(&text)).map_err(|broken| self.server.broken(TRACK, broken))
    }
}
