//! Faults of a device, immediate or at a given moment.

use std::io;
use std::time::Duration;

use super::transport::Transport;
use super::{PoisonError, StandIn, thread};

/// A fault that happens once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// When.
    pub when: When,
    /// What.
    pub what: What,
}

/// When a fault happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// After this many messages of the transport from now on, counting both directions.
    Messages(u64),
    /// After this many messages, in both directions, of streams to services with this prefix.
    Exchanged {
        /// `sync:`.
        starts_with: String,
        /// Counted from the message that opens the stream: 0.
        messages: u64,
    },
    /// When a service with this prefix has written this many bytes.
    Service {
        /// `shell,v2,raw:am instrument`.
        starts_with: String,
        /// 0: at its first byte.
        after_bytes: usize,
    },
}

/// The kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The device disappears for good.
    Unplug,
    /// The device disappears and comes back later.
    UnplugFor(Duration),
    /// The device stops answering; its connection stays.
    Silence,
    /// The device no longer knows the host's key.
    Unauthorize,
    /// The device sends bytes that are not a message.
    TransportGarbage,
    /// The next bytes of a service are replaced by garbage.
    ServiceGarbage,
}

/// Pending faults.
#[derive(Default)]
pub(super) struct Faults {
    waiting: Vec<Fault>,
    garble: bool,
    /// Number of faults that happened.
    struck: usize,
    messages: u64,
}

/// Fixed bytes with which no protocol begins.
fn garbage(length: usize) -> Vec<u8> {
    let mut seed: u32 = 0x2545_f491;
    let next = || {
        seed ^= seed << 13;
        seed ^= seed >> 17;
        seed ^= seed << 5;
        seed.to_le_bytes()[0] | 0x80
    };
    std::iter::repeat_with(next).take(length).collect()
}

impl StandIn {
    /// Pulls the cable: once this returns, connections are refused.
    pub fn unplug(&self) {
        self.state().unplugged = true;
        self.inner.port.close();
        self.hang_up();
    }

    /// Plugs the cable in: once this returns, connections are accepted. adb finds the device by itself after
    /// some seconds.
    pub fn plug_in(&self) {
        let mut state = self.state();
        (state.unplugged, state.silent) = (false, false);
        drop(state);
        self.inner.changed.notify_all();
        self.listen();
    }

    /// The device stops answering; its connection stays.
    pub fn silence(&self) {
        self.state().silent = true;
    }

    /// The device no longer knows the host's key.
    pub fn unauthorize(&self) {
        self.state().unauthorized = true;
        self.hang_up();
    }

    /// The device sends bytes that are not a message.
    pub fn garbage(&self) {
        for transport in self.transports() {
            transport.send_garbage(&garbage(4096));
        }
    }

    /// Schedules a fault.
    pub fn inject(&self, fault: Fault) {
        self.faults().waiting.push(fault);
    }

    /// Number of injected faults that have happened.
    #[must_use]
    pub fn struck(&self) -> usize {
        self.faults().struck
    }

    /// Number of messages so far, in both directions.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.faults().messages
    }

    pub(super) fn wants_key(&self) -> bool {
        self.inner.made.key || self.state().unauthorized
    }

    pub(super) fn accepts_key(&self) -> bool {
        !self.state().unauthorized
    }

    pub(super) fn hang_up(&self) {
        for transport in self.transports() {
            transport.close();
        }
        self.inner.changed.notify_all();
    }

    fn transports(&self) -> Vec<super::Arc<Transport>> {
        self.state().transports.iter().filter_map(super::Weak::upgrade).collect()
    }

    fn faults(&self) -> super::MutexGuard<'_, Faults> {
        self.inner.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called before a message is sent and after one is read; `service` is `None` for messages of the
    /// transport itself.
    pub(super) fn message_passes(&self, transport: &Transport, service: Option<&str>) -> io::Result<()> {
        let mut due = Vec::new();
        self.faults().messages += 1;
        self.faults().waiting.retain_mut(|fault| {
            let left = match &mut fault.when {
                When::Messages(left) => left,
                When::Exchanged { starts_with, messages }
                    if service.is_some_and(|service| service.starts_with(starts_with.as_str())) =>
                {
                    messages
                }
                When::Exchanged { .. } | When::Service { .. } => return true,
            };
            if *left == 0 {
                due.push(fault.what);
                return false;
            }
            *left -= 1;
            true
        });
        due.into_iter().for_each(|what| self.strike(what));
        let silent = |state: &mut super::State| state.silent && !state.ended && !transport.is_closed();
        drop(self.inner.changed.wait_while(self.state(), silent).unwrap_or_else(PoisonError::into_inner));
        if transport.is_closed() { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    /// Called before a service writes; returns replacement bytes, if any.
    pub(super) fn service_writes(&self, service: &str, sent_bytes: usize, piece: &[u8]) -> Option<Vec<u8>> {
        let mut due = Vec::new();
        self.faults().waiting.retain(|fault| match &fault.when {
            When::Service { starts_with, after_bytes }
                if service.starts_with(starts_with) && sent_bytes > *after_bytes =>
            {
                due.push(fault.what);
                false
            }
            _ => true,
        });
        // A fault of this service must not hit another one that writes at the same moment.
        let (own, others): (Vec<What>, Vec<What>) =
            due.into_iter().partition(|what| *what == What::ServiceGarbage);
        others.into_iter().for_each(|what| self.strike(what));
        let mut faults = self.faults();
        faults.struck += own.len();
        let garbled = !own.is_empty() || std::mem::take(&mut faults.garble);
        garbled.then(|| garbage(piece.len()))
    }

    fn strike(&self, what: What) {
        self.faults().struck += 1;
        match what {
            What::Unplug => self.unplug(),
            What::UnplugFor(time) => {
                self.unplug();
                let device = Self { inner: super::Arc::clone(&self.inner), _owner: None };
                // The fault lasts for a fixed time: there is no event to wait for.
                thread::spawn(move || {
                    thread::sleep(time);
                    device.plug_in();
                });
            }
            What::Silence => self.silence(),
            What::Unauthorize => self.unauthorize(),
            What::TransportGarbage => self.garbage(),
            What::ServiceGarbage => self.faults().garble = true,
        }
    }
}
