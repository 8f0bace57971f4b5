//! A heap dump of an app's process: `am dumpheap` writes it on the device, and the complete file is copied from there.

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::time::{sleep, timeout};

use memgate_adb::{AdbError, Bounds, Device, command};

/// A larger dump is not copied.
const LARGEST: usize = 2 << 30;
/// Until Android 10, `am` does not wait for the dump. No tool that all such devices have reports when a file is
/// complete, so its size is checked this often; if `am` waits, no check is needed.
const LOOK: Duration = Duration::from_millis(250);
/// `HEAP_DUMP_END`: tag, time, length 0.
const END_BYTES: i64 = 9;
const END_TAG: u8 = 0x2c;

/// Path of a dump on the device until it is copied; `nonce` separates it from those of others.
#[must_use]
pub fn remote(nonce: &str) -> String {
    format!("/data/local/tmp/memgate-{nonce}.hprof")
}

/// Dumps the heap of the process `pid`, without garbage, into the file `to` on this machine. Returns its size.
///
/// # Errors
/// When the app is not debuggable, the device is lost, or the dump is not complete within `limit`.
pub async fn dump(
    device: &Device,
    pid: u32,
    nonce: &str,
    to: &Path,
    limit: Duration,
) -> Result<u64, AdbError> {
    let remote = remote(nonce);
    let bounds = Bounds { time: limit, bytes: LARGEST };
    let late = |_elapsed| AdbError::Timeout { during: format!("bring a heap dump of process {pid}"), limit };
    let brought = timeout(limit, bring(&device.clone().with_bounds(bounds), pid, &remote, to, bounds)).await;
    let brought = brought.map_err(late).and_then(|brought| brought);
    if brought.is_err() {
        // The file may exist incompletely.
        drop(tokio::fs::remove_file(to).await);
    }
    let line = command(&["rm", "-f", &remote]);
    let removed = device.shell(&line).await.and_then(|told| told.success(&line));
    let bytes = brought?;
    removed.map(|_| bytes)
}

async fn bring(device: &Device, pid: u32, remote: &str, to: &Path, bounds: Bounds) -> Result<u64, AdbError> {
    let line = command(&["am", "dumpheap", "-g", &pid.to_string(), remote]);
    device.shell(&line).await?.success(&line)?;
    let local = |source| AdbError::Local { action: "read", path: to.to_owned(), source };
    loop {
        let bytes = device.pull(remote, to, bounds).await?;
        if is_whole(to).await.map_err(local)? {
            return Ok(bytes);
        }
        // Copies it again only after it has grown and then stopped growing.
        let mut seen = bytes;
        loop {
            sleep(LOOK).await;
            let now = device.size(remote).await?.unwrap_or(0);
            if now == seen && now > bytes {
                break;
            }
            seen = now;
        }
    }
}

/// Whether it ends with the last record of a dump.
async fn is_whole(dump: &Path) -> std::io::Result<bool> {
    let mut file = tokio::fs::File::open(dump).await?;
    if file.metadata().await?.len() < END_BYTES.unsigned_abs() {
        return Ok(false);
    }
    file.seek(std::io::SeekFrom::End(-END_BYTES)).await?;
    let mut end = [0; 9];
    file.read_exact(&mut end).await?;
    Ok(end[0] == END_TAG && end[5..] == [0; 4])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_dump_is_whole_with_its_last_record() {
        let folder = tempfile::tempdir().unwrap();
        let dump = folder.path().join("a.hprof");
        let end = [0x2c, 1, 2, 3, 4, 0, 0, 0, 0];
        for (bytes, whole) in
            [(&b""[..], false), (&end, true), (&end[..8], false), (b"JAVA PROFILE 1.0.3\0 and no end", false)]
        {
            std::fs::write(&dump, bytes).unwrap();
            assert_eq!(is_whole(&dump).await.unwrap(), whole, "{bytes:?}");
        }
    }
}
