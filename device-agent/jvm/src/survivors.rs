//! Objects whose holders are searched.

use std::collections::BTreeMap;

use jni::objects::JObject;

/// The survivors that a search found.
#[derive(Default)]
pub(crate) struct Survivors<'l> {
    /// A limited number of instances per class.
    pub(crate) instances: Vec<JObject<'l>>,
    /// How many there are, by class.
    pub(crate) counts: BTreeMap<String, u64>,
}
