# SPDX-License-Identifier: Apache-2.0
"""A test VM: a QEMU that boots the appliance, with its monitor and its agent, from start to ready."""

import contextlib
import itertools
import json
import os
import re
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from virtune import shell
from virtune.bench.appliance.build import Appliance
from virtune.bench.guest.agent import AgentGuest, SocketLine
from virtune.bench.guest.channel import GuestError
from virtune.bench.guest.shell import CHANNELS, ShellGuest
from virtune.bench.live.monitor import exits_of
from virtune.bench.qmp import Monitor
from virtune.bounded import read_bounded
from virtune.dialects.qemu.guest import GuestMachine, machine_argv
from virtune.dialects.qemu.qmp import Command
from virtune.model.errors import RigError
from virtune.model.machine import Machine
from virtune.model.threads import thread_role
from virtune.probe.process import Process

PROGRAM = "qemu-system-x86_64"

BOOT_SECONDS = 90.0
"""A guest boots in 3 s under TCG on an idle machine, and took 12 s with three busy programs per CPU; one that is not
ready by then hangs.
"""

FIRST_BOOT_SECONDS = 40.0
"""The time limit if a second boot is possible: under TCG about one boot in a hundred hangs."""

_GREETING_SECONDS = 0.25
_END_SECONDS = 1.0
_DYING_SECONDS = 2.0
_CONSOLE_BYTES = 4000
_DISK = re.compile(r"(^|/)disk\d/")
"""The test disks among the devices of a guest, by the ids that they have."""

NUMBERS = itertools.count()
"""Numbers the guests of this run, for the names of their files."""


class HungError(RigError):
    """A guest was not ready in time."""


class EndedError(RigError):
    """QEMU ended before its guest was ready: with a status, negative for a signal; `refused`: before it began."""

    def __init__(self, message: str, *, hint: str | None, status: int, refused: bool) -> None:
        super().__init__(message, hint=hint)
        self.status, self.refused = status, refused


@dataclass(slots=True, kw_only=True)
class QemuGuest:
    """A running guest with any system in it. `exit_ns` is what an exit to QEMU took at least, where measured."""

    child: shell.Child
    monitor: Monitor
    console: Path
    kvm: bool
    vcpus: int
    version: str
    boot_seconds: float
    exit_ns: int | None = field(default=None, kw_only=True)

    def trouble(self) -> str | None:
        """Say how QEMU ended, None while it runs."""
        status = self.child.poll()
        if status is None:
            return None
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        words = self.child.last_words()
        return f"{PROGRAM} {how}" + (f": {words}" if words else "")

    def operations(self) -> int:
        """Return the number of requests that the guest's disk has completed: a disk on which it does not rise under
        load is stuck.
        """
        counts = self.block_statistics()
        return sum(
            counts.get(name, 0) for name in ("rd_operations", "wr_operations", "flush_operations", "unmap_operations")
        )

    def block_statistics(self) -> dict[str, Any]:
        """Return QEMU's own counters of the disk; of several disks what they counted together."""
        mine = [one for one in self.monitor.execute("query-blockstats") if _DISK.search(f"{one.get('qdev', '')}/")]
        found = [dict(one["stats"]) for one in sorted(mine, key=lambda one: str(one["qdev"]))]
        numbers = {name for stats in found for name, value in stats.items() if type(value) is int}
        together = {name: sum(stats.get(name, 0) for stats in found) for name in numbers}
        return {**found[0], **together} if found else {}

    def exits(self) -> int | None:
        """Return how often KVM has left the guest for the host; None if KVM does not run it, or does not count."""
        return exits_of(self.monitor) if self.kvm else None

    def evidence(self) -> str:
        """Return the evidence of a failed guest: QEMU's state and counters, the end of its console."""
        said: dict[str, Any] = {"trouble": self.trouble()}
        if said["trouble"] is None:
            try:
                said["status"] = self.monitor.execute("query-status")
                said["block"] = self.monitor.execute("query-blockstats")
            except RigError:
                # A killed QEMU closes its sockets a moment before its exit status can be read.
                self.child.wait(_DYING_SECONDS)
                said["trouble"] = self.trouble()
        return json.dumps(said) + "\n" + console_end(self.console)


@dataclass(slots=True, kw_only=True)
class Vm(QemuGuest):
    """A guest with Linux that is up."""

    guest: ShellGuest
    agent: AgentGuest | None


def console_end(console: Path) -> str:
    """Return the end of a guest's console output."""
    with contextlib.suppress(OSError):
        return read_bounded(console, _CONSOLE_BYTES, from_end=True).decode(errors="replace")
    return ""


def guest_vcpus() -> int:
    """Return how many vCPUs a guest gets: two, as many as can run at once on the smallest host that we measure on."""
    return min(2, len(os.sched_getaffinity(0)))


@contextlib.contextmanager
def running(
    appliance: Appliance,
    warden: shell.Warden,
    *,
    kvm: bool,
    host_cpu: str = "host",
    asked: Machine | None = None,
    first: Sequence[Command] = (),
    boot_seconds: float = BOOT_SECONDS,
) -> Iterator[Vm]:
    """Boot a guest and yield it when its agent answers; it ends with the block.

    `asked` is the requested machine, `first` the disk that it must have from its start. Raises RigError when it
    is not ready in time, with the end of its console as hint.
    """
    asked = asked or Machine()
    program = shell.find(asked.emulator or PROGRAM)
    name = f"guest{next(NUMBERS)}"
    console = warden.directory / f"{name}.console"
    with contextlib.ExitStack() as ends:
        pairs = [socket.socketpair() for _ in (*CHANNELS, *(["agent"] if appliance.agent else []), "monitor")]
        for ours, _ in pairs:
            ends.enter_context(ours)
        theirs = [pair[1].fileno() for pair in pairs]
        vcpus = asked.vcpus or guest_vcpus()
        machine = GuestMachine(
            kernel=str(appliance.kernel), initramfs=str(appliance.initramfs), console=str(console),
            channels=tuple(theirs[: len(CHANNELS)]), agent=theirs[len(CHANNELS)] if appliance.agent else None,
            monitor=theirs[-1], kvm=kvm, host_cpu=host_cpu, vcpus=vcpus, asked=asked, first=first,
        )  # fmt: skip
        begun = time.monotonic()
        try:
            child = ends.enter_context(warden.running(machine_argv(program, machine), name=name, keep=tuple(theirs)))
        finally:
            for _, end in pairs:
                end.close()
        monitor = ends.enter_context(monitored(pairs[-1][0], child))
        guest = ShellGuest([pair[0] for pair in pairs[: len(CHANNELS)]])
        _until_ready(guest, child, console, begun, boot_seconds)
        yield Vm(
            child=child,
            monitor=monitor,
            guest=guest,
            agent=AgentGuest(SocketLine(pairs[len(CHANNELS)][0])) if appliance.agent else None,
            console=console,
            kvm=kvm,
            vcpus=vcpus,
            version=version_of(monitor.execute("query-version")),
            boot_seconds=time.monotonic() - begun,
        )


@contextlib.contextmanager
def monitored(connection: socket.socket, child: shell.Child) -> Iterator[Monitor]:
    """Yield the monitor of a QEMU that has just been started; raises RigError with the end of its log."""
    with contextlib.ExitStack() as ends:
        try:
            monitor = ends.enter_context(Monitor(connection))
        except RigError as error:
            status = child.wait(_END_SECONDS)
            words = child.last_words()
            if status is None:
                raise RigError(error.message, hint=words) from None
            raise EndedError(f"{PROGRAM} ended at its start", hint=words, status=status, refused=True) from None
        yield monitor


def version_of(shown: Mapping[str, Any]) -> str:
    """Return the version in an answer of `query-version`."""
    numbers = ".".join(str(shown["qemu"][part]) for part in ("major", "minor", "micro"))
    return f"QEMU {numbers} {shown['package']}".rstrip()


def _greets(guest: ShellGuest) -> bool:
    """Whether the guest answers; False if its QEMU is gone."""
    try:
        return guest.greet(timeout_seconds=_GREETING_SECONDS)
    except GuestError:
        time.sleep(_GREETING_SECONDS)
        return False


def _until_ready(guest: ShellGuest, child: shell.Child, console: Path, begun: float, seconds: float) -> None:
    """Wait until the guest answers; `begun` is when QEMU was started, and `seconds` the limit from then on."""
    while not _greets(guest):
        if (status := child.poll()) is not None:
            words = child.last_words()
            raise EndedError(f"{PROGRAM} ended while the guest booted", hint=words, status=status, refused=False)
        if time.monotonic() > begun + seconds:
            vcpus = (one for one in Process(child.pid).threads() if thread_role(one.name, main=False) == "vcpu")
            used = sum(one.cpu_ns for one in vcpus) / 1e9
            words = shell.last_line(console_end(console)) or "it wrote nothing to its console"
            hint = f"{words}; its vCPUs used {used:.0f} s of CPU"
            raise HungError(f"the guest did not come up within {seconds:g} s", hint=hint)
