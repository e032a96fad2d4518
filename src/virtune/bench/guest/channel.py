# SPDX-License-Identifier: Apache-2.0
"""The interface to a guest: run a program in it and get its output and status, with a deadline, over any transport.

There are two: the shell of our own appliance on a virtio-serial port (`guest_shell`), and the QEMU guest agent of
existing VMs. The console is never used: one that is not read blocks the guest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from virtune.model.errors import RigError


class GuestError(RigError):
    """A guest did not answer, or gave an invalid answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestOutput:
    """The result of a program that ended in a guest."""

    status: int
    stdout: bytes
    stderr: bytes


class GuestProcess(Protocol):
    """A program that runs in a guest."""

    pid: int

    def wait(self, timeout_seconds: float) -> GuestOutput | None:
        """Wait for its end and return what it left; None when the time is over first."""
        ...

    def end(self, *signals: str) -> None:
        """Send it and all that it started each signal in turn (`INT`, `TERM`), with a time limit each, then KILL."""
        ...


class Guest(Protocol):
    """A guest that is up."""

    def run(self, argv: Sequence[str], *, timeout_seconds: float) -> GuestOutput:
        """Run a short program to its end; raises GuestError when there is none in time."""
        ...

    def start(self, argv: Sequence[str], *, timeout_seconds: float) -> GuestProcess:
        """Start a program that takes its time, one at once."""
        ...

    def put(self, path: str, content: bytes, *, timeout_seconds: float) -> None:
        """Write a file in the guest."""
        ...

    def get(self, path: str, *, timeout_seconds: float) -> bytes:
        """Return what a file of the guest holds; raises GuestError when it cannot be read."""
        ...


def must(guest: Guest, argv: Sequence[str], *, timeout_seconds: float) -> bytes:
    """Run a program that has to succeed, and return its standard output; raises GuestError with its message."""
    output = guest.run(argv, timeout_seconds=timeout_seconds)
    if output.status != 0:
        said = output.stderr.decode(errors="replace").strip().splitlines()
        raise GuestError(
            f"in the guest `{argv[0]}` ended with status {output.status}", hint=said[-1] if said else None
        )
    return output.stdout
