"""Runs the command ``gpuslice ...`` for ``python -m gpuslice ...``."""

import os
import sys

from . import Error, executable


def main() -> None:
    try:
        path = executable()
    except Error as error:
        print(f"gpuslice: {error}", file=sys.stderr)
        sys.exit(125)
    os.execv(path, ["gpuslice", *sys.argv[1:]])


main()
