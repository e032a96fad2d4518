# SPDX-License-Identifier: Apache-2.0
"""A QEMU that was started by hand, observed through its monitor by query commands only.

Of QEMU's block graph below a disk only what lies on the way to the image is measured. Of everything else (backing
images, filters, encryption, jobs) it is said that it is there.
"""

import contextlib
import itertools
import json
import os
import re
import socket
import struct
from asyncio import AbstractEventLoop
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from virtune.bench.live.domain import PlaceReader, place_reader
from virtune.bench.live.emulators import folder_of
from virtune.bench.live.rings import QueueAddresses, RingReader, queues_of
from virtune.bench.qmp import BriefMonitor, Monitor, MonitorAnswer, MonitorEnded, execute_all
from virtune.dialects.qemu.answers import FAILURES
from virtune.dialects.qemu.command import told_apart
from virtune.model.errors import PreconditionError, RigError, words_of
from virtune.model.live import (
    BLOCK_JOB,
    ENCRYPTION,
    DiskCount,
    Histograms,
    LatencyBins,
    LiveDisk,
    LiveVm,
    OperationKind,
)
from virtune.model.stack import LIMITS
from virtune.model.text import printable
from virtune.probe.devices import answered
from virtune.probe.process import Process

_LOCAL = ("file", "host_device", "host_cdrom")

_PLAIN = ("raw", "qcow2", *_LOCAL)
"""Drivers of which a diagnosis knows what they do to a request."""

_OF_DATA = ("data-file", "file", "image", "backing")
"""The child that has a node's data, the first of these that it has, else its first one."""

_NODE_NAME_MAX = 200
"""Characters of a name that are shown."""

_WORDS_MAX = 3 * _NODE_NAME_MAX
"""The same of words with two names of files."""

Job = tuple[str, str]
"""A block job: what it does (`mirror`), and its name."""

_NODE_LIMITS = {one.qmp: one.unit for one in LIMITS}
"""The limits of a throttle group, by the names of `qom-get`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Below:
    """What lies below a disk: the path of its image on this host, None where it has none; the driver that reaches it
    (empty if unknown), the flags of the cache that it is open with, the throttle group of a filter with its limits
    and the command that removes them; and what is there and not measured.
    """

    path: str | None = None
    protocol: str = ""
    opened: tuple[bool, bool] | None = None
    group: str = ""
    limits: Mapping[str, float] = field(default_factory=dict)
    lift: str = ""
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Graph:
    """The nodes by name, and each one's children as pairs of the child's role and its name."""

    nodes: Mapping[str, Mapping[str, Any]]
    children: Mapping[str, tuple[tuple[str, str], ...]]

    @classmethod
    def read(cls, monitor: Monitor) -> Self | None:
        """Ask for it; None where QEMU does not show it (4.0 and later do)."""
        with contextlib.suppress(RigError, KeyError, TypeError):
            nodes = {str(one["node-name"]): one for one in monitor.execute("query-named-block-nodes")}
            shown = monitor.execute("x-debug-query-block-graph")
            names = {one["id"]: f"{one['type']}:{one['name']}" for one in shown["nodes"]}
            children: dict[str, tuple[tuple[str, str], ...]] = {}
            for edge in shown["edges"]:
                name = names[edge["parent"]].removeprefix("block-driver:")
                child = names[edge["child"]].removeprefix("block-driver:")
                children[name] = (*children.get(name, ()), (str(edge["name"]), child))
            return cls(nodes, children)
        return None

    def below(self, monitor: Monitor, root: str, folder: Path) -> Below:
        """Return what lies below a node; `folder` is where QEMU's relative paths begin."""
        way = list(self._way(root))
        leaf = self.nodes.get(way[-1], {})
        path, protocol = str(leaf.get("file", "")), str(leaf.get("drv", ""))
        group, limits = self._throttled(monitor, way)
        lift = {"path": f"/objects/{group}", "property": "limits", "value": dict.fromkeys(_NODE_LIMITS, 0)}
        return Below(
            path=_here(str(folder / path)) if path and protocol in _LOCAL else None,
            protocol=printable(protocol, most=_NODE_NAME_MAX),
            opened=_opened(leaf),
            group=group,
            limits=limits,
            lift=json.dumps({"execute": "qom-set", "arguments": lift}) if limits else "",
            unread=tuple(
                dict.fromkeys(printable(one, most=_WORDS_MAX) for one in self._unread(way, seen=bool(group)))
            ),
        )

    def jobs(self, jobs: Collection[Job], root: str) -> Iterator[str]:
        """Yield which of these block jobs work on a disk."""
        mine, left = {root}, [root]
        while left:
            below = {child for _, child in self.children.get(left.pop(), ())} - mine
            mine |= below
            left += below
        for kind, name in sorted(jobs):
            if mine.intersection(child for _, child in self.children.get(f"block-job:{name}", ())):
                yield f"{BLOCK_JOB} ({printable(f'{kind} {name}', most=_NODE_NAME_MAX)})"

    def _way(self, root: str) -> Iterator[str]:
        """Yield the nodes from a disk down to its image."""
        node: str | None = root
        done: set[str] = set()
        while node is not None and node not in done:  # what is no QEMU may answer with a circle
            yield node
            done.add(node)
            found = dict(self.children.get(node, ()))
            node = next((found[role] for role in (*_OF_DATA, *found) if role in found), None)

    def _chain(self, node: str) -> Iterator[str]:
        """Yield a backing image and those below it."""
        below: str | None = node
        done: set[str] = set()
        while below is not None and below not in done:  # as above
            yield below
            done.add(below)
            below = dict(self.children.get(below, ())).get("backing")

    def _throttled(self, monitor: Monitor, way: list[str]) -> tuple[str, dict[str, float]]:
        """Return the group of a throttle filter on the way and its limits; empty without one that can be read."""
        for node in (self.nodes[name] for name in way if name in self.nodes):
            if node.get("drv") == "throttle":
                with contextlib.suppress(RigError, KeyError, TypeError, ValueError, RecursionError):
                    group = str(json.loads(str(node["file"]).removeprefix("json:"))["throttle-group"])
                    asked = {"path": f"/objects/{group}", "property": "limits"}
                    said = monitor.execute("qom-get", asked)
                    return group, {ours: float(said[name]) for name, ours in _NODE_LIMITS.items() if said.get(name)}
        return "", {}

    def _unread(self, way: list[str], *, seen: bool) -> Iterator[str]:
        for name in way:
            node, driver = self.nodes.get(name, {}), str(self.nodes.get(name, {}).get("drv", ""))
            if driver == "throttle":
                if not seen:
                    yield "a throttle filter, whose limits were not read"
                seen = False  # only those of the first one are
            elif driver == "luks" or (driver == "qcow2" and node.get("encrypted")):
                yield f"{ENCRYPTION} ({driver})"
            elif driver and driver not in _PLAIN and name != way[-1]:
                yield f"the block driver {driver!r}"
            for role, child in self.children.get(name, ()):
                if child not in way:
                    what = "a backing image" if role == "backing" else f"another image ({role})"
                    first, *more = (str(self.nodes.get(one, {}).get("file", one)) for one in self._chain(child))
                    yield f"{what}: {first}" + (f", the first of {1 + len(more)} down to {more[-1]}" if more else "")


def _opened(node: Mapping[str, Any]) -> tuple[bool, bool] | None:
    """Return the flags that QEMU opened a node with; None where it does not show them."""
    with contextlib.suppress(KeyError, TypeError):
        return bool(node["cache"]["direct"]), bool(node["cache"]["no-flush"])
    return None


def _here(path: str) -> str | None:
    """Return the path of an image if it is a file of this host; it may be one that no file can have."""
    if not path.startswith("/") or "\0" in path:
        return None
    there = answered(path, os.path.exists)  # what does not answer is there
    return None if there is False else path


_CONNECT_SECONDS = 5.0

FIELDS = {
    "reads": "rd_operations", "writes": "wr_operations", "flushes": "flush_operations", "read_bytes": "rd_bytes",
    "written_bytes": "wr_bytes", "read_ns": "rd_total_time_ns", "write_ns": "wr_total_time_ns",
    "flush_ns": "flush_total_time_ns",
}  # fmt: skip
"""The fields of a DiskCount, by the names of `query-blockstats`."""

_NAME_MAX = 200
"""Characters of a name that are shown; libvirt's longest are shorter."""

_LIMITS = {one.drive: one.unit for one in LIMITS}
"""The limits of a disk, by the names of `block_set_io_throttle`."""


_HISTOGRAMS: Mapping[OperationKind, str] = {"read": "rd", "write": "wr", "flush": "flush"}

BOUNDARIES_NS = [
    *(step * 10**power // 10 for power in range(4, 10) for step in (10, 15, 20, 30, 50, 70)), 10**10,
]  # fmt: skip
"""Those of a histogram that QEMU is asked to keep, 10 us to 10 s: a percentile is known to a factor of 1.7 at most,
and limits of 1, 1.5, 2, 3, 5 and 7 are decided exactly. QEMU finds a request's bin by halving.
"""


def _was_left(found: Histograms) -> bool:
    """Whether a virtune that is no more asked for these."""
    for one in found.values():
        *ends, last = one.boundaries_ns
        number = last - BOUNDARIES_NS[-1]
        return ends == BOUNDARIES_NS[:-1] and number > 0 and not Path(f"/proc/{number}").exists()
    return False


_SET_HISTOGRAM = "block-latency-histogram-set"
_HANGS = "threads of QEMU wait in the kernel (state D), as for a disk: what serves one of its images may hang"
_ONE_BY_ONE = {"ide-hd": "IDE", "usb-storage": "USB", "usb-bot": "USB", "sd-card": "SD"}
"""Devices that take one request at a time, by QEMU's name of the device or of its controller."""

_ASK_JOBS = "query-block-jobs"
_NOT_RUNNING = "this QEMU does not run its guest: it is {}"
_UNSEEN = Below(unread=("its block nodes, which this QEMU does not show",))


_REASONS = {"io-error": "I/O error", "paused": "user"}


class LiveMonitor:
    """A QEMU behind a QMP socket. Raises PreconditionError when it does not run its guest; with `paused_too` it may
    do so later.
    """

    def __init__(self, monitor: Monitor, pid: int | None, *, paused_too: bool = False) -> None:
        self._monitor, self._folder = monitor, folder_of(pid)
        self._paths: dict[str, str] = {}
        self._nodes: dict[str, str] = {}
        self._ids: dict[str, str] = {}
        self._asked: set[str] = set()
        self._jobs: frozenset[Job] = frozenset()
        self.histograms: Mapping[str, Histograms] = {}
        stopped = _stopped(monitor.execute("query-status"))
        if stopped and not paused_too:
            raise PreconditionError(_NOT_RUNNING.format(stopped))
        self.state: tuple[str, str] = (
            ("paused", _REASONS.get(stopped, stopped)) if stopped else ("running", "unknown")
        )
        """The guest's state, with the reason in libvirt's words."""
        name = _shown(monitor.execute("query-name").get("name", "")) or (f"qemu {pid}" if pid else "qemu")
        emulated = not monitor.execute("query-kvm")["enabled"]
        self.vm = LiveVm(
            name=name, pid=pid, disks=tuple(self._disks()), emulated=emulated, threads=dict(self._named_threads())
        )

    @property
    def monitor(self) -> Monitor:
        return self._monitor

    def counts(self) -> Mapping[str, DiskCount]:
        """Return QEMU's counters of each disk, by its name. Raises PreconditionError when it does not run its guest:
        requests of a guest that is stopped wait for the guest, and for no disk.
        """
        (found,) = counts_of([self])
        if isinstance(found, RigError):
            raise found
        if set(_jobs(self._monitor.execute(_ASK_JOBS))) != self._jobs:
            self.look_again()
        if state := _stopped(self._monitor.execute("query-status")):
            raise PreconditionError(_NOT_RUNNING.format(state))
        return found

    def keep_histograms(self) -> str:
        """Have QEMU keep histograms of the disks that had none when they were last counted; returns why it does not,
        else nothing.
        """
        for name, device in self._ids.items():
            if name in self.histograms and _was_left(self.histograms[name]):
                self._asked.add(name)
            if name not in self.histograms and name not in self._asked:
                # the last one says who asked, so that another virtune takes back what a killed one left
                boundaries = [*BOUNDARIES_NS[:-1], BOUNDARIES_NS[-1] + os.getpid()]
                self._asked.add(name)  # first: what is interrupted may have been set
                try:
                    self._monitor.execute(_SET_HISTOGRAM, {"id": device, "boundaries": boundaries})
                except RigError as error:
                    self._asked.discard(name)
                    return f"percentiles of {self.vm.name}:{name}: {error.message}"
        return ""

    def take_histograms_back(self) -> None:
        for name in tuple(self._asked):
            with contextlib.suppress(RigError):  # it has ended, or the disk is gone
                self._monitor.execute(_SET_HISTOGRAM, {"id": self._ids[name]})
            self._asked.discard(name)

    def rings(self, target: str) -> RingReader | str:
        if self.vm.pid is None:
            return "the wait in the virtqueue: QEMU's process is not seen from here"
        found = self._queues(target)
        if isinstance(found, str):
            return f"the wait in the virtqueue: {found}"
        try:
            return RingReader(self._monitor, self.vm.pid, found)
        except OSError:
            return "the wait in the virtqueue: QEMU's memory is for root and its own user to read"
        except (RigError, ValueError):
            return "the wait in the virtqueue: QEMU does not say where it lies"

    def places(self, target: str) -> PlaceReader | None:
        found = self._queues(target)
        return (
            None if self.vm.pid is None or isinstance(found, str) else place_reader(self._monitor, self.vm.pid, found)
        )

    def _queues(self, target: str) -> list[QueueAddresses] | str:
        """Return the virtqueues of a disk, or why they cannot be seen. Those of a SCSI controller are a disk's where
        it is the only one there.
        """
        path = self._paths[target]
        if sum(other == path for other in self._paths.values()) > 1:
            return "the disks of its controller share it"
        return queues_of(self._monitor, path)

    def rest(self) -> None:
        self._monitor.rest()

    def exits(self) -> int | str:
        if self.vm.emulated:
            return "KVM exits: the guest runs without KVM"
        found = exits_of(self._monitor)
        return "KVM exits: this QEMU does not count them (7.1 and later do)" if found is None else found

    def look_again(self) -> None:
        self.vm = replace(self.vm, disks=tuple(self._disks()), threads=dict(self._named_threads()))

    @property
    def jobs(self) -> frozenset[Job]:
        """The block jobs that there were when its disks were read."""
        return self._jobs

    def _disks(self) -> Iterator[LiveDisk]:
        self._jobs, graph = frozenset(_jobs(self._monitor.execute(_ASK_JOBS))), Graph.read(self._monitor)
        for name, one in named(self._monitor.execute("query-block")):
            inserted = one.get("inserted")
            if not inserted or is_medium(one) or is_unplugged(one):
                continue
            path = _path(one.get("qdev", ""))
            bus = str(self._property(path, "parent_bus") or "")
            # its queues are its own, or those of its SCSI controller
            controller = bus.partition("/virtio-backend/")[0] if "/virtio-backend/" in bus else path
            threads = tuple(self._threads(controller))
            self._paths[name], self._nodes[name] = controller, inserted.get("node-name", "")
            self._ids[name] = one.get("qdev") or one["device"]
            below = _UNSEEN if graph is None else graph.below(self._monitor, self._nodes[name], self._folder)
            jobs = () if graph is None else tuple(graph.jobs(self._jobs, self._nodes[name]))
            limits = {ours: float(inserted[theirs]) for theirs, ours in _LIMITS.items() if inserted[theirs]}
            command = {"id": one.get("qdev", name)} | dict.fromkeys(_LIMITS, 0)
            lift = json.dumps({"execute": "block_set_io_throttle", "arguments": command})
            yield LiveDisk(
                target=name,
                path=below.path,
                threads=tuple(f"IO {thread}" for thread in threads),
                # an IOThread polls by default
                polling=any(self._property(f"/objects/{thread}", "poll-max-ns") for thread in threads),
                direct=inserted["cache"]["direct"],
                tables=inserted["drv"] == "qcow2",
                limits=limits or below.limits,
                lifts=dict.fromkeys(limits, lift) or dict.fromkeys(below.limits, below.lift),
                protocol=below.protocol,
                group=inserted.get("group", "") if limits else below.group,
                unread=below.unread
                + ("a throttle filter with limits of its own",) * bool(limits and below.limits)
                + jobs,
                front=self._front(path, bus),
                writethrough=not inserted["cache"]["writeback"],
                opened=below.opened,
            )

    def _front(self, path: str, bus: str) -> str:
        """Return the kind of a disk's device where that takes one request at a time; else nothing."""
        kinds = str(self._property(path, "type")), str(self._property(bus.rpartition("/")[0], "type"))
        return next((name for word, name in _ONE_BY_ONE.items() if word in kinds and "ahci" not in kinds[1]), "")

    def _threads(self, device: str) -> Iterator[str]:
        """Yield the names of the IOThreads that serve a device; none if it names none."""
        if thread := self._property(device, "iothread"):
            yield _shown(thread.rpartition("/")[2])
        for one in self._property(device, "iothread-vq-mapping") or ():
            yield _shown(one["iothread"].rpartition("/")[2])

    def _named_threads(self) -> Iterator[tuple[int, str]]:
        """Yield thread ids and what QEMU calls these threads. The kernel knows no name of over 15 bytes, as those
        of Proxmox VE's IOThreads are, and none of vCPUs without `debug-threads`.
        """
        with contextlib.suppress(RigError):
            for one in self._monitor.execute("query-iothreads"):
                yield one["thread-id"], f"IO {_shown(one['id'])}"
            for one in self._monitor.execute("query-cpus-fast"):
                if "thread-id" in one:
                    yield one["thread-id"], f"CPU {one.get('cpu-index', '')}"

    def _property(self, path: str, name: str) -> Any:
        with contextlib.suppress(RigError):
            return self._monitor.execute("qom-get", {"path": path, "property": name})
        return None


def _path(device: str) -> str:
    """Return the path of QEMU's object for a device of `query-block`."""
    path = device.removesuffix("/virtio-backend")
    return path if path.startswith("/") else f"/machine/peripheral/{path}"


def is_medium(block: Mapping[str, Any]) -> bool:
    """Whether what `query-block` tells is a read-only medium, as in a CD-ROM drive, and no disk."""
    return bool(block.get("removable") and block.get("inserted", {}).get("ro"))


def is_unplugged(block: Mapping[str, Any]) -> bool:
    """Whether what `query-block` tells is a drive that no device of the guest has, as of `-drive if=none` alone."""
    return bool(block.get("removable") and not block.get("qdev"))


def exits_of(monitor: Monitor) -> int | None:
    """Return how often KVM has left the guest for the host, all vCPUs together; None where QEMU does not say."""
    return _counted(monitor, "exits")


def halt_polls_of(monitor: Monitor) -> int | None:
    """Return how often KVM has polled for a vCPU that had halted, as `exits_of`."""
    return _counted(monitor, "halt_attempted_poll")


def _counted(monitor: Monitor, name: str) -> int | None:
    asked = {"target": "vcpu", "providers": [{"provider": "kvm", "names": [name]}]}
    with contextlib.suppress(RigError):
        found = [one["value"] for vcpu in monitor.execute("query-stats", asked) for one in vcpu["stats"]]
        return sum(found) if found else None
    return None


def counts_of(views: Sequence[LiveMonitor]) -> list[dict[str, DiskCount] | RigError]:
    """Return QEMU's counters of each disk by its name, or what went wrong, for each of these QEMUs. All of them are
    asked at once, since each answers when its main loop gets a CPU.
    """
    answers = execute_all([one.monitor for one in views], "query-blockstats")
    for view, answer in zip(views, answers, strict=True):
        view.histograms = {} if isinstance(answer, RigError) else dict(_histograms(answer))
    return [one if isinstance(one, RigError) else _counts(one) for one in answers]


def _histograms(answer: MonitorAnswer) -> Iterator[tuple[str, Histograms]]:
    """Yield the histograms that QEMU keeps, of each disk that has any."""
    for name, one in named(answer.said):
        kept = ((kind, one["stats"].get(f"{word}_latency_histogram")) for kind, word in _HISTOGRAMS.items())
        found = {
            kind: LatencyBins(tuple(said["boundaries"]), tuple(said["bins"]))
            for kind, said in kept
            if said
            and len(said["bins"]) == len(said["boundaries"]) + 1
            and all(low < high for low, high in itertools.pairwise(said["boundaries"]))
        }
        if found:
            yield name, found


def _counts(answer: MonitorAnswer) -> dict[str, DiskCount]:
    return {
        name: DiskCount(
            t_ns=answer.t_ns,
            discards=one["stats"].get("unmap_operations"),
            discard_ns=one["stats"].get("unmap_total_time_ns"),
            failed=sum(one["stats"].get(kind, 0) for kind in FAILURES),
            **{ours: one["stats"][theirs] for ours, theirs in FIELDS.items()},
        )
        for name, one in named(answer.said)
    }


def _jobs(said: Sequence[Mapping[str, Any]]) -> Iterator[Job]:
    with contextlib.suppress(KeyError, TypeError):
        yield from ((str(one["type"]), str(one["device"])) for one in said)


def _stopped(status: Mapping[str, Any]) -> str:
    """Return the state of a guest that does not run, from the answer of `query-status`; else nothing."""
    return "" if status["running"] else _shown(status["status"])


class LiveMonitors:
    """QEMUs behind QMP sockets, one connection each, which share an event loop. One that ends is left out from then
    on; one that does not answer as QEMU does, or whose guest is stopped, stays as a VM without disks. `failed` are
    sockets behind which none was found, with the reason; `keep`: QEMU is to keep histograms meanwhile.
    """

    def __init__(
        self, views: Sequence[LiveMonitor], failed: Mapping[str, str] = MappingProxyType({}), *, keep: bool = False
    ) -> None:
        self._views = {_free(views[:index], one.vm): one for index, one in enumerate(views)}
        self._seen: dict[str, frozenset[str]] = {}
        self._failed = dict(failed)
        self._stopped: dict[str, str] = {}
        self._keep = keep
        self._unkept: dict[str, str] = {}

    def vms(self) -> tuple[LiveVm, ...]:
        seen = (
            replace(one.vm, name=name, disks=(), missing=(f"the disks of {name}: its guest does not run: {why}",))
            if (why := self._stopped.get(name))
            else replace(one.vm, name=name, missing=tuple(filter(None, (self._unkept.get(name),))))
            for name, one in self._views.items()
        )
        unseen = (LiveVm(name=name, pid=None, disks=(), failed=why) for name, why in self._failed.items())
        return (*seen, *unseen)

    def counts(self) -> Mapping[str, Mapping[str, DiskCount]]:
        """Return QEMU's counters of each disk, by VM and target. A disk or a block job that came or went is looked
        at.
        """
        found: dict[str, Mapping[str, DiskCount]] = {}
        asked = dict(self._views)
        states, jobs = (
            execute_all([one.monitor for one in asked.values()], command) for command in ("query-status", _ASK_JOBS)
        )
        answers = zip(asked.items(), counts_of(list(asked.values())), states, jobs, strict=True)
        for (name, one), counts, state, at_work in answers:
            try:
                if isinstance(counts, RigError):
                    raise counts
                if isinstance(state, RigError):
                    raise state
                if isinstance(at_work, RigError):
                    raise at_work
                self._stopped[name] = _stopped(state.said)
                if self._keep and self._seen.get(name) != frozenset(counts):
                    one.look_again()
                    self._unkept[name] = one.keep_histograms()
                same = self._seen.setdefault(name, frozenset(counts)) == frozenset(counts)
                if not same or set(_jobs(at_work.said)) != one.jobs:
                    one.look_again()
                    self._seen[name] = frozenset(counts)
                found[name] = counts
            except RigError as error:
                del self._views[name]
                if not isinstance(error, MonitorEnded):
                    self._failed[name] = error.message
        return found

    def histograms(self) -> Mapping[str, Mapping[str, Histograms]]:
        return {name: one.histograms for name, one in self._views.items()}

    def take_histograms_back(self) -> None:
        for one in self._views.values():
            one.take_histograms_back()

    def rest(self) -> None:
        for one in self._views.values():
            one.rest()

    def rings(self, vm: str, target: str) -> RingReader | str:
        return self._views[vm].rings(target)


def _free(before: Sequence[LiveMonitor], vm: LiveVm) -> str:
    """Return a name for a VM that none of those before it has."""
    return f"{vm.name} ({vm.pid})" if vm.name in {one.vm.name for one in before} else vm.name


Entry = Mapping[str, Any]


def named(shown: Sequence[Entry]) -> Iterator[tuple[str, Entry]]:
    """Yield the disks of an answer of `query-block` or `query-blockstats` with their names, by which a command line
    has them too: the device's id, else the drive's, else the node's. What has none is no disk.
    """
    disks = [one for one in shown if _name(one)]
    return zip(told_apart(map(_name, disks)), disks, strict=True)


def _name(shown: Entry) -> str:
    qdev = shown.get("qdev", "")
    if device := _DEVICE_ID.match(qdev):
        return _shown(device[1])
    node = shown.get("inserted", shown).get("node-name", "") if qdev else ""
    return "" if _FIRMWARE.fullmatch(qdev) else _shown(shown.get("device") or node)


_DEVICE_ID = re.compile(r"(?:/machine/peripheral/)?([^/]+)")
"""A device's id, which its path has where what reads and writes is a part of the device, as for USB."""

_FIRMWARE = re.compile(r"/machine/\w+\.flash\d+")
"""The path of a machine's flash memory."""


def _shown(name: str) -> str:
    return printable(name, most=_NAME_MAX)


@contextlib.contextmanager
def monitored(
    path: Path, *, paused_too: bool = False, loop: AbstractEventLoop | None = None
) -> Iterator[LiveMonitor]:
    """Yield the QEMU whose monitor listens on a socket; raises PreconditionError when none answers there. Those that
    share an event loop can be asked at once. Between questions the monitor is given back (`rest`).
    """
    owner: list[int] = []

    def connect() -> socket.socket:
        with contextlib.ExitStack() as ends:
            connection = ends.enter_context(socket.socket(socket.AF_UNIX))
            connection.settimeout(_CONNECT_SECONDS)
            connection.connect(str(path))
            pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            connection.setblocking(False)  # noqa: FBT003 - the socket's own word
            if owner and owner[0] != pid:
                raise ConnectionResetError("another QEMU listens there now")
            owner[:] = [pid]
            ends.pop_all()
            return connection

    try:
        opened = BriefMonitor(connect, loop)
    except OSError as error:
        reason = words_of(error)
        raise PreconditionError(
            f"no QEMU answers at {path}: {reason}", hint="`-qmp unix:PATH,server=on,wait=off` makes QEMU listen"
        ) from None
    try:
        with opened as monitor:
            yield LiveMonitor(monitor, owner[0] or None, paused_too=paused_too)
    except RigError as error:
        hint = _HANGS if owner[0] and Process(owner[0]).waits_for_disk else error.hint
        raise PreconditionError(f"{path}: {error.message}", hint=hint) from None
