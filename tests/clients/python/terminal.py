"""Runs a program in a terminal until its screen is complete, and ends it with a key.

Prints all that the program has written, without the terminal's control codes.

Usage: terminal.py LAST_WORDS KEY PROGRAM [ARGUMENT...]
"""
import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time

PATIENCE = 60
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>78]|[\x0e\x0f]")


def main():
    last, key, *command = sys.argv[1:]
    child, terminal = pty.fork()
    if child == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
        os.environ["TERM"] = "xterm"
        os.execvp(command[0], command)
    written, pressed, end = b"", False, time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                piece = os.read(terminal, 65536)
            except OSError:  # The program has ended.
                break
            written += piece
        if not pressed and last.encode() in written:
            os.write(terminal, key.encode())
            pressed = True
    else:
        os.kill(child, 9)
    _, status = os.waitpid(child, 0)
    text = CODES.sub("", written.decode(errors="replace"))
    print(text.replace("\r", ""))
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
