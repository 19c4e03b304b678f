//! The last line of a machine with unified memory: acts on who takes too much, before the machine
//! stops responding.
//! Touches: everything that `watch` touches.

pub(super) mod candidate;
mod ladder;
pub(super) mod line;
pub(super) mod rungs;
mod victim;
pub(super) mod watch;

#[cfg(test)]
mod allocation_tests;
#[cfg(test)]
mod collapse_tests;
