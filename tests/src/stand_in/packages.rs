//! Installed apps.

/// First user id that Android gives to an app.
const FIRST_UID: u32 = 10_000;

/// An installed app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// `com.example.tiles`.
    pub name: String,
    /// Is it debuggable?
    pub debuggable: bool,
    /// The instruction set of its process; `None` if it has no native code.
    pub abi: Option<String>,
    /// Its instrumentations: runner class and tested app.
    pub instrumentations: Vec<(String, String)>,
}

impl Package {
    /// A debuggable app.
    #[must_use]
    pub fn app(name: &str) -> Self {
        Self { name: name.to_owned(), debuggable: true, abi: None, instrumentations: Vec::new() }
    }

    /// An app that contains tests of another app.
    #[must_use]
    pub fn test(name: &str, runner: &str, target: &str) -> Self {
        Self { instrumentations: vec![(runner.to_owned(), target.to_owned())], ..Self::app(name) }
    }

    /// Turns it into a release build.
    #[must_use]
    pub fn not_debuggable(self) -> Self {
        Self { debuggable: false, ..self }
    }

    /// Adds native code for this instruction set.
    #[must_use]
    pub fn with_abi(self, abi: &str) -> Self {
        Self { abi: Some(abi.to_owned()), ..self }
    }

    /// The output of `dumpsys package`.
    pub(super) fn dump(&self, uid: u32) -> String {
        let flags = if self.debuggable {
            "DEBUGGABLE HAS_CODE ALLOW_CLEAR_USER_DATA"
        } else {
            "HAS_CODE ALLOW_CLEAR_USER_DATA"
        };
        let Self { name, abi, .. } = self;
        let abi = abi.as_deref().unwrap_or("null");
        format!(
            "Packages:\n  Package [{name}] (1a2b3c):\n    userId={uid}\n    pkg=Package{{4d5e6f {name}}}\n    codePath=/data/app/~~memgate==/{name}-1\n    \
             primaryCpuAbi={abi}\n    secondaryCpuAbi=null\n    versionCode=1 minSdk=26 targetSdk=34\n    flags=[ {flags} ]\n    dataDir=/data/user/0/{name}\n"
        )
    }
}

/// The user id of the n-th app.
pub(super) fn uid(index: usize) -> u32 {
    FIRST_UID + 100 + u32::try_from(index).unwrap_or(0)
}
