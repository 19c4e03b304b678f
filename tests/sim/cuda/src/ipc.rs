//! IPC memory: the exporter pays until every holder has released it, and an import costs nothing.
//! Touches: the machine's segment table. The contents are not shared, only the accounting is.

use crate::abi::*;
use crate::context::current;
use crate::driver::driver;
use crate::heap;
use crate::memory::{release, remember};
use crate::state::{Paid, Sort};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The vendor's 64 opaque bytes: a mark, the segment, its size.
type IpcHandle = [u64; 8];
const MARK: u64 = 0x6970_6373_6c69_6365;

fn open(out: Out<CUdeviceptr>, handle: IpcHandle) -> Answer {
    let driver = driver()?;
    let context = current()?;
    let [mark, id, bytes, ..] = handle;
    if mark != MARK {
        return Err(INVALID_VALUE);
    }
    // A handle that is open in the context is open once more, at the same address.
    let again = driver.state().allocations.iter().find_map(|(at, it)| {
        let is_it = it.sort == Sort::Imported && matches!(it.paid, Paid::Segment(of) if of == id);
        (is_it && it.context == context.handle()).then_some(*at)
    });
    if let Some(at) = again {
        *more().entry(at).or_default() += 1;
        return out.set(at);
    }
    driver.machine.hold_segment(id).ok_or(INVALID_HANDLE)?;
    let at = heap::map(bytes, true)?;
    remember(
        &mut driver.state(),
        at,
        bytes,
        Paid::Segment(id),
        context,
        Sort::Imported,
    );
    more().remove(&at);
    out.set(at)
}

/// How many times more than once each address is open.
fn more() -> MutexGuard<'static, BTreeMap<CUdeviceptr, u32>> {
    static MORE: Mutex<BTreeMap<CUdeviceptr, u32>> = Mutex::new(BTreeMap::new());
    MORE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn close(at: CUdeviceptr) -> Answer {
    if let Some(more) = more().get_mut(&at)
        && *more > 0
    {
        *more -= 1;
        return Ok(());
    }
    release(at, &[Sort::Imported])
}

/// 64 bytes by value: passed in memory, so the C type's alignment does not matter.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ByValue(IpcHandle);

cuda! {
    fn cuIpcGetMemHandle(out: Out<IpcHandle>, at: CUdeviceptr) {
        let driver = driver()?;
        let mut state = driver.state();
        let it = state.allocations.get_mut(&at).ok_or(INVALID_VALUE)?;
        let id = match it.paid {
            Paid::Segment(id) if it.sort == Sort::Device => id,
            Paid::Own { domain, kind, bytes } if it.sort == Sort::Device => {
                let id = driver.machine.share(domain, kind, bytes).ok_or(OUT_OF_MEMORY)?;
                it.paid = Paid::Segment(id);
                id
            }
            _ => return Err(INVALID_VALUE),
        };
        out.set([MARK, id, it.bytes, 0, 0, 0, 0, 0])
    }

    fn cuIpcOpenMemHandle(out: Out<CUdeviceptr>, handle: ByValue, _flags: u32) {
        open(out, handle.0)
    }

    fn cuIpcOpenMemHandle_v2(out: Out<CUdeviceptr>, handle: ByValue, _flags: u32) {
        open(out, handle.0)
    }

    fn cuIpcCloseMemHandle(at: CUdeviceptr) {
        close(at)
    }
}
