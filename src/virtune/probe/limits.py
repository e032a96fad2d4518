# SPDX-License-Identifier: Apache-2.0
"""Control groups: the limits on CPU and I/O that apply to a process, in both versions of the hierarchy.

A limit on any group above its own applies too, so all of them are read, its own first. The process is virtune itself
unless another one is named.
"""

from collections.abc import Collection, Iterator
from pathlib import Path

from virtune.model.counters import group_limits
from virtune.model.facts import Unknown
from virtune.probe import tree
from virtune.probe.mounts import mounts


def cpu_stat_files(root: Path = tree.ROOT, *, pid: int | None = None) -> tuple[str, ...]:
    """Return the `cpu.stat` of every group that limits a process's CPU time: it counts how long it was throttled."""
    return tuple(f"{group}/cpu.stat" for group, _ in _cpu_limits(root, pid) if tree.exists(f"{group}/cpu.stat", root))


def cpu_limit(root: Path = tree.ROOT) -> float | Unknown | None:
    """Return how many CPUs we may use at most, None without a limit."""
    if isinstance(own := tree.text("/proc/self/cgroup", root), Unknown):
        return own
    return min((limit for _, limit in _cpu_limits(root)), default=None)


def io_limits(root: Path = tree.ROOT, *, pid: int | None = None) -> tuple[str, ...]:
    """Return every I/O limit that applies to a process, as the kernel writes it (`8:0 rbps=1048576`)."""
    found = []
    for group in _groups("io", root, pid):
        found += [line for line in tree.lines(f"{group}/io.max", root) if line]
    for group in _groups("blkio", root, pid):
        for name in ("read_bps", "write_bps", "read_iops", "write_iops"):
            lines = tree.lines(f"{group}/blkio.throttle.{name}_device", root)
            found += [f"{line.replace(' ', f' {name}=')}" for line in lines if line]
    return tuple(dict.fromkeys(found))


def disk_limits(devices: Collection[str], root: Path = tree.ROOT, *, pid: int | None = None) -> dict[str, float]:
    """Return the least limits of a process's control groups on these devices (`sda`), by unit (`read.bps`)."""
    numbers = {tree.text(f"/sys/class/block/{name}/dev", root) for name in devices}
    return group_limits(io_limits(root, pid=pid), {one for one in numbers if isinstance(one, str)})


def _cpu_limits(root: Path, pid: int | None = None) -> Iterator[tuple[str, float]]:
    for group in _groups("cpu", root, pid):
        maximum = tree.text(f"{group}/cpu.max", root)
        if isinstance(maximum, Unknown):
            quota = tree.number(f"{group}/cpu.cfs_quota_us", root)
            period = tree.number(f"{group}/cpu.cfs_period_us", root)
            words = [] if isinstance(quota, Unknown) or isinstance(period, Unknown) else [str(quota), str(period)]
        else:
            words = maximum.split()
        if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]) > 0:
            yield group, int(words[0]) / int(words[1])


def _groups(controller: str, root: Path, pid: int | None) -> Iterator[str]:
    """Yield the directories of a process's group and those above it, in whichever hierarchy has the controller."""
    for line in tree.lines(f"/proc/{'self' if pid is None else pid}/cgroup", root):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            point = next((mount.point for mount in mounts(root) if mount.filesystem == "cgroup2"), None)
        elif controller in controllers.split(","):
            point = next(
                (m.point for m in mounts(root) if m.filesystem == "cgroup" and controller in m.options), None
            )
        else:
            continue
        if point is not None:
            yield from _upwards(point, path, root)


def _upwards(point: str, path: str, root: Path) -> Iterator[str]:
    steps = [step for step in path.split("/") if step and step != ".."]
    for count in range(len(steps), -1, -1):
        group = "/".join((point, *steps[:count]))
        # a namespace may show a path that does not exist on our side of it
        if tree.exists(group, root):
            yield group
