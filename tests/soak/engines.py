"""Runs engines in slices of one simulated card for SECONDS, and checks that nothing grows.

One engine serves all the time. In each of its rounds a worker of it is killed while it holds memory.
Beside it, short runs start and end in slices of their own. The script samples, and fails if one of
these has grown between the first quarter and the last:

- resident memory and descriptors of the engine, and of its slice's watcher
- processes in the slice's ledger, and bytes that they hold
- files in the folder of runs

Usage: engines.py SECONDS TARGET (the build output; make must have run)
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

seconds, target = float(sys.argv[1]), Path(sys.argv[2]).resolve()
gpuslice = str(target / "release/gpuslice")
engine = str(Path(__file__).resolve().parent / "engine.py")
# Python and malloc keep what they have once used. That is reached within the first quarter.
SLACK = {"resident": 1 << 20}


def resident(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) << 10


def watchers(folder):
    """Returns the processes of gpuslice that have a file of this run's folder open."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_watcher = (process / "comm").read_text().startswith("gpuslice")
            links = [os.readlink(link) for link in (process / "fd").iterdir()] if is_watcher else []
        except OSError:
            continue
        if any(link.startswith(folder) for link in links):
            found.append(int(process.name))
    return found


def start(folder, words):
    environment = os.environ | {"XDG_RUNTIME_DIR": folder, "XDG_STATE_HOME": folder + "/state", "GPUSLICE_SIM_STATE": folder + "/machine"}
    pipe = subprocess.PIPE
    return subprocess.Popen([gpuslice, *words], env=environment, stdin=pipe, stdout=pipe, text=True)


def status(folder):
    """Returns the engine's slice, as `gpuslice status` reports it."""
    slices = json.loads(start(folder, ["status", "--json"]).communicate()[0])["slices"]
    return next(one for one in slices if one["name"] == "soak")


def sample(folder, pids):
    devices = status(folder)["devices"]
    return {
        **{f"resident of {name}": resident(pid) for name, pid in pids.items()},
        **{f"descriptors of {name}": len(os.listdir(f"/proc/{pid}/fd")) for name, pid in pids.items()},
        "held bytes": sum(device["used"] for device in devices),
        "processes in the ledger": sum(len(device["processes"]) for device in devices),
        "files of runs": sum(1 for name in Path(folder).rglob("*") if "/state/" not in str(name)),
    }


def soak(folder):
    os.mkdir(folder + "/machine")
    words = ["run", "--sim", "rtx3090", "--name", "soak", "--memory", "12GiB", "--", sys.executable, engine, "serve"]
    served = start(folder, words)
    try:
        rounds, shorts, samples = 0, 0, []
        end, next_sample = time.monotonic() + seconds, 0.0
        pids = None
        while time.monotonic() < end:
            # Each round of the engine prints a line after it has freed everything.
            if not (line := served.stdout.readline()):
                sys.exit(f"the engine has ended after {rounds} rounds")
            rounds = int(line.split()[0])
            short = start(folder, ["run", "--sim", "rtx3090", "--memory", "1GiB", "--", sys.executable, "-c", "pass"])
            short.communicate()
            if short.returncode:
                sys.exit(f"a short run fails: {short.returncode}")
            shorts += 1
            if time.monotonic() >= next_sample:
                next_sample = time.monotonic() + seconds / 80
                if not pids:
                    found = watchers(os.path.dirname(status(folder)["file"]))
                    pids = {"the engine": served.pid} | {f"watcher {at}": pid for at, pid in enumerate(found)}
                samples.append(sample(folder, pids))
        served.stdin.close()
        served.stdout.read()
        if served.wait(60):
            sys.exit(f"the engine ends with {served.returncode}")
    finally:
        served.kill()
        served.wait()
    return rounds, shorts, samples


def grown(samples):
    """Returns what is larger at its least in the last quarter than at its most in the first."""
    quarter = max(1, len(samples) // 4)
    for name in samples[0]:
        early, late = [s[name] for s in samples[:quarter]], [s[name] for s in samples[-quarter:]]
        if min(late) > max(early) + SLACK.get(name.split(" ")[0], 0):
            yield f"{name}: {min(early)} to {max(early)}, and {min(late)} to {max(late)} at the end"


with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
    rounds, shorts, samples = soak(folder)
    waited = time.monotonic() + 30
    left = lambda: [name for name in os.listdir(folder) if name.startswith("gpuslice-")]
    while left() and time.monotonic() < waited:
        time.sleep(0.1)
    if left():
        sys.exit(f"folders of runs are left: {left()}")
if len(samples) < 8:
    sys.exit(f"only {len(samples)} samples in {seconds:.0f} s: give it more time")
if lines := list(grown(samples)):
    sys.exit("grown:\n  " + "\n  ".join(lines))
print(f"engines: {rounds} rounds with a killed worker, {shorts} short runs in {seconds:.0f} s; nothing has grown:")
for name, value in samples[-1].items():
    print(f"  {name}: {samples[len(samples) // 4][name]} after a quarter, {value} at the end")
