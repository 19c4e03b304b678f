//! Model files in the page cache: dropping, showing and watching them.
//! Touches: files on the device of the build output, the page cache.

mod commands;
mod dry_run;
mod gpusliced;
mod watched;
