//! The devices on which a suite runs, and the tests of each. A single device runs all tests. With several devices, the
//! runner itself selects a share by the test's name, so that the share is the same in every run on this number of
//! devices.
//!
//! With `all`, each device is a suite of its own in the report, named by model and Android version, however many there
//! are today: a device is compared only with its own past.

use std::collections::BTreeMap;

use memgate_adb::{AdbError, Device, DeviceFacts, Listed, Server, State, command, wanted_serial};
use memgate_config::Devices;

use super::on_device::{Broken, random};
use crate::device::delivery::STAGING;
use crate::output::Console;
use crate::plan::PlannedInstrumentation;
use crate::suite::instrumentation::Share;

/// A device for a suite.
pub(super) struct Place {
    pub(super) device: Device,
    pub(super) about: DeviceFacts,
    /// Name of the suite on this device.
    pub(super) name: String,
    /// `None`: all tests.
    pub(super) share: Option<Share>,
}

/// Longest wait for a device that is away; the time limit of a test if that is shorter.
const AWAY: std::time::Duration = std::time::Duration::from_secs(30);

/// Arguments by which a runner takes a part of the tests.
const SHARDS: [&str; 2] = ["numShards", "shardIndex"];

/// The devices of a suite, in the order of their serials.
pub(super) async fn places(
    console: &Console,
    planned: &PlannedInstrumentation,
) -> Result<Vec<Place>, Broken> {
    if planned.suite.devices == Devices::All
        && let Some((argument, _)) =
            planned.suite.arguments.iter().find(|(name, _)| SHARDS.contains(&name.as_str()))
    {
        return Err(Broken::Suite {
            what: format!(
                "`arguments: {argument}` takes a part of the tests, and `devices: all` divides them too"
            ),
            hint: "remove the argument, or name one device".to_owned(),
        });
    }
    let devices = devices(console, planned).await.map_err(|why| Broken::by(&why))?;
    if let Some((one, other)) = twice(&devices).await? {
        return Err(Broken::Suite {
            what: format!("{one} and {other} are the same device"),
            hint: format!("`adb disconnect {other}`, or name one with `devices`"),
        });
    }
    let mut about = Vec::new();
    for device in &devices {
        about.push(device.facts().await.map_err(|why| Broken::by(&why))?);
    }
    let names = match planned.suite.devices {
        Devices::All => names(&planned.suite.name, &about),
        Devices::Serial(_) | Devices::Only => vec![planned.suite.name.clone()],
    };
    let of = u32::try_from(devices.len()).unwrap_or(u32::MAX);
    let share = |index| (of > 1).then_some(Share { index, of });
    let all = devices.into_iter().zip(about).zip(names).zip(0..);
    Ok(all
        .map(|(((device, about), name), index)| Place { device, about, name, share: share(index) })
        .collect())
}

async fn devices(console: &Console, planned: &PlannedInstrumentation) -> Result<Vec<Device>, AdbError> {
    let server = Server::from_environment()?;
    server.ensure().await?;
    let serial = match &planned.suite.devices {
        Devices::All => None,
        Devices::Serial(serial) => wanted_serial(Some(serial), None),
        Devices::Only => wanted_serial(None, None),
    };
    let mut devices = match planned.suite.devices {
        Devices::All => {
            let ready = server.all().await?;
            let gets_none = |device: &Listed| !ready.iter().any(|ready| ready.serial() == device.serial);
            for Listed { serial, state, .. } in server.devices().await?.into_iter().filter(gets_none) {
                let why = match state {
                    State::Device => "it was not ready in time".to_owned(),
                    state => format!("adb says `{state}`"),
                };
                console.warning(&format!("{}: {serial} gets no tests: {why}", planned.suite.name));
            }
            ready
        }
        Devices::Serial(_) | Devices::Only => vec![server.choose(serial.as_deref()).await?],
    };
    devices.sort_by(|a, b| a.serial().cmp(b.serial()));
    let patience = AWAY.min(planned.timeout);
    Ok(devices.into_iter().map(|device| device.with_patience(patience)).collect())
}

/// Two serials of one device, as of an emulator that is also reached through the network: its tests would run twice at
/// the same time.
async fn twice(devices: &[Device]) -> Result<Option<(String, String)>, Broken> {
    let mut known: Vec<(String, &Device)> = Vec::new();
    for device in devices.iter().filter(|_| devices.len() > 1) {
        let boot = device.shell("cat /proc/sys/kernel/random/boot_id").await;
        let boot = boot.map_err(|why| Broken::by(&why))?;
        let boot = if boot.exit == 0 { boot.text().into_owned() } else { String::new() };
        for (_, other) in known.iter().filter(|(of_other, _)| !boot.is_empty() && *of_other == boot) {
            if shares_files(other, device).await? {
                return Ok(Some((other.serial().to_owned(), device.serial().to_owned())));
            }
        }
        known.push((boot, device));
    }
    Ok(None)
}

/// Whether a file of one device is on the other. Emulators that were started from one snapshot have the same boot id,
/// but not the same files.
async fn shares_files(one: &Device, other: &Device) -> Result<bool, Broken> {
    let path = format!("{STAGING}/memgate-{}.twice", random(8)?);
    let did = async |device: &Device, words: &[&str]| {
        device.shell(&command(words)).await.map(|told| told.exit == 0).map_err(|why| Broken::by(&why))
    };
    if !did(one, &["touch", &path]).await? {
        return Ok(false);
    }
    let shares = did(other, &["test", "-e", &path]).await;
    did(one, &["rm", "-f", &path]).await?;
    shares
}

/// `app on Pixel 8, API 34`; a second device of the same kind is `app on Pixel 8, API 34 #2`.
fn names(suite: &str, about: &[DeviceFacts]) -> Vec<String> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut name = |facts: &DeviceFacts| {
        let name = format!("{suite} on {}, API {}", facts.model, facts.api);
        let count = seen.entry(name.clone()).or_default();
        *count += 1;
        if *count == 1 { name } else { format!("{name} #{count}") }
    };
    about.iter().map(&mut name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_told_apart_and_named_alike_however_many_there_are() {
        let device = |model: &str, api| DeviceFacts { model: model.into(), api, ..DeviceFacts::default() };
        let all = [device("Pixel 8", 34), device("Pixel 8", 35), device("Pixel 8", 34)];
        assert_eq!(names("app", &all[..1]), ["app on Pixel 8, API 34"]);
        assert_eq!(
            names("app", &all),
            ["app on Pixel 8, API 34", "app on Pixel 8, API 35", "app on Pixel 8, API 34 #2"]
        );
    }
}
