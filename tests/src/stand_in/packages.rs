//! Installed apps.

/// First user id that Android gives to an app.
const FIRST_UID: u32 = 10_000;

/// An installed app, debuggable and without native code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// `com.example.tiles`.
    pub name: String,
    /// Its instrumentations: runner class and tested app.
    pub instrumentations: Vec<(String, String)>,
}

impl Package {
    /// An app without tests.
    #[must_use]
    pub fn app(name: &str) -> Self {
        Self { name: name.to_owned(), instrumentations: Vec::new() }
    }

    /// An app that contains tests of another app.
    #[must_use]
    pub fn test(name: &str, runner: &str, target: &str) -> Self {
        Self { instrumentations: vec![(runner.to_owned(), target.to_owned())], ..Self::app(name) }
    }

    /// The output of `dumpsys package`.
    pub(super) fn dump(&self, uid: u32) -> String {
        let name = &self.name;
        format!(
            "Packages:\n  Package [{name}] (1a2b3c):\n    userId={uid}\n    pkg=Package{{4d5e6f {name}}}\n    codePath=/data/app/~~memgate==/{name}-1\n    \
             primaryCpuAbi=null\n    secondaryCpuAbi=null\n    versionCode=1 minSdk=26 targetSdk=34\n    flags=[ DEBUGGABLE HAS_CODE ALLOW_CLEAR_USER_DATA ]\n    dataDir=/data/user/0/{name}\n"
        )
    }
}

/// The user id of the n-th app.
pub(super) fn uid(index: usize) -> u32 {
    FIRST_UID + 100 + u32::try_from(index).unwrap_or(0)
}
