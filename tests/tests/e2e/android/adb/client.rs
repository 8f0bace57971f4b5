//! The device client through real adb servers, old and new, against the stand-in device.

use std::future::Future;
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::thread;
use std::time::Duration;

use memgate_adb::{AdbError, Bounds, Chunk, Device, Server, State, command};
use memgate_e2e::stand_in::{Adb, AdbServer, Builder, Package, StandIn, adbs};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A test that takes longer hangs, even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(300);

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    // A test that hangs fails by itself, instead of blocking the whole run.
    runtime.block_on(async { tokio::time::timeout(LONG, future).await.expect("it hangs") })
}

/// The client of a private server.
pub(crate) fn client(server: &AdbServer) -> Server {
    Server::new(server.socket().parse().unwrap(), Some(server.program().program.clone()))
}

/// A server with one device.
pub(crate) fn with_device(adb: &Adb, builder: Builder) -> (AdbServer, StandIn) {
    let server = AdbServer::start(adb);
    let device = builder.start();
    server.connect(&device);
    (server, device)
}

/// Bytes that differ at every position and seed.
fn varied(size: usize, seed: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 7 + (at >> 8) + seed).to_le_bytes()[0]).collect()
}

async fn only(server: &AdbServer) -> Device {
    client(server).choose(None).await.unwrap()
}

#[test]
fn commands_bring_both_outputs_and_their_status() {
    for adb in adbs() {
        for (features, v2) in [("shell_v2,cmd,stat_v2", true), ("cmd", false)] {
            let builder = StandIn::builder()
                .features(features)
                .answer("say 255", "bye\n", 255)
                .answer("say 255\necho", "", 0)
                .package(Package::app("com.example.tiles"));
            let (server, phone) = with_device(&adb, builder);
            block_on(async {
                let device = only(&server).await;
                let big: Vec<u8> = (0..1 << 20).map(|i: u32| b"0123456789abcde\n"[i as usize % 16]).collect();
                device.push_bytes(&big, "/data/local/tmp/big", 0o644).await.unwrap();
                let output = device.shell("cat /data/local/tmp/big").await.unwrap();
                assert!(output.stdout == big, "{}: {} bytes came", adb.name, output.stdout.len());
                assert_eq!((output.exit, output.stderr.len()), (0, 0));
                let output = device.shell("cat /nowhere; echo 'it'\\''s $' && false").await.unwrap();
                assert_eq!(output.exit, 1);
                let both = "cat: /nowhere: No such file or directory\n";
                if v2 {
                    assert_eq!(
                        (output.text().as_ref(), output.stderr.as_slice()),
                        ("it's $", both.as_bytes())
                    );
                    assert_eq!(device.shell("say 255").await.unwrap().exit, 255);
                } else {
                    assert_eq!(output.stdout, [both.as_bytes(), b"it's $\n"].concat(), "{}", adb.name);
                }
                let error = device
                    .shell("run-as com.nobody ls")
                    .await
                    .unwrap()
                    .success("look into the app")
                    .unwrap_err();
                assert_eq!(
                    error.to_string(),
                    "look into the app: exit status 1: run-as: unknown package: com.nobody"
                );
                device.shell("rm /data/local/tmp/big").await.unwrap().success("tidy").unwrap();
            });
            phone.assert_clean();
        }
    }
}

#[test]
fn a_started_command_sends_its_output_and_then_its_status() {
    for adb in adbs() {
        let lines: String = (0..2000).map(|i| format!("line {i}\n")).collect();
        let (server, _phone) = with_device(&adb, StandIn::builder().answer("count", &lines, 3));
        block_on(async {
            let mut shell = only(&server).await.start("count").await.unwrap();
            let mut came = Vec::new();
            let end = loop {
                match shell.next().await.unwrap() {
                    Chunk::Stdout(bytes) => came.extend(bytes),
                    end => break end,
                }
            };
            assert!(came == lines.as_bytes(), "{} bytes came", came.len());
            assert_eq!([end, shell.next().await.unwrap()], [Chunk::Exit(3), Chunk::Exit(3)], "and again");
        });
    }
}

#[test]
fn what_a_device_does_not_know_it_says_as_a_device() {
    for adb in adbs() {
        let (server, phone) = with_device(&adb, StandIn::builder());
        block_on(async {
            let output = only(&server).await.shell("frobnicate -x").await.unwrap();
            assert_eq!(output.exit, 127);
            assert_eq!(output.stderr, b"/system/bin/sh: frobnicate: inaccessible or not found\n");
        });
        assert_eq!(phone.take_unknown(), ["command `frobnicate -x`"]);
    }
}

#[test]
fn files_come_back_as_they_went() {
    let names = [
        "plain",
        "with blank",
        "it's",
        "a\"b",
        "$HOME",
        "`id`",
        "-n",
        "naïve…",
        "a;b",
        "new\nline",
        "back\\slash",
        "a=b,c",
    ];
    for adb in adbs() {
        for features in ["shell_v2,cmd,stat_v2", "shell_v2,cmd"] {
            let (server, phone) = with_device(&adb, StandIn::builder().features(features));
            let folder = tempfile::tempdir().unwrap();
            block_on(async {
                let device = only(&server).await;
                for (i, name) in names.iter().enumerate() {
                    // Empty, one byte, one piece, one byte more, and several pieces.
                    let size = [0, 1, 65_536, 65_537, 300_000][i % 5];
                    let bytes: Vec<u8> = varied(size, i);
                    let remote = format!("/data/local/tmp/a b/{name}");
                    let local = folder.path().join("local");
                    std::fs::write(&local, &bytes).unwrap();
                    device.push(&local, &remote, 0o640).await.unwrap();
                    assert_eq!(device.size(&remote).await.unwrap(), Some(size as u64), "{name}");
                    let mode = std::fs::metadata(phone.host_path(&remote)).unwrap().permissions().mode();
                    assert_eq!(mode & 0o777, 0o640, "{name}");
                    let back = folder.path().join("back");
                    assert_eq!(device.pull(&remote, &back, Bounds::default()).await.unwrap(), size as u64);
                    assert!(std::fs::read(&back).unwrap() == bytes, "{name}");
                    let cat = device.shell(&command(&["cat", &remote])).await.unwrap();
                    assert!(cat.stdout == bytes, "{name}: {:?}", String::from_utf8_lossy(&cat.stderr));
                }
                let mut listed: Vec<String> = std::fs::read_dir(phone.host_path("/data/local/tmp/a b"))
                    .unwrap()
                    .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                    .collect();
                listed.sort();
                let mut want = names.map(str::to_owned);
                want.sort();
                assert_eq!(listed, want);
                assert_eq!(device.size("/data/local/tmp/none").await.unwrap(), None);
                device.shell("rm -r '/data/local/tmp/a b'").await.unwrap().success("tidy").unwrap();
            });
            phone.assert_clean();
        }
    }
}

#[test]
fn what_a_device_refuses_leaves_nothing_behind() {
    for adb in adbs() {
        let (server, phone) = with_device(&adb, StandIn::builder().package(Package::app("com.x")));
        let folder = tempfile::tempdir().unwrap();
        block_on(async {
            let device = only(&server).await;
            let small = Bounds { bytes: 99_999, ..Bounds::default() };
            device.push_bytes(&[1; 100_000], "/data/local/tmp/f", 0o600).await.unwrap();
            let target = folder.path().join("f");
            for (remote, bounds, text) in [
                ("/data/local/tmp/none", small, "No such file or directory"),
                ("/data/user/0/com.x/files", small, "Permission denied"),
                ("/data/local/tmp/f", small, "more than 99999 bytes came"),
            ] {
                let error = device.pull(remote, &target, bounds).await.unwrap_err();
                assert!(error.to_string().contains(text), "{error}");
                assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{remote}");
            }
            let error = device.push_bytes(&[0; 200_000], "/system/lib64/x", 0o644).await.unwrap_err();
            assert!(error.to_string().contains("Permission denied"), "{error}");
            let error = device.push_bytes(b"", &"/long".repeat(300), 0o644).await.unwrap_err();
            assert!(matches!(error, AdbError::Unsayable { .. }), "{error}");
            let error = device.shell("cat /data/local/tmp/f").await.unwrap();
            assert_eq!(error.stdout.len(), 100_000);
            let error = device.shell_within("cat /data/local/tmp/f", small).await.unwrap_err();
            assert!(matches!(error, AdbError::TooMuch { limit: 99_999, .. }), "{error}");
            device.shell("rm /data/local/tmp/f").await.unwrap();
        });
        phone.assert_clean();
    }
}

#[test]
fn sockets_of_apps_are_reached_without_a_forward() {
    let name = format!("memgate-e2e-echo-{}", std::process::id());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut buffer = [0; 70_000];
                while let Ok(got @ 1..) = stream.read(&mut buffer) {
                    stream.write_all(&buffer[..got]).unwrap();
                }
            });
        }
    });
    for adb in adbs() {
        let builder = StandIn::builder().abstract_handler("greets", |stream| {
            stream.write_all(b"hello, and goodbye").unwrap();
        });
        let (server, phone) = with_device(&adb, builder);
        block_on(async {
            let device = only(&server).await;
            let (mut from, mut into) = tokio::io::split(device.open_local_abstract(&name).await.unwrap());
            let sent: Vec<u8> = varied(3_000_000, 3);
            let copy = sent.clone();
            let writing = tokio::spawn(async move {
                into.write_all(&copy).await.unwrap();
                into
            });
            let mut came = vec![0; sent.len()];
            from.read_exact(&mut came).await.unwrap();
            assert!(came == sent, "{}", adb.name);
            drop((from, writing.await.unwrap()));

            let mut text = String::new();
            device.open_local_abstract("greets").await.unwrap().read_to_string(&mut text).await.unwrap();
            assert_eq!(text, "hello, and goodbye");

            let error = device.open_local_abstract("memgate-nobody").await.unwrap_err();
            assert!(
                matches!(&error, AdbError::NobodyListens { name, .. } if name == "memgate-nobody"),
                "{error}"
            );
            let forwards = server.adb(&["forward", "--list"]).stdout;
            assert!(forwards.trim_ascii().is_empty(), "{}", forwards.escape_ascii());
        });
        phone.assert_clean();
    }
}

#[test]
fn properties_are_read() {
    for adb in adbs() {
        let builder =
            StandIn::builder().api(30).abi("x86_64,arm64-v8a").model("Pixel 4a").property("debug.old", "a b");
        let (server, phone) = with_device(&adb, builder);
        block_on(async {
            let device = only(&server).await;
            let facts = device.facts().await.unwrap();
            assert_eq!((facts.api, facts.model.as_str(), facts.abis.len()), (30, "Pixel 4a", 2));
            assert!(facts.booted && !facts.debuggable);
            assert_eq!(device.property("debug.old").await.unwrap().as_deref(), Some("a b"));
            assert_eq!(device.property("debug.none").await.unwrap(), None);
        });
        phone.assert_clean();
    }
}

#[test]
fn one_of_two_devices_must_be_named() {
    for adb in adbs() {
        let (server, first) = with_device(&adb, StandIn::builder().model("First"));
        let second = StandIn::builder().model("Second").property("debug.me", "second").start();
        block_on(async {
            let adb = client(&server);
            assert!(adb.choose(None).await.is_ok(), "the only one");
            adb.connect(&second.serial()).await.unwrap();
            adb.connect(&second.serial()).await.unwrap();
            let error = adb.choose(None).await.unwrap_err();
            for serial in [first.serial(), second.serial()] {
                assert!(error.to_string().contains(&format!("{serial} (device)")), "{error}");
            }
            assert!(error.hint().contains("--device SERIAL"));
            let named = adb.choose(Some(&second.serial())).await.unwrap();
            assert_eq!(named.property("debug.me").await.unwrap().as_deref(), Some("second"));
            let error = adb.choose(Some("nosuch")).await.unwrap_err();
            assert!(error.to_string().starts_with("find the device nosuch: there are "), "{error}");
            let listed = adb.devices().await.unwrap();
            assert_eq!(listed.iter().filter(|device| device.model.as_deref() == Some("Second")).count(), 1);
            assert_eq!(adb.all().await.unwrap().len(), 2);
            adb.disconnect(&second.serial()).await.unwrap();
            assert_eq!(named.state().await.unwrap(), None);
        });
    }
}

#[test]
fn without_a_device_the_error_says_what_to_do() {
    for adb in adbs() {
        let server = AdbServer::start(&adb);
        block_on(async {
            let adb = client(&server);
            let error = adb.choose(None).await.unwrap_err();
            assert!(
                matches!(error, AdbError::NoDevices { .. }) && error.hint().contains("emulator"),
                "{error}"
            );
            assert!(matches!(adb.all().await.unwrap_err(), AdbError::NoDevices { .. }));
            let strange = StandIn::builder().start();
            strange.unauthorize();
            assert!(server.adb(&["connect", &strange.serial()]).status.success(), "adb tells by words alone");
            let error = adb.all().await.unwrap_err();
            assert!(matches!(error, AdbError::Unauthorized { .. }), "{error}");
            let error = adb.connect("127.0.0.1:1").await.unwrap_err();
            assert!(error.to_string().to_lowercase().contains("failed to connect to"), "{error}");
        });
    }
}

#[test]
fn a_server_is_started_where_nobody_listens_and_ended_where_it_is_ours() {
    for adb in adbs() {
        let server = AdbServer::prepare(&adb);
        block_on(async {
            let client = client(&server);
            assert!(matches!(client.version().await.unwrap_err(), AdbError::NoServer { .. }));
            // Not started by the client, because that server would inherit this process's environment,
            // without a private home. The tests of `memgate devices` cover that start.
            let started = server.adb(&["start-server"]);
            assert!(started.status.success());
            assert_eq!(client.ensure().await.unwrap(), 41);
            client.stop().await.unwrap();
            while client.version().await.is_ok() {
                tokio::task::yield_now().await;
            }
        });
    }
}

#[test]
fn changes_are_heard_of() {
    for adb in adbs() {
        let server = AdbServer::start(&adb);
        let phone = StandIn::builder().start();
        block_on(async {
            let adb = client(&server);
            let mut tracker = adb.track().await.unwrap();
            assert_eq!(tracker.next().await.unwrap(), []);
            adb.connect(&phone.serial()).await.unwrap();
            let of_phone = |serial: &str, state| (serial.to_owned(), state);
            loop {
                let devices = tracker.next().await.unwrap();
                let seen = devices.first().map(|device| of_phone(&device.serial, device.state.clone()));
                if seen == Some(of_phone(&phone.serial(), State::Device)) {
                    break;
                }
            }
            adb.disconnect(&phone.serial()).await.unwrap();
            while !tracker.next().await.unwrap().is_empty() {}
        });
    }
}

#[test]
fn apps_are_installed_by_the_program() {
    for adb in adbs() {
        let (server, phone) = with_device(&adb, StandIn::builder());
        let folder = tempfile::tempdir().unwrap();
        let apk = folder.path().join("it's an app.apk");
        std::fs::write(&apk, vec![7; 12_345]).unwrap();
        block_on(async {
            let device = only(&server).await;
            device.install(&[&apk], &["-r", "-t"], LONG).await.unwrap();
            let error = device.install(&[&folder.path().join("none.apk")], &[], LONG).await.unwrap_err();
            assert!(matches!(&error, AdbError::Install { said, .. } if said.contains("none.apk")), "{error}");
        });
        let installed = phone.installed();
        assert_eq!(installed.len(), 1, "{installed:?}");
        assert!(installed[0].contains("-r") && installed[0].ends_with("(12345 bytes)"), "{installed:?}");
    }
}
