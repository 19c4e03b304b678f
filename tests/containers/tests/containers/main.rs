//! Tests with containers of real runtimes, each on a machine of its own.
//! Touches: the files and namespaces that `gpuslice_containers::host` lists.
//!
//! If containers cannot be started here, one line gives the reason, and no test runs.

mod bare;
mod beside_runs;
mod claims;
mod crash;
mod ctr;
mod doctor;
mod driver_limits;
mod examples;
mod fences;
mod gpus;
mod guard;
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
mod meminfo;
mod nri;
mod nvidia;
mod pods;
mod policies;
mod race;
mod report;
mod runtimes;
mod waits;
mod ways;
