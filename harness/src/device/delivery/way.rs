//! The ways to deliver the agent into an app, depending on the device.

use std::fmt;

/// How the runtime loads the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Every library in `code_cache/startup_agents` is loaded at each start of the app. Android 11 (API 30) and later.
    StartupAgents,
    /// `am set-agent-app`: loaded when the app's process starts. Android 10 (API 29) and later.
    AgentApp,
    /// `am attach-agent` to the running app, whose tests wait for it. Android 8 (API 26) and later.
    Attach,
    /// The test APK contains the library; the listener loads it.
    Packaged,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StartupAgents => "startup_agents",
            Self::AgentApp => "am set-agent-app",
            Self::Attach => "am attach-agent",
            Self::Packaged => "the library in the test APK",
        })
    }
}

impl Way {
    /// Whether the agent is loaded only if the tests' listener waits for it or loads it.
    #[must_use]
    pub const fn needs_listener(self) -> bool {
        matches!(self, Self::Attach | Self::Packaged)
    }
}

/// The ways that a device with this API level supports, best first.
#[must_use]
pub fn ways(api: u32) -> Vec<Way> {
    let all = [(30, Way::StartupAgents), (29, Way::AgentApp), (26, Way::Attach), (26, Way::Packaged)];
    all.into_iter().filter(|(least, _)| api >= *least).map(|(_, way)| way).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_depend_on_the_api_level() {
        use Way::{AgentApp, Attach, Packaged, StartupAgents};
        for (api, want) in [
            (36, vec![StartupAgents, AgentApp, Attach, Packaged]),
            (30, vec![StartupAgents, AgentApp, Attach, Packaged]),
            (29, vec![AgentApp, Attach, Packaged]),
            (26, vec![Attach, Packaged]),
            (25, vec![]),
        ] {
            assert_eq!(ways(api), want, "{api}");
        }
    }
}
