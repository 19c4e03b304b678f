"""Downloads the files of vLLM that compute memory sizes and that detect the GPU, from PyPI.

Usage: vendor.py FOLDER. The tests use target/engines/vendor. pip's own reader of remote wheels
reads 750 kB of the 336 MB by range requests. The files belong to the vendor and are never
committed. A file that differs from the one that was examined is refused.
"""
import hashlib
import sys
from pathlib import Path
from zipfile import ZipFile

VERSION = "0.33.0"
FILES = {
    "vllm/platforms/__init__.py": "5460e7a751717eca51983d05891b33b1796963a419343a9c16f0a5858e014440",
    "vllm/platforms/cuda.py": "0cfa80cce99aae194689d822edef808e5c78454eec696fb1c2ded7d17dfe71bb",
    "vllm/platforms/interface.py": "11f06cfa184fa7380177eaf26bca58c421306f0eea273c9f35519d35ff4a6f75",
    "vllm/third_party/pynvml.py": "0621230b02f0d9dc403c76ea3a6814b1ba3acac6b2b9e9ca92b5d5ae8adc2acb",
    "vllm/utils/mem_utils.py": "8b21755c8cae378b64d2d5c72c901135820072764218808191f266a65cf3aad5",
    "vllm/utils/mem_constants.py": "2dde21dda876ecbd19bfb152d28d084efa1f7a22a7817d6c91c3eb7dc849f9b6",
    "vllm/v1/worker/utils.py": "85b23497017e5db07ea8f3fa56807c44dd7dd269f1977031bd86acdadfb0b5ec",
}


def is_there(folder):
    """Returns whether every file is in the folder, unchanged."""
    return all(
        (folder / name).is_file()
        and hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
        for name, digest in FILES.items()
    )


def fetch(folder):
    """Reads the files from the wheel that pip selects for this machine."""
    from pip._internal.commands import create_command
    from pip._internal.network.lazy_wheel import LazyZipOverHTTP
    from pip._vendor.packaging.specifiers import SpecifierSet

    command = create_command("download")
    options, _ = command.parse_args(["--no-deps", "--only-binary", ":all:", "vllm"])
    with command.main_context():
        session = command.get_default_session(options)
        finder = command._build_package_finder(options=options, session=session)
        found = finder.find_best_candidate("vllm", SpecifierSet(f"=={VERSION}"))
        if found.best_candidate is None:
            raise SystemExit(f"PyPI has no wheel of vllm {VERSION} for this Python")
        address = found.best_candidate.link.url.split("#")[0]
        with LazyZipOverHTTP(address, session) as remote:
            wheel = ZipFile(remote)
            for name in FILES:
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(wheel.read(name))


def main():
    folder = Path(sys.argv[1])
    if not is_there(folder):
        fetch(folder)
    if not is_there(folder):
        raise SystemExit(f"the files of vllm {VERSION} are not those that were examined")


if __name__ == "__main__":
    main()
