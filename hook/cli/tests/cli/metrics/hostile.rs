//! Clients of `gpusliced` that are slow, wrong, many or gone.

use super::{Daemon, samples, sum};
use crate::support::{Home, eventually};
use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;

const SCRAPE: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n";

/// The daemon still serves.
fn is_alive(daemon: &Daemon) {
    let all = samples(&daemon.get("/metrics"));
    assert_eq!(sum(&all, "gpuslice_build_info", &[]), Some(1.0));
}

#[test]
fn what_is_not_a_request_gets_a_status() {
    let home = Home::new();
    let daemon = Daemon::start(&home, "");
    let long = [b"GET /", &vec![b'a'; 64 << 10][..]].concat();
    let many = [b"GET / HTTP/1.1\r\n", &b"a: b\r\n".repeat(100)[..], b"\r\n"].concat();
    for (request, status) in [
        (&b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"[..], "400"),
        (b"\0\0\0\0\r\n\r\n", "400"),
        (b"GET /metrics HTTP/9\r\n\r\n", "400"),
        (
            b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
            "405",
        ),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400"),
        (b"GET /other HTTP/1.1\r\n\r\n", "404"),
        (b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", "404"),
        (&long, "431"),
        (&many, "431"),
        (b"GET /healthz?x HTTP/1.0\r\n\r\n", "200"),
    ] {
        let answer = daemon.ask(request);
        let start = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&start), "{answer}");
    }
    let head = daemon.ask(b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"));
    assert_eq!(daemon.get("/healthz"), "ok\n");
    is_alive(&daemon);
}

#[test]
fn clients_that_send_nothing_do_not_keep_others_out() {
    let home = Home::new();
    let daemon = Daemon::start(&home, "");
    // More than the daemon keeps, each with the start of a request.
    let mut idle: Vec<_> = (0..200)
        .map(|_| {
            let mut stream = daemon.connect();
            stream.write_all(b"GET /metr").unwrap();
            stream
        })
        .collect();
    assert_eq!(daemon.get("/healthz"), "ok\n");
    // It keeps a bounded number of them.
    let folder = format!("/proc/{}/fd", daemon.process.id());
    let open = || fs::read_dir(&folder).unwrap().count();
    eventually("descriptors are bounded", || open() < 60);
    // One more takes its time, and is served.
    let mut last = daemon.connect();
    last.write_all(b"GET /healthz HTT").unwrap();
    idle.push(daemon.connect());
    last.write_all(b"P/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    last.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

#[test]
fn a_client_that_is_gone_or_never_reads_does_not_end_the_daemon() {
    let home = Home::new();
    let daemon = Daemon::start(&home, "");
    for _ in 0..50 {
        let mut stream = daemon.connect();
        stream.write_all(SCRAPE).unwrap();
        // Closed with an answer unread: the daemon's next write fails.
    }
    let mut deaf: Vec<_> = (0..50).map(|_| daemon.connect()).collect();
    for stream in &mut deaf {
        stream.write_all(SCRAPE).unwrap();
    }
    let half = daemon.connect();
    half.shutdown(Shutdown::Write).unwrap();
    is_alive(&daemon);
}

#[test]
fn a_request_that_comes_byte_by_byte_is_answered() {
    let home = Home::new();
    let daemon = Daemon::start(&home, "");
    let mut stream = daemon.connect();
    stream.set_nodelay(true).unwrap();
    for byte in SCRAPE {
        stream.write_all(&[*byte]).unwrap();
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

#[test]
fn a_connection_ends_although_its_client_does_not() {
    let home = Home::new();
    let daemon = Daemon::start(&home, "");
    let mut stream = daemon.connect();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
    // The daemon closes it after ten seconds; the test would wait for a minute.
    let mut rest = Vec::new();
    let read = stream.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{rest:?}");
    // An end, or a reset: not the end of the test's patience.
    let is_closed = read.is_ok_and(|read| read == 0);
    assert!(is_closed, "still open");
    is_alive(&daemon);
}

#[test]
fn many_scrapes_at_once_get_whole_answers() {
    let home = Home::new();
    let daemon = Daemon::start(&home, "");
    let mut streams: Vec<_> = (0..20).map(|_| daemon.connect()).collect();
    for stream in &mut streams {
        stream.write_all(SCRAPE).unwrap();
    }
    for mut stream in streams {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(sum(&samples(body), "gpuslice_build_info", &[]).is_some());
    }
}
