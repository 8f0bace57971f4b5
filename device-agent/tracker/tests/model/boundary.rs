//! The handshake at a boundary (`memgate_wire::handshake`, both halves). No wake-up is lost. No order is taken twice or
//! by another thread. A guest never waits longer than its limit, at whichever step the harness dies.
//!
//! A model has no time. Without a limit, a lost wake-up is a deadlock, which the checker reports. With a limit, a wait
//! ends by a wake-up after a while, or by its limit when the harness is dead and nothing else can happen.

use std::sync::Arc;
use std::time::Duration;

use loom::sync::{Condvar, Mutex};
use loom::thread;
use memgate_tracker::sync::{AtomicU32, Ordering, fence};
use memgate_wire::handshake::{Answer, Waiting, Words, acknowledge, announce, detach, meet};
use memgate_wire::reply::Reply;
use memgate_wire::spool::{offset, order};

use crate::check;

const FOR_EVER: Duration = Duration::MAX;
const WHILE: Duration = Duration::from_secs(3);

/// The control page, and the kernel's futexes.
struct Page {
    words: [(usize, AtomicU32); 6],
    kernel: Mutex<Kernel>,
    woken: Condvar,
}

#[derive(Default)]
struct Kernel {
    /// Time the guest has spent in waits.
    clock: Duration,
    harness_is_dead: bool,
}

impl Page {
    fn new(harness: u32) -> Arc<Self> {
        let control = [offset::BOUNDARY, offset::ACKNOWLEDGED, offset::ORDERS, offset::HARNESS];
        let [a, b, c, d] = control;
        let offsets = [a, b, c, d, offset::CLASSES, offset::CLASSES + 4];
        let words = offsets.map(|at| (at, AtomicU32::new(if at == offset::HARNESS { harness } else { 0 })));
        Arc::new(Self { words, kernel: Mutex::default(), woken: Condvar::new() })
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        &self.words.iter().find(|(offset, _)| *offset == at).unwrap().1
    }

    /// Like the system call: checks the word and falls asleep in one step.
    fn sleep(&self, at: usize, seen: u32, limit: Duration) {
        let mut kernel = self.kernel.lock().unwrap();
        if self.word(at).load(Ordering::Relaxed) != seen {
            return;
        }
        if limit != FOR_EVER && kernel.harness_is_dead {
            kernel.clock += limit;
            return;
        }
        kernel = self.woken.wait(kernel).unwrap();
        if limit != FOR_EVER {
            let took = if kernel.harness_is_dead { limit } else { limit.min(WHILE) };
            kernel.clock += took;
        }
    }
}

impl Words for Page {
    type Error = Dead;

    fn load(&self, offset: usize) -> Result<u32, Dead> {
        Ok(self.word(offset).load(Ordering::Acquire))
    }

    fn store(&self, offset: usize, value: u32) -> Result<(), Dead> {
        self.word(offset).store(value, Ordering::Release);
        Ok(())
    }

    fn wake(&self, _offset: usize) -> Result<(), Dead> {
        let _kernel = self.kernel.lock().unwrap();
        self.woken.notify_all();
        Ok(())
    }

    fn barrier(&self) {
        fence(Ordering::SeqCst);
    }
}

impl Waiting for Page {
    fn wait(&self, offset: usize, seen: u32, limit: Duration) {
        self.sleep(offset, seen, limit);
    }

    fn now(&self) -> Duration {
        self.kernel.lock().unwrap().clock
    }
}

/// The harness was killed.
#[derive(Debug)]
struct Dead;

/// The harness's view of the page: it dies when its steps are used up.
struct Mortal {
    page: Arc<Page>,
    steps: std::cell::Cell<u32>,
}

impl Mortal {
    fn step(&self) -> Result<&Page, Dead> {
        let left = self.steps.get().checked_sub(1).ok_or(Dead)?;
        self.steps.set(left);
        Ok(&self.page)
    }
}

impl Words for Mortal {
    type Error = Dead;

    fn load(&self, offset: usize) -> Result<u32, Dead> {
        self.step()?.load(offset)
    }

    fn store(&self, offset: usize, value: u32) -> Result<(), Dead> {
        self.step()?.store(offset, value)
    }

    fn wake(&self, offset: usize) -> Result<(), Dead> {
        self.step()?.wake(offset)
    }

    fn barrier(&self) {
        self.page.barrier();
    }
}

/// Orders that contain the number of their boundary.
fn orders(sequence: u32) -> Reply {
    Reply::of((sequence + 4) & !order::EXPLAIN)
}

/// The same, with classes.
fn explaining(sequence: u32) -> Reply {
    Reply::explain([sequence + 40].into_iter().collect())
}

/// Acts as the recorder: answers each reached boundary and waits for the next, until boundary `last` is answered.
fn follow(words: &Mortal, last: u32, reply: fn(u32) -> Reply) -> Result<(), Dead> {
    let mut answered = 0;
    while answered != last {
        let reached = words.load(offset::BOUNDARY)?;
        if reached == answered {
            words.step()?.sleep(offset::BOUNDARY, answered, FOR_EVER);
        } else {
            acknowledge(words, reached, &reply(reached))?;
            answered = reached;
        }
    }
    Ok(())
}

fn harness(page: &Arc<Page>, last: u32, steps: u32) -> thread::JoinHandle<()> {
    harness_with(page, last, steps, orders)
}

fn harness_with(page: &Arc<Page>, last: u32, steps: u32, reply: fn(u32) -> Reply) -> thread::JoinHandle<()> {
    let page = Arc::clone(page);
    thread::spawn(move || {
        let words = Mortal { page: Arc::clone(&page), steps: std::cell::Cell::new(steps) };
        if follow(&words, last, reply).is_err() {
            page.kernel.lock().unwrap().harness_is_dead = true;
            page.woken.notify_all();
        }
    })
}

/// One thread at two boundaries: each boundary gets an answer, with its own orders.
#[test]
fn boundaries_one_after_the_other() {
    check("boundaries_one_after_the_other", (2, 4), || {
        let page = Page::new(1);
        let harness = harness(&page, 2, u32::MAX);
        for sequence in 1..=2 {
            announce(&*page, sequence).unwrap();
            let answer = meet(&*page, sequence, FOR_EVER, false).unwrap();
            assert_eq!(answer, Answer::Orders(orders(sequence)));
        }
        harness.join().unwrap();
    });
}

/// Two threads, each at its own boundary: both continue, whichever the harness sees, and neither takes the other's
/// orders.
#[test]
fn boundaries_of_two_threads() {
    check("boundaries_of_two_threads", (2, 3), || {
        two_threads(orders, |sequence| vec![orders(sequence), Reply::default()]);
    });
}

/// The same, with answers that contain classes: a list that the harness replaces meanwhile does not count.
#[test]
fn classes_for_two_threads() {
    check("classes_for_two_threads", (2, 3), || {
        two_threads(explaining, |sequence| {
            vec![explaining(sequence), Reply::of(order::EXPLAIN), Reply::default()]
        });
    });
}

fn two_threads(reply: fn(u32) -> Reply, allowed: fn(u32) -> Vec<Reply>) {
    let page = Page::new(1);
    let harness = harness_with(&page, 2, u32::MAX, reply);
    let next = Arc::new(Mutex::new(0));
    let visit = move |page: &Page, next: &Mutex<u32>| {
        let sequence = {
            // The session's lock.
            let mut next = next.lock().unwrap();
            *next += 1;
            announce(page, *next).unwrap();
            *next
        };
        let answer = meet(page, sequence, FOR_EVER, false).unwrap();
        assert!(allowed(sequence).into_iter().any(|reply| answer == Answer::Orders(reply)), "{answer:?}");
    };
    let other = {
        let (page, next) = (Arc::clone(&page), Arc::clone(&next));
        thread::spawn(move || visit(&page, &next))
    };
    visit(&page, &next);
    other.join().unwrap();
    harness.join().unwrap();
}

/// The harness dies at each of its steps: the guest continues within its limit, with or without orders.
#[test]
fn harness_that_dies() {
    // The harness takes at most these steps at one boundary: look, sleep, look, two stores, one wake.
    for steps in 0..=6 {
        check("harness_that_dies", (3, 6), move || {
            const LIMIT: Duration = Duration::from_secs(10);
            let page = Page::new(1);
            let harness = harness(&page, 1, steps);
            announce(&*page, 1).unwrap();
            let answer = meet(&*page, 1, LIMIT, false).unwrap();
            let waited = page.now();
            assert!(waited <= LIMIT, "{waited:?}");
            match answer {
                Answer::Orders(reply) => assert_eq!(reply, orders(1)),
                Answer::Silence => assert_eq!(waited, LIMIT),
                Answer::Nobody => panic!("the harness never left"),
            }
            harness.join().unwrap();
        });
    }
}

/// The harness leaves while a guest arrives: without a limit, no guest may keep waiting.
#[test]
fn harness_that_leaves() {
    check("harness_that_leaves", (3, 6), || {
        let page = Page::new(1);
        let harness = {
            let page = Arc::clone(&page);
            thread::spawn(move || detach(&*page).unwrap())
        };
        announce(&*page, 1).unwrap();
        let answer = meet(&*page, 1, FOR_EVER, false).unwrap();
        assert!([Answer::Nobody, Answer::Orders(Reply::default())].contains(&answer), "{answer:?}");
        harness.join().unwrap();
    });
}

/// If the guest does not check the word a second time, the kernel's guarantee does not hold. This shows that the models
/// find a lost wake-up.
#[test]
#[should_panic(expected = "deadlock")]
fn wake_up_that_is_lost() {
    check("wake_up_that_is_lost", (3, 6), || {
        let page = Page::new(1);
        let harness = harness(&page, 1, u32::MAX);
        announce(&*page, 1).unwrap();
        if page.load(offset::ACKNOWLEDGED).unwrap() == 0 {
            drop(page.woken.wait(page.kernel.lock().unwrap()).unwrap());
        }
        harness.join().unwrap();
    });
}
