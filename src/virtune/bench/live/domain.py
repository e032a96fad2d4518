# SPDX-License-Identifier: Apache-2.0
"""A running libvirt domain, over a read-only connection."""

import re
import time
from collections.abc import Mapping

from virtune.bench.live.view import LiveVm
from virtune.dialects.libvirt.domain import read_domain
from virtune.model.domain import Domain, DomainDisk
from virtune.model.errors import PreconditionError
from virtune.model.live import DiskCount, LiveDisk
from virtune.model.stack import LIMITS, POLL_DEFAULT_NS
from virtune.probe.process import process_of_domain
from virtune.virsh import Virsh

_COUNT = re.compile(r"^\s*block\.(\d+)\.([a-z.]+)=(.*)$", re.MULTILINE)

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
        domain = read_domain(found[0].live.encode())
        local = virsh.facts().local
        process = process_of_domain(self.uuid) if local else None
        unseen = f"threads and the host's device: no QEMU of {domain.name} is seen here; call virtune on its host"
        self.vm = LiveVm(
            name=domain.name,
            pid=None if process is None else process.pid,
            disks=tuple(_disk(domain, one, local=local) for one in domain.disks if one.holds_data),
            missing=() if process is not None else (unseen,),
        )

    def counts(self) -> Mapping[str, DiskCount]:
        """Return QEMU's counters of each disk, by its target."""
        begun = time.monotonic_ns()
        said = self._virsh.run("domstats", "--block", self.uuid)
        # the answer takes some milliseconds; its time is taken as the middle
        return counts_of(said, (begun + time.monotonic_ns()) // 2)

    def rings(self, target: str) -> str:  # noqa: ARG002 - a domain's monitor is libvirt's
        """A command to the monitor would taint the domain."""
        return (
            "the wait in the virtqueue: asking where it lies would taint a domain of libvirt's; of a QEMU started by"
            " hand `--qmp` shows it"
        )


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


def _disk(domain: Domain, disk: DomainDisk, *, local: bool) -> LiveDisk:
    numbers = domain.threads_of(disk)
    asked = dict(disk.limits)
    polls = {one.number: one.poll_max_ns for one in domain.threads if one.poll_max_ns is not None}
    return LiveDisk(
        target=disk.target,
        path=disk.source.name if local and disk.source.kind in ("file", "block") else None,
        threads=tuple(f"IO iothread{number}" for number in numbers),
        polling=any(polls.get(number, POLL_DEFAULT_NS) > 0 for number in numbers),
        limits={limit.unit: float(value) for limit in LIMITS if (value := asked.get(limit.libvirt))},
    )
