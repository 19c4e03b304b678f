//! Tests of what the ledger asks the kernel, and how often.
//! Touches: files on tmpfs, processes.

use super::lock_file::LockFile;
use super::quiet::set_quiet;
use crate::ledger::Claim;
use crate::ledger::processes::{Child, End, TestLedger, c_path};
use crate::ledger::protocol::kernel::Kernel;
use crate::sys::{self, Access, Fd};
use core::sync::atomic::Ordering::SeqCst;

/// A forked child closes the descriptors of the ledger that its parent had open, and no file that has
/// got such a number since.
#[test]
fn a_child_closes_inherited_descriptors_of_the_ledger_and_no_other_file() {
    let place = TestLedger::new();
    let path = c_path(&place.path());
    let own = Fd::open(&path, Access::Read).unwrap();
    let other = c_path(&place.folder.path().join("other"));
    let other = Fd::open(&other, Access::Create).unwrap();
    let file = LockFile::ledger(&path, c"", own.stat().unwrap()).unwrap();
    for fd in [&own, &other] {
        assert!(file.open_fds.note(fd).is_some());
    }
    file.close_inherited();
    assert!(own.stat().is_err(), "the ledger's descriptor is open");
    assert!(other.stat().is_ok(), "another file's descriptor is closed");
    core::mem::forget(own);
    // It is closed once: the number may be another file's by now.
    let again = Fd::open(&path, Access::Read).unwrap();
    file.close_inherited();
    assert!(again.stat().is_ok());
}

/// Asking about every process costs a system call for each.
#[test]
fn the_kernel_is_asked_about_every_process_once_in_64_sums_and_once_a_second() {
    let place = TestLedger::new();
    let session = place.ledger.session();
    let private = place.ledger.private;
    let due = |count: u32| (0..count).filter(|_| session.verification_is_due()).count();
    private.looks.store(0, SeqCst);
    private.verify_at.store(0, SeqCst);
    assert!(session.verification_is_due());
    assert!(private.verify_at.load(SeqCst) > sys::seconds().saturating_sub(60));
    private.verify_at.store(0, SeqCst);
    assert_eq!(due(63), 0);
    assert!(session.verification_is_due());
    private.verify_at.store(u64::MAX, SeqCst);
    assert_eq!(due(128), 0, "the second has not passed");
}

/// A program can get its slot after it has put itself under a filter.
#[test]
fn a_process_without_a_slot_asks_the_kernel_for_one_also_in_quiet_mode() {
    let place = TestLedger::new();
    let (ledger, gpu) = (&place.ledger, place.gpu);
    let mut child = Child::fork(|_| {
        ledger.private.slotless.store(1 << gpu.number(), SeqCst);
        set_quiet(true);
        assert!(ledger.counts(gpu));
        assert_eq!(place.claim(5), Claim::Granted);
    });
    assert_eq!(child.wait(), End::Exit(0));
}
