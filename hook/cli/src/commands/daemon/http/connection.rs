//! One connection: reads a request, writes the response, and waits for the client to close.
//! Touches: its socket, which never blocks.
//! Law: a connection ends after [`PATIENCE`], and holds at most [`request::CAP`] bytes of a request.

use super::request::{self, Read as Parsed, Request, Response};
use nix::poll::PollFlags;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The longest life of a connection.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The most bytes that are read and ignored after the response.
const IGNORED: usize = 256 << 10;

/// A socket of a client.
#[derive(Debug)]
pub(crate) enum Stream {
    /// From the network.
    Tcp(TcpStream),
    /// From this machine.
    Unix(UnixStream),
}

impl Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(into),
            Stream::Unix(stream) => stream.read(into),
        }
    }

    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(from),
            Stream::Unix(stream) => stream.write(from),
        }
    }

    fn end(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

#[derive(Debug)]
enum Stage {
    Reading(Vec<u8>),
    Writing {
        head: Vec<u8>,
        body: Rc<[u8]>,
        sent: usize,
    },
    /// The response is sent. Closing now would discard it if unread bytes of the client were left.
    Ignoring(usize),
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Stream,
    stage: Stage,
    pub(crate) end: Instant,
}

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It waits for its socket.
    Wait,
    /// It is closed.
    Close,
}

impl Connection {
    /// A connection of a socket that does not block.
    pub(crate) fn new(stream: Stream, now: Instant) -> Connection {
        Connection {
            stream,
            stage: Stage::Reading(Vec::new()),
            end: now.checked_add(PATIENCE).unwrap_or(now),
        }
    }

    /// Returns the descriptor, and the events to wait for.
    pub(crate) fn wanted(&self) -> (BorrowedFd<'_>, PollFlags) {
        let events = match self.stage {
            Stage::Writing { .. } => PollFlags::POLLOUT,
            Stage::Reading(_) | Stage::Ignoring(_) => PollFlags::POLLIN,
        };
        (self.stream.descriptor(), events)
    }

    /// Returns the order in which connections are given up: answered ones first, then those without
    /// a request.
    pub(crate) fn worth(&self) -> u8 {
        match self.stage {
            Stage::Ignoring(_) => 0,
            Stage::Reading(_) => 1,
            Stage::Writing { .. } => 2,
        }
    }

    /// Goes as far as the socket allows. `answer` makes the response to a request.
    pub(crate) fn turn(&mut self, answer: &mut dyn FnMut(&Request) -> Response) -> Next {
        let done = loop {
            let step = match &mut self.stage {
                Stage::Reading(bytes) => read(&mut self.stream, bytes, answer),
                Stage::Writing { head, body, sent } => write(&mut self.stream, head, body, sent),
                Stage::Ignoring(left) => ignore(&mut self.stream, left),
            };
            match step {
                Ok(Some(next)) => self.stage = next,
                Ok(None) => {}
                Err(error) => break error,
            }
        };
        match done.kind() {
            ErrorKind::WouldBlock => Next::Wait,
            _ => Next::Close,
        }
    }
}

fn ended() -> io::Error {
    ErrorKind::UnexpectedEof.into()
}

/// Repeats a system call that a signal interrupted.
fn again(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(None),
        result => result.map(Some),
    }
}

fn read(
    stream: &mut Stream,
    bytes: &mut Vec<u8>,
    answer: &mut dyn FnMut(&Request) -> Response,
) -> io::Result<Option<Stage>> {
    let mut part = [0; 1024];
    let room = request::CAP.saturating_sub(bytes.len()).min(part.len());
    let part = part.get_mut(..room).unwrap_or_default();
    let Some(count) = again(stream.read(part))? else {
        return Ok(None);
    };
    if count == 0 {
        return Err(ended());
    }
    bytes.extend_from_slice(part.get(..count).unwrap_or_default());
    let (head, body) = match request::read(bytes) {
        Parsed::Partial => return Ok(None),
        Parsed::Refused(response) => response.parts(None),
        Parsed::Whole(request) => answer(&request).parts(Some(&request)),
    };
    let sent = 0;
    Ok(Some(Stage::Writing { head, body, sent }))
}

fn write(
    stream: &mut Stream,
    head: &[u8],
    body: &[u8],
    sent: &mut usize,
) -> io::Result<Option<Stage>> {
    let left = match head.get(*sent..) {
        Some(left) if !left.is_empty() => left,
        _ => {
            let sent = sent.saturating_sub(head.len());
            body.get(sent..).unwrap_or_default()
        }
    };
    if left.is_empty() {
        stream.end()?;
        return Ok(Some(Stage::Ignoring(IGNORED)));
    }
    *sent = match again(stream.write(left))? {
        Some(0) => return Err(ended()),
        count => sent.saturating_add(count.unwrap_or(0)),
    };
    Ok(None)
}

fn ignore(stream: &mut Stream, left: &mut usize) -> io::Result<Option<Stage>> {
    let mut part = [0; 4096];
    if let Some(count) = again(stream.read(&mut part))? {
        *left = left.checked_sub(count).ok_or_else(ended)?;
        if count == 0 {
            return Err(ended());
        }
    }
    Ok(None)
}
