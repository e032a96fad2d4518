# SPDX-License-Identifier: Apache-2.0
"""A QEMU started by hand, whose guest has no operating system, and its monitor asked as its owner asks it."""

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import eventually

from virtune import shell
from virtune.bench.qemu.machine import PROGRAM


@contextlib.contextmanager
def strange(tmp_path: Path, name: str, *words: str, program: str = "") -> Iterator[Path]:
    """A QEMU with a disk, started as Proxmox VE does, whose guest has not an operating system. `program` is the first
    word of its command line.
    """
    place, image = tmp_path / f"{name}.qmp", tmp_path / f"{name}.raw"
    image.write_bytes(bytes(2**20))
    argv = [
        program or shell.find(PROGRAM),
        "-name",
        f"{name},debug-threads=on",
        "-display",
        "none",
        "-nodefaults",
        "-m",
        "64",
    ]
    argv += ["-drive", f"file={image},format=raw,if=none,id=d", "-device", "virtio-blk-pci,drive=d,id=scsi0"]
    argv += ["-chardev", f"socket,id=qmp,path={place},server=on,wait=off", "-mon", "chardev=qmp,mode=control", *words]
    with shell.Warden("strange") as warden, warden.running(argv, name="qemu"):
        assert eventually(lambda: place.exists() and answers(place), seconds=20)
        yield place


def answers(place: Path) -> bool:
    """Whether a QEMU listens there: the socket is there before that."""
    with contextlib.suppress(OSError):
        return greeted(place) < 5
    return False


def greeted(place: Path) -> float:
    """Return how long the owner of a monitor waits until it is served, in seconds."""
    begun = time.monotonic()
    with socket.socket(socket.AF_UNIX) as owner:
        owner.settimeout(5)
        owner.connect(str(place))
        assert b"QMP" in owner.recv(4096)
        owner.sendall(b'{"execute":"qmp_capabilities"}')
        assert b"return" in owner.recv(4096)
    return time.monotonic() - begun
