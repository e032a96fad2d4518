# SPDX-License-Identifier: Apache-2.0
"""Change a libvirt domain: read its whole configuration, redefine it, change some settings while it runs, exchange
its disks as it runs, and power it off and on. A guest is never destroyed unless that was requested.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path

from virtune.apply.journal import Plug
from virtune.dialects.libvirt.domain import boot_disks, read_domain
from virtune.model.domain import HOTPLUG_BUSES, Domain, DomainDisk, SettingChange
from virtune.model.errors import PreconditionError, VirtuneError
from virtune.model.stack import LIMITS, POLL_DEFAULT_NS
from virtune.virsh import DumpedDomain, LibvirtRefused, Virsh, as_file

_LIMITS = {one.knob: (f"--{one.libvirt.replace('_', '-')}", one.libvirt) for one in LIMITS}
"""The option of `virsh blkdeviotune` and the element of the XML, by the knob of a limit."""

_PINS = {"iothread.pin": "iothreadpin", "vcpu.pin": "vcpupin", "emulator.pin": "emulatorpin"}

Pair = tuple[tuple[str, ...], tuple[str, ...]]
"""A virsh command and the one that undoes it."""


class LibvirtDomain:
    """One persistent domain, on a connection that may write."""

    def __init__(self, virsh: Virsh, uuid: str) -> None:
        self._virsh, self.uuid = virsh, uuid

    def dump(self, *, kept: Path | None = None) -> DumpedDomain:
        """Return the domain with its complete XML, passwords included; raises PreconditionError when it is gone, with
        where its XML is kept.
        """
        found = self._virsh.dump([self.uuid], secrets_too=True)
        if not found:
            hint = f"`virsh define {kept}` makes it as it was" if kept else None
            raise PreconditionError(f"there is no domain {self.uuid} any more at {self._virsh.uri}", hint=hint)
        return found[0]

    def require_persistent(self, name: str) -> None:
        """Raise PreconditionError for a transient domain, which is gone when it stops."""
        if self.uuid not in self._virsh.run("list", "--all", "--persistent", "--uuid").split():
            raise PreconditionError(
                f"{name} is a transient domain: it has no configuration that could be changed",
                hint="change what creates it (OpenStack, KubeVirt and oVirt make such domains)",
            )

    def is_saved(self) -> bool:
        """Whether the next start resumes a saved guest (`virsh managedsave`), which brings its old disks with it."""
        return re.search(r"^Managed save:\s+yes$", self._virsh.run("dominfo", self.uuid), re.MULTILINE) is not None

    def configuration(self, *, kept: Path | None = None) -> bytes:
        """Return the XML of the next start; as `dump` does."""
        return (self.dump(kept=kept).inactive or "").encode()

    def define(self, xml: bytes) -> bytes:
        """Define a configuration, and return the XML that libvirt made of it; raises LibvirtRefused."""
        with as_file(xml) as name:
            self._virsh.run("define", name)
        return self.configuration()

    def live(self, words: Sequence[str]) -> None:
        """Run a command of `live_pairs`; that an IOThread or a vCPU is no longer there is no error."""
        if self.has_thread_of(words):
            self._virsh.run(*words)

    def has_thread_of(self, words: Sequence[str]) -> bool:
        """Whether the thread that a command is about is there; true of one that is about none, or adds one."""
        match words[0]:
            case "iothreaddel" | "iothreadset" | "iothreadpin":
                return words[2] in _thread_numbers(self._live())
            case "vcpupin":
                return int(words[2]) < self._live().vcpus
            case _:
                return True

    def live_pairs(self, turns: Sequence[SettingChange]) -> tuple[tuple[SettingChange, Pair], ...]:
        """Return for each change that is possible on the running domain the commands to make and to undo it."""
        dumped = self.dump()
        if dumped.live is None:
            return ()
        live = read_domain(dumped.live.encode())
        made = [(turn, pair) for turn in turns if turn.knob == "iothread.count" for pair in self._threads(turn, live)]
        threads = _thread_numbers(live) | {do[2] for _, (do, _) in made}
        others = ((turn, pair) for turn in turns for pair in self._pair(turn, live, threads))
        return (*made, *others, *self._limits(turns, live))

    def shows(self, turn: SettingChange) -> bool:
        """Whether the running domain has a changed setting, also one that cannot be changed while it runs."""
        live = self._live()
        if turn.knob in _PINS:
            return live.pin(turn.at or "emulator") == turn.value
        if turn.knob == "iothread.poll_max_ns":
            return self._polls(turn.at) == turn.value
        if turn.knob == "iothread.count":
            return str(len(live.threads)) == (turn.value or "0")
        disk = live.disk(turn.at)
        limit = dict(disk.limits).get(_LIMITS[turn.knob][1], 0) if disk is not None else 0
        return str(limit) == (turn.value or "0")

    def _live(self) -> Domain:
        return read_domain((self.dump().live or "").encode())

    def _threads(self, turn: SettingChange, live: Domain) -> Iterator[Pair]:
        """IOThreads that are added while it runs, with libvirt's numbers; none is removed."""
        taken = {thread.number for thread in live.threads}
        free = (number for number in count(1) if number not in taken)
        for number in islice(free, max(0, int(turn.value or "0") - len(taken))):
            yield (
                ("iothreadadd", self.uuid, str(number), "--live"),
                ("iothreaddel", self.uuid, str(number), "--live"),
            )

    def _pair(self, turn: SettingChange, live: Domain, threads: set[str]) -> Iterator[Pair]:
        kind, _, number = turn.at.partition(":")
        if kind == "iothread" and number not in threads:
            return  # it is created at the next start
        if turn.knob in _PINS and turn.value is not None:
            words = (_PINS[turn.knob], self.uuid, *((number,) if number else ()))
            yield (
                (*words, turn.value, "--live"),
                (*words, live.pin(turn.at or "emulator") or self._all_cpus(), "--live"),
            )
        elif turn.knob == "iothread.poll_max_ns" and turn.value is not None:
            words = ("iothreadset", self.uuid, number, "--poll-max-ns")
            yield (*words, turn.value, "--live"), (*words, self._polls(turn.at) or str(POLL_DEFAULT_NS), "--live")

    def _limits(self, turns: Sequence[SettingChange], live: Domain) -> Iterator[tuple[SettingChange, Pair]]:
        """Limits of disks, removed ones first: a total limit cannot be combined with one on reads."""
        wanted = [turn for turn in turns if turn.knob in _LIMITS]
        now = {disk.target: dict(disk.limits) for disk in live.disks}
        for turn in sorted(wanted, key=lambda turn: turn.value not in (None, "0")):
            if turn.at in now:
                before = self._limit(turn, now[turn.at])
                now[turn.at][_LIMITS[turn.knob][1]] = int(turn.value or "0")
                yield turn, (self._limit(turn, now[turn.at]), before)

    def _limit(self, turn: SettingChange, limits: Mapping[str, int]) -> tuple[str, ...]:
        """Set a limit together with the two others of its category, which virsh resets when they are omitted."""
        unit = _LIMITS[turn.knob][1].partition("_")[2]
        category = [(flag, name) for flag, name in _LIMITS.values() if name.endswith(unit)]
        said = (word for flag, name in category for word in (flag, str(limits.get(name, 0))))
        return ("blkdeviotune", self.uuid, turn.at, *said, "--live")

    def _all_cpus(self) -> str:
        cpus = self._virsh.facts().cpus
        if cpus is None:
            raise LibvirtRefused("libvirt does not say how many CPUs its host has")
        return f"0-{cpus - 1}"

    def _polls(self, at: str) -> str | None:
        said = self._virsh.run("domstats", "--iothread", self.uuid)
        found = re.search(rf"^\s*iothread\.{at.partition(':')[2]}\.poll-max-ns=(\d+)$", said, re.MULTILINE)
        return found[1] if found else None


def _thread_numbers(domain: Domain) -> set[str]:
    return {str(thread.number) for thread in domain.threads}


_LOOK_SECONDS = 0.25

_ASK_SECONDS = 10.0
"""The interval of shutdown requests: a booting guest ignores them, and one that is shutting down ignores further
ones.
"""

_NEVER_RAN_NS = 50_000_000
"""Creating the thread of a vCPU takes some milliseconds; a guest that has run for 50 ms is still in its firmware."""


class StillRunningError(VirtuneError):
    """A guest did not shut down in time. The request cannot be cancelled, so it may still do so."""


class Power:
    """The power of one domain."""

    def __init__(self, virsh: Virsh, uuid: str) -> None:
        self._virsh, self._uuid = virsh, uuid

    def state(self) -> str:
        """Return the state in libvirt's words."""
        return self._virsh.state(self._uuid)

    def is_off(self) -> bool:
        """Whether no process runs it."""
        return self.state() == "shut off"

    def never_ran(self) -> bool:
        """Whether it is paused since its start, so its vCPUs have used almost no CPU time."""
        said = self._virsh.run("domstats", "--vcpu", self._uuid)
        used = sum(int(text) for text in re.findall(r"^\s*vcpu\.\d+\.time=(\d+)$", said, re.MULTILINE))
        return self.state() == "paused" and used <= _NEVER_RAN_NS

    def shut_down(self, seconds: float, *, force_off: bool) -> None:
        """Ask the guest to power off, through its agent or by ACPI, and wait.

        Raises StillRunningError if it has not in time, unless it may be destroyed then.
        """
        because = f"the guest did not shut down within {seconds:g} s"
        deadline = time.monotonic() + seconds
        down = False
        while not down and (left := deadline - time.monotonic()) > 0:
            try:
                self._virsh.run("shutdown", self._uuid)
            except LibvirtRefused as refusal:  # one that is paused, say
                because, left = refusal.message, 0
                deadline = time.monotonic()
            down = self.wait_until_off(min(left, _ASK_SECONDS))
        if not down:
            if not force_off:
                raise StillRunningError(because, hint="--force-off pulls the plug of such a guest")
            self.pull_the_plug()

    def wait_until_off(self, seconds: float) -> bool:
        """Wait for its process to end; whether it did in time."""
        deadline = time.monotonic() + seconds
        while not self.is_off():
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def pull_the_plug(self) -> None:
        """Destroy the domain: end its process now. Data that the guest has not flushed is lost."""
        try:
            self._virsh.run("destroy", self._uuid)
        except LibvirtRefused:
            if not self.is_off():
                raise

    def start_paused(self) -> None:
        """Start its process; the guest does not run yet."""
        self._virsh.run("start", self._uuid, "--paused")

    def resume(self) -> None:
        """Let the guest run."""
        if self.state() == "paused":
            self._virsh.run("resume", self._uuid)


_PLUG_LOOK_SECONDS = 0.2


class StillPluggedError(VirtuneError):
    """A guest did not release a disk in time. The request cannot be cancelled, so it may still do so."""


def require_spare(virsh: Virsh, uuid: str, live: bytes, target: str) -> None:
    """Raise PreconditionError for a disk that the guest cannot spare: its boot disk, its only disk, or one with a
    mounted filesystem according to the guest agent.
    """
    domain = read_domain(live)
    data = [disk.target for disk in domain.disks if disk.holds_data]
    if target not in data:
        raise PreconditionError(f"there is no disk {target!r} in the running domain that holds data")
    disk = domain.disk(target)
    if disk is not None and disk.bus not in HOTPLUG_BUSES:
        raise PreconditionError(
            f"{target} is on the bus {disk.bus}, and libvirt replugs only {', '.join(sorted(HOTPLUG_BUSES))} disks",
            hint=_LATER,
        )
    if target in boot_disks(live):
        raise PreconditionError(f"{target} is what the guest boots from, and is not unplugged", hint=_LATER)
    if data == [target]:
        raise PreconditionError(f"{target} is the guest's only disk, and is not unplugged", hint=_LATER)
    places = mounted(virsh, uuid).get(target, ())
    if places:
        raise PreconditionError(
            f"the guest has {target} mounted on {', '.join(places)}",
            hint=f"unmount it in the guest first, or {_LATER}",
        )


def mounted(virsh: Virsh, uuid: str) -> dict[str, tuple[str, ...]]:
    """Return the guest's mount points by disk target; empty without an agent."""
    try:
        said = virsh.run("domfsinfo", uuid)
    except LibvirtRefused:
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for line in said.splitlines():
        place, *rest = re.split(r"\s{2,}", line.strip())
        for target in rest[-1].split(",") if len(rest) >= 3 else ():
            found[target] = (*found.get(target, ()), place)
    return found


def exchange(virsh: Virsh, uuid: str, plug: Plug, seconds: float) -> None:
    """Detach a disk, wait until the guest has released it, and attach it with its new settings."""
    unplug(virsh, uuid, plug.target, plug.old, seconds)
    plug_in(virsh, uuid, plug.new)


def unplug(virsh: Virsh, uuid: str, target: str, xml: str, seconds: float) -> None:
    """Ask the guest to release a disk; raises VirtuneError when it has not within that time."""
    _device(virsh, "detach-device", uuid, xml)
    deadline = time.monotonic() + seconds
    while plugged(virsh, uuid, target) is not None:
        if time.monotonic() > deadline:
            raise StillPluggedError(f"the guest did not let go of {target} within {seconds:g} s; it may still do so")
        time.sleep(_PLUG_LOOK_SECONDS)


def plug_in(virsh: Virsh, uuid: str, xml: str) -> None:
    """Attach a disk to a running domain."""
    _device(virsh, "attach-device", uuid, xml)


def plugged(virsh: Virsh, uuid: str, target: str) -> DomainDisk | None:
    """Return a disk as the running domain has it, None where it has none of that name."""
    found = virsh.dump([uuid], secrets_too=True)
    live = found[0].live if found else None
    return read_domain(live.encode()).disk(target) if live is not None else None


def _device(virsh: Virsh, verb: str, uuid: str, xml: str) -> None:
    with as_file(xml) as name:
        virsh.run(verb, uuid, name, "--live")


_LATER = "leave --replug out: it changes when the domain is powered off and on"
