//! The NRI plugin against an engine's side of the protocol.
//! Touches: socket pairs, temporary folders, children.

#![expect(
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "a test that cannot be set up has failed"
)]

mod engine;
mod escapes;
mod program;
mod session;
