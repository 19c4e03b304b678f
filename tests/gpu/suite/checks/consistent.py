"""`gpuslice check` queries every API by every route: bare, and in both slices."""
import json
import os

import tell


def check():
    large = int(os.environ["GPU_CHECK_LARGE"])
    verdicts = {}
    for name, options in (("bare", ["--bare"]), ("small", ["--memory", str(tell.SMALL)]),
                          ("large", ["--memory", str(large)])):
        words = [tell.GPUSLICE, "check", "--json", *(["--sim", tell.SIM] if tell.SIM else []), *options]
        status, out, err = tell.run(words, timeout=30)
        if name == "bare" and os.environ["GPU_CHECK_INTEGRATED"] == "1":
            # On unified memory the bare answers disagree, which is the reason for gpuslice. They
            # are only recorded.
            tell.fact("bare", out[-600:] if status not in (0, 1) else json.loads(out)["disagreements"])
            continue
        tell.equal(f"{name}: the exit status", status, 0)
        try:
            said = json.loads(out)
        except ValueError:
            tell.expect(False, f"{name}: no JSON: {err[:200]}")
            continue
        verdicts[name] = said["consistent"] or said["disagreements"]
        tell.fact(name, {"consistent": said["consistent"], "answers": len(said["rows"]),
                         "disagreements": said["disagreements"], "notes": said["notes"],
                         "skipped": len(said["skipped"]), "errors": sum(row["error"] is not None for row in said["rows"])})
        tell.expect(said["rows"], f"{name}: nothing was asked")
        tell.expect(said["consistent"], f"{name}: {'; '.join(said['disagreements'])[:300]}")
    tell.answer("consistent", verdicts, all(said is True for said in verdicts.values()))


tell.main(check)
