# SPDX-License-Identifier: Apache-2.0
"""Disks of running VMs whose limits can be lifted and put back: of a libvirt domain by virsh, of another QEMU by its
own monitor.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from virtune.apply.journal import Entry, Journal, Step
from virtune.apply.libvirt import LibvirtDomain
from virtune.bench.live.domain import LiveDomain, LiveView
from virtune.bench.live.monitor import LiveMonitor, monitored, named
from virtune.dialects.libvirt.domain import read_domain
from virtune.model.domain import REQUEST_SIZE, DomainDisk
from virtune.model.errors import NotInForceError, PreconditionError, RigError
from virtune.model.stack import LIMITS
from virtune.probe.process import Process
from virtune.virsh import Virsh

MONITOR = "qmp:"
"""What the journal's place of a QEMU without a libvirt begins with; its socket follows."""

_BASE: Mapping[str, str] = {one.libvirt: one.drive for one in LIMITS}
_SAID: Mapping[str, str] = {
    **{f"{name}{end}": f"{said}{end}" for name, said in _BASE.items() for end in ("", "_max", "_max_length")},
    REQUEST_SIZE: "iops_size",
}
"""What `block_set_io_throttle` calls a limit, its burst and its length, by libvirt's names."""

Words = tuple[str, ...]


class LimitedDisk(Protocol):
    """A disk with limits, and the words of the journal that lift them and put them back. `uuid` means this VM."""

    place: str
    uuid: str
    target: str
    limits: tuple[tuple[str, int], ...]
    lift: Words
    back: Words

    def watched(self) -> contextlib.AbstractContextManager[LiveView]:
        """Give a view of its VM; raises PreconditionError where that no longer runs."""
        ...

    def say(self, view: LiveView, words: Words) -> Mapping[str, int]:
        """Lift the limits or put them back; returns those that it has then."""
        ...

    def configuration(self) -> bytes:
        """Return what the journal keeps of the VM; raises PreconditionError where it will be gone with the VM."""
        ...


def turned(disk: LimitedDisk, view: LiveView, *, lifted: bool) -> None:
    """Lift the limits or put them back; raises NotInForceError where the disk then has others."""
    shown = disk.say(view, disk.lift if lifted else disk.back)
    limited = any(name in _BASE for name in shown)
    if limited if lifted else dict(shown) != dict(disk.limits):
        way = "lifted" if lifted else "put back"
        raise NotInForceError(f"the limits of {disk.target} were {way}, and it has {dict(shown) or 'none'}")


class LibvirtDisk:
    """A disk of a running libvirt domain."""

    def __init__(self, virsh: Virsh, name: str, uuid: str, disk: DomainDisk) -> None:
        self._virsh, self._name = Virsh(virsh.uri, write=True), name
        self.place, self.uuid, self.target = virsh.uri, uuid, disk.target
        self.limits = tuple((name, value) for name, value in disk.limits if value)
        self.lift = self._tuned([(name, 0) for name, _ in self.limits])
        self.back = self._tuned(self.limits)

    @classmethod
    def find(cls, virsh: Virsh, name: str, target: str) -> Self | None:
        """Return the disk of a running domain that has limits of its own; None where there is none."""
        uuid = LiveDomain(virsh, name).uuid
        disk = _running_disk(virsh, uuid, target)
        limited = disk is not None and any(value for _, value in disk.limits) and not disk.limits_group
        return cls(virsh, name, uuid, disk) if limited and disk is not None else None

    def _tuned(self, values: Sequence[tuple[str, int]]) -> Words:
        words = (word for name, value in values for word in (f"--{name.replace('_', '-')}", str(value)))
        return ("blkdeviotune", self.uuid, self.target, *words, "--live")

    @contextlib.contextmanager
    def watched(self) -> Iterator[LiveView]:
        """Give a view of the domain."""
        yield LiveDomain(self._virsh, self._name)

    def say(self, view: LiveView, words: Words) -> Mapping[str, int]:  # noqa: ARG002 - libvirt is asked
        """Have virsh do it, and read the running domain."""
        LibvirtDomain(self._virsh, self.uuid).live(words)
        disk = _running_disk(self._virsh, self.uuid, self.target)
        if disk is None:
            raise NotInForceError(f"{self.target} is no longer there")
        return {name: value for name, value in disk.limits if value}

    def configuration(self) -> bytes:
        """Return its configuration."""
        domain = LibvirtDomain(self._virsh, self.uuid)
        domain.require_persistent(self._name)
        return domain.configuration()


def _running_disk(virsh: Virsh, uuid: str, target: str) -> DomainDisk | None:
    found = virsh.dump([uuid])
    return read_domain(found[0].live.encode()).disk(target) if found and found[0].live is not None else None


@dataclass(slots=True, kw_only=True)
class MonitoredDisk:
    """A disk of a running QEMU, by the socket of its monitor. Its `uuid` is that of the process."""

    place: str
    uuid: str
    target: str
    limits: tuple[tuple[str, int], ...]
    lift: Words
    back: Words
    pid: int

    @classmethod
    def find(cls, socket: Path, target: str) -> Self | None:
        """Return the disk that has limits of its own, set by `block_set_io_throttle` or the command line's `-drive`;
        None where there is none: those of a throttle filter, and of a group that several disks have, stay.
        """
        with monitored(socket) as view:
            shown = view.monitor.execute("query-block")
            known = [one for one in shown if one.get("inserted")]
            one = dict(named(shown)).get(target, {})
            limits = _limits(one)
            if not limits or view.vm.pid is None:
                return None
            group = one["inserted"].get("group", "")
            if any(_limits(other) and other["inserted"].get("group") == group for other in known if other is not one):
                return None
            which = {"id": one["qdev"]} if one.get("qdev") else {"device": one["device"]}
            none = dict.fromkeys(_BASE.values(), 0)
            back = none | {_SAID[name]: value for name, value in limits.items()}
            return cls(
                place=f"{MONITOR}{socket.absolute()}", uuid=_identity(view.vm.pid), pid=view.vm.pid, target=target,
                limits=tuple(limits.items()), lift=_words(which | none), back=_words(which | back | {"group": group}),
            )  # fmt: skip

    @contextlib.contextmanager
    def watched(self) -> Iterator[LiveView]:
        """Give a view of the QEMU."""
        with _same(Path(self.place.removeprefix(MONITOR)), self.uuid) as view:
            yield view

    def say(self, view: LiveView, words: Words) -> Mapping[str, int]:
        """Have the monitor do it, and read the disk."""
        return _said(view, words, self.target)

    def configuration(self) -> bytes:
        """Return the command line, which a QEMU keeps whatever its monitor is told."""
        return b"\0".join(word.encode(errors="surrogateescape") for word in Process(self.pid).argv())


def put_back(entry: Entry, journal: Journal) -> str:
    """Put the limits of an entry back, which was cut short; return what was done, in a sentence. Raises
    NotInForceError where the disk then has others.
    """
    with journal.alone():
        entry = journal.read(entry.id)
        if Step.UNDONE in entry.steps:
            return f"{entry.domain} was put back before; nothing to do"
        (_, back), place, target = entry.live[0], Path(entry.uri.removeprefix(MONITOR)), entry.turns[0].at
        asked = json.loads(back[1])
        try:
            with _same(place, entry.uuid) as view:
                shown = _said(view, back, target)
        except PreconditionError:
            if _runs(entry.uuid):
                raise
            journal.step(entry, Step.UNDONE)
            return f"the QEMU of {entry.domain} has ended, and its limits with it; nothing to do"
        if shown != {name: asked[said] for name, said in _SAID.items() if asked.get(said)}:
            raise NotInForceError(f"the limits of {target} were put back, and it has {dict(shown) or 'none'}")
        journal.step(entry, Step.UNDONE)
        return f"{entry.domain} is as it was before {entry.id}"


def _words(arguments: Mapping[str, Any]) -> Words:
    return "block_set_io_throttle", json.dumps(arguments)


def _said(view: LiveView, words: Words, target: str) -> Mapping[str, int]:
    assert isinstance(view, LiveMonitor)  # noqa: S101 - the one that `watched` gives
    command, arguments = words
    view.monitor.execute(command, json.loads(arguments))
    found = _limits(dict(named(view.monitor.execute("query-block"))).get(target, {}))
    view.rest()
    return found


def _limits(block: Mapping[str, Any]) -> dict[str, int]:
    """Return the limits of a disk, of an answer of `query-block`, by libvirt's names."""
    inserted = block.get("inserted") or {}
    found = {name: int(inserted.get(said) or 0) for name, said in _SAID.items()}
    return {name: value for name, value in found.items() if value}


def _identity(pid: int) -> str:
    """Return what means a process and no later one: its number, and when it began in the kernel's ticks."""
    return f"{pid}-{Process(pid).began}"


def _runs(identity: str) -> bool:
    pid = identity.partition("-")[0]
    return pid.isdecimal() and _identity(int(pid)) == identity


@contextlib.contextmanager
def _same(socket: Path, identity: str) -> Iterator[LiveMonitor]:
    """Give the QEMU behind a socket; raises PreconditionError where it is another one than that."""
    try:
        with monitored(socket, paused_too=True) as view:
            if view.vm.pid is None or _identity(view.vm.pid) != identity:
                raise PreconditionError(f"another QEMU listens at {socket} now")
            yield view
    except RigError as error:
        raise PreconditionError(f"{socket}: {error.message}", hint=error.hint) from None
