//! Contexts for OpenGL and VDPAU: like any other context here.
//! Touches: contexts.

use crate::abi::*;
use crate::context::create;

cuda! {
    fn cuGLCtxCreate(out: Out<Handle>, flags: u32, device: CUdevice) {
        create(out, flags, device)
    }

    fn cuGLCtxCreate_v2(out: Out<Handle>, flags: u32, device: CUdevice) {
        create(out, flags, device)
    }

    fn cuVDPAUCtxCreate(out: Out<Handle>, flags: u32, device: CUdevice, _vdpau: u32, _find: Handle) {
        create(out, flags, device)
    }

    fn cuVDPAUCtxCreate_v2(out: Out<Handle>, flags: u32, device: CUdevice, _vdpau: u32, _find: Handle) {
        create(out, flags, device)
    }
}
