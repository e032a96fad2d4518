# SPDX-License-Identifier: Apache-2.0
"""A filesystem on a disk of a guest: mounted for a stack, unmounted after it."""

from collections.abc import Sequence
from dataclasses import dataclass

from virtune.bench.guest.channel import Guest, must
from virtune.model.evidence import Check

_SECONDS = 60.0
"""Unmounting writes what the load left in the guest's page cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounted:
    """The mounted disks of a guest: the file in each, the bytes of the smallest, what the kernel says of each."""

    files: tuple[str, ...]
    size_bytes: int
    kinds: tuple[str, ...]
    lines: tuple[str, ...]

    def check(self, asked: str) -> Check:
        """Check that all of them have the requested filesystem."""
        found = asked if set(self.kinds) == {asked} else ", ".join(self.kinds)
        proof = f"the guest's /proc/mounts: {'; '.join(self.lines)}"
        return Check(setting="disk.filesystem", asked=asked, found=found, proof=proof)


def mount(guest: Guest, devices: Sequence[str], kind: str, *, writes: bool) -> Mounted:
    """Mount the filesystem of each device in a guest (`virtune/guest/mounted`); raises GuestError when one fails."""
    told = [_facts(guest, device, kind, "rw" if writes else "ro") for device in devices]
    return Mounted(
        files=tuple(one.get("file", "") for one in told),
        size_bytes=min(int(one.get("bytes") or 0) for one in told),
        kinds=tuple(one.get("mounted", "none") for one in told),
        lines=tuple(one.get("line", "nothing is mounted") for one in told),
    )


def unmount(guest: Guest, mounted: Mounted) -> None:
    """Unmount them all; raises GuestError when one stays mounted."""
    for file in mounted.files:
        must(guest, ["umount", file.rpartition("/")[0]], timeout_seconds=_SECONDS)


def _facts(guest: Guest, device: str, kind: str, how: str) -> dict[str, str]:
    text = must(guest, ["mounted", device, kind, how], timeout_seconds=_SECONDS).decode(errors="replace")
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
