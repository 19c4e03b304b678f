//! Ways by which a program reaches the library, or bypasses it.
//! Touches: C programs, old C libraries in containers of their own.

mod deepbind;
mod namespaces;
mod old_userlands;
mod resolution;
mod runtimes;
