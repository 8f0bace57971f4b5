//! The server's lists of devices.
//!
//! Serials may contain blanks (`adb-R58M (2)._adb-tls-connect._tcp`), so serial and state come from the short list,
//! whose separator is a tab. The long list, which pads with blanks, only adds model and names to known serials.

use std::fmt;

use super::wire::{Broken, start_of};

/// A device as the server lists it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listed {
    /// Its name in every request.
    pub serial: String,
    /// Whether it can be used.
    pub state: State,
    /// `Pixel_3a`: characters other than letters and digits become `_`.
    pub model: Option<String>,
    /// `ro.product.name`.
    pub product: Option<String>,
    /// `ro.product.device`.
    pub device: Option<String>,
    /// Changes with every new connection.
    pub transport_id: Option<u64>,
}

/// The state of a device, according to the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum State {
    /// Android runs and answers.
    Device,
    /// It does not answer.
    #[default]
    Offline,
    /// The device does not know our key.
    Unauthorized,
    /// Our key is being checked.
    Authorizing,
    /// The connection is being established.
    Connecting,
    /// The boot loader.
    Bootloader,
    /// The recovery system.
    Recovery,
    /// Waiting for an update.
    Sideload,
    /// The rescue system.
    Rescue,
    /// The USB device may not be opened; with adb's message.
    NoPermissions(String),
    /// A state of another adb version.
    Other(String),
}

impl From<&str> for State {
    fn from(text: &str) -> Self {
        match text {
            "device" => Self::Device,
            "offline" => Self::Offline,
            "unauthorized" => Self::Unauthorized,
            "authorizing" => Self::Authorizing,
            "connecting" => Self::Connecting,
            "bootloader" => Self::Bootloader,
            "recovery" => Self::Recovery,
            "sideload" => Self::Sideload,
            "rescue" => Self::Rescue,
            _ if text.starts_with("no permissions") => Self::NoPermissions(text.to_owned()),
            _ => Self::Other(text.to_owned()),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Device => "device",
            Self::Offline => "offline",
            Self::Unauthorized => "unauthorized",
            Self::Authorizing => "authorizing",
            Self::Connecting => "connecting",
            Self::Bootloader => "bootloader",
            Self::Recovery => "recovery",
            Self::Sideload => "sideload",
            Self::Rescue => "rescue",
            Self::NoPermissions(_) => "no permissions",
            Self::Other(text) => text,
        })
    }
}

/// Reads the short list: lines of `SERIAL\tSTATE`.
pub(super) fn read(text: &str) -> Result<Vec<Listed>, Broken> {
    let device = |line: &str| match line.split_once('\t') {
        Some((serial, state)) if !serial.is_empty() => {
            Ok(Listed { serial: serial.to_owned(), state: State::from(state.trim()), ..Listed::default() })
        }
        _ => Err(Broken::Garbage(format!("`{}` is no line of a list of devices", start_of(line)))),
    };
    text.lines().filter(|line| !line.is_empty()).map(device).collect()
}

/// Adds the details of the long list to the same devices.
pub(super) fn add_details(devices: &mut [Listed], long: &str) {
    for line in long.lines() {
        let of_line = |device: &&mut Listed| {
            line.strip_prefix(device.serial.as_str()).is_some_and(|rest| rest.starts_with([' ', '\t']))
        };
        // If one serial is a prefix of another, the longer one matches.
        let Some(device) = devices.iter_mut().filter(of_line).max_by_key(|device| device.serial.len()) else {
            continue;
        };
        for (key, value) in line.split_whitespace().filter_map(|word| word.split_once(':')) {
            let value = value.to_owned();
            match key {
                "product" => device.product = Some(value),
                "model" => device.model = Some(value),
                "device" => device.device = Some(value),
                "transport_id" => device.transport_id = value.parse().ok(),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_and_state_come_from_the_short_list_the_rest_from_the_long_one() {
        let short = "127.0.0.1:15555\tdevice\nadb-R5 (2)._adb-tls-connect._tcp\toffline\nR5\tno permissions (user in plugdev group; are your udev rules wrong?); see [http://x]\n";
        let long = "127.0.0.1:15555        device product:memgate model:Stand_In device:standin transport_id:20\n\
                    adb-R5 (2)._adb-tls-connect._tcp offline transport_id:22\nR5                     no permissions usb:1-1 transport_id:3\nR58 device model:other\n";
        let mut devices = read(short).unwrap();
        add_details(&mut devices, long);
        assert_eq!(devices.len(), 3);
        assert_eq!(
            devices[0],
            Listed {
                serial: "127.0.0.1:15555".into(),
                state: State::Device,
                model: Some("Stand_In".into()),
                product: Some("memgate".into()),
                device: Some("standin".into()),
                transport_id: Some(20),
            }
        );
        assert_eq!((&devices[1].state, devices[1].transport_id), (&State::Offline, Some(22)));
        assert!(matches!(&devices[2].state, State::NoPermissions(why) if why.contains("udev")));
        assert_eq!((devices[2].transport_id, &devices[2].model), (Some(3), &None));
    }

    #[test]
    fn what_is_no_list_is_an_error() {
        for (text, devices) in [("", Some(0)), ("\n", Some(0)), ("device", None), ("\tdevice\n", None)] {
            assert_eq!(read(text).ok().map(|list| list.len()), devices, "{text:?}");
        }
        let Err(Broken::Garbage(what)) = read("a\u{1b}[31m") else { panic!("a list") };
        assert_eq!(what, "`a\\u{1b}[31m` is no line of a list of devices");
    }

    #[test]
    fn every_state_is_told_as_adb_tells_it() {
        for text in [
            "device",
            "offline",
            "unauthorized",
            "authorizing",
            "connecting",
            "bootloader",
            "recovery",
            "sideload",
            "rescue",
            "host",
        ] {
            assert_eq!(State::from(text).to_string(), text);
        }
    }
}
