//! How a number comes about: variants in turn, readings of programs, and their statistics.

pub(crate) mod effort;
pub(crate) mod figure;
pub(crate) mod readings;
pub(crate) mod rounds;
pub(crate) mod statistics;
pub(crate) mod variants;
