# SPDX-License-Identifier: Apache-2.0
"""Build what is released: the source archive, the wheel, bills of materials, checksums. `make release` calls it.

    python -m tools.release [DIRECTORY] [ARCHITECTURE ...]

Builds HEAD, not the working tree, twice in two places, and ends with an error where the two differ: then something
of this machine came into them. Each ARCHITECTURE (`aarch64`) gets a wheel besides this machine's.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
BILLS = "cyclonedx-bom>=7,<8"
"""The program that writes down the locked Python packages; it runs in an environment of its own."""


def main() -> None:
    """Build into DIRECTORY (`dist`), which keeps what has other names."""
    place = Path(sys.argv[1] if len(sys.argv) > 1 else "dist").resolve()
    place.mkdir(parents=True, exist_ok=True)
    first, second = _built(sys.argv[2:]), _built(sys.argv[2:])
    if first != second:
        differ = sorted(name for name in first | second if first.get(name) != second.get(name))
        sys.exit(f"error: two builds of one commit differ: {', '.join(differ)}")
    stem = next(name for name in first if name.endswith(".tar.gz")).removesuffix(".tar.gz")
    for name, content in first.items():
        (place / name).write_bytes(content)
    bill = place / f"{stem}.python.cdx.json"
    words = ["--output-reproducible", "--of", "JSON", "-o", str(bill), "requirements/run.txt"]
    _run(
        [
            str(Path(sys.executable).parent / "uv"),
            "tool",
            "run",
            "-q",
            "--from",
            BILLS,
            "cyclonedx-py",
            "requirements",
            *words,
        ]
    )
    bills = [bill.name]
    for wheel in sorted(name for name in first if name.endswith(".whl")):
        bills.append(f"{stem}.crates.{wheel[:-4].rpartition('_17_')[2]}.cdx.json")
        with zipfile.ZipFile(place / wheel) as packed:
            crates = next(name for name in packed.namelist() if name.endswith(".cdx.json"))
            (place / bills[-1]).write_bytes(packed.read(crates))
    named = sorted([*first, *bills])
    sums = [f"{hashlib.sha256((place / name).read_bytes()).hexdigest()}  {name}\n" for name in named]
    (place / "SHA256SUMS").write_text("".join(sums))
    sys.stdout.write("".join(sums))


def _built(others: Sequence[str]) -> dict[str, bytes]:
    """Build HEAD in a directory of its own, with wheels for other architectures; each file's content by its name."""
    when = commit_time()
    with tempfile.TemporaryDirectory(prefix="virtune-release-", dir="/var/tmp") as named:
        sources, out = Path(named) / "sources", Path(named) / "out"
        sources.mkdir()
        subprocess.run(["tar", "-x", "-C", str(sources)], input=_run(["git", "archive", "HEAD"]), check=True)
        for machine in ("", *others):
            environment = {"SOURCE_DATE_EPOCH": when, "VIRTUNE_PROGRAMS": "required", "VIRTUNE_MACHINE": machine}
            build = [sys.executable, "-m", "hatchling", "build", "-d", str(out), "-t", "sdist", "-t", "wheel"]
            subprocess.run(build, cwd=sources, env=os.environ | environment, check=True, stdout=sys.stderr)
        return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def commit_time() -> str:
    """When HEAD was committed, in seconds since 1970: the time of all that is built from it."""
    return _run(["git", "log", "-1", "--format=%ct"]).decode().strip()


def _run(command: list[str]) -> bytes:
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


if __name__ == "__main__":
    main()
