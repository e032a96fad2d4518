# SPDX-License-Identifier: Apache-2.0
"""The QEMU processes of this host: which one runs a domain, and its command line."""

import contextlib
import os
from pathlib import Path


def process_of_domain(uuid: str) -> int | None:
    """Return the pid of the QEMU that runs the domain of a UUID; None when none is seen here."""
    wanted = uuid.encode()
    for name in os.listdir("/proc"):
        if name.isdecimal():
            words = _words(int(name))
            if wanted in words and words[max(0, words.index(wanted) - 1)] == b"-uuid":
                return int(name)
    return None


def argv_of(pid: int) -> tuple[str, ...]:
    """Return a process's command line; empty when it is gone."""
    return tuple(word.decode(errors="replace") for word in _words(pid))


def _words(pid: int) -> list[bytes]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return []
