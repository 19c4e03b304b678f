//! Documents: help texts, man pages, completions, sessions, and files that packages ship.
//! Touches: the sources as text, gpuslice.

mod completions;
mod handbook;
mod packaging;
mod pages;
mod sessions;
