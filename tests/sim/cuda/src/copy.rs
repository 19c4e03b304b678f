//! Copies and fills: device memory is host memory, so they really happen.
//! Touches: the ranges the caller names.

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

cuda! {
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
