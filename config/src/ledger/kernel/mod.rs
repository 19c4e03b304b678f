//! The kernel services that the ledger uses: mappings, locks on the file, hints of a thread's end.
//! Touches: the kernel, through `crate::sys`; the mapped file.

pub(crate) mod lock_file;
pub(crate) mod locks;
pub(crate) mod map;
pub(crate) mod quiet;
pub(crate) mod reopen;
pub(crate) mod robust;
#[cfg(all(test, not(miri)))]
mod tests;
