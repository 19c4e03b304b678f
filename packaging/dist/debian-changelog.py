#!/usr/bin/env python3
"""Prints the section of CHANGELOG.md about a version in the form that Debian's tools read.

Usage: debian-changelog.py PACKAGE VERSION CHANGELOG.md. In the environment,
SOURCE_DATE_EPOCH is the date of the entry, and MAINTAINER is the name that signs it.
"""

import os
import sys
import textwrap
from email.utils import formatdate

sys.path.insert(0, os.path.dirname(__file__))
from notes import section  # noqa: E402


def main(package: str, version: str, path: str) -> None:
    print(f"{package} ({version}) unstable; urgency=medium\n")
    # A package of an unreleased commit lists the unreleased changes.
    entries: list[str] = []
    for line in section(version, path) or section("Unreleased", path):
        if line.startswith("- "):
            entries.append(line[2:])
        elif line.startswith("  ") and entries:
            entries[-1] += " " + line.strip()
    for entry in entries:
        print(textwrap.fill(entry, 78, initial_indent="  * ", subsequent_indent="    ", break_long_words=False))
    date = formatdate(int(os.environ["SOURCE_DATE_EPOCH"]))
    print(f"\n -- {os.environ['MAINTAINER']}  {date.replace('-0000', '+0000')}")


main(*sys.argv[1:])
