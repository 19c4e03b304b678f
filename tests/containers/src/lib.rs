//! Support for the tests with real containers: a machine for each test, the runtimes on it, and
//! checks inside a container.
//! Touches: namespaces, mounts and processes of its own; cgroups under a name of its own.
//! Law: no expected value is defined here; every expected number is in a test.

pub mod bundle;
pub mod check;
pub mod cri;
pub mod docker;
pub mod engine;
pub mod host;
pub mod patience;
pub mod place;
pub mod podman;
pub mod ready;
pub mod slice;
pub mod spec;
