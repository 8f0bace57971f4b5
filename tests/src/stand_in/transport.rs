//! The device's side of adb's transport over TCP: messages of 24 bytes and a payload, streams with
//! one write in flight.
//!
//! Data flow: the accepting thread hands a connection to [`serve`], which reads messages; each `OPEN` creates
//! a [`Channel`] and a thread in which [`Services`] serve it; everything sent goes through
//! [`Transport::send`], where faults happen.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use super::StandIn;

const CNXN: u32 = 0x4e58_4e43;
const AUTH: u32 = 0x4854_5541;
const OPEN: u32 = 0x4e45_504f;
const OKAY: u32 = 0x5941_4b4f;
const WRTE: u32 = 0x4554_5257;
const CLSE: u32 = 0x4553_4c43;
/// From this version on, checksums are not verified.
const VERSION: u32 = 0x0100_0001;
const MOST: u32 = 1 << 20;
const TOKEN: u32 = 1;

/// Serves one stream to its end.
pub(super) type Services = fn(&StandIn, &Arc<Channel>) -> io::Result<()>;

/// A connection to an adb server.
pub(super) struct Transport {
    stream: TcpStream,
    writer: Mutex<TcpStream>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    closed: bool,
    most: usize,
    next: u32,
    channels: BTreeMap<u32, Arc<Channel>>,
}

/// A stream to a service.
pub(super) struct Channel {
    transport: Weak<Transport>,
    device: StandIn,
    service: String,
    ours: u32,
    theirs: u32,
    state: Mutex<Flow>,
    changed: Condvar,
}

#[derive(Default)]
struct Flow {
    closed: bool,
    in_flight: bool,
    came: Option<Vec<u8>>,
    sent_bytes: usize,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn gone() -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}

struct Message {
    command: u32,
    first: u32,
    second: u32,
    payload: Vec<u8>,
}

fn receive(stream: &mut impl Read) -> io::Result<Message> {
    let mut header = [0; 24];
    stream.read_exact(&mut header)?;
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let (command, length) = (word(0), word(12));
    if word(20) != command ^ u32::MAX || length > MOST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "no message of adb's"));
    }
    let mut payload = vec![0; length as usize];
    stream.read_exact(&mut payload)?;
    Ok(Message { command, first: word(4), second: word(8), payload })
}

/// Serves a connection to its end.
pub(super) fn serve(device: &StandIn, stream: TcpStream, services: Services) -> io::Result<()> {
    // Otherwise every exchange waits 40 ms for an acknowledgement.
    stream.set_nodelay(true)?;
    let transport = Arc::new(Transport {
        writer: Mutex::new(stream.try_clone()?),
        stream,
        state: Mutex::new(State { next: 1, most: MOST as usize, ..State::default() }),
        changed: Condvar::new(),
    });
    device.adopt(&transport);
    let ended = transport.messages(device, services);
    transport.close();
    device.disown(&transport);
    ended
}

impl Transport {
    fn messages(self: &Arc<Self>, device: &StandIn, services: Services) -> io::Result<()> {
        let mut stream = self.stream.try_clone()?;
        loop {
            let message = receive(&mut stream)?;
            device.message_passes(self, self.service_of(&message).as_deref())?;
            let Message { command, first, second, payload } = message;
            match command {
                CNXN => {
                    locked(&self.state).most = (second.min(MOST)) as usize;
                    self.welcome(device, !device.wants_key())?;
                }
                // A signature (2) or, if none of its keys was accepted, the host's public key (3).
                AUTH if first == 2 => self.welcome(device, device.accepts_key())?,
                AUTH if device.accepts_key() => self.welcome(device, true)?,
                AUTH => {}
                OPEN => self.open(device, services, first, &payload)?,
                OKAY => self.with(second, |channel| channel.acknowledged()),
                WRTE => self.with(second, |channel| channel.deliver(payload)),
                CLSE => self.with(second, |channel| channel.hang_up()),
                _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "an unknown command of adb's")),
            }
        }
    }

    /// The service to whose stream a received message belongs.
    fn service_of(&self, message: &Message) -> Option<String> {
        match message.command {
            OPEN => Some(String::from_utf8_lossy(&message.payload).into_owned()),
            OKAY | WRTE | CLSE => {
                locked(&self.state).channels.get(&message.second).map(|channel| channel.service.clone())
            }
            _ => None,
        }
    }

    fn welcome(&self, device: &StandIn, known: bool) -> io::Result<()> {
        if known {
            return self.send(device, None, [CNXN, VERSION, MOST], device.banner().as_bytes());
        }
        self.send(device, None, [AUTH, TOKEN, 0], &[7; 20])
    }

    fn open(
        self: &Arc<Self>,
        device: &StandIn,
        services: Services,
        theirs: u32,
        name: &[u8],
    ) -> io::Result<()> {
        let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
        let channel = {
            let mut state = locked(&self.state);
            let ours = state.next;
            state.next += 1;
            let channel = Arc::new(Channel {
                transport: Arc::downgrade(self),
                device: device.clone(),
                service: name.clone(),
                ours,
                theirs,
                state: Mutex::new(Flow::default()),
                changed: Condvar::new(),
            });
            state.channels.insert(ours, Arc::clone(&channel));
            channel
        };
        device.opened(&name);
        let device = device.clone();
        thread::spawn(move || {
            // If a service ends because the client left, nobody needs the error.
            drop(services(&device, &channel));
            channel.finish();
            device.closed(&name);
        });
        Ok(())
    }

    fn with(&self, ours: u32, act: impl FnOnce(&Channel)) {
        let channel = locked(&self.state).channels.get(&ours).cloned();
        if let Some(channel) = channel {
            act(&channel);
        }
    }

    /// Sends a message of the transport, or of a stream to `service`.
    fn send(
        &self,
        device: &StandIn,
        service: Option<&str>,
        [command, first, second]: [u32; 3],
        payload: &[u8],
    ) -> io::Result<()> {
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let words = [command, first, second, length, 0, command ^ u32::MAX];
        let header = words.map(u32::to_le_bytes).concat();
        device.message_passes(self, service)?;
        locked(&self.writer).write_all(&[header.as_slice(), payload].concat())
    }

    /// Sends bytes that are not a message.
    pub(super) fn send_garbage(&self, bytes: &[u8]) {
        // The server may have hung up already.
        drop(locked(&self.writer).write_all(bytes));
    }

    /// Ends the connection and all its streams.
    pub(super) fn close(&self) {
        drop(self.stream.shutdown(Shutdown::Both));
        let channels = {
            let mut state = locked(&self.state);
            state.closed = true;
            std::mem::take(&mut state.channels)
        };
        for channel in channels.into_values() {
            channel.hang_up();
        }
        self.changed.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        locked(&self.state).closed
    }
}

impl Channel {
    /// The service that the stream was opened for.
    pub(super) fn service(&self) -> &str {
        &self.service
    }

    /// Accepts the stream.
    pub(super) fn accept(&self) -> io::Result<()> {
        self.send(OKAY, self.ours, &[])
    }

    /// Refuses the stream: the client sees "closed".
    pub(super) fn refuse(&self) -> io::Result<()> {
        locked(&self.state).closed = true;
        self.send(CLSE, 0, &[])
    }

    fn send(&self, command: u32, ours: u32, payload: &[u8]) -> io::Result<()> {
        let transport = self.transport.upgrade().ok_or_else(gone)?;
        transport.send(&self.device, Some(&self.service), [command, ours, self.theirs], payload)
    }

    /// Writes; before each piece, waits until the previous one is acknowledged.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let most = self.transport.upgrade().map_or(1, |transport| locked(&transport.state).most);
        for piece in bytes.chunks(most) {
            self.until_free()?;
            let sent_bytes = {
                let mut flow = locked(&self.state);
                flow.in_flight = true;
                flow.sent_bytes += piece.len();
                flow.sent_bytes
            };
            match self.device.service_writes(&self.service, sent_bytes, piece) {
                Some(garbage) => self.send(WRTE, self.ours, &garbage)?,
                None => self.send(WRTE, self.ours, piece)?,
            }
        }
        Ok(())
    }

    fn until_free(&self) -> io::Result<()> {
        let flow = locked(&self.state);
        let flow = self
            .changed
            .wait_while(flow, |flow| flow.in_flight && !flow.closed)
            .unwrap_or_else(PoisonError::into_inner);
        if flow.closed { Err(gone()) } else { Ok(()) }
    }

    /// The next piece; `None` if the other side has hung up.
    pub(super) fn read(&self) -> io::Result<Option<Vec<u8>>> {
        let flow = locked(&self.state);
        let mut flow = self
            .changed
            .wait_while(flow, |flow| flow.came.is_none() && !flow.closed)
            .unwrap_or_else(PoisonError::into_inner);
        let came = flow.came.take();
        let closed = flow.closed;
        drop(flow);
        if came.is_some() && !closed {
            self.send(OKAY, self.ours, &[])?;
        }
        Ok(came)
    }

    /// Has the other side hung up?
    pub(super) fn gone(&self) -> bool {
        locked(&self.state).closed
    }

    fn acknowledged(&self) {
        locked(&self.state).in_flight = false;
        self.changed.notify_all();
    }

    fn deliver(&self, payload: Vec<u8>) {
        locked(&self.state).came = Some(payload);
        self.changed.notify_all();
    }

    fn hang_up(&self) {
        locked(&self.state).closed = true;
        self.changed.notify_all();
    }

    /// Closes the stream after the last write has been acknowledged.
    fn finish(&self) {
        if self.until_free().is_ok() {
            self.hang_up();
            drop(self.send(CLSE, self.ours, &[]));
        }
        if let Some(transport) = self.transport.upgrade() {
            locked(&transport.state).channels.remove(&self.ours);
        }
    }
}
