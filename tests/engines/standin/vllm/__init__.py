"""What the vendor's memory arithmetic imports of the rest of vLLM; the files themselves are in
the folder that GPUSLICE_ENGINES_VENDOR names."""
import os

__path__.append(os.path.join(os.environ["GPUSLICE_ENGINES_VENDOR"], "vllm"))
