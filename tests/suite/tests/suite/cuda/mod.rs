//! Rare uses of CUDA in a slice: pools that are created and destroyed, several devices in one
//! process, memory that another process has allocated.
//! Touches: workers in a slice, on simulated machines.

mod codes;
mod contexts;
mod devices;
mod graphs;
mod imports;
mod locations;
mod managed;
mod pools;
mod references;
mod sparse;
