"""NVIDIA's tools work under the preload as without: compute-sanitizer, ncu, cuda-gdb, nsys."""
import glob
import os
import shutil
import tempfile

import tell

PLACES = ["/usr/local/cuda*/bin", "/usr/local/cuda*/compute-sanitizer", "/opt/nvidia/nsight-*/*"]


def find(name):
    found = [shutil.which(name) or ""] + [match for place in PLACES for match in sorted(glob.glob(f"{place}/{name}"))]
    return next((path for path in found if path), None)


def check():
    program = tell.python("holder_once.py")
    ran, same = 0, {}
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "report")
        tools = {"compute-sanitizer": ["--tool", "memcheck"], "ncu": ["--target-processes", "all"],
                 "nsys": ["profile", "--force-overwrite", "true", "-o", out],
                 "cuda-gdb": ["--batch", "-ex", "run", "--args"]}
        for name, options in tools.items():
            path = find(name)
            if tell.SIM or not path:
                tell.fact(name, "not here")
                continue
            ended = {}
            for variant, limit in (("bare", 0), ("slice", tell.SMALL)):
                status, said, err = tell.run(tell.in_slice(limit) + [path, *options, *program], timeout=40)
                ended[variant] = (status, "info" in said + err)
                tell.fact(f"{name}, {variant}", {"status": status, "said": (said + err)[-600:]})
            tell.equal(f"{name} in a slice, its exit status and that the program ran", ended["slice"], ended["bare"])
            same[name] = ended["slice"] == ended["bare"]
            ran += 1
            # Answers after each tool, because the last tools take long.
            tell.answer("tools", {"as without the preload": same}, all(same.values()))
    if not ran:
        tell.skip("none of the tools is here")


tell.main(check)
