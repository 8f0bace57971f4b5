//! Facts of an app on a device that matter for delivering the agent.

use memgate_adb::{AdbError, Device, command, run_as};

/// An app into which the agent can be delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct App {
    /// Its package.
    pub package: String,
    /// Its Android user, if it is not the first.
    pub user: Option<u32>,
    /// The ABI of its process.
    pub abi: String,
}

impl App {
    /// Its data folder.
    #[must_use]
    pub fn data_folder(&self) -> String {
        format!("/data/user/{}/{}", self.user.unwrap_or(0), self.package)
    }
}

/// Why the agent cannot be delivered into an app.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The device does not answer.
    #[error(transparent)]
    Adb(#[from] AdbError),
    /// `run-as` refused.
    #[error("enter the app {package}: {said}")]
    Refused {
        /// The package.
        package: String,
        /// The device's message.
        said: String,
    },
    /// The ABI, which selects the agent's library, is unknown.
    #[error("enter the app {package}: the device says nothing of its ABI")]
    NoAbi {
        /// The package.
        package: String,
    },
}

impl AppError {
    /// Advice; may be empty.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Adb(error) => error.hint(),
            Self::Refused { said, .. } if said.contains("not debuggable") => {
                "only a debuggable build can be measured: the build type `debug`, or `isDebuggable = true` in another".to_owned()
            }
            Self::Refused { said, .. } if said.contains("unknown package") || said.contains("couldn't stat") => {
                "is the app installed, and for the device's current user (`am get-current-user`)?".to_owned()
            }
            Self::Refused { .. } => "some devices switch run-as off: use an emulator, another device, or an agent that writes files (`memgate docs android`, \"Without adb\")".to_owned(),
            Self::NoAbi { .. } => String::new(),
        }
    }
}

/// The current user, whose apps run; `None`: the first, as on every phone with only one. On a car it is another.
///
/// # Errors
/// When the device is lost.
pub async fn current_user(device: &Device) -> Result<Option<u32>, AdbError> {
    let told = device.shell("am get-current-user").await?;
    Ok(told.text().parse().ok().filter(|user| *user != 0))
}

/// Looks up the app `package`. `abis` are those of the device, the best first.
///
/// # Errors
/// When it is not installed or not debuggable, or the device is lost.
pub async fn app(
    device: &Device,
    package: &str,
    user: Option<u32>,
    abis: &[String],
) -> Result<App, AppError> {
    let told = device.shell(&run_as(package, user, &["id"])).await?;
    if told.exit != 0 {
        let said = [told.stdout.as_slice(), &told.stderr].concat();
        let said = String::from_utf8_lossy(&said).trim().to_owned();
        return Err(AppError::Refused { package: package.to_owned(), said });
    }
    let dump = device.shell(&command(&["dumpsys", "package", package])).await?;
    let primary = primary_abi(&dump.text());
    let abi = primary.or_else(|| abis.first().cloned());
    let abi = abi.ok_or_else(|| AppError::NoAbi { package: package.to_owned() })?;
    Ok(App { package: package.to_owned(), user, abi })
}

/// `primaryCpuAbi=x86_64`; `null`: an app without native code, which runs with the device's best ABI.
fn primary_abi(dump: &str) -> Option<String> {
    let value = dump.lines().find_map(|line| line.trim().strip_prefix("primaryCpuAbi="))?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    (value != "null" && !value.is_empty() && value.chars().all(plain)).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_abi_of_the_process_counts() {
        let dump = |abi: &str| {
            format!("Packages:\n  Package [io.x]:\n    primaryCpuAbi={abi}\n    secondaryCpuAbi=null\n")
        };
        assert_eq!(primary_abi(&dump("arm64-v8a")).unwrap(), "arm64-v8a");
        for none in ["null", "", "a/../b"] {
            assert_eq!(primary_abi(&dump(none)), None, "{none}");
        }
        assert_eq!(primary_abi("no such package"), None);
    }

    #[test]
    fn every_refusal_says_what_to_do() {
        let refused = |said: &str| AppError::Refused { package: "io.x".into(), said: said.into() };
        assert!(refused("run-as: package not debuggable: io.x").hint().contains("debuggable"));
        for said in
            ["run-as: unknown package: io.x", "run-as: couldn't stat /data/user/10/io.x: No such file"]
        {
            assert!(refused(said).hint().contains("current user"), "{said}");
        }
        assert!(refused("run-as is disabled from the kernel commandline").hint().contains("emulator"));
    }
}
