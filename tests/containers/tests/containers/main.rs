//! Containers of real runtimes, each test on a machine of its own.
//! Touches: what `gpuslice_containers::host` says.
//!
//! Where containers cannot be started, one line says why, and nothing is tested.

mod bare;
mod beside_runs;
mod crash;
mod doctor;
mod driver_limits;
mod examples;
mod gpus;
mod hostile_input;
mod hostile_pids;
mod hostile_root;
mod hostile_run;
mod images;
mod inside;
mod ledger;
mod many;
mod matrix;
mod matrix_toolkit;
mod nvidia;
mod pods;
mod policies;
mod race;
mod runtimes;
mod waits;
mod ways;
