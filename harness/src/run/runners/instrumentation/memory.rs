//! Asks Android about the app's memory while its tests run: while the app waits at the end of a test, so that the
//! answer belongs to a named moment. It asks so rarely that it takes at most a twentieth of the time. The last answer
//! counts; if the device gives none, the agent's own reading is used.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use memgate_model::AppMemory;
use memgate_wire::{Boundary, BoundaryKind};
use tokio::time::timeout;

use super::on_device::OnDevice;
use crate::device::app_memory;
use crate::device::socket::Held;
use crate::output::Console;
use crate::run::engine::Finished;

/// Asking may take at most this fraction (1/n) of the time.
const SHARE: u32 = 20;
/// The app waits no longer ([`super::on_device::WAIT`]), and a later answer would belong to another moment.
const LIMIT: Duration = Duration::from_secs(4);

/// Asks, and holds the answer.
#[derive(Clone)]
pub(super) struct Memory(Arc<Mutex<State>>);

struct State {
    /// Number of tests that will run, as far as the runner has listed them, and of those that ended.
    named: usize,
    ended: usize,
    next: Instant,
    last: Option<AppMemory>,
    why_not: Option<String>,
}

impl State {
    fn is_due(&mut self) -> bool {
        self.ended += 1;
        self.ended == self.named || Instant::now() >= self.next
    }

    fn note(&mut self, told: Result<AppMemory, String>, took: Duration) {
        self.next = Instant::now() + took.saturating_mul(SHARE);
        match told {
            Ok(memory) => self.last = Some(memory),
            Err(why) => self.why_not = Some(why),
        }
    }
}

impl Memory {
    pub(super) fn of_run(named: usize) -> Self {
        let state = State { named, ended: 0, next: Instant::now(), last: None, why_not: None };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Asks while the app waits.
    pub(super) fn question(&self, suite: &OnDevice<'_>) -> Held {
        let (memory, device, app) = (self.clone(), suite.device.clone(), suite.delivery.app().clone());
        Arc::new(move |pid, boundary: &Boundary| -> BoxFuture<'static, ()> {
            let of_test = boundary.kind == BoundaryKind::TestEnd && !boundary.test.is_empty();
            if !of_test || !memory.locked().is_due() {
                return Box::pin(std::future::ready(()));
            }
            let test = format!("{}.{}", boundary.suite, boundary.test);
            let (memory, device, app) = (memory.clone(), device.clone(), app.clone());
            Box::pin(async move {
                let begun = Instant::now();
                let asked = timeout(LIMIT, app_memory::ask(&device, &app, pid, test)).await;
                let told = asked
                    .unwrap_or_else(|_elapsed| Err(format!("no answer came within {} s", LIMIT.as_secs())));
                memory.locked().note(told, begun.elapsed());
            })
        })
    }

    /// The last known memory; warns if the device gave no answer.
    pub(super) fn tell(&self, console: &Console, suite: &str, finished: &[Finished]) -> Option<AppMemory> {
        let mut state = self.locked();
        if let Some(why) = state.why_not.take().filter(|_| state.last.is_none()) {
            console.warning(&format!("{suite}: the device does not tell of the app's memory: {why}"));
        }
        state.last.take().or_else(|| by_agent(finished))
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The agent's own reading of `/proc`, at the end of the last test that has one.
fn by_agent(finished: &[Finished]) -> Option<AppMemory> {
    let windows = finished.iter().flat_map(|process| &process.record.windows).rev();
    let (window, os) = windows.filter_map(|window| Some((window, window.os_end.as_ref()?))).next()?;
    let mut memory = AppMemory { test: window.id(), source: "the agent".to_owned(), ..AppMemory::default() };
    memory.bytes.insert("total_rss".to_owned(), os.rss_bytes);
    memory.bytes.extend(os.pss_bytes.map(|pss| ("total_pss".to_owned(), pss)));
    memory.objects.insert("threads".to_owned(), os.thread_count());
    memory.objects.insert("descriptors".to_owned(), os.fd_count());
    Some(memory)
}
