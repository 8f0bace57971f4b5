//! How the hello reports that native allocations are sampled: a capability with the mean bytes between two samples.
//!
//! With sampling, snapshots contain only noted allocations, and counters are estimates.

use alloc::format;
use alloc::string::String;

use crate::capability::NATIVE_SAMPLED;

/// The capability of a process that notes one byte in this many.
#[must_use]
pub fn capability(interval: u64) -> String {
    format!("{NATIVE_SAMPLED}{interval}")
}

/// Mean bytes between two samples, from a process's capabilities; `None`: everything is recorded.
#[must_use]
pub fn interval(capabilities: &[String]) -> Option<u64> {
    let told = capabilities.iter().find_map(|it| it.strip_prefix(NATIVE_SAMPLED))?;
    // An unreadable number must not turn samples into complete records.
    Some(told.parse().unwrap_or(u64::MAX)).filter(|interval| *interval != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;

    #[test]
    fn what_is_told_is_understood() {
        let told = ["native.live".to_owned(), capability(524_288)];
        assert_eq!(interval(&told), Some(524_288));
        assert_eq!(interval(&told[..1]), None);
        assert_eq!(interval(&["native.sampled=many".to_owned()]), Some(u64::MAX));
    }
}
