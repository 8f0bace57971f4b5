//! The curve of a process, thinned out to a bounded number of points.

use memgate_wire::Counters;

use crate::record::{CurveSample, ProcessRecord};

/// Most points of the curve. When it is full, every two points are merged.
const MAX_CURVE: usize = 4096;

/// State of the thinning.
#[derive(Debug)]
pub(super) struct Curve {
    /// Number of samples per point.
    stride: usize,
    skipped: usize,
    waiting: CurveSample,
}

impl Default for Curve {
    fn default() -> Self {
        Self { stride: 1, skipped: 0, waiting: CurveSample::default() }
    }
}

impl Curve {
    /// Adds a sample to the curve and the peaks of the record.
    pub(super) fn add(&mut self, record: &mut ProcessRecord, sample: CurveSample) {
        record.peak = highest(record.peak, sample);
        // A skipped sample is merged into the next one, so that the peaks of every source are kept.
        let sample = highest(std::mem::take(&mut self.waiting), sample);
        if self.skipped + 1 < self.stride {
            self.skipped += 1;
            self.waiting = sample;
            return;
        }
        self.skipped = 0;
        if record.curve.len() >= MAX_CURVE {
            let pairs = record.curve.chunks(2);
            record.curve = pairs.filter_map(|pair| pair.iter().copied().reduce(highest)).collect();
            self.stride = self.stride.saturating_mul(2);
        }
        record.curve.push(sample);
    }
}

pub(super) fn counted(counters: &Counters) -> CurveSample {
    CurveSample {
        live_bytes: Some(counters.live_bytes()),
        live_allocations: Some(counters.live_allocations()),
        ..CurveSample::default()
    }
}

fn highest(a: CurveSample, b: CurveSample) -> CurveSample {
    CurveSample {
        t_ns: a.t_ns.max(b.t_ns),
        live_bytes: a.live_bytes.max(b.live_bytes),
        live_allocations: a.live_allocations.max(b.live_allocations),
        rss_bytes: a.rss_bytes.max(b.rss_bytes),
        pss_bytes: a.pss_bytes.max(b.pss_bytes),
        threads: a.threads.max(b.threads),
        fds: a.fds.max(b.fds),
        mapped_bytes: a.mapped_bytes.max(b.mapped_bytes),
        heap_used: a.heap_used.max(b.heap_used),
    }
}

#[cfg(test)]
mod tests {
    use memgate_wire::Frame;

    use super::*;
    use crate::dsl::MS;
    use crate::observer::Observer;

    #[test]
    fn the_curve_stays_small_and_keeps_the_peak() {
        let mut observer = Observer::new();
        for i in 0..100_000_u64 {
            let live = if i == 4321 { 1 << 40 } else { i };
            let counters = Counters { allocated_bytes: live, ..Counters::default() };
            observer.push(Frame::Counters(counters), i * MS);
        }
        let record = observer.into_record();
        assert!(record.curve.len() <= MAX_CURVE && record.curve.len() > MAX_CURVE / 4);
        assert!(record.curve.is_sorted_by_key(|s| s.t_ns));
        assert_eq!(record.peak.live_bytes, Some(1 << 40));
        assert!(record.curve.iter().any(|s| s.live_bytes == Some(1 << 40)));
        assert_eq!((record.first_ns, record.last_ns), (0, 99_999 * MS));
    }
}
