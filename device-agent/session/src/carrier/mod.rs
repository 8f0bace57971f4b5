//! The carriers, which take encoded frames out of the process. Both move the same bytes.

mod socket;
mod spool;

use core::time::Duration;

use memgate_wire::handshake::{self, Answer, Words};
use memgate_wire::spool::offset;

pub use socket::Socket;
pub use spool::Control;
pub(crate) use spool::Spool;

/// A carrier.
pub(crate) enum Carrier {
    /// A mapped file.
    Spool(Spool),
    /// A WebSocket served by a thread of our own.
    Socket(Socket),
}

impl Carrier {
    /// Hands over the bytes of whole frames. Returns false if they could not be recorded; no later frames are recorded
    /// then.
    pub(crate) fn write(&mut self, frames: &[u8]) -> bool {
        match self {
            Self::Spool(spool) => spool.write(frames),
            Self::Socket(socket) => socket.write(frames),
        }
    }

    /// The place where a thread waits for the harness, outside the session's lock.
    pub(crate) fn meeting(&self) -> Meeting {
        match self {
            Self::Spool(spool) => Meeting::Spool(spool.control()),
            Self::Socket(socket) => Meeting::Socket(socket.clone()),
        }
    }

    /// The stream is complete. A peer gets `limit` to read the remaining bytes.
    pub(crate) fn close(&mut self, limit: Duration) {
        match self {
            Self::Spool(spool) => spool.close(),
            Self::Socket(socket) => socket.close(limit),
        }
    }

    /// Id of the agent's own thread; 0: there is none.
    pub(crate) fn thread(&self) -> u32 {
        match self {
            Self::Spool(_) => 0,
            Self::Socket(socket) => socket.thread(),
        }
    }

    /// Bytes mapped by the carrier.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        match self {
            Self::Spool(spool) => spool.mapped_bytes(),
            Self::Socket(_) => 0,
        }
    }
}

/// Where a thread at a boundary meets the harness.
pub enum Meeting {
    /// The control page.
    Spool(std::sync::Arc<Control>),
    /// The socket's thread.
    Socket(Socket),
}

impl Meeting {
    /// Tells the harness that boundary `sequence` is reached. Called under the session's lock, so the numbers come in
    /// order.
    pub(crate) fn announce(&self, sequence: u32) {
        let Ok(()) = match self {
            Self::Spool(control) => handshake::announce(&**control, sequence),
            Self::Socket(socket) => handshake::announce(socket, sequence),
        };
    }

    /// The last order for followed Java objects; 0: none yet. Always 0 on a socket.
    pub fn follow_order(&self) -> u32 {
        match self {
            Self::Spool(control) => {
                let Ok(order) = control.load(offset::FOLLOW);
                order
            }
            Self::Socket(_) => 0,
        }
    }

    /// Reports that the order was obeyed.
    pub fn follow_obeyed(&self, order: u32) {
        if let Self::Spool(control) = self {
            let Ok(()) = control.store(offset::FOLLOWED, order);
            let Ok(()) = control.wake(offset::FOLLOWED);
        }
    }

    /// Waits for the answer to boundary `sequence`, at most `limit`. With `expected`, also waits if no harness has
    /// attached yet.
    pub(crate) fn wait(&self, sequence: u32, limit: Duration, expected: bool) -> Answer {
        let Ok(answer) = match self {
            Self::Spool(control) => handshake::meet(&**control, sequence, limit, expected),
            Self::Socket(socket) => handshake::meet(socket, sequence, limit, expected),
        };
        answer
    }
}
