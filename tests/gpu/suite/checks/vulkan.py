"""Vulkan by its loader, or by NVIDIA's driver: UUID, heaps, budget, and the memory of a device.

Structures are written as bytes, at offsets that the 64-bit ABI of the specification gives.
"""
import ctypes as c
import struct

import loader
import tell
from driver import Nvml

MIB = tell.MIB
VENDOR = 0x10DE
OUT_OF_DEVICE_MEMORY = -2
LOADERS = ["libvulkan.so.1"]
DRIVERS = ["libGLX_nvidia.so.0", "libEGL_nvidia.so.0"]
BUDGET, REPORT = "VK_EXT_memory_budget", "VK_EXT_device_memory_report"


class Vulkan:
    """The functions of one instance."""

    def __init__(self):
        self.instance, self.by = c.c_void_p(), None
        self.get = None
        tried = []
        for soname in LOADERS + DRIVERS:
            try:
                library = c.CDLL(soname)
            except OSError as error:
                tried.append(str(error))
                continue
            if soname in DRIVERS:
                version = c.c_uint32(5)
                if not hasattr(library, "vk_icdGetInstanceProcAddr"):
                    continue
                library.vk_icdNegotiateLoaderICDInterfaceVersion(c.byref(version))
                self.get = library.vk_icdGetInstanceProcAddr
            else:
                self.get = library.vkGetInstanceProcAddr
            self.get.restype, self.get.argtypes = c.c_void_p, [c.c_void_p, c.c_char_p]
            code = self.create()
            if code == 0 and self.devices():
                self.by = soname
                return
            tried.append(f"{soname}: vkCreateInstance answered {code}, or there is no device of NVIDIA's")
        tell.skip(f"no Vulkan: {'; '.join(tried)}"[:300])

    def function(self, name, *types, restype=c.c_int):
        at = self.get(self.instance, name.encode())
        if not at:
            raise RuntimeError(f"{name} is not there")
        return c.CFUNCTYPE(restype, *types)(at)

    def create(self):
        application = c.create_string_buffer(struct.pack("<iiQQIiQII", 0, 0, 0, 0, 0, 0, 0, 0, 1 << 22 | 1 << 12))
        info = c.create_string_buffer(struct.pack("<iiQIiQIiQIiQ", 1, 0, 0, 0, 0, c.addressof(application), 0, 0, 0, 0, 0, 0))
        self.instance = c.c_void_p()
        at = self.get(None, b"vkCreateInstance")
        if not at:
            return "no vkCreateInstance"
        return c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_void_p)(at)(info, None, c.byref(self.instance))

    def devices(self):
        """Returns NVIDIA's devices, and records the names of all devices."""
        ask = self.function("vkEnumeratePhysicalDevices", c.c_void_p, c.c_void_p, c.c_void_p)
        count = c.c_uint32()
        if ask(self.instance, c.byref(count), None) or not count.value:
            return []
        room = (c.c_void_p * count.value)()
        ask(self.instance, c.byref(count), room)
        self.all = [(at, *self.properties(at)) for at in room]
        tell.fact("devices", [[name, hex(vendor), kind] for _, name, vendor, kind, _ in self.all])
        return [one for one in self.all if one[2] == VENDOR]

    def properties(self, device):
        """Returns (name, vendor, type, uuid)."""
        # VkPhysicalDeviceIDProperties: device uuid, driver uuid, luid, node mask, validity.
        identity = c.create_string_buffer(struct.pack("<iiQ", 1000071004, 0, 0) + bytes(64))
        whole = c.create_string_buffer(struct.pack("<iiQ", 1000059001, 0, c.addressof(identity)) + bytes(1024))
        self.function("vkGetPhysicalDeviceProperties2", c.c_void_p, c.c_void_p, restype=None)(device, whole)
        _, _, vendor, _, kind = struct.unpack_from("<IIIII", whole.raw, 16)
        name = whole.raw[36:36 + 256].split(b"\0")[0].decode(errors="replace")
        return name, vendor, kind, identity.raw[16:32].hex()

    def extensions(self, device):
        ask = self.function("vkEnumerateDeviceExtensionProperties", c.c_void_p, c.c_char_p, c.c_void_p, c.c_void_p)
        count = c.c_uint32()
        ask(device, None, c.byref(count), None)
        room = c.create_string_buffer(260 * max(count.value, 1))
        ask(device, None, c.byref(count), room)
        return [room.raw[at * 260:at * 260 + 256].split(b"\0")[0].decode() for at in range(count.value)]

    def heaps(self, device):
        """Returns ([types: flags, heap], [heaps: size, flags, budget, usage])."""
        budget = c.create_string_buffer(struct.pack("<iiQ", 1000237000, 0, 0) + bytes(256))
        whole = c.create_string_buffer(struct.pack("<iiQ", 1000059006, 0, c.addressof(budget)) + bytes(520))
        self.function("vkGetPhysicalDeviceMemoryProperties2", c.c_void_p, c.c_void_p, restype=None)(device, whole)
        data = whole.raw[16:]
        types = [struct.unpack_from("<II", data, 4 + 8 * at) for at in range(struct.unpack_from("<I", data, 0)[0])]
        heaps = []
        for at in range(struct.unpack_from("<I", data, 260)[0]):
            size, flags = struct.unpack_from("<QI", data, 264 + 16 * at)
            heaps.append([size, flags, *(struct.unpack_from("<Q", budget.raw, 16 + 128 * part + 8 * at)[0] for part in (0, 1))])
        return types, heaps

    def open(self, device):
        """Makes a VkDevice with one queue: (code, handle)."""
        priority = c.c_float(1.0)
        queue = c.create_string_buffer(struct.pack("<iiQIIIiQ", 2, 0, 0, 0, 0, 1, 0, c.addressof(priority)))
        info = c.create_string_buffer(struct.pack("<iiQIIQIiQIiQQ", 3, 0, 0, 0, 1, c.addressof(queue), 0, 0, 0, 0, 0, 0, 0))
        handle = c.c_void_p()
        code = self.function("vkCreateDevice", c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p)(
            device, info, None, c.byref(handle))
        return code, handle

    def of_device(self, handle, name, *types, restype=c.c_int):
        ask = self.function("vkGetDeviceProcAddr", c.c_void_p, c.c_char_p, restype=c.c_void_p)
        return c.CFUNCTYPE(restype, *types)(ask(handle, name.encode()))

    def allocate(self, handle, size, kind):
        """vkAllocateMemory: (code, memory)."""
        info = c.create_string_buffer(struct.pack("<iiQQIi", 5, 0, 0, size, kind, 0))
        memory = c.c_uint64()
        code = self.of_device(handle, "vkAllocateMemory", c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p)(
            handle, info, None, c.byref(memory))
        return code, memory


def check():
    vulkan = Vulkan()
    cuda = tell.started()
    nvml = Nvml(cuda.uuid())
    uuid = cuda.uuid()[4:].replace("-", "")
    ours = [one for one in vulkan.devices() if one[4] == uuid] or vulkan.devices()[:1]
    device, name, _, kind, found = ours[0]
    tell.answer("vulkan-uuid", {"Vulkan": found, "CUDA": uuid, "name": name, "type": kind, "by": vulkan.by}, found == uuid)
    extensions = vulkan.extensions(device)
    types, heaps = vulkan.heaps(device)
    free, total = cuda.info()
    tell.answer("vulkan-heaps", {"heaps: size, flags (1: device-local), budget, usage": heaps, "types: flags, heap": types,
                                 BUDGET: BUDGET in extensions, "CUDA's free and total": [free, total]},
                BUDGET in extensions and any(flags & 1 for _, flags, _, _ in heaps))
    tell.answer("vulkan-report", {REPORT: REPORT in extensions, "extensions of memory":
                                  [one for one in extensions if "memory" in one]}, REPORT not in extensions)
    took(vulkan, nvml, device, types, heaps)
    tell.fact("libraries", [path.rsplit("/", 1)[-1] for path in loader.libraries("libcuda", "libnvidia", "libGLX", "libvulkan")])
    holder = tell.Talker(tell.python("holder.py"))
    before = vulkan.heaps(device)[1]
    holder.ask(do="start")
    context = vulkan.heaps(device)[1]
    holder.ask(do="take", kind="linear", size=1 << 30)
    after = vulkan.heaps(device)[1]
    tell.answer("vulkan-budget", {"[budget, usage] in MiB of each heap: before, with a CUDA context elsewhere, with 1 GiB there":
                                  [[[tell.mib(value) for value in heap[2:]] for heap in one] for one in (before, context, after)]},
                any(one[2] - other[2] >= 1 << 29 for one, other in zip(before, after)))
    holder.end()
    if tell.IN_SLICE:
        limited(vulkan, cuda, device, types)


def limited(vulkan, cuda, device, types):
    """The heaps add up to the slice; Vulkan's memory is CUDA's, too; what exceeds the slice is refused."""
    free, total = cuda.info()
    heaps = vulkan.heaps(device)[1]
    tell.equal("all device-local heaps together", sum(size for size, flags, *_ in heaps if flags & 1), total)
    kind = next(at for at, (flags, heap) in enumerate(types) if flags & 1 and heaps[heap][1] & 1)
    code, handle = vulkan.open(device)
    tell.equal("vkCreateDevice", code, 0)
    block = free // 8 // tell.STEP * tell.STEP
    held = []
    while code == 0 and len(held) < 16:
        code, memory = vulkan.allocate(handle, block, kind)
        if code == 0:
            held.append(memory)
    tell.equal("vkAllocateMemory beyond the slice", code, OUT_OF_DEVICE_MEMORY)
    tell.expect(7 <= len(held) <= 8, f"{len(held)} blocks of an eighth of FREE were granted")
    left = cuda.info()[0]
    tell.expect(free - left >= len(held) * block, f"CUDA's FREE fell by {free - left} only")
    release = vulkan.of_device(handle, "vkFreeMemory", c.c_void_p, c.c_uint64, c.c_void_p, restype=None)
    for memory in held:
        release(handle, memory, None)
    vulkan.of_device(handle, "vkDestroyDevice", c.c_void_p, c.c_void_p, restype=None)(handle, None)
    tell.equal("FREE afterwards", cuda.info()[0], free)


def took(vulkan, nvml, device, types, heaps):
    """Measures the memory that a device takes, and allocations in its first device-local type."""
    last, found = [nvml.used() or 0], {}

    def look(what, code):
        now = nvml.used() or 0
        found[what] = [code, tell.mib(now - last[0])]
        last[0] = now

    code, handle = vulkan.open(device)
    look("vkCreateDevice", code)
    kind = next((at for at, (flags, heap) in enumerate(types) if flags & 1 and heaps[heap][1] & 1), None)
    if code == 0 and kind is not None:
        held = []
        for size in (13 << 10, 13 << 10, 1 * MIB, 256 * MIB):
            code, memory = vulkan.allocate(handle, size, kind)
            look(f"vkAllocateMemory of {size} ({len(held)})", code)
            held.append((code, memory))
        budget = vulkan.heaps(device)[1]
        found["[budget, usage] in MiB meanwhile"] = [[tell.mib(value) for value in heap[2:]] for heap in budget]
        free = vulkan.of_device(handle, "vkFreeMemory", c.c_void_p, c.c_uint64, c.c_void_p, restype=None)
        for code, memory in held:
            if code == 0:
                free(handle, memory, None)
        look("vkFreeMemory of all", 0)
        vulkan.of_device(handle, "vkDestroyDevice", c.c_void_p, c.c_void_p, restype=None)(handle, None)
        look("vkDestroyDevice", 0)
    tell.answer("vulkan-device-cost", {"[code, MiB more by NVML]": found})


tell.main(check)
