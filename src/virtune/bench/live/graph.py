# SPDX-License-Identifier: Apache-2.0
"""QEMU's block graph below a disk, by query commands: where its image lies, and what else its requests may pass.

Only what lies on the way to the image is measured. Of everything else (backing images, filters, encryption, jobs) it
is said that it is there.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from virtune.bench.qmp import Monitor
from virtune.model.errors import RigError
from virtune.model.text import printable

_LOCAL = ("file", "host_device", "host_cdrom")

_PLAIN = ("raw", "qcow2", *_LOCAL)
"""Drivers of which a diagnosis knows what they do to a request."""

_OF_DATA = ("data-file", "file", "image", "backing")
"""The child that has a node's data, the first of these that it has, else its first one."""

_NAME_MAX = 200
"""Characters of a name that are shown."""

_LIMITS = {"iops-total": "iops", "iops-read": "read.iops", "iops-write": "write.iops", "bps-total": "bps",
           "bps-read": "read.bps", "bps-write": "write.bps"}  # fmt: skip
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
        lift = {"path": f"/objects/{group}", "property": "limits", "value": dict.fromkeys(_LIMITS, 0)}
        return Below(
            path=_here(path) if protocol in _LOCAL else None,
            protocol=printable(protocol, most=_NAME_MAX),
            group=group,
            limits=limits,
            lift=json.dumps({"execute": "qom-set", "arguments": lift}) if limits else "",
            unread=tuple(
                dict.fromkeys(printable(one, most=_NAME_MAX) for one in self._unread(way, seen=bool(limits)))
            ),
        )

    def jobs(self, monitor: Monitor, root: str) -> Iterator[str]:
        """Yield the block jobs that work on a disk now."""
        mine = self._all(root)
        with contextlib.suppress(RigError, KeyError, TypeError):
            for job in monitor.execute("query-block-jobs"):
                if mine.intersection(child for _, child in self.children.get(f"block-job:{job['device']}", ())):
                    what = printable(f"{job['type']} {job['device']}", most=_NAME_MAX)
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
                    return group, {ours: float(said[name]) for name, ours in _LIMITS.items() if said.get(name)}
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
