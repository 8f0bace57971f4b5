//! Adds parts that junit-report does not write: totals, `skipped`, the run's own time stamp, and properties.

use std::collections::VecDeque;

use quick_xml::events::{BytesEnd, BytesStart, Event};
use quick_xml::{Error, Reader, Writer};

/// Attributes and properties to add, in the order of the document.
#[derive(Debug, Default)]
pub(super) struct Extras {
    pub(super) root: Extra,
    pub(super) suites: VecDeque<Extra>,
    pub(super) cases: VecDeque<Extra>,
}

/// Additions to one element. Attributes replace those of the same name; `None` removes one.
#[derive(Debug, Default)]
pub(super) struct Extra {
    pub(super) attributes: Vec<(&'static str, Option<String>)>,
    pub(super) properties: Vec<(String, String)>,
    /// Reruns, which are written after the failure of the element.
    pub(super) reruns: Vec<Rerun>,
}

/// Another execution with the same result.
#[derive(Debug)]
pub(super) struct Rerun {
    pub(super) message: String,
}

/// Copies a JUnit document and adds the extras to its elements.
pub(super) fn enrich(xml: &[u8], mut extras: Extras) -> Result<Vec<u8>, Error> {
    let mut reader = Reader::from_reader(xml);
    let mut writer = Writer::new(Vec::with_capacity(xml.len() + xml.len() / 4));
    let mut reruns: Vec<Rerun> = Vec::new();
    loop {
        match reader.read_event()? {
            Event::Eof => break,
            Event::Start(start) => match take(&start, &mut extras) {
                Some(mut extra) => {
                    reruns = std::mem::take(&mut extra.reruns);
                    open(&mut writer, &start, &extra)?;
                }
                None => writer.write_event(Event::Start(start))?,
            },
            Event::End(end) if end.name().as_ref() == b"failure" => {
                writer.write_event(Event::End(end))?;
                reruns.drain(..).try_for_each(|rerun| again(&mut writer, &rerun))?;
            }
            Event::Empty(start) => match take(&start, &mut extras) {
                Some(extra) if extra.properties.is_empty() => {
                    writer.write_event(Event::Empty(with_attributes(&start, &extra)?))?;
                }
                Some(extra) => {
                    open(&mut writer, &start, &extra)?;
                    writer.write_event(Event::End(start.to_end()))?;
                }
                None => writer.write_event(Event::Empty(start))?,
            },
            event => writer.write_event(event)?,
        }
    }
    let mut xml = writer.into_inner();
    xml.push(b'\n');
    Ok(xml)
}

fn again(writer: &mut Writer<Vec<u8>>, rerun: &Rerun) -> Result<(), Error> {
    let element = BytesStart::new("rerunFailure")
        .with_attributes([("message", rerun.message.as_str()), ("type", "leak")]);
    Ok(writer.write_event(Event::Empty(element))?)
}

fn take(start: &BytesStart<'_>, extras: &mut Extras) -> Option<Extra> {
    match start.name().as_ref() {
        b"testsuites" => Some(std::mem::take(&mut extras.root)),
        b"testsuite" => extras.suites.pop_front(),
        b"testcase" => extras.cases.pop_front(),
        _ => None,
    }
}

fn open(writer: &mut Writer<Vec<u8>>, start: &BytesStart<'_>, extra: &Extra) -> Result<(), Error> {
    writer.write_event(Event::Start(with_attributes(start, extra)?))?;
    if extra.properties.is_empty() {
        return Ok(());
    }
    writer.write_event(Event::Start(BytesStart::new("properties")))?;
    for (name, value) in &extra.properties {
        let property =
            BytesStart::new("property").with_attributes([("name", name.as_str()), ("value", value.as_str())]);
        writer.write_event(Event::Empty(property))?;
    }
    writer.write_event(Event::End(BytesEnd::new("properties")))?;
    Ok(())
}

fn with_attributes(start: &BytesStart<'_>, extra: &Extra) -> Result<BytesStart<'static>, Error> {
    let mut enriched = BytesStart::new(String::from_utf8_lossy(start.name().as_ref()).into_owned());
    for attribute in start.attributes() {
        let attribute = attribute?;
        if !extra.attributes.iter().any(|(name, _)| name.as_bytes() == attribute.key.as_ref()) {
            enriched.push_attribute(attribute);
        }
    }
    for (name, value) in &extra.attributes {
        if let Some(value) = value {
            enriched.push_attribute((*name, value.as_str()));
        }
    }
    Ok(enriched)
}
