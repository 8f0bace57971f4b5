//! The cost of recording, measured from within: some events are timed, and the others are estimated from them.
//!
//! A thread's first events are all timed: they read unwind rules for the first time, and touch new memory. Later, one
//! of 256 allocations and one of 256 frees makes an event soon after it a sample. The event is chosen at random, so
//! that samples do not fall into step with the guest. Allocations and frees are estimated separately, because one costs
//! many times the other and a guest may do all of one before all of the other. An event that is not a sample has no
//! cost for this: the mark is in the word that every event reads anyway, to see whether its thread is already in
//! another event ([`crate::thread`]).
//!
//! Half the time of reading the clock is subtracted. The other half stands for entering and leaving the hook, which
//! lies outside the interval. The tracker's memory also pushes the guest's memory out of the caches; that loss cannot
//! be timed here. The benchmark (`device-agent/benches`) shows how close the sum is to the CPU time that recording
//! adds.
//!
//! A guest may disable the counter (`prctl(PR_SET_TSC)`, SECCOMP's strict mode): then reading it would end the thread.
//! After [`give_up`] it is not read any more, and the times measured before are used for all later events.

use core::sync::atomic::{AtomicBool, AtomicU64 as PlainU64};

use crate::counters::bump;
use crate::sync::{AtomicU64, Ordering};

/// Number of first events of a thread, which are all timed.
const FIRST_EVENTS: u64 = 256;

/// A longer interval was interrupted: another thread had the processor. About 400 and 6 microseconds: the first events
/// map memory and read rules; later ones cause one page fault at most.
const LONGEST_FIRST: u64 = 1 << 20;
const LONGEST: u64 = 1 << 14;

/// Number of events, and their ticks.
#[derive(Default)]
struct Sum {
    events: AtomicU64,
    ticks: AtomicU64,
}

impl Sum {
    fn add(&self, ticks: u64) {
        bump(&self.ticks, ticks);
        bump(&self.events, 1);
    }
}

/// The timed events of one thread. Only the owning thread writes.
#[derive(Default)]
pub struct Timed {
    /// Start of the present timed event; 0: there is none.
    began: AtomicU64,
    /// Allocations before the event. An allocation adds one.
    allocations: AtomicU64,
    first_allocations: Sum,
    first_others: Sum,
    allocation_samples: Sum,
    other_samples: Sum,
}

impl Timed {
    /// Starts a timed event.
    pub(crate) fn begin(&self, allocations: &AtomicU64) {
        self.allocations.store(allocations.load(Ordering::Relaxed), Ordering::Relaxed);
        self.began.store(ticks(), Ordering::Relaxed);
    }

    /// Ends the timed event, if there is one. True: the next event is timed, too.
    pub(crate) fn end(&self, now: u64, allocations: &AtomicU64) -> bool {
        let began = self.began.load(Ordering::Relaxed);
        if began == 0 {
            return false;
        }
        self.began.store(0, Ordering::Relaxed);
        // A signal handler disabled the counter in between.
        if now == 0 {
            return false;
        }
        // The counters of two processors may differ a little.
        let took = now.saturating_sub(began);
        let allocated = allocations.load(Ordering::Relaxed) != self.allocations.load(Ordering::Relaxed);
        let first = self
            .first_allocations
            .events
            .load(Ordering::Relaxed)
            .wrapping_add(self.first_others.events.load(Ordering::Relaxed));
        if first < FIRST_EVENTS {
            let sum = if allocated { &self.first_allocations } else { &self.first_others };
            sum.add(took.min(LONGEST_FIRST));
        } else if took <= LONGEST {
            // An interrupted sample would stand for hundreds of events.
            let sum = if allocated { &self.allocation_samples } else { &self.other_samples };
            sum.add(took);
        }
        first.wrapping_add(1) < FIRST_EVENTS
    }
}

/// Timed events of all threads.
#[derive(Default)]
pub(crate) struct Reckoning {
    /// (events, ticks)
    first_allocations: (u64, u64),
    first_others: (u64, u64),
    allocation_samples: (u64, u64),
    other_samples: (u64, u64),
}

impl Reckoning {
    pub(crate) fn add(&mut self, timed: &Timed) {
        for (to, from) in [
            (&mut self.first_allocations, &timed.first_allocations),
            (&mut self.first_others, &timed.first_others),
            (&mut self.allocation_samples, &timed.allocation_samples),
            (&mut self.other_samples, &timed.other_samples),
        ] {
            to.0 = to.0.wrapping_add(from.events.load(Ordering::Relaxed));
            to.1 = to.1.wrapping_add(from.ticks.load(Ordering::Relaxed));
        }
    }

    /// Ticks of the timed events only.
    pub(crate) fn timed(&self, excess: u64) -> u64 {
        let all = [self.first_allocations, self.first_others, self.allocation_samples, self.other_samples];
        let mend = |(events, ticks): (u64, u64)| ticks.saturating_sub(events.wrapping_mul(excess));
        all.into_iter().map(mend).fold(0, u64::saturating_add)
    }

    /// Estimated ticks of this many allocations and other events. `excess`: the excess in the time of each timed event.
    pub(crate) fn total(&self, allocations: u64, others: u64, excess: u64) -> u64 {
        let mend = |(events, ticks): (u64, u64)| (events, ticks.saturating_sub(events.wrapping_mul(excess)));
        let sum = |events: u64, first: (u64, u64), samples: (u64, u64)| {
            let (first, samples) = (mend(first), mend(samples));
            let (count, ticks) = if samples.0 == 0 { first } else { samples };
            let rest = u128::from(events.saturating_sub(first.0)).wrapping_mul(u128::from(ticks));
            let rest = rest.checked_div(u128::from(count)).unwrap_or(0);
            first.1.saturating_add(u64::try_from(rest).unwrap_or(u64::MAX))
        };
        sum(allocations, self.first_allocations, self.allocation_samples).saturating_add(sum(
            others,
            self.first_others,
            self.other_samples,
        ))
    }
}

static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// Stops reading the counter, because the guest is about to disable it. One thread is enough, because the threads that
/// it starts inherit the setting.
pub fn give_up() {
    GIVEN_UP.store(true, Ordering::Relaxed);
}

/// The processor's time counter, which has a constant rate in all states of the processor; 0: given up.
#[inline(always)]
#[must_use]
pub fn ticks() -> u64 {
    if GIVEN_UP.load(Ordering::Relaxed) { 0 } else { counter() }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn counter() -> u64 {
    let now: u64;
    // SAFETY: reads a counter. Linux lets every program do that which has not given it up.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) now, options(nomem, nostack, preserves_flags)) };
    now
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn counter() -> u64 {
    // SAFETY: reads a counter, which every x86-64 has, and the guest has not given up.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Half the distance between two directly successive readings of the counter. Many readings at once, because some
/// counters move in larger steps than that distance; the shortest of several measurements, because of interruptions.
/// Measured again if the last measurement is old: reading a counter may have become slower (in a virtual machine that
/// moved). Not measured each time, because quick tests need it thousands of times in a second.
pub(crate) fn excess() -> u64 {
    const READINGS: u64 = 64;
    /// Ticks for which a measurement is valid: about ten milliseconds.
    const HOLDS: u64 = 1 << 25;
    /// The last measurement, and its time.
    static EXCESS: PlainU64 = PlainU64::new(0);
    static MEASURED: PlainU64 = PlainU64::new(0);
    let (now, measured) = (ticks(), MEASURED.load(Ordering::Relaxed));
    if measured != 0 && now.wrapping_sub(measured) < HOLDS {
        return EXCESS.load(Ordering::Relaxed);
    }
    let apart = |_| {
        let began = ticks();
        let last = (0..READINGS).fold(began, |_, _| ticks());
        last.saturating_sub(began)
    };
    let least = (0..8).map(apart).min().unwrap_or(0) / (2 * READINGS);
    if !GIVEN_UP.load(Ordering::Relaxed) {
        EXCESS.store(least, Ordering::Relaxed);
        MEASURED.store(now, Ordering::Relaxed);
    }
    EXCESS.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(timed: &Timed, allocations: &AtomicU64, is_allocation: bool) -> bool {
        timed.begin(allocations);
        if is_allocation {
            bump(allocations, 1);
        }
        timed.end(ticks(), allocations)
    }

    #[test]
    fn the_first_events_count_as_they_are_and_samples_stand_for_the_others() {
        let all = Reckoning {
            first_allocations: (100, 5_000),
            first_others: (156, 900),
            allocation_samples: (10, 400),
            other_samples: (5, 50),
        };
        assert_eq!(all.total(1_100, 1_156, 0), (5_000 + 1_000 * 40) + (900 + 1_000 * 10));
        assert_eq!(all.total(1_100, 1_156, 2), (4_800 + 1_000 * 38) + (588 + 1_000 * 8));
        assert_eq!(all.total(100, 156, 0), 5_900);
    }

    #[test]
    fn without_samples_the_first_events_stand_for_the_others() {
        let all = Reckoning { first_allocations: (256, 2_560), ..Reckoning::default() };
        assert_eq!(all.total(300, 0, 0), 3_000);
        assert_eq!(Reckoning::default().total(300, 300, 9), 0);
    }

    #[test]
    fn an_interrupted_event_does_not_decide_the_sum() {
        let (timed, allocations) = (Timed::default(), AtomicU64::new(0));
        let interrupted = || {
            timed.begin(&allocations);
            timed.began.store(1, Ordering::Relaxed);
            timed.end(ticks(), &allocations);
        };
        interrupted();
        assert_eq!(timed.first_others.ticks.load(Ordering::Relaxed), LONGEST_FIRST);
        for _ in 1..FIRST_EVENTS {
            event(&timed, &allocations, false);
        }
        interrupted();
        assert_eq!(timed.other_samples.events.load(Ordering::Relaxed), 0, "a sample that is none");
    }

    #[test]
    fn what_an_event_was_is_told_by_the_count_of_allocations() {
        let (timed, allocations) = (Timed::default(), AtomicU64::new(0));
        let mut more = 0;
        for i in 0..FIRST_EVENTS + 30 {
            more += u64::from(event(&timed, &allocations, i % 3 == 0));
        }
        let count = |sum: &Sum| sum.events.load(Ordering::Relaxed);
        assert_eq!(more, FIRST_EVENTS - 1);
        assert_eq!((count(&timed.first_allocations), count(&timed.first_others)), (86, 170));
        assert_eq!((count(&timed.allocation_samples), count(&timed.other_samples)), (10, 20));
        assert!(!timed.end(ticks(), &allocations), "an event that was not begun as a timed one");
    }
}
