//! gpuslice from outside: one binary, a folder for each subject.
//! Touches: children, each in folders of its own.
//! Law: no test changes anything of this process (environment, folder, limits, handlers, mounts):
//! others run beside it.
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
mod run;
mod show;
mod support;
