# SPDX-License-Identifier: Apache-2.0
"""A running libvirt domain, over a read-only connection."""

import re
import time
from collections.abc import Iterator, Mapping

from virtune.bench.live.places import PlaceReader
from virtune.dialects.libvirt.domain import read_domain
from virtune.dialects.libvirt.limits import limits_command, without
from virtune.model.domain import Domain, DomainDisk
from virtune.model.errors import NO_END, PreconditionError
from virtune.model.live import DiskCount, LiveDisk, LiveVm
from virtune.model.stack import LIMITS, POLL_DEFAULT_NS
from virtune.probe.process import Process, process_of_domain, processes_of_domains
from virtune.virsh import LibvirtRefused, Virsh

_COUNT = re.compile(r"^\s*block\.(\d+)\.([a-z.]+)=(.*)$", re.MULTILINE)

_EXITS = re.compile(r"^\s*vcpu\.\d+\.exits\.sum=(\d+)$", re.MULTILINE)

_NO_EXITS = "KVM exits: libvirt reports none; it does from 9.0 on, of guests that run on KVM, with QEMU 7.1 and later"

_DOMAIN = re.compile(r"^Domain: '(.*)'$", re.MULTILINE)

_NO_RINGS = (
    "the wait in the virtqueue, and whether requests follow one another on the disk: asking where it lies would taint"
    " a domain of libvirt's; of a QEMU started by hand `--qmp` shows both"
)

_FIELDS = {
    "reads": "rd.reqs", "writes": "wr.reqs", "flushes": "fl.reqs", "read_bytes": "rd.bytes",
    "written_bytes": "wr.bytes", "read_ns": "rd.times", "write_ns": "wr.times", "flush_ns": "fl.times",
}  # fmt: skip


class LiveDomain:
    """A running domain."""

    def __init__(self, virsh: Virsh, name: str) -> None:
        """Raises PreconditionError when there is no such domain, or it does not run."""
        self._virsh, self.uuid = virsh, virsh.uuid(name)
        found = virsh.dump([self.uuid])
        if not found or found[0].live is None:
            raise PreconditionError(
                f"{name} does not run", hint=f"`virsh -c {virsh.uri} list` shows those that do; it needs its own load"
            )
        local = virsh.facts().local
        process = process_of_domain(self.uuid) if local else None
        self.vm = _vm(found[0].live, process, uri=virsh.uri, local=local)

    def counts(self) -> Mapping[str, DiskCount]:
        """Return QEMU's counters of each disk, by its target."""
        begun = time.monotonic_ns()
        try:
            said = self._virsh.run("domstats", "--block", self.uuid)
        except LibvirtRefused as refusal:
            if NO_END not in refusal.message:
                raise
            said = ""
        # the answer takes some milliseconds; its time is taken as the middle
        found = counts_of(said, (begun + time.monotonic_ns()) // 2)
        require_counts(self.vm, found)
        return found

    def rings(self, target: str) -> str:  # noqa: ARG002 - a domain's monitor is libvirt's
        """A command to the monitor would taint the domain."""
        return _NO_RINGS

    def places(self, target: str) -> PlaceReader | None:  # noqa: ARG002 - a domain's monitor is libvirt's
        """A command to the monitor would taint the domain."""
        return None

    def jobs(self, target: str) -> tuple[str, ...]:  # noqa: ARG002 - a domain's monitor is libvirt's
        """What works on a disk besides the guest is not asked for."""
        return ()

    def exits(self) -> int | str:
        """Return how often KVM has left the guest for the host, as libvirt knows it, or why that is not known."""
        found = exits_in(self._virsh.run("domstats", "--vcpu", self.uuid))
        return _NO_EXITS if found is None else found


def require_counts(vm: LiveVm, found: Mapping[str, DiskCount]) -> None:
    """Raise PreconditionError where a VM's QEMU gave no counters of its disks: libvirt then leaves them out, or waits
    for them without an end.
    """
    if vm.disks and not found:
        hint = f"`virsh -c {vm.uri} domjobinfo {vm.name}` names a job that holds it"
        if vm.pid is not None:
            hint += f"; `ps -o stat= {vm.pid}` shows T where a signal stopped it"
        raise PreconditionError(f"the QEMU of {vm.name} does not answer libvirt: it hangs, or is held up", hint=hint)


class LiveDomains:
    """All running domains of a libvirt, with one command of virsh for each sample."""

    def __init__(self, virsh: Virsh) -> None:
        self._virsh = virsh
        self._local = virsh.facts().local
        self._vms: dict[str, LiveVm] = {}
        self._shape: dict[str, frozenset[str]] | None = None

    def vms(self) -> tuple[LiveVm, ...]:
        """Return the domains as they were when last counted."""
        return tuple(self._vms.values())

    def counts(self) -> Mapping[str, Mapping[str, DiskCount]]:
        """Return QEMU's counters of each disk, by domain and target. What came or went meanwhile is looked at."""
        begun = time.monotonic_ns()
        said = self._virsh.run("domstats", "--block", "--list-running")
        now = (begun + time.monotonic_ns()) // 2
        found = {name: counts_of(part, now) for name, part in _domains_of(said)}
        shape = {name: frozenset(disks) for name, disks in found.items()}
        if shape != self._shape:
            self._shape, self._vms = shape, dict(self._look())
        return found

    def rings(self, vm: str, target: str) -> str:  # noqa: ARG002 - a domain's monitor is libvirt's
        """A command to the monitor would taint the domain."""
        return _NO_RINGS

    def _look(self) -> Iterator[tuple[str, LiveVm]]:
        running = self._virsh.run("list", "--uuid", "--state-running").split()
        processes = processes_of_domains() if self._local else {}
        for one in self._virsh.dump(running):
            if one.live is not None:
                vm = _vm(one.live, processes.get(one.uuid), uri=self._virsh.uri, local=self._local)
                yield vm.name, vm


def _vm(xml: str, process: Process | None, *, uri: str, local: bool) -> LiveVm:
    domain = read_domain(xml.encode())
    unseen = f"threads and the host's device: no QEMU of {domain.name} is seen here; call virtune on its host"
    return LiveVm(
        name=domain.name,
        pid=None if process is None else process.pid,
        disks=tuple(_disk(domain, one, uri=uri, local=local) for one in domain.disks if one.is_disk),
        missing=() if process is not None else (unseen,),
        uri=uri,
        emulated=domain.kind == "qemu",
    )


def _domains_of(said: str) -> Iterator[tuple[str, str]]:
    """Yield each domain's name and its part of what `virsh domstats` printed."""
    heads = list(_DOMAIN.finditer(said))
    for index, head in enumerate(heads):
        end = heads[index + 1].start() if index + 1 < len(heads) else len(said)
        yield head[1], said[head.end() : end]


def exits_in(said: str) -> int | None:
    """Read the exits of all vCPUs in an answer of `virsh domstats --vcpu`; None where it has none."""
    found = [int(count) for count in _EXITS.findall(said)]
    return sum(found) if found else None


def counts_of(said: str, t_ns: int) -> dict[str, DiskCount]:
    """Read the answer of `virsh domstats --block`; a disk without counters is left out."""
    rows: dict[str, dict[str, str]] = {}
    for number, name, value in _COUNT.findall(said):
        rows.setdefault(number, {})[name] = value
    found = {}
    for row in rows.values():
        values = {ours: int(row[theirs]) for ours, theirs in _FIELDS.items() if row.get(theirs, "").isdigit()}
        if "name" in row and {"reads", "writes", "read_ns", "write_ns"} <= values.keys():
            found[row["name"]] = DiskCount(t_ns=t_ns, **(dict.fromkeys(_FIELDS, 0) | values))
    return found


def _disk(domain: Domain, disk: DomainDisk, *, uri: str, local: bool) -> LiveDisk:
    numbers = domain.threads_of(disk)
    asked = dict(disk.limits)
    limits = {limit.unit: (limit.libvirt, float(value)) for limit in LIMITS if (value := asked.get(limit.libvirt))}
    polls = {one.number: one.poll_max_ns for one in domain.threads if one.poll_max_ns is not None}
    return LiveDisk(
        target=disk.target,
        path=disk.source.name if local and disk.source.kind in ("file", "block") else None,
        threads=tuple(f"IO iothread{number}" for number in numbers),
        polling=any(polls.get(number, POLL_DEFAULT_NS) > 0 for number in numbers),
        direct=disk.cache in ("none", "directsync"),
        tables=disk.format == "qcow2",
        group=disk.limits_group,
        protocol=disk.source.protocol or {"file": "file", "block": "host_device"}.get(disk.source.kind, ""),
        unread=("a backing image",) if disk.backing else (),
        limits={unit: value for unit, (_, value) in limits.items()},
        lifts={
            unit: command
            for unit, (name, _) in limits.items()
            if (command := limits_command(uri, domain.name, disk, without(name, disk))) is not None
        },
    )
