//! Graphs: claims the memory of their allocations when they are launched.
//! Touches: the ledger; the real function, unless the slice has no room.
//!
//! A graph that allocates nothing costs one look-up.

use core::ffi::{c_char, c_ulonglong, c_void};

use gpuslice_config::ledger::{Grant, Kind};
use gpuslice_config::words::units::Bytes;

use crate::account::graphs::needs::Needs;
use crate::account::graphs::{self, Graphs};
use crate::account::{self, part};
use crate::hooks::cuda::async_alloc::meant;
use crate::hooks::out;
use crate::log::counters;
use crate::real::abi::{
    CUDA_ERROR_OUT_OF_MEMORY, CUdevice, CUgraph, CUgraphExec, CUgraphNode, CUresult, CUstream,
    SUCCESS,
};
use crate::real::copies::CopyId;
use crate::real::functions::{self, Call};
use crate::state::handles::{self, FoundEntry, Space};
use crate::sys;
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
    let (code, _) = unsafe { instantiated(call.copy, code, exec, graph) };
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
    let (code, _) = unsafe { instantiated(call.copy, code, exec, graph) };
    code
}

/// `cuGraphInstantiateWithParams`.
///
/// # Safety
/// As `instantiate`.
pub(crate) unsafe fn with_params(
    call: Call<WithParams>,
    exec: *mut CUgraphExec,
    graph: CUgraph,
    params: *mut c_void,
) -> CUresult {
    // SAFETY: the caller guarantees the function's contract for these arguments.
    unsafe { with_params_in(call, exec, graph, params, |stream| stream) }
}

/// `cuGraphInstantiateWithParams_ptsz`.
///
/// # Safety
/// As `instantiate`.
pub(crate) unsafe fn with_params_ptsz(
    call: Call<WithParams>,
    exec: *mut CUgraphExec,
    graph: CUgraph,
    params: *mut c_void,
) -> CUresult {
    // SAFETY: the caller guarantees the function's contract for these arguments.
    unsafe { with_params_in(call, exec, graph, params, meant) }
}

/// Instantiates a graph. `meant`: the effective stream of a stream in the parameters.
///
/// # Safety
/// As `instantiate`.
unsafe fn with_params_in(
    call: Call<WithParams>,
    exec: *mut CUgraphExec,
    graph: CUgraph,
    params: *mut c_void,
    meant: fn(CUstream) -> CUstream,
) -> CUresult {
    let flags = params.cast::<u64>();
    let place = flags.wrapping_add(1).cast::<CUstream>();
    // SAFETY: the function's contract: `params` is null, or the flags are its first field.
    let flags = unsafe { out::got(flags) };
    let uploads = flags.is_some_and(|flags| flags & UPLOAD != 0) && account::counts();
    // SAFETY: `params` is not null, and the stream of the upload is its second field.
    let stream = uploads.then(|| unsafe { place.read() });
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { (call.real)(exec, graph, params) };
    let code = match stream.map(|_| Needs::of(call.copy, graph)) {
        None => ask(),
        Some(needs) if needs.are_refused(call.copy) && !exec.is_null() => refused(),
        Some(needs) => {
            let need = |number| needs.devices().nth(number);
            pay(call.copy, 0, &|| false, &need, &ask)
        }
    };
    // SAFETY: `code` is the result for these arguments; without success nothing was written.
    let (code, made) = unsafe { instantiated(call.copy, code, exec, graph) };
    if let (Some(made), Some(stream)) = (made, stream) {
        remember_launch(made, stream_number(call.copy, meant(stream)));
    }
    code
}

/// `CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD`.
const UPLOAD: u64 = 2;

/// Claims memory on each device that needs it, beginning with this number, and calls the driver if
/// all have room. It calls itself once for each device, so that the claims need no list.
/// `is_relaunch`: see [`Graphs::claim_launch`].
fn pay(
    copy: CopyId,
    number: usize,
    is_relaunch: &impl Fn() -> bool,
    need: &impl Fn(usize) -> Option<(CudaOrdinal, Bytes)>,
    ask: &impl Fn() -> CUresult,
) -> CUresult {
    let Some((ordinal, bytes)) = need(number) else {
        return ask();
    };
    let account = account::by_ordinal(copy, ordinal);
    let graphs = account.and_then(|account| Graphs::of_device(account, copy, ordinal));
    if graphs.is_none() && account.is_some_and(|account| account.refuses_unrecorded(Kind::Pool)) {
        return refused();
    }
    let given = match graphs.map(|graphs| graphs.claim_launch(rounded(bytes.get()), is_relaunch)) {
        None => Grant::default(),
        Some(Ok(given)) => given,
        Some(Err(())) => return CUDA_ERROR_OUT_OF_MEMORY,
    };
    let code = pay(copy, number.saturating_add(1), is_relaunch, need, ask);
    // If another device has no room, the driver was not called, and this returns the claim.
    if let Some(graphs) = graphs {
        graphs.launched(given);
    }
    code
}

/// Refuses a graph whose memory cannot be recorded.
#[cold]
fn refused() -> CUresult {
    counters::UNCOUNTED.warn_text("the memory of a graph cannot be recorded: the graph is refused");
    CUDA_ERROR_OUT_OF_MEMORY
}

/// Remembers the memory that an executable graph needs. If that is not possible and the slice enforces
/// its limit, destroys the graph again. Returns the program's result, and the executable graph. None:
/// no executable graph was made, or it is not counted.
///
/// # Safety
/// `code` is the driver's result for these arguments.
unsafe fn instantiated(
    copy: CopyId,
    code: CUresult,
    exec: *mut CUgraphExec,
    graph: CUgraph,
) -> (CUresult, Option<u64>) {
    if !account::counts() || code != SUCCESS {
        return (code, None);
    }
    // SAFETY: CUDA_SUCCESS, so the driver has written every place that is not null.
    let Some(made) = (unsafe { out::got_handle(exec) }) else {
        return (code, None);
    };
    let last = account::find(Space::Launched, made);
    records(made).chain(last).for_each(|old| {
        old.take();
    });
    if record(copy, made, graph) {
        return (code, Some(made));
    }
    // SAFETY: `got_handle` has returned a handle, so the caller has passed a place for it.
    unsafe { exec.write(core::ptr::null_mut()) };
    discard(copy, made);
    (refused(), None)
}

/// Records the memory that an executable graph needs on each device. False: a record is missing that
/// the limit requires.
fn record(copy: CopyId, made: u64, graph: CUgraph) -> bool {
    let needs = Needs::of(copy, graph);
    if needs.are_refused(copy) {
        return false;
    }
    let mut number = 0usize;
    for (ordinal, bytes) in needs.devices() {
        let Some(account) = account::by_ordinal(copy, ordinal) else {
            continue;
        };
        let next = u8::try_from(ordinal.0.saturating_add(1)).unwrap_or(0);
        let need = account.charge_in(rounded(bytes.get()), Kind::Pool, next);
        let put = |state| handles::put(state, Space::Exec, part(made, number), need);
        if account::page().is_some_and(put) {
            number = number.saturating_add(1);
        } else if account.refuses_unrecorded(Kind::Pool) {
            return false;
        }
        // A graph that was uploaded too has its memory already.
        if let Some(graphs) = Graphs::of_device(account, copy, ordinal) {
            graphs.launched(Grant::default());
        }
    }
    true
}

/// Destroys an executable graph that the driver has just made, and its records.
#[cold]
fn discard(copy: CopyId, made: u64) {
    records(made).for_each(|record| {
        record.take();
    });
    if let Some(destroy) = functions::cuGraphExecDestroy::real(copy) {
        // SAFETY: the driver has just returned this handle; no other thread knows it.
        unsafe { destroy(made as CUgraphExec) };
    }
    graphs::settle_all(copy);
}

/// The number of a stream: its handle. The legacy default stream has one number per context, and the
/// per-thread default stream one per context and thread.
fn stream_number(copy: CopyId, stream: CUstream) -> u64 {
    const LEGACY: u64 = 1;
    const PER_THREAD: u64 = 2;
    /// Above the addresses of a process.
    const DEFAULT: u64 = 1 << 56;
    const CONTEXT_AT: u32 = 48;
    let thread = match stream as u64 {
        0 | LEGACY => 0,
        PER_THREAD => sys::thread_pointer(),
        handle => return handle,
    };
    let context = account::page().map_or(0, |state| account::context(state, copy));
    DEFAULT | u64::from(context) << CONTEXT_AT | thread
}

/// Remembers the stream in which an executable graph with memory was launched, by its number. A
/// program cannot launch the graph twice at once.
fn remember_launch(exec: u64, stream: u64) {
    match account::find(Space::Launched, exec) {
        Some(last) if last.payload() == stream => {}
        Some(last) => {
            last.replace_payload(stream);
        }
        None => {
            if account::find(Space::Exec, part(exec, 0)).is_some()
                && let Some(state) = account::page()
            {
                handles::put_payload(state, Space::Launched, exec, stream);
            }
        }
    }
}

/// The records of an executable graph: one for each device on which it needs memory.
fn records(exec: u64) -> impl Iterator<Item = FoundEntry> {
    (0..).map_while(move |number| account::find(Space::Exec, part(exec, number)))
}

/// `cuGraphLaunch` and `cuGraphUpload`.
///
/// # Safety
/// As `instantiate`.
pub(crate) unsafe fn launch(call: Call<Launch>, exec: CUgraphExec, stream: CUstream) -> CUresult {
    // SAFETY: the caller guarantees the function's contract for these arguments.
    unsafe { launch_in(call, exec, stream, stream) }
}

/// `cuGraphLaunch_ptsz` and `cuGraphUpload_ptsz`.
///
/// # Safety
/// As `instantiate`.
pub(crate) unsafe fn launch_ptsz(
    call: Call<Launch>,
    exec: CUgraphExec,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller guarantees the function's contract for these arguments.
    unsafe { launch_in(call, exec, stream, meant(stream)) }
}

/// Launches or uploads an executable graph. `meant`: the effective stream. A graph that was last
/// launched there still maps its memory: the driver shares memory only between the graphs of a
/// stream. In another stream it may need other memory, since it can run beside them.
///
/// # Safety
/// As `instantiate`.
unsafe fn launch_in(
    call: Call<Launch>,
    exec: CUgraphExec,
    stream: CUstream,
    meant: CUstream,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { (call.real)(exec, stream) };
    let handle = exec as u64;
    if account::find(Space::Exec, part(handle, 0)).is_none() {
        return ask();
    }
    let need = |number| {
        let charge = account::find(Space::Exec, part(handle, number))?.charge();
        let ordinal = charge.context.checked_sub(1)?;
        Some((CudaOrdinal(u32::from(ordinal)), charge.bytes))
    };
    let stream = stream_number(call.copy, meant);
    let is_relaunch = || {
        let last = account::find(Space::Launched, handle);
        last.is_some_and(|last| last.payload() == stream)
    };
    let code = pay(call.copy, 0, &is_relaunch, &need, &ask);
    if code == SUCCESS {
        remember_launch(handle, stream);
    }
    code
}

/// `cuGraphExecDestroy`: the driver keeps the graph's reserved memory until it is trimmed.
///
/// # Safety
/// As `instantiate`.
pub(crate) unsafe fn destroy(call: Call<Destroy>, exec: CUgraphExec) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for this argument.
    let ask = || unsafe { (call.real)(exec) };
    if account::find(Space::Exec, part(exec as u64, 0)).is_none() {
        return ask();
    }
    let code = forget(exec as u64, 0, &ask);
    if code == SUCCESS {
        graphs::settle_all(call.copy);
    }
    code
}

/// Forgets the records of an executable graph, beginning with this number, once the driver has
/// destroyed it. They are looked up before: its handle may be in use again afterwards.
fn forget(exec: u64, number: usize, ask: &impl Fn() -> CUresult) -> CUresult {
    let Some(found) = account::find(Space::Exec, part(exec, number)) else {
        let last = account::find(Space::Launched, exec);
        let code = ask();
        if let Some(last) = last.filter(|_| code == SUCCESS) {
            last.take();
        }
        return code;
    };
    let code = forget(exec, number.saturating_add(1), ask);
    if code == SUCCESS {
        found.take();
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
