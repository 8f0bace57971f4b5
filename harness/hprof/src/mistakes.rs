//! Finds user rules that can never match in a dump: the class has no such field, or the field never has such a value.
//!
//! Data flow: rules of rules files whose class is in the dump → its fields, and the objects in them → a sentence for
//! each mistake. Built-in rules are for several versions of a library, so their fields may be missing. A class that is
//! not in the dump was not loaded; this is no mistake.

use std::collections::BTreeSet;

use crate::graph::{Graph, Kind};
use crate::ids::{index, number};
use crate::index::Index;
use crate::objects::{TRUTHS, is_truth};
use crate::read::REFERENCE;
use crate::rules::{Pattern, Rules, Test, Value};

/// Maximum number of existing fields that a message lists.
const MOST_NAMED: usize = 12;

/// The mistakes in the user's rules that this dump shows.
pub(crate) fn mistakes(dump: &Index, graph: &Graph, rules: &Rules) -> Vec<String> {
    let mut mistakes = Vec::new();
    for rule in rules.objects.iter().filter(|rule| rule.own) {
        let (Some(class), Test::Field { field, leaking, not_leaking }) = (&rule.class, &rule.test) else {
            continue;
        };
        let Some(kind) = field_of(dump, class, field) else { continue };
        let Some(kind) = kind else {
            mistakes.push(format!("the rule for `{class}` {}", unknown(dump, class, field, false)));
            continue;
        };
        let held = if kind == REFERENCE { held(dump, graph, class, field) } else { BTreeSet::new() };
        let impossible =
            leaking.iter().chain(not_leaking).filter(|value| !is_possible(dump, kind, value, &held));
        mistakes.extend(impossible.map(|value| {
            format!(
                "the rule for `{class}` waits for `{}`, which its field `{field}` never is: it is {}",
                value.text(),
                values_of(kind)
            )
        }));
    }
    for rule in rules.references.iter().filter(|rule| rule.own) {
        let (class, field, is_static) = match &rule.pattern {
            Pattern::Instance { class, field } => (class, field, false),
            Pattern::Static { class, field } => (class, field, true),
            Pattern::Thread(_) | Pattern::NativeGlobal(_) => continue,
        };
        let is_unknown = if is_static {
            let mut classes = dump.classes.iter().filter(|of| of.name == *class).peekable();
            classes.peek().is_some()
                && !classes.flat_map(|of| &of.statics).any(|of| dump.string(of.name) == Some(field.as_str()))
        } else {
            field_of(dump, class, field) == Some(None)
        };
        if is_unknown {
            mistakes.push(format!("the pattern `{}` {}", rule.text, unknown(dump, class, field, is_static)));
        }
    }
    mistakes
}

/// The type of a field, inherited ones included. `None`: the class is missing; `Some(None)`: it has no such field.
fn field_of(dump: &Index, class: &str, field: &str) -> Option<Option<u8>> {
    let mut classes = (0..dump.classes.len()).filter(|at| dump.classes[*at].name == class).peekable();
    classes.peek()?;
    let mut fields =
        classes.flat_map(|at| dump.hierarchy(number(at))).flat_map(|at| &dump.classes[index(at)].fields);
    Some(fields.find(|of| dump.string(of.name) == Some(field)).map(|of| of.kind))
}

fn unknown(dump: &Index, class: &str, field: &str, is_static: bool) -> String {
    let classes = || (0..dump.classes.len()).filter(|at| dump.classes[*at].name == class);
    let names: BTreeSet<&str> = if is_static {
        let statics = classes().flat_map(|at| &dump.classes[at].statics);
        statics.filter(|of| of.kind == REFERENCE).filter_map(|of| dump.string(of.name)).collect()
    } else {
        let all = classes().flat_map(|at| dump.hierarchy(number(at)));
        all.flat_map(|at| &dump.classes[index(at)].fields).filter_map(|of| dump.string(of.name)).collect()
    };
    let more = if names.len() > MOST_NAMED { ", …" } else { "" };
    let names: Vec<&str> = names.into_iter().take(MOST_NAMED).collect();
    let names = if names.is_empty() { "it has none".to_owned() } else { names.join(", ") + more };
    format!("names its field `{field}`, and the class in the dump has none of that name ({names})")
}

/// Classes of the objects in a field.
fn held(dump: &Index, graph: &Graph, class: &str, field: &str) -> BTreeSet<u32> {
    let held = graph.instances(dump, class).filter_map(|object| graph.field(dump, object, field));
    held.filter_map(|held| if let Kind::Of(class) = graph.kind(held) { Some(class) } else { None }).collect()
}

fn is_possible(dump: &Index, kind: u8, value: &Value, held: &BTreeSet<u32>) -> bool {
    let any = |is: &dyn Fn(u32) -> bool| held.is_empty() || held.iter().any(|class| is(*class));
    match (kind, value) {
        (REFERENCE, Value::Null | Value::Set) | (4, Value::True | Value::False) => true,
        (REFERENCE, Value::True | Value::False) => any(&|class| is_truth(&dump.classes[index(class)].name)),
        (REFERENCE, Value::Constant(name)) => any(&|class| {
            let mut statics = dump.hierarchy(class).flat_map(|class| &dump.classes[index(class)].statics);
            statics.any(|of| of.kind == REFERENCE && dump.string(of.name) == Some(name.as_str()))
        }),
        (5, Value::Number(value)) => u16::try_from(*value).is_ok(),
        (8, Value::Number(value)) => i8::try_from(*value).is_ok(),
        (9, Value::Number(value)) => i16::try_from(*value).is_ok(),
        (10, Value::Number(value)) => i32::try_from(*value).is_ok(),
        (11, Value::Number(_)) => true,
        _ => false,
    }
}

fn values_of(kind: u8) -> String {
    let range = |what: &str, least: i64, most: i64| format!("{what}, a number from {least} to {most}");
    match kind {
        4 => "a boolean, `true` or `false`".to_owned(),
        5 => range("a char", 0, i64::from(u16::MAX)),
        6 => "a float, and no rule reads those".to_owned(),
        7 => "a double, and no rule reads those".to_owned(),
        8 => range("a byte", i8::MIN.into(), i8::MAX.into()),
        9 => range("a short", i16::MIN.into(), i16::MAX.into()),
        10 => range("an int", i32::MIN.into(), i32::MAX.into()),
        11 => range("a long", i64::MIN, i64::MAX),
        _ => {
            let truths = TRUTHS.map(crate::text::simple_name).join(" or ");
            format!("a reference: `null`, `set`, a constant of its enum, `true` or `false` of a {truths}")
        }
    }
}
