//! A spool that the harness writes for a process that cannot write one: the agent's side of the handshake, on our own
//! thread.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use memgate_map::{Bell, ControlPage, MapError};
use memgate_wire::spool::{CONTROL_BYTES, MAGIC, offset, state};
use memgate_wire::{
    AgentCost, Boundary, BoundaryKind, Counters, Frame, Goodbye, GoodbyeReason, Hello, Outcome, encode,
};

use crate::recorder::{SYNTHESIZED, now_ns};

/// The orders are the low bits of the word in the control page.
const ORDER_BITS: u32 = 0xff;

/// A spool being written.
#[derive(Debug)]
pub(super) struct Spool {
    page: ControlPage,
    committed: u64,
    sequence: u32,
    open_tests: u32,
    wait: Duration,
}

impl Spool {
    /// Begins a stream with `hello`, and waits until the recorder follows it.
    pub(super) fn new(frames: &Path, hello: Hello, wait: Duration) -> io::Result<Self> {
        let path = frames.join(format!("{}-{}{SYNTHESIZED}", hello.pid, now_ns()));
        let new = path.with_extension("new");
        let file = File::options().read(true).write(true).create_new(true).open(&new)?;
        let size = u64::try_from(CONTROL_BYTES).map_err(io::Error::other)?;
        file.set_len(size)?;
        file.write_all_at(&MAGIC, 0)?;
        let page = ControlPage::map(file).map_err(|why| match why {
            MapError::System(source) => source,
            short @ MapError::TooShort(_) => io::Error::other(short),
        })?;
        page.store_u32(offset::PID, hello.pid)?;
        page.store_u32(offset::STATE, state::RECORDING)?;
        let mut spool = Self { page, committed: size, sequence: 0, open_tests: 0, wait };
        spool.frame(&Frame::Hello(hello))?;
        fs::rename(new, &path)?;
        spool.wait_for(offset::HARNESS, 1)?;
        Ok(spool)
    }

    /// Number of the next boundary.
    pub(super) fn next(&self) -> u32 {
        self.sequence.saturating_add(1)
    }

    pub(super) fn frame(&mut self, frame: &Frame) -> io::Result<()> {
        let mut bytes = Vec::new();
        if encode(frame, now_ns(), &mut bytes) == 0 {
            return Err(io::Error::other("a frame is too large"));
        }
        self.page.file().write_all_at(&bytes, self.committed)?;
        self.committed = self.committed.saturating_add(u64::try_from(bytes.len()).map_err(io::Error::other)?);
        self.page.store_u64(offset::COMMITTED, self.committed)
    }

    /// Reports a boundary, waits for the harness and returns its orders; `None`: there were none in time.
    pub(super) fn boundary(
        &mut self,
        kind: BoundaryKind,
        (suite, test): (&str, &str),
        iteration: u32,
        outcome: Option<Outcome>,
    ) -> io::Result<Option<u32>> {
        self.sequence = self.next();
        self.open_tests += u32::from(kind == BoundaryKind::TestStart);
        let boundary = Boundary {
            sequence: self.sequence,
            kind,
            suite: suite.to_owned(),
            test: test.to_owned(),
            iteration,
            outcome,
            thread_id: 1,
            open_tests: self.open_tests,
            ..Boundary::default()
        };
        self.open_tests = self.open_tests.saturating_sub(u32::from(kind == BoundaryKind::TestEnd));
        self.frame(&Frame::Boundary(boundary))?;
        self.page.store_u32(offset::BOUNDARY, self.sequence)?;
        self.page.wake(offset::BOUNDARY)?;
        if !self.wait_for(offset::ACKNOWLEDGED, self.sequence)? {
            return Ok(None);
        }
        Ok(Some(self.page.load_u32(offset::ORDERS)? & ORDER_BITS))
    }

    pub(super) fn close(&mut self, reason: GoodbyeReason) -> io::Result<()> {
        let (counters, cost) = (Counters::default(), AgentCost::default());
        self.frame(&Frame::Goodbye(Goodbye { reason, status: None, counters, cost }))?;
        self.page.store_u32(offset::STATE, state::CLOSED)?;
        self.page.store_u32(offset::BOUNDARY, self.next())?;
        self.page.wake(offset::BOUNDARY)
    }

    /// Waits until a word has this value; false: the time limit passed first.
    fn wait_for(&self, word: usize, value: u32) -> io::Result<bool> {
        let until = now_ns().saturating_add(u64::try_from(self.wait.as_nanos()).unwrap_or(u64::MAX));
        loop {
            let seen = self.page.load_u32(word)?;
            if seen == value {
                return Ok(true);
            }
            let left = Duration::from_nanos(until.saturating_sub(now_ns()));
            if left.is_zero() {
                return Ok(false);
            }
            self.page.wait(word, seen, &Bell::default(), left)?;
        }
    }
}
