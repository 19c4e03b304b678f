"""Functions that all checks share: expectations, results, and programs in slices.

A check reports its results in lines that the runner reads. It prints `FACT {...}` and
`ANSWER {...}` at once, so that they survive a later crash or hang, and `RESULT {...}` at its end.
This module needs only Python 3.8.
"""
import atexit
import json
import os
import signal
import subprocess
import sys
import traceback

MIB = 1 << 20
GIB = 1 << 30
# The granularity of the driver's large allocations.
STEP = 2 * MIB

VARIANT = os.environ.get("GPU_CHECK_VARIANT", "bare")
LIMIT = int(os.environ.get("GPU_CHECK_LIMIT", "0"))
SIM = os.environ.get("GPU_CHECK_SIM", "")
GPUSLICE = os.environ.get("GPU_CHECK_GPUSLICE", "gpuslice")
KIT = os.environ.get("GPU_CHECK_KIT", "")
SMALL = int(os.environ.get("GPU_CHECK_SMALL", str(4 * GIB)))
HERE = os.path.dirname(os.path.abspath(__file__))
IN_SLICE = LIMIT > 0
# Removes the folder of the checks: an import of a library must not find a check of that name.
sys.path[:] = [path for path in sys.path if not path.endswith("/suite/checks")]

_wrong, _done = [], []


def _say(word, value):
    print(word + " " + json.dumps(value, default=str), flush=True)


def fact(name, value):
    """Records a fact that a check found."""
    _say("FACT", {name: value})


def answer(question, value, as_expected=None):
    """Answers a question of `questions.py`, and says whether it is as expected, if that is known.
    """
    _say("ANSWER", {"question": question, "answer": value, "as_expected": as_expected})


def expect(is_so, what):
    """Records `what` as wrong unless `is_so` is true. The check goes on."""
    if not is_so:
        _wrong.append(what)
        print(f"WRONG {what}", flush=True)
    return is_so


def equal(what, is_, should):
    """Expects a value to equal another."""
    return expect(is_ == should, f"{what} is {is_}, expected {should}")


def _end(skip=None):
    if not _done:
        _done.append(True)
        _say("RESULT", {"skip": skip, "wrong": _wrong})


def skip(why):
    """Ends the check, because something that it needs is missing."""
    _end(skip=why)
    # Skips the interpreter's shutdown, which could crash in a library that was only half loaded.
    os._exit(0)


def started():
    """Returns the driver with its primary context. Skips the check if there is no GPU."""
    from driver import Cuda, DriverError
    try:
        return Cuda().start()
    except (OSError, DriverError) as error:
        return skip(f"no GPU: {error}")


def need(module):
    """Imports a module, or skips the check."""
    try:
        return __import__(module)
    except Exception as error:  # noqa: BLE001: a broken installation raises anything
        skip(f"{module}: {type(error).__name__}: {error}".splitlines()[0][:200])


def main(function):
    """Runs a check. Any exception makes it fail."""
    try:
        function()
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001
        traceback.print_exc()
        _wrong.append(f"{type(error).__name__}: {error}".splitlines()[0][:300])
    _end()
    sys.stdout.flush()
    os._exit(0)


def in_slice(limit=0, config=None, name=None, more=()):
    """Returns the `gpuslice run` words that precede a command: a bare run without a limit."""
    if not SIM and not limit and not config:
        return []
    words = [GPUSLICE, "run"]
    if SIM:
        words += ["--sim", SIM]
    if config:
        words += ["--config", config]
    elif limit:
        words += ["--memory", str(limit)]
    else:
        words += ["--bare"]
    if name and (limit or config) and not config:
        words += ["--name", name]
    return words + list(more) + ["--"]


def run(words, timeout=60, env=None):
    """Runs a command to its end: (exit status, standard output, standard error)."""
    environment = dict(os.environ, **(env or {}))
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True, timeout=timeout, env=environment, errors="replace", check=False)
    except OSError as error:
        return 127, "", f"{words[0]}: {error.strerror}"
    except subprocess.TimeoutExpired as late:
        text = late.stdout.decode(errors="replace") if late.stdout else ""
        return 124, text, f"{words[0]}: not finished after {timeout} s"
    return done.returncode, done.stdout, done.stderr


def python(script, *arguments):
    """Returns the command that runs one of the suite's scripts."""
    return [sys.executable, "-B", os.path.join(HERE, script), *map(str, arguments)]


class Talker:
    """A process that answers each line of JSON with a line of JSON."""

    _all = []

    def __init__(self, words, env=None):
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=dict(os.environ, **(env or {})))
        Talker._all.append(self)

    def ask(self, **words):
        """Sends one question and returns the answer."""
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{words}: the process ended ({self.process.wait()})")
        return json.loads(line)

    def kill(self):
        """Sends SIGKILL, and returns when the process is gone."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=30)

    def end(self):
        """Lets the process end, and returns its exit status."""
        self.process.stdin.close()
        return self.process.wait(timeout=30)

    @staticmethod
    def kill_all():
        for talker in Talker._all:
            talker.process.kill()


atexit.register(Talker.kill_all)


def mib(count):
    """Converts bytes to MiB for display."""
    return round(count / MIB, 1)
