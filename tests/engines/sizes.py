"""What five engines make of a slice of 40 GiB on a GB10 on which others hold 56 GiB.

All sizes are in GiB. The machine has MemAvailable 65 and MemFree 45. vLLM runs at its default
utilisation of 0.92, with the vendor's own arithmetic or a copy of it. The rules of SGLang,
llama.cpp, Ollama and JAX are written out below.

The model has weights of 14, a peak of 2, and 0.9 of context and libraries before the baseline. It
takes 1 of host memory before the baseline and 3 more while it loads. llama.cpp loads a file of 32
with a context of 12.
"""
import argparse
import json
from pathlib import Path

from machine import GIB, Machine

SLICE = "40GiB"
WEIGHTS, PEAK, CONTEXT, SMALL_CONTEXT = 14, 2, 0.9, 0.5
HOST_BEFORE, HOST_LOADING = 1, 3
GGUF, GGUF_CONTEXT = 32, 12
# SGLang's mem_fraction_static. SGLang looks it up in a table by TOTAL.
FRACTIONS = {40: 0.81, 121: 0.875}

SETTINGS = {
    "bare": ["--bare"],
    "uma, nothing allowed": ["--memory", SLICE, "--host-allowance", "0"],
    "uma": ["--memory", SLICE],
    "discrete": ["--memory", SLICE, "--present-as", "discrete"],
}


def prepare(machine):
    """Sets MemAvailable to 65 GiB and MemFree to 45, by other programs and by the page cache."""
    for engine in machine.engines:
        engine.end()
    machine.tool("reset")
    # The simulated host counts the previous engine's memory until its next change.
    machine.tool("host", "+0GiB")
    memory = machine.meminfo()
    machine.tool("host", f"+{memory['MemAvailable'] - 65 * GIB}")
    machine.tool("cache", f"+{machine.meminfo()['MemFree'] - 45 * GIB}")


def engine_free(numbers):
    """Returns FREE as vLLM, SGLang and llama.cpp read it, in GiB."""
    return (numbers["available"] if numbers["integrated"] else numbers["free"]) / GIB


def grow(machine, engine, amount, bare):
    """Takes host memory for the engine.

    Without a slice the simulated host is changed instead: it does not see real processes.
    """
    machine.tool("host", f"+{amount}GiB") if bare else engine.must("grow", amount)


def vllm(machine, engine, arithmetic, bare, touch):
    prepare(machine)
    engine.new(arithmetic, 0.92)
    engine.must("context", CONTEXT)
    if touch or bare:
        grow(machine, engine, HOST_BEFORE, bare)
    answer = engine.ask("baseline")
    if "failed" in answer:
        return {"refused": answer["why"]}
    engine.must("load", WEIGHTS)
    if touch or bare:
        grow(machine, engine, HOST_LOADING, bare)
    for step in [("enter",), ("peak", PEAK), ("settle",), ("leave",)]:
        engine.must(*step)
    available = engine.must("available") / GIB
    fits = "failed" not in engine.ask("cache")
    return {"free": answer["value"] / GIB, "cache": available, "fits": fits}


def sglang(machine, engine, bare, touch):
    prepare(machine)
    engine.new("written", 0.92)
    engine.must("context", CONTEXT)
    if touch or bare:
        grow(machine, engine, HOST_BEFORE, bare)
    numbers = engine.must("numbers")
    before, fraction = engine_free(numbers), FRACTIONS[int(numbers["total"] / GIB)]
    engine.must("load", WEIGHTS)
    if touch or bare:
        grow(machine, engine, HOST_LOADING, bare)
    after = engine_free(engine.must("numbers"))
    cache = after - before * (1 - fraction)
    fits = "failed" not in engine.ask("load", cache)
    return {"free": before, "cache": cache, "fits": fits}


def llama_cpp(machine, engine):
    prepare(machine)
    engine.new("written", 0.92)
    engine.must("context", SMALL_CONTEXT)
    numbers = engine.must("numbers")
    free, wanted = engine_free(numbers), GGUF + GGUF_CONTEXT
    removed = max(0, wanted - (free - 1))
    fits = "failed" not in engine.ask("load", wanted - removed)
    return {"total": numbers["total"] / GIB, "free": free, "removed": removed, "fits": fits}


def ollama(machine, engine, memory_max=None):
    """Ollama's Go half makes raw system calls, so it sees the host and its own cgroup."""
    prepare(machine)
    engine.new("written", 0.92)
    engine.must("context", SMALL_CONTEXT)
    numbers = engine.must("numbers")
    system = machine.meminfo()["MemAvailable"] / GIB
    system = min(system, memory_max) if memory_max else system
    free = engine_free(numbers)
    return min(system, free) if numbers["integrated"] else free


def jax(engine):
    engine.new("written", 0.92)
    engine.must("context", SMALL_CONTEXT)
    return 0.75 * engine.must("numbers")["total"] / GIB


def measure(setting, arithmetic, touch):
    """Runs all engines in one slice, one after the other."""
    bare = setting == "bare"
    with Machine() as machine:
        prepare(machine)
        engine = machine.engine(*SETTINGS[setting])
        if not engine.started:
            raise SystemExit(f"no engine starts: {setting}")
        return {
            "vLLM": vllm(machine, engine, arithmetic, bare, touch),
            "SGLang": sglang(machine, engine, bare, touch),
            "llama.cpp": llama_cpp(machine, engine),
            "Ollama": ollama(machine, engine),
            "Ollama, memory.max 8 GiB": ollama(machine, engine, 8),
            "JAX": jax(engine),
        }


def says(result):
    if isinstance(result, (int, float)):
        return f"{result:.1f}"
    if "refused" in result:
        return result["refused"]
    over = "" if result["fits"] else ": does not fit"
    if "removed" in result:
        return f"free {result['free']:.1f}, removes {result['removed']:.1f}{over}"
    return f"free {result['free']:.1f}, cache {result['cache']:.1f}{over}"


NAMES = {
    "bare": "without gpuslice",
    "uma, nothing allowed": "`--host-allowance 0`",
    "uma": "a slice of 40 GiB",
    "discrete": "`--present-as discrete`",
}


def table(results):
    """Formats the results as a Markdown table."""
    lines = [f"| | {' | '.join(NAMES[setting] for setting in results)} |"]
    lines.append("|---" * (len(results) + 1) + "|")
    for name in next(iter(results.values())):
        cells = [says(result[name]) for result in results.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arithmetic", choices=["vendor", "written"], default="written")
    parser.add_argument("--no-host-memory", action="store_true", help="take no memory of this host")
    parser.add_argument("--json", metavar="FILE", help="write the numbers there, too")
    parser.add_argument("--only", choices=SETTINGS, action="append")
    options = parser.parse_args()
    chosen = options.only or SETTINGS
    results = {
        setting: measure(setting, options.arithmetic, not options.no_host_memory)
        for setting in chosen
    }
    print(table(results))
    if options.json:
        Path(options.json).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
