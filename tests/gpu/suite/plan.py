"""Lists every check: its script, the variants that it runs in, its time limit, and its purpose.

`bare` runs without a slice, `small` in a small slice, and `large` in a slice of nearly the whole
card. `each` means all three, `slices` the latter two, `rest` bare and large, and `both` bare and
small. A check with `once` starts its slices itself.
"""
EACH, BARE, ONCE, SLICES, SMALL, LARGE, REST, BOTH = "each", "bare", "once", "slices", "small", "large", "rest", "both"
VARIANTS = {EACH: ["bare", "small", "large"], BARE: ["bare"], ONCE: ["once"], SLICES: ["small", "large"],
            SMALL: ["small"], LARGE: ["large"], REST: ["bare", "large"], BOTH: ["bare", "small"]}

# Checks that NVIDIA's libraries can answer without a GPU.
WITHOUT_GPU = {"machine", "without_gpu", "lookups_table"}

# (name, where, seconds, what it shows); the script is checks/NAME.py. The most important checks
# come first, because the last ones are left out when time runs out. First come the driver's own
# answers, then gpuslice's claims, then the frameworks in a small slice, then all of these in the
# other variants. The last checks take long, or may leave the driver in a bad state.
CHECKS = [
    ("machine", BARE, 20, "the machine: kernel, cgroups, driver, limits that the driver or the kernel has"),
    ("record", BARE, 30, "the driver's own answers, for tests/sim/recorded"),
    ("consistent", ONCE, 60, "gpuslice check by every route: bare, small, large"),
    ("answers", EACH, 15, "CUDA and NVML say the same, and what the slice says"),
    ("limits", EACH, 20, "what is free can be had; 2 MiB more is refused"),
    ("lookups", EACH, 15, "cuGetProcAddress and the exported addresses"),
    ("lookups_table", BOTH, 30, "every answer of cuGetProcAddress, as a file for tests/sim/recorded"),
    ("without_gpu", BARE, 20, "names and error codes that need no GPU"),
    ("pool_growth", BARE, 25, "how pools grow and shrink, and how fast a trim is"),
    ("contexts", EACH, 20, "what a context takes, by kind"),
    ("context_rules", BARE, 25, "contexts' ids, green contexts, modules, the stack, what a reset leaves"),
    ("nvml_lists", BARE, 25, "NVML's process lists, versions, field values, costs, other users"),
    ("kinds", ONCE, 40, "the ledger against NVML, by kind of allocation"),
    ("vmm_rules", BARE, 20, "granularity, when physical memory counts, what its descriptors are"),
    ("graph_memory", BARE, 20, "when a graph takes its memory, and what gives it back"),
    ("managed", BARE, 20, "when managed memory counts"),
    ("deaths", BARE, 40, "how soon a killed process's memory is free; who keeps what was shared"),
    ("vulkan", BOTH, 25, "Vulkan: heaps, budget, uuid, what a device costs"),
    ("opencl", BOTH, 25, "OpenCL: sizes, uuid, whether it allocates by libcuda"),
    ("opengl", BOTH, 25, "OpenGL: the memory that GL_NVX_gpu_memory_info reports"),
    ("cudart_rules", BOTH, 20, "cudart: the layouts of properties, cudaGetDriverEntryPoint"),
    ("runtime", SMALL, 60, "cudart dynamic and static, by nvcc and prebuilt"),
    ("trim", EACH, 20, "memory that a pool holds is had again: who trims"),
    ("capture", EACH, 20, "refusals while a stream captures"),
    ("ipc", EACH, 20, "memory of another process by an IPC handle"),
    ("vmm_share", EACH, 20, "physical memory exported and imported"),
    ("unload", EACH, 20, "dlclose, fork after cuInit, exec"),
    ("smi", ONCE, 40, "nvidia-smi: plain, -q, --query-gpu, processes; what it looks up"),
    ("torch_memory", SMALL, 60, "torch: mem_get_info, device properties"),
    ("torch_oom", SMALL, 60, "torch: caching allocator up to OOM, and its retry"),
    ("cupy_pools", SMALL, 40, "CuPy: its pools and cudaMallocAsync"),
    ("jax_memory", SMALL, 75, "JAX: preallocation of a share of what it sees"),
    ("triton_kernel", SMALL, 60, "Triton: a kernel"),
    ("torch_graph", SMALL, 60, "torch: CUDA graph capture near the limit"),
    ("torch_async", SMALL, 60, "torch: backend:cudaMallocAsync"),
    ("torch_expandable", SMALL, 60, "torch: expandable_segments:True"),
    ("torch_fraction", SMALL, 40, "torch: set_per_process_memory_fraction"),
    ("nvidia_ml_py", EACH, 15, "nvidia-ml-py"),
    ("cuda_bindings", BOTH, 20, "cuda-bindings: driver, runtime and NVML"),
    ("numba_memory", SMALL, 40, "numba-cuda: context, get_memory_info, an array"),
    ("three", ONCE, 60, "three processes in three slices at once"),
    ("unified", ONCE, 20, "unified-memory logic, forced on"),
    ("unified_driver", BARE, 20, "what the driver reports where the host shares its memory"),
    ("cost", ONCE, 40, "added time of a query, an allocation, a process start"),
    ("tools", ONCE, 90, "compute-sanitizer, ncu, cuda-gdb, nsys"),
    ("torch_compile", SMALL, 90, "torch.compile of a small model"),
    ("torch_memory", REST, 40, "torch: mem_get_info, device properties"),
    ("torch_oom", REST, 60, "torch: caching allocator up to OOM, and its retry"),
    ("jax_memory", REST, 60, "JAX: preallocation of a share of what it sees"),
    ("cupy_pools", REST, 40, "CuPy: its pools and cudaMallocAsync"),
    ("numba_memory", REST, 40, "numba-cuda: context, get_memory_info, an array"),
    ("runtime", REST, 60, "cudart dynamic and static, by nvcc and prebuilt"),
    ("triton_kernel", LARGE, 60, "Triton: a kernel"),
    ("torch_graph", LARGE, 60, "torch: CUDA graph capture near the limit"),
    ("torch_async", LARGE, 60, "torch: backend:cudaMallocAsync"),
    ("torch_expandable", LARGE, 60, "torch: expandable_segments:True"),
    ("torch_fraction", LARGE, 40, "torch: set_per_process_memory_fraction"),
    ("mps", ONCE, 30, "under MPS: who is listed, and what a slice says"),
    ("checkpoint", BARE, 20, "cuCheckpoint: whether it frees the device's memory"),
    ("torch_compile", LARGE, 90, "torch.compile of a small model"),
]
