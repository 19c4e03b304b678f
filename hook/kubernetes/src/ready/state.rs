//! Whether the driver serves, for its own parts and for the readiness probe.
//! Touches: the file of the probe.

use crate::base::log;
use gpuslice_host::base::files;
use std::path::{Path, PathBuf};
use tokio::sync::watch;

/// The text of the file while the driver serves.
const READY: &str = "ready";

/// The text before the first check.
const STARTING: &str = "gpuslice-dra has just started";

/// Whether the driver serves; if not, why.
#[derive(Debug)]
pub struct State {
    now: watch::Sender<Result<(), String>>,
    file: PathBuf,
}

impl State {
    /// The state of a driver that has just started.
    #[must_use]
    pub fn new(file: PathBuf) -> State {
        let state = State {
            now: watch::Sender::new(Err(STARTING.to_owned())),
            file,
        };
        state.write();
        state
    }

    /// Changes the state. Each change is one log line.
    pub fn set(&self, new: Result<(), String>) {
        let is_changed = self.now.send_if_modified(|now| {
            let is_changed = *now != new;
            now.clone_from(&new);
            is_changed
        });
        if is_changed {
            match &new {
                Ok(()) => log::line("ready"),
                Err(why) => log::line(&format!("not ready: {why}")),
            }
            self.write();
        }
    }

    /// The state of this moment.
    ///
    /// # Errors
    /// Why the driver does not serve.
    pub fn now(&self) -> Result<(), String> {
        self.now.borrow().clone()
    }

    /// Whether the driver serves.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.now.borrow().is_ok()
    }

    /// Waits until the driver serves.
    pub async fn until_ready(&self) {
        let mut changes = self.now.subscribe();
        // The sender is this state's own, so it is not closed.
        let _ = changes.wait_for(Result::is_ok).await;
    }

    fn write(&self) {
        let text = match self.now() {
            Ok(()) => READY.to_owned(),
            Err(why) => why,
        };
        if let Err(error) = files::replace(&self.file, format!("{text}\n").as_bytes(), 0o644) {
            log::line(&format!("cannot write {}: {error}", self.file.display()));
        }
    }
}

/// The result of the readiness probe.
///
/// # Errors
/// Why the driver does not serve.
pub fn read(file: &Path) -> Result<(), String> {
    match std::fs::read_to_string(file) {
        Ok(text) if text.trim_end() == READY => Ok(()),
        Ok(text) => Err(text.trim_end().to_owned()),
        Err(error) => Err(format!(
            "gpuslice-dra does not run: cannot read {}: {error}",
            file.display()
        )),
    }
}
