//! Every hooked API by every route: numbers, accounting, and what a preload must not do.
//! Touches: simulated machines; probes in processes of their own.
//! Law: no test changes anything of this process: others run beside it.

mod accounting;
mod answers;
mod complete;
mod safety;
