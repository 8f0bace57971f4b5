//! Adds leaks to the JUnit files that the test runner itself wrote, so that readers of these files see which tests
//! leak.
//!
//! Data flow: the runner's document → events → the test cases that fail in the report, but did not fail by themselves →
//! the same document with a `failure` in each, and higher counts in its suites. Everything else stays unchanged, byte
//! by byte as far as the parser keeps it. A second merge changes nothing.
//!
//! A document does not contain the name of the suite in memgate. If several suites have a test of one name, the other
//! names of the document may decide; otherwise the case stays unchanged.

use std::collections::{BTreeMap, BTreeSet};

use memgate_model::{RunReport, SuiteReport, Verdict};
use quick_xml::escape::escape;
use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};
use quick_xml::{Error, Reader, Writer, XmlVersion};

use super::sanitise::{attribute, cdata};
use crate::human::{BlockStyle, test_block};
use crate::suite_test::SuiteTest;
use crate::summary::in_short;

/// A document with the added leaks.
#[derive(Debug)]
pub struct Merged {
    /// The document.
    pub xml: Vec<u8>,
    /// Number of test cases that got a leak.
    pub cases: usize,
    /// Number of tests of the report that the document names.
    pub known: usize,
    /// Tests that leak in one suite, if the document may belong to another suite.
    pub unclear: Vec<String>,
}

/// Adds the leaks of `report` to a JUnit document.
///
/// # Errors
/// When it is not well-formed XML.
pub fn merge(report: &RunReport, xml: &[u8]) -> Result<Merged, Error> {
    let style = BlockStyle::plain(report);
    let events = events(xml)?;
    let is_unicode = is_unicode(&events);
    let Tests { failing, unclear, known } = tests(report, &names(&events)?);
    let (hits, counts) = hits(&events, &failing)?;
    let cases = hits.len();
    let mut writer = Writer::new(Vec::with_capacity(xml.len() + cases * 1024));
    for (index, event) in events.into_iter().enumerate() {
        let hit = hits.get(&index);
        match (event, hit, counts.get(&index)) {
            (Event::Start(start), Some(test), _) => {
                writer.write_event(Event::Start(start))?;
                failure(&mut writer, *test, &style, is_unicode)?;
            }
            (Event::Empty(start), Some(test), _) => {
                let end = BytesEnd::new(String::from_utf8_lossy(start.name().as_ref()).into_owned());
                writer.write_event(Event::Start(start))?;
                failure(&mut writer, *test, &style, is_unicode)?;
                writer.write_event(Event::End(end))?;
            }
            (Event::Start(start), None, Some(more)) => {
                writer.write_event(Event::Start(raised(&start, *more)?))?
            }
            (event, ..) => writer.write_event(event)?,
        }
    }
    Ok(Merged { xml: writer.into_inner(), cases, known, unclear })
}

/// Tests of the report that a document names.
struct Tests<'r> {
    /// Those that leak, by the name a runner gives them.
    failing: BTreeMap<String, SuiteTest<'r>>,
    /// Those that leak in one of several suites.
    unclear: Vec<String>,
    /// The number of all.
    known: usize,
}

fn tests<'r>(report: &'r RunReport, document: &BTreeSet<String>) -> Tests<'r> {
    let named = |suite: &SuiteReport| -> BTreeSet<String> {
        suite.tests.iter().map(|test| plain(&test.id)).filter(|name| document.contains(name)).collect()
    };
    let known: Vec<_> = report.suites.iter().map(named).collect();
    let (mut failing, mut unclear) = (BTreeMap::new(), BTreeSet::new());
    for (index, suite) in report.suites.iter().enumerate() {
        for test in suite.tests.iter().filter(|test| test.verdict == Verdict::Fail) {
            let name = plain(&test.id);
            if !document.contains(&name) {
                continue;
            }
            let owners: Vec<_> = (0..known.len()).filter(|&other| known[other].contains(&name)).collect();
            // If a suite lacks a name of the document that another candidate has, the document does not belong to it.
            let has_all =
                |&&owner: &&usize| owners.iter().all(|&other| known[other].is_subset(&known[owner]));
            match owners.iter().filter(has_all).collect::<Vec<_>>().as_slice() {
                [one] if **one == index => {
                    failing.insert(name, SuiteTest { suite, test });
                }
                [_] => {}
                _ => {
                    unclear.insert(name);
                }
            }
        }
    }
    let known = known.iter().flatten().count();
    Tests { failing, unclear: unclear.into_iter().collect(), known }
}

fn names(events: &[Event<'static>]) -> Result<BTreeSet<String>, Error> {
    let mut names = BTreeSet::new();
    for event in events {
        if let Event::Start(start) | Event::Empty(start) = event
            && start.name().as_ref() == b"testcase"
        {
            names.extend(named(start)?);
        }
    }
    Ok(names)
}

/// JUnit 5 and Gradle write `loads()`, Surefire `loads`.
fn plain(name: &str) -> String {
    name.strip_suffix("()").unwrap_or(name).to_owned()
}

fn events(xml: &[u8]) -> Result<Vec<Event<'static>>, Error> {
    let mut reader = Reader::from_reader(xml);
    let mut events = Vec::new();
    let mut depth = 0_usize;
    loop {
        let event = reader.read_event()?.into_owned();
        match event {
            // The reader detects a missing end tag only if another end tag comes in its place.
            Event::Eof if depth > 0 => {
                return Err(Error::IllFormed(quick_xml::errors::IllFormedError::MissingEndTag(
                    "testsuite".to_owned(),
                )));
            }
            Event::Eof => return Ok(events),
            Event::Start(_) => depth += 1,
            Event::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
        events.push(event);
    }
}

type Hits<'r> = BTreeMap<usize, SuiteTest<'r>>;

/// The events of the test cases that must fail, and the amounts by which the counts of the suites around them rise.
fn hits<'r>(
    events: &[Event<'static>],
    failing: &BTreeMap<String, SuiteTest<'r>>,
) -> Result<(Hits<'r>, BTreeMap<usize, usize>), Error> {
    let mut hits = Hits::new();
    let mut counts = BTreeMap::new();
    let mut suites: Vec<usize> = Vec::new();
    for (index, event) in events.iter().enumerate() {
        let (start, has_children) = match event {
            Event::Start(start) => (start, true),
            Event::Empty(start) => (start, false),
            Event::End(end) if is_suite(end.name().as_ref()) => {
                suites.pop();
                continue;
            }
            _ => continue,
        };
        if is_suite(start.name().as_ref()) && has_children {
            suites.push(index);
        }
        if start.name().as_ref() != b"testcase" || has_children && decided(&events[index + 1..]) {
            continue;
        }
        if let Some(test) = named(start)?.and_then(|name| failing.get(&name)) {
            hits.insert(index, *test);
            for suite in &suites {
                *counts.entry(*suite).or_default() += 1;
            }
        }
    }
    Ok((hits, counts))
}

fn is_suite(name: &[u8]) -> bool {
    matches!(name, b"testsuite" | b"testsuites")
}

/// Has the case failed, or was it skipped?
fn decided(inside: &[Event<'static>]) -> bool {
    let of_case = inside
        .iter()
        .take_while(|event| !matches!(event, Event::End(end) if end.name().as_ref() == b"testcase"));
    of_case.into_iter().any(|event| match event {
        Event::Start(start) | Event::Empty(start) => {
            matches!(start.name().as_ref(), b"failure" | b"error" | b"skipped")
        }
        _ => false,
    })
}

/// `Class.name`, as the report names it.
fn named(start: &BytesStart<'_>) -> Result<Option<String>, Error> {
    let (mut class, mut name) = (None, None);
    for attribute in start.attributes() {
        let attribute = attribute?;
        let value = || attribute.normalized_value(XmlVersion::Implicit1_0).map(std::borrow::Cow::into_owned);
        match attribute.key.as_ref() {
            b"classname" => class = Some(value()?),
            b"name" => name = Some(value()?),
            _ => {}
        }
    }
    Ok(class.zip(name).map(|(class, name)| plain(&format!("{class}.{name}"))))
}

fn failure(
    writer: &mut Writer<Vec<u8>>,
    at: SuiteTest<'_>,
    style: &BlockStyle,
    is_unicode: bool,
) -> Result<(), Error> {
    let written = |text: &str| {
        let text = escape(text);
        let reference = |c: char| if c.is_ascii() { c.to_string() } else { format!("&#{};", u32::from(c)) };
        if is_unicode { text.into_owned() } else { text.chars().map(reference).collect() }
    };
    let message = written(&attribute(&in_short(at.test)));
    let mut start = BytesStart::new("failure");
    start.push_attribute((&b"message"[..], message.as_bytes()));
    start.push_attribute(("type", "leak"));
    writer.write_event(Event::Start(start))?;
    // The text is cleaned as for CDATA, but `]]>` is not split, because this is no CDATA section.
    let text = cdata(&test_block(at, &at.test.id, None, style)).replace("]]]]><![CDATA[>", "]]>");
    writer.write_event(Event::Text(BytesText::from_escaped(written(&text))))?;
    writer.write_event(Event::End(BytesEnd::new("failure")))?;
    Ok(())
}

/// Is the document in UTF-8? In another encoding, only ASCII characters are added.
fn is_unicode(events: &[Event<'static>]) -> bool {
    let declared = events.iter().find_map(|event| match event {
        Event::Decl(declaration) => declaration.encoding(),
        _ => None,
    });
    declared.is_none_or(|name| name.is_ok_and(|name| name.eq_ignore_ascii_case(b"utf-8")))
}

fn raised(start: &BytesStart<'_>, more: usize) -> Result<BytesStart<'static>, Error> {
    let mut suite = BytesStart::new(String::from_utf8_lossy(start.name().as_ref()).into_owned());
    for attribute in start.attributes() {
        let attribute = attribute?;
        let count =
            str::from_utf8(&attribute.value).ok().and_then(|value| value.trim().parse::<usize>().ok());
        match count.filter(|_| attribute.key.as_ref() == b"failures") {
            Some(count) => {
                suite.push_attribute(("failures", count.saturating_add(more).to_string().as_str()))
            }
            None => suite.push_attribute(attribute),
        }
    }
    Ok(suite)
}

#[cfg(test)]
mod tests {
    use quick_junit::{NonSuccessKind, TestCaseStatus};

    use super::*;
    use crate::sample;

    const GTEST: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="4" failures="1" disabled="0" errors="0" time="0.1" name="AllTests">
  <testsuite name="MapCache" tests="4" failures="1" time="0.1">
    <testcase name="opens" file="a.cc" status="run" result="completed" time="0." classname="MapCache" />
    <testcase name="scroll" file="a.cc" status="run" result="completed" time="0." classname="MapCache" />
    <testcase name="scroll" classname="Other"><properties><property name="a" value="b"/></properties></testcase>
    <testcase name="fails" classname="MapCache"><failure message="it &lt;fails&gt;" type=""><![CDATA[a.cc:3]]></failure></testcase>
  </testsuite>
</testsuites>
"#;

    fn merged(report: &RunReport, xml: &str) -> (String, usize) {
        let merged = merge(report, xml.as_bytes()).unwrap();
        (String::from_utf8(merged.xml).unwrap(), merged.cases)
    }

    #[test]
    fn a_leak_shows_on_the_test_that_leaked_and_nowhere_else() {
        let (xml, cases) = merged(&sample::leak(), GTEST);
        assert_eq!(cases, 1);
        let read = quick_junit::Report::deserialize_from_str(&xml).unwrap_or_else(|e| panic!("{e}\n{xml}"));
        assert_eq!((read.failures, read.test_suites[0].failures), (2, 2), "counts agree");
        let cases = &read.test_suites[0].test_cases;
        let TestCaseStatus::NonSuccess { kind: NonSuccessKind::Failure, ty, message, description, .. } =
            &cases[1].status
        else {
            panic!("{:?}", cases[1])
        };
        assert_eq!(ty.as_ref().unwrap().as_str(), "leak");
        assert!(message.as_ref().unwrap().as_str().starts_with("MapCache::insert leaks 48.0 KiB per run"));
        assert!(description.as_ref().unwrap().as_str().contains("src/map_cache.cpp:88"));
        for other in [0, 2] {
            assert!(matches!(cases[other].status, TestCaseStatus::Success { .. }), "{:?}", cases[other]);
        }
        assert!(
            xml.contains("<![CDATA[a.cc:3]]>") && xml.contains("it &lt;fails&gt;"),
            "what was there stays:\n{xml}"
        );
    }

    #[test]
    fn a_test_of_another_suite_that_has_the_same_name_gets_no_leak() {
        let mut report = sample::leak();
        let clean = |names: &[&str]| {
            sample::suite("other", Verdict::Pass, names.iter().map(|name| sample::test(name)).collect())
        };
        let cases = |report: &RunReport, names: &[&str]| {
            let case = |name: &&str| format!(r#"<testcase name="{name}" classname="MapCache"/>"#);
            let xml = format!("<testsuite>{}</testsuite>", names.iter().map(case).collect::<String>());
            let merged = merge(report, xml.as_bytes()).unwrap();
            (merged.cases, merged.unclear)
        };
        let unclear = || vec!["MapCache.scroll".to_owned()];
        assert_eq!(cases(&report, &["scroll"]), (1, vec![]));
        report.suites.push(clean(&["MapCache.scroll", "MapCache.other"]));
        assert_eq!(cases(&report, &["scroll"]), (0, unclear()), "it may be of either");
        assert_eq!(cases(&report, &["scroll", "nobody's"]), (0, unclear()));
        assert_eq!(cases(&report, &["scroll", "opens"]), (1, vec![]), "the other suite has no such test");
        assert_eq!(cases(&report, &["scroll", "other"]), (0, vec![]), "it is the other suite's");
        assert_eq!(cases(&report, &["scroll", "opens", "other"]), (0, unclear()));
        assert_eq!(cases(&report, &["opens"]), (0, vec![]), "nothing leaks there");
    }

    #[test]
    fn a_document_in_another_encoding_stays_in_it() {
        let xml = r#"<?xml version="1.0" encoding="ISO-8859-1"?><testsuite failures="0" hostname="M@nchen">
            <testcase name="scroll" classname="MapCache"/></testsuite>"#;
        let xml: Vec<u8> = xml.bytes().map(|byte| if byte == b'@' { 0xfc } else { byte }).collect();
        let merged = merge(&sample::leak(), &xml).unwrap();
        assert_eq!(merged.cases, 1);
        let other: Vec<u8> = merged.xml.into_iter().filter(|byte| !byte.is_ascii()).collect();
        assert_eq!(other, [0xfc], "its own letter is all");
    }

    #[test]
    fn merging_twice_changes_nothing_more() {
        let (once, _) = merged(&sample::leak(), GTEST);
        assert_eq!(merged(&sample::leak(), &once), (once, 0));
    }

    #[test]
    fn a_document_without_a_leak_stays_as_it_is() {
        assert_eq!(merged(&sample::clean(), GTEST), (GTEST.to_owned(), 0));
    }

    #[test]
    fn a_java_test_is_found_with_and_without_its_brackets() {
        for name in ["evicts", "evicts()"] {
            let xml = format!(
                r#"<testsuite failures="0"><testcase name="{name}" classname="com.example.TileCacheTest"/></testsuite>"#
            );
            assert_eq!(merged(&sample::held(), &xml).1, 1, "{name}");
        }
    }

    #[test]
    fn dirt_stays_well_formed_and_what_is_cut_off_is_refused() {
        let mut report = sample::leak();
        report.suites[0].tests[1].leaks[0].frames[0].function = Some("a\0]]>\u{1b}[31m<b>&".to_owned());
        let (xml, _) = merged(&report, GTEST);
        quick_junit::Report::deserialize_from_str(&xml).unwrap_or_else(|e| panic!("{e}\n{xml}"));
        for end in ["<testsuite><testcase", "<testsuite>", "<testsuite></testcase>"] {
            assert!(merge(&report, end.as_bytes()).is_err(), "{end}");
        }
    }
}
