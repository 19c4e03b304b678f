"""Runs every check, even if others fail. Writes JSON and pages after each, and a table last."""
import argparse
import ctypes
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
import pages  # noqa: E402
import plan  # noqa: E402

BEGAN = time.monotonic()
GIB = 1 << 30
# Seconds that are reserved for the report, so no check may use them.
REPORT = 6
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)
STATUSES = ("pass", "fail", "error", "timeout", "skip")


def arguments():
    ask = argparse.ArgumentParser(prog="run.sh", description="gpuslice's suite for a real GPU.")
    ask.add_argument("--kit", required=True, help=argparse.SUPPRESS)
    ask.add_argument("--sim", default="", metavar="MACHINE", help="a dry run on a simulated machine (h200)")
    ask.add_argument("--out", default="gpu-results", help="where JSON and logs go (default gpu-results)")
    ask.add_argument("--only", action="append", default=[], metavar="NAME", help="this check; may be repeated")
    ask.add_argument("--minutes", type=float, default=8, help="after which the whole run ends (default 8)")
    ask.add_argument("--small", type=int, default=4, metavar="GIB", help="the small slice (default 4)")
    ask.add_argument("--list", action="store_true", help="the checks, without running them")
    return ask.parse_args()


def dies_with_parent():
    """Runs in a check's process before the check: makes it die with the runner."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def run_one(seconds, environment, words, log):
    """Runs one check in a process group of its own: (status, detail, seconds, facts, answers).

    The check writes to a file, so its output survives even if the check cannot be killed.
    """
    began = time.monotonic()
    late, code = False, None
    with open(log, "w", encoding="utf-8") as file:
        file.write(" ".join(words) + "\n\n")
        file.flush()
        try:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                                       env=environment, start_new_session=True, preexec_fn=dies_with_parent)
        except OSError as error:
            return "error", str(error), 0.0, {}, []
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            kill(process)
        if late:
            try:
                process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                # The process is stuck in the kernel. The other checks run all the same.
                pass
    with open(log, encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    results, facts, answers = read(lines, "RESULT "), {}, read(lines, "ANSWER ")
    for fact in read(lines, "FACT "):
        facts.update(fact)
    if late:
        status, detail = "timeout", f"not finished after {seconds:.0f} s"
    elif not results:
        last = [line for line in lines[2:] if line.strip()][-1:]
        status, detail = "error", f"ended with {code} and no result: {' '.join(last)[:200]}"
    elif results[-1]["skip"]:
        status, detail = "skip", results[-1]["skip"]
    elif results[-1]["wrong"]:
        status, detail = "fail", "; ".join(results[-1]["wrong"])
    else:
        status, detail = "pass", ""
    return status, detail, time.monotonic() - began, facts, answers


def read(lines, word):
    """Returns the JSON of the lines that begin with a word, without truncated lines."""
    found = []
    for line in lines:
        if line.startswith(word):
            try:
                found.append(json.loads(line[len(word):]))
            except ValueError:
                pass
    return found


def kill(process):
    """Kills the processes that a check leaves behind, so that they do not disturb the next one."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def first_line(text):
    return (text.strip().splitlines() or [""])[0][:200]


def machine(gpuslice, sim):
    """Returns the first device, or the reason why there is none: from `gpuslice devices`, else from
    the driver.
    """
    words = [gpuslice, "devices", "--json"] + (["--sim", sim] if sim else [])
    why = ""
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                              timeout=60, check=False)
        devices = json.loads(done.stdout)["devices"] if done.returncode == 0 else []
        if devices:
            return devices[0], ""
        why = first_line(done.stderr) or f"gpuslice devices ended with {done.returncode}"
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
        why = f"gpuslice devices: {first_line(str(error))}"
    if sim:
        sys.exit(f"run.sh: no simulated GPU: {why}")
    code = ("import json; from driver import Cuda; c = Cuda().start(); "
            "print(json.dumps({'name': c.name(), 'uuid': c.uuid(), 'total': c.total(), "
            "'integrated': c.attribute(18) == 1, 'by': 'ctypes'}))")
    try:
        done = subprocess.run([sys.executable, "-B", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True, timeout=60, check=False, env=dict(os.environ, PYTHONPATH=HERE))
        if done.returncode == 0:
            return json.loads(done.stdout), why
        last = done.stderr.strip().splitlines() or [""]
        return None, f"{last[-1][:200]} ({why})"
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return None, f"{first_line(str(error))} ({why})"


class Run:
    """The results so far, written after each check: an abrupt end loses at most one check."""

    def __init__(self, options, device, no_gpu, limits, out):
        self.options, self.device, self.no_gpu, self.limits, self.out = options, device, no_gpu, limits, out
        self.results, self.answers = [], []
        self.date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        self.driver = None

    def add(self, name, variant, shows, status, detail, seconds=0.0, facts=None, answers=()):
        facts = facts or {}
        self.driver = self.driver or facts.get("driver version")
        self.results.append({"check": name, "variant": variant, "shows": shows, "status": status, "detail": detail,
                             "seconds": round(seconds, 2), "facts": facts})
        self.answers += [dict(one, check=name, variant=variant) for one in answers]
        self.write()

    def counts(self):
        return {status: sum(one["status"] == status for one in self.results) for status in STATUSES}

    def write(self):
        options = self.options
        head = {"source": "simulator" if options.sim else "driver", "sim": options.sim or None, "date": self.date,
                "card": (self.device or {}).get("name"), "driver": self.driver}
        document = dict(head, format=2, device=self.device, no_gpu=self.no_gpu, limits=self.limits,
                        python=sys.version.split()[0], seconds=round(time.monotonic() - BEGAN, 1),
                        counts=self.counts(), results=self.results)
        put(os.path.join(self.out, "results.json"), json.dumps(document, indent=1) + "\n")
        lines = pages.answers(head, self.results, self.answers)
        put(os.path.join(self.out, "answers.jsonl"), "".join(json.dumps(line) + "\n" for line in lines))
        put(os.path.join(self.out, "RESULTS.md"), pages.results(lines, self.results))

    def report(self):
        """Prints the table, and returns the exit status."""
        self.write()
        counts, small = self.counts(), self.limits["small"] / GIB
        sliced = f", slices of {small:.0f} and {self.limits['large'] / GIB:.0f} GiB" if self.device else ""
        print(f"\n{(self.device or {}).get('name', 'no GPU: ' + self.no_gpu)}{sliced}"
              + (f", SIMULATED ({self.options.sim}): this says nothing of a real driver" if self.options.sim else ""))
        for one in self.results:
            print(f"{one['status']:8} {one['check']:18} {one['variant']:6} {one['seconds']:6.1f} s  {one['detail'][:150]}")
        lines = pages.answers({}, self.results, self.answers)
        answered = sum(line["state"] == "answered" for line in lines)
        print(f"{answered} of {len(lines)} questions answered: {self.out}/answers.jsonl, {self.out}/RESULTS.md")
        print(", ".join(f"{count} {status}" for status, count in counts.items())
              + f" in {time.monotonic() - BEGAN:.0f} s; {self.out}/results.json")
        if not self.device:
            return 2
        return 1 if counts["fail"] + counts["error"] + counts["timeout"] else 0


def put(path, text):
    """Writes a file as a whole, or not at all."""
    with open(path + ".part", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".part", path)


def interrupted(_signal, _frame):
    raise KeyboardInterrupt


def main():
    options = arguments()
    if options.list:
        for name, where, seconds, shows in plan.CHECKS:
            print(f"{name:18} {where:7} {seconds:4} s  {shows}")
        return 0
    unknown = set(options.only) - {check[0] for check in plan.CHECKS}
    if unknown:
        sys.exit(f"run.sh: no check is called {', '.join(sorted(unknown))} (--list names them)")
    out = os.path.abspath(options.out)
    os.makedirs(os.path.join(out, "logs"), exist_ok=True)
    gpuslice = os.path.join(options.kit, "release", "gpuslice")
    device, no_gpu = machine(gpuslice, options.sim)
    limits = {"bare": 0, "once": 0, "small": options.small * GIB, "large": 0}
    if device:
        # Nearly the whole card; the rest is for other programs. On unified memory the host uses the
        # same memory and has a reserve.
        whole = device["total"] // 2 if device["integrated"] else device["total"] - 2 * GIB
        limits["large"] = whole // GIB * GIB
    run = Run(options, device, no_gpu, limits, out)
    signal.signal(signal.SIGTERM, interrupted)
    shared = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=shared) as state:
        try:
            every_check(run, gpuslice, state)
        except KeyboardInterrupt:
            print("run.sh: ended before the last check", file=sys.stderr)
    return run.report()


def every_check(run, gpuslice, state):
    options, device, limits = run.options, run.device, run.limits
    for name, where, seconds, shows in plan.CHECKS:
        if options.only and name not in options.only:
            continue
        for variant in plan.VARIANTS[where]:
            left = options.minutes * 60 - REPORT - (time.monotonic() - BEGAN)
            if not device and (name not in plan.WITHOUT_GPU or variant != "bare"):
                run.add(name, variant, shows, "skip", f"no GPU: {run.no_gpu}")
                continue
            if left < 4:
                run.add(name, variant, shows, "skip", "no time was left")
                continue
            environment = dict(os.environ, GPU_CHECK_VARIANT=variant, GPU_CHECK_LIMIT=str(limits[variant]),
                               GPU_CHECK_SMALL=str(limits["small"]), GPU_CHECK_LARGE=str(limits["large"]),
                               GPU_CHECK_SIM=options.sim, GPU_CHECK_GPUSLICE=gpuslice, GPU_CHECK_KIT=options.kit,
                               GPU_CHECK_OUT=run.out, GPU_CHECK_INTEGRATED="1" if device and device["integrated"] else "0",
                               CUDA_DEVICE_ORDER="PCI_BUS_ID", PYTHONDONTWRITEBYTECODE="1",
                               # The runs' learned headroom must not reach the user's own state
                               # folder.
                               PYTHONUNBUFFERED="1", XDG_STATE_HOME=os.path.join(run.out, "state"),
                               PYTHONPATH=os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH")])))
            environment.setdefault("CUDA_VISIBLE_DEVICES", "0")
            if options.sim:
                environment["GPUSLICE_SIM_STATE"] = state
            words = [sys.executable, "-B", os.path.join(HERE, "checks", name + ".py")]
            # Without a slice a real driver is queried without gpuslice, so that its answers do not
            # depend on ours.
            if where != plan.ONCE and (limits[variant] or options.sim):
                memory = ["--memory", str(limits[variant])] if limits[variant] else ["--bare"]
                sim = ["--sim", options.sim] if options.sim else []
                words = [gpuslice, "run", *sim, *memory, "--", *words]
            log = os.path.join(run.out, "logs", f"{name}.{variant}.txt")
            ended = run_one(min(seconds, left), environment, words, log)
            run.add(name, variant, shows, *ended)
            print(f"{ended[0]:8} {name} {variant} ({ended[2]:.1f} s)", flush=True)


if __name__ == "__main__":
    sys.exit(main())
