# SPDX-License-Identifier: Apache-2.0
"""Inspect a guest's disk from inside the guest."""

from collections.abc import Sequence

from virtune.bench.guest.channel import Guest, must


def seen_in_guest(
    guest: Guest, serial: str, *, timeout_seconds: float, program: Sequence[str] = ("disk",)
) -> dict[str, str]:
    """Wait until a guest sees the disk of that serial number, and return its properties (`virtune/guest/disk`).

    `program` is the command that runs that script in the guest.
    """
    words = [*program, serial, str(int(timeout_seconds))]
    text = must(guest, words, timeout_seconds=timeout_seconds + 5).decode(errors="replace")
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
