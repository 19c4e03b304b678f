//! Whether the driver serves, for its own parts and for the readiness probe.
//! Touches: the file of the probe.

use crate::base::log;
use gpuslice_host::base::files;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The text of the file while the driver serves.
const READY: &str = "ready";

/// The text before the first check.
const STARTING: &str = "gpuslice-dra has just started";

/// How a refusal begins that ends once the chart's container `devices` has written the list.
pub const UNLISTED: &str = "there is no list of GPUs";

/// Whether the driver serves; if not, why.
#[derive(Debug)]
pub struct State {
    now: watch::Sender<Result<(), String>>,
    /// The node's engine at the last check, such as `containerd://2.1.9`.
    engine: Mutex<String>,
    file: PathBuf,
    started: Instant,
}

impl State {
    /// The state of a driver that has just started.
    #[must_use]
    pub fn new(file: PathBuf) -> State {
        let state = State {
            now: watch::Sender::new(Err(STARTING.to_owned())),
            engine: Mutex::default(),
            file,
            started: Instant::now(),
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

    /// Records the node's engine.
    pub fn engine_is(&self, engine: String) {
        *self.engine.lock().unwrap_or_else(PoisonError::into_inner) = engine;
    }

    /// The node's engine at the last check; empty before the first one.
    #[must_use]
    pub fn engine(&self) -> String {
        let engine = self.engine.lock();
        engine.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The state of this moment.
    ///
    /// # Errors
    /// Why the driver does not serve.
    pub fn now(&self) -> Result<(), String> {
        self.now.borrow().clone()
    }

    /// Waits for the first check. While the driver has run for less than this time, also waits for
    /// the list of GPUs, which is written meanwhile.
    pub async fn checked(&self, longest: Duration) {
        let mut changes = self.now.subscribe();
        let mut wait = async |time: Duration, passes: fn(&str) -> bool| {
            let is_over =
                |now: &Result<(), String>| now.as_ref().err().is_none_or(|why| !passes(why));
            let _ = tokio::time::timeout(time, changes.wait_for(is_over)).await;
        };
        wait(longest, |why| why == STARTING).await;
        let left = longest.saturating_sub(self.started.elapsed());
        wait(left, |why| why.starts_with(UNLISTED)).await;
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

    fn on_a_runtime(run: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build();
        runtime.unwrap().block_on(run);
    }

    #[test]
    fn the_first_check_is_waited_for_until_the_time_is_over() {
        let folder = tempfile::tempdir().unwrap();
        on_a_runtime(async {
            let state = State::new(folder.path().join("ready"));
            state.checked(Duration::ZERO).await;
            assert_eq!(state.now(), Err(STARTING.to_owned()));
            let refused = || Err("no hook".to_owned());
            let check = async { state.set(refused()) };
            tokio::join!(state.checked(Duration::from_secs(60)), check);
            assert_eq!(state.now(), refused());
        });
    }

    #[test]
    fn the_list_of_gpus_is_waited_for_only_after_the_start() {
        const LONGEST: Duration = Duration::from_secs(60);
        let folder = tempfile::tempdir().unwrap();
        on_a_runtime(async {
            let state = State::new(folder.path().join("ready"));
            let missing = || Err(format!("{UNLISTED}, devices.json"));
            state.set(missing());
            let list = async {
                tokio::time::sleep(LONGEST / 2).await;
                state.set(Ok(()));
            };
            tokio::join!(state.checked(LONGEST), list);
            assert!(state.is_ready());
            state.set(missing());
            state.checked(LONGEST).await;
            assert_eq!(state.started.elapsed(), LONGEST);
            state.checked(LONGEST).await;
            assert_eq!(state.started.elapsed(), LONGEST);
        });
    }
}
