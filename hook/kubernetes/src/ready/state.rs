//! Whether the driver serves, for its own parts and for the readiness probe.
//! Touches: the file of the probe.

use crate::base::log;
use gpuslice_host::base::files;
use std::path::{Path, PathBuf};
use std::time::Duration;
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

    /// The state after the first check, or that of the moment after the longest time to wait for it.
    ///
    /// # Errors
    /// Why the driver does not serve.
    pub async fn checked(&self, longest: Duration) -> Result<(), String> {
        let mut changes = self.now.subscribe();
        let is_checked =
            |now: &Result<(), String>| now.as_ref().err().is_none_or(|why| why != STARTING);
        let _ = tokio::time::timeout(longest, changes.wait_for(is_checked)).await;
        self.now()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_check_is_waited_for_until_the_time_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::new(folder.path().join("ready"));
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(async {
            let before = state.checked(Duration::ZERO).await;
            assert_eq!(before, Err(STARTING.to_owned()));
            let refused = || Err("no hook".to_owned());
            let check = async { state.set(refused()) };
            let (now, ()) = tokio::join!(state.checked(Duration::from_secs(60)), check);
            assert_eq!(now, refused());
        });
    }
}
