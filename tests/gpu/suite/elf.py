"""Reads the exported names of a shared library from its file, so no tool is needed."""
import struct


def exported(path):
    """Returns the defined global and weak dynamic symbols (64-bit little-endian files)."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is no 64-bit ELF file")
    sections, size, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, sections + at * size) for at in range(count)]
    names = set()
    for _, kind, _, _, offset, length, link, _, _, entry in headers:
        # Section type 11 is the dynamic symbols. Its link is the section with their names.
        if kind != 11 or not entry:
            continue
        strings = headers[link][4]
        for at in range(offset, offset + length, entry):
            name, info, _, section = struct.unpack_from("<IBBH", data, at)
            if section and info >> 4 in (1, 2):
                end = data.index(b"\0", strings + name)
                names.add(data[strings + name:end].decode(errors="replace"))
    return sorted(names)


def loaded(part):
    """Returns the path of the library in this process whose path contains `part`."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        found = {line.split(maxsplit=5)[5].strip() for line in maps if part in line and "/" in line}
    return sorted(found)[0] if found else None
