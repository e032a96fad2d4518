# SPDX-License-Identifier: Apache-2.0
"""The kernel's files for temperature, throttling, frequency and clock source, which a sampler reads repeatedly."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from virtune.model.facts import Unknown
from virtune.probe import tree

CLOCK_SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
_CPUS = "/sys/devices/system/cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensors:
    """Files to read: counts of thermal throttling, frequencies in kHz, drive temperatures in 1/1000 of a degree.

    `drive_limits` are the drives' own limits, by the file of the temperature; a drive without one is left out.
    """

    clock_source: str | None
    heat: tuple[str, ...]
    frequencies: tuple[str, ...]
    drives: tuple[str, ...]
    drive_limits: dict[str, int]


def sensors(devices: tuple[str, ...], root: Path = tree.ROOT) -> Sensors:
    """Find this host's sensors, and the temperature sensors of the named block devices."""
    cpus = [name for name in tree.names(_CPUS, root) if name.startswith("cpu") and name[3:].isdigit()]
    counts = ("core_throttle_count", "package_throttle_count")
    heat = [f"{_CPUS}/{cpu}/thermal_throttle/{count}" for cpu in cpus for count in counts]
    frequencies = [f"{_CPUS}/{cpu}/cpufreq/scaling_cur_freq" for cpu in cpus]
    limits = dict(pair for device in devices for pair in _temperatures(device, root))
    return Sensors(
        clock_source=CLOCK_SOURCE if tree.exists(CLOCK_SOURCE, root) else None,
        heat=tuple(path for path in heat if tree.exists(path, root)),
        frequencies=tuple(path for path in frequencies if tree.exists(path, root)),
        drives=tuple(limits),
        drive_limits=limits,
    )


def _temperatures(device: str, root: Path) -> Iterator[tuple[str, int]]:
    """Yield a drive's temperature file with its limit: NVMe has hwmon at the controller, SATA (drivetemp) below."""
    for place in (f"/sys/block/{device}/device", f"/sys/block/{device}/device/hwmon"):
        for name in tree.names(place, root):
            limit = (
                tree.number(f"{place}/{name}/temp1_max", root) if name.startswith("hwmon") else Unknown("no hwmon")
            )
            if not isinstance(limit, Unknown) and tree.exists(f"{place}/{name}/temp1_input", root):
                yield f"{place}/{name}/temp1_input", limit
