//! Graphs: claims the memory of their allocations when they are launched.
//! Touches: the ledger; the real function, unless the slice has no room.
//!
//! A graph that allocates nothing costs one look-up.

use core::ffi::{c_char, c_ulonglong, c_void};

use gpuslice_config::ledger::{Grant, Kind};
use gpuslice_config::words::units::Bytes;

use crate::account::graphs::{self, Graphs, Need};
use crate::account::{self, Account};
use crate::answer::device;
use crate::hooks::out;
use crate::real::abi::{
    CUDA_ERROR_OUT_OF_MEMORY, CUdevice, CUgraph, CUgraphExec, CUgraphNode, CUresult, CUstream,
    SUCCESS,
};
use crate::real::copies::CopyId;
use crate::real::functions::Call;
use crate::state::handles::{self, Space};
use gpuslice_config::ledger::rounded;
use gpuslice_config::words::device::CudaOrdinal;

type Instantiate = unsafe extern "C" fn(
    *mut CUgraphExec,
    CUgraph,
    *mut CUgraphNode,
    *mut c_char,
    usize,
) -> CUresult;
type WithFlags = unsafe extern "C" fn(*mut CUgraphExec, CUgraph, c_ulonglong) -> CUresult;
type WithParams = unsafe extern "C" fn(*mut CUgraphExec, CUgraph, *mut c_void) -> CUresult;
type Launch = unsafe extern "C" fn(CUgraphExec, CUstream) -> CUresult;
type Destroy = unsafe extern "C" fn(CUgraphExec) -> CUresult;
type Trim = unsafe extern "C" fn(CUdevice) -> CUresult;

/// `cuGraphInstantiate` and `cuGraphInstantiate_v2`.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
pub(crate) unsafe fn instantiate(
    call: Call<Instantiate>,
    exec: *mut CUgraphExec,
    graph: CUgraph,
    node: *mut CUgraphNode,
    log: *mut c_char,
    length: usize,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(exec, graph, node, log, length) };
    // SAFETY: `code` is the driver's result for these arguments.
    unsafe { instantiated(call.copy, code, exec, graph) };
    code
}

/// `cuGraphInstantiateWithFlags`.
///
/// # Safety
/// As `instantiate`.
pub(crate) unsafe fn with_flags(
    call: Call<WithFlags>,
    exec: *mut CUgraphExec,
    graph: CUgraph,
    flags: c_ulonglong,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(exec, graph, flags) };
    // SAFETY: `code` is the driver's result for these arguments.
    unsafe { instantiated(call.copy, code, exec, graph) };
    code
}

/// `cuGraphInstantiateWithParams` and its twin.
///
/// # Safety
/// As `instantiate`.
pub(crate) unsafe fn with_params(
    call: Call<WithParams>,
    exec: *mut CUgraphExec,
    graph: CUgraph,
    params: *mut c_void,
) -> CUresult {
    // SAFETY: the function's contract: `params` is null, or the flags are its first field.
    let flags = unsafe { out::got(params.cast::<u64>()) };
    let uploads = flags.is_some_and(|flags| flags & UPLOAD != 0) && account::counts();
    let given = match uploads.then(|| upload(call.copy, graph)).flatten() {
        None => None,
        Some((graphs, Ok(given))) => Some((graphs, given)),
        Some((_, Err(()))) => return CUDA_ERROR_OUT_OF_MEMORY,
    };
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(exec, graph, params) };
    if let Some((graphs, given)) = given {
        graphs.launched(given);
    }
    // SAFETY: `code` is the driver's result for these arguments.
    unsafe { instantiated(call.copy, code, exec, graph) };
    code
}

/// `CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD`.
const UPLOAD: u64 = 2;

/// Claims the memory of a graph that is uploaded while it is instantiated.
fn upload(copy: CopyId, graph: CUgraph) -> Option<(Graphs, Result<Grant, ()>)> {
    let Need { bytes, device, .. } = graphs::need(copy, graph);
    let ordinal = device.and_then(device::ordinal)?;
    let graphs = Graphs::of_device(account::by_ordinal(copy, ordinal)?, copy, ordinal)?;
    Some((graphs, graphs.claim_launch(rounded(bytes))))
}

/// Remembers the memory that an executable graph needs.
///
/// # Safety
/// `code` is the driver's result for these arguments.
unsafe fn instantiated(copy: CopyId, code: CUresult, exec: *const CUgraphExec, graph: CUgraph) {
    if !account::counts() {
        return;
    }
    // SAFETY: CUDA_SUCCESS, so the driver has written every place that is not null.
    let made = unsafe { out::got_handle(exec) }.filter(|_| code == SUCCESS);
    let Some(made) = made else {
        return;
    };
    if let Some(old) = account::find(Space::Exec, made) {
        old.take();
    }
    let need = graphs::need(copy, graph);
    let bytes = need.bytes;
    let ordinal = match need.device {
        Some(device) => device::ordinal(device),
        None => device::current(copy).filter(|_| need.and_more),
    };
    let Some(ordinal) = ordinal else {
        return;
    };
    if let Some(account) = account::by_ordinal(copy, ordinal) {
        let next = u8::try_from(ordinal.0.saturating_add(1)).unwrap_or(0);
        let need = account.charge_in(rounded(bytes), Kind::Pool, next);
        handles::put(account.state, Space::Exec, made, need);
        // A graph that was uploaded too has its memory already.
        if let Some(graphs) = Graphs::of_device(account, copy, ordinal) {
            graphs.launched(Grant::default());
        }
    }
}

/// The memory that an executable graph needs, and its device.
fn known(copy: CopyId, exec: CUgraphExec) -> Option<(Account, CudaOrdinal, Bytes)> {
    let charge = account::find(Space::Exec, exec as u64)?.charge();
    let ordinal = CudaOrdinal(u32::from(charge.context.checked_sub(1)?));
    Some((account::by_ordinal(copy, ordinal)?, ordinal, charge.bytes))
}

/// `cuGraphLaunch`, `cuGraphUpload` and their twins.
///
/// # Safety
/// As `instantiate`.
pub(crate) unsafe fn launch(call: Call<Launch>, exec: CUgraphExec, stream: CUstream) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { (call.real)(exec, stream) };
    let Some((account, ordinal, need)) = known(call.copy, exec) else {
        return ask();
    };
    let Some(graphs) = Graphs::of_device(account, call.copy, ordinal) else {
        return ask();
    };
    let Ok(given) = graphs.claim_launch(need) else {
        return CUDA_ERROR_OUT_OF_MEMORY;
    };
    let code = ask();
    graphs.launched(given);
    code
}

/// `cuGraphExecDestroy`: the driver keeps the graph's reserved memory until it is trimmed.
///
/// # Safety
/// As `instantiate`.
pub(crate) unsafe fn destroy(call: Call<Destroy>, exec: CUgraphExec) -> CUresult {
    let found = account::find(Space::Exec, exec as u64);
    // SAFETY: the caller guarantees the real function's contract for this argument.
    let code = unsafe { (call.real)(exec) };
    if code == SUCCESS
        && let Some(found) = found
    {
        found.take();
        graphs::settle_all(call.copy);
    }
    code
}

/// `cuDeviceGraphMemTrim`.
///
/// # Safety
/// As `instantiate`.
pub(crate) unsafe fn trim(call: Call<Trim>, dev: CUdevice) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for this argument.
    let code = unsafe { (call.real)(dev) };
    if code == SUCCESS && account::counts() {
        graphs::settle_all(call.copy);
    }
    code
}
