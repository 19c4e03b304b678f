"""Queries the dynamic loader and the memory map about an address."""
import ctypes as c


class Info(c.Structure):
    _fields_ = [("file", c.c_char_p), ("base", c.c_void_p), ("name", c.c_char_p), ("address", c.c_void_p)]


LIBC = c.CDLL(None)
try:
    _dladdr = LIBC.dladdr
except AttributeError:
    # Before glibc 2.34, dladdr is in a library of its own.
    _dladdr = c.CDLL("libdl.so.2").dladdr
_dladdr.argtypes = [c.c_void_p, c.POINTER(Info)]


def of_address(address):
    """Returns (file, name exported at exactly this address or None); None outside all libraries."""
    info = Info()
    if not _dladdr(address, c.byref(info)):
        return None
    exact = info.name is not None and info.address == address
    return (info.file or b"").decode(errors="replace"), info.name.decode() if exact else None


def mapping(address):
    """Returns the permissions and the file of the mapping that contains an address."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            words = line.split(maxsplit=5)
            first, last = (int(end, 16) for end in words[0].split("-"))
            if first <= address < last:
                return f"{words[1]} {words[5].strip() if len(words) > 5 else '(no file)'}"
    return None


def libraries(*parts):
    """Returns the mapped files whose path contains one of the parts."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if "/" in line}
    return sorted(path for path in paths if any(part in path for part in parts))
