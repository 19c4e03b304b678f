#!/usr/bin/env python3
"""Prints the release notes of a version: its section of CHANGELOG.md.

Usage: notes.py VERSION CHANGELOG.md. Fails if the section of that version is absent or empty.
"""

import sys


def section(version: str, path: str) -> list[str]:
    """Returns the lines below the heading "## VERSION ...".

    Empty lines at both ends are left out. The list is empty if there is no such heading.
    """
    lines: list[str] = []
    inside = False
    with open(path, encoding="utf-8") as file:
        for line in file.read().splitlines():
            if line.startswith("## "):
                inside = line[3:].split()[:1] == [version]
            elif inside:
                lines.append(line)
    while lines and not lines[0]:
        del lines[0]
    while lines and not lines[-1]:
        del lines[-1]
    return lines


def main(version: str, path: str) -> None:
    lines = section(version, path)
    if not lines:
        sys.exit(f"gpuslice: {path} has no section of version {version}: name the one that is not released yet so")
    print("\n".join(lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
