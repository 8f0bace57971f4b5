//! When somebody is told of a run.

use crate::read::choice;

choice! {
    /// When somebody is told.
    pub enum When ("a time to send") {
        /// After every run.
        Always = "always",
        /// When the run is not a pass.
        Failed = "failed",
        /// When a leak is new or gone, or the verdict is another.
        Changed = "changed",
    }
}
