//! The panic handler: empty, because no reachable panic is left.
//! Touches: nothing.
//! Law: a release build with a reachable panic does not link.

unsafe extern "C" {
    /// Defined nowhere: see `build.rs`.
    fn gpuslice_a_panicking_path_is_left_in_the_shim() -> !;
}

/// An error about a second handler (`duplicate lang item`) means that std is linked: see `lib.rs`.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: the function does not exist, so a build in which this is reachable does not link.
    unsafe { gpuslice_a_panicking_path_is_left_in_the_shim() }
}
