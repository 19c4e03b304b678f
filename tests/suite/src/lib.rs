//! Code that the tests of whole programs share: the paths of built files, and how programs are run.
//! Touches: the build output, a C compiler, child processes.
//! Law: nothing here knows what an answer should be; every expected number stands in a test.

pub mod cache;
pub mod clients;
pub mod compile;
pub mod place;
pub mod run;
pub mod slice;
pub mod worker;
