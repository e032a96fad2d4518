# SPDX-License-Identifier: Apache-2.0
"""What a process's I/O engines have completed, read from outside.

A process that has carried other stacks holds what they left: an io_uring or a native AIO context of its main loop
stays until the process ends. That it is there proves nothing then; that it goes on completing requests does, since
nothing but this stack is open.

* io_uring: the tail of its completion queue, `CqTail` in /proc/PID/fdinfo (Linux 5.19), counts all it ever completed
* native: the kernel maps the completion ring of an AIO context into the process; its tail moves with each completion
"""

import contextlib
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

Engine = tuple[str, int]
"""One engine of a process: its kind (`io_uring`, `native`), and its descriptor or address."""

_PROC = Path("/proc")
_RING = struct.Struct("=6I")
"""`struct aio_ring` of the kernel: id, number of entries, head, tail, magic, features."""

_MAGIC = 0xA10A10A1


def completions_of(pid: int, *, proc: Path = _PROC) -> Mapping[Engine, int | None]:
    """Return for each engine that a process holds how far it has come; None where this kernel does not show it.

    For io_uring this is the number of completions, for native the place in a ring that is written round and round:
    only that it changed says something. Empty when the process is gone. `proc` is where the kernel shows processes.
    """
    place = proc / str(pid)
    return dict([*_rings(place), *_contexts(place)])


def _rings(place: Path) -> Iterator[tuple[Engine, int | None]]:
    for entry in _entries(place / "fd"):
        with contextlib.suppress(OSError):
            if str(entry.readlink()) == "anon_inode:[io_uring]":
                yield ("io_uring", int(entry.name)), _tail_of_ring(place / "fdinfo" / entry.name)


def _tail_of_ring(info: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        for line in info.read_text().splitlines():
            if line.startswith("CqTail:"):
                return int(line.partition(":")[2], 0)
    return None


def _contexts(place: Path) -> Iterator[tuple[Engine, int | None]]:
    with contextlib.suppress(OSError):
        for line in (place / "maps").read_text(errors="replace").splitlines():
            if "/[aio]" in line:
                address = int(line.partition("-")[0], 16)
                yield ("native", address), _tail_of_context(place / "mem", address)


def _tail_of_context(memory: Path, address: int) -> int | None:
    with contextlib.suppress(OSError, struct.error), memory.open("rb", buffering=0) as file:
        file.seek(address)
        _, _, _, tail, magic, _ = _RING.unpack(file.read(_RING.size))
        return int(tail) if magic == _MAGIC else None
    return None


def _entries(place: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return list(place.iterdir())
    return []
