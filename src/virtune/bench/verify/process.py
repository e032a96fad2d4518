# SPDX-License-Identifier: Apache-2.0
"""What really runs: the aio engine, O_DIRECT and cache mode of a process, read from the process itself.

What each engine leaves to be seen in /proc:

* io_uring: a file descriptor `anon_inode:[io_uring]`
* native:   a mapping `/[aio]` (the kernel maps the completion ring of an AIO context into the process)
* threads:  neither; under load, worker threads that burn the CPU

A process that has carried other stacks may hold all of these, and a QEMU whose event loop itself runs on io_uring
(10.2 and newer) has a ring in any case. So rings and contexts are counted before and after the block node is opened,
and what completes requests and who burns the CPU under load decides.
"""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virtune.bench.verify.completions import Engine, completions_of
from virtune.dialects.qemu.qmp import FILE_NODE, FORMAT_NODE
from virtune.model.errors import NotInForceError
from virtune.model.evidence import UNDER_LOAD, Check, InForce
from virtune.model.stack import DIRECT_CACHES, Disk, Stack

WORKERS_SHARE = 0.10
"""From this share of a process's CPU time on, its worker threads are held to do the I/O. Measured with QEMU 7.2,
4 KiB random reads: 0.5 and more with aio=threads, 0.00 with native and io_uring."""

_CPU_NS_ENOUGH = 20_000_000
"""Below 20 ms of CPU time nothing is concluded from who used it."""

_WORKERS_NS_ENOUGH = 1_000_000
"""Worker threads that used 1 ms have done something: a request costs each of them some 10 us."""

_LOOKS, _LOOK_SECONDS = 5, 0.004
"""An AIO context's ring goes round in some hundred places, so that one look may find it where it was before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """What of the kernel's I/O engines a process holds, and its threads."""

    rings: int
    contexts: int
    threads: frozenset[int]


def engines_of(pid: int) -> Engines:
    """Look at a running process; all zeros when it is gone."""
    rings = sum(1 for _, link in _descriptors(pid) if link == "anon_inode:[io_uring]")
    contexts = 0
    with contextlib.suppress(OSError):
        contexts = Path(f"/proc/{pid}/maps").read_text(errors="replace").count("/[aio]")
    return Engines(rings=rings, contexts=contexts, threads=frozenset(_threads(pid)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What a process had done when its stack had come up: what it does under load is held against that.

    `crew` are the threads that were there before any image was ever opened, and the stack's own IOThreads: none of
    them is a worker. `spent` is nanoseconds on a CPU by thread, `completed` as `completions_of` gives it.
    `loop_rings`: the event loop itself runs on io_uring, so that rings complete more than the disk's requests.
    """

    crew: frozenset[int]
    spent: Mapping[int, int]
    completed: Mapping[Engine, int | None]
    loop_rings: bool = False


def marks_of(pid: int, *, crew: frozenset[int], loop_rings: bool = False) -> Marks:
    """Look at a process whose stack has just come up and is not loaded yet."""
    spent, completed = dict(cpu_by_thread(pid)), completions_of(pid)
    return Marks(crew=crew, spent=spent, completed=completed, loop_rings=loop_rings)


def engine_check(stack: Stack, bare: Engines, opened: Engines) -> Check:
    """Say which engine the block node brought with it: `bare` is before it was opened, `opened` after."""
    found: str | None
    if opened.contexts > bare.contexts:
        found, proof = "native", "the process maps a kernel AIO context (/[aio]) since the image was opened"
    elif opened.rings > bare.rings:
        found, proof = "io_uring", "the process holds an io_uring since the image was opened"
    elif opened.rings == opened.contexts == 0:
        # QEMU 10.0 makes an engine with the first request, so only for `threads` is nothing what was asked for
        found = "threads" if stack.disk.aio == "threads" else None
        proof = "the process holds neither an io_uring nor a kernel AIO context"
    else:
        found, proof = None, "what the process holds was there before the image was opened: the load will tell"
    return Check(setting="disk.aio", asked=stack.disk.aio, found=found, proof=proof)


def engine_check_under_load(stack: Stack, pid: int, marks: Marks, *, flushes: bool) -> Check | None:
    """Say from what completes requests and who burns the CPU which engine does the I/O; None when nothing was seen.

    `flushes`: whether the load makes QEMU flush. Every engine flushes in worker threads, so then they prove nothing
    against an engine that completes requests.
    """
    done = _done_since(pid, marks)
    spent = {tid: ns - marks.spent.get(tid, 0) for tid, ns in cpu_by_thread(pid)}
    total, workers = sum(spent.values()), sum(ns for tid, ns in spent.items() if tid not in marks.crew)
    share = workers / total if total >= _CPU_NS_ENOUGH else None
    if share is None and not any(done.values()) and workers < _WORKERS_NS_ENOUGH:
        return None
    used = f"{workers / 1e6:.0f} ms of CPU time" if share is None else f"{share:.0%} of the process's CPU time"
    words = [*_completed(done), f"worker threads used {used}"]
    return Check(
        setting="disk.aio",
        asked=stack.disk.aio,
        found=_engine_seen(stack.disk.aio, done, workers, share, marks, flushes=flushes),
        proof=f"{'; '.join(words)} {UNDER_LOAD}",
    )


def _engine_seen(
    asked: str,
    done: Mapping[Engine, int | None],
    workers: int,
    share: float | None,
    marks: Marks,
    *,
    flushes: bool,
) -> str | None:
    worked = {kind for (kind, _), count in done.items() if count and not (kind == "io_uring" and marks.loop_rings)}
    busy = share is not None and share >= WORKERS_SHARE
    if asked in worked:
        return "threads" if busy and not flushes else asked
    if worked:
        return next(iter(worked))
    hidden = None in done.values() or (asked != "native" and marks.loop_rings)
    # where all others were seen to complete nothing, the little that workers do is the I/O
    if (workers >= _WORKERS_NS_ENOUGH and not hidden) or (busy and (asked == "threads" or not flushes)):
        return "threads"
    return asked if asked != "threads" and hidden and share is not None and not busy else None


def _done_since(pid: int, marks: Marks) -> Mapping[Engine, int | None]:
    """Return how far each engine came since the marks; an AIO context is looked at until it is seen to move."""
    found: dict[Engine, int | None] = {}
    for look in range(_LOOKS):
        if look:
            time.sleep(_LOOK_SECONDS)
        for engine, count in completions_of(pid).items():
            before = marks.completed.get(engine, 0)
            seen = None if count is None or before is None else (count - before) % 2**32
            found[engine] = found.get(engine) or seen
        if not any(kind == "native" and count == 0 for (kind, _), count in found.items()):
            break
    return found


def _completed(done: Mapping[Engine, int | None]) -> Iterator[str]:
    """Say what completed requests. How many a native context completed is not known: its ring goes round."""
    rings = sum(count or 0 for (kind, _), count in done.items() if kind == "io_uring")
    if rings:
        yield f"the process's io_uring completed {rings} requests"
    if any(count for (kind, _), count in done.items() if kind == "native"):
        yield "the process's kernel AIO context completed requests"


def cache_checks(stack: Stack, pid: int, image: Path, nodes: Sequence[Mapping[str, Any]]) -> Iterator[Check]:
    """Say whether the image is open with O_DIRECT, whether flushes are honoured, and which cache mode that is."""
    disk = stack.disk
    direct, seen = direct_of(pid, image)
    yield Check(setting="O_DIRECT", asked=_on(disk.cache in DIRECT_CACHES), found=direct, proof=seen)
    no_flush = [node["cache"]["no-flush"] for node in nodes if node["node-name"] in (FILE_NODE, FORMAT_NODE)]
    ignored = _on(any(no_flush)) if no_flush else None
    yield Check(
        setting="cache.no-flush",
        asked=_on(disk.cache == "unsafe"),
        found=ignored,
        proof="QMP query-named-block-nodes",
    )
    found, proof = _cache_mode(disk, direct, ignored)
    yield Check(setting="disk.cache", asked=disk.cache, found=found, proof=proof)


def direct_of(pid: int, image: Path) -> tuple[str | None, str]:
    """Return on/off for O_DIRECT on a file that a process holds open, and where it was read.

    None when the process does not hold the file, or holds it both ways.
    """
    real = os.path.realpath(image)
    flags = {number: _flags(pid, number) for number, link in _descriptors(pid) if link == real}
    known = {number: value for number, value in flags.items() if value is not None}
    proof = ", ".join(f"fdinfo/{number} flags 0{value:o}" for number, value in sorted(known.items()))
    if not known:
        return None, "the process does not hold the file open"
    answers = {bool(value & os.O_DIRECT) for value in known.values()}
    return (_on(answers.pop()) if len(answers) == 1 else None), proof


def node_checks(
    stack: Stack, nodes: Sequence[Mapping[str, Any]], limits: Mapping[str, Any] | None
) -> Iterator[Check]:
    """Say what QMP shows of back end, format, its options and limits."""
    disk, by_name = stack.disk, {node["node-name"]: node for node in nodes}
    proof = "QMP query-named-block-nodes"
    file_node, format_node = by_name.get(FILE_NODE, {}), by_name.get(FORMAT_NODE, {})
    yield Check(setting="disk.backend", asked=disk.backend, found=file_node.get("drv"), proof=proof)
    yield Check(setting="disk.format", asked=disk.format, found=format_node.get("drv"), proof=proof)
    zeroes = format_node.get("detect_zeroes")
    yield Check(setting="disk.detect_zeroes", asked=disk.detect_zeroes, found=zeroes, proof=proof)
    image = format_node.get("image", {})
    details = image.get("format-specific", {}).get("data", {})
    shown: tuple[tuple[str, object, object], ...] = (
        ("disk.cluster_size", disk.cluster_size, image.get("cluster-size")),
        ("disk.extended_l2", disk.extended_l2, details.get("extended-l2")),
        ("disk.lazy_refcounts", disk.lazy_refcounts, details.get("lazy-refcounts")),
    )
    for setting, asked, found in shown:
        if asked is not None:
            yield Check(
                setting=setting, asked=_text(asked), found=None if found is None else _text(found), proof=proof
            )
    yield from _limit_checks(disk, limits)
    silent: tuple[tuple[str, object, object], ...] = (
        ("disk.discard", disk.discard, "ignore"),
        ("disk.l2_cache_size", disk.l2_cache_size, None),
        ("disk.null_latency_ns", disk.null_latency_ns, 0),
        ("disk.preallocation", disk.preallocation, None),
    )
    for setting, asked, default in silent:
        if asked != default:
            yield Check(
                setting=setting, asked=str(asked), found=None, proof="accepted by QEMU, which does not show it"
            )


def cpu_by_thread(pid: int) -> Iterator[tuple[int, int]]:
    """Nanoseconds on a CPU by thread id; the kernel's own io_uring workers are not QEMU's and are left out."""
    for tid in _threads(pid):
        with contextlib.suppress(OSError, ValueError, IndexError):
            place = Path(f"/proc/{pid}/task/{tid}")
            if not place.joinpath("comm").read_text().startswith("iou-"):
                yield tid, int(place.joinpath("schedstat").read_text().split()[0])


def require_in_force(arm: str, checks: Sequence[Check]) -> None:
    """Raise NotInForceError for the first setting that was asked for and does not run."""
    for check in InForce(checks=tuple(checks)).mismatches:
        raise NotInForceError(
            f"arm {arm!r}: {check.setting}={check.asked} was requested, but {check.found} is running",
            hint=f"seen by: {check.proof}",
        )


def _limit_checks(disk: Disk, limits: Mapping[str, Any] | None) -> Iterator[Check]:
    for setting, limit, key in (
        ("disk.throttle_iops", disk.throttle_iops, "iops-total"),
        ("disk.throttle_bps", disk.throttle_bps, "bps-total"),
    ):
        if limit:
            value = None if limits is None else str(limits.get(key))
            yield Check(setting=setting, asked=str(limit), found=value, proof="QMP qom-get limits")


def _cache_mode(disk: Disk, direct: str | None, ignored: str | None) -> tuple[str | None, str]:
    if direct is None or ignored is None:
        return None, "O_DIRECT or no-flush is not visible"
    if disk.cache in ("writethrough", "directsync"):
        meaning = "flush after each write is an option of the export, which QEMU accepts and does not show"
        return (None, meaning) if direct == _on(disk.cache == "directsync") else ("another", meaning)
    modes = {("on", "off"): "none", ("off", "off"): "writeback", ("off", "on"): "unsafe"}
    mode = modes.get((direct, ignored), f"direct={direct},no-flush={ignored}")
    meanings = {
        "none": "no host page cache; flushes are honoured",
        "writeback": "through the host page cache; flushes are honoured",
        "unsafe": "through the host page cache; flushes are ignored: data is lost when the host dies",
    }
    return mode, meanings.get(mode, "not one of QEMU's named cache modes")


def _descriptors(pid: int) -> Iterator[tuple[int, str]]:
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                yield int(entry.name), str(entry.readlink())


def _flags(pid: int, descriptor: int) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text().splitlines():
            if line.startswith("flags:"):
                return int(line.split()[1], 8)
    return None


def _threads(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
    return []


def _on(value: bool) -> str:  # noqa: FBT001
    return "on" if value else "off"


def _text(value: object) -> str:
    return _on(value) if isinstance(value, bool) else str(value)
