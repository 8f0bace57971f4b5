//! Samples of `/proc` for one process, written to a file next to its stream.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use memgate_wire::{Frame, Hello, OsSample, WIRE_VERSION, capability, encode};

use crate::proc_fs::{self, Counted, Depth};
use crate::reading::stream::os_path;

/// Minimum time between two reads of PSS…
const PROPORTIONAL_EVERY: Duration = Duration::from_secs(1);

/// …and reading it may take at most this fraction (1/n) of the time.
const PROPORTIONAL_SHARE: u32 = 50;

/// Counting needs open files, which are not worth it for a process with fewer boundaries.
const COUNTED_FROM: u32 = 16;

/// Takes samples of one process and writes them to `NAME.os.mgf`.
pub(crate) struct Sampler {
    pid: u32,
    file: File,
    next_proportional: Instant,
    /// How long a listing stays valid; zero: always list again.
    listing_stands: Duration,
    boundaries: u32,
    counted: Option<Counted>,
}

/// The occasion of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// The guest waits: as little work as possible.
    Boundary,
    /// The same, but new descriptors or threads are known.
    Changed,
    /// Between boundaries.
    Interval,
    /// To find out where the process hangs.
    Request,
}

impl Sampler {
    /// Begins the stream of samples for `stream`. `pid` is the number of the process in our `/proc`.
    pub(crate) fn create(stream: &Path, pid: u32, hello: &Hello, version: &str) -> io::Result<Self> {
        let ours = Hello {
            wire_version: WIRE_VERSION,
            agent_version: version.to_owned(),
            capabilities: vec![capability::OS.to_owned()],
            blind: None,
            label: "os".to_owned(),
            ..hello.clone()
        };
        let file = File::create_new(os_path(stream))?;
        let mut sampler = Self {
            pid,
            file,
            next_proportional: Instant::now(),
            listing_stands: Duration::ZERO,
            boundaries: 0,
            counted: None,
        };
        sampler.write(&Frame::Hello(ours), now_ns())?;
        Ok(sampler)
    }

    /// At boundaries, descriptors and threads are listed again only if their numbers changed, or the listing is older
    /// than this.
    pub(crate) fn listing_stands(self, listing_stands: Duration) -> Self {
        Self { listing_stands, ..self }
    }

    /// A sample with its time; `None` if the process has ended.
    pub(crate) fn take(&mut self, occasion: Occasion) -> Option<(OsSample, u64)> {
        let begun = Instant::now();
        let due = occasion == Occasion::Interval && begun >= self.next_proportional;
        let depth = Depth {
            proportional: due || occasion == Occasion::Request,
            waits: !matches!(occasion, Occasion::Boundary | Occasion::Changed),
        };
        let t_ns = now_ns();
        let sample = self.sample(occasion, depth)?;
        if depth.proportional {
            let pause = begun.elapsed().saturating_mul(PROPORTIONAL_SHARE).max(PROPORTIONAL_EVERY);
            self.next_proportional = Instant::now() + pause;
        }
        Some((sample, t_ns))
    }

    fn sample(&mut self, occasion: Occasion, depth: Depth) -> Option<OsSample> {
        if depth.waits || self.listing_stands.is_zero() {
            return proc_fs::os_sample(self.pid, depth);
        }
        self.boundaries = self.boundaries.saturating_add(1);
        if self.boundaries == COUNTED_FROM {
            self.counted = Counted::open(self.pid);
        }
        let Some(counted) = &mut self.counted else { return proc_fs::os_sample(self.pid, depth) };
        let unchanged = match occasion {
            Occasion::Boundary => counted.unchanged(self.listing_stands),
            Occasion::Changed | Occasion::Interval | Occasion::Request => None,
        };
        unchanged.or_else(|| counted.list(self.pid, depth))
    }

    /// Appends a frame.
    pub(crate) fn write(&mut self, frame: &Frame, t_ns: u64) -> io::Result<()> {
        let mut bytes = Vec::new();
        encode(frame, t_ns, &mut bytes);
        self.file.write_all(&bytes)
    }
}

/// CLOCK_MONOTONIC, as in the guest's frames.
pub(crate) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}
