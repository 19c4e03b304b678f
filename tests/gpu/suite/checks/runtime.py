"""The CUDA runtime in programs of each nvcc, dynamic and static, and in the kit's programs."""
import glob
import os
import shutil
import tempfile

import cudart
import tell

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(HERE, "..", "..", "c", "runtime.cu")


SEEN = {}


def toolkits():
    """Returns the path of every nvcc, without duplicates."""
    found = glob.glob("/usr/local/cuda*/bin/nvcc") + [shutil.which("nvcc") or ""]
    return sorted({os.path.realpath(nvcc) for nvcc in found if nvcc})


def prebuilt():
    """Returns the kit's programs: (name, program, folder of the runtime that it needs)."""
    for major in (11, 12, 13):
        program = os.path.join(tell.KIT, "bin", f"runtime-{major}")
        if os.path.exists(program):
            yield f"prebuilt, cudart {major}", program, major


def judge(name, status, out, err):
    """Judges a program's output: lines of `cuda UUID WHEN total=N free=N`."""
    totals = [int(word[6:]) for line in out.splitlines() for word in line.split() if word.startswith("total=")]
    tell.fact(name, {"status": status, "said": out.strip()[:1200], "error": err.strip()[:300]})
    if totals:
        device = [int(word[6:]) for line in out.splitlines() if " device " in line for word in line.split() if "total=" in word]
        SEEN[name] = {"device": device, "all totals": sorted(set(totals))}
    if tell.expect(status == 0 and totals, f"{name} ended with {status}: {err.strip()[:200]}") and tell.IN_SLICE:
        tell.equal(f"{name}: every total", sorted(set(totals)), [tell.LIMIT])


def check():
    ran = 0
    with tempfile.TemporaryDirectory() as folder:
        for nvcc in toolkits() if not tell.SIM else []:
            for linkage in ("shared", "static"):
                program = os.path.join(folder, "runtime")
                # nvcc runs without the preload, because only its output is tested in a slice.
                plain = {"LD_PRELOAD": ""}
                words = [nvcc, "-cudart", linkage, "-o", program, SOURCE]
                status, out, err = tell.run(words, timeout=50, env=plain)
                name = f"{nvcc}, {linkage}"
                if not tell.expect(status == 0, f"{name} does not compile: {(out + err)[-300:]}"):
                    continue
                library = os.path.join(os.path.dirname(nvcc), "..", "lib64")
                path = {"LD_LIBRARY_PATH": f"{library}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
                judge(name, *tell.run([program], env=path))
                ran += 1
    for name, program, major in prebuilt():
        path = {}
        if not tell.SIM:
            runtime = cudart.folder(major)
            if runtime is None:
                tell.fact(name, "no such libcudart here")
                continue
            path = {"LD_LIBRARY_PATH": f"{runtime}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
        judge(name, *tell.run([program], env=path))
        ran += 1
    if SEEN:
        right = all(one["all totals"] == [tell.LIMIT] for one in SEEN.values())
        tell.answer("cudart-total", SEEN, right if tell.IN_SLICE else None)
    if not ran:
        tell.skip("neither nvcc nor a libcudart is here")


tell.main(check)
