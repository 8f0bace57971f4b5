//! What goes wrong with a device, at once or at a given moment.

use std::io;
use std::time::Duration;

use super::transport::Transport;
use super::{PoisonError, StandIn, thread};

/// Something that goes wrong, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// When.
    pub when: When,
    /// What.
    pub what: What,
}

/// When a fault strikes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// So many messages of the transport from now on, in both directions together.
    Messages(u64),
    /// So many messages of streams to a service whose name begins so, in both directions together.
    Exchanged {
        /// `sync:`.
        starts_with: String,
        /// From the first, which opens the stream: 0.
        messages: u64,
    },
    /// When a service whose name begins so has written that many bytes.
    Service {
        /// `shell,v2,raw:am instrument`.
        starts_with: String,
        /// 0: at its first byte.
        after_bytes: usize,
    },
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The device is gone, for good.
    Unplug,
    /// It comes back after a while.
    UnplugFor(Duration),
    /// It says nothing any more, though its connection stays.
    Silence,
    /// It no longer knows the host's key.
    Unauthorize,
    /// It sends what is no message.
    TransportGarbage,
    /// The next bytes of a service are others.
    ServiceGarbage,
}

/// Faults that wait for their moment.
#[derive(Default)]
pub(super) struct Faults {
    waiting: Vec<Fault>,
    garble: bool,
    /// Faults that struck.
    struck: usize,
    messages: u64,
}

/// Bytes that no protocol begins with, and always the same.
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
    /// The cable is pulled: who connects is refused from when this returns.
    pub fn unplug(&self) {
        self.state().unplugged = true;
        self.inner.port.close();
        self.hang_up();
    }

    /// The cable is back: connections are taken from when this returns. adb finds it by itself
    /// after some seconds.
    pub fn plug_in(&self) {
        let mut state = self.state();
        (state.unplugged, state.silent) = (false, false);
        drop(state);
        self.inner.changed.notify_all();
        self.listen();
    }

    /// It says nothing any more, though its connection stays.
    pub fn silence(&self) {
        self.state().silent = true;
    }

    /// It no longer knows the host's key.
    pub fn unauthorize(&self) {
        self.state().unauthorized = true;
        self.hang_up();
    }

    /// It sends what is no message.
    pub fn garbage(&self) {
        for transport in self.transports() {
            transport.send_garbage(&garbage(4096));
        }
    }

    /// Lets something go wrong later.
    pub fn inject(&self, fault: Fault) {
        self.faults().waiting.push(fault);
    }

    /// How many of the injected faults have struck.
    #[must_use]
    pub fn struck(&self) -> usize {
        self.faults().struck
    }

    /// How many messages have passed, in both directions.
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

    /// A message is about to be sent, or was read: of a stream to this service, or of the transport
    /// itself.
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

    /// A service is about to write; gives what it writes instead.
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
        // What is meant for this service does not hit another that writes at the same moment.
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
                // The time is the fault's own: nothing happens at its end but this.
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
