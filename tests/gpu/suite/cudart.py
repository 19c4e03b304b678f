"""Finds the CUDA runtimes of this machine: those of a toolkit, or of a wheel."""
import glob
import os
import sys

MAJORS = (11, 12, 13)


def soname(major):
    return f"libcudart.so.{'11.0' if major == 11 else major}"


def folder(major):
    """Returns the folder of a libcudart of that version, or None."""
    name = soname(major)
    places = [f"/usr/local/cuda*/lib64/{name}", f"/usr/local/cuda*/targets/*/lib/{name}"]
    for path in sys.path:
        places += [f"{path}/nvidia/cuda_runtime/lib/{name}", f"{path}/nvidia/cu{major}/lib/{name}"]
    found = [match for place in places for match in glob.glob(place)]
    return os.path.dirname(found[0]) if found else None
