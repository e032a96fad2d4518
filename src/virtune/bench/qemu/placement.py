# SPDX-License-Identifier: Apache-2.0
"""The placement of a guest's process: its threads on CPUs by role, its memory on pages of a given size.

A thread that QEMU starts later inherits its parent's CPUs: a worker those of the event loop whose request it takes,
an IOThread or the main loop. The kernel's io_uring workers are an exception: io-wq gives them its own CPU mask (all
CPUs, or a node's), never the submitter's, and it cannot be changed from outside.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from virtune.model.errors import RigError
from virtune.model.evidence import Check
from virtune.model.machine import MEMORY, Machine
from virtune.model.stack import Stack
from virtune.model.threads import thread_role
from virtune.model.units import format_bytes
from virtune.probe.cpu import parse_list
from virtune.probe.process import Process

POOLS = Path("/sys/kernel/mm/hugepages")

_KERNELS_OWN = "uring"
"""The role of kernel threads in the process, which it cannot place."""


def require_pages(machine: Machine, pools: Path = POOLS) -> None:
    """Raise RigError with the reason when the host lacks the huge pages for a guest's memory."""
    if machine.hugepages is None:
        return
    size, memory = format_bytes(machine.hugepages), machine.memory or MEMORY
    pool = pools / f"hugepages-{machine.hugepages // 1024}kB"
    try:
        free = int((pool / "free_hugepages").read_text())
    except (OSError, ValueError):
        raise RigError(f"this host has no huge pages of {size}", hint=f"`ls {pools}` shows the sizes") from None
    needed = memory // machine.hugepages
    if free < needed:
        raise RigError(
            f"this host has {free} huge pages of {size} free, and the guest's memory needs {needed}",
            hint=f"`echo {needed} > {pool}/nr_hugepages` reserves them, where there is memory in one piece",
        )


def pages_check(machine: Machine, process: Process) -> Iterator[Check]:
    """Check the page size of the guest's memory, if one was requested."""
    if machine.hugepages is None:
        return
    shown = process.memfd_page_bytes()
    yield Check(
        setting="memory.hugepages",
        asked=str(machine.hugepages),
        found=None if shown is None else str(shown),
        proof=f"KernelPageSize of the memory in /proc/{process.pid}/smaps",
    )


def place_threads(stack: Stack, process: Process) -> None:
    """Pin every thread to its role's CPUs, and unpin roles without a request.

    Raises RigError for CPUs that do not exist or are not available to us.
    """
    anywhere = os.sched_getaffinity(0)
    for thread in process.threads():
        role = thread_role(thread.name, main=thread.tid == process.pid)
        if role == _KERNELS_OWN:
            continue
        knob, asked = _asked(stack, role)
        try:
            wanted = anywhere if asked is None else set(parse_list(asked))
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread.tid, wanted)
        except (OSError, ValueError, OverflowError):
            raise RigError(
                f"{knob}={asked} was refused: none of these CPUs is there for us",
                hint=f"the CPUs that we may use: {','.join(map(str, sorted(anywhere)))}",
            ) from None


def place_checks(stack: Stack, process: Process, when: str = "") -> Iterator[Check]:
    """Check the CPUs of each pinned role's threads."""
    allowed: dict[str, dict[int, str]] = {}
    for thread in process.threads():
        role = thread_role(thread.name, main=thread.tid == process.pid)
        if role != _KERNELS_OWN and (cpus := process.cpus_of(thread.tid)) is not None:
            allowed.setdefault(_asked(stack, role)[0], {})[thread.tid] = cpus
    for knob, asked in (
        ("vcpu.pin", stack.pins.vcpu),
        ("iothread.pin", stack.pins.iothread),
        ("emulator.pin", stack.pins.emulator),
    ):
        if asked is None:
            continue
        threads = allowed.get(knob, {})
        wanted = set(parse_list(asked))
        wrong = {places for places in threads.values() if set(parse_list(places)) != wanted}
        found = None if not threads else asked if not wrong else min(wrong)
        proof = f"Cpus_allowed_list of {len(threads)} threads in /proc/{process.pid}/task{when}"
        yield Check(setting=knob, asked=asked, found=found, proof=proof)


def _asked(stack: Stack, role: str) -> tuple[str, str | None]:
    """Return the knob that pins a role's threads, and its value; workers follow their event loop."""
    match role:
        case "vcpu":
            return "vcpu.pin", stack.pins.vcpu
        case "iothread":
            return "iothread.pin", stack.pins.iothread
        case "worker" if stack.device.iothreads:
            return "iothread.pin", stack.pins.iothread
        case _:
            return "emulator.pin", stack.pins.emulator
