# SPDX-License-Identifier: Apache-2.0
"""A look from inside a guest at its disk."""

from collections.abc import Sequence

from virtune.bench.guest.channel import Guest, must


def seen_in_guest(
    guest: Guest, serial: str, *, timeout_seconds: float, program: Sequence[str] = ("disk",)
) -> dict[str, str]:
    """Wait until a guest sees the disk of that serial number, and return what it sees (`virtune/guest/disk`).

    `program` is how that script is called there.
    """
    words = [*program, serial, str(int(timeout_seconds))]
    text = must(guest, words, timeout_seconds=timeout_seconds + 5).decode(errors="replace")
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
