//! Real programs and clients under the preload, on simulated machines: one binary, a folder for
//! each subject.
//! Touches: programs of their own, each in a process of its own.
//! Law: no test changes anything of this process (environment, folder, limits, handlers, mounts):
//! others run beside it.

mod answers;
mod cuda;
mod driver;
mod failures;
mod limits;
mod loading;
mod page_cache;
mod peers;
mod programs;
mod project;
mod said;
mod unified;
