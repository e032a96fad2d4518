# SPDX-License-Identifier: Apache-2.0
"""The kernel: its release, the I/O interfaces that we may use, the switches that affect I/O, the limits of control
groups, and the files that a sampler reads repeatedly.

The limits of a process's control group are read in both versions of the hierarchy. A limit on any group above its own
applies too, so all of them are read, its own first. The process is virtune itself unless another one is named.
"""

import ctypes
import errno
import gzip
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from virtune.model.counters import group_limits
from virtune.model.facts import IoUringFacts, KernelFacts, Unknown
from virtune.probe import tree
from virtune.probe.tree import mounts

RECORDED = Unknown("a recorded machine cannot be tried")

_IO_URING_SETUP = 425
"""The number is the same on every architecture but alpha."""
_PARAMETER_BYTES = 120
_OF_THREADS = re.compile(r"emulator|vcpu\d+|iothread\d+")
"""The groups that libvirt makes for threads of a VM."""
_SELECTED = re.compile(r"\[([^\]]+)\]")
_CLOCKS = "/sys/devices/system/clocksource/clocksource0"
_ARGUMENTS = re.compile(
    r"(mitigations|isolcpus|nohz_full|rcu_nocbs|idle|(intel_idle|processor)\.max_cstate|nvme(_core)?\..+|psi"
    r"|(default_)?hugepagesz|hugepages|transparent_hugepage|intel_iommu|amd_iommu|iommu|(intel|amd)_pstate|elevator"
    r"|scsi_mod\.use_blk_mq|clocksource|tsc|preempt|nosmt|kvm(-intel|-amd)?\..+|pcie_aspm|nospectre_v2|pti|nopti)(=.*)?"
)
"""The arguments of the kernel's command line that affect I/O; the rest is private and not stored."""


def kernel_facts(root: Path = tree.ROOT) -> KernelFacts:
    """Return the kernel's facts."""
    release = tree.text("/proc/sys/kernel/osrelease", root)
    huge = tree.text("/sys/kernel/mm/transparent_hugepage/enabled", root)
    words = tree.text("/proc/cmdline", root)
    clocks = tree.text(f"{_CLOCKS}/available_clocksource", root)
    ksm = tree.number("/sys/kernel/mm/ksm/run", root)
    return KernelFacts(
        release=release,
        io_uring=IoUringFacts(
            built=_built(release, root),
            disabled=tree.number("/proc/sys/kernel/io_uring_disabled", root),
            usable=try_io_uring() if root == tree.ROOT else RECORDED,
        ),
        aio_used=tree.number("/proc/sys/fs/aio-nr", root),
        aio_limit=tree.number("/proc/sys/fs/aio-max-nr", root),
        clocksource=tree.text(f"{_CLOCKS}/current_clocksource", root),
        clocksources=clocks if isinstance(clocks, Unknown) else tuple(clocks.split()),
        transparent_hugepages=huge if isinstance(huge, Unknown) else _selected(huge),
        ksm_runs=ksm if isinstance(ksm, Unknown) else ksm == 1,
        dirty_background_percent=tree.number("/proc/sys/vm/dirty_background_ratio", root),
        dirty_percent=tree.number("/proc/sys/vm/dirty_ratio", root),
        dirty_background_bytes=tree.number("/proc/sys/vm/dirty_background_bytes", root),
        dirty_bytes=tree.number("/proc/sys/vm/dirty_bytes", root),
        arguments=words if isinstance(words, Unknown) else tuple(w for w in words.split() if _ARGUMENTS.fullmatch(w)),
    )


def try_io_uring() -> bool | Unknown:
    """Set up a ring of one entry and close it: if that works, no switch, filter or limit forbids it."""
    libc = ctypes.CDLL(None, use_errno=True)
    parameters = ctypes.create_string_buffer(_PARAMETER_BYTES)
    descriptor = libc.syscall(ctypes.c_long(_IO_URING_SETUP), ctypes.c_uint(1), parameters)
    if descriptor >= 0:
        os.close(descriptor)
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EPERM, errno.EACCES):
        return False
    return Unknown(f"io_uring_setup failed: {os.strerror(number).lower()}")


def _built(release: str | Unknown, root: Path) -> bool | Unknown:
    text = _config(release, root)
    if text is not None:
        return re.search(r"^CONFIG_IO_URING=y$", text, re.MULTILINE) is not None
    symbols = tree.text("/proc/kallsyms", root)
    if not isinstance(symbols, Unknown) and symbols:
        return "_sys_io_uring_setup" in symbols
    return Unknown("neither the kernel's configuration nor its symbols can be read")


def _config(release: str | Unknown, root: Path) -> str | None:
    try:
        return gzip.decompress(tree.below(root, "/proc/config.gz").read_bytes()).decode(errors="replace")
    except (OSError, EOFError):
        pass
    for path in (f"/boot/config-{release}", f"/lib/modules/{release}/config"):
        text = tree.text(path, root)
        if not isinstance(text, Unknown):
            return text
    return None


def _selected(text: str) -> str | Unknown:
    found = _SELECTED.search(text)
    return found[1] if found else Unknown(f"{text[:60]!r} marks no choice")


def cpu_stat_files(root: Path = tree.ROOT, *, pid: int | None = None) -> tuple[str, ...]:
    """Return the `cpu.stat` of every group that limits our CPU time, which counts how long it did; of another process
    that of all groups of its threads, since a limit may be set later, and libvirt sets those of vCPUs and IOThreads.
    """
    if pid is None:
        groups = [group for group, _ in _cpu_limits(root)]
    else:
        tasks = [f"{pid}/task/{tid}" for tid in tree.names(f"/proc/{pid}/task", root)]
        groups = list(_groups("cpu", root, *tasks))
    files = (f"{group}/cpu.stat" for group in dict.fromkeys(groups))
    return tuple(one for one in files if tree.exists(one, root))


def cpu_limit(root: Path = tree.ROOT) -> float | Unknown | None:
    """Return how many CPUs we may use at most, None without a limit."""
    if isinstance(own := tree.text("/proc/self/cgroup", root), Unknown):
        return own
    return min((limit for _, limit in _cpu_limits(root)), default=None)


def io_limits(root: Path = tree.ROOT, *, pid: int | None = None) -> tuple[str, ...]:
    """Return every I/O limit that applies to a process, as the kernel writes it (`8:0 rbps=1048576`)."""
    found = []
    task = "self" if pid is None else pid
    for group in _groups("io", root, task):
        found += [line for line in tree.lines(f"{group}/io.max", root) if line]
    for group in _groups("blkio", root, task):
        for name in ("read_bps", "write_bps", "read_iops", "write_iops"):
            lines = tree.lines(f"{group}/blkio.throttle.{name}_device", root)
            found += [f"{line.replace(' ', f' {name}=')}" for line in lines if line]
    return tuple(dict.fromkeys(found))


def disk_limits(devices: Collection[str], root: Path = tree.ROOT, *, pid: int | None = None) -> dict[str, float]:
    """Return the least limits of a process's control groups on these devices (`sda`), by unit (`read.bps`)."""
    numbers = {tree.text(f"/sys/class/block/{name}/dev", root) for name in devices}
    return group_limits(io_limits(root, pid=pid), {one for one in numbers if isinstance(one, str)})


def group_cpus(pid: int, root: Path = tree.ROOT) -> str | None:
    """Return the CPUs that a process's control group lets it have, as the kernel writes them (`0-3`); None where none
    are said. Groups that libvirt makes for the threads of a VM are passed by: they have what these are pinned to.
    """
    for group in _groups("cpuset", root, pid):
        for name in ("cpuset.cpus.effective", "cpuset.effective_cpus"):
            found = tree.text(f"{group}/{name}", root)
            if isinstance(found, str) and found and not _OF_THREADS.fullmatch(Path(group).name):
                return found
    return None


def _cpu_limits(root: Path) -> Iterator[tuple[str, float]]:
    for group in _groups("cpu", root, "self"):
        maximum = tree.text(f"{group}/cpu.max", root)
        if isinstance(maximum, Unknown):
            quota = tree.number(f"{group}/cpu.cfs_quota_us", root)
            period = tree.number(f"{group}/cpu.cfs_period_us", root)
            words = [] if isinstance(quota, Unknown) or isinstance(period, Unknown) else [str(quota), str(period)]
        else:
            words = maximum.split()
        if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]) > 0:
            yield group, int(words[0]) / int(words[1])


def _groups(controller: str, root: Path, *tasks: int | str) -> Iterator[str]:
    """Yield the directories of the groups of processes or threads, by their directories in /proc, and those above
    them, in whichever hierarchy has the controller.
    """
    for line in dict.fromkeys(line for task in tasks for line in tree.lines(f"/proc/{task}/cgroup", root)):
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
