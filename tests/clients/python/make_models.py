"""Writes a model file. SUFFIX selects the format: safetensors, gguf, pt (PyTorch's own), else raw.

Every format gets the same numbers.

Usage: make_models.py FILE SUFFIX MIB
"""

import sys

import numpy

TENSORS = 8

path, suffix, size = sys.argv[1], sys.argv[2], int(sys.argv[3]) << 20
numbers = numpy.random.default_rng(7).integers(0, 255, size // 16, dtype=numpy.uint8)


def tensors():
    """Yields tensors that differ, although few random numbers are generated."""
    for number in range(TENSORS):
        tensor = numpy.resize(numpy.roll(numbers, number * 4099), size // TENSORS)
        yield f"layer.{number}", tensor.view(numpy.float32)


if suffix == "safetensors":
    from safetensors.numpy import save_file

    save_file(dict(tensors()), path)
elif suffix == "gguf":
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    for name, tensor in tensors():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
elif suffix == "pt":
    import torch

    torch.save({name: torch.from_numpy(tensor) for name, tensor in tensors()}, path)
else:
    with open(path, "wb") as file:
        for _, tensor in tensors():
            file.write(tensor.tobytes())
