//! A small HTTP server: keeps connections open, and answers whole or line by line.
//! Touches: a socket on 127.0.0.1, threads.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

/// A request.
pub struct Asked {
    pub method: String,
    pub path: String,
    pub query: Vec<(String, String)>,
    pub body: Vec<u8>,
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
pub fn start(answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            thread::spawn(move || {
                stream.set_nodelay(true).unwrap();
                let mut reader = BufReader::new(stream);
                while let Some(asked) = read(&mut reader) {
                    let written = write(reader.get_mut(), answer(&asked));
                    if written.is_none() {
                        break;
                    }
                }
            });
        }
    });
    address
}

fn read(from: &mut BufReader<TcpStream>) -> Option<Asked> {
    let mut line = || {
        let mut line = String::new();
        from.read_line(&mut line).ok()?;
        Some(line.trim_end().to_owned())
    };
    let first = line()?;
    let mut words = first.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut length = 0;
    loop {
        let header = line()?.to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
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
        body,
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

fn write(to: &mut TcpStream, answer: Answer) -> Option<()> {
    match answer {
        Answer::Whole(status, body) => {
            let body = body.to_string();
            let length = body.len();
            let text = format!(
                "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\n\
                 content-length: {length}\r\n\r\n{body}"
            );
            to.write_all(text.as_bytes()).ok()
        }
        Answer::Lines(mut next) => {
            let head = "HTTP/1.1 200 x\r\ncontent-type: application/json\r\n\
                        transfer-encoding: chunked\r\n\r\n";
            to.write_all(head.as_bytes()).ok()?;
            while let Some(lines) = next() {
                for line in lines {
                    let line = format!("{line}\n");
                    let chunk = format!("{:x}\r\n{line}\r\n", line.len());
                    to.write_all(chunk.as_bytes()).ok()?;
                }
            }
            to.write_all(b"0\r\n\r\n").ok()
        }
    }
}
