//! The port of a device, which listens while the device is plugged in. While it does not listen, a socket
//! that is bound but never listens reserves the port number for the device, and the kernel refuses
//! connections.

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

/// The thread that accepts connections.
struct Open {
    closed: Arc<AtomicBool>,
    taking: JoinHandle<()>,
}

impl Port {
    /// Reserves a free port, closed.
    pub(super) fn reserve() -> Self {
        // Not inherited by programs that other tests start meanwhile.
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

    /// Opens the port: connections are accepted once this returns.
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
                // A client that disconnected at once is ignored.
                accepted.into_iter().for_each(|(stream, _)| take(stream));
            }
        });
        *open = Some(Open { closed, taking });
    }

    /// Closes the port: connections are refused once this returns.
    pub(super) fn close(&self) {
        let mut open = self.locked();
        let Some(Open { closed, taking }) = open.take() else { return };
        closed.store(true, Ordering::Release);
        // The thread blocks in `accept`; this connection wakes it.
        drop(TcpStream::connect(self.address));
        taking.join().unwrap();
    }

    fn locked(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
