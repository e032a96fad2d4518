# SPDX-License-Identifier: Apache-2.0
"""A Debian or Ubuntu made from its packages, as a fresh machine has it, in which commands run as root."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCES = {
    "bookworm": (
        "deb http://deb.debian.org/debian bookworm main",
        "deb http://deb.debian.org/debian-security bookworm-security main",
    ),
    "trixie": ("deb http://deb.debian.org/debian trixie main",),
    # Debian has no key of Ubuntu's; nothing of it runs outside of the test
    "noble": ("deb [trusted=yes] http://archive.ubuntu.com/ubuntu noble main universe",),
}

AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
"""The certificates that this machine trusts: one between it and the package index may have its own."""

ENTER = """
mount -t proc proc "$0/proc"; mount --rbind /sys "$0/sys"; mount --rbind /dev "$0/dev"; mount -t tmpfs tmpfs "$0/run"
exec chroot "$0" env -i PATH=/usr/sbin:/usr/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
"""


@dataclass
class FreshRoot:
    """Such a system."""

    path: Path

    def run(self, *words: str, status: int = 0, seconds: float = 600, offline: bool = False) -> str:
        """Run a command there, `offline` without a network, and return what it said."""
        apart = ["--mount", "--pid", "--fork", *(["--net"] if offline else [])]
        command = ["unshare", *apart, "sh", "-euc", ENTER, str(self.path), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
        assert done.returncode == status, f"{words}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout + done.stderr

    def install(self, *packages: str) -> None:
        """Install packages."""
        self.run("apt-get", "install", "-y", "-q", "--no-install-recommends", *packages)


@contextlib.contextmanager
def fresh_root(place: Path, suite: str) -> Iterator[FreshRoot]:
    """Make one, which is gone afterwards."""
    root = place / suite
    try:
        subprocess.run(["mmdebstrap", "-q", "--variant=apt", suite, str(root), *SOURCES[suite]], check=True)
        made = FreshRoot(root)
        made.run("apt-get", "update", "-q")
        made.install("ca-certificates")
        shutil.copy2(AUTHORITIES, root / AUTHORITIES.relative_to("/"))
        yield made
    finally:
        shutil.rmtree(root, ignore_errors=True)
