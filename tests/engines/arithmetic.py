"""Sizes a cache as vLLM 0.33 does: with the vendor's own files, or with a copy of their arithmetic.

Both classes have the steps of an engine's start. `baseline` may refuse to start. `enter` and
`leave` surround the profile run. `available` returns the bytes of the KV cache.
"""
import ast
import logging
import math
import os
from pathlib import Path
from types import SimpleNamespace

import psutil
import torch


class Vendor:
    """Runs `vllm/utils/mem_utils.py` and `request_memory` of `vllm/v1/worker/utils.py`.

    The three lines that subtract are copied from `determine_available_memory` in gpu_worker.py.
    That module cannot be imported without all of vLLM.
    """

    def __init__(self, utilization):
        from vllm.utils import mem_utils

        self.mem_utils = mem_utils
        self.request_memory = request_memory(mem_utils)
        self.config = SimpleNamespace(gpu_memory_utilization=utilization)

    def baseline(self):
        self.before = self.mem_utils.MemorySnapshot(device=torch.device(0))
        self.requested = self.request_memory(self.before, self.config)
        return self.before.free_memory

    def enter(self):
        self.profile = self.mem_utils.memory_profiling(self.before)
        self.result = self.profile.__enter__()

    def leave(self):
        self.profile.__exit__(None, None, None)
        after = self.result.after_profile.free_memory
        assert self.before.free_memory >= after, "Error in memory profiling"
        return after

    def available(self):
        return self.requested - self.result.non_kv_cache_memory


def request_memory(mem_utils):
    """Returns vLLM's function `request_memory` alone. Its module would import half of vLLM."""
    path = Path(os.environ["GPUSLICE_ENGINES_VENDOR"], "vllm/v1/worker/utils.py")
    module = ast.parse(path.read_text())
    wanted = [
        node
        for node in module.body
        if isinstance(node, ast.FunctionDef) and node.name == "request_memory"
    ]
    assert len(wanted) == 1, f"{path} has no request_memory"
    names = {
        "math": math,
        "format_gib": mem_utils.format_gib,
        "logger": logging.getLogger(__name__),
        "MemorySnapshot": mem_utils.MemorySnapshot,
        "CacheConfig": SimpleNamespace,
    }
    exec(compile(ast.Module(wanted, []), str(path), "exec"), names)
    return names["request_memory"]


class Written:
    """A copy of the vendor's arithmetic, for tests that download nothing."""

    def __init__(self, utilization):
        self.utilization = utilization

    def free(self):
        from vllm.platforms import current_platform

        free, total = torch.accelerator.get_memory_info()
        if current_platform.is_integrated_gpu(0):
            free = psutil.virtual_memory().available
        return free, total

    def baseline(self):
        self.before, total = self.free()
        self.requested = math.ceil(total * self.utilization)
        if self.before < self.requested:
            raise ValueError(f"{self.before} free of {self.requested}")
        return self.before

    def enter(self):
        torch.allocator.empty()
        torch.accelerator.reset_peak_memory_stats()

    def leave(self):
        torch.allocator.empty()
        self.after, _ = self.free()
        assert self.before >= self.after, "Error in memory profiling"
        return self.after

    def available(self):
        consumed = self.before - self.after
        transient = torch.allocator.peak - torch.allocator.allocated
        return self.requested - consumed - transient


KINDS = {"vendor": Vendor, "written": Written}
