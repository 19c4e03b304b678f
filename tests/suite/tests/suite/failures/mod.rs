//! Damaged files, lost folders and full logs: the library's own failures do not fail the program.
//! Touches: broken slice files and ledgers, on simulated machines.

mod bad_input;
mod copied_ledger;
mod filtered;
mod log_lines;
mod lost_folder;
mod started_run;
