"""Compares the ledger with NVML for one process in a slice, for each kind of memory.

NVML is queried from outside the slice.
"""
import json
import os

import tell
from driver import Cuda, Nvml

SIZE = 128 * tell.MIB
KINDS = ["linear", "pool", "array", "managed", "physical", "pinned", "context"]
# The memory that the driver takes in addition. Only a real driver is expected to take some.
TOLERANCE = 0 if tell.SIM else 64 * tell.MIB


def ledger(pid):
    """Returns a process's bytes in `gpuslice status`, by kind and in total, and its row count."""
    _, out, _ = tell.run([tell.GPUSLICE, "status", "--json"], timeout=20)
    for slice_ in json.loads(out)["slices"]:
        for device in slice_["devices"]:
            for process in device["processes"]:
                if process["pid"] == pid:
                    return process["used"], process["by_kind"]
    return 0, {}


def outside(uuid):
    """Returns the memory in use by NVML, in total and by pid, from a process without a slice."""
    code = ("import json,sys; from driver import Nvml; n=Nvml(sys.argv[1]); "
            "print(json.dumps({'memory': n.memory1(), 'processes': n.processes()}))")
    import sys
    status, out, err = tell.run(tell.in_slice() + [sys.executable, "-B", "-c", code, uuid], timeout=20)
    if status:
        raise RuntimeError(f"NVML outside the slice: {err[:200]}")
    said = json.loads(out)
    return said["memory"][1]["used"], {int(pid): used for pid, used in said["processes"][1].items()}


def check():
    holder = tell.Talker(tell.in_slice(tell.SMALL, name="kinds") + tell.python("holder.py"))
    started = holder.ask(do="start")
    if "error" in started:
        raise RuntimeError(started["error"])
    pid, uuid = started["pid"], started["uuid"]
    (used, by_kind), (card, processes) = ledger(pid), outside(uuid)
    tell.fact("pids that NVML names", sorted(processes)[:20])
    tell.fact("own pid", pid)
    tell.fact("NVML knows the process by its pid", pid in processes)
    tell.fact("after the context", {"ledger": used, "by kind": by_kind, "NVML": processes.get(pid)})
    tell.expect(used > 0, "the ledger has no context")
    table = {}
    for kind in KINDS:
        code = holder.ask(do="take", kind=kind, size=SIZE).get("code")
        (now, kinds), (card_now, processes_now) = ledger(pid), outside(uuid)
        by_process = None
        if processes.get(pid) is not None and processes_now.get(pid) is not None:
            by_process = processes_now[pid] - processes[pid]
        grew = now - used
        table[kind] = {"code": code, "asked MiB": tell.mib(SIZE), "ledger MiB": tell.mib(grew),
                       "NVML process MiB": None if by_process is None else tell.mib(by_process),
                       "NVML card MiB": tell.mib(card_now - card), "by kind": kinds}
        truth = by_process if by_process is not None else card_now - card
        if code == 0:
            off = abs(grew - truth)
            tell.expect(off <= TOLERANCE, f"{kind}: the ledger says {tell.mib(grew)} MiB, NVML {tell.mib(truth)} MiB")
            freed = holder.ask(do="give", kind=kind)
            tell.expect(freed.get("code") == 0, f"{kind}: {freed}")
            tell.equal(f"{kind}: the ledger afterwards", ledger(pid)[0], used)
        card, processes = outside(uuid)
    off = [abs(row["NVML process MiB"] - row["ledger MiB"]) for row in table.values()
           if row["code"] == 0 and row["NVML process MiB"] is not None]
    tell.answer("nvml-process-truth", table, all(one <= 64 for one in off) if off else None)
    tell.expect(sum(row["code"] == 0 for row in table.values()) >= 5, "fewer than five kinds could be allocated")
    tell.equal("the holder's end", holder.end(), 0)


tell.main(check)
