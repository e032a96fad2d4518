# SPDX-License-Identifier: Apache-2.0
"""Shut a domain down, and start it with its guest paused. A guest is never destroyed unless that was requested."""

import re
import time

from virtune.model.errors import VirtuneError
from virtune.virsh import LibvirtRefused, Virsh

_LOOK_SECONDS = 0.25

_ASK_SECONDS = 10.0
"""The interval of shutdown requests: a booting guest ignores them, and one that is shutting down ignores further
ones.
"""

_NEVER_RAN_NS = 50_000_000
"""Creating the thread of a vCPU takes some milliseconds; a guest that has run for 50 ms is still in its firmware."""


class StillRunningError(VirtuneError):
    """A guest did not shut down in time. The request cannot be cancelled, so it may still do so."""


class Power:
    """The power of one domain."""

    def __init__(self, virsh: Virsh, uuid: str) -> None:
        self._virsh, self._uuid = virsh, uuid

    def state(self) -> str:
        """Return the state in libvirt's words."""
        return self._virsh.state(self._uuid)

    def is_off(self) -> bool:
        """Whether no process runs it."""
        return self.state() == "shut off"

    def never_ran(self) -> bool:
        """Whether it is paused since its start, so its vCPUs have used almost no CPU time."""
        said = self._virsh.run("domstats", "--vcpu", self._uuid)
        used = sum(int(text) for text in re.findall(r"^\s*vcpu\.\d+\.time=(\d+)$", said, re.MULTILINE))
        return self.state() == "paused" and used <= _NEVER_RAN_NS

    def shut_down(self, seconds: float, *, force_off: bool) -> None:
        """Ask the guest to power off, through its agent or by ACPI, and wait.

        Raises StillRunningError if it has not in time, unless it may be destroyed then.
        """
        because = f"the guest did not shut down within {seconds:g} s"
        deadline = time.monotonic() + seconds
        down = False
        while not down and (left := deadline - time.monotonic()) > 0:
            try:
                self._virsh.run("shutdown", self._uuid)
            except LibvirtRefused as refusal:  # one that is paused, say
                because, left = refusal.message, 0
                deadline = time.monotonic()
            down = self.wait_until_off(min(left, _ASK_SECONDS))
        if not down:
            if not force_off:
                raise StillRunningError(because, hint="--force-off pulls the plug of such a guest")
            self.pull_the_plug()

    def wait_until_off(self, seconds: float) -> bool:
        """Wait for its process to end; whether it did in time."""
        deadline = time.monotonic() + seconds
        while not self.is_off():
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def pull_the_plug(self) -> None:
        """Destroy the domain: end its process now. Data that the guest has not flushed is lost."""
        try:
            self._virsh.run("destroy", self._uuid)
        except LibvirtRefused:
            if not self.is_off():
                raise

    def start_paused(self) -> None:
        """Start its process; the guest does not run yet."""
        self._virsh.run("start", self._uuid, "--paused")

    def resume(self) -> None:
        """Let the guest run."""
        if self.state() == "paused":
            self._virsh.run("resume", self._uuid)
