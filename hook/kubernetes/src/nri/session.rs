//! One connection to an engine: registers the plugin, and answers calls until the engine closes it.
//! Touches: its arguments.

use super::NAME;
use super::api::{self, RegisterRequest};
use super::mux::{self, PLUGIN, RUNTIME};
use super::plugin::{Called, Plugin};
use super::ttrpc::{self, Message, Request, Response};
use prost::Message as _;
use std::io::{self, Read, Write};

/// Why a session has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The engine has closed the connection.
    Closed,
    /// The engine has told the plugin to stop.
    Shutdown,
}

impl End {
    /// The state that the engine has reached.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            End::Closed => "closed the connection",
            End::Shutdown => "shut the plugin down",
        }
    }
}

/// Why a session has failed.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The engine sent something that is not NRI.
    #[error("the engine sent {0}")]
    Protocol(String),
    /// The engine refused the registration.
    #[error("{0}")]
    Refused(String),
}

/// The number of the only call to the engine.
const REGISTER: u32 = 1;

/// Serves a connection. `configured` is called with the engine's name once the plugin is in use.
///
/// # Errors
/// When the connection fails, or the engine refuses the plugin.
pub fn session<S: Read + Write>(
    mut stream: S,
    plugin: &mut Plugin,
    index: &str,
    configured: &mut dyn FnMut(&str) -> io::Result<()>,
) -> Result<End, SessionError> {
    let register = RegisterRequest {
        plugin_name: NAME.to_owned(),
        plugin_idx: index.to_owned(),
    };
    let call = Message::request(REGISTER, api::RUNTIME, "RegisterPlugin", &register);
    mux::write(&mut stream, RUNTIME, &call.bytes())?;
    let [mut calls, mut answers] = [Vec::new(), Vec::new()];
    while let Some((connection, bytes)) = mux::read(&mut stream)? {
        match connection {
            PLUGIN => calls.extend(bytes),
            RUNTIME => answers.extend(bytes),
            // A connection that a later version adds.
            _ => continue,
        }
        while let Some(answer) = take(&mut answers)? {
            is_registered(&answer)?;
        }
        while let Some(call) = take(&mut calls)? {
            if call.kind != ttrpc::REQUEST {
                continue;
            }
            let result = Request::decode(call.payload.as_slice())
                .map_err(|error| SessionError::Protocol(format!("a call that is none: {error}")))
                .map(|request| plugin.call(&request))?;
            let mut is_last = false;
            let mut engine = None;
            let payload = result.map(|called| match called {
                Called::Answer(payload) => payload,
                Called::Configured(payload, name) => {
                    engine = Some(name);
                    payload
                }
                Called::Shutdown => {
                    is_last = true;
                    Vec::new()
                }
            });
            let response = Message::response(call.stream, payload);
            mux::write(&mut stream, PLUGIN, &response.bytes())?;
            if is_last {
                return Ok(End::Shutdown);
            }
            if let Some(engine) = engine {
                configured(&engine)?;
            }
        }
    }
    Ok(End::Closed)
}

fn take(received: &mut Vec<u8>) -> Result<Option<Message>, SessionError> {
    let too_long = |length| SessionError::Protocol(format!("a message of {length} bytes"));
    ttrpc::take(received).map_err(too_long)
}

fn is_registered(answer: &Message) -> Result<(), SessionError> {
    if answer.stream != REGISTER || answer.kind != ttrpc::RESPONSE {
        return Ok(());
    }
    let fault = |error| SessionError::Protocol(format!("an answer that is none: {error}"));
    let response = Response::decode(answer.payload.as_slice()).map_err(fault)?;
    match response.status {
        Some(status) if status.code != 0 => Err(SessionError::Refused(status.message)),
        _ => Ok(()),
    }
}
