"""Three processes in three slices at once: each sees its own slice, and all can fill theirs at the
same time.
"""
import json
import os

import tell


def check():
    large = int(os.environ["GPU_CHECK_LARGE"])
    shares = [large // 4 // tell.STEP * tell.STEP] * 3
    holders = [tell.Talker(tell.in_slice(share, name=f"three-{at}") + tell.python("holder.py"))
               for at, share in enumerate(shares)]
    started = [holder.ask(do="start") for holder in holders]
    for said, share in zip(started, shares):
        tell.expect("error" not in said, str(said))
        tell.equal("total", said["info"][1], share)
    frees = [holder.ask(do="info")["info"][0] for holder in holders]
    had = [holder.ask(do="fill") for holder in holders]
    tell.fact("share, free, had; in MiB", [[tell.mib(one) for one in row]
                                           for row in zip(shares, frees, [said["had"] for said in had])])
    for free, said in zip(frees, had):
        tell.expect(free - said["had"] < tell.STEP, f"{tell.mib(free)} MiB were free, {tell.mib(said['had'])} were had")
    tell.answer("three-slices", {"[share, free, had] in MiB": [[tell.mib(one) for one in row] for row in
                                                              zip(shares, frees, [said["had"] for said in had])]},
                all(free - said["had"] < tell.STEP for free, said in zip(frees, had)))
    torch_too(shares)
    for holder in holders:
        tell.equal("the holder's end", holder.end(), 0)


def torch_too(shares):
    """Does the same with torch, if installed, while the three processes fill their slices."""
    code = ("import torch, json; f, t = torch.cuda.mem_get_info(); x = torch.zeros(1 << 26, device='cuda');"
            "print(json.dumps([f, t, int(x.sum().item())]))")
    import subprocess
    import sys
    status, _, _ = tell.run([sys.executable, "-c", "import torch, sys; sys.exit(not torch.cuda.is_available())"])
    tell.fact("with torch as well", status == 0)
    if status:
        return
    # A quarter of the card is left for the three torch processes.
    small = max(shares[0] // 6, 2 * tell.GIB)
    words = tell.in_slice(small) + [sys.executable, "-c", code]
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for process in running:
        out, _ = process.communicate(timeout=50)
        tell.equal("torch's exit status", process.returncode, 0)
        if process.returncode == 0:
            tell.equal("torch's total", json.loads(out)[1], small)


tell.main(check)
