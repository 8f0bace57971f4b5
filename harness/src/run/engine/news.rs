//! Messages from the recorder's threads to a run.
//!
//! The start or end of a test wakes no thread: that would cost a context switch at every boundary, while the guest
//! waits. The run reads the messages at each tick of its clock, and before each decision. Processes that begin or end
//! wake it.

use std::sync::Mutex;
use std::time::Instant;

use memgate_analysis::ProcessRecord;
use tokio::sync::Notify;

use crate::recorder::{Process, ProcessKey, lock};

/// An event in a process.
#[derive(Debug)]
pub(in crate::run) enum Seen {
    /// It began to record.
    Started(Box<Process>),
    /// A test began.
    TestBegan { key: ProcessKey, test: String },
    /// A test ended. `survivors`: number of its own allocations that are alive.
    TestEnded { key: ProcessKey, survivors: u64 },
    /// The process's stream ended.
    Ended { key: ProcessKey, record: Box<ProcessRecord> },
}

/// Events that have not been read yet.
#[derive(Debug, Default)]
pub(in crate::run) struct News {
    waiting: Mutex<Vec<(Seen, Instant)>>,
    bell: Notify,
}

impl News {
    /// Adds an event that happened now.
    pub(super) fn tell(&self, seen: Seen) {
        let is_urgent = matches!(seen, Seen::Started(_) | Seen::Ended { .. });
        lock(&self.waiting).push((seen, Instant::now()));
        if is_urgent {
            self.bell.notify_one();
        }
    }

    /// All events since the last call, with their times.
    pub(in crate::run) fn take(&self) -> Vec<(Seen, Instant)> {
        std::mem::take(&mut *lock(&self.waiting))
    }

    /// Waits until a process begins or ends.
    pub(in crate::run) async fn urgent(&self) {
        self.bell.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_test_wakes_nobody_and_an_end_does() {
        let news = News::default();
        let is_woken = async || tokio::time::timeout(Duration::ZERO, news.urgent()).await.is_ok();
        let key = ProcessKey(1);
        news.tell(Seen::TestBegan { key, test: "A.b".into() });
        news.tell(Seen::TestEnded { key, survivors: 0 });
        assert!(!is_woken().await);
        news.tell(Seen::Ended { key, record: Box::default() });
        assert!(is_woken().await);
        assert_eq!(news.take().len(), 3);
        assert_eq!(news.take().len(), 0);
    }
}
