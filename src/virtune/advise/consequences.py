# SPDX-License-Identifier: Apache-2.0
"""What a change of a disk takes (a restart, say) and risks, judged by its value and the disk, not by the knob alone
(pure).
"""

from collections.abc import Mapping, Sequence

from virtune.model.domain import HOTPLUG_BUSES, LIMIT_KNOBS, LIVE_KNOBS, Domain, DomainDisk, SettingChange, cache_of
from virtune.model.knob import Change, Risk
from virtune.model.knobs import find

_PROMISES: Mapping[str, int] = {"unsafe": 0, "writeback": 1, "none": 1, "writethrough": 2, "directsync": 2}
"""What a cache mode promises: nothing; what the guest flushed is durable; so is every write."""

_HARMLESS: Mapping[tuple[str, str | None], Risk] = {
    ("disk.discard", "ignore"): Risk.NONE,
    ("disk.discard", None): Risk.NONE,
    ("disk.detect_zeroes", "off"): Risk.NONE,
    ("disk.detect_zeroes", None): Risk.NONE,
    ("disk.copy_on_read", "off"): Risk.NONE,
    ("disk.copy_on_read", None): Risk.NONE,
    ("disk.aio", "threads"): Risk.PERFORMANCE,
    ("disk.aio", None): Risk.PERFORMANCE,
    ("cpu.kvm_hidden", None): Risk.AVAILABILITY,  # some GPU drivers refuse a guest that shows it
}
"""Values with another risk than the knob's worst."""

_ORDER = (Change.LIVE, Change.REPLUG, Change.POWEROFF)


class Consequences:
    """The consequences of one domain's changes: what they take and risk."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._disks = {disk.target: disk for disk in reversed(domain.disks)}
        self._first = next((disk.target for disk in domain.disks if disk.holds_data), None)

    def takes(self, change: SettingChange) -> Change:
        """Return what it takes until a change is in effect on a running VM, when virtune makes it.

        A disk is replugged only where its bus allows that, and never the first one, which the guest boots from.
        """
        domain = self._domain
        if domain.language != "libvirt":
            return Change.LIVE if domain.language == "proxmox" and change.knob in LIMIT_KNOBS else Change.POWEROFF
        if change.knob == "iothread.count":
            return Change.LIVE if int(change.value or "0") >= len(domain.threads) else Change.POWEROFF
        if change.knob in LIVE_KNOBS:
            return Change.LIVE
        disk = self._disks.get(change.at)
        pluggable = find(change.knob).change in (Change.LIVE, Change.SWAP, Change.REPLUG)
        return Change.REPLUG if disk is not None and pluggable and self._can_be_replugged(disk) else Change.POWEROFF

    def risk(self, change: SettingChange) -> Risk:
        """Return the worst that this value can do to this disk."""
        if change.knob == "disk.cache":
            disk = self._disks.get(change.at)
            now = _PROMISES.get(cache_of(disk), 1) if disk is not None else 1
            return Risk.DATA if _PROMISES.get(change.value or "writeback", 1) < now else Risk.PERFORMANCE
        if change.knob in ("device.werror", "device.rerror") and change.value != "ignore":
            return Risk.AVAILABILITY
        return _HARMLESS.get((change.knob, change.value), find(change.knob).risk)

    def of_all(self, changes: Sequence[SettingChange]) -> tuple[Change, Risk]:
        """Return what several changes take and risk together: the most of each."""
        most = max(map(self.takes, changes), key=_ORDER.index)
        return most, max(map(self.risk, changes), key=list(Risk).index)

    def _can_be_replugged(self, disk: DomainDisk) -> bool:
        return disk.bus in HOTPLUG_BUSES and disk.holds_data and disk.target != self._first
