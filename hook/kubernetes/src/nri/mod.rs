//! The NRI plugin: gives the hook to containers whose pods ask for a slice, without a RuntimeClass.
//! Touches: the socket of NRI, the host's policy, the registry of slices, the event file.
//!
//! The engine calls `plugin` before it creates a container. The answer (`adjust`) adds
//! `gpuslice-hook` at createRuntime and poststop, and the pod's annotations, which the hook reads.
//! The calls are messages of [`ttrpc`] on two logical connections of one socket ([`mux`]).
//!
//! Law: a container is never adjusted halfway. It has our hook and our annotations, or the engine
//! refuses it.

mod adjust;
pub mod api;
mod escapes;
pub mod mux;
mod plugin;
mod session;
pub mod ttrpc;

pub use adjust::{Adjusting, adjust};
pub use plugin::Plugin;
pub use session::{End, SessionError, session};

use crate::base::log;
use crate::base::settings::NriOptions;
use crate::ready::state::State;
use anyhow::Context;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

/// The name under which the plugin registers.
pub const NAME: &str = "gpuslice";

/// How long an engine may take to configure the plugin.
const PATIENCE: Duration = Duration::from_secs(10);

/// The time between two tries to connect.
const PAUSE: Duration = Duration::from_secs(1);

/// Serves an engine, and connects again after it has closed the connection.
///
/// # Errors
/// When the engine refuses the plugin.
pub fn serve(options: &NriOptions, mut plugin: Plugin, state: &State) -> anyhow::Result<()> {
    loop {
        match connected(options, &mut plugin, state) {
            Ok(end) => state.set(Err(format!("the engine has {}", end.what()))),
            Err(SessionError::Refused(why)) => {
                state.set(Err(format!("the engine refuses the plugin: {why}")));
                return Err(anyhow::Error::msg(why)).context("the engine refuses the plugin");
            }
            Err(error) => {
                let socket = options.socket.display();
                state.set(Err(format!("{socket}: {error} (is NRI switched on?)")));
            }
        }
        thread::sleep(PAUSE);
    }
}

fn connected(
    options: &NriOptions,
    plugin: &mut Plugin,
    state: &State,
) -> Result<End, SessionError> {
    let stream = UnixStream::connect(&options.socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let waiting = stream.try_clone()?;
    session(stream, plugin, &options.index, &mut |engine| {
        log::line(&format!(
            "registered with {engine} as {}-{NAME}",
            options.index
        ));
        state.set(Ok(()));
        // Between two containers any time may pass.
        waiting.set_read_timeout(None)
    })
}
