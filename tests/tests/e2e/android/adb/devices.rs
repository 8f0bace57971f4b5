//! `memgate devices`, as a user types it.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use memgate_e2e::stand_in::{AdbServer, StandIn, adbs};
use memgate_e2e::{Project, Run};

/// `memgate ARGUMENTS` that uses this server.
fn command(project: &Project, server: &AdbServer, arguments: &[&str]) -> Command {
    let mut command = project.command(arguments);
    command.envs(server.environment()).env_remove("ANDROID_HOME").env_remove("ANDROID_SDK_ROOT");
    command
}

fn devices(project: &Project, server: &AdbServer) -> Run {
    project.finish(&mut command(project, server, &["devices"]))
}

#[test]
fn devices_are_listed_with_what_can_be_done_there() {
    let project = Project::new("adb-devices");
    for adb in adbs() {
        // The server is not running: memgate starts it.
        let server = AdbServer::prepare(&adb);
        devices(&project, &server)
            .ends_with(2)
            .says("error: failed to find a device")
            .says("hint: start an emulator");

        let modern = StandIn::builder().model("Pixel 8").property("ro.build.version.release", "14").start();
        let old = StandIn::builder().model("Nexus 5").api(23).abi("armeabi-v7a").start();
        let strange = StandIn::builder().start();
        server.connect(&old);
        devices(&project, &server).ends_with(2);
        server.connect(&modern);
        strange.unauthorize();
        let refused = server.adb(&["connect", &strange.serial()]);
        assert!(refused.status.success(), "adb tells by words alone: {refused:?}");
        let run = devices(&project, &server);
        run.ends_with(0);
        let line = |device: &StandIn| {
            let serial = device.serial();
            run.stdout
                .lines()
                .find(|line| line.starts_with(&serial))
                .unwrap_or_else(|| panic!("no {serial}:\n{run}"))
        };
        for (device, text) in [
            (&modern, "device        Pixel 8  Android 14 (API 34), x86_64"),
            (&modern, "debuggable apps, agent at their start (startup agents)"),
            (&old, "nothing: Android 8 (API 26) or later is needed"),
            (&strange, "unauthorized"),
            (&strange, "nothing: allow USB debugging"),
        ] {
            assert!(line(device).contains(text), "{text}:\n{run}");
        }
    }
}

#[test]
fn control_c_ends_it_though_a_device_does_not_answer() {
    let project = Project::new("adb-devices-interrupted");
    for adb in adbs() {
        let server = AdbServer::start(&adb);
        let phone = StandIn::builder().start();
        server.connect(&phone);
        // Called first because it may build memgate: a device that is silent for that long counts as lost.
        let command = command(&project, &server, &["devices"]);
        // These tests may run with SIGINT ignored, which children inherit: reset it.
        let mut heeding = Command::new("env");
        heeding.arg("--default-signal=INT").arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => heeding.env(name, value),
                None => heeding.env_remove(name),
            };
        }
        heeding.current_dir(project.folder());
        phone.silence();
        let before = phone.messages();
        let mut child =
            heeding.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        phone.wait_until("it is asked", |phone| phone.messages() > before);
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let status = child.wait().unwrap();
        // The signal ended it, not the time limit for a device.
        assert_eq!(status.signal(), Some(rustix::process::Signal::INT.as_raw()), "{status:?}");
    }
}

#[test]
fn without_adb_it_says_how_to_get_it() {
    let project = Project::new("adb-devices-without");
    let empty = tempfile::tempdir().unwrap();
    let mut command = project.command(&["devices"]);
    command.env("PATH", empty.path()).env_remove("ANDROID_HOME").env_remove("ANDROID_SDK_ROOT");
    command.env("ADB_SERVER_SOCKET", format!("localabstract:memgate-e2e-none-{}", std::process::id()));
    project
        .finish(&mut command)
        .ends_with(2)
        .says("failed to start the adb server: there is no `adb` in PATH")
        .says("hint: install Android's platform-tools");
}
