//! Files on the device, by the `sync:` service: four letters and a little-endian `u32`, then data that depends on the
//! letters.
//!
//! A cancelled transfer leaves nothing behind: the device removes an incomplete file, and a pulled file gets its name
//! last.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use super::AdbError;
use super::device::{Bounds, Device};
use super::wire::{Broken, Connection};

/// Maximum length of a piece of a file, and of a path.
const PIECE_BYTES: usize = 64 << 10;
const PATH_BYTES: usize = 1024;
/// Maximum length of the device's message when it refuses.
const MESSAGE_BYTES: u32 = 16 << 10;
const REGULAR_FILE: u32 = 0o100_000;
const NO_SUCH_FILE: u32 = 2;

impl Device {
    /// Writes a file of this machine to the device, with these permissions. Creates missing folders.
    ///
    /// # Errors
    /// The file cannot be read, or the device does not accept it.
    pub async fn push(&self, local: &Path, remote: &str, mode: u32) -> Result<(), AdbError> {
        let cannot = |source| AdbError::Local { action: "read", path: local.to_owned(), source };
        let file = File::open(local).await.map_err(cannot)?;
        let modified = file.metadata().await.and_then(|about| about.modified()).map_err(cannot)?;
        self.send(file, Some(local), seconds(modified), remote, mode).await
    }

    /// Writes bytes to a file of the device, with these permissions. Creates missing folders.
    ///
    /// # Errors
    /// The device does not accept it.
    pub async fn push_bytes(&self, bytes: &[u8], remote: &str, mode: u32) -> Result<(), AdbError> {
        self.send(bytes, None, seconds(SystemTime::now()), remote, mode).await
    }

    /// Copies a file of the device. The local file appears when it is complete. Returns its size.
    ///
    /// # Errors
    /// The device does not send the file, or it cannot be written here.
    pub async fn pull(&self, remote: &str, local: &Path, bounds: Bounds) -> Result<u64, AdbError> {
        let mut part = local.as_os_str().to_owned();
        part.push(".part");
        let part = Part(part.into());
        let cannot = |source| AdbError::Local { action: "write", path: local.to_owned(), source };
        let mut file = File::create(&part.0).await.map_err(cannot)?;
        let bytes = self.receive(remote, bounds, &mut file, local).await?;
        file.flush().await.map_err(cannot)?;
        tokio::fs::rename(&part.0, local).await.map_err(cannot)?;
        Ok(bytes)
    }

    /// The size of a file in bytes; `None`: it does not exist. Links are followed, but not by devices without `stat_v2`
    /// (before Android 8).
    ///
    /// # Errors
    /// The device cannot be asked.
    pub async fn size(&self, remote: &str) -> Result<Option<u64>, AdbError> {
        let during = format!("look at {remote}");
        let v2 = self.has("stat_v2");
        let mut sync = Sync::open(self, &during, remote).await?;
        let asked = async {
            let id = if v2 { b"STA2" } else { b"STAT" };
            sync.request(id, remote.as_bytes()).await?;
            let letters = sync.letters().await?;
            if letters != *id {
                return Err(unexpected(letters));
            }
            if v2 { sync.size_v2().await } else { sync.size_v1().await }
        };
        self.finish(self.bounds(), &during, asked).await
    }

    async fn send(
        &self,
        mut from: impl AsyncRead + Unpin,
        local: Option<&Path>,
        modified: u32,
        remote: &str,
        mode: u32,
    ) -> Result<(), AdbError> {
        let during = format!("push {remote}");
        let mut sync = Sync::open(self, &during, remote).await?;
        let sent = async {
            let target = format!("{remote},{}", REGULAR_FILE | (mode & 0o7777));
            if let Err(broken) = sync.request(b"SEND", target.as_bytes()).await {
                return Ok(Err(broken));
            }
            let mut piece = vec![0; PIECE_BYTES];
            loop {
                let read = from.read(&mut piece).await;
                let local = local.unwrap_or(Path::new("")).to_owned();
                let got = read.map_err(|source| AdbError::Local { action: "read", path: local, source })?;
                if got == 0 {
                    break;
                }
                if let Err(broken) = sync.request(b"DATA", &piece[..got]).await {
                    // The device may have sent the reason before it closed the connection.
                    return Ok(sync.granted().await.and(Err(broken)));
                }
            }
            Ok(match sync.number(b"DONE", modified).await {
                Ok(()) => sync.granted().await,
                Err(broken) => sync.granted().await.and(Err(broken)),
            })
        };
        let answer = self.within(self.bounds().time, &during, sent).await?;
        self.told(answer, &during).await
    }

    async fn receive(
        &self,
        remote: &str,
        bounds: Bounds,
        into: &mut File,
        local: &Path,
    ) -> Result<u64, AdbError> {
        let during = format!("pull {remote}");
        let mut sync = Sync::open(self, &during, remote).await?;
        let received = async {
            sync.request(b"RECV", remote.as_bytes()).await?;
            let mut bytes: u64 = 0;
            loop {
                match &sync.letters().await? {
                    b"DATA" => {}
                    b"DONE" => return Ok(Ok(bytes)),
                    b"FAIL" => return Err(sync.failure().await),
                    letters => return Err(unexpected(*letters)),
                }
                let mut left = sync.u32().await? as usize;
                if left > PIECE_BYTES {
                    return Err(Broken::Garbage(format!("a piece of {left} bytes came")));
                }
                bytes += left as u64;
                if bytes > bounds.bytes as u64 {
                    return Ok(Err(AdbError::TooMuch { during: during.clone(), limit: bounds.bytes }));
                }
                while left > 0 {
                    let piece = sync.0.piece(left).await?;
                    if piece.is_empty() {
                        return Err(Broken::Closed);
                    }
                    left -= piece.len();
                    if let Err(source) = into.write_all(&piece).await {
                        return Ok(Err(AdbError::Local { action: "write", path: local.to_owned(), source }));
                    }
                }
            }
        };
        self.finish(bounds, &during, received).await?
    }

    async fn finish<T>(
        &self,
        bounds: Bounds,
        during: &str,
        answer: impl Future<Output = Result<T, Broken>>,
    ) -> Result<T, AdbError> {
        let answer = self.within(bounds.time, during, async { Ok(answer.await) }).await?;
        self.told(answer, during).await
    }

    /// A message of the device is about a file, not about the connection.
    async fn told<T>(&self, answer: Result<T, Broken>, during: &str) -> Result<T, AdbError> {
        match answer {
            Ok(answer) => Ok(answer),
            Err(Broken::Fail(message)) => {
                Err(AdbError::Refused { during: format!("{during} on {}", self.serial()), message })
            }
            Err(broken) => Err(self.broken(broken, during).await),
        }
    }
}

/// Removes the file when dropped, unless it was renamed by then.
struct Part(std::path::PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        // The file is gone already if everything succeeded.
        drop(std::fs::remove_file(&self.0));
    }
}

/// The open service.
struct Sync(Connection);

impl Sync {
    async fn open(device: &Device, during: &str, remote: &str) -> Result<Self, AdbError> {
        // The mode comes after the path.
        if remote.len() > PATH_BYTES - 8 || remote.contains('\0') {
            let start = remote.chars().take(40).collect();
            return Err(AdbError::Unsayable {
                start,
                why: "it is no path of at most 1016 bytes without NUL",
            });
        }
        Ok(Self(device.open("sync:", during).await?))
    }

    async fn request(&mut self, letters: &[u8; 4], bytes: &[u8]) -> Result<(), Broken> {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.0.write(&[letters, &length.to_le_bytes()[..], bytes].concat()).await
    }

    async fn number(&mut self, letters: &[u8; 4], number: u32) -> Result<(), Broken> {
        self.0.write(&[*letters, number.to_le_bytes()].concat()).await
    }

    async fn granted(&mut self) -> Result<(), Broken> {
        match &self.letters().await? {
            b"OKAY" => self.u32().await.map(drop),
            b"FAIL" => Err(self.failure().await),
            letters => Err(unexpected(*letters)),
        }
    }

    async fn failure(&mut self) -> Broken {
        match self.message().await {
            Ok(message) => Broken::Fail(String::from_utf8_lossy(&message).into_owned()),
            Err(broken) => broken,
        }
    }

    async fn size_v1(&mut self) -> Result<Option<u64>, Broken> {
        let [mode, bytes, _modified] = [self.u32().await?, self.u32().await?, self.u32().await?];
        Ok((mode != 0).then_some(bytes.into()))
    }

    /// After the letters: error, dev, ino, mode, nlink, uid, gid, size, and three times.
    async fn size_v2(&mut self) -> Result<Option<u64>, Broken> {
        let error = self.u32().await?;
        let _device = self.u64().await?;
        let _node = self.u64().await?;
        let _mode_links_and_owners =
            [self.u32().await?, self.u32().await?, self.u32().await?, self.u32().await?];
        let bytes = self.u64().await?;
        let _read_modified_changed = [self.u64().await?, self.u64().await?, self.u64().await?];
        match error {
            0 => Ok(Some(bytes)),
            NO_SUCH_FILE => Ok(None),
            error => Err(Broken::Fail(std::io::Error::from_raw_os_error(error.cast_signed()).to_string())),
        }
    }

    async fn message(&mut self) -> Result<Vec<u8>, Broken> {
        let length = self.u32().await?;
        if length > MESSAGE_BYTES {
            return Err(Broken::Garbage(format!("a text of {length} bytes came")));
        }
        let mut text = vec![0; length as usize];
        self.0.exactly(&mut text).await?;
        Ok(text)
    }

    async fn letters(&mut self) -> Result<[u8; 4], Broken> {
        let mut letters = [0; 4];
        self.0.exactly(&mut letters).await?;
        Ok(letters)
    }

    async fn u32(&mut self) -> Result<u32, Broken> {
        Ok(u32::from_le_bytes(self.letters().await?))
    }

    async fn u64(&mut self) -> Result<u64, Broken> {
        let mut bytes = [0; 8];
        self.0.exactly(&mut bytes).await?;
        Ok(u64::from_le_bytes(bytes))
    }
}

fn unexpected(letters: [u8; 4]) -> Broken {
    Broken::Garbage(format!("`{}` came", letters.escape_ascii()))
}

/// The seconds since 1970, limited to 32 bits.
fn seconds(time: SystemTime) -> u32 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}
