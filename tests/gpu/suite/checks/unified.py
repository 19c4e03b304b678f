"""The rules for unified memory on a card with memory of its own, forced by a slice file."""
import json
import os
import sys
import tempfile

import tell

ASK = """
import json, os
from driver import Cuda, Nvml
cuda = Cuda().start()
nvml = Nvml(cuda.uuid())
code, _ = cuda.alloc(1 << 28)
with open("/proc/meminfo", encoding="ascii") as file:
    meminfo = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in file}
print(json.dumps({"cuda": cuda.info(), "nvml": nvml.memory1(), "nvml2": nvml.memory2(), "alloc": code,
                  "over": cuda.alloc(1 << 40)[0], "MemTotal": meminfo["MemTotal"],
                  "MemAvailable": meminfo["MemAvailable"],
                  "sysconf": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")}))
"""


def check():
    _, out, _ = tell.run([tell.GPUSLICE, "devices", "--json", *(["--sim", tell.SIM] if tell.SIM else [])])
    uuid = json.loads(out)["devices"][0]["device"]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = os.path.join(folder, "slice.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"version": 1, "name": "unified", "ledger": os.path.join(folder, "ledger"), "reserve": 1 << 30,
                       "devices": [{"uuid": uuid, "memory": tell.SMALL, "integrated": True}]}, file)
        status, out, err = tell.run(tell.in_slice(config=path) + [sys.executable, "-B", "-c", ASK])
        tell.equal("the exit status", status, 0)
        if status:
            tell.expect(False, err[-300:])
            return
        said = json.loads(out)
    tell.fact("answers", said)
    free, total = said["cuda"]
    tell.equal("total", total, tell.SMALL)
    tell.equal("NVML", (said["nvml"][0], said["nvml"][1]["total"], said["nvml"][1]["free"]), (0, total, free))
    tell.equal("MemTotal, and sysconf's", (said["MemTotal"], said["sysconf"]), (total, total))
    tell.expect(said["MemAvailable"] <= total - (1 << 28), f"MemAvailable is {said['MemAvailable']} of {total}")
    tell.equal("an allocation that fits, one that does not", (said["alloc"], said["over"]), (0, 2))


tell.main(check)
