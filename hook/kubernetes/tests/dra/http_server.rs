//! A small HTTP server: keeps connections open, and answers whole or line by line.
//! Touches: a socket on 127.0.0.1, threads.

use crate::request::Target;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// The memory of a connection's thread. The watches of a thousand clients need as many threads.
const STACK: usize = 256 << 10;

/// Requests, the bytes of them and the bytes of their answers, headers included, by kind.
#[derive(Clone, Debug, Default)]
pub struct Traffic(BTreeMap<String, (u64, u64, u64)>);

impl Traffic {
    fn add(&mut self, asked: &Asked, requests: u64, received: usize, sent: usize) {
        let target = Target::of(&asked.path);
        let verb = match target.verb(asked) {
            verb @ ("watch" | "list") => verb.to_ascii_uppercase(),
            _ => asked.method.clone(),
        };
        let key = format!("{verb} {}", target.resource());
        let sums = self.0.entry(key).or_default();
        sums.0 += requests;
        sums.1 += u64::try_from(received).unwrap();
        sums.2 += u64::try_from(sent).unwrap();
    }

    /// The traffic after an earlier moment.
    pub fn since(&self, before: &Traffic) -> Traffic {
        let left = self.0.iter().map(|(kind, now)| {
            let old = before.0.get(kind).copied().unwrap_or_default();
            (kind.clone(), (now.0 - old.0, now.1 - old.1, now.2 - old.2))
        });
        Traffic(left.filter(|(_, sums)| *sums != (0, 0, 0)).collect())
    }

    pub fn requests(&self) -> u64 {
        self.sums().0
    }

    pub fn of(&self, kind: &str) -> u64 {
        self.0.get(kind).map_or(0, |sums| sums.0)
    }

    pub fn sums(&self) -> (u64, u64, u64) {
        let all = self.0.values();
        all.fold((0, 0, 0), |sum, one| {
            (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2)
        })
    }

    pub fn lines(&self) -> Vec<String> {
        let line = |(kind, (requests, received, sent)): (&String, &(u64, u64, u64))| {
            format!("{kind}: {requests} requests, {received} bytes received, {sent} sent")
        };
        self.0.iter().map(line).collect()
    }
}

/// A request.
pub struct Asked {
    pub method: String,
    pub path: String,
    pub query: Vec<(String, String)>,
    /// The format of the body.
    pub content_type: String,
    pub body: Vec<u8>,
    /// The bytes of the whole request.
    pub size: usize,
}

impl Asked {
    pub fn query(&self, key: &str) -> Option<&str> {
        let found = self.query.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str())
    }
}

/// An answer: a status with a body, or lines until `next` ends.
pub enum Answer {
    Whole(u16, Value),
    Lines(Box<dyn FnMut() -> Option<Vec<Value>>>),
}

/// Serves until the test ends.
pub fn start(
    traffic: Arc<Mutex<Traffic>>,
    answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (answer, traffic) = (Arc::clone(&answer), Arc::clone(&traffic));
            let serve = move || {
                stream.set_nodelay(true).unwrap();
                let mut reader = BufReader::new(stream);
                while let Some(asked) = read(&mut reader) {
                    let count = |requests, received, sent| {
                        traffic
                            .lock()
                            .unwrap()
                            .add(&asked, requests, received, sent);
                    };
                    count(1, asked.size, 0);
                    let sent = |bytes| count(0, 0, bytes);
                    if write(reader.get_mut(), answer(&asked), sent).is_none() {
                        break;
                    }
                }
            };
            let thread = thread::Builder::new().stack_size(STACK);
            thread.spawn(serve).unwrap();
        }
    });
    address
}

fn read(from: &mut BufReader<TcpStream>) -> Option<Asked> {
    let mut size = 0;
    let mut line = || {
        let mut line = String::new();
        size += from.read_line(&mut line).ok()?;
        Some(line.trim_end().to_owned())
    };
    let first = line()?;
    let mut words = first.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (mut length, mut content_type) = (0, String::new());
    loop {
        let header = line()?.to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if let Some(value) = header.strip_prefix("content-type:") {
            content_type = value.trim().to_owned();
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(key), decoded(value))
    };
    Some(Asked {
        method,
        path: decoded(path),
        query: query.split('&').map(pair).collect(),
        content_type,
        body,
        size: size + length,
    })
}

fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut decoded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (hex, rest) = part.split_at(2);
        decoded.push(char::from(u8::from_str_radix(hex, 16).unwrap()));
        decoded.push_str(rest);
    }
    decoded.replace('+', " ")
}

fn write(to: &mut TcpStream, answer: Answer, sent: impl Fn(usize)) -> Option<()> {
    match answer {
        Answer::Whole(status, body) => {
            let body = body.to_string();
            let length = body.len();
            let text = format!(
                "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\n\
                 content-length: {length}\r\n\r\n{body}"
            );
            sent(text.len());
            to.write_all(text.as_bytes()).ok()
        }
        Answer::Lines(mut next) => {
            let head = "HTTP/1.1 200 x\r\ncontent-type: application/json\r\n\
                        transfer-encoding: chunked\r\n\r\n";
            sent(head.len());
            to.write_all(head.as_bytes()).ok()?;
            while let Some(lines) = next() {
                for line in lines {
                    let line = format!("{line}\n");
                    let chunk = format!("{:x}\r\n{line}\r\n", line.len());
                    sent(chunk.len());
                    to.write_all(chunk.as_bytes()).ok()?;
                }
            }
            to.write_all(b"0\r\n\r\n").ok()
        }
    }
}
