//! Copies and fills. Device memory is host memory here, so the bytes are really copied.
//! Touches: the ranges that the caller names.

use crate::abi::*;
use crate::context::current;
use crate::driver::driver;
use crate::heap::{copy, fill};

fn ready() -> Answer {
    driver()?;
    current().map(|_| ())
}

fn checked_copy(to: u64, from: u64, bytes: usize) -> Answer {
    ready()?;
    copy(to, from, bytes)
}

fn checked_fill<T: Copy>(to: u64, value: T, count: usize) -> Answer {
    ready()?;
    fill(to, value, count)
}

fn fill_2d<T: Copy>(to: u64, pitch: usize, value: T, width: usize, height: usize) -> Answer {
    ready()?;
    (0..height).try_for_each(|row| fill(to + (row * pitch) as u64, value, width))
}

/// Makes the copies of a batch, until one fails.
fn checked_batch(to: In<u64>, from: In<u64>, bytes: In<usize>, count: usize) -> Answer {
    ready()?;
    (0..count).try_for_each(|n| copy(to.at(n).get()?, from.at(n).get()?, bytes.at(n).get()?))
}

cuda! {
    fn cuMemcpyHtoD(to: u32, from: u64, bytes: u32) {
        checked_copy(to.into(), from, bytes as usize)
    }

    fn cuMemcpyHtoDAsync(to: u32, from: u64, bytes: u32, _stream: Handle) {
        checked_copy(to.into(), from, bytes as usize)
    }

    fn cuMemcpyBatchAsync(to: In<u64>, from: In<u64>, bytes: In<usize>, count: usize, _attributes: Handle, _places: Handle, _number: usize, failed: Out<usize>, _stream: Handle) {
        failed.set_if_wanted(usize::MAX);
        checked_batch(to, from, bytes, count)
    }

    fn cuMemcpyBatchAsync_v2(to: In<u64>, from: In<u64>, bytes: In<usize>, count: usize, _attributes: Handle, _places: Handle, _number: usize, _stream: Handle) {
        checked_batch(to, from, bytes, count)
    }

    fn cuMemcpy(to: u64, from: u64, bytes: usize) {
        checked_copy(to, from, bytes)
    }

    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, _stream: Handle) {
        checked_copy(to, from, bytes)
    }

    fn cuMemcpyPeer(to: u64, _to_context: Handle, from: u64, _from_context: Handle, bytes: usize) {
        checked_copy(to, from, bytes)
    }

    fn cuMemcpyHtoD_v2(to: u64, from: u64, bytes: usize) {
        checked_copy(to, from, bytes)
    }

    fn cuMemcpyDtoH_v2(to: u64, from: u64, bytes: usize) {
        checked_copy(to, from, bytes)
    }

    fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) {
        checked_copy(to, from, bytes)
    }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, bytes: usize, _stream: Handle) {
        checked_copy(to, from, bytes)
    }

    fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: usize, _stream: Handle) {
        checked_copy(to, from, bytes)
    }

    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, _stream: Handle) {
        checked_copy(to, from, bytes)
    }

    fn cuMemsetD8_v2(to: u64, value: u8, count: usize) {
        checked_fill(to, value, count)
    }

    fn cuMemsetD16_v2(to: u64, value: u16, count: usize) {
        checked_fill(to, value, count)
    }

    fn cuMemsetD32_v2(to: u64, value: u32, count: usize) {
        checked_fill(to, value, count)
    }

    fn cuMemsetD8Async(to: u64, value: u8, count: usize, _stream: Handle) {
        checked_fill(to, value, count)
    }

    fn cuMemsetD16Async(to: u64, value: u16, count: usize, _stream: Handle) {
        checked_fill(to, value, count)
    }

    fn cuMemsetD32Async(to: u64, value: u32, count: usize, _stream: Handle) {
        checked_fill(to, value, count)
    }

    fn cuMemsetD2D8_v2(to: u64, pitch: usize, value: u8, width: usize, height: usize) {
        fill_2d(to, pitch, value, width, height)
    }

    fn cuMemsetD2D16_v2(to: u64, pitch: usize, value: u16, width: usize, height: usize) {
        fill_2d(to, pitch, value, width, height)
    }

    fn cuMemsetD2D32_v2(to: u64, pitch: usize, value: u32, width: usize, height: usize) {
        fill_2d(to, pitch, value, width, height)
    }
}
