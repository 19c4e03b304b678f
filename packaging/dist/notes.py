#!/usr/bin/env python3
"""Prints CHANGELOG.md's section of a version: the release's notes.

Usage: notes.py VERSION CHANGELOG.md. Fails if the file has no section, or an empty one, of that version.
"""

import sys


def section(version: str, path: str) -> list[str]:
    """The lines below the heading "## VERSION ...", without empty ones at both ends; none if there is none."""
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
