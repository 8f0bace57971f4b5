//! When a message about a run is sent.

use crate::read::choice;

choice! {
    /// When a message is sent.
    pub enum When ("a time to send") {
        /// After every run.
        Always = "always",
        /// If the run did not pass.
        Failed = "failed",
        /// If a leak is new or gone, or the verdict has changed.
        Changed = "changed",
    }
}
