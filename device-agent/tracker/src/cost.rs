//! What recording costs, measured from within: some events are timed, the others are reckoned from
//! them.
//!
//! A thread's first events are all timed: they read unwind rules for the first time, and touch new memory. Later, one
//! of 256 allocations and one of 256 frees makes an event that follows it closely a sample. Which event that is, is
//! drawn, so that it does not fall into step with the guest. Allocations and frees are reckoned apart, because one
//! costs many times the other and a guest may do all of one before all of the other. An event that is no sample pays
//! nothing for this: the mark rides on the word that every event looks at to see whether its thread is at another one
//! ([`crate::thread`]).
//!
//! Half of what reading the clock takes is subtracted: the other half stands for the way into the hook and out of it,
//! which lies outside the interval. What the guest loses because the tracker's memory pushes its own out of the caches
//! cannot be timed here. The benchmark (`device-agent/benches`) shows how near the sum comes to the CPU time that
//! recording adds.
//!
//! A guest may give the counter up (`prctl(PR_SET_TSC)`, SECCOMP's strict mode): reading it would
//! end the thread. From then on ([`give_up`]) it is not read, and what was timed before stands for
//! all that comes.

use core::sync::atomic::{AtomicBool, AtomicU64 as PlainU64};

use crate::counters::bump;
use crate::sync::{AtomicU64, Ordering};

/// Events of a thread that are all timed.
const FIRST_EVENTS: u64 = 256;

/// A longer interval was interrupted: the processor was another thread's. Some 400 and 6
/// microseconds: the first events map and read, later ones meet a page fault at most.
const LONGEST_FIRST: u64 = 1 << 20;
const LONGEST: u64 = 1 << 14;

/// How many, and the ticks they took.
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
    /// When the present one began; 0: none is.
    began: AtomicU64,
    /// Allocations before it: after an allocation there is one more.
    allocations: AtomicU64,
    first_allocations: Sum,
    first_others: Sum,
    allocation_samples: Sum,
    other_samples: Sum,
}

impl Timed {
    /// A timed event begins.
    pub(crate) fn begin(&self, allocations: &AtomicU64) {
        self.allocations.store(allocations.load(Ordering::Relaxed), Ordering::Relaxed);
        self.began.store(ticks(), Ordering::Relaxed);
    }

    /// The timed event ends, if there was one. True: the next one is to be timed, too.
    pub(crate) fn end(&self, now: u64, allocations: &AtomicU64) -> bool {
        let began = self.began.load(Ordering::Relaxed);
        if began == 0 {
            return false;
        }
        self.began.store(0, Ordering::Relaxed);
        // Given up by a signal handler that came in between.
        if now == 0 {
            return false;
        }
        // Two processors' counters may be a little apart.
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
            // An interrupted one would stand for hundreds.
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

    /// Ticks of what was timed, and of nothing else.
    pub(crate) fn timed(&self, excess: u64) -> u64 {
        let all = [self.first_allocations, self.first_others, self.allocation_samples, self.other_samples];
        let mend = |(events, ticks): (u64, u64)| ticks.saturating_sub(events.wrapping_mul(excess));
        all.into_iter().map(mend).fold(0, u64::saturating_add)
    }

    /// Ticks of so many allocations and other events; `excess`: what each timed event seems to take
    /// too long.
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

/// From now on the counter is not read, for a guest that is about to give it up. That one thread gives it up is enough,
/// because threads that it starts inherit that.
pub fn give_up() {
    GIVEN_UP.store(true, Ordering::Relaxed);
}

/// The processor's counter of time, which runs at one speed whatever the processor does; 0: given
/// up.
#[inline(always)]
#[must_use]
pub fn ticks() -> u64 {
    if GIVEN_UP.load(Ordering::Relaxed) { 0 } else { counter() }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn counter() -> u64 {
    let now: u64;
    // SAFETY: reads a counter, which Linux lets every program do that has not given it up.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) now, options(nomem, nostack, preserves_flags)) };
    now
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn counter() -> u64 {
    // SAFETY: reads a counter, which every x86-64 has, and the guest has not given up.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Half of what two readings of the counter are apart when nothing lies between them. Many at once,
/// because some counters move in steps that are longer than that, and the shortest of several
/// times, because of interruptions. Measured again where the last time was long ago: a counter may have become
/// dearer (in a machine that moved), and quick tests ask thousands of times in a second.
pub(crate) fn excess() -> u64 {
    const READINGS: u64 = 64;
    /// Ticks for which a measurement holds: some ten milliseconds.
    const HOLDS: u64 = 1 << 25;
    /// As last measured, and when.
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
