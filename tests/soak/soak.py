"""Runs a web server and then a compiler under the preload, in a slice that drops model files.

Each runs for SECONDS. The script prints how many requests and rounds were done. It fails if:

- an answer of the server differs from the file
- an object differs from the one that was compiled without the preload
- the server has more or fewer descriptors than before
- a file that is no model was dropped from the page cache
- a model was not dropped

Usage: soak.py SECONDS TARGET (the build output; make must have run)
"""

import ctypes
import hashlib
import json
import mmap
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

seconds, target = float(sys.argv[1]), Path(sys.argv[2]).resolve()
root = Path(__file__).resolve().parent.parent.parent
libc = ctypes.CDLL(None, use_errno=True)


def resident(path):
    """Returns how many bytes of a file are in the page cache. The caller has to own the file."""
    with open(path, "r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
    pages = (len(mapped) + mmap.PAGESIZE - 1) // mmap.PAGESIZE
    there = (ctypes.c_ubyte * pages)()
    start = (ctypes.c_ubyte * len(mapped)).from_buffer(mapped)
    if libc.mincore(ctypes.byref(start), ctypes.c_size_t(len(mapped)), there):
        raise OSError(ctypes.get_errno(), "mincore")
    del start
    mapped.close()
    return sum(page & 1 for page in there) * mmap.PAGESIZE


def environment(folder, preload):
    sliced = {"LD_PRELOAD": str(target / "release/libgpuslice.so"), "GPUSLICE_CONFIG": str(folder / "slice.json")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LD_", "GPUSLICE_"))}
    return kept | (sliced if preload else {})


def serve(folder):
    files = folder / "served"
    files.mkdir()
    expected = {}
    for name, size in [("page.html", 3000), ("picture.png", 200_000), ("data.dat", 80 << 20), ("model.bin", 80 << 20)]:
        data = os.urandom(min(size, 1 << 20)) * max(1, size >> 20)
        (files / name).write_bytes(data)
        expected[name] = hashlib.sha256(data).digest()
    os.sync()
    # The server prints the port that the kernel chose.
    said = open(folder / "said", "w+")
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(files)]
    server = subprocess.Popen(command, env=environment(folder, True), stdout=said, stderr=subprocess.DEVNULL)
    try:
        waited = time.monotonic() + 60
        while " port " not in (line := (folder / "said").read_text()):
            if server.poll() is not None or time.monotonic() > waited:
                sys.exit("the server does not start")
            time.sleep(0.05)
        port = int(line.split(" port ")[1].split()[0])
        if "libgpuslice.so" not in Path(f"/proc/{server.pid}/maps").read_text():
            sys.exit("the server runs without the preload")
        get = lambda name: urllib.request.urlopen(f"http://127.0.0.1:{port}/{name}", timeout=60).read()
        descriptors = lambda: len(os.listdir(f"/proc/{server.pid}/fd"))
        for name in expected:
            get(name)
        time.sleep(0.2)  # threads of the first requests close their descriptors
        before, count, end = descriptors(), 0, time.monotonic() + seconds
        while time.monotonic() < end:
            # Requests many small files for each large one, as real clients do.
            for name in ["page.html", "picture.png"] * 50 + ["data.dat", "model.bin"]:
                if hashlib.sha256(get(name)).digest() != expected[name]:
                    sys.exit(f"{name} came otherwise than it is")
                count += 1
            waited = time.monotonic() + 10
            while resident(files / "model.bin") and time.monotonic() < waited:
                time.sleep(0.01)  # the server drops pages after it has answered
            if left := resident(files / "model.bin"):
                sys.exit(f"{left} bytes of the model are left")
            size = os.path.getsize(files / "data.dat")
            # The kernel itself evicts some pages when the machine is short of memory.
            if (there := resident(files / "data.dat")) < size * 3 // 4:
                sys.exit(f"{there} of {size} bytes are left of a file that is no model")
        waited = time.monotonic() + 10
        while descriptors() != before and time.monotonic() < waited:
            time.sleep(0.05)
        if (after := descriptors()) != before:
            sys.exit(f"the server has {after} descriptors, and had {before}")
    finally:
        server.kill()
        server.wait()
    print(f"web server: {count} requests in {seconds:.0f} s, {before} descriptors before and after", flush=True)


def compile(folder):
    sources = [root / "tests/sim/cudart/cudart.c", *sorted((root / "tests/clients/c").glob("*.c"))]

    def build(preload, into):
        into.mkdir(exist_ok=True)
        made = {}
        for source in sources:
            object = into / (source.name + ".o")
            words = ["cc", "-O2", "-g", "-D_FORTIFY_SOURCE=2", "-DCUDART_MAJOR=12", "-DMAJOR=12", "-c", "-o", str(object), str(source)]
            done = subprocess.run(words, env=environment(folder, preload), capture_output=True, text=True, cwd=folder)
            made[source.name] = (done.returncode, done.stderr, object.read_bytes() if object.exists() else b"")
            object.unlink(missing_ok=True)
        return made

    bare, rounds, end = build(False, folder / "objects"), 0, time.monotonic() + seconds
    if sum(code == 0 for code, _, _ in bare.values()) < len(sources) // 2:
        sys.exit("the sources do not compile")
    while time.monotonic() < end:
        for name, made in build(True, folder / "objects").items():
            if made != bare[name]:
                sys.exit(f"{name} compiles otherwise: {made[:2]}")
        rounds += 1
    print(f"compiler: {rounds} rounds of {len(sources)} files in {seconds:.0f} s, every object the same", flush=True)


with tempfile.TemporaryDirectory(dir=target) as name:
    folder = Path(name)
    (folder / "slice.json").write_text(json.dumps({"version": 1, "memory": 8 << 30, "page_cache": "drop-behind"}))
    serve(folder)
    compile(folder)
