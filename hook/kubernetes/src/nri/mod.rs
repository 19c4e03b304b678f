//! The NRI plugin: gives the hook to containers whose pods ask for a slice, without a RuntimeClass.
//! Touches: the socket of NRI, the host's policy, the registry of slices, the event file, the facts of
//! the hook's file.
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
mod readiness;
mod session;
pub mod ttrpc;

pub use adjust::{Adjusting, adjust};
pub use plugin::Plugin;
pub use readiness::Readiness;
pub use session::{End, SessionError, session};

use crate::base::log;
use crate::base::settings::NriOptions;
use anyhow::Context;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The name under which the plugin registers.
pub const NAME: &str = "gpuslice";

/// How long an engine may take to configure the plugin.
const PATIENCE: Duration = Duration::from_secs(10);

/// The time between two tries to connect.
const PAUSE: Duration = Duration::from_secs(1);

/// The time between two looks at the hook's file.
const LOOK: Duration = Duration::from_secs(5);

/// Serves an engine, and connects again after it has closed the connection.
///
/// # Errors
/// When the engine refuses the plugin.
pub fn serve(options: &NriOptions, mut plugin: Plugin, readiness: Readiness) -> anyhow::Result<()> {
    let readiness = Arc::new(readiness);
    let watched = Arc::clone(&readiness);
    // A session waits for the engine, for any time.
    thread::spawn(move || {
        loop {
            thread::sleep(LOOK);
            watched.check_hook();
        }
    });
    loop {
        match connected(options, &mut plugin, &readiness) {
            Ok(end) => readiness.connection_is(Err(format!("the engine has {}", end.what()))),
            Err(SessionError::Refused(why)) => {
                readiness.connection_is(Err(format!("the engine refuses the plugin: {why}")));
                return Err(anyhow::Error::msg(why)).context("the engine refuses the plugin");
            }
            Err(error) => {
                let socket = options.socket.display();
                let why = format!("{socket}: {error} (is NRI switched on?)");
                readiness.connection_is(Err(why));
            }
        }
        thread::sleep(PAUSE);
    }
}

fn connected(
    options: &NriOptions,
    plugin: &mut Plugin,
    readiness: &Readiness,
) -> Result<End, SessionError> {
    let stream = UnixStream::connect(&options.socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let waiting = stream.try_clone()?;
    session(stream, plugin, &options.index, &mut |engine| {
        log::line(&format!(
            "registered with {engine} as {}-{NAME}",
            options.index
        ));
        readiness.connection_is(Ok(()));
        // Between two containers any time may pass.
        waiting.set_read_timeout(None)
    })
}
