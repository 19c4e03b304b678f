"""What the dynamic loader knows of an address."""
import ctypes as c


class Info(c.Structure):
    _fields_ = [("file", c.c_char_p), ("base", c.c_void_p), ("name", c.c_char_p), ("address", c.c_void_p)]


LIBC = c.CDLL(None)
try:
    _dladdr = LIBC.dladdr
except AttributeError:
    # Before glibc 2.34 it has a library of its own.
    _dladdr = c.CDLL("libdl.so.2").dladdr
_dladdr.argtypes = [c.c_void_p, c.POINTER(Info)]


def of_address(address):
    """(file, exported name that begins just there or None); None where no library has the address."""
    info = Info()
    if not _dladdr(address, c.byref(info)):
        return None
    exact = info.name is not None and info.address == address
    return (info.file or b"").decode(errors="replace"), info.name.decode() if exact else None


def mapping(address):
    """The line of /proc/self/maps that an address is in, without numbers: permissions and file."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            words = line.split(maxsplit=5)
            first, last = (int(end, 16) for end in words[0].split("-"))
            if first <= address < last:
                return f"{words[1]} {words[5].strip() if len(words) > 5 else '(no file)'}"
    return None


def libraries(*parts):
    """The files that are mapped here whose path has one of the parts in it."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if "/" in line}
    return sorted(path for path in paths if any(part in path for part in parts))
