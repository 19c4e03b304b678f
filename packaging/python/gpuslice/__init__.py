"""The slice of GPU memory that this process runs in, and whether every API agrees with it.

    >>> import gpuslice
    >>> mine = gpuslice.slice()
    >>> mine.devices[0].limit, mine.devices[0].left
    (8589934592, 8323596288)
    >>> gpuslice.check().consistent
    True

Both functions run the command ``gpuslice`` of this package. Amounts are bytes. Only
``gpuslice run`` or a container engine can start a slice. A running process cannot enter one.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ._version import __version__

__all__ = [
    "Answer",
    "Check",
    "Device",
    "Error",
    "NoDriver",
    "Process",
    "Slice",
    "__version__",
    "check",
    "executable",
    "slice",
]


class Error(Exception):
    """gpuslice failed. The text of the exception is gpuslice's message."""


class NoDriver(Error):
    """This machine has no working NVIDIA driver."""


@dataclass(frozen=True)
class Process:
    """A process of a slice, on one device."""

    pid: int
    #: The name of its program; None if it has ended.
    name: Optional[str]
    #: The memory that it holds.
    used: int
    #: ``used`` by kind: "linear", "context", "managed" and others.
    by_kind: Mapping[str, int]


@dataclass(frozen=True)
class Device:
    """A GPU of a slice."""

    #: The GPU's uuid, as nvidia-smi -L prints it.
    uuid: str
    #: The most memory that the slice's processes may hold on it; None without a limit.
    limit: Optional[int]
    #: The memory that they hold; None if the ledger cannot be read.
    used: Optional[int]
    #: The memory that they may still allocate; None without a limit or a ledger.
    left: Optional[int]
    #: The part of the limit that programs do not see in TOTAL.
    headroom: int
    #: ``used`` by kind.
    by_kind: Mapping[str, int]
    #: The number of allocations that were refused.
    refusals: int
    #: The most bytes that a refused allocation lacked.
    worst_short_by: int
    processes: Tuple[Process, ...]


@dataclass(frozen=True)
class Slice:
    """The slice of a process."""

    name: str
    #: Whether an allocation above the limit is refused, or only counted.
    enforce: bool
    #: The memory that TOTAL shows: that of the "slice" or of the "device".
    total: str
    devices: Tuple[Device, ...]
    #: Why the slice or its ledger cannot be read; None if all is well.
    error: Optional[str]


@dataclass(frozen=True)
class Answer:
    """The answer of one function by one route. A value that it does not report is None."""

    device: str
    api: str
    route: str
    total: Optional[int]
    free: Optional[int]
    used: Optional[int]
    reserved: Optional[int]
    integrated: Optional[bool]
    error: Optional[str]


@dataclass(frozen=True)
class Check:
    """The result of ``gpuslice check``."""

    #: Whether all answers agree. In a slice, every function must also have been queried.
    consistent: bool
    #: The path of libgpuslice.so; None where a program did not load it.
    library: Optional[str]
    answers: Tuple[Answer, ...]
    #: Each pair of functions that disagrees.
    disagreements: Tuple[str, ...]
    #: The functions of a slice that could not be queried, and why.
    incomplete: Tuple[str, ...]
    notes: Tuple[str, ...]


def executable() -> str:
    """Returns the path of the command ``gpuslice`` that was installed with this module.

    Raises:
        Error: The command is neither in a folder of this Python's scripts nor in PATH.
    """
    schemes = [sysconfig.get_path("scripts")]
    user = "osx_framework_user" if sys.platform == "darwin" else "posix_user"
    if user in sysconfig.get_scheme_names():
        schemes.append(sysconfig.get_path("scripts", scheme=user))
    # With pip install --prefix, this folder is PREFIX/lib/pythonX.Y/site-packages/gpuslice, and the
    # command is in PREFIX/bin.
    here = os.path.dirname(os.path.abspath(__file__))
    schemes.append(os.path.join(here, *[os.pardir] * 4, "bin"))
    for folder in schemes:
        path = os.path.normpath(os.path.join(folder, "gpuslice"))
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    found = shutil.which("gpuslice")
    if found is None:
        raise Error(
            "there is no command gpuslice in {}, nor in PATH: install gpuslice again, and without "
            "pip's --target, which leaves the library out".format(", ".join(schemes))
        )
    return found


def slice() -> Optional[Slice]:
    """Returns the slice of this process with the memory that it holds now, or None without one.

    Raises:
        Error: The slice cannot be read.
    """
    # Status 1: a ledger could not be read. `error` holds the reason.
    status, output, errors = _run(["status", "--json", str(os.getpid())])
    if status == 125 and "is in no slice" in errors:
        return None
    if status not in (0, 1):
        raise Error(_message(errors))
    for found in _json(output, errors)["slices"]:
        return _slice(found)
    return None


def check(*, timeout: Optional[float] = None) -> Check:
    """Queries every API that reports GPU memory by every route and compares the answers.

    Inside a slice this checks the slice. It starts about twenty processes and takes seconds.

    Args:
        timeout: The seconds that the whole check may take.

    Raises:
        NoDriver: There is no working NVIDIA driver.
        Error: gpuslice failed.
        subprocess.TimeoutExpired: The check took longer than ``timeout``.
    """
    status, output, errors = _run(["check", "--json"], timeout)
    if status == 2:
        raise NoDriver(_message(errors))
    if status not in (0, 1):
        raise Error(_message(errors))
    found = _json(output, errors)
    answers = [
        Answer(**{field: row.get(field) for field in Answer.__dataclass_fields__})
        for row in found["rows"]
    ]
    return Check(
        consistent=status == 0,
        library=found["shim"],
        answers=tuple(answers),
        disagreements=tuple(found["disagreements"]),
        incomplete=tuple(found["incomplete"]),
        notes=tuple(found["notes"]),
    )


def _run(arguments: List[str], timeout: Optional[float] = None) -> Tuple[int, str, str]:
    done = subprocess.run(
        [executable(), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=timeout,
        check=False,
    )
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


def _json(output: str, errors: str) -> Dict[str, Any]:
    try:
        found: Dict[str, Any] = json.loads(output)
    except ValueError as error:
        raise Error(_message(errors) or str(error)) from error
    return found


def _message(errors: str) -> str:
    text = errors.strip()
    prefix = "gpuslice: "
    return text[len(prefix) :] if text.startswith(prefix) else text


def _slice(found: Dict[str, Any]) -> Slice:
    return Slice(
        name=found["name"],
        enforce=found["enforce"],
        total=found["total"],
        devices=tuple(_device(device) for device in found["devices"]),
        error=found["error"],
    )


def _device(found: Dict[str, Any]) -> Device:
    processes = [
        Process(pid=it["pid"], name=it["name"], used=it["used"], by_kind=it["by_kind"])
        for it in found["processes"]
    ]
    return Device(
        uuid=found["device"],
        limit=found["limit"],
        used=found["used"],
        left=found["left"],
        headroom=found["headroom"] or 0,
        by_kind=found["by_kind"] or {},
        refusals=found["refusals"]["count"],
        worst_short_by=found["refusals"]["worst_short_by"],
        processes=tuple(processes),
    )
