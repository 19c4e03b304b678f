//! Limits hold: no allocation exceeds them, and free memory can be allocated.
//! Touches: workers in a slice, on simulated machines.

mod budgets;
mod enforcement;
mod first_context;
mod graphs;
mod headroom;
mod idle_memory;
mod kills;
mod law;
mod resize;
mod resizes;
