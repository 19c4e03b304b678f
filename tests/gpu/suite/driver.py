"""Calls libcuda and libnvidia-ml by ctypes, so nothing has to be installed.

The layouts of structures are facts about the driver, written down here.
"""
import ctypes as c

OUT_OF_MEMORY = 2
NOT_INITIALIZED = 3
NOT_SUPPORTED = 801

CUDA_NAMES = {0: "SUCCESS", 1: "INVALID_VALUE", 2: "OUT_OF_MEMORY", 3: "NOT_INITIALIZED", 100: "NO_DEVICE",
              101: "INVALID_DEVICE", 201: "INVALID_CONTEXT", 500: "NOT_FOUND", 801: "NOT_SUPPORTED",
              900: "STREAM_CAPTURE_UNSUPPORTED", 901: "STREAM_CAPTURE_INVALIDATED"}


class DriverError(Exception):
    """A call failed that had to succeed."""

    def __init__(self, name, code):
        super().__init__(f"{name} answered {code} ({CUDA_NAMES.get(code, '?')})")
        self.code = code


class Location(c.Structure):
    _fields_ = [("type", c.c_int), ("id", c.c_int)]


class AllocationProp(c.Structure):
    _fields_ = [("type", c.c_int), ("handle_types", c.c_int), ("location", Location),
                ("metadata", c.c_void_p), ("flags", c.c_ubyte * 8)]


class AccessDesc(c.Structure):
    _fields_ = [("location", Location), ("flags", c.c_int)]


class ArrayDescriptor(c.Structure):
    _fields_ = [("width", c.c_size_t), ("height", c.c_size_t), ("format", c.c_int), ("channels", c.c_uint)]


class IpcHandle(c.Structure):
    _fields_ = [("bytes", c.c_ubyte * 64)]


class Cuda:
    """The driver of one device."""

    def __init__(self, device=0):
        self.lib = c.CDLL("libcuda.so.1")
        self.ordinal = device
        self.context = c.c_void_p()

    def call(self, name, *arguments):
        """Calls a function and returns its code: NOT_SUPPORTED if the driver lacks the function."""
        try:
            function = getattr(self.lib, name)
        except AttributeError:
            return NOT_SUPPORTED
        return function(*arguments)

    def must(self, name, *arguments):
        """Calls a function that has to succeed."""
        code = self.call(name, *arguments)
        if code:
            raise DriverError(name, code)

    def init(self):
        """Calls cuInit and gets the device."""
        self.must("cuInit", 0)
        device = c.c_int()
        self.must("cuDeviceGet", c.byref(device), self.ordinal)
        self.device = device.value
        return self

    def start(self):
        """Retains the primary context and makes it current."""
        self.init()
        self.must("cuDevicePrimaryCtxRetain", c.byref(self.context), self.device)
        self.must("cuCtxSetCurrent", self.context)
        return self

    def info(self):
        """Returns (free, total) of cuMemGetInfo_v2."""
        free, total = c.c_size_t(), c.c_size_t()
        self.must("cuMemGetInfo_v2", c.byref(free), c.byref(total))
        return free.value, total.value

    def total(self):
        """Returns the total of cuDeviceTotalMem_v2."""
        total = c.c_size_t()
        self.must("cuDeviceTotalMem_v2", c.byref(total), self.device)
        return total.value

    def attribute(self, number):
        """Returns a device attribute; None if the driver does not know its number."""
        value = c.c_int()
        code = self.call("cuDeviceGetAttribute", c.byref(value), number, self.device)
        return None if code else value.value

    def name(self):
        """Returns the name of the card."""
        text = c.create_string_buffer(128)
        self.must("cuDeviceGetName", text, 128, self.device)
        return text.value.decode(errors="replace")

    def uuid(self):
        """Returns the UUID as NVML writes it: GPU-..."""
        raw = (c.c_ubyte * 16)()
        self.must("cuDeviceGetUuid", raw, self.device)
        text = bytes(raw).hex()
        return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def version(self):
        """Returns the newest CUDA version that the driver supports."""
        version = c.c_int()
        self.must("cuDriverGetVersion", c.byref(version))
        return version.value

    def alloc(self, size):
        """cuMemAlloc_v2: (code, address)."""
        at = c.c_uint64()
        return self.call("cuMemAlloc_v2", c.byref(at), c.c_size_t(size)), at.value

    def free(self, at):
        """cuMemFree_v2."""
        self.must("cuMemFree_v2", c.c_uint64(at))

    def alloc_async(self, size):
        """cuMemAllocAsync on the default stream: (code, address)."""
        at = c.c_uint64()
        code = self.call("cuMemAllocAsync", c.byref(at), c.c_size_t(size), None)
        return code, at.value

    def free_async(self, at):
        """cuMemFreeAsync on the default stream."""
        self.must("cuMemFreeAsync", c.c_uint64(at), None)

    def default_pool(self):
        """Returns the device's default pool; None if this driver has none."""
        pool = c.c_void_p()
        return None if self.call("cuDeviceGetDefaultMemPool", c.byref(pool), self.device) else pool

    def new_pool(self, threshold=0):
        """Makes a pool of device memory: (code, pool). A synchronisation leaves `threshold` bytes
        in it.
        """
        # CUmemPoolProps: allocation type (pinned), handle types, location, the rest 0.
        props, pool = (c.c_int * 64)(1, 0, 1, self.device), c.c_void_p()
        code = self.call("cuMemPoolCreate", c.byref(pool), c.byref(props))
        if code == 0:
            self.must("cuMemPoolSetAttribute", pool, 4, c.byref(c.c_uint64(threshold)))
        return code, pool

    def pool_value(self, pool, attribute):
        """Returns an attribute of a pool: 5 reserved, 6 its peak, 7 used, 8 its peak."""
        value = c.c_uint64()
        self.must("cuMemPoolGetAttribute", pool, attribute, c.byref(value))
        return value.value

    def alloc_from(self, pool, size):
        """cuMemAllocFromPoolAsync on the default stream: (code, address)."""
        at = c.c_uint64()
        return self.call("cuMemAllocFromPoolAsync", c.byref(at), c.c_size_t(size), pool, None), at.value

    def synchronize(self):
        """cuCtxSynchronize."""
        self.must("cuCtxSynchronize")

    def prop(self, shareable=False):
        """Returns the properties of physical memory on this device."""
        return AllocationProp(1, 1 if shareable else 0, Location(1, self.device), None)

    def create(self, size, shareable=False):
        """cuMemCreate: (code, handle)."""
        handle, prop = c.c_uint64(), self.prop(shareable)
        code = self.call("cuMemCreate", c.byref(handle), c.c_size_t(size), c.byref(prop), c.c_uint64(0))
        return code, handle.value

    def map(self, handle, size):
        """Reserves an address range, maps the memory, and permits access. Returns the address."""
        at = c.c_uint64()
        self.must("cuMemAddressReserve", c.byref(at), c.c_size_t(size), c.c_size_t(0), c.c_uint64(0), c.c_uint64(0))
        self.must("cuMemMap", at, c.c_size_t(size), c.c_size_t(0), c.c_uint64(handle), c.c_uint64(0))
        access = AccessDesc(Location(1, self.device), 3)
        self.must("cuMemSetAccess", at, c.c_size_t(size), c.byref(access), c.c_size_t(1))
        return at.value

    def unmap(self, at, size):
        """Unmaps the memory and frees the addresses. The handle remains."""
        self.must("cuMemUnmap", c.c_uint64(at), c.c_size_t(size))
        self.must("cuMemAddressFree", c.c_uint64(at), c.c_size_t(size))


class Memory1(c.Structure):
    _fields_ = [("total", c.c_uint64), ("free", c.c_uint64), ("used", c.c_uint64)]


class Memory2(c.Structure):
    _fields_ = [("version", c.c_uint), ("total", c.c_uint64), ("reserved", c.c_uint64),
                ("free", c.c_uint64), ("used", c.c_uint64)]


class Process(c.Structure):
    _fields_ = [("pid", c.c_uint), ("used", c.c_uint64), ("gpu_instance", c.c_uint), ("compute_instance", c.c_uint)]


class Nvml:
    """NVML's view of the device with this UUID."""

    def __init__(self, uuid):
        self.lib = c.CDLL("libnvidia-ml.so.1")
        self.device = c.c_void_p()
        self.code = self.lib.nvmlInit_v2()
        if not self.code:
            self.code = self.lib.nvmlDeviceGetHandleByUUID(uuid.encode(), c.byref(self.device))

    def memory1(self):
        """(code, {total, free, used})"""
        memory = Memory1()
        code = self.lib.nvmlDeviceGetMemoryInfo(self.device, c.byref(memory))
        return code, {name: getattr(memory, name) for name in ("total", "free", "used")}

    def memory2(self):
        """(code, {total, reserved, free, used})"""
        memory = Memory2(version=0x2000028)
        code = self.lib.nvmlDeviceGetMemoryInfo_v2(self.device, c.byref(memory))
        return code, {name: getattr(memory, name) for name in ("total", "reserved", "free", "used")}

    def processes(self):
        """Returns (code, {pid: used}). A value that NVML does not know is None."""
        count, room = c.c_uint(256), (Process * 256)()
        code = self.lib.nvmlDeviceGetComputeRunningProcesses_v3(self.device, c.byref(count), room)
        known = lambda used: None if used == (1 << 64) - 1 else used  # noqa: E731
        return code, {one.pid: known(one.used) for one in room[:count.value]} if not code else {}

    def text(self, function):
        """Returns the text of a function that takes no device."""
        text = c.create_string_buffer(96)
        code = getattr(self.lib, function)(text, 96)
        return None if code else text.value.decode(errors="replace")

    def bar1(self):
        """(code, {total, free, used}) of the BAR1 window."""
        memory = Memory1()
        code = self.lib.nvmlDeviceGetBAR1MemoryInfo(self.device, c.byref(memory))
        return code, {name: getattr(memory, name) for name in ("total", "free", "used")}

    def call(self, name, *arguments):
        """Calls a function and returns its code; None if this NVML lacks the function."""
        function = getattr(self.lib, name, None)
        return None if function is None else function(*arguments)

    def used(self):
        """Returns the bytes in use on the card; None if NVML does not report them."""
        code, memory = self.memory1()
        return None if code else memory["used"]
