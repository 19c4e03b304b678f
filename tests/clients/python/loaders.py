"""Loads a file with one of Python's loaders, prints a checksum of the contents, and waits.

Usage: loaders.py HOW PATH
A HOW that ends in -written first writes to its own copy of the pages. Its checksum includes that.
"""

import gc
import mmap
import os
import sys
import zlib

how, path = sys.argv[1:]
# The places at which a copy is written to, and the bytes that are written there.
WRITTEN, WORD = range(0, 128 << 20, 5 << 20), b"written here"


def checksum(parts):
    total = 0
    for part in parts:
        total = zlib.crc32(part, total)
    return f"{total:08x}"


def chunks(buffer):
    view = memoryview(buffer)
    return (view[at : at + (8 << 20)] for at in range(0, len(view), 8 << 20))


def safetensors_numpy():
    from safetensors.numpy import load_file

    loaded = load_file(path)
    return checksum(loaded[name] for name in sorted(loaded))


def safetensors_open():
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        return checksum(file.get_tensor(name) for name in sorted(file.keys()))


def gguf_reader():
    from gguf import GGUFReader

    reader = GGUFReader(path)
    return checksum(tensor.data for tensor in sorted(reader.tensors, key=lambda tensor: tensor.name))


def numpy_memmap(written=False):
    import numpy

    mapped = numpy.memmap(path, dtype=numpy.uint8, mode="c" if written else "r")
    if written:
        for at in WRITTEN:
            mapped[at : at + len(WORD)] = numpy.frombuffer(WORD, numpy.uint8)
    return checksum(chunks(mapped))


def numpy_fromfile():
    import numpy

    return checksum(chunks(numpy.fromfile(path, dtype=numpy.uint8)))


def python_read():
    with open(path, "rb") as file:
        return checksum([file.read()])


def python_readinto():
    buffer = bytearray(1 << 20)

    def parts():
        with open(path, "rb", buffering=0) as file:
            while count := file.readinto(buffer):
                yield memoryview(buffer)[:count]

    return checksum(parts())


def python_pread():
    def parts():
        fd = os.open(path, os.O_RDONLY)
        at = 0
        while part := os.pread(fd, 1 << 20, at):
            at += len(part)
            yield part
        os.close(fd)

    return checksum(parts())


def python_mmap(written=False):
    access = mmap.ACCESS_COPY if written else mmap.ACCESS_READ
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=access)
    with mapped:
        if written:
            for at in WRITTEN:
                mapped[at : at + len(WORD)] = WORD
        return checksum(mapped[at : at + (8 << 20)] for at in range(0, len(mapped), 8 << 20))


def torch_safetensors(written=False):
    from safetensors.torch import load_file

    loaded = load_file(path)
    if written:
        for name in sorted(loaded):
            loaded[name][::4096] = 1
    return checksum(loaded[name].numpy() for name in sorted(loaded))


def torch_from_file(written=False):
    import torch

    # torch.load(mmap=True) maps the contents of the file in this way.
    loaded = torch.from_file(path, shared=False, size=os.path.getsize(path), dtype=torch.uint8)
    if written:
        for at in WRITTEN:
            loaded[at : at + len(WORD)] = torch.tensor(list(WORD), dtype=torch.uint8)
    return checksum(chunks(loaded.numpy()))


def torch_load():
    import torch

    loaded = torch.load(path)
    return checksum(loaded[name].numpy() for name in sorted(loaded))


LOADERS = {
    "safetensors-numpy": safetensors_numpy,
    "safetensors-open": safetensors_open,
    "gguf": gguf_reader,
    "memmap": numpy_memmap,
    "memmap-written": lambda: numpy_memmap(True),
    "fromfile": numpy_fromfile,
    "read": python_read,
    "readinto": python_readinto,
    "pread": python_pread,
    "mmap": python_mmap,
    "mmap-written": lambda: python_mmap(True),
    "torch-safetensors": torch_safetensors,
    "torch-safetensors-written": lambda: torch_safetensors(True),
    "torch-load": torch_load,
    "torch-from-file": torch_from_file,
    "torch-from-file-written": lambda: torch_from_file(True),
}
said = LOADERS[how]()
gc.collect()
print(said, flush=True)
sys.stdin.read()
