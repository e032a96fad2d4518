# SPDX-License-Identifier: Apache-2.0
"""Verify which thread serves a disk: an IOThread, several, or the main loop, by the CPU time under load. A QEMU with
`debug-threads=on` names its threads by their role.

A `qemu-storage-daemon` names none, so there the threads that existed before an image was opened are its crew, and all
others are workers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from virtune.model.evidence import UNDER_LOAD, Check
from virtune.model.stack import Stack
from virtune.model.threads import OF_URING, thread_role
from virtune.probe.process import Process, Thread

SERVING_NS = 1_000_000
"""An IOThread that serves nothing sleeps and uses nothing; 1 ms is some hundred requests."""

TELLING_REQUESTS = 1000
"""So many requests take the thread that serves them more than SERVING_NS, however quick it is."""

MAIN_LOOP_NS = 20_000_000
"""A QEMU's main loop also serves the monitor and the agent's port; that takes less than 20 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Nanoseconds on a CPU: by role, of each IOThread by its id, of each vCPU by its number. `requests` are those
    that the disk completed meanwhile, None if nobody counted them.
    """

    by_role: Mapping[str, int] = field(default_factory=dict)
    by_iothread: Mapping[str, int] = field(default_factory=dict)
    by_vcpu: Mapping[str, int] = field(default_factory=dict)
    requests: int | None = None

    @property
    def tells(self) -> bool:
        """Whether the disk completed so much that an idle IOThread does not serve it: a guest that hardly has a CPU
        keeps the main loop busy with its timers and the monitor.
        """
        return self.requests is None or self.requests >= TELLING_REQUESTS

    def of(self, role: str) -> int:
        """Return the CPU time of a role's threads."""
        return self.by_role.get(role, 0)

    @property
    def io_ns(self) -> int:
        """The CPU time of the threads that may do the disk's I/O, without vCPUs and kernel threads."""
        return self.of("main") + self.of("iothread") + self.of("worker")


def cpu_of(process: Process) -> dict[int, int]:
    """Return each thread's CPU time in ns, as the reference for later differences."""
    return {thread.tid: thread.cpu_ns for thread in process.threads()}


def since(process: Process, before: Mapping[int, int]) -> list[Thread]:
    """Return the threads with the CPU time of each since then."""
    return [
        Thread(tid=one.tid, name=one.name, cpu_ns=one.cpu_ns - before.get(one.tid, 0)) for one in process.threads()
    ]


def spent_by(pid: int, threads: Iterable[Thread]) -> Spent:
    """Return the CPU time of a QEMU's threads by role; `CPU 0/KVM` is the vCPU 0."""
    roles: dict[str, int] = {}
    iothreads: dict[str, int] = {}
    vcpus: dict[str, int] = {}
    for thread in threads:
        role = thread_role(thread.name, main=thread.tid == pid)
        roles[role] = roles.get(role, 0) + thread.cpu_ns
        name = thread.name.partition(" ")[2]
        if role == "iothread":
            iothreads[name] = thread.cpu_ns
        if role == "vcpu":
            vcpus[name.partition("/")[0]] = thread.cpu_ns
    return Spent(by_role=roles, by_iothread=iothreads, by_vcpu=vcpus)


def spent_by_crew(threads: Iterable[Thread], crew: Iterable[int]) -> Spent:
    """Return the CPU time by role where threads have no names: `crew` existed before any image, all others are
    workers.
    """
    known = frozenset(crew)
    roles = {"main": 0, "worker": 0}
    for thread in threads:
        if not thread.name.startswith(OF_URING):
            roles["main" if thread.tid in known else "worker"] += thread.cpu_ns
    return Spent(by_role=roles)


def serving_thread(own_ns: int, main_ns: int, *, main_enough_ns: int = MAIN_LOOP_NS) -> bool | None:
    """Return whether an IOThread serves the disk (True) or the main loop (False), by their CPU time under load."""
    if own_ns >= SERVING_NS:
        return True
    return False if main_ns >= main_enough_ns else None


def iothread_check_under_load(stack: Stack, spent: Spent) -> Check | None:
    """Check whether an IOThread or the main loop serves a guest's disk; None where that does not apply."""
    if stack.device.iothread_vq_mapping is not None:
        return None  # a separate check covers which of them serve it
    own, main = spent.of("iothread"), spent.of("main")
    asked = stack.device.iothread or "none"
    served = serving_thread(own, main)
    if served is False and asked != "none" and not spent.tells:
        served = None
    found = None
    if served is not None:
        found = asked if served == (asked != "none") else ("an IOThread" if served else "none")
    proof = f"IOThreads used {own / 1e6:.0f} ms of CPU {UNDER_LOAD}, the main loop {main / 1e6:.0f}"
    return Check(setting="device.iothread", asked=asked, found=found, proof=proof)


def mapping_check_under_load(stack: Stack, spent: Spent) -> Check | None:
    """Check which IOThreads serve a disk with several; None for others.

    A load from a single CPU may leave mapped threads idle; activity of an unmapped thread, or of the main loop
    instead, is a mismatch.
    """
    mapping = stack.device.iothread_vq_mapping
    if mapping is None:
        return None
    served = sorted(name for name, used in spent.by_iothread.items() if used >= SERVING_NS)
    used = ", ".join(f"{name} {ns / 1e6:.0f} ms" for name, ns in sorted(spent.by_iothread.items()))
    ours = set(served) <= set(stack.device.iothreads)
    found = "+".join(served) or ("none" if spent.of("main") >= MAIN_LOOP_NS and spent.tells else None)
    found = mapping if served and ours else found
    proof = f"CPU of the IOThreads {UNDER_LOAD}: {used or 'none'}"
    return Check(setting="device.iothread_vq_mapping", asked=mapping, found=found, proof=proof)
