//! Every hooked API by every route: numbers, accounting, and what a preload must not do.
//! Touches: simulated machines; probes in processes of their own.
//! Law: no test changes this process, because other tests run in it at the same time.
#![expect(clippy::unwrap_used, reason = "a test that cannot start stops")]

mod accounting;
mod answers;
mod complete;
mod safety;
