"""The modules of vLLM that the vendor's memory arithmetic imports.

The vendor's own files are in the folder that GPUSLICE_ENGINES_VENDOR names.
"""
import os

__path__.append(os.path.join(os.environ["GPUSLICE_ENGINES_VENDOR"], "vllm"))
