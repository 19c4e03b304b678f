"""Every answer of cuGetProcAddress and of dlsym, as in tests/sim/recorded/lookups-BRANCH.txt.

tests/clients/c/driver_lookups.c asks the same questions, and explains the lines. In a slice the
answers must be the same, except that our function replaces the driver's wherever the library has
one of that name.
"""
import ctypes as c
import os
import re

import elf
import loader
import tell

VERSIONS = [0, 1, 1999, 2000, 2020, 2030, 3000, 3010, 3020, 3999, 4000, 4010, 4020, 5000, 5050, 6000, 6050, 7000, 7050, 8000,
            9000, 9020, 10000, 10010, 10020, 11000, 11010, 11020, 11030, 11040, 11050, 11060, 11070, 11080, 12000, 12010,
            12020, 12030, 12040, 12050, 12060, 12080, 12090, 13000, 13010, 13020, 99999, -1]
ENDS = ["", "_v2", "_v3", "_v4", "_ptsz", "_ptds", "_v2_ptsz", "_v2_ptds", "_v3_ptsz", "WithFlags", "WithParams",
        "WithParams_ptsz"]
HERE = os.path.dirname(os.path.abspath(__file__))
# The path in the kit, and the path in the repository.
RECORDINGS = [f"{HERE}/../lookups-550.txt", f"{HERE}/../../../sim/recorded/lookups-550.txt"]


class Lookups:
    """Looks names up in libcuda."""

    def __init__(self):
        self.cuda = c.CDLL("libcuda.so.1")
        self.untouched = c.create_string_buffer(1)
        self.nothing = c.addressof(self.untouched)
        self.known = {}
        self.found, self.status = c.c_void_p(), c.c_int()
        self.v2, self.v1 = self.cuda.cuGetProcAddress_v2, self.cuda.cuGetProcAddress
        places = [c.c_char_p, c.c_void_p, c.c_int, c.c_uint64]
        self.v1.argtypes, self.v2.argtypes = places, places + [c.c_void_p]
        self.cuda.cuInit(0)

    def symbol(self, name, address):
        """Returns the exported name at an address."""
        if not address:
            return "-"
        if address == self.nothing:
            return "unwritten"
        if address not in self.known:
            place = loader.of_address(address)
            if place is None:
                shown = "hidden"
            elif "libgpuslice.so" in place[0]:
                shown = "own:?"
                for end in ENDS:
                    function = getattr(self.cuda, name + end, None)
                    if function is not None and c.cast(function, c.c_void_p).value == address:
                        shown = f"own:{name}{end}"
                        break
            else:
                shown = place[1] or "hidden"
            self.known[address] = shown
        return self.known[address]

    def answers(self, way, name, flags):
        """Returns VERSION:RC/STATUS/SYMBOL for each version that changes the answer."""
        found, status, nothing, encoded = self.found, self.status, self.nothing, name.encode()
        at, said = c.addressof(found), c.addressof(status) if way == "2" else None
        line, last, last_text = "", None, ""
        for version in VERSIONS:
            found.value, status.value = nothing, -1
            if way == "1":
                code = self.v1(encoded, at, version, flags)
            else:
                code = self.v2(encoded, at, version, flags, said)
            answer = (code, status.value, found.value)
            if answer != last:
                last, text = answer, f"{code}/{status.value}/{self.symbol(name, found.value)}"
                if text != last_text:
                    line, last_text = f"{line} {version}:{text}", text
        return line

    def lines(self, name):
        """Returns the lines of one name."""
        shown, answered = name or '""', []
        for way in "2n1":
            by_flags = [self.answers(way, name, flags) for flags in range(4)]
            for flags, line in enumerate(by_flags):
                if by_flags.index(line) == flags:
                    numbers = "".join(str(other) for other in range(4) if by_flags[other] == line)
                    answered.append(f"{shown} {numbers} {way}{line}")
        function = getattr(self.cuda, name, None) if name else None
        address = c.cast(function, c.c_void_p).value if function is not None else None
        return answered + [f"{shown} dlsym {self.symbol(name, address)}"]


def base(name):
    """Returns the name to pass to cuGetProcAddress: without version and stream suffix."""
    return re.sub(r"(_v\d+)?(_ptsz|_ptds)?$", "", name)


def names_to_ask():
    """Returns the names of the recordings, and then the other names that this library exports."""
    names = []
    with open(next(path for path in RECORDINGS if os.path.exists(path)), encoding="utf-8") as file:
        for line in file:
            name = line.split(" ")[0].replace('""', "")
            if name not in names[-1:]:
                names.append(name)
    path = elf.loaded("libcuda.so")
    more = {base(name) for name in elf.exported(path) if re.match(r"cu[A-Z]", name)} - set(names)
    return names + sorted(more)


def with_stand_ins(line, ours):
    """Returns the expected line in a slice: our function wherever the library has that name."""
    name, first, *words = line.split(" ")
    replaced = []
    for word in words:
        before, slash, symbol = word.rpartition("/")
        replaced.append(f"{before}{slash}{'own:' if symbol in ours else ''}{symbol}")
    return " ".join([name, first] + replaced)


def driver_branch(real):
    """Returns the driver's branch, such as 550: from the library's file name, else from NVML, which
    reports it without a GPU.
    """
    named = re.match(r"libcuda\.so\.(\d{3})\.", real)
    if named:
        return named.group(1)
    text = c.create_string_buffer(96)
    try:
        c.CDLL("libnvidia-ml.so.1").nvmlSystemGetNVMLVersion(text, 96)
    except (OSError, AttributeError):
        return None
    said = re.match(r"\d+\.(\d{3})\.", text.value.decode(errors="replace"))
    return said.group(1) if said else None


def check():
    asked = Lookups()
    # On the simulator a sample is enough, because another test compares it with the recordings.
    names = names_to_ask()[::8 if tell.SIM else 1]
    lines = [line for name in names for line in asked.lines(name)]
    version = c.c_int()
    asked.cuda.cuDriverGetVersion(c.byref(version))
    real = os.path.basename(os.path.realpath(elf.loaded("libcuda.so")))
    branch = driver_branch(real) or f"cuda-{version.value}"
    path = os.path.join(os.environ["GPU_CHECK_OUT"], f"lookups-{branch}.txt")
    tell.expect(len(lines) > 4 * len(names) > 100, f"only {len(lines)} lines")
    if not tell.IN_SLICE:
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        tell.answer("lookup-table", {"file": os.path.basename(path), "names": len(names), "lines": len(lines),
                                     "CUDA": version.value, "library": real})
        return
    if not os.path.exists(path):
        tell.skip("the answers without a slice were not recorded")
    with open(path, encoding="utf-8") as file:
        bare = file.read().splitlines()
    library = elf.loaded("libgpuslice.so")
    ours = set(elf.exported(library)) if library else set()
    expected = [with_stand_ins(line, ours) for line in bare]
    wrong = [(should, is_) for should, is_ in zip(expected, lines) if should != is_]
    own = sum(line.count("own:") for line in lines)
    tell.expect(library and own > 20, f"only {own} look-ups gave the library's functions")
    tell.expect(not wrong and len(lines) == len(bare), f"{len(wrong)} lines differ, the first: {wrong[:1]}"[:400])
    tell.answer("own-lookups", {"lines": len(lines), "lines that differ": len(wrong), "first": wrong[:3],
                                "answers that are ours": own}, not wrong)


tell.main(check)
