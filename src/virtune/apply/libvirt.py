# SPDX-License-Identifier: Apache-2.0
"""Change a libvirt domain: read its whole configuration, redefine it, and change some settings while it runs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice

from virtune.dialects.libvirt.domain import read_domain
from virtune.model.domain import Domain, SettingChange
from virtune.model.errors import PreconditionError
from virtune.model.stack import POLL_DEFAULT_NS
from virtune.virsh import DumpedDomain, LibvirtRefused, Virsh, as_file

_LIMITS = {
    "disk.throttle_iops": ("--total-iops-sec", "total_iops_sec"),
    "disk.throttle_bps": ("--total-bytes-sec", "total_bytes_sec"),
    "disk.throttle_iops_read": ("--read-iops-sec", "read_iops_sec"),
    "disk.throttle_iops_write": ("--write-iops-sec", "write_iops_sec"),
    "disk.throttle_bps_read": ("--read-bytes-sec", "read_bytes_sec"),
    "disk.throttle_bps_write": ("--write-bytes-sec", "write_bytes_sec"),
}
_PINS = {"iothread.pin": "iothreadpin", "vcpu.pin": "vcpupin", "emulator.pin": "emulatorpin"}

Pair = tuple[tuple[str, ...], tuple[str, ...]]
"""A virsh command and the one that undoes it."""


class LibvirtDomain:
    """One persistent domain, on a connection that may write."""

    def __init__(self, virsh: Virsh, uuid: str) -> None:
        self._virsh, self.uuid = virsh, uuid

    def dump(self) -> DumpedDomain:
        """Return the domain with its complete XML, passwords included; raises PreconditionError when it is gone."""
        found = self._virsh.dump([self.uuid], secrets_too=True)
        if not found:
            raise PreconditionError(f"there is no domain {self.uuid} any more at {self._virsh.uri}")
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

    def configuration(self) -> bytes:
        """Return the XML of the next start."""
        return (self.dump().inactive or "").encode()

    def define(self, xml: bytes) -> bytes:
        """Define a configuration, and return the XML that libvirt made of it; raises LibvirtRefused."""
        with as_file(xml) as name:
            self._virsh.run("define", name)
        return self.configuration()

    def live(self, words: Sequence[str]) -> None:
        """Run a command of `live_pairs`; removing a missing IOThread is no error."""
        if words[0] == "iothreaddel" and words[2] not in _thread_numbers(self._live()):
            return
        self._virsh.run(*words)

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
