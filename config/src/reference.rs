//! The reference page, written from the JSON Schema: what the editor shows and what the page says
//! cannot differ.

use serde_json::Value;

use crate::schema;

const HEAD: &str = "\
# memgate.yaml

Written by `UPDATE_SCHEMA=1 cargo test -p memgate-config` from the types that read the file; do not edit.

Sizes are bytes or a number with `KiB`, `MiB`, `GiB` (powers of 1024) or `kB`, `MB`, `GB` (powers of 1000). Durations are
`250ms`, `60s`, `5m`, `1h`. Dates are `2027-03-01`. In patterns `*` is any text and `?` one character.

In every value `${NAME}` stands for a variable of the environment and `${NAME:-default}` for one that may be missing; `$$` is
a dollar sign. Anchors (`&a`, `*a`) and merges (`<<: *a`) work.
";

/// The page as Markdown: the text of `config/REFERENCE.md`.
#[must_use]
pub fn reference() -> String {
    let root = schema::tree();
    let mut page = HEAD.to_owned();
    section(&mut page, &root, "", &root);
    page
}

/// One table, then the tables in it.
fn section(page: &mut String, root: &Value, path: &str, table: &Value) {
    let properties = object(table, "properties");
    let title = if path.is_empty() { "The file" } else { path };
    let tick = if path.is_empty() { "" } else { "`" };
    write_line(page, &format!("\n## {tick}{title}{tick}\n"));
    if let Some(description) = text(table, "description") {
        write_line(page, &format!("{description}\n"));
    }
    write_line(page, "| key | value | default | |\n|---|---|---|---|");
    let required = |key: &str| {
        table.get("required").and_then(Value::as_array).is_some_and(|keys| keys.iter().any(|k| k == key))
    };
    for (key, property) in &properties {
        let default = match property.get("default") {
            Some(Value::String(text)) => format!("`{text}`"),
            Some(value) if !value.is_null() => format!("`{value}`"),
            _ if required(key) => "required".to_owned(),
            _ => String::new(),
        };
        let description =
            text(property, "description").or_else(|| text(resolve(root, property), "description"));
        let description = description.unwrap_or_default().replace('\n', " ");
        write_line(page, &format!("| `{key}` | {} | {default} | {description} |", kind(root, property)));
    }
    for (key, property) in &properties {
        let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        if let Some((suffix, inner)) = inner_table(root, property) {
            section(page, root, &format!("{below}{suffix}"), inner);
        }
    }
    let any_limit = properties.iter().find_map(|(_, property)| limit_table(root, property));
    if let Some(limit) = any_limit.filter(|_| path == "thresholds") {
        section(page, root, "thresholds.METRIC", limit);
    }
}

/// The table a property holds: itself, or what its list or its names contain.
fn inner_table<'s>(root: &'s Value, property: &'s Value) -> Option<(&'static str, &'s Value)> {
    let schema = resolve(root, property);
    if schema.get("properties").is_some() {
        return Some(("", schema));
    }
    let item = schema.get("items").map(|item| ("[]", resolve(root, item)));
    let named = schema.get("additionalProperties").map(|named| (".NAME", resolve(root, named)));
    item.or(named).filter(|(_, inner)| inner.get("properties").is_some())
}

/// The long form of a threshold, one of several a metric may have.
fn limit_table<'s>(root: &'s Value, property: &'s Value) -> Option<&'s Value> {
    let forms = property.get("anyOf")?.as_array()?;
    forms.iter().map(|form| resolve(root, form)).find(|form| form.get("properties").is_some())
}

/// What may be written, in a few words.
fn kind(root: &Value, property: &Value) -> String {
    let schema = resolve(root, property);
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        let words = words.iter().filter_map(Value::as_str).map(|word| format!("`{word}`"));
        return words.collect::<Vec<_>>().join(", ");
    }
    let forms = property.get("anyOf").and_then(Value::as_array);
    if forms.is_some_and(|forms| forms.iter().any(|form| form.get("const").is_some())) {
        return "limit, `off` or table".to_owned();
    }
    if let Some(item) = schema.get("items") {
        let kind = kind(root, item);
        let types = schema.get("type").and_then(Value::as_array);
        let or_one = types.is_some_and(|types| types.iter().any(|name| name == "string"));
        return match kind.as_str() {
            "table" => "list of tables".to_owned(),
            _ if or_one => format!("{kind}, or list of {kind}"),
            _ => format!("list of {kind}"),
        };
    }
    if schema.get("properties").is_some() || schema.get("additionalProperties").is_some() {
        return "table".to_owned();
    }
    if let Some(value) = schema.get("const") {
        return format!("`{value}`");
    }
    if let Some(examples) = schema.get("examples").and_then(Value::as_array) {
        let examples = examples.iter().map(|example| match example {
            Value::String(text) => format!("`{text}`"),
            other => format!("`{other}`"),
        });
        return examples.collect::<Vec<_>>().join(", ");
    }
    match schema.get("type") {
        Some(Value::String(name)) if name == "string" => "text".to_owned(),
        Some(Value::Array(names)) if names.iter().any(|name| name == "integer") => "number".to_owned(),
        Some(_) => "text".to_owned(),
        None => "anything".to_owned(),
    }
}

/// Follows `$ref` and looks through `anyOf: [{$ref}, null]`.
fn resolve<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    let through_null =
        schema.get("anyOf").and_then(Value::as_array).and_then(|forms| match forms.as_slice() {
            [form, null] if text(null, "type").as_deref() == Some("null") => Some(form),
            _ => None,
        });
    let all_of = schema.get("allOf").and_then(Value::as_array).and_then(|forms| forms.first());
    let schema = through_null.or(all_of).unwrap_or(schema);
    let target = schema
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|path| root.pointer(path.trim_start_matches('#')));
    target.unwrap_or(schema)
}

fn object(schema: &Value, key: &str) -> Vec<(String, Value)> {
    let entries = schema.get(key).and_then(Value::as_object);
    entries.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn text(schema: &Value, key: &str) -> Option<String> {
    schema.get(key).and_then(Value::as_str).map(str::to_owned)
}

fn write_line(page: &mut String, line: &str) {
    page.push_str(line);
    page.push('\n');
}

#[cfg(test)]
mod tests {
    use crate::test_support::assert_committed;

    #[test]
    fn the_committed_page_is_up_to_date() {
        assert_committed("REFERENCE.md", &super::reference());
    }
}
