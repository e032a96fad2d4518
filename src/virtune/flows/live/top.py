# SPDX-License-Identifier: Apache-2.0
"""Watch the disks of this host's running VMs: sample after sample, nothing added and nothing changed.

A recording has JSON lines. The first says what it is, a line with `vms` which VMs run from there on, and every other
line is a sample: QEMU's counters, the virtqueues, and the kernel's counters as they were read.
"""

import contextlib
import dataclasses
import errno
import json
import os
import re
import stat
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, overload

from pydantic import Field, TypeAdapter

from virtune import __version__
from virtune.analyse.layers.path import not_watched, rings_moved
from virtune.analyse.trial.counters import read_counters
from virtune.bench.counters import Sampler
from virtune.bench.live.domain import LiveDomains, LiveSource
from virtune.bench.live.emulators import emulators_here
from virtune.bench.live.monitor import LiveMonitor, LiveMonitors, monitored
from virtune.bench.live.rings import RingReader, RingWatch
from virtune.bench.qmp import event_loop
from virtune.flows.live.diagnose_live import with_devices
from virtune.model.errors import MissingToolError, PreconditionError, StoreError, VirtuneError
from virtune.model.live import DiskCount, Histograms, LiveSample, LiveVm, RingCount
from virtune.virsh import KeptVirsh, default_uri

_RINGS_SECONDS, _RING_SECONDS = 0.025, 0.005
"""How often virtqueues are read: every 25 ms, or with more than five disks every 5 ms times their number, so that
the cost does not grow with the number (`benchmarks/top.md`)."""

_Rings = RingWatch[tuple[str, str]]


class Watch(contextlib.AbstractContextManager["Watch"]):
    """The running VMs of this host. Use as a context manager, from one thread at a time."""

    def __init__(self, sources: Sequence[LiveSource], names: Collection[str] = ()) -> None:
        """`names` are the libvirt domains that are wanted, all where there are none."""
        self._sources = sources
        self._names = names
        self.held_seconds = 0.0
        """For how long monitors were held, the last time."""
        self.recorder: Recorder | None = None
        """What every sample is added to."""
        self._vms: tuple[LiveVm, ...] = ()
        self._shown: tuple[LiveVm, ...] = ()
        self._missing: tuple[str, ...] = ()
        self._sampler = Sampler()
        self._header = self._sampler.content()
        self._rings: _Rings | None = None
        self._ends = contextlib.ExitStack()
        self._before: LiveSample | None = None

    def __exit__(self, *_: object) -> None:
        self._ends.close()
        for source in self._sources:
            source.take_histograms_back()

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
        begun = time.monotonic()
        if self._rings is not None:
            self._rings.mark()
        counts: dict[str, Mapping[str, DiskCount]] = {}
        histograms: dict[str, Mapping[str, Histograms]] = {}
        for source in self._sources:
            counts |= source.counts()
            histograms |= source.histograms()
        vms = tuple(
            vm
            for source in self._sources
            for vm in source.vms()
            if not vm.uri or vm.name in (self._names or [vm.name])
        )
        if vms != self._vms:
            self._vms = vms
            self._look_at(vms)
        self._rest(begun)
        kernel = self._sampler.line()
        rings: dict[str, dict[str, tuple[RingCount, ...]]] = {}
        for (name, disk), seen in ({} if self._rings is None else self._rings.counts()).items():
            rings.setdefault(name, {})[disk] = seen
        found = LiveSample(
            kernel=kernel,
            host=read_counters(self._header + kernel).samples[0],
            vms=self._shown,
            counts=counts,
            rings=rings,
            missing=self._missing,
            histograms=histograms,
        )
        if self._before is not None and rings_moved(self._before, found):
            begun = time.monotonic()
            self._look_at(vms)
            self._rest(begun)
        self._before = found
        if self.recorder is not None:
            self.recorder.add(found)
        return found

    def _rest(self, begun: float) -> None:
        for source in self._sources:
            source.rest()
        self.held_seconds = time.monotonic() - begun

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
        self._shown = tuple(replace(vm, disks=tuple(with_devices(vm.disks, vm.pid))) for vm in vms)
        self._missing = tuple(missing)
        devices = dict.fromkeys(
            name for vm in self._shown for disk in vm.disks for name in (*disk.devices, *disk.swap)
        )
        processes = {vm.name: vm.pid for vm in vms if vm.pid is not None}
        self._sampler = Sampler(devices=tuple(devices), processes=processes, groups=True)
        self._rings = None
        if readers:
            with contextlib.suppress(OSError):  # a VM ended just now
                watch: _Rings = RingWatch(readers, interval_seconds=max(_RINGS_SECONDS, _RING_SECONDS * len(readers)))
                self._rings = self._ends.enter_context(watch)


@contextlib.contextmanager
def watching(
    uri: str | None, sockets: Sequence[Path], *, names: Collection[str] = (), keep: bool = False
) -> Iterator[Watch]:
    """Yield the running VMs of a libvirt and of QEMUs with QMP sockets; where neither is named, all that run here.
    With `names` only those that are called so, and with `keep` QEMUs behind a socket keep histograms meanwhile.

    Raises PreconditionError where none of them answers, or the libvirt is another host's.
    """
    with contextlib.ExitStack() as ends:
        sources: list[LiveSource] = []
        others = [] if uri is not None or sockets else emulators_here()
        listening = [one for one in others if one.sockets and (not names or any(map(one.is_called, names)))]
        try:
            if uri is not None or not sockets:
                sources.append(_domains(ends, uri or default_uri()))
                listening = [one for one in listening if not one.of_libvirt]
        except (PreconditionError, MissingToolError) as error:
            if uri is not None:
                raise
            if not listening:
                raise _nobody(len(others), error) from None
        sockets = (*sockets, *(one.sockets[0] for one in listening))
        if sockets:
            loop = ends.enter_context(event_loop())
            sources.append(_monitors(ends, loop, sockets, keep=keep))
        yield ends.enter_context(Watch(sources, names))


def _domains(ends: contextlib.ExitStack, uri: str) -> LiveDomains:
    """Return the running domains of a libvirt; raises PreconditionError where it is another host's."""
    virsh = ends.enter_context(KeptVirsh(uri))
    if not virsh.facts().local:
        raise PreconditionError(
            f"{uri} is not the libvirt of QEMU on this host", hint="call `virtune top` on the host of the VMs"
        )
    return LiveDomains(virsh)


def _nobody(count: int, error: VirtuneError) -> PreconditionError:
    """Return the error where neither a libvirt nor a monitor is found, in libvirt's words; `count` QEMUs run here."""
    seen = f"{count} QEMU{'s'[: count != 1]} run here, none with a QMP socket that has a path"
    return PreconditionError(
        f"{seen if count else 'no QEMU runs here'}, and {error.message}",
        hint=f"`--qmp SOCKET` names a monitor; of libvirt: {error.hint}" if error.hint else None,
    )


def _monitors(
    ends: contextlib.ExitStack, loop: AbstractEventLoop, sockets: Sequence[Path], *, keep: bool
) -> LiveMonitors:
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
    why = {path: error.message.removeprefix(f"{path}: ") for path, error in failed.items()}
    return LiveMonitors(views, why, keep=keep)


def samples(
    watch: Watch, *, interval_seconds: float, wait: Callable[[float], object], now: Callable[[], float]
) -> Iterator[LiveSample]:
    """Yield samples without end, one each interval; a late one delays none that follow."""
    begin, count = now(), 0
    while True:
        yield watch.sample()
        count = max(count + 1, int((now() - begin) / interval_seconds) + 1)
        wait(max(0.0, begin + count * interval_seconds - now()))


RECORDING = "virtune/top-recording/1"

_COUNTER_MAX = 2**64
_TOO_LONG = re.compile(r"\d{21}")

_VMS = b'{"vms":'
"""How a line begins that says which VMs run."""

_Natural = Annotated[int, Field(ge=0, strict=True)]
_Real = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Count = tuple[_Natural | None, ...]
_Ring = tuple[_Real, ...]
"""The values of a count in the order of its fields; those that came later are missing in older recordings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header:
    schema: str
    kernel: dict[str, Any]
    virtune: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunningVms:
    """Which VMs run from a line of a recording on, and what cannot be seen of them."""

    vms: tuple[LiveVm, ...]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    kernel: dict[str, Any]
    counts: dict[str, dict[str, _Count]] = field(default_factory=dict)
    rings: dict[str, dict[str, tuple[_Ring, ...]]] = field(default_factory=dict)


_read_header = TypeAdapter(_Header).validate_json
_read_vms = TypeAdapter(_RunningVms).validate_json
_read_line = TypeAdapter(_Line).validate_json
_read_count = TypeAdapter(DiskCount).validate_python
_read_ring = TypeAdapter(RingCount).validate_python

_LINE_MAX = 64 * 1024**2
"""A sample of a thousand disks takes less than a megabyte."""


class Recorder(contextlib.AbstractContextManager["Recorder"]):
    """Writes samples to a new file. Use as a context manager; what is written is complete after every sample."""

    def __init__(self, path: Path, header: bytes) -> None:
        """Raises PreconditionError when it exists or cannot be written. `header` is of the kernel's counters."""
        self._path = path
        try:
            self._file = path.open("xb", buffering=0)
        except FileExistsError:
            hint = "a recording replaces nothing: name another file"
            raise PreconditionError(f"{path} exists", hint=hint) from None
        except OSError as error:
            raise PreconditionError(f"cannot write {path}: {error.strerror}") from None
        self._running: _RunningVms | None = None
        self._write(_written({"schema": RECORDING, "virtune": __version__, "kernel": json.loads(header)}))

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, sample: LiveSample) -> None:
        """Append a sample; raises PreconditionError when it cannot be written."""
        running = _RunningVms(vms=sample.vms, missing=sample.missing)
        if running != self._running:
            vms = [dataclasses.asdict(one) for one in sample.vms]
            self._write(_written({"vms": vms, "missing": sample.missing}))
            self._running = running
        counts = {vm: {disk: _values(one) for disk, one in disks.items()} for vm, disks in sample.counts.items()}
        every = sample.rings.items()
        rings = {vm: {disk: [*map(_values, some)] for disk, some in disks.items()} for vm, disks in every}
        head = json.dumps({"counts": counts, "rings": rings}, separators=(",", ":")).encode()
        self._write(head[:-1] + b',"kernel":' + sample.kernel.rstrip() + b"}\n")

    def _write(self, line: bytes) -> None:
        try:
            left = memoryview(line)
            while left:
                left = left[self._file.write(left) or 0 :]
        except OSError as error:
            raise PreconditionError(f"cannot write {self._path}: {error.strerror}") from None


class Recording(Sequence[LiveSample], contextlib.AbstractContextManager["Recording"]):
    """The samples of a recording, read when they are asked for. A last line without an end is left out: the recording
    was killed. Use as a context manager.
    """

    def __init__(self, path: Path) -> None:
        """Raises PreconditionError when the file cannot be read, StoreError when it is no recording."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise OSError(errno.EINVAL, "not a regular file")  # noqa: TRY301 - one sentence for both
        except OSError as error:
            raise PreconditionError(f"cannot read {path}: {error.strerror}") from None
        self._file = os.fdopen(descriptor, "rb")
        try:
            self._header = _header_of(self._line())
            self._places = list(self._index())
        except BaseException:
            self._file.close()
            raise

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> LiveSample: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[LiveSample]: ...

    def __getitem__(self, index: int | slice) -> LiveSample | Sequence[LiveSample]:
        """Return a sample, or several; raises StoreError with the number of its line when that is damaged."""
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        place, number, running = self._places[index]
        self._file.seek(place)
        line = self._line()
        try:
            found = _read_line(line)
            _require_counters([found.kernel, found.counts, found.rings])
            kernel = _written(found.kernel)
            return LiveSample(
                kernel=kernel,
                host=read_counters(self._header + kernel).samples[0],
                vms=running.vms,
                counts={
                    vm: {disk: _read_count(_named(DiskCount, values)) for disk, values in disks.items()}
                    for vm, disks in found.counts.items()
                },
                rings={
                    vm: {
                        disk: tuple(_read_ring(_named(RingCount, one)) for one in some)
                        for disk, some in disks.items()
                    }
                    for vm, disks in found.rings.items()
                },
                missing=running.missing,
            )
        except (ValueError, VirtuneError):
            raise StoreError(f"the recording is damaged: line {number} is no sample") from None

    def _index(self) -> "list[tuple[int, int, _RunningVms]]":
        """Return the place and number of each sample's line, and the VMs that ran."""
        found: list[tuple[int, int, _RunningVms]] = []
        running, number = _RunningVms(vms=()), 1
        while True:
            place, number = self._file.tell(), number + 1
            line = self._line()
            if not line.endswith(b"\n"):
                return found
            if line.startswith(_VMS):
                try:
                    running = _read_vms(line)
                except ValueError:
                    said = f"the recording is damaged: line {number} does not say which VMs run"
                    raise StoreError(said) from None
            else:
                found.append((place, number, running))

    def _line(self) -> bytes:
        line = self._file.readline(_LINE_MAX)
        if len(line) == _LINE_MAX:
            raise StoreError("this is no recording of `virtune top`: it has a line without end")
        return line


def _header_of(line: bytes) -> bytes:
    """Return the first line of the kernel's counters, by the first line of a recording; raises StoreError."""
    try:
        found = _read_header(line)
    except ValueError:
        hint = "`virtune top --record FILE` makes one"
        raise StoreError("this is no recording of `virtune top`", hint=hint) from None
    if found.schema != RECORDING:
        raise StoreError(f"this is a file of the kind {found.schema[:60]!r}, not {RECORDING!r}")
    return _written(found.kernel)


def _require_counters(value: object) -> None:
    """Raise ValueError for a number that no counter of the kernel or QEMU, of 64 bits, can be."""
    if isinstance(value, int | float):
        if not -_COUNTER_MAX <= value <= _COUNTER_MAX:
            raise ValueError(f"{value} is no counter")
    elif isinstance(value, str) and _TOO_LONG.search(value):  # a line of the kernel's
        raise ValueError("a number is no counter")
    elif isinstance(value, Mapping):
        _require_counters(list(value.values()))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for one in value:
            _require_counters(one)


def _named(kind: type[DiskCount] | type[RingCount], values: Sequence[float | None]) -> dict[str, float | None]:
    if len(values) > len(names := _names(kind)):
        raise ValueError("more values than a count has")
    return dict(zip(names, values, strict=False))


def _values(one: DiskCount | RingCount) -> list[Any]:
    return [getattr(one, name) for name in _names(type(one))]


def _names(kind: type[DiskCount] | type[RingCount]) -> list[str]:
    """Return the names of a count's numbers in the order of recordings: its time first."""
    return sorted((one.name for one in dataclasses.fields(kind)), key=lambda name: name != "t_ns")


def _written(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
