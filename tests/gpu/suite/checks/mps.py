"""MPS with a server of its own: the pids that NVML lists, and whether a slice holds.

The check ends its server.
"""
import os
import shutil
import tempfile
import time

import tell
from driver import Nvml


def check():
    control = shutil.which("nvidia-cuda-mps-control")
    if tell.SIM or not control:
        tell.skip("no nvidia-cuda-mps-control here" if not tell.SIM else "the simulated driver has no MPS")
    if os.environ.get("CUDA_MPS_PIPE_DIRECTORY"):
        tell.skip("an MPS server of somebody else's is in use")
    with tempfile.TemporaryDirectory() as folder:
        place = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        status, out, err = tell.run([control, "-d"], timeout=8, env=place)
        if status:
            tell.skip(f"the server does not start: {(out + err).strip()[:200]}")
        try:
            asked(place)
        finally:
            stop = f"echo quit | '{control}'"
            tell.fact("the server's end", tell.run(["sh", "-c", stop], timeout=8, env=place)[0])
            time.sleep(0.5)  # the server ends after its controller, without a message


def asked(place):
    holders = {}
    for what, limit in (("bare", 0), ("slice", tell.SMALL)):
        holder = tell.Talker(tell.in_slice(limit) + tell.python("holder.py"), env=place)
        said = holder.ask(do="start")
        if "error" in said:
            tell.answer("mps", {what: said["error"]})
            return
        taken = holder.ask(do="take", kind="linear", size=256 * tell.MIB)
        holders[what] = (holder, said, taken, holder.ask(do="info")["info"])
    nvml = Nvml(holders["bare"][1]["uuid"])
    found = {what: {"pid": said["pid"], "at the start": said["info"], "allocation": taken, "after it": after}
             for what, (_, said, taken, after) in holders.items()}
    found["NVML's list"] = nvml.processes()
    over = holders["slice"][0].ask(do="take", kind="linear", size=tell.SMALL)
    found["as much as the slice, besides"] = over
    tell.answer("mps", found, found["slice"]["at the start"][1] == tell.SMALL and over.get("code") == 2)
    for holder, *_ in holders.values():
        holder.end()


tell.main(check)
