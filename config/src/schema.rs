//! The JSON Schema of `memgate.yaml`, for editors.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::config::ConfigFile;

/// The schema as the text of `config/memgate.schema.json`.
#[must_use]
pub fn schema() -> String {
    format!("{:#}\n", tree())
}

pub(crate) fn tree() -> Value {
    let mut generator = SchemaSettings::draft07().into_generator();
    let mut schema = generator.root_schema_for::<ConfigFile>();
    schema.insert("title".to_owned(), "memgate.yaml".into());
    let mut tree = schema.to_value();
    forbid_empty_values(&mut tree);
    tree
}

/// The generated schema allows `null` for optional fields. In the file a table or list may be empty, a single value may
/// not.
fn forbid_empty_values(schema: &mut Value) {
    match schema {
        Value::Object(entries) => {
            if let Some(Value::Array(types)) = entries.get_mut("type")
                && !types.iter().any(|name| name == "object" || name == "array")
            {
                types.retain(|name| name != "null");
            }
            if let Some(Value::Array(words)) = entries.get_mut("enum") {
                words.retain(|word| !word.is_null());
            }
            entries.values_mut().for_each(forbid_empty_values);
        }
        Value::Array(items) => items.iter_mut().for_each(forbid_empty_values),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::test_support::assert_committed;

    #[test]
    fn the_committed_schema_is_up_to_date() {
        assert_committed("memgate.schema.json", &super::schema());
    }
}
