//! Streams and events. Every operation is done at once, so they are always ready. Only graphs keep
//! memory in use until the program has waited for them.
//! Touches: this process's tables; synchronising settles the pools.

use crate::abi::*;
use crate::context::{Context, current};
use crate::driver::driver;
use crate::pool;
use std::cell::Cell;
use std::thread;
use std::time::Instant;

fn create(out: Out<Handle>) -> Answer {
    let driver = driver()?;
    let context = current()?.handle();
    let mut state = driver.state();
    let stream = state.fresh_handle();
    state.streams.insert(stream, context);
    out.set(stream)
}

/// Checks that the handle is a stream. 0, 1 and 2 are the default streams.
pub(crate) fn known(stream: Handle) -> Answer {
    let driver = driver()?;
    if stream <= 2 {
        return current().map(|_| ());
    }
    driver
        .state()
        .streams
        .contains_key(&stream)
        .then_some(())
        .ok_or(INVALID_HANDLE)
}

/// The context to which a stream belongs. For a default stream, it is the calling thread's current
/// one.
pub(crate) fn context(stream: Handle) -> Answer<&'static Context> {
    let driver = driver()?;
    if stream <= 2 {
        return current();
    }
    let owner = driver.state().streams.get(&stream).copied();
    crate::context::find(driver, owner.ok_or(INVALID_HANDLE)?)?.alive()
}

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`.
const GLOBAL: i32 = 0;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: i32 = 2;

thread_local! {
    static MODE: Cell<i32> = const { Cell::new(GLOBAL) };
}

/// The effect of a call that is unsafe while a stream is captured. It ends every global capture,
/// unless the calling thread has chosen another capture mode.
pub(crate) fn unsafe_call(state: &mut crate::state::State) -> Answer {
    if MODE.with(Cell::get) != GLOBAL || state.global_captures.is_empty() {
        return Ok(());
    }
    for stream in &state.global_captures {
        state.capturing.insert(*stream, true);
    }
    Err(STREAM_CAPTURE_UNSUPPORTED)
}

/// `CU_STREAM_PER_THREAD`.
pub(crate) const PER_THREAD: Handle = 2;

/// The stream that a twin for per-thread default streams uses.
pub(crate) fn of_twin(stream: Handle) -> Handle {
    if stream == 0 { PER_THREAD } else { stream }
}

fn end_capture(stream: Handle, graph: Out<Handle>) -> Answer {
    known(stream)?;
    let driver = driver()?;
    let mut state = driver.state();
    let began = state.capture_threads.get(&stream);
    if began.is_some_and(|began| *began != thread::current().id()) {
        return Err(STREAM_CAPTURE_WRONG_THREAD);
    }
    state.capture_threads.remove(&stream);
    let captured = state.graphs.captured(stream);
    state.global_captures.remove(&stream);
    match state.capturing.remove(&stream) {
        None => Err(ILLEGAL_STATE),
        Some(true) => Err(STREAM_CAPTURE_INVALIDATED),
        Some(false) => graph.set(captured.ok_or(UNKNOWN)?),
    }
}

fn is_capturing(stream: Handle, out: Out<i32>) -> Answer {
    known(stream)?;
    let capture = driver()?.state().capturing.get(&stream).copied();
    out.set(capture.map_or(0, |invalid| if invalid { 2 } else { 1 }))
}

/// Begins to capture a stream into a graph of its own.
fn begin_capture(stream: Handle, mode: i32) -> Answer {
    known(stream)?;
    // The legacy default stream cannot be captured, the per-thread one can.
    let mut state = driver()?.state();
    if stream < PER_THREAD || state.capturing.insert(stream, false).is_some() {
        return Err(ILLEGAL_STATE);
    }
    if mode == GLOBAL {
        state.global_captures.insert(stream);
    }
    if mode != RELAXED {
        state.capture_threads.insert(stream, thread::current().id());
    }
    crate::graph::begin_capture(&mut state, stream);
    Ok(())
}

/// Waits for a stream, or for every stream.
pub(crate) fn synchronize(stream: Option<Handle>) -> Answer {
    let driver = driver()?;
    let mut state = driver.state();
    state.graphs.end(stream);
    pool::settle_all(driver, &mut state);
    Ok(())
}

fn known_event(event: Handle) -> Answer<Instant> {
    driver()?
        .state()
        .events
        .get(&event)
        .copied()
        .ok_or(INVALID_HANDLE)
}

fn destroy_event(event: Handle) -> Answer {
    driver()?
        .state()
        .events
        .remove(&event)
        .map(|_| ())
        .ok_or(INVALID_HANDLE)
}

fn elapsed(out: Out<f32>, start: Handle, end: Handle) -> Answer {
    let (start, end) = (known_event(start)?, known_event(end)?);
    out.set(end.saturating_duration_since(start).as_secs_f32() * 1000.0)
}

cuda! {
    fn cuStreamCreate(out: Out<Handle>, _flags: u32) {
        create(out)
    }

    fn cuStreamCreateWithPriority(out: Out<Handle>, _flags: u32, _priority: i32) {
        create(out)
    }

    fn cuStreamDestroy(stream: Handle) {
        driver()?.state().streams.remove(&stream).map(|_| ()).ok_or(INVALID_HANDLE)
    }

    fn cuStreamDestroy_v2(stream: Handle) {
        driver()?.state().streams.remove(&stream).map(|_| ()).ok_or(INVALID_HANDLE)
    }

    fn cuStreamSynchronize(stream: Handle) {
        known(stream)?;
        synchronize(Some(stream))
    }

    fn cuStreamQuery(stream: Handle) {
        known(stream)
    }

    fn cuStreamWaitEvent(stream: Handle, event: Handle, _flags: u32) {
        known(stream)?;
        known_event(event).map(|_| ())
    }

    fn cuStreamGetFlags(stream: Handle, out: Out<u32>) {
        known(stream)?;
        out.set(0)
    }

    fn cuStreamGetPriority(stream: Handle, out: Out<i32>) {
        known(stream)?;
        out.set(0)
    }

    fn cuStreamGetDevice(stream: Handle, out: Out<CUdevice>) {
        out.set(context(stream)?.device)
    }

    fn cuStreamGetId(stream: Handle, out: Out<u64>) {
        known(stream)?;
        out.set(stream as u64)
    }

    fn cuStreamGetCtx(stream: Handle, out: Out<Handle>) {
        out.set(context(stream)?.handle())
    }

    fn cuStreamIsCapturing(stream: Handle, out: Out<i32>) {
        is_capturing(stream, out)
    }

    fn cuStreamIsCapturing_ptsz(stream: Handle, out: Out<i32>) {
        is_capturing(of_twin(stream), out)
    }

    fn cuStreamBeginCapture(stream: Handle) {
        begin_capture(stream, GLOBAL)
    }

    fn cuStreamBeginCapture_v2(stream: Handle, mode: i32) {
        begin_capture(stream, mode)
    }

    fn cuStreamBeginCapture_v2_ptsz(stream: Handle, mode: i32) {
        begin_capture(of_twin(stream), mode)
    }

    fn cuStreamEndCapture(stream: Handle, graph: Out<Handle>) {
        end_capture(stream, graph)
    }

    fn cuStreamEndCapture_ptsz(stream: Handle, graph: Out<Handle>) {
        end_capture(of_twin(stream), graph)
    }

    fn cuThreadExchangeStreamCaptureMode(mode: Out<i32>) {
        driver()?;
        let before = MODE.with(|now| now.replace(mode.get().unwrap_or(GLOBAL)));
        mode.set(before)
    }

    fn cuEventCreate(out: Out<Handle>, _flags: u32) {
        let driver = driver()?;
        current()?;
        let mut state = driver.state();
        let event = state.fresh_handle();
        state.events.insert(event, Instant::now());
        out.set(event)
    }

    fn cuEventDestroy(event: Handle) {
        destroy_event(event)
    }

    fn cuEventDestroy_v2(event: Handle) {
        destroy_event(event)
    }

    fn cuEventRecord(event: Handle, stream: Handle) {
        known(stream)?;
        known_event(event)?;
        driver()?.state().events.insert(event, Instant::now());
        Ok(())
    }

    fn cuEventRecordWithFlags(event: Handle, stream: Handle, _flags: u32) {
        known(stream)?;
        known_event(event)?;
        driver()?.state().events.insert(event, Instant::now());
        Ok(())
    }

    fn cuEventSynchronize(event: Handle) {
        known_event(event)?;
        synchronize(None)
    }

    fn cuEventQuery(event: Handle) {
        known_event(event).map(|_| ())
    }

    fn cuEventElapsedTime(out: Out<f32>, start: Handle, end: Handle) {
        elapsed(out, start, end)
    }

    fn cuEventElapsedTime_v2(out: Out<f32>, start: Handle, end: Handle) {
        elapsed(out, start, end)
    }
}
