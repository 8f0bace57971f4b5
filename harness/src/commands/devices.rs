//! `memgate devices`: lists the devices that adb knows, and what memgate can do on each.

use std::time::Duration;

use futures_util::future::join_all;
use memgate_adb::{AdbError, DeviceFacts, Listed, Server, State};
use tokio::time::timeout;

use crate::exit::{self, ExpectedError};
use crate::output::Console;

/// The tested protocol version: adb 29 to 36 use it.
const KNOWN_VERSION: u32 = 41;
/// The first Android API level that supports agents in apps.
const OLDEST_API: u32 = 26;
/// API levels of `am set-agent-app` and startup agents, which load the agent before the first line of the app.
const AGENT_APP_API: u32 = 29;
const STARTUP_AGENTS_API: u32 = 30;
/// The instruction sets for which there is an agent.
const ABIS: [&str; 2] = ["arm64-v8a", "x86_64"];
/// Time limit for reading a device's properties: a slower device cannot be used.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

pub(super) fn devices(console: &Console) -> Result<u8, ExpectedError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ExpectedError::file("start", "the runtime".as_ref()))?;
    runtime.block_on(list(console))
}

async fn list(console: &Console) -> Result<u8, ExpectedError> {
    let server = Server::from_environment()?;
    let version = server.ensure().await?;
    if version != KNOWN_VERSION {
        console.warning(&format!(
            "the adb server at {} is version {version}; memgate knows version {KNOWN_VERSION} and leaves the server as it is",
            server.address()
        ));
    }
    let found = server.devices().await?;
    if found.is_empty() {
        return Err(AdbError::NoDevices { address: server.address().to_string() }.into());
    }
    let looked = join_all(found.into_iter().map(|listed| look(&server, listed))).await;
    console.text(&table(&looked))?;
    Ok(if looked.iter().any(Looked::is_usable) { exit::PASS } else { exit::NOT_MEASURED })
}

/// A device and its properties, or why they could not be read.
struct Looked {
    listed: Listed,
    facts: Result<DeviceFacts, String>,
}

async fn look(server: &Server, listed: Listed) -> Looked {
    let facts = match &listed.state {
        State::Device => {
            let asked = async { server.choose(Some(&listed.serial)).await?.facts().await };
            match timeout(ANSWER_LIMIT, asked).await {
                Ok(Ok(facts)) => Ok(facts),
                Ok(Err(why)) => Err(format!("nothing: failed to {}", crate::exit::chain(&why))),
                Err(_) => Err(format!("nothing: it does not answer within {} s", ANSWER_LIMIT.as_secs())),
            }
        }
        State::Unauthorized => {
            Err("nothing: allow USB debugging for this computer on the device's screen".to_owned())
        }
        State::NoPermissions(why) => Err(format!("nothing: {why}")),
        state => Err(format!("nothing while it is {state}")),
    };
    Looked { listed, facts }
}

impl Looked {
    fn is_usable(&self) -> bool {
        self.facts.as_ref().is_ok_and(|facts| ability(facts).is_ok())
    }

    fn row(&self) -> [String; 5] {
        let Listed { serial, state, model, .. } = &self.listed;
        let (model, android, can) = match &self.facts {
            Ok(facts) => {
                let android =
                    format!("Android {} (API {}), {}", facts.release, facts.api, facts.abis.join(", "));
                (facts.model.clone(), android, ability(facts).unwrap_or_else(|why| format!("nothing: {why}")))
            }
            Err(why) => (model.clone().unwrap_or_default(), String::new(), why.clone()),
        };
        [serial.clone(), state.to_string(), model, android, can].map(|cell| printable(&cell))
    }
}

/// The capabilities of memgate on a device, or why the device cannot be used.
fn ability(facts: &DeviceFacts) -> Result<String, String> {
    let DeviceFacts { api, abis, debuggable, booted, .. } = facts;
    if *api < OLDEST_API {
        return Err(format!("Android 8 (API {OLDEST_API}) or later is needed"));
    }
    if !abis.iter().any(|abi| ABIS.contains(&abi.as_str())) {
        return Err(format!("the agent is for {}", ABIS.join(" and ")));
    }
    if !booted {
        return Err("it is still starting".to_owned());
    }
    let apps = if *debuggable { "all apps" } else { "debuggable apps" };
    let way = match *api {
        STARTUP_AGENTS_API.. => "agent at their start (startup agents)",
        AGENT_APP_API.. => "agent at their start (am set-agent-app)",
        _ => "agent into the running app (am attach-agent)",
    };
    Ok(format!("{apps}, {way}"))
}

/// Replaces control characters: a device's text goes to a terminal.
fn printable(cell: &str) -> String {
    let shown: String = cell.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    if shown.is_empty() { "-".to_owned() } else { shown }
}

fn table(devices: &[Looked]) -> String {
    let rows: Vec<[String; 5]> = devices.iter().map(Looked::row).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..4).map(width).collect();
    let line = |row: &[String; 5]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}  "));
        format!("{}{}\n", cells.collect::<String>(), row[4])
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phone(api: u32, abi: &str) -> DeviceFacts {
        DeviceFacts {
            api,
            release: "14".into(),
            abis: vec![abi.into()],
            model: "Pixel 8".into(),
            build: "user".into(),
            debuggable: false,
            booted: true,
        }
    }

    #[test]
    fn what_can_be_done_depends_on_level_and_instruction_set() {
        for (api, abi, can) in [
            (34, "arm64-v8a", Ok("debuggable apps, agent at their start (startup agents)")),
            (29, "x86_64", Ok("debuggable apps, agent at their start (am set-agent-app)")),
            (26, "x86_64", Ok("debuggable apps, agent into the running app (am attach-agent)")),
            (25, "x86_64", Err("Android 8 (API 26) or later is needed")),
            (34, "armeabi-v7a", Err("the agent is for arm64-v8a and x86_64")),
        ] {
            assert_eq!(ability(&phone(api, abi)), can.map(str::to_owned).map_err(str::to_owned));
        }
        assert!(ability(&DeviceFacts { booted: false, ..phone(34, "x86_64") }).is_err());
        let open = DeviceFacts { debuggable: true, ..phone(34, "x86_64") };
        assert!(ability(&open).unwrap().starts_with("all apps"));
    }

    #[test]
    fn a_line_for_each_device() {
        let listed = |serial: &str, state| Listed { serial: serial.into(), state, ..Listed::default() };
        let devices = [
            Looked { listed: listed("R58M", State::Device), facts: Ok(phone(34, "arm64-v8a")) },
            Looked {
                listed: listed("emulator-5554", State::Offline),
                facts: Err("nothing while it is offline\u{1b}".into()),
            },
        ];
        insta::assert_snapshot!(table(&devices), @r"
        R58M           device   Pixel 8  Android 14 (API 34), arm64-v8a  debuggable apps, agent at their start (startup agents)
        emulator-5554  offline  -        -                               nothing while it is offline?
        ");
    }
}
