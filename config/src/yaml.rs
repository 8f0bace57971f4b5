//! The YAML parser: from text to a tree with positions.
//!
//! The events come from serde-saphyr's parser (the crate that the workspace calls `serde_yaml`). With its own tree,
//! memgate can check every table, while serde stops at the first mistake. Aliases share their node, and `<<` merges
//! tables. Size, depth and the number of nodes after expansion of aliases are limited, so that a small file cannot
//! expand without end.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use serde_yaml::granit_parser::{
    ErrorKind, Event, Options, Parser, ScalarStyle, ScanError, StructureStyle, Tag, options,
};

use crate::source::{Source, Span};

/// Limits far above any real configuration.
const MAX_BYTES: usize = 1 << 20;
const MAX_NODES: usize = 50_000;
const MAX_DEPTH: usize = 32;

/// A value with its position.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) kind: Kind,
    /// Is it written with brackets or braces?
    pub(crate) flow: bool,
    nodes: usize,
    depth: usize,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Null,
    Scalar(String),
    Sequence(Vec<Rc<Node>>),
    Mapping(Pairs),
}

/// Keys and values in the order of the file.
pub(crate) type Pairs = Vec<(Rc<Node>, Rc<Node>)>;

impl Kind {
    /// For messages: "found …".
    pub(crate) fn describe(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Scalar(_) => "a single value",
            Self::Sequence(_) => "a list",
            Self::Mapping(_) => "a table",
        }
    }
}

/// Why the text cannot be parsed.
#[derive(Debug)]
pub(crate) struct SyntaxError {
    pub(crate) span: Span,
    pub(crate) title: String,
    pub(crate) label: String,
    pub(crate) hint: Option<String>,
}

impl SyntaxError {
    fn new(span: Span, title: impl Into<String>, label: &str, hint: Option<&str>) -> Self {
        Self { span, title: title.into(), label: label.to_owned(), hint: hint.map(str::to_owned) }
    }
}

/// Parses one document; `None`: it has no values.
pub(crate) fn parse(source: &Source) -> Result<Option<Rc<Node>>, SyntaxError> {
    let text = source.text.as_str();
    if text.len() > MAX_BYTES {
        let title = format!("the file is larger than {} KiB", MAX_BYTES / 1024);
        return Err(SyntaxError::new(0..0, title, "", None));
    }
    if let Some(at) = text.find('\0') {
        let hint = Some("is this a text file?");
        return Err(SyntaxError::new(
            at..at + 1,
            "the file contains a NUL byte",
            "not allowed in YAML",
            hint,
        ));
    }
    let limits = options! { flow_nesting_limit: MAX_DEPTH, block_nesting_limit: MAX_DEPTH };
    Builder { text, open: Vec::new(), anchors: BTreeMap::new(), root: None }.run(limits)
}

struct Builder<'a> {
    text: &'a str,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Rc<Node>>,
    root: Option<Rc<Node>>,
}

/// A collection that is not closed yet.
struct Open {
    start: usize,
    anchor: usize,
    flow: bool,
    content: Content,
}

enum Content {
    Sequence(Vec<Rc<Node>>),
    Mapping { pairs: Pairs, key: Option<Rc<Node>> },
}

impl Builder<'_> {
    fn run(mut self, limits: Options) -> Result<Option<Rc<Node>>, SyntaxError> {
        let mut documents = 0;
        let text = self.text;
        for event in Parser::new_from_str_with_options(text, limits) {
            let (event, span) = event.map_err(|error| explain(text, &error))?;
            let span = span.byte_range().unwrap_or(0..0);
            match event {
                Event::DocumentStart(..) => {
                    documents += 1;
                    if documents > 1 {
                        let hint = Some("keep one of them: everything belongs into one table");
                        return Err(SyntaxError::new(
                            span,
                            "the file has two documents",
                            "the second begins here",
                            hint,
                        ));
                    }
                }
                Event::Alias(id) => {
                    let Some(node) = self.anchors.get(&id).cloned() else {
                        return Err(SyntaxError::new(
                            span,
                            "an alias refers to the value it is part of",
                            "",
                            None,
                        ));
                    };
                    self.add(node, &span)?;
                }
                Event::Scalar(value, style, anchor, tag) => {
                    let plain = style == ScalarStyle::Plain && tag.is_none();
                    check_tag(tag.as_deref(), &span)?;
                    let null = plain && matches!(value.as_ref(), "" | "~" | "null" | "Null" | "NULL");
                    let kind = if null { Kind::Null } else { Kind::Scalar(value.into_owned()) };
                    self.finish(kind, span, anchor, false)?;
                }
                Event::SequenceStart(style, anchor, tag) => {
                    self.begin(Content::Sequence(Vec::new()), style, anchor, tag.as_deref(), &span)?;
                }
                Event::MappingStart(style, anchor, tag) => {
                    let content = Content::Mapping { pairs: Vec::new(), key: None };
                    self.begin(content, style, anchor, tag.as_deref(), &span)?;
                }
                Event::SequenceEnd | Event::MappingEnd => {
                    let Some(Open { start, anchor, flow, content }) = self.open.pop() else { continue };
                    let kind = match content {
                        Content::Sequence(items) => Kind::Sequence(items),
                        Content::Mapping { pairs, .. } => Kind::Mapping(merge(pairs)?),
                    };
                    self.finish(kind, start..span.end.max(start), anchor, flow)?;
                }
                _ => {}
            }
        }
        Ok(self.root.filter(|root| !matches!(root.kind, Kind::Null)))
    }

    fn begin(
        &mut self,
        content: Content,
        style: StructureStyle,
        anchor: usize,
        tag: Option<&Tag>,
        span: &Span,
    ) -> Result<(), SyntaxError> {
        check_tag(tag, span)?;
        self.open.push(Open { start: span.start, anchor, flow: style == StructureStyle::Flow, content });
        Ok(())
    }

    fn finish(&mut self, kind: Kind, span: Span, anchor: usize, flow: bool) -> Result<(), SyntaxError> {
        let (nodes, depth) = match &kind {
            Kind::Null | Kind::Scalar(_) => (1, 1),
            Kind::Sequence(items) => weigh(items.iter()),
            Kind::Mapping(pairs) => weigh(pairs.iter().flat_map(|(key, value)| [key, value])),
        };
        let node = Rc::new(Node { span: span.clone(), kind, flow, nodes, depth });
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        self.add(node, &span)
    }

    fn add(&mut self, node: Rc<Node>, span: &Span) -> Result<(), SyntaxError> {
        if node.nodes > MAX_NODES {
            let title = format!("the file holds more than {MAX_NODES} values once its aliases are filled in");
            return Err(SyntaxError::new(span.clone(), title, "too much from here on", None));
        }
        if node.depth > MAX_DEPTH {
            return Err(too_deep(span.clone()));
        }
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(Content::Sequence(items)) => items.push(node),
            Some(Content::Mapping { pairs, key }) => match key.take() {
                None => *key = Some(node),
                Some(key) => pairs.push((key, node)),
            },
        }
        Ok(())
    }
}

fn weigh<'a>(children: impl Iterator<Item = &'a Rc<Node>>) -> (usize, usize) {
    children
        .fold((1, 1), |(nodes, depth), child| (nodes.saturating_add(child.nodes), depth.max(child.depth + 1)))
}

fn tab(text: &str, near: usize) -> SyntaxError {
    let line = text.get(..near).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
    let at = text.get(line..).and_then(|rest| rest.find('\t')).map_or(near, |column| line + column);
    let hint = Some("indent with spaces: YAML does not allow tabs there");
    SyntaxError::new(at..at + 1, "a tab in the indentation", "a tab", hint)
}

fn too_deep(span: Span) -> SyntaxError {
    SyntaxError::new(span, format!("the file nests deeper than {MAX_DEPTH} levels"), "too deep", None)
}

fn check_tag(tag: Option<&Tag>, span: &Span) -> Result<(), SyntaxError> {
    match tag {
        Some(tag) if tag.core_suffix() != Some("str") => {
            let hint = Some("write the value without it");
            Err(SyntaxError::new(span.clone(), "YAML tags (`!…`) mean nothing here", "tagged value", hint))
        }
        _ => Ok(()),
    }
}

/// Resolves `<<: *defaults`: adds the pairs of another table whose keys this table does not have.
fn merge(pairs: Pairs) -> Result<Pairs, SyntaxError> {
    let is_merge = |key: &Node| matches!(&key.kind, Kind::Scalar(text) if text == "<<");
    if !pairs.iter().any(|(key, _)| is_merge(key)) {
        return Ok(pairs);
    }
    let (merges, mut own): (Vec<_>, Vec<_>) = pairs.into_iter().partition(|(key, _)| is_merge(key));
    let name = |key: &Node| match &key.kind {
        Kind::Scalar(text) => Some(text.clone()),
        _ => None,
    };
    let mut known = own.iter().filter_map(|(key, _)| name(key)).collect::<BTreeSet<_>>();
    for (key, value) in merges {
        let tables = match &value.kind {
            Kind::Sequence(items) => items.clone(),
            _ => vec![value],
        };
        for table in tables {
            let Kind::Mapping(inherited) = &table.kind else {
                let title = "`<<` merges tables only";
                return Err(SyntaxError::new(key.span.clone(), title, "its value is no table", None));
            };
            for (key, value) in inherited {
                if name(key).is_none_or(|name| known.insert(name)) {
                    own.push((key.clone(), value.clone()));
                }
            }
        }
    }
    Ok(own)
}

/// Translates an error of the parser into a message with advice.
fn explain(text: &str, error: &ScanError) -> SyntaxError {
    let marker = error.marker();
    let at = marker
        .byte_offset()
        .unwrap_or_else(|| text.char_indices().nth(marker.index()).map_or(text.len(), |(at, _)| at))
        .min(text.len());
    let width =
        text.get(at..).and_then(|rest| rest.chars().next()).filter(|c| *c != '\n').map_or(0, char::len_utf8);
    let span = at..at + width;
    let brackets = "inside `[…]` and `{…}` a value that contains `{`, `[` or `,` needs quotes: `\"--count={n}\"`, `\"${HOME}\"`";
    let (title, label, hint) = match error.kind() {
        ErrorKind::UnclosedFlowCollection { open } => {
            (format!("`{open}` is never closed"), "opened here", Some("add the closing bracket"))
        }
        ErrorKind::UnexpectedEofFlowSequence => {
            ("`[` is never closed".to_owned(), "the file ends here", None)
        }
        ErrorKind::UnexpectedEofFlowMapping | ErrorKind::UnexpectedEofImplicitFlowMapping => {
            ("`{` is never closed".to_owned(), "the file ends here", None)
        }
        ErrorKind::MismatchedFlowCollectionEnd { open, close } => {
            (format!("`{open}` is closed by `{close}`"), "the wrong bracket", None)
        }
        ErrorKind::UnclosedQuotedScalar => ("a quoted text is never closed".to_owned(), "in this text", None),
        ErrorKind::InvalidQuotedScalarIndent => {
            let hint = "is the closing quote missing above?";
            ("a quoted text reaches into the next line".to_owned(), "still inside the quotes", Some(hint))
        }
        ErrorKind::ExpectedFlowSequenceSeparator => {
            ("expected `,` or `]`".to_owned(), "after this the list must go on", Some(brackets))
        }
        ErrorKind::ExpectedFlowMappingSeparator => {
            ("expected `,` or `}`".to_owned(), "after this the table must go on", Some(brackets))
        }
        ErrorKind::ExpectedBlockMappingKey => {
            let hint = "indent it like the keys it belongs to";
            ("this line fits no table above it".to_owned(), "expected a key", Some(hint))
        }
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabAtBlockScalarStart => return tab(text, at),
        ErrorKind::UnknownAnchor => {
            let hint = "`*name` refers to `&name` further up; quote a text that begins with `*`";
            ("an alias refers to nothing".to_owned(), "no anchor has this name", Some(hint))
        }
        ErrorKind::RecursionLimitExceeded => return too_deep(span),
        ErrorKind::UnexpectedCharacter { character } => (
            format!("a value cannot begin with `{}`", character.escape_default()),
            "here",
            Some("put the value in quotes"),
        ),
        ErrorKind::SimpleKeyExpected => (
            "this line is no `key: value`".to_owned(),
            "here",
            Some("write a colon and a space after the key"),
        ),
        other => (other.to_string(), "here", None),
    };
    SyntaxError::new(span, title, label, hint)
}
