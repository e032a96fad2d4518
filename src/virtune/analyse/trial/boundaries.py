# SPDX-License-Identifier: Apache-2.0
"""Boundaries: the latency of requests at each point on their way down, and their number. fio measures it in the
application, the guest's kernel in its block layer, QEMU from when it takes a request off the virtqueue, and this
host's kernel at the disk.

All are means over the same window, from counters read at its begin and end.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from virtune.analyse.trial.counters import device_count
from virtune.model.counters import DeviceCount, DiskUse, Use
from virtune.model.evidence import RINGS, of_guest
from virtune.model.layers import Boundary
from virtune.model.stack import Stack

_MILLION = 1e6
_WRAP_MS = 2**32
"""The kernel prints the times of a disk as 32-bit milliseconds."""

_MIN_REQUESTS = 20
"""With fewer requests no mean is computed: the kernel's times are in whole milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """The counters of a boundary: requests in so many seconds, and their total time in ns."""

    requests: float
    seconds: float
    total_ns: float

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds

    @property
    def mean_ns(self) -> float:
        """The mean time of a request."""
        return self.total_ns / self.requests


def boundaries_of(parts: Mapping[str, bytes], used: Use | None, stack: Stack) -> dict[Boundary, Timed]:
    """Return the boundaries below the application that a trial's captures measure."""
    found: dict[Boundary, Timed | None] = {}
    if stack.kind.in_guest:
        found["guest"] = _of_all(_guest_disk(parts, number) for number in range(stack.guests))
        if stack.disks == 1:  # only the first disk's rings are read
            found["ring"] = _of_all(_ring(parts, number) for number in range(stack.guests))
        found["backend"] = _of_all(_qemu(parts, number) for number in range(stack.guests))
    elif stack.kind.front == "export":
        found["ring"], found["backend"] = _ring(parts, 0), _taken(parts)
    if used is not None and stack.spread is None:
        found["device"] = device_of(used)
    return {name: one for name, one in found.items() if one is not None and one.requests >= _MIN_REQUESTS}


def boundary_values(timed: Mapping[Boundary, Timed], iops: float | None) -> Iterator[tuple[str, float]]:
    """Yield the metrics of boundaries: the mean latency from there down, and requests per 100 of the application."""
    for name, one in timed.items():
        yield f"below.{name}", one.mean_ns
        if iops:
            yield f"requests.{name}", one.rate / iops * 100


def device_of(used: Use) -> Timed | None:
    """Return the counters of the topmost disk of a chain, since those below count the same requests again."""
    return None if not used.disks else timed_disk(used.disks[0], used.seconds)


def timed_disk(disk: DiskUse, seconds: float) -> Timed | None:
    """Return how long the reads and writes of a disk took."""
    requests = disk.reads + disk.writes
    if not requests or disk.latency_us_mean is None:
        return None
    return Timed(requests=requests, seconds=seconds, total_ns=disk.latency_us_mean * 1e3 * requests)


def _of_all(parts: Iterable[Timed | None]) -> Timed | None:
    """Add up what several guests or disks counted; None unless all of them did."""
    found = list(parts)
    known = [one for one in found if one is not None]
    if not known or len(known) < len(found):
        return None
    # each over its own seconds, which differ by milliseconds: rates and times per second can be added
    seconds = known[0].seconds
    return Timed(
        requests=sum(one.rate for one in known) * seconds,
        seconds=seconds,
        total_ns=sum(one.total_ns / one.seconds for one in known) * seconds,
    )


def _guest_disk(parts: Mapping[str, bytes], number: int) -> Timed | None:
    """Return the guest kernel's counters of its disk over the measured time."""
    try:
        seen = json.loads(parts[of_guest("guest.json", number)])
        disks = [one.removeprefix("/dev/") for one in (str(seen["device"]), *str(seen.get("further", "")).split())]
        lines = [json.loads(line) for line in parts[of_guest("guest-counters.jsonl", number)].splitlines()[1:]]
        marks = {line["mark"]: line["t"] for line in lines if "mark" in line}
        begin, stop = marks["begin"], marks["stop"]
        texts = [str(line["text"]) for line in lines if line.get("text") and begin <= line["t"] <= stop]
        each = [_between_texts(texts[0], texts[-1], disk) for disk in disks]
    except (KeyError, ValueError, TypeError, IndexError, RecursionError):
        return None
    return _of_all(each)


def _between_texts(begin: str, end: str, disk: str) -> Timed | None:
    first, last = _counted(begin, disk), _counted(end, disk)
    if first is None or last is None or last[0] <= first[0]:
        return None
    return _between(first[1], last[1], last[0] - first[0])


def _counted(text: str, disk: str) -> tuple[float, DeviceCount] | None:
    """Return the guest's clock in seconds and the counters of its disk, from files read in the guest."""
    lines = text.splitlines()
    line = next((one for one in lines if one.split()[2:3] == [disk] and len(one.split()) >= 14), None)
    return None if line is None else (float(lines[0].split()[0]), device_count(line)[1])


def _between(first: DeviceCount, last: DeviceCount, seconds: float) -> Timed | None:
    requests = last.reads - first.reads + last.writes - first.writes
    if requests <= 0:
        return None
    milliseconds = (last.read_ms - first.read_ms) % _WRAP_MS + (last.write_ms - first.write_ms) % _WRAP_MS
    return Timed(requests=requests, seconds=seconds, total_ns=milliseconds * _MILLION)


def _qemu(parts: Mapping[str, bytes], number: int) -> Timed | None:
    """Return QEMU's counters of a guest's disk, from when it takes a request off the virtqueue."""
    try:
        looks = json.loads(parts[of_guest("qemu-blockstats.json", number)])
        begin, stop = looks["begin"], looks["stop"]
        seconds = (stop["t"] - begin["t"]) / 1e9
        return timed_by_qemu(begin["stats"], stop["stats"], seconds)
    except (KeyError, ValueError, TypeError, RecursionError):
        return None


def timed_by_qemu(begin: Mapping[str, int], stop: Mapping[str, int], seconds: float) -> Timed | None:
    """Return the difference of two `query-blockstats` answers. Raises KeyError if a counter is missing."""

    def rise(*names: str) -> int:
        return sum(stop[name] - begin[name] for name in names)

    requests = rise("rd_operations", "wr_operations")
    if requests <= 0 or seconds <= 0:
        return None
    return Timed(requests=requests, seconds=seconds, total_ns=rise("rd_total_time_ns", "wr_total_time_ns"))


def _ring(parts: Mapping[str, bytes], number: int) -> Timed | None:
    """Return how long requests were in a guest's virtqueues.

    Their numbers were sampled; with their rate Little's law gives the times.
    """
    return _by_rings(parts, number, "offered_mean")


def _taken(parts: Mapping[str, bytes]) -> Timed | None:
    """Return how long a storage daemon had the requests of its export, from when it took them off the virtqueues. It
    counts none itself, so this is what the rings show.
    """
    return _by_rings(parts, 0, "taken_mean")


def _by_rings(parts: Mapping[str, bytes], number: int, name: str) -> Timed | None:
    try:
        seen = json.loads(parts[of_guest(RINGS, number)])
        completed, seconds, mean = seen["completed"], seen["seconds"], seen[name]
        return Timed(requests=completed, seconds=seconds, total_ns=mean * seconds * 1e9) if seconds > 0 else None
    except (KeyError, ValueError, TypeError, RecursionError):
        return None
