# SPDX-License-Identifier: Apache-2.0
"""Diagnose a running VM under its own load: it is observed for some seconds, and nothing is changed."""

import contextlib
import itertools
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from virtune.advise.guidelines import answers_of, free_drive, not_applicable, tuning_for
from virtune.analyse.layers.bottleneck import judge
from virtune.analyse.layers.path import device_counts_others, live_paths
from virtune.analyse.trial.counters import host_queue, read_counters
from virtune.analyse.trial.usage import use
from virtune.bench.counters import DiskQueue, Sampler
from virtune.bench.live.domain import LiveDomain, LiveView, watched_moves
from virtune.bench.live.emulators import emulators_here
from virtune.bench.live.monitor import monitored
from virtune.bench.live.rings import INTERVAL_SECONDS, RingWatch
from virtune.fio.workloads import rate_words, sequential_share, workload_words
from virtune.model.bottleneck import DataPath, Diagnosis, Walk, WorstSecond, walk
from virtune.model.counters import Use
from virtune.model.errors import MissingToolError, PreconditionError, RigError, UsageError
from virtune.model.live import (
    DiskCount,
    DiskCurve,
    DiskRates,
    Histograms,
    LiveDisk,
    LiveVm,
    Move,
    RingRates,
    histograms_between,
    rates_between,
    ring_rates_between,
)
from virtune.probe.devices import UNANSWERED, backing_of, swap_devices
from virtune.probe.host import nvme_idle
from virtune.probe.kernel import disk_limits
from virtune.virsh import Virsh, default_uri

_IN_GUEST = "the guest's own part of an I/O, which `virtune compare measure --rig libvirt:DOMAIN` measures"


Wait = Callable[[float], None]
"""What waits for so many seconds."""


def diagnose_named(
    uri: str | None, name: str, *, disk: str, seconds: float, histograms: bool = False, wait: Wait = time.sleep
) -> tuple[Diagnosis, ...]:
    """Observe the running VM that a user calls so: a QEMU of this host with a monitor of its own, by its name, the
    number that Proxmox VE gives it, or its process id; else a libvirt domain, at virsh's default if `uri` is None.

    Raises PreconditionError when there is none, UsageError when it has no such disk or several VMs are called so.
    """
    if (socket := monitor_of(uri, name)) is not None:
        return diagnose_monitor(socket, f":{disk}", seconds=seconds, histograms=histograms, wait=wait)
    try:
        domain = LiveDomain(Virsh(uri or default_uri()), name)
        return look(domain, disk=disk, seconds=seconds, histograms=histograms, wait=wait)
    except (PreconditionError, MissingToolError) as error:
        running = emulators_here() if uri is None else ()
        there = ", ".join(f"{one.name or 'unnamed'} ({one.pid})" for one in running if one.sockets)
        raise type(error)(error.message, hint=f"QEMUs here: {there}" if there else error.hint) from None


def monitor_of(uri: str | None, name: str, *, without_libvirt: bool = False) -> Path | None:
    """Return the socket of the monitor of the QEMU here that a user calls so; None where there is none, or a libvirt
    was named. Raises UsageError when several are called so.
    """
    called = [one for one in emulators_here() if one.is_called(name) and one.sockets] if uri is None else []
    if len(called) > 1:
        pids = ", ".join(str(one.pid) for one in called)
        raise UsageError(f"{len(called)} QEMUs are called {name!r}", hint=f"name one by its process id: {pids}")
    kept = without_libvirt and called and called[0].of_libvirt
    return called[0].sockets[0] if called and not kept else None


def diagnose_monitor(
    path: Path, words: str = "", *, seconds: float, histograms: bool = False, wait: Wait = time.sleep
) -> tuple[Diagnosis, ...]:
    """Observe a QEMU through its QMP socket, by query commands only, but for the histograms that are asked for.
    `words` mean one of its disks as `DISK`, `:DISK` or `VM:DISK`, and all of them as `VM` or nothing.
    """
    with monitored(path) as view:
        disk = _disk_in(view.vm, words)
        return look(view, disk=disk, seconds=seconds, histograms=histograms, wait=wait)


def _disk_in(vm: LiveVm, words: str) -> str:
    """Return the disk of a VM that a user means; empty for all. A word that is a disk means the disk, whatever the VM
    is called. Raises UsageError where another VM is named.
    """
    calls = (vm.name, str(vm.pid))
    if words in calls and all(one.target != words for one in vm.disks):
        return ""
    name, _, disk = words.rpartition(":")
    if name not in ("", *calls):
        has = ", ".join(f"{vm.name}:{one.target}" for one in vm.disks)
        raise UsageError(f"the VM of this monitor is called {vm.name!r}, not {name!r}", hint=f"its disks: {has}")
    return disk


def look(
    view: LiveView, *, disk: str, seconds: float, histograms: bool = False, wait: Wait = time.sleep
) -> tuple[Diagnosis, ...]:
    """Observe the disks of a VM, or the one of that name, for some seconds. QEMU keeps `histograms` meanwhile where
    that is asked for; what it does not keep is named as not seen.
    """
    pid = view.vm.pid
    chosen = tuple(with_devices(_chosen(view.vm, disk), pid))
    names = tuple(dict.fromkeys(name for one in chosen for name in (*one.devices, *one.swap)))
    readers = {one.target: view.rings(one.target) for one in chosen}
    places = {one.target: found for one in chosen if (found := view.places(one.target)) is not None}
    with contextlib.ExitStack() as ends:
        ends.callback(view.take_histograms_back)
        if histograms:
            view.counts()
        unkept = view.keep_histograms() if histograms else ""
        sampler = ends.enter_context(
            Sampler(devices=names, processes={} if pid is None else {"guest": pid}, groups=True)
        )
        queues = {one.target: ends.enter_context(DiskQueue(one.devices[0])) for one in chosen if one.devices}
        watch = ends.enter_context(
            RingWatch(
                {name: one for name, one in readers.items() if not isinstance(one, str)},
                interval_seconds=INTERVAL_SECONDS,
            )
        )
        moves = {name: ends.enter_context(watched_moves(one)) for name, one in places.items()}
        sampler.sample(mark="begin")
        counts, left, begun = [view.counts()], view.exits(), watch.counts()
        tails = view.histograms
        counts += _each_second(view, seconds, wait)
        watch.mark()
        counts.append(view.counts())
        left_now, ended = view.exits(), watch.counts()
        with contextlib.suppress(RigError):  # it has ended; what was counted is there
            view.look_again()
        tails = {name: histograms_between(tails.get(name, {}), now) for name, now in view.histograms.items()}
        sampler.sample(mark="stop")
    counters = read_counters(sampler.content())
    used = use(counters, begin_ns=counters.mark("begin"), end_ns=counters.mark("stop"))
    rings = {
        name: one if isinstance(one, str) else tuple(filter(None, [ring_rates_between(begun[name], ended[name])]))
        for name, one in readers.items()
    }
    exits = left if isinstance(left, str) else left_now if isinstance(left_now, str) else left_now - left
    curves = {name: one.curve() for name, one in queues.items()}
    chosen = tuple(one.beside(view.vm.disks) for one in chosen)  # a block job may have begun, a limit been set
    seen = _Seen(counts=counts, tails=tails, unkept=unkept)
    return tuple(_diagnoses(view.vm, chosen, seen, used, rings, exits, curves, moves))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What a look counted: QEMU's counters by disk, second by second, its histograms from the first to the last of
    these, and why it keeps none where they were asked for.
    """

    counts: Sequence[Mapping[str, DiskCount]]
    tails: Mapping[str, Histograms]
    unkept: str


def _each_second(view: LiveView, seconds: float, wait: Wait) -> Iterator[Mapping[str, DiskCount]]:
    """Wait for so long, and yield what was counted by the end of each second but the last."""
    view.rest()
    begin, parts = time.monotonic(), max(1, round(seconds))
    for number in range(1, parts):
        wait(max(0.0, begin + number * seconds / parts - time.monotonic()))
        yield view.counts()
        view.rest()
    wait(max(0.0, begin + seconds - time.monotonic()))


def worst_second(counts: Sequence[DiskCount]) -> WorstSecond | None:
    """Return the second in which a disk's requests took longest; None of less than three, or without requests."""
    rates = [] if len(counts) < 4 else [rates_between(*pair) for pair in itertools.pairwise(counts)]
    found = (
        WorstSecond(number=number, requests=one.requests, mean_ns=one.total_ns / one.requests)
        for number, one in enumerate(rates, 1)
        if one.requests > 0 <= one.total_ns  # a counter may begin anew
    )
    return max(found, key=lambda one: one.mean_ns, default=None)


def _diagnoses(
    vm: LiveVm,
    chosen: tuple[LiveDisk, ...],
    look: _Seen,
    used: Use,
    rings: Mapping[str, Sequence[RingRates] | str],
    exits: int | str,
    curves: Mapping[str, DiskCurve],
    moves: Mapping[str, Sequence[Move]],
) -> Iterator[Diagnosis]:
    seen = {name: () if isinstance(one, str) else one for name, one in rings.items()}
    # of all disks of the VM: its exits cannot be told apart by disk
    counts = look.counts[0], look.counts[-1]
    pairs = [(counts[0][name], now) for name, now in counts[1].items() if name in counts[0]]
    idle = {} if vm.pid is None else nvme_idle()  # a VM of another host has that host's drives
    here = () if vm.uri else emulators_here()
    called = next((one.called for one in here if one.pid == vm.pid), vm.name)
    for disk, rates, found in live_paths(vm, chosen, counts, used, seen):
        tails = look.tails.get(disk.target, {})
        kinds = (replace(one, tail=tails[one.kind].tail) if one.kind in tails else one for one in found.operations)
        path = replace(found, operations=tuple(kinds))
        judged = judge(path)
        unseen = tuple(one for one in (rings[disk.target], exits, look.unkept) if isinstance(one, str) and one)
        curve = curves.get(disk.target, DiskCurve(points=()))
        done = sum(after.reads + after.writes - before.reads - before.writes for before, after in pairs)
        sequential = sequential_share(moves.get(disk.target, ()), rates)
        yield Diagnosis(
            disk=f"{vm.name}:{disk.target}",
            workload=workload_words(rates, sequential),
            sequential=sequential,
            rate=rate_words(rates) if rates.reads + rates.writes > 0 else "",
            like=_like(called, vm.uri, disk),
            seconds=rates.seconds,
            path=path,
            found=judged,
            layers=path.layers,
            # what a device does while its disk is idle is others'
            queue=None if path.iops <= 0 or device_counts_others(path.layers) else host_queue(curve),
            exits_per_io=exits / done if isinstance(exits, int) and done > 0 else None,
            guideline=None
            if (why := not_applicable(path, judged.cause))
            else _guideline(vm, disk, path, rates, used, idle),
            no_guideline=why,
            worst=worst_second([one[disk.target] for one in look.counts if disk.target in one]),
            missing=(*vm.missing, *_missing(vm, disk, used, rates), *unseen, _IN_GUEST),
        )


def _like(called: str, uri: str, disk: LiveDisk) -> str:
    """Return the words that vary the engine of scratch disks like this one, of those that its cache mode allows;
    `called` is what finds its VM.
    """
    if disk.path is None or disk.path.startswith("/dev/"):
        return ""
    whose = ["--like", f"{called}:{disk.target}", *(["--connect", uri] if uri else [])]
    return shlex.join([*whose, "--vary", f"disk.aio=threads,{'native,' if disk.direct else ''}io_uring"])


def _guideline(
    vm: LiveVm, disk: LiveDisk, path: DataPath, rates: DiskRates, used: Use, idle: Mapping[str, bool | None]
) -> Walk:
    """Walk through the tuning guideline; its advice is written so that it can be called for this disk."""
    answers = answers_of(
        path,
        write_share=rates.writes / (rates.reads + rates.writes) if rates.reads + rates.writes > 0 else None,
        host_usr=None if used.cpu is None else used.cpu.user_percent,
        host_sys=None if used.cpu is None else used.cpu.system_percent,
    )
    return walk(tuning_for(uri=vm.uri, vm=vm.name, disk=disk.target), answers | free_drive(idle, disk.devices))


def _missing(vm: LiveVm, disk: LiveDisk, used: Use, rates: DiskRates) -> Iterator[str]:
    """Name the evidence of a disk that could not be had, and what it would add."""
    if disk.path is None:
        over = f"the image is reached over {disk.protocol!r}" if disk.protocol else "no file of this host is known"
        yield f"the host's device: {over}"
    elif not disk.devices:
        yield f"the host's device: none is seen below {disk.path}"
    role = used.role("guest")
    if vm.pid is not None and role is not None and role.read_bytes is None:
        yield f"how much of the reads reached a device: /proc/{vm.pid}/io is for root and its own user only"
    if rates.discards is None:
        yield "discards, failed requests, block jobs and filters: libvirt does not show them to who only looks"
    if rates.requests > 0 and rates.total_ns == 0:
        yield "the time of its requests: QEMU does not account them (account-done=off)"


def with_devices(disks: Sequence[LiveDisk], pid: int | None) -> Iterator[LiveDisk]:
    """Yield disks with the host's block devices below them, and what QEMU's control groups set on these."""
    swap = swap_devices()
    for one in disks:
        found = None if one.path is None else backing_of(one.path)
        names = one.devices if found is None else tuple(found.names)
        limits = one.group_limits if pid is None else disk_limits(names, pid=pid)
        hangs = () if found is None or UNANSWERED not in (found.gap or "") else (f"its image: {found.gap}",)
        unread = tuple(dict.fromkeys((*one.unread, *hangs)))
        yield replace(one, devices=names, group_limits=limits, swap=swap, unread=unread)


def _chosen(vm: LiveVm, disk: str) -> tuple[LiveDisk, ...]:
    if not vm.disks:
        raise PreconditionError(f"{vm.name} has no disk that could be looked at")
    found = tuple(one for one in vm.disks if disk in ("", one.target))
    if not found:
        has = ", ".join(one.target for one in vm.disks)
        raise UsageError(f"{vm.name} has no disk {disk!r}", hint=f"it has {has}; without a name all are looked at")
    return found
