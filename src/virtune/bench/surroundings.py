# SPDX-License-Identifier: Apache-2.0
"""What surrounds a trial: how much of its images is cached when it begins, in this host's page cache and in storage
below the host; and a loud neighbour, another process of this host that burns its CPUs or loads its disk while it
runs.

Storage below a host has caches of its own: those of the host below a VM, of an array, of a volume that is filled from
a snapshot block by block. What nobody read for a day comes at a sixth of its later speed, which no dropping of this
host's page cache changes. So images are read once before they are measured. The reading is direct, so it leaves that
page cache as it is.

A neighbour has no lower priority than the load, since a neighbouring VM has none either; the warden ends it with the
trial. And what a stack's own processes cost while they have nothing to do: their CPU time in a second without a load.
"""

import contextlib
import errno
import json
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from virtune import shell
from virtune.bench.scratch import drop_cache
from virtune.model.errors import RigError
from virtune.model.evidence import UNDER_LOAD, Check
from virtune.model.facts import Unknown
from virtune.model.stack import CacheState
from virtune.model.study import FirstRead
from virtune.model.text import format_bytes, format_seconds
from virtune.probe.images import cachestat
from virtune.probe.process import Process

Kind = Literal["none", "cpu", "io"]

IMAGE = 8
"""The number of the neighbour's scratch image: no disk of a guest has it."""

_LOUD_NS = 20_000_000
"""fio takes less until its jobs run on an idle host, where its start takes some 10 ms of CPU time."""

_LOUD_SECONDS = 30.0
_TICK_SECONDS = 0.02


class LoudNeighbour:
    """A neighbour that runs; of kind `none` there is none."""

    def __init__(self, kind: Kind, pid: int | None) -> None:
        self.kind, self.pid = kind, pid
        self._before = self._done()

    def check(self) -> tuple[Check, ...]:
        """Check that it did since its start what it was started for; nothing without one."""
        if self.pid is None:
            return ()
        done = self._done() - self._before
        unit = "bytes read" if self.kind == "io" else "ns of CPU time"
        proof = f"process {self.pid}: {done:,} {unit} {UNDER_LOAD}"
        return (Check("host.neighbour", self.kind, self.kind if done > 0 else "none", proof),)

    def _done(self) -> int:
        if self.pid is None:
            return 0
        process = Process(self.pid)
        if self.kind == "io":
            return process.read_bytes() or 0
        return sum(thread.cpu_ns for thread in process.threads())


@contextlib.contextmanager
def neighbour(kind: Kind, warden: shell.Warden, image: Callable[[], Path]) -> Iterator[LoudNeighbour]:
    """Run a neighbour while the block runs; `image` returns the scratch image that it reads. Raises RigError when it
    does not become loud.
    """
    if kind == "none":
        yield LoudNeighbour(kind, None)
        return
    cpus = len(os.sched_getaffinity(0))
    words = ["--name=neighbour", "--thread=1", "--time_based=1", "--runtime=30d", "--eta=never"]
    words += ["--output=neighbour.txt"]
    if kind == "cpu":
        words += ["--ioengine=cpuio", "--cpuload=100", f"--numjobs={cpus}"]
    else:
        words += [f"--filename={image()}", "--readonly", "--rw=randread", "--bs=4k", "--iodepth=32", "--direct=1"]
        words += ["--ioengine=libaio", "--norandommap=1", "--allow_file_create=0", "--invalidate=0"]
    with warden.running([shell.find("fio"), *words], name="neighbour") as child:
        process, deadline = Process(child.pid), time.monotonic() + _LOUD_SECONDS
        while sum(thread.cpu_ns for thread in process.threads()) < _LOUD_NS:
            if child.poll() is not None or time.monotonic() > deadline:
                raise RigError(f"the neighbour that loads {kind} did not begin", hint=child.last_words())
            time.sleep(_TICK_SECONDS)
        yield LoudNeighbour(kind, child.pid)


SECONDS = 1.0
"""How long is measured. An IOThread that polls ends that poll_max_ns after its last work, long before."""

_VCPU = "CPU "
"""How QEMU names the threads of its vCPUs, which belong to the guest's own system."""


def idle_cost(pids: Iterable[int], *, seconds: float = SECONDS) -> str:
    """Let time pass, and write what the threads of these processes used meanwhile, without vCPUs, as JSON."""
    mine = [Process(pid) for pid in pids]
    before, begun = _cpu_ns(mine), time.monotonic()
    time.sleep(seconds)
    used, passed = _cpu_ns(mine) - before, time.monotonic() - begun
    return json.dumps({"seconds": passed, "cpu_seconds": max(0, used) / 1e9}) + "\n"


def _cpu_ns(processes: Iterable[Process]) -> int:
    return sum(one.cpu_ns for process in processes for one in process.threads() if not one.name.startswith(_VCPU))


_CHUNK_BYTES = 1024 * 1024

WARM, COLD = 0.95, 0.02
"""The shares of an image from which on it counts as cached, and below which as not cached: a filesystem keeps a few
pages at the ends of what was read."""


def set_cache(images: Iterable[Path], state: CacheState) -> None:
    """Drop the images from the page cache, read them into it, or leave them as they are. Raises RigError for an image
    that cannot be read.
    """
    for image in images:
        if state == "cold":
            drop_cache(image)
        elif state == "warm":
            try:
                with image.open("rb", buffering=0) as file:
                    while file.read(_CHUNK_BYTES):
                        pass
            except OSError as error:
                raise RigError(f"cannot read {image} into the page cache: {error.strerror}") from None


def cache_state_checks(images: Sequence[Path], state: CacheState) -> tuple[Check, ...]:
    """Check how much of the images is cached now; nothing for the default, which needs no request, and without
    images.
    """
    if state == "cold" or not images:
        return ()
    cached = size = 0
    for image in images:
        found = cachestat(image)
        if isinstance(found, Unknown):
            return (Check("host.cache", state, None, found.because, hidden=True),)
        with image.open("rb") as file:
            cached, size = cached + found.cached_bytes, size + file.seek(0, os.SEEK_END)
    share = cached / size if size else 0.0
    proof = f"cachestat: {format_bytes(cached)} of {format_bytes(size)} are in the page cache"
    seen = state if state == "as-found" or share >= WARM else "cold" if share <= COLD else "partly cached"
    return (Check("host.cache", state, seen, proof),)


BLOCK_BYTES = 1024**2
"""Large enough for every disk's full bandwidth: of cold files 1 MiB at a time read as fast as four of them."""

STRETCH_BYTES = 16 * BLOCK_BYTES
"""Of several images so much is read in turn, so that all of them are equally far wherever the time ends: a study must
not favour the arm whose image came first.
"""

_DEPTH = 4
"""Requests at a time: network storage answers each of them after a millisecond or more."""

_LOOK_SECONDS = 0.1
_PATIENCE_SECONDS = 2.0
"""How long the last blocks are waited for. A disk that hangs keeps its threads, and fails the trials."""


def read_once(
    images: Mapping[Path, int], *, limit_seconds: float, heard: Callable[[float, float], None]
) -> FirstRead:
    """Read the first bytes of each image past the page cache, all at the same pace, for so many seconds at most.

    `heard` is told several times a second what share is read and after how many seconds. Never raises OSError: an
    image that cannot be read is the business of its trials.
    """
    size, begun = sum(images.values()), time.monotonic()
    work = _Work(images)
    try:
        work.begin()
        while work.busy and time.monotonic() < begun + limit_seconds:
            work.wait(_LOOK_SECONDS)
            heard(work.read_bytes / max(1, size), time.monotonic() - begun)
        why = f"the {format_seconds(limit_seconds)} for it were over" if work.busy else ""
    except OSError as error:
        why = _words(error)
    finally:  # of an interruption, too
        work.end()
    return FirstRead(
        images=len(images),
        size_bytes=size,
        read_bytes=min(size, work.read_bytes),
        seconds=time.monotonic() - begun,
        why=work.failed or why,
    )


class _Work:
    """Threads that read blocks of images in their order until none is left, or until they are told to stop."""

    def __init__(self, images: Mapping[Path, int]) -> None:
        self._images = images
        self._ends = contextlib.ExitStack()
        self._threads: list[threading.Thread] = []
        self._blocks: Iterator[tuple[int, int]] = iter(())
        self._lock, self._stop = threading.Lock(), threading.Event()
        self.read_bytes = 0
        self.failed = ""

    @property
    def busy(self) -> bool:
        return any(one.is_alive() for one in self._threads)

    def begin(self) -> None:
        """Open the images and start to read. Raises OSError."""
        opened = []
        for path, size in self._images.items():
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
            self._ends.callback(os.close, descriptor)
            opened.append((descriptor, size))
        self._blocks = in_turn(opened)
        # a daemon's thread does not keep this process from ending where a disk hangs
        self._threads = [threading.Thread(target=self._read, daemon=True) for _ in range(_DEPTH)]
        for one in self._threads:
            one.start()

    def wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for one in self._threads:
            one.join(max(0.0, deadline - time.monotonic()))

    def end(self) -> None:
        """Stop after the blocks on their way, and close the images."""
        self._stop.set()
        self.wait(_PATIENCE_SECONDS)
        if not self.busy:  # else a closed descriptor's number might be another file's when a block is asked for
            self._ends.close()

    def _read(self) -> None:
        with mmap.mmap(-1, BLOCK_BYTES) as room:  # aligned to a page, as direct I/O asks for
            while not self._stop.is_set():
                with self._lock:
                    block = next(self._blocks, None)
                if block is None:
                    return
                try:
                    found = os.preadv(block[0], [room], block[1])
                except OSError as error:
                    self.failed = _words(error)
                    self._stop.set()
                    return
                with self._lock:
                    self.read_bytes += found


def in_turn(opened: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield descriptor and offset of every block, a stretch of each image in turn."""
    longest = max((size for _, size in opened), default=0)
    for begin in range(0, longest, STRETCH_BYTES):
        for descriptor, size in opened:
            for offset in range(begin, min(size, begin + STRETCH_BYTES), BLOCK_BYTES):
                yield descriptor, offset


def _words(error: OSError) -> str:
    if error.errno == errno.EINVAL:
        return "its filesystem does not allow direct I/O"
    return os.strerror(error.errno or errno.EIO)
