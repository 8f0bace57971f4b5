//! Devices that disappear, do not trust us, or send garbage: memgate reports an error with advice, does not
//! hang, and leaves nothing behind.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use memgate_adb::{AdbError, Address, Bounds, Device, Server, State};
use memgate_e2e::stand_in::{
    AdbServer, Builder, Fault, Instrument, Instrumentation, Package, StandIn, Terminal, What, When, adbs,
};
use tokio::io::AsyncReadExt;

use crate::android::adb::client::{LONG, block_on, client, with_device};

/// Time limit for a service that stops responding.
const SILENT: Duration = Duration::from_secs(1);
/// Time limit for a device that does not come back.
const SHORT: Duration = Duration::from_millis(300);

async fn impatient(server: &AdbServer) -> Device {
    client(server).choose(None).await.unwrap().with_patience(SHORT)
}

/// Reconnects the device, whatever its state.
async fn anew(server: &AdbServer, phone: &StandIn) -> Device {
    let adb = client(server);
    match adb.disconnect(&phone.serial()).await {
        // Refused: the server has already dropped it.
        Ok(()) | Err(AdbError::Refused { .. }) => {}
        Err(why) => panic!("{why}"),
    }
    phone.wait_until_idle();
    phone.plug_in();
    adb.connect(&phone.serial()).await.unwrap();
    impatient(server).await
}

/// An app whose tests run until they are stopped.
struct Endless(mpsc::Sender<()>);

impl Instrument for Endless {
    fn instrument(&self, _: &StandIn, _: &Instrumentation, terminal: &mut Terminal) -> u8 {
        let mut nothing = [0];
        while terminal.out(b"INSTRUMENTATION_STATUS: stream=.\n").is_ok() {}
        // The client has left.
        assert_eq!(terminal.read(&mut nothing).unwrap_or(0), 0);
        self.0.send(()).unwrap();
        1
    }
}

fn endless() -> (Builder, mpsc::Receiver<()>) {
    let (left, hears) = mpsc::channel();
    let apps = StandIn::builder()
        .package(Package::app("com.x"))
        .package(Package::test("com.x.test", "Runner", "com.x"))
        .instrument(Endless(left));
    (apps, hears)
}

const INSTRUMENT: &str = "am instrument -w -r com.x.test/Runner";

#[test]
fn a_device_that_does_not_know_us_says_who_must_act() {
    for adb in adbs() {
        let server = AdbServer::start(&adb);
        let phone = StandIn::builder().start();
        phone.unauthorize();
        block_on(async {
            let adb = client(&server);
            // Old versions report it at once, new ones after a while: both then list it as unauthorized.
            assert!(adb.connect(&phone.serial()).await.is_err());
            let error = adb.choose(None).await.unwrap_err();
            assert!(matches!(error, AdbError::Unauthorized { .. }), "{error}");
            assert!(error.hint().contains("allow USB debugging"), "{}", error.hint());
            assert!(!error.device_is_gone());
        });
    }
}

#[test]
fn a_device_that_asks_for_a_key_is_used_once_it_has_it() {
    for adb in adbs() {
        let (server, _phone) = with_device(&adb, StandIn::builder().asks_for_a_key());
        block_on(async { assert_eq!(impatient(&server).await.shell("echo x").await.unwrap().text(), "x") });
    }
}

#[test]
fn a_request_waits_for_a_device_that_comes_back() {
    for adb in adbs() {
        let (server, phone) = with_device(&adb, StandIn::builder());
        block_on(async {
            let device = client(&server).choose(None).await.unwrap().with_patience(LONG);
            phone.unplug();
            let error = device.clone().with_patience(SHORT).shell("echo x").await.unwrap_err();
            assert!(error.device_is_gone(), "{error}");
            let waiting = tokio::spawn({
                let device = device.clone();
                async move { device.shell("echo back").await }
            });
            phone.plug_in();
            assert_eq!(waiting.await.unwrap().unwrap().text(), "back", "{}", adb.name);
            assert_eq!(device.state().await.unwrap(), Some(State::Device));
        });
    }
}

/// Runs the operation that a fault interrupts, selected by its service.
async fn everything(device: &Device, what: &str, time: Duration) -> Result<(), AdbError> {
    let bounds = Bounds { time, ..Bounds::default() };
    let device = device.clone().with_bounds(bounds);
    match what {
        "shell" => device.shell("cat /data/local/tmp/big").await.map(drop),
        "push" => device.push_bytes(&vec![1; 8 << 20], "/data/local/tmp/new", 0o600).await,
        "pull" => {
            let folder = tempfile::tempdir().unwrap();
            device.pull("/data/local/tmp/big", &folder.path().join("big"), bounds).await.map(drop)
        }
        _ => {
            let mut pipe = device.open_local_abstract("endless").await?;
            let mut came = vec![0; 4 << 20];
            let during = "read".to_owned();
            match tokio::time::timeout(bounds.time, pipe.read_exact(&mut came)).await {
                Ok(Ok(_)) if came.iter().all(|byte| *byte == b'x') => Ok(()),
                Ok(Ok(_)) => Err(AdbError::Garbage { during, what: "other bytes".into() }),
                Ok(Err(_)) => {
                    Err(AdbError::Lost { serial: String::new(), during, state: device.state().await? })
                }
                Err(_) => Err(AdbError::Timeout { during, limit: bounds.time }),
            }
        }
    }
}

const SERVICES: [&str; 4] = ["shell", "push", "pull", "socket"];

/// A moment at which the stream of this service is open and far from its end.
fn in_the_middle_of(service: &str) -> When {
    let starts_with = match service {
        "shell" => "shell,v2",
        "socket" => "localabstract:",
        _ => "sync:",
    };
    When::Exchanged { starts_with: starts_with.into(), messages: 6 }
}

fn busy() -> Builder {
    StandIn::builder().abstract_handler("endless", |stream| while stream.write_all(&[b'x'; 1000]).is_ok() {})
}

fn fill(phone: &StandIn) {
    std::fs::write(phone.host_path("/data/local/tmp/big"), vec![b'y'; 4 << 20]).unwrap();
}

#[test]
fn a_device_lost_in_the_middle_of_any_service_is_told() {
    for adb in adbs() {
        let (server, phone) = with_device(&adb, busy());
        fill(&phone);
        block_on(async {
            for service in SERVICES {
                let device = anew(&server, &phone).await;
                phone.inject(Fault { when: in_the_middle_of(service), what: What::Unplug });
                let error = everything(&device, service, LONG).await.unwrap_err();
                assert!(error.device_is_gone(), "{service} on {}: {error}", adb.name);
            }
            assert_eq!(phone.struck(), SERVICES.len());
        });
        let not_whole = phone.host_path("/data/local/tmp/new");
        phone.wait_until("the file that did not come whole goes", |_| !not_whole.exists());
    }
}

#[test]
fn nonsense_of_a_service_is_an_error_and_of_the_transport_a_loss() {
    for adb in adbs() {
        let (server, phone) = with_device(&adb, busy());
        fill(&phone);
        block_on(async {
            for (service, name) in [("shell", "shell,v2"), ("pull", "sync:"), ("push", "sync:")] {
                let device = impatient(&server).await;
                phone.wait_until_idle();
                let when = When::Service { starts_with: name.into(), after_bytes: 0 };
                phone.inject(Fault { when, what: What::ServiceGarbage });
                let error = everything(&device, service, LONG).await.unwrap_err();
                assert!(matches!(error, AdbError::Garbage { .. }), "{service} on {}: {error}", adb.name);
            }
            for service in SERVICES {
                let device = anew(&server, &phone).await;
                phone.inject(Fault { when: in_the_middle_of(service), what: What::TransportGarbage });
                let error = everything(&device, service, LONG).await.unwrap_err();
                assert!(error.device_is_gone(), "{service} on {}: {error}", adb.name);
            }
        });
    }
}

#[test]
fn a_device_that_falls_silent_is_not_waited_for_for_ever() {
    for adb in adbs() {
        let (server, phone) = with_device(&adb, busy());
        fill(&phone);
        block_on(async {
            let device = impatient(&server).await;
            phone.silence();
            for service in ["shell", "pull"] {
                let error = everything(&device, service, SILENT).await.unwrap_err();
                assert!(matches!(error, AdbError::Timeout { limit: SILENT, .. }), "{service}: {error}");
            }
        });
    }
}

#[test]
fn a_cancelled_command_ends_on_the_device() {
    for adb in adbs() {
        let (builder, left) = endless();
        let (server, phone) = with_device(&adb, builder);
        block_on(async {
            let device = impatient(&server).await;
            let mut shell = device.start(INSTRUMENT).await.unwrap();
            for _ in 0..100 {
                shell.next().await.unwrap();
            }
            let other = tokio::spawn(async move { device.shell(INSTRUMENT).await });
            phone.wait_until("both run", |phone| phone.commands().len() == 2);
            other.abort();
        });
        // Both commands end.
        for _ in 0..2 {
            left.recv_timeout(LONG).unwrap();
        }
        phone.assert_clean();
    }
}

#[test]
fn at_thirty_moments_of_a_run_anything_may_happen() {
    let kinds =
        [What::Unplug, What::Silence, What::Unauthorize, What::TransportGarbage, What::ServiceGarbage];
    for adb in adbs() {
        thread::scope(|scope| {
            for lane in 0..3_u64 {
                let (adb, kinds) = (&adb, &kinds);
                scope.spawn(move || {
                    let server = AdbServer::start(adb);
                    for moment in (lane..30).step_by(3) {
                        let phone = busy().start();
                        server.connect(&phone);
                        fill(&phone);
                        let what = kinds[usize::try_from(moment).unwrap() % kinds.len()];
                        block_on(async {
                            let device = client(&server).choose(Some(&phone.serial())).await.unwrap();
                            let device = device.with_patience(SHORT);
                            phone.inject(Fault { when: When::Messages(moment * 7), what });
                            // Either the service that was hit or a later one must fail.
                            let mut asked = SERVICES.iter().cycle();
                            let mut told = false;
                            while phone.struck() == 0 {
                                told = everything(&device, asked.next().unwrap(), SILENT).await.is_err();
                            }
                            for service in SERVICES {
                                told = told || everything(&device, service, SILENT).await.is_err();
                            }
                            assert!(told, "{what:?} at {moment} passes silently");
                            drop(client(&server).disconnect(&phone.serial()).await);
                        });
                    }
                });
            }
        });
    }
}

/// A fake server: gives one answer per connection, and records the requests.
fn fake_server(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> (Address, mpsc::Receiver<String>) {
    let name = format!("memgate-e2e-fake-{}-{:?}", std::process::id(), thread::current().id());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let (asked, asks) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut length = [0; 4];
            stream.read_exact(&mut length).unwrap();
            let length = usize::from_str_radix(std::str::from_utf8(&length).unwrap(), 16).unwrap();
            let mut request = vec![0; length];
            stream.read_exact(&mut request).unwrap();
            let request = String::from_utf8(request).unwrap();
            stream.write_all(&answer(&request)).unwrap();
            asked.send(request).unwrap();
        }
    });
    (Address::Abstract(name), asks)
}

#[test]
fn what_is_no_adb_server_is_told() {
    let (address, _asks) = fake_server(|_| b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec());
    block_on(async {
        let error = Server::new(address, None).ensure().await.unwrap_err();
        assert!(
            error.to_string().ends_with("for `host:version`: neither OKAY nor FAIL, but `HTTP`"),
            "{error}"
        );
        assert!(error.hint().contains("is that an adb server?"));
    });
}

#[test]
fn a_server_of_another_version_is_not_killed() {
    let (address, asks) = fake_server(|request| match request {
        "host:version" => b"OKAY00040028".to_vec(),
        "host:devices" => b"OKAY000cR58M\tdevice\n".to_vec(),
        "host:features" | "host-serial:R58M:features" => b"OKAY0008shell_v2".to_vec(),
        "host:track-devices" => b"OKAY000cR58M\tdevice\n".to_vec(),
        other => panic!("{other}"),
    });
    for adb in adbs() {
        block_on(async {
            let server = Server::new(address.clone(), Some(adb.program.clone()));
            assert_eq!(server.ensure().await.unwrap(), 40);
            let device = server.choose(None).await.unwrap();
            let error = device.install(&[std::path::Path::new("a.apk")], &[], SHORT).await.unwrap_err();
            let AdbError::ServerVersion { server_version: 40, program_version: 41, .. } = error else {
                panic!("{error}")
            };
            assert!(error.to_string().contains("it would kill that server"), "{error}");
        });
    }
    assert!(asks.try_iter().all(|request| request != "host:kill"));
}
