"""The rules for unified memory, forced on where the memory is the card's own: by a slice file that says so."""
import json
import os
import tempfile

import tell


def check():
    _, out, _ = tell.run([tell.GPUSLICE, "devices", "--json", *(["--sim", tell.SIM] if tell.SIM else [])])
    uuid = json.loads(out)["devices"][0]["uuid"]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = os.path.join(folder, "slice.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"version": 1, "name": "unified", "ledger": os.path.join(folder, "ledger"), "reserve": 1 << 30,
                       "devices": [{"uuid": uuid, "memory": tell.SMALL, "integrated": True}]}, file)
        code = ("import json; from driver import Cuda, Nvml; c=Cuda().start(); n=Nvml(c.uuid()); code, at=c.alloc(1<<28);"
                "print(json.dumps({'cuda': c.info(), 'nvml': n.memory1(), 'nvml2': n.memory2(), 'alloc': code,"
                " 'over': c.alloc(1<<40)[0]}))")
        import sys
        status, out, err = tell.run(tell.in_slice(config=path) + [sys.executable, "-B", "-c", code])
        tell.equal("the exit status", status, 0)
        if status:
            tell.expect(False, err[-300:])
            return
        said = json.loads(out)
    tell.fact("answers", said)
    free, total = said["cuda"]
    tell.equal("total", total, tell.SMALL)
    tell.equal("NVML", (said["nvml"][0], said["nvml"][1]["total"], said["nvml"][1]["free"]), (0, total, free))
    tell.equal("an allocation that fits, one that does not", (said["alloc"], said["over"]), (0, 2))


tell.main(check)
