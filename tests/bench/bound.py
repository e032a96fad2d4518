# SPDX-License-Identifier: Apache-2.0
"""Files of the kernel's that others stand in for during a test, by a bind mount."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

HALTING = Path("/sys/module/kvm/parameters/halt_poll_ns")
THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def told(*words: object) -> str:
    """Return what a program says, which ends well."""
    done = subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@contextlib.contextmanager
def halting_file(place: Path) -> Iterator[Path]:
    """Have a file of `place` stand for what says how long KVM polls: some kernels only show theirs."""
    file = place / HALTING.name
    file.write_text(HALTING.read_text())
    told("mount", "--bind", file, HALTING)
    try:
        yield file
    finally:
        told("umount", HALTING)
