//! Each API that reports memory, by every route and to real clients: one answer.
//! Touches: `gpuslice check` and real clients, on simulated machines.

mod agreement;
mod clients;
mod identity;
mod listed;
mod mig_card;
mod windows;
