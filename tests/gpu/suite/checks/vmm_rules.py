"""Physical memory: its granularity, when it counts as used, and the files of its descriptors."""
import ctypes as c
import os

import tell

SIZE = 256 * tell.MIB


def granularities(cuda):
    found, value = {}, c.c_size_t()
    for shareable in (False, True):
        for flag, what in ((0, "minimum"), (1, "recommended")):
            code = cuda.call("cuMemGetAllocationGranularity", c.byref(value), c.byref(cuda.prop(shareable)), flag)
            found[f"{what}{', shareable' if shareable else ''}"] = [code, value.value]
    found["cuMemCreate of granularity + 1"] = cuda.create(found["minimum"][1] + 1)[0]
    code, handle = cuda.create(found["minimum"][1])
    if code == 0:
        cuda.must("cuMemRelease", c.c_uint64(handle))
    found["cuMemCreate of one granule"] = code
    return found, found["minimum"] == [0, 2 * tell.MIB] and found["recommended"] == [0, 2 * tell.MIB]


def counts(cuda):
    """Returns the memory in use after each step, in MiB since the start, by CUDA's free."""
    start, found = cuda.info()[0], {}

    def look(what):
        found[what] = tell.mib(start - cuda.info()[0])

    _, handle = cuda.create(SIZE)
    look("created")
    at = cuda.map(handle, SIZE)
    look("mapped")
    cuda.must("cuMemRelease", c.c_uint64(handle))
    look("handle released, still mapped")
    cuda.unmap(at, SIZE)
    look("unmapped")
    return found, list(found.values()) == [tell.mib(SIZE)] * 3 + [0.0]


def descriptors(cuda):
    """Returns the files behind the descriptors of two objects, one of which is exported twice."""
    found, handles, numbers = [], [], []
    for _ in range(2):
        code, handle = cuda.create(2 * tell.MIB, shareable=True)
        if code:
            return {"cuMemCreate of shareable memory": code}, None
        handles.append(handle)
    for handle in (handles[0], handles[0], handles[1]):
        number = c.c_int()
        code = cuda.call("cuMemExportToShareableHandle", c.byref(number), c.c_uint64(handle), 1, c.c_uint64(0))
        if code:
            return {"cuMemExportToShareableHandle": code}, None
        numbers.append(number.value)
        stat = os.fstat(number.value)
        found.append({"file": os.readlink(f"/proc/self/fd/{number.value}"), "device": stat.st_dev, "inode": stat.st_ino,
                      "rdev": stat.st_rdev, "mode": oct(stat.st_mode), "size": stat.st_size})
    again = c.c_uint64()
    code = cuda.call("cuMemImportFromShareableHandle", c.byref(again), c.c_void_p(numbers[0]), 1)
    inodes = [(one["device"], one["inode"]) for one in found]
    said = {"descriptors: the first object twice, the second once": found, "import in the exporter": code,
            "it gives the exporter's own handle": again.value == handles[0],
            "inodes that differ": len(set(inodes))}
    for number in numbers:
        os.close(number)
    return said, None


def descriptor_keeps(cuda):
    """Returns the memory in use while only an exported descriptor refers to it, and after its close."""
    start, found = cuda.info()[0], {}

    def look(what):
        found[what] = tell.mib(start - cuda.info()[0])

    code, handle = cuda.create(SIZE, shareable=True)
    if code:
        return {"cuMemCreate of shareable memory": code}, None
    number = c.c_int()
    code = cuda.call("cuMemExportToShareableHandle", c.byref(number), c.c_uint64(handle), 1, c.c_uint64(0))
    look("created, exported")
    cuda.must("cuMemRelease", c.c_uint64(handle))
    look("handle released, descriptor open")
    if code:
        return {"cuMemExportToShareableHandle": code}, None
    os.close(number.value)
    look("descriptor closed")
    return found, None


def check():
    cuda = tell.started()
    tell.answer("vmm-granularity", *granularities(cuda))
    tell.answer("vmm-counts", *counts(cuda))
    tell.answer("vmm-descriptors", *descriptors(cuda))
    tell.answer("vmm-descriptor-keeps", *descriptor_keeps(cuda))


tell.main(check)
