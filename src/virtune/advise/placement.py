# SPDX-License-Identifier: Apache-2.0
"""Rules of a domain's placement on the host: CPUs, memory, weights."""

from collections.abc import Iterator

from virtune.advise.flash import cpus_of
from virtune.advise.rule import rule
from virtune.model.domain import cache_of
from virtune.model.finding import Confidence, Need, Seen, Severity, Subject
from virtune.model.knob import Change, Risk

DIRTY_BYTES_MAX = 10 * 10**9
"""Ten seconds of a drive that writes 1 GB/s: a host that may hold more dirty pages stalls its guests for longer."""


@rule(
    "R41",
    Severity.TRY,
    needs=(Need.CPUS,),
    confidence=Confidence.PUBLISHED,
    takes=Change.LIVE,
    source="https://libvirt.org/formatdomain.html; RHEL tuning guide",
)
def more_vcpus_than_cpus(subject: Subject) -> Iterator[Seen]:
    """A vCPU or IOThread that waits for a CPU answers late, whatever the disk does."""
    cpus = subject.host.cpus
    if cpus is not None and subject.domain.vcpus > cpus:
        yield Seen(
            seen=f"{subject.domain.vcpus} vCPUs on {cpus} CPUs",
            advice="fewer vCPUs, or pin vCPUs, IOThreads and emulator to CPUs of their own",
        )


@rule(
    "R84",
    Severity.ERROR,
    needs=(Need.CPUS,),
    takes=Change.LIVE,
    source="sched_setaffinity(2): a set without an online CPU is refused",
)
def pinned_to_no_cpu(subject: Subject) -> Iterator[Seen]:
    """A thread pinned to CPUs that the host does not have, or that are offline, cannot start."""
    online = subject.host.online
    if online is None:
        return
    for what, places in subject.domain.pins:
        cpus = cpus_of(places)
        if cpus and cpus.isdisjoint(online):
            yield Seen(
                seen=f"{what} is pinned to {places}, and no such CPU is online", advice="pin it to one that is"
            )


@rule(
    "R44",
    Severity.TRY,
    needs=(Need.GOVERNOR,),
    confidence=Confidence.PLAUSIBLE,
    takes=Change.LIVE,
    risk=Risk.PERFORMANCE,
    source="https://github.com/redhat-performance/tuned",
)
def slow_governor(subject: Subject) -> Iterator[Seen]:
    """A CPU that raises its clock only under load answers single requests late."""
    slow = sorted(set(subject.host.governors or ()) - {"performance"})
    if slow and any(disk.opened_here for disk in subject.disks):
        yield Seen(seen=f"CPU governor {', '.join(slow)}", advice="for latency at depth 1, compare with performance")


@rule(
    "R45",
    Severity.TRY,
    needs=(Need.MEMORY,),
    confidence=Confidence.PUBLISHED,
    takes=Change.LIVE,
    source="https://docs.kernel.org/admin-guide/sysctl/vm.html",
)
def much_dirty_memory(subject: Subject) -> Iterator[Seen]:
    """With cache=writeback guests write into the host's memory until the kernel makes them wait for all of it."""
    host = subject.host
    if host.memory_bytes is None or host.dirty_percent is None or host.dirty_bytes:
        return
    held = host.memory_bytes * host.dirty_percent // 100
    for disk in subject.disks:
        if cache_of(disk) == "writeback" and disk.opened_here and held > DIRTY_BYTES_MAX:
            yield Seen(
                at=disk,
                seen=f"cache=writeback, and the host may hold {held / 1e9:.0f} GB dirty",
                advice="bound it by vm.dirty_bytes and vm.dirty_background_bytes",
            )


@rule(
    "R46",
    Severity.WARNING,
    needs=(Need.SCHEDULER,),
    takes=Change.LIVE,
    source="https://docs.kernel.org/admin-guide/cgroup-v2.html",
)
def weight_without_effect(subject: Subject) -> Iterator[Seen]:
    """An I/O weight works only with the scheduler bfq or with io.cost."""
    if subject.domain.io_weight is None:
        return
    for disk in subject.disks:
        scheduler = subject.image(disk).scheduler
        if scheduler is not None and scheduler != "bfq":
            yield Seen(
                at=disk,
                seen=f"a weight, and the scheduler below is {scheduler}",
                advice="remove the weight, or set up bfq or io.cost",
            )
