# SPDX-License-Identifier: Apache-2.0
"""The host: everything that one probe reads. Programs are queried while files are read, which saves time."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from virtune.model.facts import (
    BusyFacts,
    FioFacts,
    HostFacts,
    LibvirtFacts,
    LimitFacts,
    MemoryFacts,
    Pressure,
    QemuFacts,
    Unknown,
)
from virtune.probe import tree
from virtune.probe.cpu import cpu_facts
from virtune.probe.fio import fio_facts
from virtune.probe.kernel import RECORDED, kernel_facts
from virtune.probe.kvm import kvm_facts
from virtune.probe.libvirt import libvirt_facts
from virtune.probe.limits import cpu_limit, io_limits
from virtune.probe.qemu import qemu_facts
from virtune.probe.storage import disk_facts, scratch_facts
from virtune.probe.virtualization import virtualization_facts

_NO_QEMU = QemuFacts(
    emulators=(), image_tool=RECORDED, storage_daemon=RECORDED, accelerators=RECORDED, drivers=RECORDED,
    exports=RECORDED,
)  # fmt: skip


def host_facts(scratch: str | Path, root: Path = tree.ROOT) -> HostFacts:
    """Return every fact about the host that we know how to read. For a recorded machine no program is queried."""
    # the host's load is read first, before our own work adds to it
    busy = busy_facts(root)
    live = root == tree.ROOT
    with ThreadPoolExecutor(max_workers=4) as pool:
        qemu = pool.submit(qemu_facts) if live else None
        fio = pool.submit(fio_facts) if live else None
        libvirt = pool.submit(libvirt_facts) if live else None
        disks = pool.submit(disk_facts, root)
        return HostFacts(
            kernel=kernel_facts(root),
            cpu=cpu_facts(root),
            memory=memory_facts(root),
            virtualization=virtualization_facts(root),
            limits=LimitFacts(cpus=cpu_limit(root), io=io_limits(root)),
            busy=busy,
            kvm=kvm_facts(root),
            scratch=scratch_facts(scratch, root),
            disks=disks.result(),
            qemu=qemu.result() if qemu else _NO_QEMU,
            fio=fio.result() if fio else FioFacts(program=RECORDED, engines=RECORDED),
            libvirt=libvirt.result() if libvirt else LibvirtFacts(client=RECORDED, daemon=RECORDED),
        )


def memory_facts(root: Path = tree.ROOT) -> MemoryFacts:
    """Return the host's memory from /proc/meminfo."""
    sizes: dict[str, int] = {}
    for line in tree.lines("/proc/meminfo", root):
        name, _, value = line.partition(":")
        words = value.split()
        if words and words[0].isdecimal():
            sizes[name] = int(words[0]) * (1024 if words[1:] == ["kB"] else 1)

    def size(name: str) -> int | Unknown:
        return sizes.get(name, Unknown(f"/proc/meminfo names no {name}"))

    pages, page = size("HugePages_Total"), size("Hugepagesize")
    total, free = size("SwapTotal"), size("SwapFree")
    return MemoryFacts(
        total_bytes=size("MemTotal"),
        available_bytes=size("MemAvailable"),
        dirty_bytes=size("Dirty"),
        hugepages_bytes=pages if isinstance(pages, Unknown) else 0 if not pages else tree.times(page, pages),
        swap_total_bytes=total,
        swap_used_bytes=free if isinstance(free, Unknown) else total if isinstance(total, Unknown) else total - free,
    )


def busy_facts(root: Path = tree.ROOT) -> BusyFacts:
    """Return how busy the host is now."""
    load = tree.text("/proc/loadavg", root)
    if isinstance(load, Unknown):
        first: float | Unknown = load
    else:
        first = _float(load.split()[0] if load else "", "/proc/loadavg")
    found = tuple(_pressure(name, root) for name in ("cpu", "io", "memory"))
    missing = all(isinstance(one.some_percent, Unknown) for one in found)
    because = "the kernel counts no pressure stalls (CONFIG_PSI, and `psi=1` where it is off by default)"
    return BusyFacts(load_1min=first, pressure=Unknown(because) if missing else found)


def _pressure(resource: str, root: Path) -> Pressure:
    path = f"/proc/pressure/{resource}"
    text = tree.text(path, root)
    shares: dict[str, float | Unknown] = {}
    for line in text.splitlines() if isinstance(text, str) else []:
        kind, *words = line.split() or [""]
        average = next((word.removeprefix("avg10=") for word in words if word.startswith("avg10=")), "")
        shares[kind] = _float(average, path)
    absent = text if isinstance(text, Unknown) else Unknown(f"{path} does not say")
    return Pressure(
        resource=resource, some_percent=shares.get("some", absent), full_percent=shares.get("full", absent)
    )


def _float(text: str, path: str) -> float | Unknown:
    try:
        return float(text)
    except ValueError:
        return Unknown(f"{path}: {text[:40]!r} is not a number")
