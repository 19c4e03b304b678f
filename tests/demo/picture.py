#!/usr/bin/env python3
"""Draws what tests/demo/two_engines.sh prints on a terminal to an SVG file.

Usage: python3 tests/demo/picture.py FILE.svg (after `make`; `make picture` calls it)
"""
import html
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from fcntl import ioctl
from pathlib import Path

COLUMNS = 100
DEMO = Path(__file__).parent / "two_engines.sh"
# In pixels: a character's width in the 14-pixel font, a line's height, the margin, the title bar.
WIDTH, HEIGHT, MARGIN, BAR = 8.43, 19, 18, 34
# The first pattern that matches gives a line its class.
CLASSES = [("note", "^# "), ("command", r"^\$ "), ("bad", "dies|no room"), ("good", "serves$")]


def recorded():
    """Runs the demo on its own terminal, with its own folder for the lists of runs."""
    reader, terminal = pty.openpty()
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 60, COLUMNS, 0, 0))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        environment = {**os.environ, "XDG_RUNTIME_DIR": folder, "TERM": "xterm"}
        demo = subprocess.Popen([DEMO], stdout=terminal, stderr=terminal, env=environment)
        os.close(terminal)
        text = b""
        while True:
            try:
                read = os.read(reader, 65536)
            except OSError:  # The last process has closed the terminal.
                break
            if not read:
                break
            text += read
        if demo.wait() != 0:
            sys.exit(text.decode())
    return re.sub("\x1b\\[[0-9;]*m", "", text.decode().replace("\r\n", "\n")).strip("\n")


def drawn(text):
    lines = text.split("\n")
    width = round(COLUMNS * WIDTH + 2 * MARGIN)
    height = BAR + len(lines) * HEIGHT + MARGIN
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        "<title>gpuslice on a terminal: two engines on one card</title>",
        "<style>text{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace;fill:#c9d1d9;white-space:pre}"
        ".note{fill:#79c0ff}.command{fill:#fff;font-weight:700}.bad{fill:#ff7b72}.good{fill:#7ee787}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#161b22"/>',
    ]
    for x, colour in [(20, "#ff5f58"), (40, "#ffbd2e"), (60, "#18c132")]:
        out.append(f'<circle cx="{x}" cy="18" r="6" fill="{colour}"/>')
    before = None
    for number, line in enumerate(lines):
        name = next((name for name, pattern in CLASSES if re.search(pattern, line)), None)
        if before == "bad" and line and not name:  # An error ends at a line of another kind.
            name = "bad"
        before = name
        if not line:
            continue
        kind = f' class="{name}"' if name else ""
        y = BAR + (number + 1) * HEIGHT - 5
        out.append(f'<text x="{MARGIN}" y="{y}"{kind} xml:space="preserve">{html.escape(line, quote=False)}</text>')
    return "\n".join([*out, "</svg>", ""])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    Path(sys.argv[1]).write_text(drawn(recorded()))
