# SPDX-License-Identifier: Apache-2.0
"""Verify how an image is opened, and its block nodes in QEMU: O_DIRECT, cache mode, back end, format, limits."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virtune.dialects.qemu.qmp import FILE_NODE, FORMAT_NODE
from virtune.model.evidence import Check
from virtune.model.knobs import BY_ID
from virtune.model.rbd import RbdPlace
from virtune.model.stack import DIRECT_CACHES, LIMITS, THROUGH_CACHES, Disk, Stack, setting_of
from virtune.probe.process import Process

_NODES = "QMP query-named-block-nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """How a process opened a file: `direct` is on or off, None if unknown; `hidden`: the process's descriptors are
    not shown to us.
    """

    direct: str | None
    proof: str
    hidden: bool = False


def opened(process: Process, image: Path) -> Opened:
    """Return whether a process opened a file with O_DIRECT; unknown if it does not hold it, or holds it both ways."""
    flags = process.opened(image)
    if flags is None:
        return Opened(direct=None, proof="the process's descriptors are not shown to us", hidden=True)
    if not flags:
        return Opened(direct=None, proof="the process does not hold the file open")
    proof = ", ".join(
        f"opened with{'' if value & os.O_DIRECT else 'out'} O_DIRECT (fdinfo/{number}: flags 0{value:o})"
        for number, value in sorted(flags.items())
    )
    answers = {bool(value & os.O_DIRECT) for value in flags.values()}
    return Opened(direct=on_off(answers.pop()) if len(answers) == 1 else None, proof=proof)


def direct_check(disk: Disk, held: Opened) -> Check:
    """Compare how the image is opened with the requested cache mode."""
    asked = on_off(disk.cache in DIRECT_CACHES)
    return Check(setting="O_DIRECT", asked=asked, found=held.direct, proof=held.proof, hidden=held.hidden)


def cache_checks(stack: Stack, held: Opened, nodes: Sequence[Mapping[str, Any]]) -> Iterator[Check]:
    """Check whether the image is opened with O_DIRECT, whether flushes are honoured, and which cache mode that is."""
    disk = stack.disk
    yield direct_check(disk, held)
    no_flush = [node["cache"]["no-flush"] for node in nodes if node["node-name"] in (FILE_NODE, FORMAT_NODE)]
    ignored = on_off(any(no_flush)) if no_flush else None
    yield Check(setting="cache.no-flush", asked=on_off(disk.cache == "unsafe"), found=ignored, proof=_NODES)
    found, proof = _cache_mode(disk, held.direct, ignored)
    yield Check(setting="disk.cache", asked=disk.cache, found=found, proof=proof, hidden=held.hidden)


def node_checks(
    stack: Stack, nodes: Sequence[Mapping[str, Any]], limits: Mapping[str, Any] | None
) -> Iterator[Check]:
    """Check back end, format, options and limits by QMP."""
    disk, by_name = stack.disk, {node["node-name"]: node for node in nodes}
    file_node, format_node = by_name.get(FILE_NODE, {}), by_name.get(FORMAT_NODE, {})
    yield _backend_check(disk, file_node.get("drv"))
    yield Check(setting="disk.format", asked=disk.format, found=format_node.get("drv"), proof=_NODES)
    zeroes = format_node.get("detect_zeroes")
    yield Check(setting="disk.detect_zeroes", asked=disk.detect_zeroes, found=zeroes, proof=_NODES)
    image = format_node.get("image", {})
    details = image.get("format-specific", {}).get("data", {})
    shown: tuple[tuple[str, object, object], ...] = (
        ("disk.cluster_size", disk.cluster_size, image.get("cluster-size")),
        ("disk.extended_l2", disk.extended_l2, details.get("extended-l2")),
        ("disk.lazy_refcounts", disk.lazy_refcounts, details.get("lazy-refcounts")),
    )
    for setting, asked, found in shown:
        if asked is not None:
            seen = None if found is None else words(found)
            yield Check(setting=setting, asked=words(asked), found=seen, proof=_NODES)
    for one in LIMITS:
        limit = setting_of(stack, BY_ID[one.knob])
        if limit is not None:
            value = None if limits is None and limit else str((limits or {}).get(one.qmp, 0))
            yield Check(setting=one.knob, asked=str(limit), found=value, proof="QMP qom-get limits")


def rbd_checks(stack: Stack, nodes: Sequence[Mapping[str, Any]]) -> Iterator[Check]:
    """Check of a disk on Ceph the pool, and librbd's cache, which QEMU's cache mode switches."""
    disk = stack.disk
    if disk.rbd is None:
        return
    node = next((one for one in nodes if one["node-name"] == FILE_NODE), {})
    place = _rbd_place(node.get("image", {}).get("filename", ""))
    proof = f"{_NODES}: {node.get('file', 'no such node')}"
    yield Check(setting="disk.rbd", asked=disk.rbd, found=None if place is None else place.text, proof=proof)
    cache = node.get("cache", {})
    direct, ignored = (on_off(cache[name]) if name in cache else None for name in ("direct", "no-flush"))
    found, _ = _cache_mode(disk, direct, ignored)
    told = "librbd's cache is off" if direct == "on" else "librbd's cache is on"
    yield Check(setting="disk.cache", asked=disk.cache, found=found, proof=f"{_NODES}: {told}")


def _rbd_place(filename: str) -> RbdPlace | None:
    """Read the pool of an image from how QEMU names it; None for an image that is not virtune's."""
    try:
        said = json.loads(filename.removeprefix("json:"))
        ours = str(said["image"]).startswith("virtune-")
        named = {name: said.get(name) or None for name in ("namespace", "user", "conf")}
        return RbdPlace(pool=said["pool"], **named) if ours else None
    except (ValueError, KeyError, TypeError):
        return None


def on_off(value: bool) -> str:  # noqa: FBT001
    """Write a switch."""
    return "on" if value else "off"


def words(value: object) -> str:
    """Write a value as settings are written."""
    return on_off(value) if isinstance(value, bool) else str(value)


def _backend_check(disk: Disk, driver: str | None) -> Check:
    """On a block device QEMU's `file` back end is called `host_device`."""
    same = (disk.backend, driver) == ("file", "host_device")
    proof = f"{_NODES}: host_device" if same else _NODES
    return Check(setting="disk.backend", asked=disk.backend, found="file" if same else driver, proof=proof)


def _cache_mode(disk: Disk, direct: str | None, ignored: str | None) -> tuple[str | None, str]:
    if direct is None or ignored is None:
        return None, "O_DIRECT or no-flush is not visible"
    if disk.cache in THROUGH_CACHES:
        meaning = "flush after each write is an option of the export, which QEMU accepts and does not show"
        return (None, meaning) if direct == on_off(disk.cache == "directsync") else ("another", meaning)
    modes = {("on", "off"): "none", ("off", "off"): "writeback", ("off", "on"): "unsafe"}
    mode = modes.get((direct, ignored), f"direct={direct},no-flush={ignored}")
    meanings = {
        "none": "no host page cache; flushes are honoured",
        "writeback": "through the host page cache; flushes are honoured",
        "unsafe": "through the host page cache; flushes are ignored: data is lost when the host dies",
    }
    return mode, meanings.get(mode, "not one of QEMU's named cache modes")
