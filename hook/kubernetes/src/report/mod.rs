//! Reports to the API server what happens on the node: the status of each claim's devices, and events
//! of pods.
//! Touches: the API server; records, ledgers, slice files and the event file, by reading them; the
//! file with the place in the event file.
//! Law: a report that cannot be made affects nothing else. Each kind of report has a bound on its
//! requests ([`pace`]), whatever happens on the node.

pub mod board;
pub mod events;
pub mod measured;
pub mod notices;
pub mod pace;
pub mod status;
pub mod statuses;
pub mod tail;
