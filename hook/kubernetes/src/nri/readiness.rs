//! Whether the plugin gives containers their slices: the engine uses it, and the hook exists.
//! Touches: the hook's file, by reading its facts; the file of the readiness probe.
//! Law: a plugin without a hook goes on adjusting containers. The engine then starts none of them;
//! without the plugin it would start them without a slice.

use crate::ready::state::State;
use std::sync::{Mutex, MutexGuard, PoisonError};

type Answer = Result<(), String>;

/// The state of the plugin, which the readiness probe reads.
pub struct Readiness {
    state: State,
    hook: Box<dyn Fn() -> Answer + Send + Sync>,
    connection: Mutex<Answer>,
}

impl Readiness {
    /// The readiness of a plugin that no engine uses yet. `hook` checks the hook's file.
    pub fn new(state: State, hook: impl Fn() -> Answer + Send + Sync + 'static) -> Readiness {
        Readiness {
            state,
            hook: Box::new(hook),
            connection: Mutex::new(Err("no engine uses the plugin yet".to_owned())),
        }
    }

    /// Records whether an engine uses the plugin.
    pub(super) fn connection_is(&self, new: Answer) {
        let mut connection = self.locked();
        *connection = new;
        self.publish(&connection);
    }

    /// Checks the hook's file again.
    pub(super) fn check_hook(&self) {
        self.publish(&self.locked());
    }

    fn locked(&self) -> MutexGuard<'_, Answer> {
        let locked = self.connection.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, connection: &Answer) {
        let hook = (self.hook)();
        self.state.set(hook.and_then(|()| connection.clone()));
    }
}
