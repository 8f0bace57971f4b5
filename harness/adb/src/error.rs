//! Errors of requests to a device, each with advice for the user.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use memgate_launch::LaunchError;

use super::listing::{Listed, State};

/// Why a device, or its server, did not fulfil a request. The texts fit after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum AdbError {
    /// The address of the server has an unknown form.
    #[error(
        "find the adb server at `{0}`: it is neither tcp:PORT, tcp:HOST:PORT, localabstract:NAME nor localfilesystem:PATH"
    )]
    Address(String),
    /// Nothing listens at the address of the server.
    #[error("reach the adb server at {address}")]
    NoServer {
        /// The address.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// The program that starts the server was not found.
    #[error("{what}: there is no `adb` in PATH, ANDROID_HOME or ANDROID_SDK_ROOT")]
    NoProgram {
        /// Why it is needed.
        what: &'static str,
    },
    /// The program could not be run.
    #[error("run {}", program.display())]
    Program {
        /// The program.
        program: PathBuf,
        /// Why not.
        source: LaunchError,
    },
    /// The program did not bring up a server.
    #[error("start an adb server at {address} with {}: {said}", program.display())]
    StartServer {
        /// The address.
        address: String,
        /// The program.
        program: PathBuf,
        /// Its output.
        said: String,
    },
    /// The program would kill the running server, because it is of another version.
    #[error("run {}: it is version {program_version}, the adb server at {address} is version {server_version}, and it would kill that server", program.display())]
    ServerVersion {
        /// The server's address.
        address: String,
        /// Its version.
        server_version: u32,
        /// The program.
        program: PathBuf,
        /// Its version.
        program_version: u32,
    },
    /// The server closed the connection in the middle.
    #[error("hear the adb server at {address} answer `{request}`: it closed the connection")]
    ServerLost {
        /// The server's address.
        address: String,
        /// The request.
        request: String,
    },
    /// There is no device.
    #[error("find a device: the adb server at {address} has none")]
    NoDevices {
        /// The server's address.
        address: String,
    },
    /// There are several devices, and none was chosen.
    #[error("choose a device: there are {}: {}", .0.len(), listed(.0))]
    ManyDevices(Vec<Listed>),
    /// The requested device does not exist.
    #[error("find the device {serial}: {}", if known.is_empty() { "no device is connected".to_owned() } else { format!("there are {}", listed(known)) })]
    UnknownSerial {
        /// The requested serial.
        serial: String,
        /// The existing devices.
        known: Vec<Listed>,
    },
    /// The device is known, but does not answer (yet).
    #[error("{during}: the device {serial} is {state}")]
    Offline {
        /// The device's serial.
        serial: String,
        /// The request.
        during: String,
        /// `offline`, `connecting` or `authorizing`.
        state: State,
    },
    /// This machine is not authorized on the device.
    #[error("{during}: the device {serial} is unauthorized")]
    Unauthorized {
        /// The device's serial.
        serial: String,
        /// The request.
        during: String,
    },
    /// The device does not run Android, or we have no permission to use it.
    #[error("{during}: the device {serial} is in the state `{state}`")]
    Unusable {
        /// The device's serial.
        serial: String,
        /// The request.
        during: String,
        /// Its state.
        state: State,
    },
    /// The device was lost during the operation.
    #[error("{during}: the device {serial} was lost{}", state.as_ref().map_or_else(String::new, |state| format!(" (adb says: {state})")))]
    Lost {
        /// The device's serial.
        serial: String,
        /// The operation.
        during: String,
        /// Its state in the server's list since then.
        state: Option<State>,
    },
    /// The device has no such socket.
    #[error("connect to @{name} on {serial}: nobody listens there")]
    NobodyListens {
        /// The device's serial.
        serial: String,
        /// The socket's name.
        name: String,
    },
    /// The server or the device refused.
    #[error("{during}: {message}")]
    Refused {
        /// The request.
        during: String,
        /// Its message.
        message: String,
    },
    /// The answer does not follow the protocol.
    #[error("{during}: {what}")]
    Garbage {
        /// The request.
        during: String,
        /// What was received instead.
        what: String,
    },
    /// The answer is larger than the limit.
    #[error("{during}: more than {limit} bytes came")]
    TooMuch {
        /// The request.
        during: String,
        /// The bound.
        limit: usize,
    },
    /// The request took too long.
    #[error("{during}: no end within {limit:?}")]
    Timeout {
        /// The request.
        during: String,
        /// The bound.
        limit: Duration,
    },
    /// A command on the device ended with a status other than 0.
    #[error("{during}: exit status {exit}{}", if said.is_empty() { String::new() } else { format!(": {said}") })]
    Command {
        /// The request.
        during: String,
        /// Its status.
        exit: u8,
        /// Its output.
        said: String,
    },
    /// A file of this machine.
    #[error("{action} {}", path.display())]
    Local {
        /// `read`, `write`.
        action: &'static str,
        /// The file's path.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The request cannot be sent in the protocol.
    #[error("ask for `{start}…`: {why}")]
    Unsayable {
        /// The beginning of the request.
        start: String,
        /// The problem with the request.
        why: &'static str,
    },
    /// `adb install` failed.
    #[error("install on {serial}: {said}")]
    Install {
        /// The device's serial.
        serial: String,
        /// adb's message.
        said: String,
    },
}

impl AdbError {
    /// Is the device away, so that waiting and trying again may help?
    #[must_use]
    pub const fn device_is_gone(&self) -> bool {
        matches!(self, Self::Offline { .. } | Self::Lost { .. } | Self::UnknownSerial { .. })
    }

    /// Advice for the user; may be empty.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Address(_) | Self::NoServer { .. } => {
                "ADB_SERVER_SOCKET, ANDROID_ADB_SERVER_ADDRESS and ANDROID_ADB_SERVER_PORT say where it is; without them tcp:localhost:5037".to_owned()
            }
            Self::NoProgram { .. } => {
                "install Android's platform-tools (Debian and Ubuntu: apt install adb) or name the SDK by ANDROID_HOME".to_owned()
            }
            Self::StartServer { .. } => "`adb start-server` by hand says more".to_owned(),
            Self::ServerVersion { .. } => {
                "put the adb that started the server first in PATH, or use a server of your own: ADB_SERVER_SOCKET=tcp:15037"
                    .to_owned()
            }
            Self::ServerLost { .. } | Self::Garbage { .. } => {
                "is that an adb server? `adb kill-server` and another try help where one went wrong".to_owned()
            }
            Self::NoDevices { .. } => {
                "start an emulator, plug in a device with USB debugging allowed, or `adb connect HOST:PORT`".to_owned()
            }
            Self::ManyDevices(_) => "name one with --device SERIAL or ANDROID_SERIAL".to_owned(),
            Self::UnknownSerial { .. } => "`memgate devices` lists them; a device in the network wants `adb connect HOST:PORT` first".to_owned(),
            Self::Offline { .. } | Self::Lost { .. } => {
                "look at cable, power and network of the device; `adb reconnect offline` or `adb disconnect SERIAL` and `adb connect` bring back what hangs"
                    .to_owned()
            }
            Self::Unauthorized { .. } => {
                "allow USB debugging for this computer on the device's screen; without a screen put a known key into ADB_VENDOR_KEYS"
                    .to_owned()
            }
            Self::Unusable { state: State::NoPermissions(_), .. } => {
                "this user may not open the USB device: add udev rules, or join the group plugdev".to_owned()
            }
            Self::Unusable { .. } => "boot the device into Android (`adb reboot`)".to_owned(),
            Self::Install { said, .. } if ANOTHER_BUILD.iter().any(|why| said.contains(why)) => {
                "the device has another build of the app, signed differently or newer: `adb uninstall PACKAGE` removes it with its data".to_owned()
            }
            Self::Install { said, .. } if ONE_OF_SEVERAL.iter().any(|why| said.contains(why)) => {
                "this APK is a part of an app: install all its parts at once (`adb install-multiple -r -t -g`), and leave them out of `apks`".to_owned()
            }
            Self::Timeout { .. } => "is the device very busy? `adb shell` by hand shows whether it answers".to_owned(),
            Self::Program { .. }
            | Self::NobodyListens { .. }
            | Self::Refused { .. }
            | Self::TooMuch { .. }
            | Self::Command { .. }
            | Self::Local { .. }
            | Self::Unsayable { .. }
            | Self::Install { .. } => String::new(),
        }
    }
}

/// What adb prints if the installed build cannot be replaced.
const ANOTHER_BUILD: [&str; 2] = ["INSTALL_FAILED_UPDATE_INCOMPATIBLE", "INSTALL_FAILED_VERSION_DOWNGRADE"];
/// What it prints if an APK cannot be installed without others: the base of an app with split APKs, and a split.
const ONE_OF_SEVERAL: [&str; 2] = ["INSTALL_FAILED_MISSING_SPLIT", "must include a base package"];

fn listed(devices: &[Listed]) -> String {
    let names: Vec<String> =
        devices.iter().map(|device| format!("{} ({})", device.serial, device.state)).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_devices_are_named() {
        let device = |serial: &str, state| Listed { serial: serial.into(), state, ..Listed::default() };
        let error = AdbError::ManyDevices(vec![
            device("emulator-5554", State::Device),
            device("R58M", State::Unauthorized),
        ]);
        assert_eq!(
            error.to_string(),
            "choose a device: there are 2: emulator-5554 (device), R58M (unauthorized)"
        );
        assert!(error.hint().contains("--device SERIAL"));
    }

    #[test]
    fn what_cannot_be_installed_like_this_says_what_to_do() {
        let refused = |said: &str| AdbError::Install { serial: "R58M".into(), said: said.into() }.hint();
        let said = "Failure [INSTALL_FAILED_UPDATE_INCOMPATIBLE: Package io.x signatures do not match]";
        assert!(refused(said).contains("adb uninstall PACKAGE"));
        for said in [
            "INSTALL_FAILED_MISSING_SPLIT: Missing split for io.x",
            "Full install must include a base package",
        ] {
            assert!(refused(said).contains("adb install-multiple"), "{said}");
        }
        assert_eq!(refused("Failure [INSTALL_FAILED_INSUFFICIENT_STORAGE]"), "");
    }

    #[test]
    fn what_was_lost_is_told_with_what_the_server_says_since() {
        let error =
            AdbError::Lost { serial: "R58M".into(), during: "run `ls`".into(), state: Some(State::Offline) };
        assert_eq!(error.to_string(), "run `ls`: the device R58M was lost (adb says: offline)");
        assert!(error.device_is_gone());
        assert!(error.hint().contains("adb reconnect"));
    }
}
