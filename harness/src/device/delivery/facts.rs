//! An app on a device, as far as the agent's way into it depends on it.

use memgate_adb::{AdbError, Device, command, run_as};

/// An app that may be entered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct App {
    /// Its package.
    pub package: String,
    /// The user it runs as, where that is not the first.
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

/// Why an app cannot be entered.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The device does not answer.
    #[error(transparent)]
    Adb(#[from] AdbError),
    /// `run-as` refuses.
    #[error("enter the app {package}: {said}")]
    Refused {
        /// Which.
        package: String,
        /// In the device's words.
        said: String,
    },
    /// The agent's libraries do not fit.
    #[error("enter the app {package}: the device says nothing of its ABI")]
    NoAbi {
        /// Which.
        package: String,
    },
}

impl AppError {
    /// What to do; may be empty.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Adb(error) => error.hint(),
            Self::Refused { said, .. } if said.contains("not debuggable") => {
                "only a debuggable build can be measured: the build type `debug`, or `isDebuggable = true` in another".to_owned()
            }
            Self::Refused { said, .. } if said.contains("unknown package") => "is the app installed, and for this user?".to_owned(),
            Self::Refused { .. } => "some devices switch run-as off: use an emulator, or another device".to_owned(),
            Self::NoAbi { .. } => String::new(),
        }
    }
}

/// The user whose apps are run; `None`: the first, as on every phone with one. A car's is another.
///
/// # Errors
/// The device is lost.
pub async fn current_user(device: &Device) -> Result<Option<u32>, AdbError> {
    let told = device.shell("am get-current-user").await?;
    Ok(told.text().parse().ok().filter(|user| *user != 0))
}

/// Looks at the app `package`. `abis` are the device's, the best first.
///
/// # Errors
/// It is not there, not debuggable, or the device is lost.
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

/// `primaryCpuAbi=x86_64`; `null`: an app without native code, which runs as the device's best ABI.
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
        assert!(refused("run-as: unknown package: io.x").hint().contains("installed"));
        assert!(refused("run-as is disabled from the kernel commandline").hint().contains("emulator"));
    }
}
