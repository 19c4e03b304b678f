#!/usr/bin/env python3
"""Runs the whole test suite repeatedly, and counts how often each test fails.

Usage: tests/flaky.py QUIET BUSY [CARGO TEST ARGUMENTS...]
First come QUIET rounds on the machine as it is, then BUSY rounds beside four busy loops.
Prints a table of the failed tests. The exit status is 1 if there is one.
A round ends after FLAKY_MINUTES (90). The tests that still run then count as hung.
Touches: cargo, target/flaky (each round's output).
"""

import collections
import os
import pathlib
import re
import signal
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
LOGS = TOP / os.environ.get("TARGET", "target") / "flaky"
MINUTES = float(os.environ.get("FLAKY_MINUTES", "90"))
LOOPS = 4
# Two for each processor: races show sooner than with `make test`, and a round takes less time.
os.environ.setdefault("RUST_TEST_THREADS", str(2 * os.cpu_count()))

RUNNING = re.compile(r"^\s+(?:Running (?:unittests )?(\S+) \(.*/([^/]+)-[0-9a-f]{16}\)|Doc-tests (\S+))")
RESULT = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)")
LONG = re.compile(r"^test (\S+) has been running for over")
DIED = re.compile(r"^\s*process didn't exit successfully: .* \((signal: .*)\)$")


def failures(output, timed_out):
    """Returns the tests that failed in one round's output, by binary and name, each with its end.
    """
    binary, long, failed = "cargo", set(), {}
    for line in output.splitlines():
        if running := RUNNING.match(line):
            long.clear()
            binary = running[2] or running[3]
            # A binary called `main` is named after its package's folder instead.
            binary = running[1] if binary in ("main", "lib") else binary
        elif result := RESULT.match(line):
            long.discard(result[1])
            if result[2] == "FAILED":
                failed[f"{binary} {result[1]}"] = "failed"
        elif still := LONG.match(line):
            long.add(still[1])
        elif died := DIED.match(line):
            failed[f"{binary} (the whole binary)"] = died[1]
    if timed_out:
        for name in long or {"(nothing had run for a minute)"}:
            failed[f"{binary} {name}"] = "hung"
    return failed


def round_of(name, arguments):
    """Runs the suite once."""
    log = LOGS / f"{name}.log"
    command = [os.environ.get("CARGO", "cargo"), "test", "--locked", "--no-fail-fast", *arguments]
    with log.open("w") as out:
        suite = subprocess.Popen(
            command, cwd=TOP, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
        )
        try:
            status, timed_out = suite.wait(MINUTES * 60), False
        except subprocess.TimeoutExpired:
            os.killpg(suite.pid, signal.SIGKILL)
            status, timed_out = suite.wait(), True
        except BaseException:
            # This program is being stopped: its suite would go on by itself.
            os.killpg(suite.pid, signal.SIGKILL)
            raise
    failed = failures(log.read_text(errors="replace"), timed_out)
    if status and not failed:
        sys.exit(f"flaky: cargo failed, and no test did: see {log}")
    said = ", ".join(f"{test} ({how})" for test, how in sorted(failed.items()))
    print(f"{name}: {said or 'ok'}", flush=True)
    return failed


def main(quiet, busy, arguments):
    """Runs all rounds and prints the table."""
    LOGS.mkdir(parents=True, exist_ok=True)
    for old in LOGS.glob("*-*.log"):
        old.unlink()
    counts = {"quiet": collections.Counter(), "busy": collections.Counter()}
    for turn in range(quiet):
        counts["quiet"].update(round_of(f"quiet-{turn + 1}", arguments).keys())
    loops = []
    try:
        loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(LOOPS if busy else 0)]
        for turn in range(busy):
            counts["busy"].update(round_of(f"busy-{turn + 1}", arguments).keys())
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    failed = sorted(set(counts["quiet"]) | set(counts["busy"]))
    if not failed:
        print(f"no test failed in {quiet} quiet and {busy} busy rounds")
        return 0
    print(f"\n{'failed of ' + str(quiet):>13} {'of ' + str(busy) + ' busy':>10}  test")
    for test in failed:
        print(f"{counts['quiet'][test]:>13} {counts['busy'][test]:>10}  {test}")
    return 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
