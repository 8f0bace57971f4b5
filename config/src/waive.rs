//! Adds a waiver to the waivers file, as text: comments and hand-written entries stay as they are.
//!
//! It finds the place in the parsed tree, inserts the new entry there, and parses the result again before it returns
//! it.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Diagnostics, Severity};
use crate::edit::{dash_indent, get, last_byte, line_end, printable, quote};
use crate::read::Value as _;
use crate::source::{Source, Span};
use crate::value::date::Until;
use crate::value::glob::TestGlob;
use crate::value::text::LeakId;
use crate::yaml::{self, Kind, Node};

const HEADER: &str = "\
# Leaks that are accepted for a time. `memgate waive` adds to the end; edit freely.
version: 1
";

/// A waiver to add.
#[derive(Debug, Clone, PartialEq)]
pub struct NewWaiver {
    /// Id of the leak.
    pub leak: String,
    /// The tests that it is limited to, as a pattern.
    pub test: Option<String>,
    /// The most that it accepts: bytes, or a number of descriptors or threads. `None`: any amount.
    pub up_to: Option<f64>,
    /// Reason for accepting it.
    pub reason: String,
    /// Owner of the leak.
    pub owner: Option<String>,
    /// How long it applies.
    pub until: Until,
    /// Description of the leak, for a comment above the entry.
    pub comment: Option<String>,
}

/// Why a waiver cannot be added.
#[derive(Debug)]
pub enum WaiveError {
    /// The file is not valid YAML.
    Broken(Diagnostics),
    /// The leak is waived already, at this line.
    Known {
        /// Line in the waivers file.
        line: usize,
    },
    /// The text is not the id of a leak.
    NotALeak(String),
    /// No reason was given.
    NoReason,
    /// The pattern of tests is not valid.
    NotATest(String),
    /// The file is YAML, but laid out so that nothing can be added to it.
    Layout,
}

impl fmt::Display for WaiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(diagnostics) => diagnostics.fmt(f),
            Self::Known { line } => {
                write!(f, "the leak is waived already (line {line})\nhint: change the date there")
            }
            Self::NotALeak(id) => write!(f, "`{}` is not {}\nhint: {}", id.escape_debug(), LeakId::WHAT, LeakId::HINT),
            Self::NotATest(why) => write!(f, "the pattern of tests is wrong: {why}\nhint: {}", TestGlob::HINT),
            Self::NoReason => f.write_str("a waiver needs a reason\nhint: say why the leak is accepted: --reason \"…\""),
            Self::Layout => f.write_str(
                "nothing can be added to the waivers file\nhint: give it a table with `waivers:` and one `- leak: …` per entry",
            ),
        }
    }
}

impl std::error::Error for WaiveError {}

/// The text of the waivers file with one more entry at its end.
///
/// # Errors
/// Nothing can be added to the file, the leak is waived already, or the waiver itself is incomplete.
pub fn append_waiver(existing: &str, file_name: &str, waiver: &NewWaiver) -> Result<String, WaiveError> {
    if LeakId::parse(&waiver.leak).is_err() {
        return Err(WaiveError::NotALeak(waiver.leak.clone()));
    }
    if printable(&waiver.reason).is_empty() {
        return Err(WaiveError::NoReason);
    }
    if let Some(Err(why)) = waiver.test.as_deref().map(TestGlob::parse) {
        return Err(WaiveError::NotATest(why.label));
    }
    let source = Source::new(file_name, existing);
    let root = parse(&source)?;
    let known = root.as_deref().map(leaks).unwrap_or_default();
    let named = (waiver.leak.clone(), waiver.test.clone());
    if let Some((_, span)) =
        known.iter().find(|(known, _)| known.0 == named.0 && (known.1.is_none() || *known == named))
    {
        return Err(WaiveError::Known { line: source.line(span.start) });
    }
    let insertion = place(existing, root.as_deref(), waiver).ok_or(WaiveError::Layout)?;
    let newline = if existing.contains("\r\n") { "\r\n" } else { "\n" };
    let Insertion { replaced, text } = insertion;
    let before = existing.get(..replaced.start).ok_or(WaiveError::Layout)?;
    let after = existing.get(replaced.end..).ok_or(WaiveError::Layout)?;
    let result = format!("{before}{}{after}", text.replace('\n', newline));
    let added = parse(&Source::new(file_name, &result)).ok().flatten();
    let added = added.as_deref().map(leaks).unwrap_or_default();
    let expected = known.iter().map(|(known, _)| known).chain([&named]);
    if added.iter().map(|(added, _)| added).eq(expected) { Ok(result) } else { Err(WaiveError::Layout) }
}

/// The text of the waivers file, or of a configuration, with another date for the waiver of this leak in these tests,
/// and with another limit (`up_to`), if it is given.
///
/// # Errors
/// Its date or limit cannot be found or replaced, or other waivers share it (an anchor).
pub fn extend_waiver(
    existing: &str,
    file_name: &str,
    (leak, test): (&str, Option<&str>),
    until: Until,
    up_to: Option<f64>,
) -> Result<String, WaiveError> {
    let named = (leak.to_owned(), test.map(str::to_owned));
    let text = replace(existing, file_name, &named, "until", &until.to_string())?;
    match up_to {
        Some(up_to) => replace(&text, file_name, &named, "up_to", &limit(leak, up_to)),
        None => Ok(text),
    }
}

/// The text with another value for this key of a waiver.
fn replace(
    existing: &str,
    file_name: &str,
    named: &Named,
    key: &'static str,
    value: &str,
) -> Result<String, WaiveError> {
    let root = parse(&Source::new(file_name, existing))?.ok_or(WaiveError::Layout)?;
    let found = waivers(&root, key).into_iter().find(|(waiver, ..)| waiver == named);
    let old = found.and_then(|(.., old)| old).ok_or(WaiveError::Layout)?;
    let before = existing.get(..old.start).ok_or(WaiveError::Layout)?;
    let after = existing.get(old.end..).ok_or(WaiveError::Layout)?;
    let result = format!("{before}{value}{after}");
    let changed = parse(&Source::new(file_name, &result)).ok().flatten().ok_or(WaiveError::Layout)?;
    let [old, new] = [&root, &changed].map(|root| leaks(root).into_iter().map(|(named, _)| named));
    if new.eq(old) { Ok(result) } else { Err(WaiveError::Layout) }
}

fn parse(source: &Source) -> Result<Option<Rc<Node>>, WaiveError> {
    yaml::parse(source).map_err(|error| {
        let source = Arc::new(Source::new(&source.name, &source.text));
        let yaml::SyntaxError { span, title, label, hint } = error;
        let diagnostic =
            Diagnostic { source, severity: Severity::Error, title, span, label, context: None, hint };
        WaiveError::Broken(Diagnostics::new(vec![diagnostic]))
    })
}

/// A leak and the tests in which it is waived, as written.
type Named = (String, Option<String>);

/// Every `leak` of the file with its `test` and its position.
fn leaks(root: &Node) -> Vec<(Named, Span)> {
    waivers(root, "until").into_iter().map(|(named, leak, _)| (named, leak)).collect()
}

/// Every `leak` of the file with its `test`, its position, and that of the value of `key`.
fn waivers(root: &Node, key: &'static str) -> Vec<(Named, Span, Option<Span>)> {
    let Some(Kind::Sequence(items)) = get(root, "waivers").map(|(_, waivers)| &waivers.kind) else {
        return Vec::new();
    };
    let text = |item: &Rc<Node>, key| match get(item, key)?.1 {
        // As the parser reads it: `$$` is a dollar sign.
        Node { kind: Kind::Scalar(text), span, .. } => Some((text.replace("$$", "$"), span.clone())),
        _ => None,
    };
    let leak = |item: &Rc<Node>| {
        let (leak, span) = text(item, "leak")?;
        // A value that several waivers share (an anchor) belongs to none of them alone.
        let is_own = |at: &Span| {
            items.iter().filter(|item| text(item, key).is_some_and(|(_, of)| of == *at)).count() == 1
        };
        let value = text(item, key).map(|(_, value)| value).filter(is_own);
        Some(((leak, text(item, "test").map(|(test, _)| test)), span, value))
    };
    items.iter().filter_map(leak).collect()
}

struct Insertion {
    replaced: Span,
    text: String,
}

/// Position and text of the new entry; `None`: it cannot be added.
fn place(existing: &str, root: Option<&Node>, waiver: &NewWaiver) -> Option<Insertion> {
    let at_end = |text: String| {
        let separator = if existing.is_empty() || existing.ends_with('\n') { "" } else { "\n" };
        Some(Insertion { replaced: existing.len()..existing.len(), text: format!("{separator}{text}") })
    };
    let entry = block_entry(waiver, "  ");
    let Some(root) = root else {
        return at_end(format!("{HEADER}\nwaivers:{entry}\n"));
    };
    if !matches!(root.kind, Kind::Mapping(_)) {
        return None;
    }
    let Some((key, waivers)) = get(root, "waivers") else {
        return if root.flow { None } else { at_end(format!("\nwaivers:{entry}\n")) };
    };
    match &waivers.kind {
        Kind::Null if !root.flow => {
            // A written `null` or `~` is removed; a comment after it stays.
            let null =
                if waivers.span.is_empty() { key.span.end..key.span.end } else { waivers.span.clone() };
            let line_end = line_end(existing, null.end);
            let begin = match null.is_empty() {
                true => null.start,
                false => existing.get(..null.start)?.trim_end().len(),
            };
            let rest = existing.get(null.end..line_end)?;
            Some(Insertion { replaced: begin..line_end, text: format!("{rest}{entry}") })
        }
        Kind::Sequence(items) if waivers.flow => match items.last() {
            Some(last) => {
                let at = last.span.end;
                Some(Insertion { replaced: at..at, text: format!(", {}", flow_entry(waiver)) })
            }
            None => {
                Some(Insertion { replaced: waivers.span.clone(), text: format!("[{}]", flow_entry(waiver)) })
            }
        },
        Kind::Sequence(items) => {
            let indent = dash_indent(existing, items.first()?.span.start)?;
            let content_end = existing.get(..last_byte(items.last()?))?.trim_end().len();
            let at = line_end(existing, content_end);
            Some(Insertion { replaced: at..at, text: block_entry(waiver, indent) })
        }
        _ => None,
    }
}

fn fields(waiver: &NewWaiver) -> Vec<(&'static str, String)> {
    let NewWaiver { leak, test, up_to, reason, owner, until, comment: _ } = waiver;
    let mut fields = vec![("leak", leak.clone())];
    fields.extend(test.as_deref().map(|test| ("test", quote(test))));
    fields.extend(up_to.map(|up_to| ("up_to", limit(leak, up_to))));
    fields.push(("reason", quote(&printable(reason))));
    fields.extend(owner.as_deref().map(|owner| ("owner", quote(&printable(owner)))));
    fields.push(("until", until.to_string()));
    fields
}

/// The limit of a waiver, rounded up.
fn limit(leak: &str, up_to: f64) -> String {
    const UNITS: [(&str, f64); 3] = [("MiB", 1_048_576.0), ("KiB", 1024.0), ("B", 1.0)];
    let fits = |(_, size): &&(&str, f64)| up_to >= 10.0 * size;
    match UNITS.iter().find(fits).unwrap_or(&UNITS[2]) {
        _ if leak.starts_with("o1-") => format!("{:.0}", up_to.ceil()),
        (unit, size) => format!("{:.0} {unit}", (up_to / size).ceil()),
    }
}

/// Begins with a line break and ends without one.
fn block_entry(waiver: &NewWaiver, indent: &str) -> String {
    let mut text = String::new();
    for line in waiver.comment.iter().flat_map(|comment| comment.lines()) {
        text.push_str(&format!("\n{indent}# {}", printable(line)));
    }
    for (at, (key, value)) in fields(waiver).into_iter().enumerate() {
        let dash = if at == 0 { "- " } else { "  " };
        text.push_str(&format!("\n{indent}{dash}{key}: {value}"));
    }
    text
}

fn flow_entry(waiver: &NewWaiver) -> String {
    let fields = fields(waiver).into_iter().map(|(key, value)| format!("{key}: {value}"));
    format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn waiver() -> NewWaiver {
        NewWaiver {
            leak: "n1-5f1c09a2b47d1e03".to_owned(),
            test: None,
            up_to: Some(98_304.0),
            reason: "upstream #1234: \"cache\", costs $5".to_owned(),
            owner: Some("@maps".to_owned()),
            until: Until::parse("2027-03-01").ok().unwrap(),
            comment: Some("MapCache.scroll, 48.0 KiB per iteration".to_owned()),
        }
    }

    /// Appends, and reads the result back as the program would.
    fn append(existing: &str) -> String {
        let text = append_waiver(existing, "memgate-waivers.yaml", &waiver()).unwrap();
        let config =
            Config::parse("version: 1", "memgate.yaml", &|_| None, Some(("memgate-waivers.yaml", &text)));
        let added = config.unwrap_or_else(|error| panic!("{error}\n{text}")).waivers.pop().unwrap();
        assert_eq!(
            (added.reason, added.owner, added.up_to),
            (waiver().reason, waiver().owner, waiver().up_to)
        );
        text
    }

    #[test]
    fn a_new_file_gets_a_header() {
        insta::assert_snapshot!(append(""), @r#"
        # Leaks that are accepted for a time. `memgate waive` adds to the end; edit freely.
        version: 1

        waivers:
          # MapCache.scroll, 48.0 KiB per iteration
          - leak: n1-5f1c09a2b47d1e03
            up_to: 96 KiB
            reason: "upstream #1234: \"cache\", costs $$5"
            owner: "@maps"
            until: 2027-03-01
        "#);
    }

    #[test]
    fn entries_and_comments_written_by_hand_stay() {
        let existing = "\
# ours
version: 1
waivers:
- frame: \"libfontconfig.so*!FcInit*\"   # by hand
  reason: |
    initialises
    once
  until: never   # really

# the end
";
        let text = append(existing);
        for line in existing.lines() {
            assert!(text.contains(line), "{line}\n{text}");
        }
        insta::assert_snapshot!(text, @r##"
        # ours
        version: 1
        waivers:
        - frame: "libfontconfig.so*!FcInit*"   # by hand
          reason: |
            initialises
            once
          until: never   # really
        # MapCache.scroll, 48.0 KiB per iteration
        - leak: n1-5f1c09a2b47d1e03
          up_to: 96 KiB
          reason: "upstream #1234: \"cache\", costs $$5"
          owner: "@maps"
          until: 2027-03-01

        # the end
        "##);
    }

    #[test]
    fn every_layout_of_the_list_can_be_added_to() {
        let one = "{ frame: a, reason: r, until: never }";
        for existing in [
            "# only a comment".to_owned(),
            "version: 1".to_owned(),
            "waivers:\n".to_owned(),
            "waivers: # none yet\nversion: 1\n".to_owned(),
            "waivers: null\nversion: 1\n".to_owned(),
            "version: 1\nwaivers: ~ # none yet".to_owned(),
            "waivers:\r\n  null\r\nversion: 1\r\n".to_owned(),
            "waivers: []\n".to_owned(),
            "{ waivers: [] }".to_owned(),
            format!("waivers: [{one}]\nversion: 1\n"),
            format!("waivers: [\n  {one}, # c\n]\n"),
            format!("waivers:\n    - {one}\nversion: 1\n"),
            "waivers:\n  -\n    frame: a\n    until: never\n    reason: >-\n      folded\n      text\n\n\nversion: 1\n".to_owned(),
            "waivers:\n  - frame: a\n    until: never\n    reason: |\n      text\n  # tail\n".to_owned(),
            "waivers:\r\n  - frame: a\r\n    reason: r\r\n    until: never\r\n".to_owned(),
            "---\nwaivers:\n  - frame: a-b\n    reason: r\n    until: never".to_owned(),
        ] {
            let text = append(&existing);
            assert_eq!(text.contains("\r\n"), existing.contains("\r\n"));
            assert!(!existing.contains("\r\n") || text.lines().count() == text.matches("\r\n").count(), "{text:?}");
        }
    }

    #[test]
    fn a_waiver_that_has_ended_gets_another_date_and_keeps_the_rest() {
        let id = waiver().leak;
        let until = waiver().until;
        let extended =
            |text: &str, test: Option<&str>| extend_waiver(text, "w.yaml", (&id, test), until, None);
        for date in ["2026-11-15", "\"2026-11-15\"", "2026-11-15 # soon"] {
            let text = |date: &str| {
                format!(
                    "# mine\nwaivers:\n  - {{ frame: a, reason: r, until: 2026-11-15 }}\n  - leak: {id}\n    test: \"A.*\"\n    \
                     until: {date}\n    reason: r\n"
                )
            };
            let want = text(&date.replace('"', "").replace("2026-11-15", "2027-03-01"));
            assert_eq!(extended(&text(date), Some("A.*")).unwrap(), want);
            assert!(extended(&text(date), None).is_err(), "another waiver");
        }
        let flow = |date: &str| format!("{{ waivers: [{{ leak: {id}, until: {date}, reason: r }}] }}");
        assert_eq!(extended(&flow("2026-11-15"), None).unwrap(), flow("2027-03-01"));
        assert!(extended(&format!("waivers: [{{ leak: {id} }}]"), None).is_err(), "it has no date");
        let shared = format!(
            "waivers:\n  - {{ frame: a, reason: r, until: &q 2026-11-15 }}\n  - {{ leak: {id}, reason: r, until: *q }}\n"
        );
        assert!(extended(&shared, None).is_err(), "the other waiver would be extended too");
    }

    #[test]
    fn a_waiver_whose_leak_has_grown_gets_another_limit() {
        let until = waiver().until;
        for (id, before, up_to, after) in [
            ("n1-5f1c09a2b47d1e03", "96 B", 10_239.0, "10239 B"),
            ("j1-5f1c09a2b47d1e03", "96", 10_241.0, "11 KiB"),
            ("m1-5f1c09a2b47d1e03", "1 KiB", 20_971_520.0, "20 MiB"),
            ("o1-5f1c09a2b47d1e03", "1", 19_999.4, "20000"),
        ] {
            let text = |up_to: &str, until: &str| {
                format!(
                    "waivers:\n  - leak: {id}\n    up_to: {up_to}   # today\n    reason: r\n    until: {until}\n"
                )
            };
            let extended = |text: &str| extend_waiver(text, "w.yaml", (id, None), until, Some(up_to));
            assert_eq!(extended(&text(before, "2026-11-15")).unwrap(), text(after, "2027-03-01"));
            assert!(
                extended(&format!("waivers: [{{ leak: {id}, until: never }}]")).is_err(),
                "it has no limit"
            );
        }
    }

    #[test]
    fn a_second_waiver_follows_the_first() {
        let mut second = waiver();
        second.leak = "n1-0000000000000001".to_owned();
        let text = append_waiver(&append(""), "w.yaml", &second).unwrap();
        let first_at = text.find(&waiver().leak).unwrap();
        assert!(text.find(&second.leak).unwrap() > first_at);
    }

    #[test]
    fn a_leak_is_waived_test_by_test() {
        let in_test = |test: &str| NewWaiver { test: Some(test.to_owned()), ..waiver() };
        let one = append_waiver("", "w.yaml", &in_test("engine::Map.*")).unwrap();
        let two = append_waiver(&one, "w.yaml", &in_test("Tile.$x")).unwrap();
        let config = Config::parse("version: 1", "memgate.yaml", &|_| None, Some(("w.yaml", &two))).unwrap();
        let tests: Vec<&str> = config.waivers.iter().filter_map(|w| Some(w.test.as_ref()?.text())).collect();
        assert_eq!(tests, ["engine::Map.*", "Tile.$x"]);
        let again = append_waiver(&two, "w.yaml", &in_test("Tile.$x")).unwrap_err().to_string();
        assert!(again.starts_with("the leak is waived already (line 13)"), "{again}");
        let everywhere = append_waiver(&two, "w.yaml", &waiver()).unwrap();
        assert!(
            append_waiver(&everywhere, "w.yaml", &in_test("Other.*")).is_err(),
            "it is waived in all tests"
        );
        let none = append_waiver("", "w.yaml", &in_test("")).unwrap_err().to_string();
        assert!(none.starts_with("the pattern of tests is wrong"), "{none}");
    }

    #[test]
    fn what_cannot_be_added_says_why() {
        let error = |existing: &str, waiver: &NewWaiver| {
            append_waiver(existing, "w.yaml", waiver).unwrap_err().to_string()
        };
        let twice = append("");
        assert_eq!(
            error(&twice, &waiver()),
            "the leak is waived already (line 6)\nhint: change the date there"
        );
        assert!(error("waivers: [", &waiver()).starts_with("error: `[` is never closed"));
        assert!(error("waivers: some", &waiver()).starts_with("nothing can be added"));
        assert!(error("- a\n", &waiver()).starts_with("nothing can be added"));
        assert!(error("waivers: []\n...\n---\n", &waiver()).starts_with("error: the file has two documents"));
        assert!(
            error("", &NewWaiver { leak: "x\u{1b}".to_owned(), ..waiver() }).starts_with("`x\\u{1b}` is not")
        );
        assert!(
            error("", &NewWaiver { reason: " ".to_owned(), ..waiver() })
                .starts_with("a waiver needs a reason")
        );
    }

    #[test]
    fn any_text_survives_quoting() {
        for reason in
            ["plain words", "null", "a: b", "- x", "#", "ünï → 漢字 😀", "line\nline", "${X}", "'", "\\"]
        {
            let new = NewWaiver { reason: reason.to_owned(), comment: Some(reason.to_owned()), ..waiver() };
            let text = append_waiver("", "w.yaml", &new).unwrap();
            let config =
                Config::parse("version: 1", "memgate.yaml", &|_| None, Some(("w.yaml", &text))).unwrap();
            assert_eq!(config.waivers[0].reason, reason);
        }
        let hostile = NewWaiver { reason: "\u{1b}[31m\u{7f}red".to_owned(), ..waiver() };
        assert!(append_waiver("", "w.yaml", &hostile).unwrap().contains("reason: \"[31mred\""));
    }
}
