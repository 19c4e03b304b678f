"""The driver's reports on unified memory without a slice: MemFree, page cache, NVML."""
import os
import tempfile

import tell
from driver import Nvml


def meminfo():
    with open("/proc/meminfo", encoding="ascii") as file:
        return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in file}


def state(cuda):
    free, total = cuda.info()
    host = meminfo()
    return {"CUDA free": free, "CUDA total": total, **{name: host.get(name) for name in ("MemTotal", "MemFree", "MemAvailable", "Cached")}}


def check():
    cuda = tell.started()
    if cuda.attribute(18) != 1:
        tell.skip("this GPU does not share the host's memory")
    nvml = Nvml(cuda.uuid())
    before = state(cuda)
    tell.answer("uma-free", before, before["CUDA total"] == before["MemTotal"]
                and abs(before["CUDA free"] - before["MemFree"]) < tell.GIB)
    tell.answer("uma-nvml", {"v1": nvml.memory1(), "v2": nvml.memory2(), "processes": nvml.processes(), "own pid": os.getpid(),
                             "BAR1": nvml.bar1()}, nvml.memory1()[0] == 3 and nvml.processes()[0] == 0)
    # Writes 256 MiB into the page cache, on a file system that uses it.
    with tempfile.NamedTemporaryFile(dir=os.environ["GPU_CHECK_OUT"]) as file:
        for _ in range(16):
            file.write(bytes(16 << 20))
        file.flush()
        after = state(cuda)
    tell.answer("uma-page-cache", {"before": before, "with a file of 256 MiB": after},
                None if tell.SIM else before["CUDA free"] - after["CUDA free"] > 128 * tell.MIB)


tell.main(check)
