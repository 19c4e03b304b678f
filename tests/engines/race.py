"""Three engines start at once on one unified-memory machine (vLLM #35929).

A simulated GB10 of 121.69 GiB. Each engine is given a share of the whole machine (0.35, 0.30,
0.20), has weights of 4.25 GiB, a profile run that peaks 1.70 GiB higher, and 0.9 GiB of context
and libraries before its baseline. Right is what it would get alone: its share less 5.95 GiB.
Every start is a real process that allocates through the driver; the steps of the three are
shuffled, another way each time.
"""
import argparse
import json
import math
import random
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from machine import GIB, Machine

MACHINE = 127600748 << 10
SHARES = (0.35, 0.30, 0.20)
WEIGHTS, PEAK, CONTEXT = 4.25, 1.70, 0.9
PARTS = 4
NEAR = 0.05
# With `total: slice` the same utilisation serves all three: as much of a slice as leaves room
# for the context of the smallest.
OF_A_SLICE = 0.964

STEPS = (
    [("context", CONTEXT), ("baseline",)]
    + [("load", WEIGHTS / PARTS)] * PARTS
    + [("enter",), ("peak", PEAK), ("settle",), ("leave",), ("available",), ("cache",)]
)


def right(share):
    """What an engine would get alone, in GiB."""
    return share * MACHINE / GIB - WEIGHTS - PEAK


def mib(amount):
    """The next whole MiB, and one granule: the driver gives the libraries whole ones."""
    return f"{math.ceil(amount / (1 << 20)) + 2}MiB"


def settings():
    """What is compared: its name, and for each engine its options and its utilisation."""
    bare = [(["--bare"], share) for share in SHARES]
    whole = [
        (["--memory", mib(share * MACHINE + CONTEXT * GIB), "--total", "device"], share)
        for share in SHARES
    ]
    slices = [(["--memory", mib(share * MACHINE / OF_A_SLICE)], OF_A_SLICE) for share in SHARES]
    return {"bare": bare, "total: device": whole, "total: slice": slices}


def interleave(generator):
    """The engines' steps in one order: whose turn it is."""
    turns = [engine for engine in range(len(SHARES)) for _ in STEPS]
    generator.shuffle(turns)
    return turns


def start_together(machine, engines, utilizations, arithmetic, generator):
    """One interleaving. For each engine: the size of its cache, and why it did not start."""
    machine.tool("reset")
    for engine, utilization in zip(engines, utilizations):
        engine.new(arithmetic, utilization)
    left = [iter(STEPS) for _ in engines]
    outcomes = [{"cache": None, "failure": None} for _ in engines]
    read = set()
    for turn in interleave(generator):
        step, outcome, engine = next(left[turn]), outcomes[turn], engines[turn]
        if outcome["failure"]:
            continue
        if step[0] == "load" and turn not in read:
            # The file that the weights are read from stays in the page cache.
            machine.tool("cache", f"+{WEIGHTS}GiB")
            read.add(turn)
        answer = engine.ask(*step)
        if "failed" in answer:
            outcome["failure"] = f"{answer['why']} at {step[0]}"
        elif step[0] == "available":
            outcome["cache"] = answer["value"] / GIB
    for engine in engines:
        engine.end()
    return outcomes


def run(setting, count, arithmetic, seed):
    """The outcomes of `count` interleavings, each a list of one per engine."""
    chosen = settings()[setting]
    with Machine() as machine:
        engines = [machine.engine(*options) for options, _ in chosen]
        if not all(engine.started for engine in engines):
            raise SystemExit(f"an engine of \"{setting}\" does not start")
        utilizations = [utilization for _, utilization in chosen]
        generator = random.Random(f"{seed} {setting}")
        return [
            start_together(machine, engines, utilizations, arithmetic, generator)
            for _ in range(count)
        ]


def summary(outcomes):
    """How the engines fared, counted over all starts, and the range of each one's cache."""
    counts = dict.fromkeys(["right", "short", "negative", "too_large", "not_started"], 0)
    ranges = [[] for _ in SHARES]
    whole = 0
    for outcome in outcomes:
        fates = []
        for engine, (one, share) in enumerate(zip(outcome, SHARES)):
            size = one["cache"]
            if size is not None:
                ranges[engine].append(size)
            fates.append(fate(size, one["failure"], right(share)))
            counts[fates[-1]] += 1
        whole += fates == ["right"] * len(SHARES)
    failures = [one["failure"] for outcome in outcomes for one in outcome if one["failure"]]
    return counts | {
        "interleavings": len(outcomes),
        "all_right": whole,
        "caches": [[min(sizes), max(sizes)] if sizes else None for sizes in ranges],
        "failures": {failure: failures.count(failure) for failure in sorted(set(failures))},
    }


def fate(size, failure, wanted):
    """What became of one engine."""
    if size is None:
        return "not_started"
    if size < 0:
        return "negative"
    if size < wanted - NEAR:
        return "short"
    if size > wanted + NEAR:
        return "too_large"
    return "not_started" if failure else "right"


NAMES = {
    "bare": "without gpuslice",
    "total: device": "slices, `--total device`, utilisations 0.35 / 0.30 / 0.20",
    "total: slice": f"slices, utilisation {OF_A_SLICE} for all",
}


def table(results):
    """For people, in Markdown."""
    lines = [
        "| | all three right | engines right | short | negative | too large | did not start | caches, GiB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for setting, result in results.items():
        ranges = []
        for low_high in result["caches"]:
            if low_high is None:
                ranges.append("none")
                continue
            low, high = (f"{size:.2f}" for size in low_high)
            ranges.append(low if low == high else f"{low}..{high}")
        row = [
            NAMES[setting],
            f"{result['all_right']} of {result['interleavings']}",
            *(str(result[key]) for key in ["right", "short", "negative", "too_large", "not_started"]),
            " / ".join(ranges),
        ]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--interleavings", type=int, default=100)
    parser.add_argument("--arithmetic", choices=["vendor", "written"], default="written")
    parser.add_argument("--seed", default="35929")
    parser.add_argument("--json", metavar="FILE", help="write the numbers there, too")
    options = parser.parse_args()
    count, words = options.interleavings, (options.arithmetic, options.seed)
    with ProcessPoolExecutor() as pool:
        running = {setting: pool.submit(run, setting, count, *words) for setting in settings()}
        results = {setting: summary(one.result()) for setting, one in running.items()}
    print(table(results))
    if options.json:
        Path(options.json).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
