//! What the tests of real containers share: a machine for each test, the runtimes on it, what is asked inside.
//! Touches: namespaces, mounts and processes of its own; cgroups under a name of its own.
//! Law: nothing here knows what an answer should be; every expected number stands in a test.

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
