//! Objects whose holders are searched.

use std::collections::BTreeMap;

use jni::objects::JObject;

/// What survived a survivor search.
#[derive(Default)]
pub(crate) struct Survivors<'l> {
    /// At most so many per class.
    pub(crate) instances: Vec<JObject<'l>>,
    /// How many there are, by class.
    pub(crate) counts: BTreeMap<String, u64>,
}
