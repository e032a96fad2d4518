# SPDX-License-Identifier: Apache-2.0
"""What can be turned on a running VM and put back: limits of a disk, the polling of IOThreads, the pins of threads.

Of a libvirt domain by virsh, of another QEMU by its own monitor and the kernel.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self

from virtune.apply.journal import Entry, Journal, Step
from virtune.apply.libvirt import LibvirtDomain, Pair
from virtune.bench.live.domain import LiveDomain, LiveView
from virtune.bench.live.monitor import LiveMonitor, monitored, named
from virtune.dialects.libvirt.domain import read_domain
from virtune.model.counters import ThreadCost
from virtune.model.domain import REQUEST_SIZE, DomainDisk, SettingChange
from virtune.model.errors import NotInForceError, PreconditionError, RigError, VirtuneError
from virtune.model.stack import LIMITS
from virtune.model.text import format_ns
from virtune.probe import tree
from virtune.probe.cpu import parse_list
from virtune.probe.kernel import group_cpus
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

_AFFINITY = "sched_setaffinity"
"""The command of a journal's entry that is the kernel's, not the monitor's."""

_LIMITING, _THROTTLING, _POLLING = "blkdeviotune", "block_set_io_throttle", "iothread.poll_max_ns"

_ISOLATED = "/sys/devices/system/cpu/isolated"

_PINS = {"iothread": "iothread.pin", "vcpu": "vcpu.pin", "main": "emulator.pin"}
"""The knob that pins a thread, by its role."""

Words = tuple[str, ...]

Found = list[tuple[SettingChange, str, Pair]]
"""Settings as they are to be, with what they are now, and the words that turn each and put it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turnable:
    """Something of a running VM that is turned and put back. `named` says what it is and how it is set now, `turned`
    what is done with it, `risk` what may come of that; `arm` is its name in a comparison. `turns` are the settings
    meanwhile, `pairs` the words of the journal that make them and that put them back.
    """

    arm: str
    named: str
    turned: str
    risk: str
    turns: tuple[SettingChange, ...]
    pairs: tuple[Pair, ...]


class TurnableVm(Protocol):
    """A running VM. `uuid` means it and none that is started later, `place` is where it is found again."""

    place: str
    uuid: str
    name: str

    def watched(self) -> contextlib.AbstractContextManager[LiveView]:
        """Give a view of it; raises PreconditionError where it no longer runs."""
        ...

    @property
    def ended(self) -> bool:
        """Whether it no longer runs, so that nothing of it is left to be put back."""
        ...

    def say(self, view: LiveView, words: Words) -> None:
        """Do what words of a Turnable say; raises NotInForceError where something else is in effect then."""
        ...

    def configuration(self) -> bytes:
        """Return what the journal keeps of the VM; raises PreconditionError where it will be gone with the VM."""
        ...

    def limits(self, target: str) -> Turnable | None:
        """Return the limits of a disk, to be lifted; None where it has none of its own."""
        ...

    def polling(self, threads: Sequence[ThreadCost], ns: int) -> Turnable | None:
        """Return the polling of those of these IOThreads that do not poll, to be for so long; where that is 0, of
        those that do. None without one.
        """
        ...

    def pins(self, threads: Sequence[ThreadCost]) -> Turnable | None:
        """Return the pins of those of these threads that may not run on each CPU of their VM; None without one."""
        ...


class ThreadEndedError(NotInForceError):
    """A thread is no longer there, and no pin of it."""


def turn(say: Callable[[Words], None], pairs: Sequence[Pair], *, back: bool) -> None:
    """Turn each of these, or put each back, whatever becomes of another; raises NotInForceError where something else
    is in effect then.
    """
    wrong: list[VirtuneError] = []
    for pair in pairs:
        try:
            say(pair[back])
        except VirtuneError as error:
            if not back:
                raise
            wrong += [] if isinstance(error, ThreadEndedError) else [error]
    if wrong:
        raise wrong[0]


class LibvirtVm:
    """A running libvirt domain."""

    def __init__(self, virsh: Virsh, name: str) -> None:
        """Raises PreconditionError when there is no such domain, or it does not run."""
        self.name, self.place, self.uuid = name, virsh.uri, LiveDomain(virsh, name).uuid
        self._virsh = Virsh(virsh.uri, write=True)
        self._domain = LibvirtDomain(self._virsh, self.uuid)

    @contextlib.contextmanager
    def watched(self) -> Iterator[LiveView]:
        yield LiveDomain(self._virsh, self.name)

    @property
    def ended(self) -> bool:
        """Whether libvirt says so: one that it does not know may run elsewhere, as one that migrated does."""
        found = self._virsh.dump([self.uuid])
        return bool(found) and found[0].live is None and found[0].reason != "migrated"

    def say(self, view: LiveView, words: Words) -> None:  # noqa: ARG002 - libvirt is asked
        if not self._domain.has_thread_of(words):
            raise ThreadEndedError(f"{self.name} has no {words[0].removesuffix('pin')} {words[2]} any more")
        self._domain.live(words)
        if words[0] != _LIMITING:
            if not self._domain.shows(asked := _change(words)):
                raise NotInForceError(f"{asked.knob}={asked.value} was set, and libvirt shows another value")
            return
        disk = self._disk(target := words[2])
        if disk is None:
            raise NotInForceError(f"{target} is no longer there")
        options = zip(words[3:-1:2], words[4:-1:2], strict=True)
        wanted = {name.removeprefix("--").replace("-", "_"): int(value) for name, value in options}
        _require_limits(target, wanted, {name: value for name, value in disk.limits if value})

    def configuration(self) -> bytes:
        self._domain.require_persistent(self.name)
        return self._domain.configuration()

    def limits(self, target: str) -> Turnable | None:
        """Return the limits of a disk; libvirt lifts those of a group for all of its disks, so they stay."""
        disk = self._disk(target)
        limits = {} if disk is None or disk.limits_group else {name: value for name, value in disk.limits if value}

        def tuned(values: Mapping[str, int]) -> Words:
            words = (word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value)))
            return (_LIMITING, self.uuid, target, *words, "--live")

        return _lifted(f"{self.name}:{target}", limits, (tuned(dict.fromkeys(limits, 0)), tuned(limits)))

    def polling(self, threads: Sequence[ThreadCost], ns: int) -> Turnable | None:
        return _polled(self.name, self._found((one, _POLLING, str(ns)) for one in threads), ns)

    def pins(self, threads: Sequence[ThreadCost]) -> Turnable | None:
        """Return the pins of threads, if libvirt set them and nobody has set others since."""
        found: Found = []
        if (pid := LiveDomain(self._virsh, self.name).vm.pid) is None:
            return None
        for one in threads:
            now, wide = Process(pid).cpus_of(one.tid), _wider(pid, one.tid)
            pinned = self._found([(one, _PINS[one.role], wide)]) if wide else []
            found += [each for each in pinned if set(parse_list(each[1])) == set(parse_list(now or ""))]
        return _widened(self.name, found)

    def _found(self, asked: Iterable[tuple[ThreadCost, str, str]]) -> Found:
        """Return what virsh turns of these; what is in effect now is known of each."""
        turns = [
            # libvirt calls its IOThread 1 `iothread1`
            SettingChange(knob=knob, at=_place(one).replace("iothread:iothread", "iothread:"), value=value)
            for one, knob, value in asked
        ]
        pairs = self._domain.live_pairs(turns)
        return [(turn, pair[1][-2], pair) for turn, pair in pairs if self._domain.shows(_change(pair[1]))]

    def _disk(self, target: str) -> DomainDisk | None:
        found = self._virsh.dump([self.uuid])
        live = found[0].live if found else None
        return None if live is None else read_domain(live.encode()).disk(target)


@dataclass(slots=True, kw_only=True)
class MonitoredVm:
    """A running QEMU, by the socket of its monitor. Its `uuid` is that of the process."""

    place: str
    uuid: str
    name: str
    pid: int

    @classmethod
    def find(cls, socket: Path) -> Self | None:
        """Return the QEMU that listens there; None where its process is not seen."""
        with monitored(socket) as view:
            if (pid := view.vm.pid) is None:
                return None
            return cls(place=f"{MONITOR}{socket.absolute()}", uuid=_identity(pid), name=view.vm.name, pid=pid)

    @contextlib.contextmanager
    def watched(self) -> Iterator[LiveMonitor]:
        with _same(Path(self.place.removeprefix(MONITOR)), self.uuid) as view:
            yield view

    @property
    def ended(self) -> bool:
        return not _runs(self.uuid)

    def say(self, view: LiveView, words: Words) -> None:
        _say(view, words)

    def configuration(self) -> bytes:
        """Return the command line, which a QEMU keeps whatever its monitor is told."""
        return b"\0".join(word.encode(errors="surrogateescape") for word in Process(self.pid).argv())

    def limits(self, target: str) -> Turnable | None:
        """Return the limits of a disk, set by `block_set_io_throttle` or the command line's `-drive`: those of a
        throttle filter, and of a group that several disks have, stay.
        """
        with self.watched() as view:
            shown = view.monitor.execute("query-block")
        known = [one for one in shown if one.get("inserted")]
        one = dict(named(shown)).get(target, {})
        if not (limits := _limits(one)):
            return None
        group = one["inserted"].get("group", "")
        if any(_limits(other) and other["inserted"].get("group") == group for other in known if other is not one):
            return None
        which = {"id": one["qdev"]} if one.get("qdev") else {"device": one["device"]}
        none = dict.fromkeys(_BASE.values(), 0)
        back = none | {_SAID[name]: value for name, value in limits.items()}
        pair = (_THROTTLING, json.dumps(which | none)), (_THROTTLING, json.dumps(which | back | {"group": group}))
        return _lifted(f"{self.name}:{target}", limits, pair)

    def polling(self, threads: Sequence[ThreadCost], ns: int) -> Turnable | None:
        tids = {one.tid for one in threads}
        with self.watched() as view:
            every = view.monitor.execute("query-iothreads")
        shown = [one for one in every if one["thread-id"] in tids and "poll-max-ns" in one]

        def said(one: Mapping[str, Any], value: int) -> Words:
            path = f"/objects/{one['id']}"
            return "qom-set", json.dumps({"path": path, "property": "poll-max-ns", "value": value})

        found = [
            (
                SettingChange(knob=_POLLING, at=f"iothread:{one['id']}", value=str(ns)),
                str(one["poll-max-ns"]),
                (said(one, ns), said(one, one["poll-max-ns"])),
            )
            for one in shown
        ]
        return _polled(self.name, found, ns)

    def pins(self, threads: Sequence[ThreadCost]) -> Turnable | None:
        found: Found = []
        for one in threads:
            now, wide = Process(self.pid).cpus_of(one.tid), _wider(self.pid, one.tid)
            if now is None or wide is None:
                continue
            which = {"pid": self.pid, "tid": one.tid, "began": Process(self.pid).thread_began(one.tid)}
            do, back = ((_AFFINITY, json.dumps(which | {"cpus": cpus})) for cpus in (wide, now))
            found.append((SettingChange(knob=_PINS[one.role], at=_place(one), value=wide), now, (do, back)))
        return _widened(self.name, found)


def put_back(entry: Entry, journal: Journal) -> str:
    """Put back what a test of a QEMU turned, which was cut short; return what was done, in a sentence. Raises
    NotInForceError where something else is in effect then.
    """
    with journal.alone():
        entry = journal.read(entry.id)
        if Step.UNDONE in entry.steps:
            return f"{entry.domain} was put back before; nothing to do"
        try:
            with _same(Path(entry.uri.removeprefix(MONITOR)), entry.uuid) as view:
                turn(partial(_say, view), entry.live, back=True)
        except PreconditionError:
            if _runs(entry.uuid):
                raise
            journal.step(entry, Step.UNDONE)
            return f"the QEMU of {entry.domain} has ended, and what was set with it; nothing to do"
        journal.step(entry, Step.UNDONE)
        return f"{entry.domain} is as it was before {entry.id}"


def _lifted(disk: str, limits: Mapping[str, int], pair: Pair) -> Turnable | None:
    if not any(name in _BASE for name in limits):
        return None
    knobs = [limit.knob for limit in LIMITS if limit.libvirt in limits]
    said = ", ".join(f"{name} {value:,}" for name, value in limits.items())
    return Turnable(
        arm="no-limit", named=f"the limit of {disk} ({said})", turned="lifted",
        risk="what it protects may be slower",
        turns=tuple(SettingChange(knob=knob, at=disk.rpartition(":")[2], value="0") for knob in knobs), pairs=(pair,),
    )  # fmt: skip


def _polled(vm: str, found: Found, ns: int) -> Turnable | None:
    found = [one for one in found if (int(one[1]) > 0) != (ns > 0)]
    said = ", ".join(f"{turn.at}: {format_ns(int(now))}" for turn, now, _ in found)
    arm, turned, risk = "no-polling", "switched off", "its disks may be slower"
    if ns:
        arm, turned, risk = "polling", f"set to {format_ns(ns)}", "it uses more CPU"
    return _of(found, arm=arm, named=f"the polling of {vm} ({said})", turned=turned, risk=risk)


def _widened(vm: str, found: Found) -> Turnable | None:
    said = ", ".join(f"{turn.at or 'emulator'}: CPU {now}" for turn, now, _ in found)
    cpus = ", ".join(dict.fromkeys(str(turn.value) for turn, *_ in found))
    return _of(
        found, arm="unpinned", named=f"the pin of {vm} ({said})", turned=f"widened to the CPUs {cpus}",
        risk="what else runs there may be slower",
    )  # fmt: skip


def _of(found: Found, **said: str) -> Turnable | None:
    turns, pairs = tuple(turn for turn, *_ in found), tuple(pair for *_, pair in found)
    return Turnable(turns=turns, pairs=pairs, **said) if found else None


def _place(one: ThreadCost) -> str:
    """Return what a setting of a thread is `at`: QEMU calls threads `IO io1` and `CPU 0/KVM`."""
    name = one.name.partition(" ")[2]
    return {"iothread": f"iothread:{name}", "vcpu": f"vcpu:{name.partition('/')[0]}"}.get(one.role, "")


def _change(words: Words) -> SettingChange:
    """Return what a command of virsh sets that pins threads or has an IOThread poll."""
    kind = words[0].removesuffix("pin").removesuffix("set")
    knob = _POLLING if words[0] == "iothreadset" else f"{kind}.pin"
    return SettingChange(knob=knob, at="" if kind == "emulator" else f"{kind}:{words[2]}", value=words[-2])


def _wider(pid: int, tid: int) -> str | None:
    """Return the CPUs that a thread could have, where it has only some of them; None on a host that keeps some CPUs
    for what is pinned there (`isolcpus`).
    """
    if tree.text(_ISOLATED):
        return None
    now, all_of_them = Process(pid).cpus_of(tid), group_cpus(pid)
    if now is None or all_of_them is None or not set(parse_list(now)) < set(parse_list(all_of_them)):
        return None
    return all_of_them


def _say(view: LiveView, words: Words) -> None:
    assert isinstance(view, LiveMonitor)  # noqa: S101 - the one that `watched` gives
    command, said = words[0], json.loads(words[1])
    if command == _AFFINITY:
        _let_run(**said)
        return
    view.monitor.execute(command, said)
    if command == _THROTTLING:
        shown = view.monitor.execute("query-block")
        view.rest()
        which = ("qdev", said["id"]) if "id" in said else ("device", said["device"])
        asked = {name: said.get(word, 0) for name, word in _SAID.items()}
        for target, one in named(shown):
            if which in one.items():
                _require_limits(target, asked, _limits(one))
        return
    value = view.monitor.execute("qom-get", {name: said[name] for name in ("path", "property")})
    view.rest()
    if value != said["value"]:
        raise NotInForceError(f"{said['property']} of {said['path']} was set to {said['value']}, and is {value}")


def _let_run(*, pid: int, tid: int, began: str, cpus: str) -> None:
    """Have a thread run on these CPUs, if it is still the one that began then."""
    process, wanted = Process(pid), set(parse_list(cpus))
    if not began or process.thread_began(tid) != began:
        raise ThreadEndedError(f"the thread {tid} of QEMU {pid} has ended")
    try:
        if set(parse_list(process.cpus_of(tid) or "")) != wanted:
            os.sched_setaffinity(tid, wanted)
    except OSError as error:
        raise PreconditionError(f"the thread {tid} cannot be given the CPUs {cpus}: {error.strerror}") from None
    if set(parse_list(shown := process.cpus_of(tid) or "")) != wanted:
        raise NotInForceError(f"the thread {tid} was given the CPUs {cpus}, and has {shown or 'none'}")


def _require_limits(target: str, asked: Mapping[str, int], shown: Mapping[str, int]) -> None:
    """Raise NotInForceError where a disk has other limits than these; with none it may keep the size of a request."""
    wanted = {name: value for name, value in asked.items() if value}
    if dict(shown) != wanted if wanted else any(name in _BASE for name in shown):
        way = "put back" if wanted else "lifted"
        raise NotInForceError(f"the limits of {target} were {way}, and it has {dict(shown) or 'none'}")


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
