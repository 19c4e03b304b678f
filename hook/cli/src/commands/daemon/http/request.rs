//! Reads the head of an HTTP request, and writes a response.
//! Touches: its arguments.
//! Law: for every sequence of bytes there is an answer, and it is computed in bounded time.

use std::fmt::Write as _;
use std::rc::Rc;

/// The most bytes of a request. Prometheus sends about 300.
pub(crate) const CAP: usize = 8 << 10;

/// The most headers.
const HEADERS: usize = 64;

/// The media type of `OpenMetrics`.
const OPENMETRICS: &str = "application/openmetrics-text";

/// A request that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The path, without a query.
    pub(crate) path: String,
    /// Whether the client wants the head of the response only.
    is_head: bool,
    /// Whether the client accepts `OpenMetrics`.
    pub(crate) accepts_openmetrics: bool,
}

/// The bytes that have arrived so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// The head is not complete.
    Partial,
    /// A request.
    Whole(Request),
    /// A request that is refused, with this answer.
    Refused(Response),
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    status: &'static str,
    content_type: &'static str,
    more: &'static str,
    /// Shared with other responses: a client that reads slowly costs no copy.
    body: Rc<[u8]>,
}

/// The content type of plain text.
const PLAIN: &str = "text/plain; charset=utf-8";

impl Response {
    /// A response of status 200.
    pub(crate) fn ok(content_type: &'static str, body: Rc<[u8]>) -> Response {
        Response {
            status: "200 OK",
            content_type,
            more: "",
            body,
        }
    }

    /// A short text of status 200.
    pub(crate) fn text(text: &str) -> Response {
        Response::ok(PLAIN, text.as_bytes().into())
    }

    /// A page that does not exist.
    pub(crate) fn not_found() -> Response {
        Response::refusal("404 Not Found", "there are /metrics and /healthz\n")
    }

    /// The answer could not be made.
    pub(crate) fn failed(error: &str) -> Response {
        Response::refusal("500 Internal Server Error", error)
    }

    fn refusal(status: &'static str, text: &str) -> Response {
        Response {
            status,
            ..Response::text(text)
        }
    }

    /// Returns the head and the body to send.
    pub(crate) fn parts(self, request: Option<&Request>) -> (Vec<u8>, Rc<[u8]>) {
        let mut head = String::new();
        let _ = write!(
            head,
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}\
             X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
            self.status,
            self.content_type,
            self.body.len(),
            self.more,
        );
        let body = match request.is_some_and(|request| request.is_head) {
            true => Rc::default(),
            false => self.body,
        };
        (head.into_bytes(), body)
    }
}

/// Reads a request from the bytes that have arrived.
pub(crate) fn read(bytes: &[u8]) -> Read {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(bytes) {
        Ok(httparse::Status::Partial) if bytes.len() < CAP => Read::Partial,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            let status = "431 Request Header Fields Too Large";
            Read::Refused(Response::refusal(status, "the request is too large\n"))
        }
        Err(error) => Read::Refused(Response::refusal("400 Bad Request", &format!("{error}\n"))),
        Ok(httparse::Status::Complete(_)) => whole(&parsed),
    }
}

fn whole(parsed: &httparse::Request<'_, '_>) -> Read {
    let method = parsed.method.unwrap_or_default();
    if !["GET", "HEAD"].contains(&method) {
        return Read::Refused(Response {
            more: "Allow: GET, HEAD\r\n",
            ..Response::refusal("405 Method Not Allowed", "only GET and HEAD\n")
        });
    }
    let target = parsed.path.unwrap_or_default();
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let mut accepted = parsed
        .headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case("accept"));
    Read::Whole(Request {
        path: path.to_owned(),
        is_head: method == "HEAD",
        accepts_openmetrics: accepted.any(|header| accepts_openmetrics(header.value)),
    })
}

/// Whether a header `Accept` names `OpenMetrics`, and not with the weight 0.
fn accepts_openmetrics(value: &[u8]) -> bool {
    let value = String::from_utf8_lossy(value).to_ascii_lowercase();
    value.split(',').any(|part| {
        let mut words = part.split(';').map(str::trim);
        let is_named = words.next() == Some(OPENMETRICS);
        let is_excluded = words.any(|word| {
            let weight = word.strip_prefix("q=").map(str::parse::<f64>);
            weight.is_some_and(|weight| weight.is_ok_and(|weight| weight <= 0.0))
        });
        is_named && !is_excluded
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn status(bytes: &[u8]) -> &'static str {
        match read(bytes) {
            Read::Partial => "partial",
            Read::Whole(_) => "whole",
            Read::Refused(response) => response.status,
        }
    }

    /// What Prometheus 2.42 sends.
    const PROMETHEUS: &[u8] = b"GET /metrics?x=1 HTTP/1.1\r\nHost: 127.0.0.1:9835\r\n\
        User-Agent: Prometheus/2.42.0\r\nAccept: application/openmetrics-text;version=1.0.0,\
        application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\
        \r\nAccept-Encoding: gzip\r\nX-Prometheus-Scrape-Timeout-Seconds: 10\r\n\r\n";

    #[test]
    fn a_scrape_is_read_when_its_last_byte_has_arrived() {
        for end in 0..PROMETHEUS.len() {
            assert_eq!(read(&PROMETHEUS[..end]), Read::Partial, "{end}");
        }
        let request = Request {
            path: "/metrics".to_owned(),
            is_head: false,
            accepts_openmetrics: true,
        };
        assert_eq!(read(PROMETHEUS), Read::Whole(request));
    }

    #[test]
    fn what_is_not_understood_is_refused_with_a_status() {
        let long = [&b"GET /"[..], &vec![b'a'; CAP]].concat();
        let headers = [&b"GET / HTTP/1.1\r\n"[..], &b"a: b\r\n".repeat(65), b"\r\n"].concat();
        assert_eq!(status(&long), "431 Request Header Fields Too Large");
        assert_eq!(status(&headers), "431 Request Header Fields Too Large");
        for strange in [
            &b"\0\0\0\0"[..],
            b"GET\r\n\r\n",
            b"GET / HTTP/3.0\r\n\r\n",
            b"\x16\x03\x01",
        ] {
            assert_eq!(status(strange), "400 Bad Request", "{strange:?}");
        }
        assert_eq!(
            status(b"POST /metrics HTTP/1.1\r\n\r\n"),
            "405 Method Not Allowed"
        );
    }

    #[test]
    fn openmetrics_is_sent_to_those_who_ask_for_it() {
        assert!(accepts_openmetrics(
            b"text/plain, Application/OpenMetrics-Text; version=1.0.0"
        ));
        for other in [
            &b"*/*"[..],
            b"text/plain",
            b"application/openmetrics-text;q=0",
            b"\xff",
        ] {
            assert!(!accepts_openmetrics(other), "{other:?}");
        }
    }

    #[test]
    fn a_head_has_the_length_of_the_body_and_no_body() {
        let Read::Whole(request) = read(b"HEAD / HTTP/1.0\r\n\r\n") else {
            panic!("not read");
        };
        let (head, body) = Response::text("12345").parts(Some(&request));
        let head = String::from_utf8(head).unwrap();
        assert!(head.contains("Content-Length: 5\r\n") && head.ends_with("\r\n\r\n"));
        assert!(body.is_empty());
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes);
            let _ = read(&[b"GET /metrics HTTP/1.1\r\n", &bytes[..], b"\r\n\r\n"].concat());
        }
    }
}
