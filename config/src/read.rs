//! Reads typed tables from the tree, and collects all mistakes.
//!
//! [`Read`] is implemented by values (`value/`), by tables (the [`table!`](crate::read::table)
//! macro) and by the usual containers. A failed read records why and returns `None`; the other fields
//! are still read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::diagnostic::{Diagnostic, Severity};
use crate::source::{Place, Source, Span};
use crate::value::env::{EnvProblem, interpolate};
use crate::yaml::{Kind, Node};

/// Looks up an environment variable.
pub(crate) type Env<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Context of a reader, and the mistakes that it found.
pub(crate) struct Reader<'a> {
    pub(crate) source: Arc<Source>,
    pub(crate) env: &'a Env<'a>,
    pub(crate) found: Vec<Diagnostic>,
    /// Keys from the root to the value being read, for messages.
    path: Vec<String>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(source: Arc<Source>, env: &'a Env<'a>) -> Self {
        Self { source, env, found: Vec::new(), path: Vec::new() }
    }

    /// Records a mistake; the returned value takes label, hint and context.
    pub(crate) fn error(&mut self, span: &Span, title: impl Into<String>) -> Report<'_> {
        let last = self.found.len();
        // Titles contain names from the file. Control characters are escaped, because a terminal would obey them.
        let show = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
        let title = title.into().chars().map(show).collect();
        self.found.push(Diagnostic {
            source: self.source.clone(),
            severity: Severity::Error,
            title,
            span: span.clone(),
            label: String::new(),
            context: None,
            hint: None,
        });
        Report(self.found.get_mut(last))
    }

    /// The mistakes, in the order of the file.
    pub(crate) fn finish(self) -> Vec<Diagnostic> {
        let mut found = self.found;
        found.sort_by(|a, b| (a.span.start, &a.title).cmp(&(b.span.start, &b.title)));
        found
    }

    pub(crate) fn place(&self, span: &Span) -> Place {
        self.source.place(span)
    }

    /// The current path, for messages: `measure.warm_up`, or `the file` at the root.
    fn here(&self) -> String {
        if self.path.is_empty() { "the file".to_owned() } else { format!("`{}`", self.path.join(".")) }
    }

    /// Does this part of the file have a mistake? If so, a value that is missing because of it is not reported again.
    pub(crate) fn has_error_below(&self, span: &Span) -> bool {
        self.found.iter().any(|found| span.contains(&found.span.start) || found.span == *span)
    }

    /// Reads `node` with `key` added to the path.
    pub(crate) fn inside<T>(&mut self, key: &str, read: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(key.to_owned());
        let result = read(self);
        self.path.pop();
        result
    }

    pub(crate) fn wrong_kind(&mut self, node: &Node, expected: &str, hint: Option<&str>) {
        let title = match node.kind {
            Kind::Null => format!("{} has no value", self.here()),
            _ => format!("{} must be {expected}", self.here()),
        };
        let label = format!("expected {expected}, found {}", node.kind.describe());
        self.error(&node.span, title).label(label).hint(hint.map(str::to_owned));
    }

    /// The pairs of a table with their names. A duplicate key, or one that is not a name, is a mistake. No value counts
    /// as an empty table.
    pub(crate) fn pairs<'n>(&mut self, node: &'n Node) -> Option<Vec<(At<String>, &'n Rc<Node>)>> {
        let pairs = match &node.kind {
            Kind::Null => return Some(Vec::new()),
            Kind::Mapping(pairs) => pairs,
            _ => {
                self.wrong_kind(node, "a table", Some("a table is `key: value` lines, or `{ key: value }`"));
                return None;
            }
        };
        let mut seen = BTreeMap::<&str, Span>::new();
        let mut named = Vec::with_capacity(pairs.len());
        for (key, value) in pairs {
            let Kind::Scalar(name) = &key.kind else {
                self.error(&key.span, "a key must be a name").label(format!("found {}", key.kind.describe()));
                continue;
            };
            if let Some(first) = seen.get(name.as_str()) {
                let first = first.clone();
                self.error(&key.span, format!("duplicate key `{name}`"))
                    .label("again here")
                    .context(&first, "first here")
                    .hint(Some("keep one of them: the other would be ignored"));
                continue;
            }
            seen.insert(name, key.span.clone());
            named.push((At { value: name.clone(), span: key.span.clone() }, value));
        }
        Some(named)
    }

    /// The fields of a table with fixed keys.
    pub(crate) fn fields<'n>(&mut self, node: &'n Node, known: &[&str]) -> Option<Fields<'n>> {
        let known = known.iter().map(|key| key.trim_start_matches("r#")).collect::<Vec<_>>();
        let mut fields = Fields { values: BTreeMap::new() };
        for (key, value) in self.pairs(node)? {
            if known.contains(&key.value.as_str()) {
                fields.values.insert(key.value, value);
            } else {
                let title = format!("unknown key `{}` in {}", key.value, self.here());
                self.unknown(&key.span, title, &key.value, &known);
            }
        }
        Some(fields)
    }

    /// Reports a name that is not in `known`, with the nearest known name, or else with all of them.
    pub(crate) fn unknown(&mut self, span: &Span, title: String, name: &str, known: &[&str]) {
        let near = nearest(name, known.iter().copied());
        let label = near.map_or_else(|| "not known".to_owned(), |near| format!("did you mean `{near}`?"));
        let hint =
            format!("known are {}", known.iter().map(|k| format!("`{k}`")).collect::<Vec<_>>().join(", "));
        self.error(span, title).label(label).hint(near.is_none().then_some(hint));
    }

    /// The text of a single value, with `${…}` filled in.
    pub(crate) fn text<'n>(&mut self, node: &'n Node, expected: &str) -> Option<Text<'n>> {
        let Kind::Scalar(raw) = &node.kind else {
            self.wrong_kind(node, expected, None);
            return None;
        };
        match interpolate(raw, self.env) {
            Ok(value) => Some(Text { raw, value }),
            Err(problem) => {
                self.env_problem(node, &problem);
                None
            }
        }
    }

    fn env_problem(&mut self, node: &Node, problem: &EnvProblem) {
        let source = self.source.clone();
        let written = source.text.get(node.span.clone()).unwrap_or("");
        let span = match written.find(problem.reference()) {
            Some(at) => node.span.start + at..node.span.start + at + problem.reference().len(),
            None => node.span.clone(),
        };
        let (title, label, hint) = problem.words();
        self.error(&span, title).label(label).hint(Some(hint));
    }

    /// Items of a list.
    pub(crate) fn items<'n>(&mut self, node: &'n Node, hint: Option<&str>) -> Option<&'n [Rc<Node>]> {
        match &node.kind {
            Kind::Null => Some(&[]),
            Kind::Sequence(items) => Some(items),
            _ => {
                self.wrong_kind(node, "a list", hint);
                None
            }
        }
    }
}

/// The mistake that was recorded last, to add details.
pub(crate) struct Report<'r>(Option<&'r mut Diagnostic>);

impl Report<'_> {
    pub(crate) fn label(mut self, label: impl Into<String>) -> Self {
        if let Some(diagnostic) = &mut self.0 {
            diagnostic.label = label.into();
        }
        self
    }

    pub(crate) fn context(mut self, span: &Span, label: impl Into<String>) -> Self {
        if let Some(diagnostic) = &mut self.0 {
            diagnostic.context = Some((span.clone(), label.into()));
        }
        self
    }

    pub(crate) fn hint(mut self, hint: Option<impl Into<String>>) {
        if let Some(diagnostic) = &mut self.0 {
            diagnostic.hint = hint.map(Into::into);
        }
    }
}

/// The name of `known` that is most similar to `name`; `None`: none is similar enough for a suggestion.
pub fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let name = name.to_lowercase();
    known
        .map(|candidate| {
            let lower = candidate.to_lowercase();
            let is_begun = name.len() >= SHORTEST_BEGINNING && lower.starts_with(&name);
            (is_begun, strsim::jaro_winkler(&name, &lower), candidate)
        })
        .filter(|(is_begun, score, _)| *is_begun || *score >= 0.82)
        .max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)))
        .map(|(_, _, candidate)| candidate)
}

/// Fewest bytes that tell a name by its beginning (`n1-e`).
const SHORTEST_BEGINNING: usize = 4;

/// The fields that a table contains.
pub(crate) struct Fields<'n> {
    values: BTreeMap<String, &'n Rc<Node>>,
}

impl Fields<'_> {
    pub(crate) fn take<T: Read>(&mut self, key: &str, reader: &mut Reader<'_>) -> Option<T> {
        let key = key.trim_start_matches("r#");
        let node = self.values.remove(key)?;
        if T::NOTHING_IS_ABSENT && matches!(node.kind, Kind::Null) {
            return None;
        }
        reader.inside(key, |reader| T::read(node, reader))
    }
}

/// The text of a value, as written and with `${…}` filled in.
pub(crate) struct Text<'n> {
    pub(crate) raw: &'n str,
    pub(crate) value: Cow<'n, str>,
}

/// Something that can be read from the tree.
pub(crate) trait Read: Sized {
    /// A list or table whose entries are all commented out counts as missing.
    const NOTHING_IS_ABSENT: bool = false;

    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self>;
}

/// A single value written as text.
pub(crate) trait Value: Sized {
    /// Name of the kind of value, with its article: `a size`.
    const WHAT: &'static str;
    /// How to write such a value.
    const HINT: &'static str;

    fn parse(text: &str) -> Result<Self, Fault>;
}

/// Why a text is not a valid value.
pub(crate) struct Fault {
    pub(crate) label: String,
    pub(crate) hint: Option<String>,
}

impl Fault {
    pub(crate) fn new(label: impl Into<String>) -> Self {
        Self { label: label.into(), hint: None }
    }
}

impl<T: Value> Read for T {
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        if matches!(node.kind, Kind::Sequence(_) | Kind::Mapping(_)) {
            reader.wrong_kind(node, T::WHAT, Some(T::HINT));
            return None;
        }
        let text = reader.text(node, T::WHAT)?;
        match T::parse(&text.value) {
            Ok(value) => Some(value),
            Err(fault) => {
                // A value from the environment may be a secret: neither it nor a label about it is shown.
                let filled_in = text.raw != text.value;
                let label =
                    if filled_in { "after its variables are filled in".to_owned() } else { fault.label };
                let title = format!("`{}` is not {}", shorten(text.raw), T::WHAT);
                let hint = fault.hint.filter(|_| !filled_in).unwrap_or_else(|| T::HINT.to_owned());
                reader.error(&node.span, title).label(label).hint(Some(hint));
                None
            }
        }
    }
}

/// Shortens a value for a message: its first line, 60 characters at most.
fn shorten(text: &str) -> String {
    let line = text.lines().next().unwrap_or("");
    if line.chars().count() > 60 || line.len() < text.trim_end().len() {
        format!("{}…", line.chars().take(60).collect::<String>())
    } else {
        line.to_owned()
    }
}

/// A value with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) span: Span,
}

impl<T: Read> Read for At<T> {
    const NOTHING_IS_ABSENT: bool = T::NOTHING_IS_ABSENT;

    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self { value: T::read(node, reader)?, span: node.span.clone() })
    }
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

impl<T: Read> Read for Vec<T> {
    const NOTHING_IS_ABSENT: bool = true;

    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        let items = reader.items(node, Some("a list is `[a, b]`, or one `- item` per line"))?;
        let read =
            |(at, item): (usize, &Rc<Node>)| reader.inside(&at.to_string(), |reader| T::read(item, reader));
        Some(items.iter().enumerate().filter_map(read).collect())
    }
}

/// A list, or a single value that counts as a list of one.
#[derive(Debug)]
pub(crate) struct OneOrMore<T>(pub(crate) Vec<T>);

impl<T: Read> Read for OneOrMore<T> {
    const NOTHING_IS_ABSENT: bool = true;

    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        match node.kind {
            Kind::Sequence(_) => Vec::read(node, reader).map(Self),
            _ => T::read(node, reader).map(|one| Self(vec![one])),
        }
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMore<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("OneOrMore{}", T::schema_name()).into()
    }

    /// The schema of one value, which also allows an array of such values.
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = T::json_schema(generator);
        let mut both = one.clone();
        let types = [one.get("type").cloned().unwrap_or_default(), "array".into()];
        both.insert("type".to_owned(), types.into_iter().collect());
        both.insert("items".to_owned(), one.to_value());
        both
    }
}

/// A table whose keys the user chooses, in the order of the file.
#[derive(Debug)]
pub(crate) struct Named<T>(pub(crate) Vec<(At<String>, T)>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Read> Read for Named<T> {
    const NOTHING_IS_ABSENT: bool = true;

    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        let mut named = Vec::new();
        for (key, value) in reader.pairs(node)? {
            if let Some(value) = reader.inside(&key.value, |reader| T::read(value, reader)) {
                named.push((key, value));
            }
        }
        Some(Self(named))
    }
}

impl<T: JsonSchema> JsonSchema for Named<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Named{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        <BTreeMap<String, T>>::json_schema(generator)
    }
}

/// Declares the type that mirrors a table of the file. Every field is optional in the type
/// (`Option<…>` is added). A required field is marked `#[schemars(required)]`, and the conversion to the checked type
/// checks it.
macro_rules! table {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Default, schemars::JsonSchema)]
        #[schemars(deny_unknown_fields)]
        pub(crate) struct $name {
            $($(#[$field_meta])* pub(crate) $field: Option<$type>,)*
        }

        impl crate::read::Read for $name {
            fn read(node: &crate::yaml::Node, reader: &mut crate::read::Reader<'_>) -> Option<Self> {
                let mut fields = reader.fields(node, &[$(stringify!($field)),*])?;
                Some(Self { $($field: fields.take(stringify!($field), reader),)* })
            }
        }
    };
}
pub(crate) use table;

/// Declares a value that is one of a few words.
macro_rules! choice {
    ($(#[$meta:meta])* $vis:vis enum $name:ident ($what:literal) { $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $name { $($(#[$variant_meta])* $variant,)* }

        impl $name {
            /// The word in the file.
            #[must_use]
            $vis const fn name(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl crate::read::Value for $name {
            const WHAT: &'static str = $what;
            const HINT: &'static str = concat!("write one of", $(" `", $word, "`",)*);

            fn parse(text: &str) -> Result<Self, crate::read::Fault> {
                let all = [$(Self::$variant),*];
                all.into_iter().find(|choice| choice.name() == text).ok_or_else(|| {
                    let near = crate::read::nearest(text, all.iter().map(|choice| choice.name()));
                    crate::read::Fault::new(match near {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => "not known".to_owned(),
                    })
                })
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": [$($word),*] })
            }
        }
    };
}
pub(crate) use choice;
