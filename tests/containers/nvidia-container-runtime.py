#!/usr/bin/python3
"""Stands in for nvidia-container-runtime.

It changes config.json as each of the real one's four modes does, and then becomes the first runtime
of its list that exists. The changes of each mode are copied from the toolkit 1.20. Its config.toml
gives the mode and the list. NVIDIA_VISIBLE_DEVICES in process.env names the devices, and /etc/cdi
has the CDI specifications.
"""
import json
import os
import re
import shutil
import sys

CONFIG = os.environ.get("NVIDIA_CTK_CONFIG_FILE_PATH", "/etc/nvidia-container-runtime/config.toml")
text = open(CONFIG).read() if os.path.exists(CONFIG) else ""
mode = (re.findall(r'^mode = "([a-z-]+)"', text, re.M) or ["auto"])[0]
runtimes = re.search(r"^runtimes = \[(.*?)\]", text, re.M | re.S)
runtimes = re.findall(r'"([^"]+)"', runtimes.group(1)) if runtimes else ["runc", "crun"]


def bundle(words):
    """Returns the bundle of `create` and `run`, and None for every other verb."""
    if "create" not in words and "run" not in words:
        return None
    for at, word in enumerate(words):
        if word in ("--bundle", "-b"):
            return words[at + 1]
        if word.startswith("--bundle="):
            return word.split("=", 1)[1]
    return "."


def hook(config, stage, path, *arguments):
    hooks = config.setdefault("hooks", {}) or {}
    config["hooks"] = hooks
    entry = {"path": path, "args": [os.path.basename(path), *arguments], "env": ["NVIDIA_CTK_DEBUG=false"]}
    hooks.setdefault(stage, []).append(entry)


def cdi(config, names):
    """Returns the edits of our own CDI specification. The real toolkit applies those of any vendor.
    """
    spec = json.load(open("/etc/cdi/gpuslice.json"))
    for name in names:
        device = [it for it in spec["devices"] if spec["kind"] + "=" + it["name"] == name]
        if not device:
            sys.exit("nvidia-container-runtime: unresolvable CDI devices " + name)
        for edit in device[0]["containerEdits"]["hooks"]:
            hooks = config.setdefault("hooks", {}) or {}
            config["hooks"] = hooks
            entry = {key: edit[key] for key in ("path", "args", "env")}
            hooks.setdefault(edit["hookName"], []).append(entry)


def change(config):
    env = dict(it.split("=", 1) for it in config["process"].get("env", []) if "=" in it)
    wanted = env.get("NVIDIA_VISIBLE_DEVICES", "")
    if wanted in ("", "void"):
        return
    names = [name for name in wanted.split(",") if "=" in name]
    if mode == "legacy":
        hook(config, "prestart", "/usr/bin/nvidia-container-runtime-hook", "prestart")
        return
    if names:
        cdi(config, [name for name in names if not name.startswith("nvidia.com/gpu=")])
    for command in ("create-symlinks", "enable-cuda-compat", "update-ldcache"):
        hook(config, "createContainer", "/usr/bin/nvidia-cdi-hook", command)
    if mode == "cdi" and not names:
        sys.exit("nvidia-container-runtime: mode cdi needs the names of CDI devices")


words = sys.argv[1:]
folder = bundle(words)
if folder is not None:
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    change(config)
    with open(path, "w") as file:
        json.dump(config, file)
for runtime in runtimes:
    found = shutil.which(runtime, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    if found:
        os.execv(found, [found, *words])
sys.exit("nvidia-container-runtime: no runtime of " + ", ".join(runtimes))
