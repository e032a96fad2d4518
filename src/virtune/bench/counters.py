# SPDX-License-Identifier: Apache-2.0
"""The sampler: stores the kernel's raw counters at the start, every second, on demand and at the end.

Lines are stored as the kernel wrote them, so that a newer parser (`virtune.analyse.trial.counters`) can read old
runs. Processes may end at any time; an ended one is left out of the sample.

A disk's counters begin when a request enters the block layer's queue, and so does its number of requests in flight;
`inflight` in /sys counts a request from when the driver has it (blk-mq devices). The ratio of the two numbers tells
the wait in the queue from the time in the device. They are read in the same moment, so that a sampler which gets no
CPU in busy moments is wrong in both alike.
"""

import abc
import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from virtune.model.facts import Residency
from virtune.model.live import DiskCurve
from virtune.probe.images import cachestat
from virtune.probe.kernel import cpu_stat_files, io_limits, sensors
from virtune.warden import start_time


class Ticker(abc.ABC):
    """Takes a sample when its block begins, each interval while it runs, and when it ends, with a `last` one."""

    last = True

    def __init__(self, name: str, *, interval_seconds: float) -> None:
        self._interval = interval_seconds
        self._begin = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._begin = self.sample(mark="start") / 1e9
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        if self.last:
            self.sample(mark="end")

    @abc.abstractmethod
    def sample(self, *, mark: str = "") -> int:
        """Take a sample now, with a mark to find it by; returns its time (monotonic ns)."""

    def _run(self) -> None:
        count = 0
        while True:
            passed = time.monotonic() - self._begin
            # a late sample must neither delay all that follow, nor cause a burst
            count = max(count + 1, int(passed / self._interval) + 1)
            if self._end.wait(max(0.0, count * self._interval - passed)):
                return
            self.sample()


SCHEMA = "virtune/counters/1"
_PRESSURE = ("cpu", "io", "memory")
_VMSTAT = ("pswpin ", "pswpout ", "pgmajfault ", "nr_dirty ", "nr_writeback ")
_GENERATIONS = 4
"""How deep a process's children are followed: fio forks its jobs once."""


class Sampler(Ticker):
    """Samples counters in its own thread while the block runs; `content()` returns the samples.

    `processes` maps a role ("daemon", "load") to a pid; a process's children have its role. `files` maps a name to a
    file whose page-cache residency is sampled. `groups`: for how long control groups held each process back is
    sampled, too.
    """

    def __init__(
        self,
        *,
        devices: tuple[str, ...] = (),
        processes: Mapping[str, int] | None = None,
        files: Mapping[str, str | Path] | None = None,
        interval_seconds: float = 1.0,
        groups: bool = False,
    ) -> None:
        super().__init__("sampler", interval_seconds=interval_seconds)
        self._devices = frozenset(devices)
        self._files = dict(files or {})
        self._processes: list[tuple[str, int, int]] = []
        self._throttles = cpu_stat_files()
        self._groups: dict[str, tuple[str, ...]] | None = {} if groups else None
        self._sensors = sensors(devices)
        self._lines = [_line(_header(devices) | {"drive_limits": self._sensors.drive_limits})]
        self._lock = threading.Lock()
        for role, pid in (processes or {}).items():
            self._admit(role, pid)

    def add_process(self, role: str, pid: int) -> None:
        self._admit(role, pid)
        self.sample(mark=f"{role} added")

    def sample(self, *, mark: str = "") -> int:
        with self._lock:
            read = self._read(mark)
            self._lines.append(_line(read))
        taken: int = read["t"]
        return taken

    def line(self) -> bytes:
        """Return a sample taken now without keeping it, for who watches without end."""
        with self._lock:
            return _line(self._read(""))

    def content(self) -> bytes:
        """Return all samples as JSON lines; the first line describes their content."""
        with self._lock:
            return b"".join(self._lines)

    def _admit(self, role: str, pid: int) -> None:
        with self._lock:
            self._processes.append((role, pid, start_time(pid)))
            if self._groups is not None:
                self._groups[role] = cpu_stat_files(pid=pid)

    def _read(self, mark: str) -> dict[str, Any]:
        now = time.monotonic_ns()
        sample: dict[str, Any] = {"t": now, "wall": time.time()}
        if mark:
            sample["mark"] = mark
        if self._devices:
            lines = _text("/proc/diskstats").splitlines()
            sample["diskstats"] = [line.strip() for line in lines if self._devices.intersection(line.split()[2:3])]
        sample["threads"], sample["processes"] = self._read_processes()
        sample["stat"] = "".join(line for line in _text("/proc/stat").splitlines(keepends=True) if line[:3] == "cpu")
        pressure = {name: _text(f"/proc/pressure/{name}") for name in _PRESSURE}
        sample["pressure"] = {name: text for name, text in pressure.items() if text}
        cached = ((name, cachestat(path)) for name, path in self._files.items())
        sample["residency"] = {
            name: [one.cached_bytes, one.dirty_bytes] for name, one in cached if isinstance(one, Residency)
        }
        sample["vmstat"] = [line for line in _text("/proc/vmstat").splitlines() if line.startswith(_VMSTAT)]
        sample["loadavg"] = _text("/proc/loadavg").strip()
        sample["throttle"] = {path: _text(path) for path in self._throttles}
        if self._groups is not None:
            sample["groups"] = {role: {path: _text(path) for path in some} for role, some in self._groups.items()}
        if mark:  # temperature and frequency change slowly, and reading a CPU's frequency may wake it
            seen = self._sensors
            sample["clock_source"] = "" if seen.clock_source is None else _text(seen.clock_source).strip()
            for key, paths in (("heat", seen.heat), ("frequency", seen.frequencies), ("drives", seen.drives)):
                sample[key] = {path: _text(path).strip() for path in paths}
            tids = {role: list(threads) for role, threads in sample["threads"].items()}
            sample["switches"] = {role: dict(_switches(some)) for role, some in tids.items()}
        sample["took_ns"] = time.monotonic_ns() - now
        return sample

    def _read_processes(self) -> tuple[dict[str, Any], dict[str, Any]]:
        threads: dict[str, dict[str, Any]] = {}
        processes: dict[str, dict[str, Any]] = {}
        for role, top, started in self._processes:
            if start_time(top) != started:
                continue  # it ended, and its number may be another's by now
            for pid in _with_children(top, _GENERATIONS):
                stat = _text(f"/proc/{pid}/stat")
                if stat:
                    io = _text(f"/proc/{pid}/io")
                    processes.setdefault(role, {})[str(pid)] = {"stat": stat.strip(), "io": io}
                    threads.setdefault(role, {}).update(_threads(pid))
        return threads, processes


def _threads(pid: int) -> Iterator[tuple[str, list[Any]]]:
    with contextlib.suppress(OSError):
        for tid in os.listdir(f"/proc/{pid}/task"):
            stat = _text(f"/proc/{pid}/task/{tid}/stat")
            head, _, tail = stat.rpartition(")")
            fields = tail.split()
            if len(fields) < 13:
                continue
            times = _text(f"/proc/{pid}/task/{tid}/schedstat").split()
            run, wait = (int(times[0]), int(times[1])) if len(times) >= 2 else (None, None)
            yield tid, [head.partition("(")[2], int(fields[11]), int(fields[12]), run, wait]


def _switches(tids: Sequence[str]) -> Iterator[tuple[str, list[int]]]:
    """Yield how often each thread has gone to sleep, and how often it was taken off its CPU."""
    for tid in tids:
        counts = dict(
            line.split(":", 1) for line in _text(f"/proc/{tid}/status").splitlines() if "ctxt_switches" in line
        )
        with contextlib.suppress(KeyError, ValueError):
            yield tid, [int(counts["voluntary_ctxt_switches"]), int(counts["nonvoluntary_ctxt_switches"])]


def _with_children(pid: int, generations: int) -> Iterator[int]:
    yield pid
    if generations == 0:
        return
    # only what the main thread forked: fio and the daemons fork nowhere else, and a pool has many threads to ask
    for child in _text(f"/proc/{pid}/task/{pid}/children").split():
        yield from _with_children(int(child), generations - 1)


def _text(path: str) -> str:
    """Return the content of a kernel file, empty when it is gone. Unbuffered, because this is the hot path."""
    parts = []
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while part := os.read(descriptor, 65536):
                parts.append(part)
        finally:
            os.close(descriptor)
    except OSError:
        return ""
    return b"".join(parts).decode(errors="replace")


def _header(devices: tuple[str, ...]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "ticks_per_second": os.sysconf("SC_CLK_TCK"),
        "cpus": os.cpu_count(),
        "devices": list(devices),
        "io_limits": list(io_limits()),
    }


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


INTERVAL_SECONDS = 0.01
"""How often the device is looked at: a look takes 30 us."""

_POINT_SECONDS = 0.05
"""How often the sums so far are kept."""


class DiskQueue(Ticker):
    """Samples a device while the block runs. A device without these files gives a curve without points."""

    def __init__(self, device: str, *, root: Path = Path("/sys/class/block")) -> None:
        super().__init__("disk-queue", interval_seconds=INTERVAL_SECONDS)
        self._inflight, self._stat = root / device / "inflight", root / device / "stat"
        self._device = device
        self._before = 0.0
        self._inside, self._all, self._due = 0.0, 0.0, 0.0
        self._points: list[tuple[int, int, int, float, float]] = []

    def sample(self, *, mark: str = "") -> int:
        now = time.monotonic()
        with contextlib.suppress(OSError, ValueError):
            inside = sum(map(int, self._inflight.read_text().split()))
            words = [int(word) for word in self._stat.read_text().split()]
            if self._before:
                self._inside += inside * (now - self._before)
                self._all += words[8] * (now - self._before)
            self._before = now
            if mark or now >= self._due:
                sums = (words[0] + words[4], words[3] + words[7], self._inside, self._all)
                self._points.append((int(now * 1e9), *sums))
                self._due = now + _POINT_SECONDS
        return int(now * 1e9)

    def content(self) -> bytes:
        """Return what was seen, as a capture."""
        return json.dumps({"device": self._device, "points": self._points}).encode() + b"\n"

    def curve(self) -> DiskCurve:
        return DiskCurve(points=tuple(self._points))
