//! A small HTTP server for one thread that also does other work.
//! Touches: listening sockets and their connections, which never block.
//! Law: a client can delay another by the time of one answer at most. See README.md.

pub(crate) mod connection;
pub(crate) mod request;

use super::config::Address;
use anyhow::Context;
use connection::{Connection, Next, Stream};
use nix::poll::{PollFd, PollFlags};
use request::{Request, Response};
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// The most connections at once. One more takes the place of an older one.
const CONNECTIONS: usize = 32;

/// The pause after a connection could not be accepted: this process has no descriptor left.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    fn on(address: &Address) -> io::Result<Listener> {
        let listener = match address {
            Address::Tcp(address) => Listener::Tcp(TcpListener::bind(address)?),
            Address::Unix(path) => {
                remove_left(path);
                Listener::Unix(UnixListener::bind(path)?)
            }
        };
        match &listener {
            Listener::Tcp(listener) => listener.set_nonblocking(true)?,
            Listener::Unix(listener) => listener.set_nonblocking(true)?,
        }
        Ok(listener)
    }

    fn accept(&self) -> io::Result<Stream> {
        let stream = match self {
            Listener::Tcp(listener) => Stream::Tcp(listener.accept()?.0),
            Listener::Unix(listener) => Stream::Unix(listener.accept()?.0),
        };
        match &stream {
            Stream::Tcp(stream) => stream.set_nonblocking(true)?,
            Stream::Unix(stream) => stream.set_nonblocking(true)?,
        }
        Ok(stream)
    }
}

/// Removes the socket of a daemon that has ended. A socket with a listener stays.
fn remove_left(path: &Path) {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if is_socket && UnixStream::connect(path).is_err_and(refused) {
        // If this fails, binding fails as well, with a message.
        let _ = fs::remove_file(path);
    }
}

/// The server.
#[derive(Debug)]
pub(crate) struct Server {
    listeners: Vec<Listener>,
    connections: Vec<Connection>,
    /// No connection is accepted until then.
    paused: Option<Instant>,
}

impl Server {
    /// Starts to listen.
    ///
    /// # Errors
    /// When an address cannot be used.
    pub(crate) fn start(addresses: &[Address]) -> anyhow::Result<Server> {
        let listen = |address| {
            let listener = Listener::on(address);
            listener.with_context(|| match address {
                Address::Tcp(address) => format!("cannot listen on {address}"),
                Address::Unix(path) => format!("cannot listen on {}", path.display()),
            })
        };
        let listeners: anyhow::Result<Vec<Listener>> = addresses.iter().map(listen).collect();
        Ok(Server {
            listeners: listeners?,
            connections: Vec::new(),
            paused: None,
        })
    }

    /// Returns the network addresses, with the port that the kernel chose for port 0.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let own = self.listeners.iter().filter_map(|listener| match listener {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            Listener::Unix(_) => None,
        });
        own.collect()
    }

    /// Returns the descriptors to wait for.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = PollFd<'_>> {
        let listeners = self.listeners.iter().filter(|_| self.paused.is_none());
        let listeners = listeners.map(|listener| match listener {
            Listener::Tcp(listener) => PollFd::new(listener.as_fd(), PollFlags::POLLIN),
            Listener::Unix(listener) => PollFd::new(listener.as_fd(), PollFlags::POLLIN),
        });
        let connections = self.connections.iter().map(|connection| {
            let (descriptor, events) = connection.wanted();
            PollFd::new(descriptor, events)
        });
        listeners.chain(connections)
    }

    /// Returns the time until something is due; None if nothing is.
    pub(crate) fn due(&self) -> Option<Duration> {
        let now = Instant::now();
        let ends = self.connections.iter().map(|connection| connection.end);
        let first = ends.chain(self.paused).min()?;
        let due = first.saturating_duration_since(now);
        // One millisecond late rather than early: an early wake-up would find nothing to do.
        Some(due.saturating_add(Duration::from_millis(1)))
    }

    /// Serves what has arrived. `answer` makes the response to a request.
    pub(crate) fn turn(&mut self, answer: &mut dyn FnMut(&Request) -> Response) {
        let now = Instant::now();
        self.paused = self.paused.filter(|end| *end > now);
        if self.paused.is_none() {
            self.accept(now, answer);
        }
        // A request that has arrived is answered even if its time is over: this thread may have
        // been busy.
        self.connections
            .retain_mut(|one| one.turn(answer) == Next::Wait && one.end > now);
    }

    fn accept(&mut self, now: Instant, answer: &mut dyn FnMut(&Request) -> Response) {
        for listener in &self.listeners {
            // More wait in the kernel's queue until the next turn.
            for _ in 0..CONNECTIONS {
                match listener.accept() {
                    Ok(stream) => {
                        // A client that has sent its request is answered before others can
                        // take its place.
                        let mut new = Connection::new(stream, now);
                        if new.turn(answer) == Next::Wait {
                            make_room(&mut self.connections);
                            self.connections.push(new);
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // The client disconnected before accept.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    Err(_) => {
                        self.paused = now.checked_add(PAUSE);
                        return;
                    }
                }
            }
        }
    }
}

/// Closes the least worthy and oldest connection if there are too many.
fn make_room(connections: &mut Vec<Connection>) {
    if connections.len() < CONNECTIONS {
        return;
    }
    let all = connections.iter().enumerate();
    let least = all.min_by_key(|(place, one)| (one.worth(), *place));
    if let Some((place, _)) = least {
        connections.remove(place);
    }
}
