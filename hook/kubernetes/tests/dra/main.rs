//! gpuslice-dra, between a kubelet's calls and an API server.
//! Touches: temporary folders, child processes, sockets. The tests need root, whose file the list of
//! GPUs must be.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::print_stdout,
    unreachable_pub,
    reason = "a test that cannot be set up has failed"
)]

mod api_reports;
mod api_server;
mod claims;
mod cost;
mod driver;
mod engine;
mod events;
mod health;
mod hostile;
mod http_server;
mod kubelet;
mod permissions;
mod prepare;
mod publish;
mod ready;
mod registration;
mod request;
mod rules;
mod running;
mod scale;
mod status;
mod taints;
