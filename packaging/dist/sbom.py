"""Prints the software bill of materials of one architecture's binaries as CycloneDX 1.5.

Usage: sbom.py TRIPLE. The same Cargo.lock and compiler give the same bytes, because the output has
no time, serial number or path.
"""

import json
import os
import subprocess
import sys

PACKAGES = ("gpuslice", "gpuslice-dra", "gpuslice-hook", "gpuslice-node", "gpuslice-shim")


def cargo(*arguments: str) -> str:
    command = [os.environ.get("CARGO", "cargo"), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def checksums() -> dict[tuple[str, str], str]:
    """Returns the SHA-256 of each crate, as Cargo.lock pins it."""
    found, name, version = {}, "", ""
    with open("Cargo.lock", encoding="utf-8") as lock:
        for line in lock:
            key, _, value = line.strip().partition(" = ")
            value = value.strip('"')
            if key == "name":
                name = value
            elif key == "version":
                version = value
            elif key == "checksum":
                found[name, version] = value
    return found


def main(triple: str) -> None:
    metadata = json.loads(
        cargo("metadata", "--locked", "--format-version=1", f"--filter-platform={triple}")
    )
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    ours = {package["name"]: id_ for id_, package in packages.items() if id_ in metadata["workspace_members"]}

    def linked(id_: str) -> list[str]:
        """Returns the crates linked into this one, without those of build scripts and tests."""
        dependencies = nodes[id_]["deps"]
        return [it["pkg"] for it in dependencies if any(kind["kind"] is None for kind in it["dep_kinds"])]

    seen, waiting = set(), [ours[name] for name in PACKAGES]
    while waiting:
        id_ = waiting.pop()
        if id_ not in seen:
            seen.add(id_)
            waiting += linked(id_)

    def reference(id_: str) -> str:
        return "pkg:cargo/{name}@{version}".format(**packages[id_])

    sums = checksums()
    components = []
    for id_ in sorted(seen, key=reference):
        package = packages[id_]
        component = {
            "type": "library",
            "bom-ref": reference(id_),
            "name": package["name"],
            "version": package["version"],
            "purl": reference(id_),
        }
        if package["license"]:
            # Some crates still write a slash in place of OR.
            component["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
        if (package["name"], package["version"]) in sums:
            component["hashes"] = [{"alg": "SHA-256", "content": sums[package["name"], package["version"]]}]
        components.append(component)
    rust = subprocess.run(["rustc", "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout.split()[1]
    components.append(
        {"type": "library", "bom-ref": f"pkg:generic/rust-std@{rust}", "name": "rust-std", "version": rust,
         "licenses": [{"expression": "MIT OR Apache-2.0"}], "purl": f"pkg:generic/rust-std@{rust}"}
    )
    version = packages[ours["gpuslice"]]["version"]
    top = f"pkg:generic/gpuslice@{version}?arch={triple.split('-')[0]}"
    dependencies = [{"ref": top, "dependsOn": [reference(ours[name]) for name in PACKAGES]}]
    dependencies += [
        {"ref": reference(id_), "dependsOn": sorted({reference(it) for it in linked(id_)})}
        for id_ in sorted(seen, key=reference)
    ]
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": top,
                "name": "gpuslice",
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "purl": top,
            }
        },
        "components": components,
        "dependencies": dependencies,
    }
    json.dump(document, sys.stdout, indent=1)
    print()


main(sys.argv[1])
