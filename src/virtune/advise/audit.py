# SPDX-License-Identifier: Apache-2.0
"""The audit: run every rule on one domain, sort the findings by severity, and say what could not be looked at. And
what a change of a disk takes (a restart, say) and risks, judged by its value and the disk, not by the knob alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from virtune.advise import device, durability, engine, placement
from virtune.advise.device import scsi_model
from virtune.advise.rule import RULES, version_of_machine
from virtune.model.domain import (
    HOTPLUG_BUSES,
    LIMIT_KNOBS,
    LIVE_KNOBS,
    Controller,
    Domain,
    DomainDisk,
    SettingChange,
    cache_of,
    in_page_cache,
)
from virtune.model.finding import UNKNOWN_STATE, Finding, Need, NotLookedAt, Rule, Seen, Subject
from virtune.model.knob import Change, Risk
from virtune.model.knobs import find

_PROMISES: Mapping[str, int] = {"unsafe": 0, "writeback": 1, "none": 1, "writethrough": 2, "directsync": 2}
"""What a cache mode promises: nothing; what the guest flushed is durable; so is every write."""

_HARMLESS: Mapping[tuple[str, str | None], Risk] = {
    ("disk.discard", "ignore"): Risk.NONE,
    ("disk.discard", None): Risk.NONE,
    ("disk.detect_zeroes", "off"): Risk.NONE,
    ("disk.detect_zeroes", None): Risk.NONE,
    ("disk.copy_on_read", "off"): Risk.NONE,
    ("disk.copy_on_read", None): Risk.NONE,
    ("disk.aio", "threads"): Risk.PERFORMANCE,
    ("disk.aio", None): Risk.PERFORMANCE,
    ("cpu.kvm_hidden", None): Risk.AVAILABILITY,  # some GPU drivers refuse a guest that shows it
}
"""Values with another risk than the knob's worst."""

_ORDER = (Change.LIVE, Change.REPLUG, Change.POWEROFF)


class Consequences:
    """The consequences of one domain's changes: what they take and risk."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._disks = {disk.target: disk for disk in reversed(domain.disks)}
        self._first = next((disk.target for disk in domain.disks if disk.holds_data), None)

    def takes(self, change: SettingChange) -> Change:
        """Return what it takes until a change is in effect on a running VM, when virtune makes it.

        A disk is replugged only where its bus allows that, and never the first one, which the guest boots from.
        """
        domain = self._domain
        if domain.language != "libvirt":
            return Change.LIVE if domain.language == "proxmox" and change.knob in LIMIT_KNOBS else Change.POWEROFF
        if change.knob == "iothread.count":
            return Change.LIVE if int(change.value or "0") >= len(domain.threads) else Change.POWEROFF
        if change.knob in LIVE_KNOBS:
            return Change.LIVE
        disk = self._disks.get(change.at)
        if disk is None or disk.bus not in HOTPLUG_BUSES or not disk.holds_data or disk.target == self._first:
            return Change.POWEROFF
        pluggable = find(change.knob).change in (Change.LIVE, Change.SWAP, Change.REPLUG)
        return Change.REPLUG if pluggable else Change.POWEROFF

    def risk(self, change: SettingChange) -> Risk:
        """Return the worst that this value can do to this disk."""
        if change.knob == "disk.cache":
            disk = self._disks.get(change.at)
            now = _PROMISES.get(cache_of(disk), 1) if disk is not None else 1
            if disk is not None and disk.shareable and in_page_cache(replace(disk, cache=change.value)):
                return Risk.DATA  # other hosts write to it
            return Risk.DATA if _PROMISES.get(change.value or "writeback", 1) < now else Risk.PERFORMANCE
        if change.knob in ("device.werror", "device.rerror") and change.value != "ignore":
            return Risk.AVAILABILITY
        return _HARMLESS.get((change.knob, change.value), find(change.knob).risk)

    def of_all(self, changes: Sequence[SettingChange]) -> tuple[Change, Risk]:
        """Return what several changes take and risk together: the most of each."""
        most = max(map(self.takes, changes), key=_ORDER.index)
        return most, max(map(self.risk, changes), key=list(Risk).index)


ROOMS = (durability, engine, device, placement)
"""The modules whose rules are asked."""

_OWN_RULES = ("xl", "vmx", "bhyve", "vm-bhyve")
"""Languages of other hypervisors whose disks have rules of their own."""

_AUDITED_AS = {
    "xen": "its xl configuration",
    "vmware": "its .vmx",
    "bhyve": "its configuration for bhyve or vm-bhyve",
}
"""Of libvirt's types that QEMU does not run: what of the same VM has rules."""

_TYPE_MAX = 40
"""The longest type that is quoted."""


def rules() -> tuple[Rule, ...]:
    """Return every rule in the order of their numbers, in whatever order their modules were imported."""
    return tuple(sorted(RULES.values(), key=lambda one: one.id))


def audit(subject: Subject, asked: Sequence[Rule] | None = None) -> tuple[Finding, ...]:
    """Run every rule, or some, and return the findings: the most severe first, then by place."""
    some = RULES.values() if asked is None else asked
    # of a Proxmox VM what runs is in the same file
    live = subject.running.live.disks if subject.running and subject.domain.language == "proxmox" else ()
    lines = {disk.target: disk.line for disk in reversed((*subject.domain.disks, *live))}
    consequences = Consequences(subject.domain)
    found = [
        _finding(rule, subject.domain, seen, lines, consequences) for rule in some for seen in rule.check(subject)
    ]
    return tuple(sorted(found, key=lambda one: (-one.rule.severity.rank, one.line, one.rule.id)))


def not_audited(domain: Domain) -> str:
    """Return why the rules cannot judge the disks of a domain: who serves them is not known, or is no QEMU, or a part
    of the configuration was not read. Empty where they can.
    """
    if domain.elsewhere:
        return f"{', '.join(domain.elsewhere)} was not read, and there may be disks in it, or settings of them"
    if domain.runs_qemu or domain.language in _OWN_RULES:
        return ""
    if not domain.kind:
        return "it has no type, and libvirt refuses such a domain; with type='kvm' it would be audited"
    what = _AUDITED_AS.get(domain.kind, "a domain that QEMU runs (type kvm, qemu, hvf or nvmm)")
    return f"type {domain.kind[:_TYPE_MAX]}: no rule knows how its disks are served; {what} would be audited"


def rules_by_need(asked: Sequence[Rule]) -> Mapping[Need, tuple[str, ...]]:
    """Return the rules that need a fact, by their ids, for every fact that any of them needs."""
    return {need: tuple(sorted(rule.id for rule in asked if need in rule.needs)) for need in Need}


def not_looked_at(subject: Subject, by_need: Mapping[Need, tuple[str, ...]]) -> tuple[NotLookedAt, ...]:
    """Return which rules could not look at a domain, or not at all of it, and what they lack."""
    needs = _UNKNOWN if subject.disks else _WITHOUT_DISKS
    return tuple(
        _lacking(need, _machine(subject.domain) if need is Need.MACHINE else "", by_need[need])
        for need, unknown in needs.items()
        if by_need[need] and unknown(subject)
    )


@lru_cache(maxsize=1024)  # the same few of ten thousand files
def _lacking(need: Need, which: str, some: tuple[str, ...]) -> NotLookedAt:
    return NotLookedAt(unknown=f"{need.value}{which}", rules=some)


def _machine(domain: Domain) -> str:
    return f" ({(domain.machine or 'not written')[:_TYPE_MAX]})"


def _files(subject: Subject) -> Iterator[DomainDisk]:
    return (disk for disk in subject.disks if disk.source.kind in ("file", "volume"))


def _state_unknown(subject: Subject) -> bool:
    """Whether nobody asked if it runs, or got no answer: a file does not say, a libvirt and a QEMU's monitor do."""
    running = subject.running
    return subject.connect is None if running is None else running.state == UNKNOWN_STATE


def _image_unknown(subject: Subject) -> bool:
    seen = (subject.image(disk) for disk in _files(subject))
    return any(
        None in (one.size_bytes, one.allocated_bytes, one.filesystem, one.free_share)
        or (one.filesystem == "btrfs" and one.copy_on_write is None)
        for one in seen
    )


def _header_unknown(subject: Subject) -> bool:
    seen = (subject.image(disk) for disk in subject.disks if disk.format == "qcow2" and disk.opened_here)
    return any(None in (one.size_bytes, one.cluster_bytes, one.extended_l2, one.backing) for one in seen)


def _chain_unknown(subject: Subject) -> bool:
    return any(
        disk.backing is None
        and disk.format == "qcow2"
        and subject.image(disk).backing is not False
        and subject.image(disk).below is None
        for disk in subject.disks
    )


def _engine_unknown(subject: Subject) -> bool:
    if not any(disk.io in ("io_uring", "native") for disk in subject.disks):
        return False
    running = subject.running
    return _state_unknown(subject) or (running is not None and None in (running.rings, running.contexts))


def _opened_unknown(subject: Subject) -> bool:
    if subject.running is None:
        return subject.connect is None
    shown = {disk.target for disk in subject.running.disks if disk.direct is not None}
    live = subject.running.live.disks
    return any(
        disk.source.kind in ("file", "block") and disk.holds_data and disk.target not in shown for disk in live
    )


def _uses(subject: Subject, engine: str) -> bool:
    return any(disk.io == engine and disk.opened_here for disk in subject.disks)


_UNKNOWN: Mapping[Need, Callable[[Subject], bool]] = {
    Need.KERNEL: lambda on: on.host.kernel is None and _uses(on, "io_uring"),
    Need.QEMU: lambda on: on.host.qemu is None,
    Need.LIBVIRT: lambda on: on.host.libvirt is None and bool(on.domain.written),
    Need.IO_URING: lambda on: None in (on.host.io_uring_disabled, on.host.io_uring_usable) and _uses(on, "io_uring"),
    Need.AIO_EVENTS: lambda on: None in (on.host.aio_used, on.host.aio_limit) and _uses(on, "native"),
    Need.CPUS: lambda on: on.host.cpus is None or (on.host.online is None and bool(on.domain.pins)),
    Need.MEMORY: lambda on: None in (on.host.memory_bytes, on.host.dirty_percent, on.host.dirty_bytes),
    Need.GOVERNOR: lambda on: on.host.governors is None,
    Need.IMAGE: _image_unknown,
    Need.FORMAT: lambda on: any(disk.format_unknown for disk in on.disks),
    Need.HEADER: _header_unknown,
    Need.MEDIUM: lambda on: any(
        on.image(disk).rotational is None for disk in on.disks if disk.discard is None and disk.opened_here
    ),
    Need.SCHEDULER: lambda on: (
        on.domain.io_weight is not None and any(on.image(disk).scheduler is None for disk in on.disks)
    ),
    Need.CHAIN: _chain_unknown,
    Need.STATE: _state_unknown,
    Need.ENGINE: _engine_unknown,
    Need.OPENED: _opened_unknown,
    Need.MACHINE: lambda on: (
        version_of_machine(on.domain.machine, on.host.qemu) is None and any(disk.bus == "virtio" for disk in on.disks)
    ),
    Need.CONTROLLER: lambda on: any(
        disk.bus == "scsi" and scsi_model(on.domain, disk)[0] is None for disk in on.disks
    ),
    Need.BUS: lambda on: any(disk.bus is None for disk in on.disks),
}
"""Whether a fact is unknown of a subject, where a rule would have used it."""

_WITHOUT_DISKS = {need: _UNKNOWN[need] for need in (Need.CPUS,)}
"""What is asked of a VM whose disks QEMU does not serve."""


def _finding(rule: Rule, domain: Domain, seen: Seen, lines: Mapping[str, int], consequences: Consequences) -> Finding:
    at, line = "", domain.line
    match seen.at:
        case DomainDisk(target=target):
            at, line = target, lines.get(target, domain.line)
        case Controller(kind=kind, index=index, line=place):
            at, line = f"{kind}:{index}", place
        case None:
            pass
    takes, risk = consequences.of_all(seen.turns) if seen.turns else (rule.takes, rule.risk)
    return Finding(
        rule=rule, domain=domain.name, uuid=domain.uuid, at=at, line=line, seen=seen, takes=takes, risk=risk
    )
