//! The report of a few sections, as `make report` writes it.
//! Touches: the built library and simulated driver; a folder for each test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod endings;
mod pages;
mod support;
