//! Tests of the `gpuslice` command from outside: one binary, with a folder for each subject.
//! Touches: child processes, each in folders of its own.
//! Law: no test changes this process (environment, working directory, limits, handlers, mounts),
//! because other tests run in it at the same time.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot be set up has failed"
)]

mod admission;
mod cache;
mod containers;
mod docs;
mod doctor;
mod events;
mod guard;
mod metrics;
mod pages;
mod run;
mod show;
mod slices_file;
mod support;
mod top;
