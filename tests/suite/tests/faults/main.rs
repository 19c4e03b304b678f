//! The faults table: each row injects one kind of fault many times, and counts what it did.
//! Touches: programs, runs, containers' hooks and daemons, each on simulated machines of its own;
//! `faults/` in the build output, which keeps one line of JSON for each row.
//! Law: an injection survives only if all of this holds afterwards: answers are right, nothing
//! hangs, and nothing is left behind. Any other outcome fails the row.
//!
//! `make check` injects a few faults of each kind. `make faults FAULTS=1000` injects up to a
//! thousand, prints the table, and writes it to `target/report/faults.json`.

mod bench;
mod clocks;
mod daemons;
mod descriptors_and_stacks;
mod driver;
mod files;
mod fuse;
mod ledger;
mod processes;
mod records;
mod row;
mod signals;
#[expect(dead_code, reason = "the tests of failures use the rest")]
#[path = "../suite/failures/started_run.rs"]
mod started_run;
mod table;
