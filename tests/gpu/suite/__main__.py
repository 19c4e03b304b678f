"""Runs every check, whatever becomes of the others; writes JSON, prints the table last."""
import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import plan  # noqa: E402

GIB = 1 << 30
VARIANTS = {plan.EACH: ["bare", "small", "large"], plan.BARE: ["bare"], plan.ONCE: ["once"],
            plan.SLICES: ["small", "large"]}


def arguments():
    ask = argparse.ArgumentParser(prog="run.sh", description="gpuslice's suite for a real GPU.")
    ask.add_argument("--kit", required=True, help=argparse.SUPPRESS)
    ask.add_argument("--sim", default="", metavar="MACHINE", help="a dry run on a simulated machine (h200)")
    ask.add_argument("--out", default="gpu-results", help="where JSON and logs go (default gpu-results)")
    ask.add_argument("--only", action="append", default=[], metavar="NAME", help="this check; may be repeated")
    ask.add_argument("--minutes", type=float, default=8, help="after which no further check starts (default 8)")
    ask.add_argument("--small", type=int, default=4, metavar="GIB", help="the small slice (default 4)")
    ask.add_argument("--list", action="store_true", help="the checks, without running them")
    return ask.parse_args()


def run_one(name, variant, seconds, environment, words, log):
    """One check in a process group of its own: (status, detail, seconds, facts)."""
    began = time.monotonic()
    status, detail, facts = "error", "", {}
    try:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, errors="replace", env=environment, start_new_session=True)
    except OSError as error:
        return "error", str(error), 0.0, {}
    late = False
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        late = True
        kill(process)
        try:
            said, _ = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            said = ""
    kill(process)
    with open(log, "w", encoding="utf-8") as file:
        file.write(" ".join(words) + "\n\n" + (said or ""))
    results = [line[7:] for line in (said or "").splitlines() if line.startswith("RESULT ")]
    if late:
        status, detail = "timeout", f"not finished after {seconds} s"
    elif not results:
        last = [line for line in (said or "").splitlines() if line.strip()][-1:]
        status, detail = "error", f"ended with {process.returncode} and no result: {' '.join(last)[:200]}"
    else:
        result = json.loads(results[-1])
        facts = result["facts"]
        if result["skip"]:
            status, detail = "skip", result["skip"]
        elif result["wrong"]:
            status, detail = "fail", "; ".join(result["wrong"])
        else:
            status = "pass"
    return status, detail, time.monotonic() - began, facts


def kill(process):
    """What a check leaves behind may not disturb the next one."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def machine(gpuslice, sim):
    """The first device, by `gpuslice devices`."""
    words = [gpuslice, "devices", "--json"] + (["--sim", sim] if sim else [])
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        sys.exit(f"run.sh: no GPU to test: {done.stderr.strip() or done.returncode}")
    devices = json.loads(done.stdout)["devices"]
    return devices[0] if devices else sys.exit("run.sh: no GPU to test")


def main():
    options = arguments()
    if options.list:
        for name, where, seconds, shows in plan.CHECKS:
            print(f"{name:18} {where:7} {seconds:4} s  {shows}")
        return 0
    out = os.path.abspath(options.out)
    os.makedirs(os.path.join(out, "logs"), exist_ok=True)
    gpuslice = os.path.join(options.kit, "release", "gpuslice")
    device = machine(gpuslice, options.sim)
    limits = {"bare": 0, "once": 0, "small": options.small * GIB}
    # Nearly the whole card: what is left is for what other programs hold.
    limits["large"] = (device["total"] - 2 * GIB) // GIB * GIB
    if device["integrated"]:
        # The host lives there as well, and is promised its reserve.
        limits["large"] = device["total"] // 2 // GIB * GIB
    state = tempfile.TemporaryDirectory(dir="/dev/shm")
    began, results = time.monotonic(), []
    unknown = set(options.only) - {check[0] for check in plan.CHECKS}
    if unknown:
        sys.exit(f"run.sh: no check is called {', '.join(sorted(unknown))} (--list names them)")
    for name, where, seconds, shows in plan.CHECKS:
        if options.only and name not in options.only:
            continue
        for variant in VARIANTS[where]:
            left = options.minutes * 60 - (time.monotonic() - began)
            if left < 5:
                results.append(result(name, variant, shows, "skip", "no time was left", 0.0, {}))
                continue
            environment = dict(os.environ, GPU_CHECK_VARIANT=variant, GPU_CHECK_LIMIT=str(limits[variant]),
                               GPU_CHECK_SMALL=str(limits["small"]), GPU_CHECK_LARGE=str(limits["large"]),
                               GPU_CHECK_SIM=options.sim, GPU_CHECK_GPUSLICE=gpuslice, GPU_CHECK_KIT=options.kit,
                               GPU_CHECK_OUT=out, GPU_CHECK_INTEGRATED="1" if device["integrated"] else "0",
                               CUDA_DEVICE_ORDER="PCI_BUS_ID", PYTHONDONTWRITEBYTECODE="1",
                               # What its slices are short of is nothing for the user's own to learn.
                               PYTHONUNBUFFERED="1", XDG_STATE_HOME=os.path.join(out, "state"),
                               PYTHONPATH=os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH")])))
            environment.setdefault("CUDA_VISIBLE_DEVICES", "0")
            if options.sim:
                environment["GPUSLICE_SIM_STATE"] = state.name
            words = [sys.executable, "-B", os.path.join(HERE, "checks", name + ".py")]
            if where != plan.ONCE:
                memory = ["--memory", str(limits[variant])] if limits[variant] else ["--bare"]
                sim = ["--sim", options.sim] if options.sim else []
                words = [gpuslice, "run", *sim, *memory, "--", *words]
            log = os.path.join(out, "logs", f"{name}.{variant}.txt")
            ended = run_one(name, variant, min(seconds, left), environment, words, log)
            results.append(result(name, variant, shows, *ended))
            print(f"{results[-1]['status']:8} {name} {variant} ({ended[2]:.1f} s)", flush=True)
    return report(options, device, limits, results, time.monotonic() - began, out)


def result(name, variant, shows, status, detail, seconds, facts):
    return {"check": name, "variant": variant, "shows": shows, "status": status, "detail": detail,
            "seconds": round(seconds, 2), "facts": facts}


def report(options, device, limits, results, seconds, out):
    counts = {status: sum(one["status"] == status for one in results)
              for status in ("pass", "fail", "error", "timeout", "skip")}
    document = {"format": 1, "source": "simulator" if options.sim else "driver", "sim": options.sim or None,
                "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
                "device": device, "limits": limits, "python": sys.version.split()[0], "seconds": round(seconds, 1),
                "counts": counts, "results": results}
    with open(os.path.join(out, "results.json"), "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.write("\n")
    print(f"\n{device.get('name', '?')}, slices of {limits['small'] / GIB:.0f} and {limits['large'] / GIB:.0f} GiB"
          + (f", SIMULATED ({options.sim}): this says nothing of a real driver" if options.sim else ""))
    for one in results:
        print(f"{one['status']:8} {one['check']:18} {one['variant']:6} {one['seconds']:6.1f} s  {one['detail'][:150]}")
    print(", ".join(f"{count} {status}" for status, count in counts.items()) + f" in {seconds:.0f} s; {out}/results.json")
    return 1 if counts["fail"] + counts["error"] + counts["timeout"] else 0


if __name__ == "__main__":
    sys.exit(main())
