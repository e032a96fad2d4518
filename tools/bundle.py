# SPDX-License-Identifier: Apache-2.0
"""Build a bundle that installs the Debian package, QEMU and the test guest on a host without a network.

    python -m tools.bundle [PACKAGE] [DIRECTORY]

It is for hosts of the distribution that builds it: it has all packages that the installation can need there, as a
repository of which apt takes what is missing, and the kernel of the test guest. Needs apt and apt-ftparchive.
"""

import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.tree import pack, source_and_place, write
from virtune.bench.appliance.sources import find_sources

WANTED = ("qemu-system-x86", "busybox-static")
"""What a host needs besides the package for `--rig qemu`."""

INSTALL = """\
#!/bin/sh
# Installs virtune, QEMU and the test guest on {system}; needs root and no network.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
list=$(mktemp)
trap 'rm -f "$list"' EXIT
echo "deb [trusted=yes] file:$here/packages ./" >"$list"
apt() {{
    apt-get -q -o Dir::Etc::sourcelist="$list" -o Dir::Etc::sourceparts=- -o APT::Get::List-Cleanup=0 \\
        -o APT::Sandbox::User=root "$@"
}}
apt update
DEBIAN_FRONTEND=noninteractive apt install -y --no-install-recommends virtune {wanted}
virtune host guest build --kernel "$here"/kernel/boot/vmlinuz-*
"""


def main() -> None:
    """Write the bundle into DIRECTORY (`dist`), and say its name."""
    package, place = source_and_place(sys.argv[1:], ".deb", "make deb")
    codename = platform.freedesktop_os_release()["VERSION_CODENAME"]
    name = f"{package.stem.replace('_', '-')}-{codename}-offline"
    with tempfile.TemporaryDirectory(prefix="virtune-bundle-", dir="/var/tmp") as named:
        tree = Path(named) / name
        _packages(package, tree / "packages")
        _kernel(tree)
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
        write(tree / "install", INSTALL.format(system=system, wanted=" ".join(WANTED)), 0o755)
        pack(Path(named), place / f"{name}.tar")


def _packages(package: Path, place: Path) -> None:
    """Download the package's dependencies, those of a host that has nothing, and write the index that apt reads."""
    (place / "partial").mkdir(parents=True)
    (place / package.name).write_bytes(package.read_bytes())
    nothing = place / "status"
    nothing.touch()
    options = {"Dir::State::status": nothing, "Dir::Cache::archives": place, "APT::Sandbox::User": "root"}
    words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    subprocess.run(
        ["apt-get", "-q", "-y", *words, "--no-install-recommends", "--download-only", "install", str(package),
         *WANTED],
        check=True,
        stdout=sys.stderr,
    )  # fmt: skip
    nothing.unlink()
    (place / "partial").rmdir()
    index = subprocess.run(["apt-ftparchive", "packages", "."], cwd=place, check=True, capture_output=True, text=True)
    write(place / "Packages", index.stdout)


def _kernel(tree: Path) -> None:
    """Unpack the kernel that the test guest is made from, with its modules."""
    with tempfile.TemporaryDirectory() as named:
        sources = find_sources(Path(named))
        shutil.copytree(sources.modules, tree / "kernel/lib/modules" / sources.release, symlinks=True)
        (tree / "kernel/boot").mkdir()
        shutil.copy2(sources.kernel, tree / "kernel/boot")


if __name__ == "__main__":
    main()
