//! Values written as text: sizes, durations, dates, globs. Each type has its parser, its JSON Schema, and a table of
//! valid and invalid texts as its test.

pub(crate) mod amount;
pub(crate) mod date;
pub(crate) mod duration;
pub(crate) mod env;
pub(crate) mod glob;
pub(crate) mod number;
pub(crate) mod size;
pub(crate) mod text;
pub(crate) mod variable;

/// `JsonSchema` of a value type, written in place.
macro_rules! value_schema {
    ($name:ty, $title:literal, $($json:tt)+) => {
        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                $title.into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!($($json)+)
            }
        }
    };
}
pub(crate) use value_schema;
