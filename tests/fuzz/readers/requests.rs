//! The reader of HTTP requests.
//! Touches: its arguments.

use super::request::{self, Read, Response};

/// The request that some bytes hold.
#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    /// The head is not complete.
    Partial,
    /// A request of this path.
    Whole(String),
    /// The answer to a request that is refused.
    Refused(Vec<u8>),
}

/// Reads a request.
pub fn request(bytes: &[u8]) -> Request {
    match request::read(bytes) {
        Read::Partial => Request::Partial,
        Read::Whole(request) => Request::Whole(request.path),
        Read::Refused(response) => Request::Refused(Response::parts(response, None).0),
    }
}
