//! An adb server, or a device connected to it, that sends arbitrary bytes: every request ends, keeps to its
//! bounds and returns no more than was sent.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use memgate_adb::{AdbError, Address, Bounds, Chunk, Device, Server};

use crate::folder;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Runtime;

/// Bytes before the frames.
pub(crate) const PREFIX: usize = 2;
/// No answer takes longer.
const HANG: Duration = Duration::from_secs(20);
const BOUNDS: Bounds = Bounds { time: Duration::from_secs(5), bytes: 8 << 10 };
const MODERN: u8 = 16;

fn world() -> &'static (Runtime, PathBuf) {
    static WORLD: OnceLock<(Runtime, PathBuf)> = OnceLock::new();
    WORLD.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        (runtime.expect("a runtime"), folder("adb").join("adb"))
    })
}

/// Reads a request; its length precedes it.
async fn request(stream: &mut UnixStream) -> Option<String> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await.ok()?;
    let length = usize::from_str_radix(std::str::from_utf8(&length).ok()?, 16).ok()?;
    let mut text = vec![0; length];
    stream.read_exact(&mut text).await.ok()?;
    String::from_utf8(text).ok()
}

fn granted(text: &str) -> Vec<u8> {
    format!("OKAY{:04x}{text}", text.len()).into_bytes()
}

/// `how & 15` below 4: the server sends arbitrary bytes. Otherwise it knows a device, which sends them.
async fn serve(listener: UnixListener, how: u8, chunk: usize, said: &[u8]) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let Some(asked) = request(&mut stream).await else { continue };
        let mut answer = match asked.as_str() {
            _ if how & 15 < 4 => said.to_vec(),
            "host:devices" | "host:track-devices" => granted("S\tdevice\n"),
            "host:devices-l" => granted("S                      device model:M transport_id:1\n"),
            _ if asked.ends_with(":features") => {
                granted(if how & MODERN == 0 { "cmd" } else { "shell_v2,stat_v2" })
            }
            _ => b"OKAY".to_vec(),
        };
        if asked.starts_with("host:transport:") && how & 15 >= 4 {
            if stream.write_all(&answer).await.is_err() || request(&mut stream).await.is_none() {
                continue;
            }
            answer.extend(said);
        }
        for piece in answer.chunks(chunk * 16 + 1) {
            if stream.write_all(piece).await.is_err() {
                break;
            }
        }
        // A tracker keeps being read; everything else ends here.
        let _gone = stream.shutdown().await;
    }
}

async fn ask(server: &Server, how: u8, came: usize) -> Result<(), AdbError> {
    match how & 15 {
        0 => {
            let all = server.devices().await?.len();
            assert!(all <= came);
        }
        1 => drop(server.version().await?),
        2 => drop(server.connect("127.0.0.1:1").await?),
        3 => drop(server.choose(None).await?),
        how => {
            of_device(
                &server.choose(None).await?.with_patience(Duration::ZERO).with_bounds(BOUNDS),
                how,
                came,
            )
            .await?
        }
    }
    Ok(())
}

async fn of_device(device: &Device, how: u8, came: usize) -> Result<(), AdbError> {
    match how {
        4 => {
            let output = device.shell("x").await?;
            assert!(output.stdout.len() + output.stderr.len() <= came.min(BOUNDS.bytes));
        }
        5 => {
            let mut shell = device.start("x").await?;
            while !matches!(shell.next().await?, Chunk::Exit(_)) {}
        }
        6 => {
            let bytes = device.pull("/x", &world().1.with_extension("pulled"), BOUNDS).await?;
            assert!(bytes <= came.min(BOUNDS.bytes) as u64);
        }
        7 => device.push_bytes(&[0; 100_000], "/x", 0o644).await?,
        8 => drop(device.size("/x").await?),
        9 => drop(device.property("x").await?),
        10 => drop(device.properties().await?),
        11 => drop(device.facts().await?),
        _ => {
            let mut bytes = Vec::new();
            let _until_it_ends = device.open_local_abstract("x").await?.read_to_end(&mut bytes).await;
            assert!(bytes.len() <= came);
        }
    }
    Ok(())
}

/// Runs one input.
///
/// # Panics
/// When a checked property does not hold; this is a finding.
pub fn run(data: &[u8]) {
    let Some((&[how, chunk], said)) = data.split_first_chunk::<PREFIX>() else { return };
    let (runtime, socket) = world();
    let _gone = std::fs::remove_file(socket);
    let outcome = runtime.block_on(async {
        let listener = UnixListener::bind(socket).expect("a socket in our own folder");
        let server = Server::new(Address::File(socket.clone()), None);
        let both = async {
            tokio::select! {
                outcome = ask(&server, how, said.len()) => outcome,
                () = serve(listener, how, usize::from(chunk), said) => unreachable!("it accepts for ever"),
            }
        };
        tokio::time::timeout(HANG, both).await.expect("the request ends")
    });
    if let Err(why) = outcome {
        assert!(!why.to_string().is_empty() && !format!("{:?}", why.hint()).is_empty());
    }
}
