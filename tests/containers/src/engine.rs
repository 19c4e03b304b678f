//! The interface of every runtime under test: start, exec, restart, remove.
//! Touches: the files of the runtime.

use crate::host::Done;
use crate::spec::Spec;

/// A runtime on a machine.
pub trait Engine {
    /// The name of the runtime, for messages.
    fn name(&self) -> String;

    /// Starts a container and returns its id. If the container does not start, returns the
    /// runtime's output, and nothing of the container is left.
    ///
    /// # Errors
    /// When the container did not start.
    fn start(&mut self, spec: &Spec) -> Result<String, Done>;

    /// Runs a program in a container.
    fn exec(&self, id: &str, command: &[&str]) -> Done;

    /// Stops a container and starts it again.
    fn restart(&mut self, id: &str);

    /// Stops and removes a container.
    fn remove(&mut self, id: &str);
}
