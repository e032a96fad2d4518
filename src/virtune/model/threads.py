# SPDX-License-Identifier: Apache-2.0
"""What a thread of QEMU's does, told from the name that QEMU started with `debug-threads=on` gives it."""

from dataclasses import dataclass
from typing import Literal

ThreadRole = Literal["vcpu", "iothread", "main", "worker", "uring", "kernel", "other"]

THREAD_ROLES: tuple[ThreadRole, ...] = ("vcpu", "iothread", "main", "worker", "uring", "kernel", "other")

MONITOR_THREAD = "IO mon_iothread"
"""QEMU's own thread for its monitor, which serves no disk."""

OF_URING = "iou-"
"""How the kernel names its own io_uring workers, which appear among a process's threads."""

_OF_KERNEL = ("vhost-", "kvm-")
"""How it names those of vhost and of KVM."""


def thread_role(name: str, *, main: bool) -> ThreadRole:
    """Return what a thread does by its name: `worker` is of the pool that does blocking I/O, `uring` and `kernel` are
    the kernel's own; `main` says that it is the first thread of its process.
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
    """One thread on the way of an I/O over a window of `seconds`; `wait_seconds` it could have run and had no CPU."""

    role: ThreadRole | Literal["load"]
    name: str
    tid: int
    seconds: float
    cpu_seconds: float
    user_seconds: float
    system_seconds: float
    wait_seconds: float | None

    @property
    def busy(self) -> float:
        """The share of one CPU that it used."""
        return self.cpu_seconds / self.seconds

    @property
    def stalled(self) -> float:
        """The share of all time in which it could have run and had no CPU."""
        return (self.wait_seconds or 0.0) / self.seconds

    @property
    def waited(self) -> float | None:
        """The share of the time in which it wanted a CPU that it waited for one; None when that is not known."""
        wanted = self.cpu_seconds + (self.wait_seconds or 0.0)
        return None if self.wait_seconds is None else self.wait_seconds / wanted if wanted > 0 else 0.0
