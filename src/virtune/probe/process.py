# SPDX-License-Identifier: Apache-2.0
"""Read a process from /proc/PID: its open files, its I/O rings, its threads, its program. "There is none" and "we may
not read it" are different answers.

A process that is gone holds nothing; one of another user, or a kernel that shows less, gives the answer `hidden`.

* io_uring: a descriptor `anon_inode:[io_uring]`. The tail of its completion queue (`CqTail` in fdinfo, Linux 5.19)
  counts all requests that it ever completed. A kernel shows some of it, or nothing (seen with 6.18), while the ring
  is in use, which is most of the time under load, so it is read until it is shown.
* native (Linux AIO): a mapping `/[aio]`, which is the completion ring of a context. Its tail moves with each
  completion; it wraps around, so it only shows whether it moved.
"""

import contextlib
import os
import re
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

PROC = Path("/proc")

Ring = tuple[str, int]
"""An io_uring by its descriptor (`io_uring`, 11), or a kernel AIO context by its address (`native`, 0x7f00...)."""

IO_URING, NATIVE = "io_uring", "native"

_LINK_OF_RING = "anon_inode:[io_uring]"

RING_SECONDS, _RING_WAIT_SECONDS = 0.25, 0.0002
"""How long a ring in use is read again, and how soon: a program that lost its CPU inside it holds it that long."""

_OF_A_RING = re.compile(rb"^UserFiles:", re.MULTILINE)
"""The line that every kernel has which shows anything of a ring."""

RING_FILES = re.compile(rb"^UserFiles:\s*(?:0$|[0-9]+\n *[0-9]+: )", re.MULTILINE)
"""A ring's files as they are when it was not in use: none, or their number and the first of them."""

_AIO_RING = struct.Struct("=6I")
"""`struct aio_ring` of the kernel: id, number of entries, head, tail, magic, features; in the host's byte order."""

_AIO_MAGIC = 0xA10A10A1

_MAPPED = re.compile(r"^([0-9a-f]+)-[0-9a-f]+ .*/\[aio\]", re.MULTILINE)
_TAIL = re.compile(rb"^CqTail:\s*(\w+)$", re.MULTILINE)
_FLAGS = re.compile(r"^flags:\s*([0-7]+)$", re.MULTILINE)
_ALLOWED = re.compile(r"^Cpus_allowed_list:\s*(\S+)$", re.MULTILINE)
_LOCKED = re.compile(r"^VmLck:\s*(\d+) kB$", re.MULTILINE)
_MEMFD_PAGES = re.compile(r"^\S+ \S+ \S+ \S+ \S+\s+/memfd:.*?^KernelPageSize:\s*(\d+) kB$", re.MULTILINE | re.DOTALL)
_OF_NO_FILE = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ 00:00 0\s*\n((?:\w+:.*\n)*)", re.MULTILINE)
_MEMFD_NODES = re.compile(r"^\S+ (?:bind(?:=\w+)*:(\S+)|\S+) file=/memfd:\S*(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rings:
    """The kernel's I/O rings of a process, and the position of each.

    `places` has None for a ring whose position the kernel does not show. `hidden` are the kinds whose number is not
    readable either.
    """

    places: Mapping[Ring, int | None] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()

    def count(self, kind: str) -> int:
        """Return the number of visible rings of a kind."""
        return sum(1 for found, _ in self.places if found == kind)

    @property
    def unseen(self) -> bool:
        """Whether the position of any ring is unknown."""
        return bool(self.hidden) or None in self.places.values()


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """One thread: its name, and how many nanoseconds it has been on a CPU."""

    tid: int
    name: str
    cpu_ns: int


@dataclass(frozen=True, slots=True)
class Process:
    """A process by its id; every method reads its present state. `proc` is the path of /proc."""

    pid: int
    proc: Path = PROC

    @property
    def exists(self) -> bool:
        return self._path("fd").exists()

    @property
    def began(self) -> str:
        """When it was started, in the kernel's ticks since the host was; empty where none runs."""
        return self._began("stat")

    def thread_began(self, tid: int) -> str:
        """Return when a thread of it was started, in the same ticks; empty where none runs."""
        return self._began("task", str(tid), "stat")

    def _began(self, *parts: str) -> str:
        fields = (self._text(*parts) or "").rpartition(")")[2].split()
        return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else ""

    @property
    def readable(self) -> bool:
        """Whether we may read its descriptors and mappings, which is not so for another user's process."""
        return os.access(self._path("fd"), os.R_OK | os.X_OK) and os.access(self._path("maps"), os.R_OK)

    @property
    def waits_for_disk(self) -> bool:
        """Whether any thread of it waits in the kernel, as for a disk (state D)."""
        with contextlib.suppress(OSError):
            states = (one.read_bytes().rpartition(b")")[2].split()[:1] for one in self._path("task").glob("*/stat"))
            return [b"D"] in states
        return False

    def program(self) -> Path | None:
        """Return the file that it runs; None when that may not be seen."""
        with contextlib.suppress(OSError):
            return self._path("exe").readlink()
        return None

    def runs(self, program: Path) -> bool:
        """Whether that file is the one that it runs; raises OSError where either cannot be seen."""
        return self._path("exe").samefile(program)

    def argv(self) -> tuple[str, ...]:
        """Return its command line; empty when it is gone."""
        with contextlib.suppress(OSError):
            return tuple(word.decode(errors="replace") for word in self._path("cmdline").read_bytes().split(b"\0"))
        return ()

    def descriptors(self) -> Mapping[int, str] | None:
        """Return what it holds open, by descriptor; empty when it is gone, None when we may not look."""
        try:
            numbers = os.listdir(self._path("fd"))
        except (FileNotFoundError, ProcessLookupError):
            return {}
        except OSError:
            return None
        found = {}
        for number in numbers:
            with contextlib.suppress(OSError):  # it was closed meanwhile
                found[int(number)] = str((self._path("fd") / number).readlink())
        return found

    def flags(self, descriptor: int) -> int | None:
        """Return the flags that a file was opened with (`os.O_DIRECT`, ...); None when they are not shown."""
        shown = _FLAGS.search(self._text("fdinfo", str(descriptor)) or "")
        return None if shown is None else int(shown[1], 8)

    def opened(self, file: Path) -> Mapping[int, int] | None:
        """Return the flags of each descriptor on a file; empty when it holds none, None when we may not look."""
        held, real = self.descriptors(), os.path.realpath(file)
        if held is None:
            return None
        flags = {number: self.flags(number) for number, link in held.items() if link == real}
        return {number: value for number, value in flags.items() if value is not None}

    def rings(self) -> Rings:
        """Return its io_urings and kernel AIO contexts, and the position of each."""
        hidden = set()
        held = self.descriptors()
        places: dict[Ring, int | None] = {}
        if held is None:
            hidden.add(IO_URING)
        for number, link in (held or {}).items():
            if link == _LINK_OF_RING:
                places[IO_URING, number] = self._tail_of_ring(number)
        addresses = self._contexts()
        if addresses is None:
            hidden.add(NATIVE)
        places |= {(NATIVE, address): place for address, place in self._tails_of(addresses or [])}
        return Rings(places=places, hidden=frozenset(hidden))

    def ring_kinds(self) -> set[str]:
        """Return the kinds of rings that it is seen to have."""
        found = {IO_URING} if _LINK_OF_RING in (self.descriptors() or {}).values() else set()
        return found | ({NATIVE} if self._contexts() else set())

    def threads(self) -> Iterator[Thread]:
        """Yield its threads; none when it is gone."""
        with contextlib.suppress(OSError):
            for tid in os.listdir(self._path("task")):
                with contextlib.suppress(OSError, ValueError, IndexError):
                    task = self._path("task", tid)
                    spent = int((task / "schedstat").read_text().split()[0])
                    yield Thread(tid=int(tid), name=(task / "comm").read_text().strip(), cpu_ns=spent)

    def waited_ns(self) -> int:
        """Return how long its threads have waited for a CPU, all of them together."""
        waited = 0
        with contextlib.suppress(OSError):
            for tid in os.listdir(self._path("task")):
                with contextlib.suppress(OSError, ValueError, IndexError):
                    waited += int((self._path("task", tid) / "schedstat").read_text().split()[1])
        return waited

    def cpus_of(self, tid: int) -> str | None:
        """Return the CPUs that a thread may run on (`0-1,4`); None when it is gone."""
        shown = _ALLOWED.search(self._text("task", str(tid), "status") or "")
        return None if shown is None else shown[1]

    def read_bytes(self) -> int | None:
        """Return how many bytes it read from disks; None where that is not shown to us."""
        found = re.search(r"^read_bytes: ([0-9]+)$", self._text("io") or "", re.MULTILINE)
        return None if found is None else int(found[1])

    def locked_bytes(self) -> int:
        """Return how much memory it has locked, for itself or for a device that it drives; 0 where that is hidden."""
        found = _LOCKED.search(self._text("status") or "")
        return 0 if found is None else int(found[1]) * 1024

    def memory_file(self, name: str) -> BinaryIO | None:
        """Open a memory file (memfd) that it holds, for reading; None when it holds none of that name, or we may not
        look.
        """
        numbers = [
            number for number, link in (self.descriptors() or {}).items() if link == f"/memfd:{name} (deleted)"
        ]
        with contextlib.suppress(OSError, IndexError):
            return self._path("fd", str(numbers[0])).open("rb")
        return None

    def memfd_page_bytes(self) -> int | None:
        """Return the size of the pages on which its shared memory lies; None when that may not be seen."""
        shown = _MEMFD_PAGES.search(self._text("smaps") or "")
        return None if shown is None else int(shown[1]) * 1024

    def memfd_nodes(self) -> tuple[str, str] | None:
        """Return the NUMA nodes to which its shared memory is bound (empty for any), and those on which its pages
        lie; None where neither may be seen.
        """
        shown = _MEMFD_NODES.search(self._text("numa_maps") or "")
        return None if shown is None else (shown[1] or "", ",".join(re.findall(r" N([0-9]+)=", shown[2])))

    def own_memory(self, size_bytes: int) -> Mapping[str, str] | None:
        """Return what smaps says of the mapping of that size that is of no file, such as a guest's memory; None where
        there is none to see.
        """
        for begins, ends, said in _OF_NO_FILE.findall(self._text("smaps") or ""):
            if int(ends, 16) - int(begins, 16) == size_bytes:
                return {name: value.strip() for name, value in re.findall(r"^(\w+):(.*)$", said, re.MULTILINE)}
        return None

    def _path(self, *parts: str) -> Path:
        return self.proc.joinpath(str(self.pid), *parts)

    def _text(self, *parts: str) -> str | None:
        with contextlib.suppress(OSError):
            return self._path(*parts).read_text(errors="replace")
        return None

    def _tail_of_ring(self, descriptor: int) -> int | None:
        with contextlib.suppress(OSError, ValueError):
            shown = _TAIL.search(shown_of_ring(self._path("fdinfo", str(descriptor))))
            return None if shown is None else int(shown[1], 0)
        return None

    def _contexts(self) -> list[int] | None:
        try:
            text = self._path("maps").read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return []
        except OSError:
            return None
        return [int(address, 16) for address in _MAPPED.findall(text)]

    def _tails_of(self, addresses: list[int]) -> Iterator[tuple[int, int | None]]:
        """Yield the position of each context: None where its memory is not readable, or has an unknown layout."""
        for address in addresses:
            tail = None
            with contextlib.suppress(OSError, struct.error), self._path("mem").open("rb", buffering=0) as memory:
                memory.seek(address)
                _, _, _, moved, magic, _ = _AIO_RING.unpack(memory.read(_AIO_RING.size))
                tail = moved if magic == _AIO_MAGIC else None
            yield address, tail


def shown_of_ring(fdinfo: Path, wanted: re.Pattern[bytes] = _OF_A_RING, *, until: float | None = None) -> bytes:
    """Return what the kernel shows of an io_uring, read again while that lacks the wanted part, as it may while the
    ring is in use; without it where that goes on (`until`, monotonic), or the kernel never shows it. Raises OSError
    when it is gone.
    """
    deadline = time.monotonic() + RING_SECONDS if until is None else until
    while not wanted.search(text := fdinfo.read_bytes()) and time.monotonic() < deadline:
        time.sleep(_RING_WAIT_SECONDS)
    return text


_EMULATOR = re.compile(r"qemu-system-[\w-]+|qemu-kvm|kvm")


def process_of_domain(uuid: str) -> Process | None:
    """Return the QEMU that runs the domain of a UUID; None when none is visible here."""
    return processes_of_domains().get(uuid)


def processes_of_domains() -> Mapping[str, Process]:
    """Return the visible QEMUs that were started with a UUID, by it."""
    found: dict[str, Process] = {}
    for name in os.listdir(PROC):
        if name.isdecimal():
            words = Process(int(name)).argv()
            if "-uuid" in words[:-1]:
                found.setdefault(words[words.index("-uuid") + 1], Process(int(name)))
    return found


def emulators() -> Mapping[int, tuple[str, ...]]:
    """Return the command lines of the visible QEMU system emulators, by process id."""
    found = {}
    for name in os.listdir(PROC):
        words = Process(int(name)).argv() if name.isdecimal() else ()
        if words and _EMULATOR.fullmatch(words[0].rpartition("/")[2]):
            found[int(name)] = tuple(word for word in words if word)
    return found
