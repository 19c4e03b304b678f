//! Ways by which a program comes to the library, or past it.
//! Touches: C programs, old C libraries in containers of their own.

mod deepbind;
mod old_userlands;
mod resolution;
