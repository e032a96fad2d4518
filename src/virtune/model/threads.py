# SPDX-License-Identifier: Apache-2.0
"""The role of a QEMU thread, recognised by the name that QEMU gives it with `debug-threads=on`."""

from dataclasses import dataclass
from typing import Literal

ThreadRole = Literal["vcpu", "iothread", "main", "worker", "uring", "kernel", "other"]

THREAD_ROLES: tuple[ThreadRole, ...] = ("vcpu", "iothread", "main", "worker", "uring", "kernel", "other")

MONITOR_THREAD = "IO mon_iothread"
"""QEMU's own thread for its monitor, which serves no disk."""

OF_URING = "iou-"
"""How the kernel names its own io_uring workers, which appear among a process's threads."""

_OF_KERNEL = ("vhost-", "kvm-")
"""How the kernel names the threads of vhost and of KVM."""


def thread_role(name: str, *, main: bool) -> ThreadRole:
    """Return the role of a thread by its name: `worker` is of the pool that does blocking I/O, `uring` and `kernel`
    are the kernel's own; `main` says that it is the first thread of its process.
    """
    if name.startswith("CPU "):
        return "vcpu"
    if name.startswith("IO ") and name != MONITOR_THREAD:
        return "iothread"
    if name.startswith("worker"):
        return "worker"
    if name.startswith(OF_URING):
        return "uring"
    if name.startswith(_OF_KERNEL):
        return "kernel"
    return "main" if main else "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadCost:
    """One thread on the I/O path over a window of `seconds`; for `wait_seconds` it was runnable but had no CPU.

    It went to sleep `sleeps` times and was taken off its CPU `preempted` times; None if unknown.
    """

    role: ThreadRole | Literal["load"]
    name: str
    tid: int
    seconds: float
    cpu_seconds: float
    user_seconds: float
    system_seconds: float
    wait_seconds: float | None
    sleeps: int | None = None
    preempted: int | None = None

    @property
    def busy(self) -> float:
        """The share of one CPU that it used."""
        return self.cpu_seconds / self.seconds

    @property
    def switches(self) -> int | None:
        """How often another thread got its CPU; None if unknown."""
        return None if self.sleeps is None or self.preempted is None else self.sleeps + self.preempted

    @property
    def stalled(self) -> float:
        """The share of all time in which it was runnable but had no CPU."""
        return (self.wait_seconds or 0.0) / self.seconds
