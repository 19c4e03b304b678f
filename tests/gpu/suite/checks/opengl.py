"""OpenGL without a screen, through libglvnd's EGL: the five values of GL_NVX_gpu_memory_info."""
import ctypes as c

import tell

# The extension's names, in this order from 0x9047 on; all in KiB but the number of evictions.
NAMES = ["dedicated", "total available", "available", "evictions", "evicted"]
PLATFORM_DEVICE, OPENGL, VENDOR = 0x313F, 0x30A2, 0x1F00


def pointer(name, egl, restype, *types):
    egl.eglGetProcAddress.restype, egl.eglGetProcAddress.argtypes = c.c_void_p, [c.c_char_p]
    at = egl.eglGetProcAddress(name.encode())
    return c.CFUNCTYPE(restype, *types)(at) if at else tell.skip(f"no OpenGL: {name} is not there")


def check():
    try:
        egl = c.CDLL("libEGL.so.1")
    except OSError as error:
        tell.skip(f"no OpenGL: {error}")
    cuda = tell.started()
    list_devices = pointer("eglQueryDevicesEXT", egl, c.c_uint, c.c_int, c.c_void_p, c.c_void_p)
    display_of = pointer("eglGetPlatformDisplayEXT", egl, c.c_void_p, c.c_uint, c.c_void_p, c.c_void_p)
    devices, count = (c.c_void_p * 16)(), c.c_int()
    list_devices(16, devices, c.byref(count))
    egl.eglCreateContext.restype = c.c_void_p
    seen = []
    for device in devices[:count.value]:
        display = c.c_void_p(display_of(PLATFORM_DEVICE, device, None))
        if not display or not egl.eglInitialize(display, None, None) or not egl.eglBindAPI(OPENGL):
            continue
        context = c.c_void_p(egl.eglCreateContext(display, None, None, None))
        if not context or not egl.eglMakeCurrent(display, None, None, context):
            continue
        text = pointer("glGetString", egl, c.c_char_p, c.c_uint)
        vendor = (text(VENDOR) or b"").decode(errors="replace")
        seen.append(vendor)
        if not vendor.startswith("NVIDIA"):
            continue
        integers = pointer("glGetIntegerv", egl, None, c.c_uint, c.c_void_p)
        values = []
        for name in range(0x9047, 0x904C):
            value = c.c_int(-1)
            integers(name, c.byref(value))
            values.append(value.value)
        free, total = cuda.info()
        said = {**dict(zip(NAMES, values)), "CUDA's total and free in KiB": [total >> 10, free >> 10],
                "glGetUnsignedBytei_vEXT": bool(egl.eglGetProcAddress(b"glGetUnsignedBytei_vEXT"))}
        tell.answer("opengl", said, None if tell.IN_SLICE else abs(values[0] - (total >> 10)) < 1 << 20)
        if tell.IN_SLICE:
            tell.equal("the dedicated memory", values[0], total >> 10)
            tell.equal("the total available memory", values[1], total >> 10)
            # A context of OpenGL takes memory that the slice does not count.
            tell.expect(0 <= values[2] <= free >> 10, f"{values[2]} KiB are called available, CUDA says {free >> 10}")
        return
    tell.skip(f"no OpenGL of NVIDIA's: {seen or 'no device has a context'}")


tell.main(check)
