"""Every check: its script, where it runs, how long it may take, and which line of the suite it is.

`each`: bare, in a small slice, and in one of nearly the whole card. `bare`: without a slice only. `once`: starts its slices itself.
"""
EACH, BARE, ONCE, SLICES = "each", "bare", "once", "slices"

# (name, where, seconds, what it shows); the script is checks/NAME.py. The cheap and telling ones come first: when time runs
# out it is the last ones that were not run.
CHECKS = [
    ("record", BARE, 30, "the driver's own answers, for tests/sim/recorded"),
    ("consistent", ONCE, 60, "gpuslice check by every route: bare, small, large"),
    ("answers", EACH, 15, "CUDA and NVML say the same, and what the slice says"),
    ("limits", EACH, 20, "what is free can be had; 2 MiB more is refused"),
    ("lookups", EACH, 15, "cuGetProcAddress and the exported addresses"),
    ("contexts", EACH, 20, "what a context takes, by kind"),
    ("kinds", ONCE, 40, "the ledger against NVML, by kind of allocation"),
    ("trim", EACH, 20, "memory that a pool holds is had again: who trims"),
    ("capture", EACH, 20, "refusals while a stream captures"),
    ("ipc", EACH, 20, "memory of another process by an IPC handle"),
    ("vmm_share", EACH, 20, "physical memory exported and imported"),
    ("unload", EACH, 20, "dlclose, fork after cuInit, exec"),
    ("unified", ONCE, 20, "unified-memory logic, forced on"),
    ("runtime", EACH, 60, "cudart dynamic and static, by nvcc and prebuilt"),
    ("smi", ONCE, 40, "nvidia-smi: plain, -q, --query-gpu, processes; what it looks up"),
    ("nvidia_ml_py", EACH, 15, "nvidia-ml-py"),
    ("torch_memory", EACH, 40, "torch: mem_get_info, device properties"),
    ("torch_oom", EACH, 60, "torch: caching allocator up to OOM, and its retry"),
    ("torch_expandable", SLICES, 60, "torch: expandable_segments:True"),
    ("torch_async", SLICES, 60, "torch: backend:cudaMallocAsync"),
    ("torch_graph", SLICES, 60, "torch: CUDA graph capture near the limit"),
    ("torch_fraction", SLICES, 40, "torch: set_per_process_memory_fraction"),
    ("three", ONCE, 60, "three processes in three slices at once"),
    ("cupy_pools", EACH, 40, "CuPy: its pools and cudaMallocAsync"),
    ("jax_memory", EACH, 60, "JAX: preallocation of a share of what it sees"),
    ("triton_kernel", SLICES, 60, "Triton: a kernel"),
    ("numba_memory", EACH, 40, "numba-cuda: context, get_memory_info, an array"),
    ("cost", ONCE, 40, "added time of a query, an allocation, a process start"),
    ("tools", ONCE, 90, "compute-sanitizer, ncu, cuda-gdb, nsys"),
    ("torch_compile", SLICES, 120, "torch.compile of a small model"),
]
