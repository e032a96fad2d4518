# SPDX-License-Identifier: Apache-2.0
"""The answers to the tuning guideline's questions that a disk at work gives, with their evidence."""

from virtune.model.bottleneck import DataPath
from virtune.model.units import format_share

BUSY = 0.95
"""A drive that had a request for this share of time is busy all of it; with several queues it may still do more."""

SEVERAL = 1.5
"""With so many requests in flight on average, several were under way at a time."""


def answers_of(
    path: DataPath, *, write_share: float | None, host_usr: float | None, host_sys: float | None
) -> dict[str, tuple[bool, str]]:
    """Return answers by question; what is not known is missing. `host_usr` and `host_sys` are in % of all CPUs."""
    found: dict[str, tuple[bool, str]] = {"assigned": (False, "its requests pass through QEMU")}
    layers = path.layers
    if layers is not None:
        found["jobs"] = (layers.in_flight >= SEVERAL, f"{layers.in_flight:.1f} requests in flight at a time")
    found["iothreads"] = (path.serving == "iothread", f"the {path.serving} serves the disk")
    if write_share is not None:
        found["writes"] = (write_share > 0.5, f"{format_share(write_share)} of its I/Os are writes")
    if host_usr is not None and host_sys is not None:
        found["user"] = (host_usr > host_sys, f"%usr {host_usr:.0f}, %sys {host_sys:.0f}")
    if path.device_busy is not None:
        found["busy"] = (path.device_busy >= BUSY, f"busy {format_share(path.device_busy)} of the time")
    return found
