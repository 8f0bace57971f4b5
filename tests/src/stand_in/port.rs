//! The port at which a device listens while it is plugged in. Its number stays the device's own
//! while it does not listen: a socket that is bound and never listens keeps it from everybody else,
//! and the system refuses who connects.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt};

/// A port of this machine.
pub(super) struct Port {
    address: SocketAddr,
    _reserved: OwnedFd,
    open: Mutex<Option<Open>>,
}

/// Who takes its connections.
struct Open {
    closed: Arc<AtomicBool>,
    taking: JoinHandle<()>,
}

impl Port {
    /// A port that nobody else has, closed.
    pub(super) fn reserve() -> Self {
        // Programs that tests start meanwhile do not inherit it.
        let reserved =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        sockopt::set_socket_reuseaddr(&reserved, true).unwrap();
        bind(&reserved, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = SocketAddr::try_from(getsockname(&reserved).unwrap()).unwrap();
        Self { address, _reserved: reserved, open: Mutex::new(None) }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// When this returns, connections are taken.
    pub(super) fn open(&self, take: impl Fn(TcpStream) + Send + 'static) {
        let mut open = self.locked();
        if open.is_some() {
            return;
        }
        let listener = TcpListener::bind(self.address).unwrap();
        let closed = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&closed);
        let taking = thread::spawn(move || {
            loop {
                let accepted = listener.accept();
                if ends.load(Ordering::Acquire) {
                    return;
                }
                // Who connects and leaves at once is no connection.
                accepted.into_iter().for_each(|(stream, _)| take(stream));
            }
        });
        *open = Some(Open { closed, taking });
    }

    /// When this returns, connections are refused.
    pub(super) fn close(&self) {
        let mut open = self.locked();
        let Some(Open { closed, taking }) = open.take() else { return };
        closed.store(true, Ordering::Release);
        // It waits for a connection: this is one.
        drop(TcpStream::connect(self.address));
        taking.join().unwrap();
    }

    fn locked(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
