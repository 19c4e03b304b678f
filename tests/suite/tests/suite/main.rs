//! Real programs and clients under the preload, on simulated machines: one binary, a folder for
//! each subject.
//! Touches: programs of their own, each in a process of its own.
//! Law: no test changes this process (environment, folder, limits, handlers, mounts), because other
//! tests run in it at the same time.

mod answers;
mod cuda;
mod differential;
mod driver;
mod failures;
mod limits;
mod loading;
mod opencl;
mod opengl;
mod page_cache;
mod peers;
mod programs;
mod project;
mod said;
mod unified;
mod vulkan;
mod x_server;
