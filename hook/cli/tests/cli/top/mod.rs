//! `gpuslice top` on pseudo-terminals, seen through a terminal emulator.
//! Touches: slices of their own, on simulated machines; terminals of their own.

mod cost;
mod endings;
mod keys;
mod picture;
mod session;
mod slices;
