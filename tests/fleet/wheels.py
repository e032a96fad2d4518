# SPDX-License-Identifier: Apache-2.0
"""A directory of wheels from which pip installs virtune in a second: they only say where the tests have it."""

import importlib.metadata
import io
import re
import sysconfig
import zipfile
from pathlib import Path

from virtune.fleet.artefact import needed


def wheel(name: str, version: str, files: dict[str, str]) -> tuple[str, bytes]:
    """A small wheel."""
    info = f"{name}-{version}.dist-info"
    every = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*every, f"{info}/RECORD"))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, text in (every | {f"{info}/RECORD": record}).items():
            archive.writestr(path, text)
    return f"{name}-{version}-py3-none-any.whl", packed.getvalue()


def make_wheelhouse(place: Path) -> Path:
    """Write for each package that virtune needs a wheel that says only where the tests have it."""
    for requirement in needed():
        one = re.split(r"[^A-Za-z0-9._-]", requirement)[0]
        files = {f"{one}_there.pth": sysconfig.get_path("purelib") + "\n"} if one == "click" else {}
        name, content = wheel(re.sub(r"[-.]+", "_", one).lower(), importlib.metadata.version(one), files)
        (place / name).write_bytes(content)
    return place
