# SPDX-License-Identifier: Apache-2.0
"""Which thread serves a disk: an IOThread, several, or the main loop. Told from who uses the CPU under load.

A QEMU that was started with `debug-threads=on` names its threads by what they do. A `qemu-storage-daemon` names none,
so there the threads that were there before an image was opened are its crew, and all others are workers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from virtune.model.evidence import UNDER_LOAD, Check
from virtune.model.stack import Stack
from virtune.model.threads import OF_URING, thread_role
from virtune.probe.process import Process, Thread

SERVING_NS = 1_000_000
"""An IOThread that serves nothing sleeps and uses nothing; 1 ms is some hundred requests."""

MAIN_LOOP_NS = 20_000_000
"""A QEMU's main loop has other things to do as well (the monitor, the agent's port); they take less than 20 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Nanoseconds on a CPU: by role, of each IOThread by its id, of each vCPU by its number."""

    by_role: Mapping[str, int] = field(default_factory=dict)
    by_iothread: Mapping[str, int] = field(default_factory=dict)
    by_vcpu: Mapping[str, int] = field(default_factory=dict)

    def of(self, role: str) -> int:
        """Return what the threads of a role spent."""
        return self.by_role.get(role, 0)

    @property
    def io_ns(self) -> int:
        """What the threads spent that may carry the disk's I/O: not the vCPUs, and not the kernel's own."""
        return self.of("main") + self.of("iothread") + self.of("worker")


def cpu_of(process: Process) -> dict[int, int]:
    """Return how long each thread has been on a CPU, in ns: what is spent later is held against it."""
    return {thread.tid: thread.cpu_ns for thread in process.threads()}


def since(process: Process, before: Mapping[int, int]) -> list[Thread]:
    """Return the threads with what each has spent since then."""
    return [
        Thread(tid=one.tid, name=one.name, cpu_ns=one.cpu_ns - before.get(one.tid, 0)) for one in process.threads()
    ]


def spent_by(pid: int, threads: Iterable[Thread]) -> Spent:
    """Say who spent what of a QEMU's threads; `CPU 0/KVM` is the vCPU 0."""
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
    """Say who spent what where threads have no names: `crew` was there before any image, all others are workers."""
    known = frozenset(crew)
    roles = {"main": 0, "worker": 0}
    for thread in threads:
        if not thread.name.startswith(OF_URING):
            roles["main" if thread.tid in known else "worker"] += thread.cpu_ns
    return Spent(by_role=roles)


def serving_thread(own_ns: int, main_ns: int, *, main_enough_ns: int = MAIN_LOOP_NS) -> bool | None:
    """Say whether an IOThread serves the disk (True) or the main loop (False), from what each spent under load."""
    if own_ns >= SERVING_NS:
        return True
    return False if main_ns >= main_enough_ns else None


def iothread_check_under_load(stack: Stack, spent: Spent) -> Check | None:
    """Say whether an IOThread or the main loop serves a guest's disk; None where that is no question."""
    if stack.device.iothread_vq_mapping is not None:
        return None  # which of them serve is a question of its own
    own, main = spent.of("iothread"), spent.of("main")
    asked = stack.device.iothread or "none"
    served = serving_thread(own, main)
    found = None
    if served is not None:
        found = asked if served == (asked != "none") else ("an IOThread" if served else "none")
    proof = f"IOThreads used {own / 1e6:.0f} ms of CPU {UNDER_LOAD}, the main loop {main / 1e6:.0f}"
    return Check(setting="device.iothread", asked=asked, found=found, proof=proof)


def mapping_check_under_load(stack: Stack, spent: Spent) -> Check | None:
    """Say which IOThreads serve a disk that is spread over several; None without such.

    A load from one CPU at a time may leave threads of the mapping idle; a thread outside of it that works is wrong,
    and so is the main loop in their place.
    """
    mapping = stack.device.iothread_vq_mapping
    if mapping is None:
        return None
    served = sorted(name for name, used in spent.by_iothread.items() if used >= SERVING_NS)
    used = ", ".join(f"{name} {ns / 1e6:.0f} ms" for name, ns in sorted(spent.by_iothread.items()))
    ours = set(served) <= set(stack.device.iothreads)
    found = "+".join(served) or ("none" if spent.of("main") >= MAIN_LOOP_NS else None)
    found = mapping if served and ours else found
    proof = f"CPU of the IOThreads {UNDER_LOAD}: {used or 'none'}"
    return Check(setting="device.iothread_vq_mapping", asked=mapping, found=found, proof=proof)
