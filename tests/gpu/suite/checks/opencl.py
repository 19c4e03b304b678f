"""OpenCL by its loader, or by NVIDIA's driver: sizes, UUID, and whether it allocates by libcuda."""
import ctypes as c
import json
import os

import loader
import tell
from driver import Nvml

MIB = tell.MIB
SIZE = 256 * MIB
# The order of the dispatch table (cl_icd.h). Every OpenCL object begins with a pointer to it.
TABLE = {"clGetPlatformInfo": 1, "clGetDeviceIDs": 2, "clGetDeviceInfo": 3, "clCreateContext": 4, "clReleaseContext": 7,
         "clCreateCommandQueue": 9, "clReleaseCommandQueue": 11, "clCreateBuffer": 14, "clReleaseMemObject": 18, "clFinish": 47,
         "clEnqueueWriteBuffer": 49}
INFO = {"GLOBAL_MEM_SIZE": 0x101F, "MAX_MEM_ALLOC_SIZE": 0x1010, "HOST_UNIFIED_MEMORY": 0x1035}
POINTERS = {"clCreateContext", "clCreateCommandQueue", "clCreateBuffer"}


class OpenCl:
    """NVIDIA's platform, called by the driver's own table, however the platform was found."""

    def __init__(self):
        tried = []
        for soname in ("libOpenCL.so.1", "libnvidia-opencl.so.1"):
            try:
                library = c.CDLL(soname)
            except OSError as error:
                tried.append(str(error))
                continue
            for platform in self.platforms(library):
                self.table = c.cast(platform, c.POINTER(c.c_void_p))[0]
                name = c.create_string_buffer(128)
                self.call("clGetPlatformInfo", c.c_void_p(platform), 0x0902, c.c_size_t(128), name, None)
                if b"NVIDIA" in name.value:
                    self.platform, self.by, self.name = c.c_void_p(platform), soname, name.value.decode()
                    return
                tried.append(f"{soname}: the platform is {name.value.decode(errors='replace')}")
            tried.append(f"{soname}: no more platforms")
        tell.skip(f"no OpenCL of NVIDIA's: {'; '.join(tried)}"[:300])

    @staticmethod
    def platforms(library):
        count, room = c.c_uint(), (c.c_void_p * 8)()
        ask = getattr(library, "clGetPlatformIDs", None)
        if ask is None:
            library.clGetExtensionFunctionAddress.restype = c.c_void_p
            at = library.clGetExtensionFunctionAddress(b"clIcdGetPlatformIDsKHR")
            if not at:
                return []
            ask = c.CFUNCTYPE(c.c_int, c.c_uint, c.c_void_p, c.c_void_p)(at)
        return [] if ask(8, room, c.byref(count)) else [room[at] for at in range(min(count.value, 8))]

    def call(self, name, *arguments):
        at = c.cast(c.c_void_p(self.table), c.POINTER(c.c_void_p))[TABLE[name]]
        return c.CFUNCTYPE(c.c_void_p if name in POINTERS else c.c_int)(at)(*arguments)

    def number(self, device, what):
        value = c.c_uint64()
        code = self.call("clGetDeviceInfo", device, what, c.c_size_t(8), c.byref(value), None)
        return value.value if code == 0 else f"code {code}"

    def text(self, device, what, size=8192):
        room = c.create_string_buffer(size)
        code = self.call("clGetDeviceInfo", device, what, c.c_size_t(size), room, None)
        return f"code {code}" if code else room.value.decode(errors="replace")


def ledger():
    """Returns this process's memory in the slice's ledger, by kind; None outside a slice."""
    _, out, _ = tell.run([tell.GPUSLICE, "status", "--json"], timeout=10, env={"LD_PRELOAD": ""})
    for slice_ in json.loads(out)["slices"] if out else []:
        for device in slice_["devices"]:
            for process in device["processes"]:
                if process["pid"] == os.getpid():
                    return process["used"]
    return None


def check():
    opencl = OpenCl()
    count, device = c.c_uint(), c.c_void_p()
    # Type 4: GPUs.
    code = opencl.call("clGetDeviceIDs", opencl.platform, c.c_uint64(4), 1, c.byref(device), c.byref(count))
    if code:
        tell.skip(f"clGetDeviceIDs answered {code}")
    cuda = tell.started()
    nvml = Nvml(cuda.uuid())
    uuid = (c.c_ubyte * 16)()
    code = opencl.call("clGetDeviceInfo", device, 0x106A, c.c_size_t(16), uuid, None)
    said = {name: opencl.number(device, what) for name, what in INFO.items()}
    total = cuda.info()[1]
    extensions = opencl.text(device, 0x1030)
    said.update({"name": opencl.text(device, 0x102B), "UUID_KHR": bytes(uuid).hex() if code == 0 else f"code {code}",
                 "CUDA's uuid": cuda.uuid(), "CUDA's total": total, "by": opencl.by, "platform": opencl.name, "extensions": extensions})
    tell.answer("opencl-size", said, None if tell.IN_SLICE else
                said["GLOBAL_MEM_SIZE"] == total and cuda.uuid()[4:].replace("-", "") == said["UUID_KHR"])
    place = loader.mapping(opencl.table)
    tell.answer("opencl-table", {"mapping of the table": place, "extensions by name":
                                 "clIcdGetFunctionAddressForPlatformKHR" in extensions}, place.startswith("rw") if place else None)
    last, found = [nvml.used() or 0], {}

    def look(what, said):
        now = nvml.used() or 0
        found[what] = {"said": said, "MiB more by NVML": tell.mib(now - last[0]), "ledger": ledger() if tell.IN_SLICE else None}
        last[0] = now

    look("CUDA's context alone", 0)
    error = c.c_int()
    context = c.c_void_p(opencl.call("clCreateContext", None, 1, c.byref(device), None, None, c.byref(error)))
    look("clCreateContext", error.value)
    queue = c.c_void_p(opencl.call("clCreateCommandQueue", context, device, c.c_uint64(0), c.byref(error)))
    look("clCreateCommandQueue", error.value)
    buffer = c.c_void_p(opencl.call("clCreateBuffer", context, c.c_uint64(1), c.c_size_t(SIZE), None, c.byref(error)))
    look("clCreateBuffer of 256 MiB", error.value)
    data = c.create_string_buffer(SIZE)
    code = opencl.call("clEnqueueWriteBuffer", queue, buffer, 1, c.c_size_t(0), c.c_size_t(SIZE), data, 0, None, None)
    look("written", code)
    opencl.call("clReleaseMemObject", buffer)
    opencl.call("clFinish", queue)
    look("released", 0)
    names = [path.rsplit("/", 1)[-1] for path in loader.libraries("libcuda", "libnvidia", "libOpenCL")]
    twice = None
    if tell.IN_SLICE:
        tell.equal("CL_DEVICE_GLOBAL_MEM_SIZE", said["GLOBAL_MEM_SIZE"], total)
        before, after = (found[what]["ledger"] for what in ("CUDA's context alone", "written"))
        if tell.expect(after is not None, "the ledger has no such process"):
            grew = after - (before or 0)
            tell.expect(grew >= SIZE, f"a buffer of {SIZE} is counted as {grew}")
            twice = grew >= 2 * SIZE
            tell.expect(not twice, "a buffer is counted by OpenCL and by CUDA")
        code = c.c_int()
        beyond = opencl.call("clCreateBuffer", context, c.c_uint64(1), c.c_size_t(total + MIB), None, c.byref(code))
        tell.expect(not beyond and code.value in (-4, -61), f"a buffer beyond the slice was answered with {code.value}")
    # A buffer that OpenCL's driver allocates by libcuda would be counted twice.
    tell.answer("opencl-libcuda", {"steps": found, "libraries": names, "counted twice": twice}, None if twice is None else not twice)


tell.main(check)
