"""Writes the same numbers as three files of models: raw, safetensors and GGUF.

Usage: make_models.py FOLDER MIB
"""

import sys
from pathlib import Path

import gguf
import numpy
from safetensors.numpy import save_file

TENSORS = 8

folder, size = Path(sys.argv[1]), int(sys.argv[2]) << 20
folder.mkdir(parents=True, exist_ok=True)
numbers = numpy.random.default_rng(7).integers(0, 255, size // 16, dtype=numpy.uint8)
each = size // TENSORS
# Tensors that differ, from not so many random numbers.
tensors = {
    f"layer.{number}": numpy.resize(numpy.roll(numbers, number * 4099), each).view(numpy.float32)
    for number in range(TENSORS)
}
with open(folder / "model.bin", "wb") as file:
    for tensor in tensors.values():
        file.write(tensor.tobytes())
save_file(tensors, folder / "model.safetensors")
writer = gguf.GGUFWriter(folder / "model.gguf", "llama")
for name, tensor in tensors.items():
    writer.add_tensor(name, tensor)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
