//! Random calls of the CUDA driver.

mod arrays;
pub mod contexts;
pub mod end;
mod graphs;
mod lookups;
mod memory;
mod physical;
mod pools;
mod queries;
mod sharing;
mod streams;

use crate::Act;

/// The calls, each with its weight.
pub fn acts() -> Vec<(usize, Act)> {
    let mut acts = contexts::acts();
    acts.extend(memory::acts());
    acts.extend(pools::acts());
    acts.extend(physical::acts());
    acts.extend(arrays::acts());
    acts.extend(streams::acts());
    acts.extend(graphs::acts());
    acts.extend(sharing::acts());
    acts.extend(queries::acts());
    acts.extend(lookups::acts());
    acts
}
