//! A heap dump of an app's process: `am dumpheap` writes it on the device, and it is copied from there when it is whole.

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::time::{Instant, sleep};

use super::adb::{AdbError, Bounds, Device, command};

/// For the dump, and for bringing it.
const LIMIT: Bounds = Bounds { time: Duration::from_secs(120), bytes: 2 << 30 };
/// Until Android 10 `am` does not wait for the dump, and nothing tells when it is whole: it is looked at so often.
const LOOK: Duration = Duration::from_millis(250);
/// `HEAP_DUMP_END`: tag, time, length 0.
const END_BYTES: i64 = 9;
const END_TAG: u8 = 0x2c;

/// Where a dump lies on the device until it has been brought; `nonce` keeps it apart from those of others.
#[must_use]
pub fn remote(nonce: &str) -> String {
    format!("/data/local/tmp/memgate-{nonce}.hprof")
}

/// Dumps the heap of the process `pid`, garbage left out, into the file `to` of this machine. Gives its size.
///
/// # Errors
/// The app is not debuggable, or the device is lost, or the dump does not come whole.
pub async fn dump(device: &Device, pid: u32, nonce: &str, to: &Path) -> Result<u64, AdbError> {
    let remote = remote(nonce);
    let brought = bring(&device.clone().with_bounds(LIMIT), pid, &remote, to).await;
    let line = command(&["rm", "-f", &remote]);
    let removed = device.shell(&line).await.and_then(|told| told.success(&line));
    let bytes = brought?;
    removed.map(|_| bytes)
}

async fn bring(device: &Device, pid: u32, remote: &str, to: &Path) -> Result<u64, AdbError> {
    let line = command(&["am", "dumpheap", "-g", &pid.to_string(), remote]);
    device.shell(&line).await?.success(&line)?;
    let until = Instant::now() + LIMIT.time;
    loop {
        let bytes = device.pull(remote, to, LIMIT).await?;
        if is_whole(to).await.map_err(|source| AdbError::Local {
            action: "read",
            path: to.to_owned(),
            source,
        })? {
            return Ok(bytes);
        }
        if Instant::now() >= until {
            let what = format!("the dump does not come to an end ({bytes} bytes)");
            return Err(AdbError::Garbage { during: format!("run `{line}`"), what });
        }
        sleep(LOOK).await;
    }
}

/// Does it end with the record that ends a dump?
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
