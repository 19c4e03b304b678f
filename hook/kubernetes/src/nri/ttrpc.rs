//! Encodes and decodes messages of ttrpc: requests and responses.
//! Touches: its arguments.
//!
//! A message is its length, the number of its call (4 bytes each, big-endian), its type, its flags
//! and its payload (PROTOCOL.md of containerd/ttrpc).

use prost::Message as _;

/// The type of a call.
pub const REQUEST: u8 = 1;

/// The type of an answer.
pub const RESPONSE: u8 = 2;

/// The longest payload.
pub const LONGEST: usize = 4 << 20;

const HEADER: usize = 10;

/// The status of a call that failed for a reason of the plugin.
pub const FAILED: i32 = 9;

/// The status of a call of an unknown method.
pub const UNIMPLEMENTED: i32 = 12;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The number of the call.
    pub stream: u32,
    /// Its type.
    pub kind: u8,
    /// A [`Request`] or a [`Response`].
    pub payload: Vec<u8>,
}

/// A call.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Request {
    /// The service, with its package.
    #[prost(string, tag = "1")]
    pub service: String,
    /// The method.
    #[prost(string, tag = "2")]
    pub method: String,
    /// The method's argument.
    #[prost(bytes = "vec", tag = "3")]
    pub payload: Vec<u8>,
}

/// The answer to a call.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Response {
    /// The error, if its code is not 0.
    #[prost(message, optional, tag = "1")]
    pub status: Option<Status>,
    /// The method's result.
    #[prost(bytes = "vec", tag = "2")]
    pub payload: Vec<u8>,
}

/// An error.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Status {
    /// gRPC's code.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// The text.
    #[prost(string, tag = "2")]
    pub message: String,
}

impl Message {
    /// A call.
    #[must_use]
    pub fn request(
        stream: u32,
        service: &str,
        method: &str,
        argument: &impl prost::Message,
    ) -> Message {
        let request = Request {
            service: service.to_owned(),
            method: method.to_owned(),
            payload: argument.encode_to_vec(),
        };
        Message {
            stream,
            kind: REQUEST,
            payload: request.encode_to_vec(),
        }
    }

    /// The answer to a call.
    #[must_use]
    pub fn response(stream: u32, result: Result<Vec<u8>, Status>) -> Message {
        let response = match result {
            Ok(payload) => Response {
                status: None,
                payload,
            },
            Err(status) => Response {
                status: Some(status),
                payload: Vec::new(),
            },
        };
        Message {
            stream,
            kind: RESPONSE,
            payload: response.encode_to_vec(),
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let length = u32::try_from(self.payload.len()).unwrap_or(u32::MAX);
        let mut bytes = [length.to_be_bytes(), self.stream.to_be_bytes()].concat();
        bytes.extend([self.kind, 0]);
        bytes.extend(&self.payload);
        bytes
    }
}

/// Takes the first message out of received bytes; `None` while it is not whole.
///
/// # Errors
/// The announced length, when it is too large.
pub fn take(received: &mut Vec<u8>) -> Result<Option<Message>, u32> {
    let Some([a, b, c, d, e, f, g, h, kind, _]) = received.first_chunk::<HEADER>().copied() else {
        return Ok(None);
    };
    let announced = u32::from_be_bytes([a, b, c, d]);
    let length = usize::try_from(announced).unwrap_or(usize::MAX);
    if length > LONGEST {
        return Err(announced);
    }
    let end = HEADER.saturating_add(length);
    if received.len() < end {
        return Ok(None);
    }
    let rest = received.split_off(end);
    let whole = std::mem::replace(received, rest);
    Ok(Some(Message {
        stream: u32::from_be_bytes([e, f, g, h]),
        kind,
        payload: whole.get(HEADER..).unwrap_or_default().to_vec(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_are_found_however_they_are_cut(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..8),
            cut in 1_usize..50,
        ) {
            let sent: Vec<Message> = (1_u32..)
                .zip(&payloads)
                .map(|(stream, payload)| Message { stream, kind: REQUEST, payload: payload.clone() })
                .collect();
            let wire: Vec<u8> = sent.iter().flat_map(Message::bytes).collect();
            let (mut received, mut found) = (Vec::new(), Vec::new());
            for part in wire.chunks(cut) {
                received.extend(part);
                while let Some(message) = take(&mut received).unwrap() {
                    found.push(message);
                }
            }
            prop_assert_eq!(found, sent);
            prop_assert!(received.is_empty());
        }

        #[test]
        fn any_bytes_are_taken_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let length = bytes.len();
            if let Ok(Some(message)) = take(&mut bytes) {
                prop_assert!(message.payload.len() < length);
            }
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_refused_before_it_arrives() {
        let mut received = vec![0, 64, 0, 1, 0, 0, 0, 1, REQUEST, 0];
        assert_eq!(take(&mut received), Err((4 << 20) + 1));
    }
}
