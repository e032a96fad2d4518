# SPDX-License-Identifier: Apache-2.0
"""Watch the disks of this host's running VMs: sample after sample, nothing added and nothing changed."""

import contextlib
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from virtune.analyse.layers.frame import not_watched, rings_moved
from virtune.analyse.trial.counters import read_counters
from virtune.bench.counters import Sampler
from virtune.bench.live.domain import LiveDomains, LiveSource
from virtune.bench.live.monitor import LiveMonitor, LiveMonitors, monitored
from virtune.bench.live.rings import RingReader, RingWatch
from virtune.bench.qmp import event_loop
from virtune.flows.live.diagnose_live import with_devices
from virtune.model.errors import PreconditionError
from virtune.model.live import DiskCount, LiveSample, LiveVm, RingCount
from virtune.virsh import KeptVirsh

_RINGS_SECONDS, _RING_SECONDS = 0.025, 0.005
"""How often virtqueues are read: every 25 ms, or with more than five disks every 5 ms times their number, so that
the cost does not grow with the number (`benchmarks/top.md`)."""

_Rings = RingWatch[tuple[str, str]]


class Watch:
    """The running VMs of this host. Use as a context manager, from one thread at a time."""

    def __init__(self, sources: Sequence[LiveSource]) -> None:
        self._sources = sources
        self._vms: tuple[LiveVm, ...] = ()
        self._shown: tuple[LiveVm, ...] = ()
        self._missing: tuple[str, ...] = ()
        self._sampler = Sampler()
        self._header = self._sampler.content()
        self._rings: _Rings | None = None
        self._ends = contextlib.ExitStack()
        self._before: LiveSample | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    @property
    def header(self) -> bytes:
        """The first line of the kernel's counters, which says how to read those that follow."""
        return self._header

    def require_all(self) -> None:
        """Raise PreconditionError where a VM could not be looked at when they were last counted."""
        if failed := not_watched(self._vms):
            more = f" (and {len(failed) - 1} more)" if failed[1:] else ""
            raise PreconditionError(f"not every VM could be looked at: {failed[0]}{more}")

    def sample(self) -> LiveSample:
        """Take a sample now. Raises PreconditionError when libvirt cannot be reached any more."""
        counts: dict[str, Mapping[str, DiskCount]] = {}
        for source in self._sources:
            counts |= source.counts()
        vms = tuple(vm for source in self._sources for vm in source.vms())
        if vms != self._vms:
            self._vms = vms
            self._look_at(vms)
        kernel = self._sampler.line()
        found = LiveSample(
            kernel=kernel,
            host=read_counters(self._header + kernel).samples[0],
            vms=self._shown,
            counts=counts,
            rings={} if self._rings is None else _by_vm(self._rings.counts()),
            missing=self._missing,
        )
        if self._before is not None and rings_moved(self._before, found):
            self._look_at(vms)
        self._before = found
        return found

    def _look_at(self, vms: Sequence[LiveVm]) -> None:
        """Find the processes, devices and virtqueues of VMs anew: some came or went."""
        self._ends.close()
        readers: dict[tuple[str, str], RingReader] = {}
        missing: dict[str, None] = dict.fromkeys(line for vm in vms for line in vm.missing)
        for source in self._sources:
            for vm in source.vms():
                for disk in vm.disks:
                    rings = source.rings(vm.name, disk.target)
                    if isinstance(rings, str):
                        missing[rings] = None
                    else:
                        readers[vm.name, disk.target] = rings
        self._shown = tuple(replace(vm, disks=with_devices(vm.disks)) for vm in vms)
        self._missing = tuple(missing)
        devices = dict.fromkeys(name for vm in self._shown for disk in vm.disks for name in disk.devices)
        processes = {vm.name: vm.pid for vm in vms if vm.pid is not None}
        self._sampler = Sampler(devices=tuple(devices), processes=processes)
        self._rings = None
        if readers:
            with contextlib.suppress(OSError):  # a VM ended just now
                watch: _Rings = RingWatch(readers, interval_seconds=max(_RINGS_SECONDS, _RING_SECONDS * len(readers)))
                self._rings = self._ends.enter_context(watch)


@contextlib.contextmanager
def watching(uri: str | None, sockets: Sequence[Path]) -> Iterator[Watch]:
    """Yield the running VMs of a libvirt and of QEMUs with QMP sockets.

    Raises PreconditionError where none of them answers, or the libvirt is another host's.
    """
    with contextlib.ExitStack() as ends:
        sources: list[LiveSource] = []
        if uri is not None:
            virsh = ends.enter_context(KeptVirsh(uri))
            if not virsh.facts().local:
                raise PreconditionError(
                    f"{uri} is not the libvirt of QEMU on this host", hint="call `virtune top` on the host of the VMs"
                )
            sources.append(LiveDomains(virsh))
        if sockets:
            loop = ends.enter_context(event_loop())
            sources.append(_monitors(ends, loop, sockets))
        yield ends.enter_context(Watch(sources))


def _monitors(ends: contextlib.ExitStack, loop: AbstractEventLoop, sockets: Sequence[Path]) -> LiveMonitors:
    """Open the monitors of QEMUs; one that fails ends it for none of the others."""
    views: list[LiveMonitor] = []
    failed: dict[str, PreconditionError] = {}
    for path in sockets:
        try:
            views.append(ends.enter_context(monitored(path, paused_too=True, loop=loop)))
        except PreconditionError as error:
            failed[str(path)] = error
    if failed and not views:
        raise next(iter(failed.values()))
    return LiveMonitors(views, {path: error.message.removeprefix(f"{path}: ") for path, error in failed.items()})


def samples(
    watch: Watch, *, interval_seconds: float, wait: Callable[[float], object], now: Callable[[], float]
) -> Iterator[LiveSample]:
    """Yield samples without end, one each interval; a late one delays none that follow."""
    begin, count = now(), 0
    while True:
        yield watch.sample()
        count = max(count + 1, int((now() - begin) / interval_seconds) + 1)
        wait(max(0.0, begin + count * interval_seconds - now()))


def _by_vm(counts: Mapping[tuple[str, str], tuple[RingCount, ...]]) -> dict[str, dict[str, tuple[RingCount, ...]]]:
    found: dict[str, dict[str, tuple[RingCount, ...]]] = {}
    for (vm, disk), rings in counts.items():
        found.setdefault(vm, {})[disk] = rings
    return found
