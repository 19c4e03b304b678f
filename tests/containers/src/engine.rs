//! What a test wants of any runtime: start, exec, restart, remove.
//! Touches: what the runtimes touch.

use crate::host::Done;
use crate::spec::Spec;

/// A runtime on a machine.
pub trait Engine {
    /// What it is, for messages.
    fn name(&self) -> String;

    /// Starts a container. Its id, or what was said when it did not start; then nothing is left of it.
    ///
    /// # Errors
    /// When the container did not start.
    fn start(&mut self, spec: &Spec) -> Result<String, Done>;

    /// Runs a program in a container.
    fn exec(&self, id: &str, command: &[&str]) -> Done;

    /// Stops a container and starts it again.
    fn restart(&mut self, id: &str);

    /// Ends a container and forgets it.
    fn remove(&mut self, id: &str);
}
