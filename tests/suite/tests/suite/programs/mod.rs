//! Real programs: engines, commands, and a terminal.
//! Touches: installed programs, in a slice.

mod commands;
mod engines;
mod terminal;
