"""When managed memory takes device memory. The check never takes more than is free."""
import ctypes as c

import tell
from driver import Nvml

SIZE = 256 * tell.MIB


class Location(c.Structure):
    _fields_ = [("type", c.c_int), ("id", c.c_int)]


def prefetch(cuda, at, device):
    """Calls cuMemPrefetchAsync of CUDA 8, else that of 12.2, which takes a location."""
    code = cuda.call("cuMemPrefetchAsync", at, c.c_size_t(SIZE), device, None)
    if code:
        place = Location(1, device) if device >= 0 else Location(2, 0)
        return [code, cuda.call("cuMemPrefetchAsync_v2", at, c.c_size_t(SIZE), place, 0, None)]
    return [code]


def check():
    cuda = tell.started()
    nvml = Nvml(cuda.uuid())
    if cuda.info()[0] < 4 * SIZE:
        tell.skip("less than 1 GiB is free")
    start, used, found = cuda.info()[0], nvml.used() or 0, {}

    def look(what, codes):
        cuda.synchronize()
        found[what] = [codes, tell.mib(start - cuda.info()[0]), tell.mib((nvml.used() or 0) - used)]

    at = c.c_uint64()
    code = cuda.call("cuMemAllocManaged", c.byref(at), c.c_size_t(SIZE), 1)
    look("allocated", code)
    if code:
        tell.answer("managed", found)
        return
    c.memset(at.value, 1, 8 << 20)
    look("8 MiB touched by the host", 0)
    look("set on the device", cuda.call("cuMemsetD8_v2", at, c.c_ubyte(1), c.c_size_t(SIZE)))
    look("prefetched to the host", prefetch(cuda, at, -1))
    look("prefetched to the device", prefetch(cuda, at, cuda.device))
    look("freed", cuda.call("cuMemFree_v2", at))
    places = [c.c_uint64() for _ in range(8)]
    codes = [cuda.call("cuMemAllocManaged", c.byref(place), c.c_size_t(4096), 1) for place in places]
    steps = {place.value // (2 * tell.MIB) for place in places}
    tell.answer("managed-small", {"codes": codes, "addresses": [hex(place.value) for place in places]}, len(steps) < 3)
    for place in places:
        cuda.call("cuMemFree_v2", place)
    tell.answer("managed", {"[codes, MiB by CUDA's free, by NVML's used]": found},
                found["allocated"][1] == 0 and found["prefetched to the device"][1] >= tell.mib(SIZE))


tell.main(check)
