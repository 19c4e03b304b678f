//! Every hooked API by every route: numbers, accounting, and what a preload must not do.
//! Touches: simulated machines; probes in processes of their own.
//! Law: no test changes anything of this process: others run beside it.
#![expect(clippy::unwrap_used, reason = "a test that cannot start stops")]

mod accounting;
mod answers;
mod complete;
mod safety;
