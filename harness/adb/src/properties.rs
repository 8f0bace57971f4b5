//! System properties, and the facts about the device in them.

use std::collections::BTreeMap;

use super::AdbError;
use super::device::Device;
use super::quote::command;

/// Facts about a device that a run needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceFacts {
    /// API level: 34.
    pub api: u32,
    /// `14`.
    pub release: String,
    /// Instruction sets, the preferred one first: `x86_64`, `arm64-v8a`.
    pub abis: Vec<String>,
    /// `Pixel 8`.
    pub model: String,
    /// `user`, `userdebug` or `eng`.
    pub build: String,
    /// Can every app be debugged, not only debuggable ones?
    pub debuggable: bool,
    /// Has it booted?
    pub booted: bool,
}

impl Device {
    /// A property; `None`: it is empty, which is the same as missing.
    ///
    /// # Errors
    /// The device cannot be asked.
    pub async fn property(&self, name: &str) -> Result<Option<String>, AdbError> {
        let line = command(&["getprop", name]);
        let value = self.shell(&line).await?.success(&line)?.text().into_owned();
        Ok((!value.is_empty()).then_some(value))
    }

    /// Every property.
    ///
    /// # Errors
    /// The device cannot be asked.
    pub async fn properties(&self) -> Result<BTreeMap<String, String>, AdbError> {
        Ok(read(&self.shell("getprop").await?.success("getprop")?.text()))
    }

    /// The facts that a run needs.
    ///
    /// # Errors
    /// The device cannot be asked, or reports no API level.
    pub async fn facts(&self) -> Result<DeviceFacts, AdbError> {
        facts(&self.properties().await?).ok_or_else(|| AdbError::Garbage {
            during: format!("ask {} for its properties", self.serial()),
            what: "ro.build.version.sdk is no number".to_owned(),
        })
    }
}

fn facts(properties: &BTreeMap<String, String>) -> Option<DeviceFacts> {
    let text = |name: &str| properties.get(name).cloned().unwrap_or_default();
    let abis = [text("ro.product.cpu.abilist"), text("ro.product.cpu.abi")];
    let abis = abis.iter().find(|list| !list.is_empty());
    Some(DeviceFacts {
        api: text("ro.build.version.sdk").parse().ok()?,
        release: text("ro.build.version.release"),
        abis: abis.map_or_else(Vec::new, |list| list.split(',').map(str::to_owned).collect()),
        model: text("ro.product.model"),
        build: text("ro.build.type"),
        debuggable: text("ro.debuggable") == "1",
        booted: text("sys.boot_completed") == "1",
    })
}

/// Lines of `[name]: [value]`; a value may continue over several lines.
fn read(text: &str) -> BTreeMap<String, String> {
    let mut properties = BTreeMap::new();
    let mut open: Option<(String, String)> = None;
    for line in text.lines() {
        let (name, mut value) =
            match (open.take(), line.strip_prefix('[').and_then(|rest| rest.split_once("]: ["))) {
                (Some((name, value)), _) => (name, format!("{value}\n{line}")),
                (None, Some((name, value))) => (name.to_owned(), value.to_owned()),
                (None, None) => continue,
            };
        if value.ends_with(']') {
            value.pop();
            properties.insert(name, value);
        } else {
            open = Some((name, value));
        }
    }
    properties
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_read_with_values_of_several_lines() {
        let read = read("[a.b]: [c]\n[empty]: []\n[long]: [one\ntwo]\n[odd]: [x]: [y]\n* noise\n[cut]: [off");
        let want = [("a.b", "c"), ("empty", ""), ("long", "one\ntwo"), ("odd", "x]: [y")];
        assert_eq!(read, want.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    }

    #[test]
    fn a_device_without_an_api_level_is_none() {
        let of =
            |pairs: &[(&str, &str)]| facts(&pairs.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect());
        assert_eq!(of(&[("ro.build.version.sdk", "REL")]), None);
        let facts = of(&[
            ("ro.build.version.sdk", "34"),
            ("ro.product.cpu.abilist", "x86_64,arm64-v8a"),
            ("ro.product.cpu.abi", "x86_64"),
            ("ro.debuggable", "1"),
        ]);
        let facts = facts.unwrap();
        assert_eq!((facts.api, facts.abis), (34, vec!["x86_64".to_owned(), "arm64-v8a".to_owned()]));
        assert!(facts.debuggable && !facts.booted);
        let old = of(&[("ro.build.version.sdk", "19"), ("ro.product.cpu.abi", "armeabi-v7a")]).unwrap();
        assert_eq!(old.abis, ["armeabi-v7a"]);
    }
}
