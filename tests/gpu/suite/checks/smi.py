"""nvidia-smi: plain, -q -d MEMORY, --query-gpu, the process list, and its symbol look-ups."""
import re
import shutil

import tell


def check():
    if tell.SIM or not shutil.which("nvidia-smi"):
        tell.skip("no nvidia-smi here" if not tell.SIM else "nvidia-smi needs the real NVML")
    query = ["nvidia-smi", "--query-gpu=memory.total,memory.free,memory.used,memory.reserved",
             "--format=csv,noheader,nounits", "-i", "0"]
    forms = {"plain": ["nvidia-smi"], "-q -d MEMORY": ["nvidia-smi", "-q", "-d", "MEMORY", "-i", "0"],
             "--query-gpu": query, "processes": ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"]}
    for name, words in forms.items():
        for variant, limit in (("bare", 0), ("slice", tell.SMALL)):
            status, out, err = tell.run(tell.in_slice(limit) + words, timeout=20)
            tell.fact(f"{name}, {variant}", out.strip()[:3000] or err.strip()[:300])
            tell.equal(f"{name}, {variant}: exit status", status, 0)
            total = tell.SMALL // tell.MIB
            if variant == "slice" and name == "--query-gpu":
                tell.equal("memory.total", out.split(",")[0].strip(), str(total))
            elif variant == "slice" and name != "processes":
                tell.expect(f"{total}MiB" in out.replace(" ", ""), f"{name} does not say {total} MiB")
    holder = tell.Talker(tell.in_slice(tell.SMALL) + tell.python("holder.py"))
    pid = holder.ask(do="start")["pid"]
    _, listed, _ = tell.run(tell.in_slice() + forms["processes"])
    tell.fact("a process of a slice, as it is listed outside", {"own pid": pid, "listed": listed.strip()})
    holder.end()
    resolved()


def resolved():
    """Returns the names that nvidia-smi looks up, linked or by dlsym. The loader reports them."""
    status, _, err = tell.run(tell.in_slice() + ["env", "LD_DEBUG=symbols", "nvidia-smi"], timeout=20)
    names = sorted(set(re.findall(r"symbol=((?:nvml|cu)\w+);", err)))
    libraries = sorted(set(re.findall(r"lookup in file=(\S*lib(?:nvidia|cuda)\S*)", err)))
    tell.answer("smi-names", {"names": names, "in libraries": libraries}, "nvmlDeviceGetMemoryInfo_v2" in names)
    tell.expect(status == 0 and names, "the loader names no function that nvidia-smi looks up")


tell.main(check)
