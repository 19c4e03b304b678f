"""A simulated machine and its engines. `gpuslice run` starts each engine, bare or in a slice."""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("GPUSLICE_TARGET", ROOT / "target")).resolve()
GPUSLICE = TARGET / "release" / "gpuslice"
TOOL = TARGET / "sim" / "gpuslice-sim"
VENDOR = TARGET / "engines" / "vendor"
ENGINE = Path(__file__).with_name("engine.py")
GIB = 1 << 30


class Machine:
    """A simulated machine. It is removed at the end of its `with` block."""

    def __init__(self, scenario="gb10"):
        self.scenario = scenario
        self.folder = Path(tempfile.mkdtemp(prefix="engines-", dir="/dev/shm"))
        self.state = self.folder / "sim"
        self.state.mkdir()
        self.engines = []
        self.tool("start", scenario)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for engine in self.engines:
            engine.close()
        # The watcher of a run that has just ended removes its files at the same time.
        while self.folder.exists():
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self.folder)

    def tool(self, *words):
        subprocess.run([TOOL, "--state", self.state, *words], check=True)

    def meminfo(self):
        """Returns the values of the simulated host's meminfo, in bytes."""
        lines = (self.state / "meminfo").read_text().splitlines()
        pairs = (line.split() for line in lines)
        return {words[0].rstrip(":"): int(words[1]) << 10 for words in pairs if len(words) == 3}

    def engine(self, *options, **variables):
        """Starts an engine with these options of `gpuslice run`: in a slice, or with `--bare`."""
        engine = Engine(self, options, variables)
        self.engines.append(engine)
        return engine


class Engine:
    """A process that forks engines; see engine.py."""

    def __init__(self, machine, options, variables):
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GPUSLICE_", "LD_", "CUDA_"))
        }
        environment |= {
            "GPUSLICE_SIM_STATE": str(machine.state),
            "GPUSLICE_ENGINES_VENDOR": str(VENDOR),
            "XDG_RUNTIME_DIR": str(machine.folder),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        if "--bare" in options:
            # Reads the machine's own meminfo, also if it may not be mounted over /proc/meminfo.
            environment["ENGINE_PROCFS"] = str(machine.state)
        command = [GPUSLICE, "run", "--sim", machine.scenario, *options, "--", sys.executable, ENGINE]
        self.process = subprocess.Popen(
            command,
            env=environment | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.started = "ready" in self.hear()
        self.lives = False

    def hear(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else {}

    def ask(self, *words):
        """Runs one step and returns its answer."""
        print(*words, file=self.process.stdin, flush=True)
        answer = self.hear()
        if not answer:
            raise RuntimeError(f"the engine ended at {words}")
        if "failed" in answer:
            self.lives = False
            self.hear()
        return answer

    def new(self, arithmetic, utilization):
        """Starts a new engine process. One that still runs ends first."""
        self.end()
        self.ask("new", arithmetic, utilization)
        self.lives = True

    def must(self, *words):
        """Runs a step that has to succeed, and returns its value."""
        answer = self.ask(*words)
        if "failed" in answer:
            raise RuntimeError(f"{words}: {answer}")
        return answer["value"]

    def end(self):
        """Ends the engine process, and returns when it was waited for."""
        if self.lives:
            self.ask("end")
            self.lives = False

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
