"""Uses features of Python: extension modules, ctypes, threads, children by fork and by spawn."""
import ctypes
import multiprocessing
import os
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import zlib


def square(number):
    return number * number


if __name__ == "__main__":
    cos = ctypes.CDLL("libm.so.6").cos
    cos.restype, cos.argtypes = ctypes.c_double, [ctypes.c_double]
    print("cos", cos(0.0))
    print("atoi", ctypes.CDLL(None).atoi(b"12"))
    try:
        ctypes.CDLL("libm.so.6").no_such_function
    except AttributeError as error:
        print("error", str(error).rpartition(":")[2])
    print("sqlite", sqlite3.connect(":memory:").execute("select 1 + 1").fetchone()[0])
    print("ssl", bool(ssl.create_default_context()))
    print("zlib", zlib.crc32(b"slice"))
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, pool.map(square, range(5)))
    one, other = socket.socketpair()
    thread = threading.Thread(target=lambda: other.sendall(b"from a thread"))
    thread.start()
    thread.join()
    print(one.recv(99).decode())
    print(subprocess.run([sys.executable, "-c", "print('child')"], capture_output=True, text=True).stdout.strip())
    pid = os.fork()
    if pid == 0:
        os._exit(7)
    print("forked child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
