"""Engines start at once on one machine, and size their caches by what they are told is free.

`spark` is vLLM #35929: three engines on a simulated GB10 of 121.69 GiB. `rtx5090` and `rtx6000ada`
are vLLM #55827: two engines on a card with memory of its own. A cache is right if it has the size
that the engine would get alone: its share of the whole machine less its weights and the peak of its
profile run. Every engine is a real process that allocates through the driver. The steps of all
engines are shuffled, differently at each start.
"""
import argparse
import json
import math
import random
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from machine import GIB, Machine

PARTS = 4
NEAR = 0.05


@dataclass(frozen=True)
class Engine:
    """An engine: its share of the machine, and its weights and profile peak above them, in GiB."""

    share: float
    weights: float
    peak: float


@dataclass(frozen=True)
class Case:
    """A machine and the engines that start on it together."""

    scenario: str
    total: int
    engines: tuple
    # With `total: slice`, all engines use this one utilisation. It leaves room for the context in
    # the smallest slice.
    of_a_slice: float
    unified: bool = False
    # The memory of context and libraries before the baseline, in GiB.
    context: float = 0.9

    def right(self, engine):
        """Returns the cache that an engine would get alone, in GiB."""
        return engine.share * self.total / GIB - engine.weights - engine.peak

    def steps(self, engine):
        return (
            [("context", self.context), ("baseline",)]
            + [("load", engine.weights / PARTS)] * PARTS
            + [("enter",), ("peak", engine.peak), ("settle",), ("leave",), ("available",), ("cache",)]
        )

    def settings(self):
        """Returns the settings to compare by name: for each engine, its options and utilisation."""
        shares = [engine.share for engine in self.engines]
        bare = [(["--bare"], share) for share in shares]
        whole = [
            (["--memory", mib(share * self.total + self.context * GIB), "--total", "device"], share)
            for share in shares
        ]
        slices = [
            (["--memory", mib(share * self.total / self.of_a_slice)], self.of_a_slice)
            for share in shares
        ]
        return {"bare": bare, "total: device": whole, "total: slice": slices}


def scenario(name):
    return str(Path(__file__).with_name("scenarios") / f"{name}.toml")


CASES = {
    "spark": Case(
        "gb10",
        127600748 << 10,
        (Engine(0.35, 4.25, 1.70), Engine(0.30, 4.25, 1.70), Engine(0.20, 4.25, 1.70)),
        of_a_slice=0.964,
        unified=True,
    ),
    # Qwen3-ASR-1.7B and Qwen3-ForcedAligner-0.6B. The issue reports the caches of both when they
    # start one after the other. These determine the sum of weights and peak of each engine. The
    # division of that sum is assumed.
    "rtx5090": Case(
        scenario("rtx5090"),
        32106 << 20,
        (Engine(0.35, 3.95, 2.30), Engine(0.20, 1.75, 1.70)),
        of_a_slice=0.87,
    ),
    "rtx6000ada": Case(
        scenario("rtx6000ada"),
        48522 << 20,
        (Engine(0.35, 3.95, 1.81), Engine(0.20, 1.75, 1.23)),
        of_a_slice=0.91,
    ),
}


def mib(amount):
    """Rounds up to MiB and adds a granule, because the driver allocates whole granules."""
    return f"{math.ceil(amount / (1 << 20)) + 2}MiB"


def interleave(case, generator):
    """Returns a random order of all steps, as the number of the engine whose turn it is."""
    engines = enumerate(case.engines)
    turns = [turn for turn, engine in engines for _ in case.steps(engine)]
    generator.shuffle(turns)
    return turns


def start_together(case, machine, engines, utilizations, arithmetic, generator):
    """Runs one interleaving. Returns each engine's cache size, and why it did not start."""
    machine.tool("reset")
    for engine, utilization in zip(engines, utilizations):
        engine.new(arithmetic, utilization)
    left = [iter(case.steps(engine)) for engine in case.engines]
    outcomes = [{"cache": None, "failure": None} for _ in engines]
    read = set()
    for turn in interleave(case, generator):
        step, outcome, engine = next(left[turn]), outcomes[turn], engines[turn]
        if outcome["failure"]:
            continue
        if case.unified and step[0] == "load" and turn not in read:
            # The file that the weights are read from stays in the page cache.
            machine.tool("cache", f"+{case.engines[turn].weights}GiB")
            read.add(turn)
        answer = engine.ask(*step)
        if "failed" in answer:
            outcome["failure"] = f"{answer['why']} at {step[0]}"
        elif step[0] == "available":
            outcome["cache"] = answer["value"] / GIB
    for engine in engines:
        engine.end()
    return outcomes


def run(name, setting, count, arithmetic, seed):
    """Returns the outcomes of `count` interleavings. Each is a list with one entry per engine."""
    case = CASES[name]
    chosen = case.settings()[setting]
    with Machine(case.scenario) as machine:
        engines = [machine.engine(*options) for options, _ in chosen]
        if not all(engine.started for engine in engines):
            raise SystemExit(f"an engine of \"{setting}\" does not start")
        utilizations = [utilization for _, utilization in chosen]
        generator = random.Random(f"{seed} {setting}")
        return [
            start_together(case, machine, engines, utilizations, arithmetic, generator)
            for _ in range(count)
        ]


def summary(case, outcomes):
    """Counts the fates of the engines over all starts, and adds the range of each one's cache."""
    counts = dict.fromkeys(["right", "short", "negative", "too_large", "not_started"], 0)
    ranges = [[] for _ in case.engines]
    whole = 0
    for outcome in outcomes:
        fates = []
        for engine, one in enumerate(outcome):
            size = one["cache"]
            if size is not None:
                ranges[engine].append(size)
            fates.append(fate(size, one["failure"], case.right(case.engines[engine])))
            counts[fates[-1]] += 1
        whole += fates == ["right"] * len(case.engines)
    failures = [one["failure"] for outcome in outcomes for one in outcome if one["failure"]]
    return counts | {
        "interleavings": len(outcomes),
        "all_right": whole,
        "caches": [[min(sizes), max(sizes)] if sizes else None for sizes in ranges],
        "failures": {failure: failures.count(failure) for failure in sorted(set(failures))},
    }


def fate(size, failure, wanted):
    """Returns the name of one engine's fate."""
    if size is None:
        return "not_started"
    if size < 0:
        return "negative"
    if size < wanted - NEAR:
        return "short"
    if size > wanted + NEAR:
        return "too_large"
    return "not_started" if failure else "right"


def names(case):
    """Returns the names of the settings in a table."""
    shares = " / ".join(f"{engine.share:.2f}" for engine in case.engines)
    return {
        "bare": "without gpuslice",
        "total: device": f"slices, `--total device`, utilisations {shares}",
        "total: slice": f"slices, utilisation {case.of_a_slice} for all",
    }


def table(case, results):
    """Formats the results as a Markdown table."""
    lines = [
        "| | all right | engines right | short | negative | too large | did not start | caches, GiB |",
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
            names(case)[setting],
            f"{result['all_right']} of {result['interleavings']}",
            *(str(result[key]) for key in ["right", "short", "negative", "too_large", "not_started"]),
            " / ".join(ranges),
        ]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=list(CASES), default="spark")
    parser.add_argument("--interleavings", type=int, default=100)
    parser.add_argument("--arithmetic", choices=["vendor", "written"], default="written")
    parser.add_argument("--seed", default="35929")
    parser.add_argument("--json", metavar="FILE", help="write the numbers there, too")
    options = parser.parse_args()
    case = CASES[options.case]
    count, words = options.interleavings, (options.arithmetic, options.seed)
    with ProcessPoolExecutor() as pool:
        running = {
            setting: pool.submit(run, options.case, setting, count, *words)
            for setting in case.settings()
        }
        results = {setting: summary(case, one.result()) for setting, one in running.items()}
    print(table(case, results))
    if options.json:
        Path(options.json).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
