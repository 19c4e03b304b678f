//! Driver branches R535, R550, R580 and R615: the exports of their libraries, and a slice's one
//! answer and its limit on each of them.
//! Touches: the simulated driver of each branch; `tests/sim/recorded`, NVIDIA's own libraries.

mod exports;
mod slices;
mod spark;
