//! Driver branches: what the libraries of R535, R550, R580 and R615 export, and that a slice gives
//! one answer and holds its limit on each of them.
//! Touches: the simulated driver of each branch; `tests/sim/recorded`, NVIDIA's own libraries.

mod exports;
mod slices;
mod spark;
