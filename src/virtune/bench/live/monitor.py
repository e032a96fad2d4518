# SPDX-License-Identifier: Apache-2.0
"""A QEMU that was started by hand, observed through its monitor by query commands only.

Of QEMU's block graph below a disk only what lies on the way to the image is measured. Of everything else (backing
images, filters, encryption, jobs) it is said that it is there.
"""

import contextlib
import json
import socket
import struct
from asyncio import AbstractEventLoop
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from virtune.bench.live.domain import PlaceReader, place_reader
from virtune.bench.live.rings import QueueAddresses, RingReader, queues_of
from virtune.bench.qmp import BriefMonitor, Monitor, MonitorAnswer, MonitorEnded, execute_all
from virtune.dialects.qemu.answers import FAILURES
from virtune.model.errors import PreconditionError, RigError, words_of
from virtune.model.live import DiskCount, LiveDisk, LiveVm
from virtune.model.stack import LIMITS
from virtune.model.text import printable

_LOCAL = ("file", "host_device", "host_cdrom")

_PLAIN = ("raw", "qcow2", *_LOCAL)
"""Drivers of which a diagnosis knows what they do to a request."""

_OF_DATA = ("data-file", "file", "image", "backing")
"""The child that has a node's data, the first of these that it has, else its first one."""

_NODE_NAME_MAX = 200
"""Characters of a name that are shown."""

_NODE_LIMITS = {one.qmp: one.unit for one in LIMITS}
"""The limits of a throttle group, by the names of `qom-get`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Below:
    """What lies below a disk: the path of its image on this host, None where it has none; the driver that reaches it
    (empty if unknown), the throttle group of a filter with its limits and the command that removes them; and what is
    there and not measured.
    """

    path: str | None = None
    protocol: str = ""
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

    def below(self, monitor: Monitor, root: str) -> Below:
        """Return what lies below a node."""
        way = list(self._way(root))
        leaf = self.nodes.get(way[-1], {})
        path, protocol = str(leaf.get("file", "")), str(leaf.get("drv", ""))
        group, limits = self._throttled(monitor, way)
        lift = {"path": f"/objects/{group}", "property": "limits", "value": dict.fromkeys(_NODE_LIMITS, 0)}
        return Below(
            path=_here(path) if protocol in _LOCAL else None,
            protocol=printable(protocol, most=_NODE_NAME_MAX),
            group=group,
            limits=limits,
            lift=json.dumps({"execute": "qom-set", "arguments": lift}) if limits else "",
            unread=tuple(
                dict.fromkeys(printable(one, most=_NODE_NAME_MAX) for one in self._unread(way, seen=bool(limits)))
            ),
        )

    def jobs(self, monitor: Monitor, root: str) -> Iterator[str]:
        """Yield the block jobs that work on a disk now."""
        mine = self._all(root)
        with contextlib.suppress(RigError, KeyError, TypeError):
            for job in monitor.execute("query-block-jobs"):
                if mine.intersection(child for _, child in self.children.get(f"block-job:{job['device']}", ())):
                    what = printable(f"{job['type']} {job['device']}", most=_NODE_NAME_MAX)
                    yield f"a block job that does I/O of its own ({what})"

    def _way(self, root: str) -> Iterator[str]:
        """Yield the nodes from a disk down to its image."""
        node: str | None = root
        done: set[str] = set()
        while node is not None and node not in done:  # what is no QEMU may answer with a circle
            yield node
            done.add(node)
            found = dict(self.children.get(node, ()))
            node = next((found[role] for role in (*_OF_DATA, *found) if role in found), None)

    def _all(self, root: str) -> set[str]:
        found, left = {root}, [root]
        while left:
            below = {child for _, child in self.children.get(left.pop(), ())} - found
            found |= below
            left += below
        return found

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
                yield f"encryption in QEMU ({driver})"
            elif driver and driver not in _PLAIN and name != way[-1]:
                yield f"the block driver {driver!r}"
            for role, child in self.children.get(name, ()):
                if child not in way:
                    what = "a backing image" if role == "backing" else f"another image ({role})"
                    yield f"{what}: {self.nodes.get(child, {}).get('file', child)}"


def _here(path: str) -> str | None:
    """Return the path of an image if it is a file of this host; it may be one that no file can have."""
    with contextlib.suppress(OSError, ValueError):
        return path if path.startswith("/") and Path(path).exists() else None
    return None


_CONNECT_SECONDS = 5.0

FIELDS = {
    "reads": "rd_operations", "writes": "wr_operations", "flushes": "flush_operations", "read_bytes": "rd_bytes",
    "written_bytes": "wr_bytes", "read_ns": "rd_total_time_ns", "write_ns": "wr_total_time_ns",
    "flush_ns": "flush_total_time_ns",
}  # fmt: skip
"""The fields of a DiskCount, by the names of `query-blockstats`."""

_NAME_MAX = 200
"""Characters of a name that are shown; libvirt's longest are shorter."""

_LIMITS = {
    one.qmp.removesuffix("-total").replace("-read", "_rd").replace("-write", "_wr"): one.unit for one in LIMITS
}
"""The limits of a disk, by the names of `block_set_io_throttle`."""


_NOT_RUNNING = "this QEMU does not run its guest: it is {}"
_UNSEEN = Below(unread=("its block nodes, which this QEMU does not show",))


class LiveMonitor:
    """A QEMU behind a QMP socket. Raises PreconditionError when it does not run its guest; with `paused_too` it may
    do so later.
    """

    def __init__(self, monitor: Monitor, pid: int | None, *, paused_too: bool = False) -> None:
        self._monitor = monitor
        self._paths: dict[str, str] = {}
        self._nodes: dict[str, str] = {}
        state = _stopped(monitor.execute("query-status"))
        if state and not paused_too:
            raise PreconditionError(_NOT_RUNNING.format(state))
        name = _shown(monitor.execute("query-name").get("name", "")) or (f"qemu {pid}" if pid else "qemu")
        emulated = not monitor.execute("query-kvm")["enabled"]
        self.vm = LiveVm(name=name, pid=pid, disks=tuple(self._disks()), emulated=emulated)

    @property
    def monitor(self) -> Monitor:
        """Its monitor."""
        return self._monitor

    def counts(self) -> Mapping[str, DiskCount]:
        """Return QEMU's counters of each disk, by its name. Raises PreconditionError when it does not run its guest:
        requests of a guest that is stopped wait for the guest, and for no disk.
        """
        (found,) = counts_of([self])
        if isinstance(found, RigError):
            raise found
        if state := _stopped(self._monitor.execute("query-status")):
            raise PreconditionError(_NOT_RUNNING.format(state))
        return found

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

    def jobs(self, target: str) -> tuple[str, ...]:
        graph = Graph.read(self._monitor)
        return () if graph is None else tuple(graph.jobs(self._monitor, self._nodes[target]))

    def _queues(self, target: str) -> list[QueueAddresses] | str:
        """Return the virtqueues of a disk, or why they cannot be seen. Those of a SCSI controller are a disk's where
        it is the only one there.
        """
        path = self._paths[target]
        if sum(other == path for other in self._paths.values()) > 1:
            return "the disks of its controller share it"
        return queues_of(self._monitor, path)

    def rest(self) -> None:
        """Give the monitor back until the next question."""
        self._monitor.rest()

    def exits(self) -> int | str:
        if self.vm.emulated:
            return "KVM exits: the guest runs without KVM"
        found = exits_of(self._monitor)
        return "KVM exits: this QEMU does not count them (7.1 and later do)" if found is None else found

    def look_again(self) -> None:
        """Read its disks anew: some came or went."""
        self.vm = replace(self.vm, disks=tuple(self._disks()))

    def _disks(self) -> Iterator[LiveDisk]:
        graph = Graph.read(self._monitor)
        for one in self._monitor.execute("query-block"):
            inserted = one.get("inserted")
            if not inserted or is_medium(one) or not (name := name_of(one)):
                continue
            controller = self._controller(one.get("qdev", ""))
            threads = tuple(self._threads(controller))
            self._paths[name], self._nodes[name] = controller, inserted.get("node-name", "")
            below = _UNSEEN if graph is None else graph.below(self._monitor, self._nodes[name])
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
                unread=below.unread + (("a throttle filter with limits of its own",) * bool(limits and below.limits)),
            )

    def _controller(self, device: str) -> str:
        """Return the path of the device that has a disk's queues: the disk's own, or that of its SCSI controller."""
        path = device.removesuffix("/virtio-backend")
        path = path if path.startswith("/") else f"/machine/peripheral/{path}"
        bus = self._property(path, "parent_bus")
        controller, found, _ = (bus or "").partition("/virtio-backend/")
        return controller if found else path

    def _threads(self, device: str) -> Iterator[str]:
        """Yield the names of the IOThreads that serve a device; none if it names none."""
        if thread := self._property(device, "iothread"):
            yield _shown(thread.rpartition("/")[2])
        for one in self._property(device, "iothread-vq-mapping") or ():
            yield _shown(one["iothread"].rpartition("/")[2])

    def _property(self, path: str, name: str) -> Any:
        with contextlib.suppress(RigError):
            return self._monitor.execute("qom-get", {"path": path, "property": name})
        return None


def is_medium(block: Mapping[str, Any]) -> bool:
    """Whether what `query-block` tells is a read-only medium, as in a CD-ROM drive, and no disk."""
    return bool(block.get("removable") and block.get("inserted", {}).get("ro"))


def exits_of(monitor: Monitor) -> int | None:
    """Return how often KVM has left the guest for the host, all vCPUs together; None where QEMU does not say."""
    asked = {"target": "vcpu", "providers": [{"provider": "kvm", "names": ["exits"]}]}
    with contextlib.suppress(RigError):
        found = [one["value"] for vcpu in monitor.execute("query-stats", asked) for one in vcpu["stats"]]
        return sum(found) if found else None
    return None


def counts_of(views: Sequence[LiveMonitor]) -> list[dict[str, DiskCount] | RigError]:
    """Return QEMU's counters of each disk by its name, or what went wrong, for each of these QEMUs. All of them are
    asked at once, since each answers when its main loop gets a CPU.
    """
    answers = execute_all([one.monitor for one in views], "query-blockstats")
    return [one if isinstance(one, RigError) else _counts(one) for one in answers]


def _counts(answer: MonitorAnswer) -> dict[str, DiskCount]:
    return {
        name: DiskCount(
            t_ns=answer.t_ns,
            discards=one["stats"].get("unmap_operations"),
            discard_ns=one["stats"].get("unmap_total_time_ns"),
            failed=sum(one["stats"].get(name, 0) for name in FAILURES),
            **{ours: one["stats"][theirs] for ours, theirs in FIELDS.items()},
        )
        for one in answer.said
        if (name := name_of(one))
    }


def _stopped(status: Mapping[str, Any]) -> str:
    """Return the state of a guest that does not run, from the answer of `query-status`; else nothing."""
    return "" if status["running"] else _shown(status["status"])


class LiveMonitors:
    """QEMUs behind QMP sockets, one connection each, which share an event loop. One that ends is left out from then
    on; one that does not answer as QEMU does, or whose guest is stopped, stays as a VM without disks. `failed` are
    sockets behind which none was found, with the reason.
    """

    def __init__(self, views: Sequence[LiveMonitor], failed: Mapping[str, str] = MappingProxyType({})) -> None:
        self._views = {_free(views[:index], one.vm): one for index, one in enumerate(views)}
        self._seen: dict[str, frozenset[str]] = {}
        self._failed = dict(failed)
        self._stopped: dict[str, str] = {}

    def vms(self) -> tuple[LiveVm, ...]:
        seen = (
            replace(one.vm, name=name, disks=(), missing=(f"the disks of {name}: its guest does not run: {why}",))
            if (why := self._stopped.get(name))
            else replace(one.vm, name=name)
            for name, one in self._views.items()
        )
        unseen = (LiveVm(name=name, pid=None, disks=(), failed=why) for name, why in self._failed.items())
        return (*seen, *unseen)

    def counts(self) -> Mapping[str, Mapping[str, DiskCount]]:
        """Return QEMU's counters of each disk, by VM and target. A disk that came or went is looked at."""
        found: dict[str, Mapping[str, DiskCount]] = {}
        asked = dict(self._views)
        states = execute_all([one.monitor for one in asked.values()], "query-status")
        answers = zip(asked.items(), counts_of(list(asked.values())), states, strict=True)
        for (name, one), counts, state in answers:
            try:
                if isinstance(counts, RigError):
                    raise counts
                if isinstance(state, RigError):
                    raise state
                self._stopped[name] = _stopped(state.said)
                if self._seen.setdefault(name, frozenset(counts)) != frozenset(counts):
                    one.look_again()
                    self._seen[name] = frozenset(counts)
                found[name] = counts
            except RigError as error:
                del self._views[name]
                if not isinstance(error, MonitorEnded):
                    self._failed[name] = error.message
        return found

    def rest(self) -> None:
        """Give the monitors back until the next question."""
        for one in self._views.values():
            one.rest()

    def rings(self, vm: str, target: str) -> RingReader | str:
        return self._views[vm].rings(target)


def _free(before: Sequence[LiveMonitor], vm: LiveVm) -> str:
    """Return a name for a VM that none of those before it has."""
    return f"{vm.name} ({vm.pid})" if vm.name in {one.vm.name for one in before} else vm.name


def name_of(shown: Mapping[str, Any]) -> str:
    """Return a disk's name in an answer of `query-block` or `query-blockstats`; empty for an entry that is not a
    disk.
    """
    if shown.get("qdev"):
        parts = [part for part in shown["qdev"].split("/") if part and part != "virtio-backend"]
        return _shown(parts[-1]) if parts else ""
    return _shown(shown.get("device", ""))


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
        raise PreconditionError(f"{path}: {error.message}", hint=error.hint) from None
