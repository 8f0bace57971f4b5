//! The differences between the platforms: where options come from, and the name of the process.

#[cfg(target_os = "android")]
mod android;
#[cfg(not(target_os = "android"))]
mod linux;
#[cfg(any(target_os = "android", test))]
mod places;

use memgate_wire::options::Options;

#[cfg(target_os = "android")]
use android as here;
#[cfg(not(target_os = "android"))]
use linux as here;

pub(crate) use here::{ABI, RUNTIME_OF_JAVA, may_speak};
pub use here::{complete, leave_environment, options_at_load, options_of};

/// The options of this text. Options that this build of the agent does not use count as not understood.
#[must_use]
pub fn parse(text: &str) -> Options {
    let is_known = |key: &str| match key {
        "starts" | "end_of_main" => cfg!(not(target_os = "android")),
        "crosscheck" => cfg!(feature = "crosscheck"),
        _ => true,
    };
    // No other process may read the figures of an app's process.
    Options { os: cfg!(target_os = "android"), ..Options::default() }.parse_known(text, is_known)
}

#[cfg(test)]
mod tests {
    use memgate_wire::options::EndOfMain;

    #[test]
    fn an_option_that_does_nothing_here_is_complained_about() {
        let options = super::parse("starts=/x;end_of_main=of_the_test;crosscheck=0");
        let told: &[&str] =
            if cfg!(feature = "crosscheck") { &[] } else { &["option `crosscheck` was not understood"] };
        assert_eq!((options.starts.as_str(), options.end_of_main), ("/x", EndOfMain::OfTheTest));
        assert_eq!(options.complaints, told);
    }
}
