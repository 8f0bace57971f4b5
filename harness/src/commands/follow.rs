//! `memgate follow`: shows followed Java objects while their virtual machines run, and pauses, resumes or resets
//! following.
//!
//! Data flow: frames folder of the session → a [`Stream`] of each Java virtual machine that follows objects → an order
//! in its control page → at the next allocation, the agent writes all earlier data, obeys and acknowledges → the frames
//! so far → figures on stdout, once, or repeatedly until the last virtual machine has ended.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use memgate_analysis::{FollowPolicy, followed};
use memgate_map::{Bell, ControlPage};
use memgate_model::format_number_of;
use memgate_wire::spool::{follow, offset, state};

use super::settings;
use crate::cli::{FollowAction, FollowArgs};
use crate::exit::{self, ExpectedError, chain};
use crate::names::Mappings;
use crate::output::Console;
use crate::proc_fs;
use crate::reading::Reading;
use crate::reading::stream::{Reader, StreamError, streams_in};

/// Time limit for an acknowledgement: a virtual machine that allocates nothing sends none.
const ANSWER: Duration = Duration::from_secs(2);

pub(super) fn follow(request: &FollowArgs, console: &Console) -> Result<u8, ExpectedError> {
    let settings = settings::load(request.config.config.as_deref(), console)?;
    let policy = crate::plan::follow(&settings.config.measure.java);
    let mut streams = following(&request.session)?;
    loop {
        let running = streams.iter().filter(|stream| stream.running().is_some()).count();
        order(&streams, request.action, console)?;
        for stream in &mut streams {
            stream.read_on()?;
        }
        match request.action {
            FollowAction::Show => show(&streams, &policy, request.json, console)?,
            FollowAction::Pause => told("paused", running, console),
            FollowAction::Resume => told("goes on", running, console),
            FollowAction::Reset => told("begins anew", running, console),
        }
        match request.every.filter(|_| running > 0) {
            Some(every) => std::thread::sleep(every),
            None => return Ok(exit::PASS),
        }
    }
}

fn told(what: &str, running: usize, console: &Console) {
    console.line(&format!("following {what} in {}", format_number_of(running, "virtual machine")));
}

/// The stream of a Java virtual machine that follows objects, and its control page.
struct Stream {
    path: PathBuf,
    /// `None`: the stream is packed, and no longer written.
    page: Option<ControlPage>,
    reader: Reader,
    reading: Reading,
}

/// The streams of the session in which objects are followed.
fn following(session: &Path) -> Result<Vec<Stream>, ExpectedError> {
    let wrong = |why: String, hint: &str| ExpectedError::session(session, why, hint);
    let folder = session.join("frames");
    let paths = streams_in(&folder)
        .map_err(|why| wrong(why.to_string(), "name the session that `memgate run` writes: --session"))?;
    let mut streams = Vec::new();
    for path in paths {
        let mut stream = Stream::open(&path).map_err(|why| broken(&path, &why))?;
        stream.read_on()?;
        if stream.reading.record().java.as_ref().is_some_and(|java| java.followed.is_following()) {
            streams.push(stream);
        }
    }
    if streams.is_empty() {
        let hint = "set `measure.java.follow`: classes whose every object is followed in the build's own run";
        return Err(wrong("no Java objects are followed in it".to_owned(), hint));
    }
    Ok(streams)
}

impl Stream {
    fn open(path: &Path) -> io::Result<Self> {
        let open = || File::options().read(true).write(true).open(path);
        let reader = Reader::new(open()?, path).map_err(io::Error::other)?;
        let page = if reader.is_packed() {
            None
        } else {
            Some(ControlPage::map(open()?).map_err(io::Error::other)?)
        };
        let names = Arc::new(Mappings::default()).renamer_of(path);
        Ok(Self { path: path.to_owned(), page, reader, reading: Reading::new(names) })
    }

    /// The control page, while its virtual machine still writes.
    fn running(&self) -> Option<&ControlPage> {
        let page = self.page.as_ref()?;
        let word = |at| page.load_u32(at).unwrap_or_default();
        let runs =
            word(offset::STATE) == state::RECORDING && proc_fs::has_mapped(word(offset::PID), &self.path);
        runs.then_some(page)
    }

    fn read_on(&mut self) -> Result<(), ExpectedError> {
        let read = |reader: &mut Reader, reading: &mut Reading| -> Result<(), StreamError> {
            reader.advance()?;
            while let Some((frame, t_ns)) = reader.next_frame()? {
                reading.push(frame, t_ns);
            }
            Ok(())
        };
        read(&mut self.reader, &mut self.reading).map_err(|why| broken(&self.path, &why))
    }

    /// Returns whether the order was obeyed in time.
    fn answers(&self, page: &ControlPage, order: u32, until: Instant) -> io::Result<bool> {
        loop {
            let seen = page.load_u32(offset::FOLLOWED)?;
            let left = until.saturating_duration_since(Instant::now());
            if seen == order || left.is_zero() || self.running().is_none() {
                return Ok(seen == order);
            }
            page.wait(offset::FOLLOWED, seen, &Bell::default(), left)?;
        }
    }
}

/// Writes the order; returns it.
fn write_order(page: &ControlPage, action: FollowAction) -> io::Result<u32> {
    let last = page.load_u32(offset::FOLLOW)?;
    let paused = match action {
        FollowAction::Pause => true,
        FollowAction::Resume => false,
        FollowAction::Show | FollowAction::Reset => last & follow::PAUSED != 0,
    };
    let order = follow::next(last, action == FollowAction::Reset, paused);
    page.store_u32(offset::FOLLOW, order)?;
    Ok(order)
}

/// Sends the order to all running virtual machines, then waits for all.
fn order(streams: &[Stream], action: FollowAction, console: &Console) -> Result<(), ExpectedError> {
    let mut ordered = Vec::new();
    for (stream, page) in streams.iter().filter_map(|stream| Some((stream, stream.running()?))) {
        let order = write_order(page, action).map_err(|why| broken(&stream.path, &why))?;
        ordered.push((stream, page, order));
    }
    if ordered.is_empty() && action != FollowAction::Show {
        return Err(ExpectedError::Usage {
            what: "no virtual machine of this session runs any more".to_owned(),
            hint: "`memgate follow` shows what was followed".to_owned(),
        });
    }
    let until = Instant::now() + ANSWER;
    for (stream, page, order) in ordered {
        let answered = stream.answers(page, order, until).map_err(|why| broken(&stream.path, &why))?;
        if !answered && stream.running().is_some() {
            let pid = page.load_u32(offset::PID).unwrap_or_default();
            console.warning(&format!("process {pid} allocates nothing just now: it obeys when it does"));
        }
    }
    Ok(())
}

fn show(
    streams: &[Stream],
    policy: &FollowPolicy,
    json: bool,
    console: &Console,
) -> Result<(), ExpectedError> {
    let report = followed(streams.iter().map(|stream| stream.reading.record()), policy).unwrap_or_default();
    let text = if json {
        let json = serde_json::to_string_pretty(&report)
            .map_err(|why| ExpectedError::machinery(format!("failed to write json: {why}"), ""))?;
        json + "\n"
    } else {
        memgate_reports::followed(&report, console.stdout_screen(false).colour)
    };
    console.result(text.as_bytes())
}

fn broken(path: &Path, why: &dyn std::error::Error) -> ExpectedError {
    ExpectedError::Session { path: path.to_owned(), why: chain(why), hint: String::new() }
}
