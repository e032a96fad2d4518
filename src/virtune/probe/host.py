# SPDX-License-Identifier: Apache-2.0
"""The host: everything that one probe reads. Programs are queried while files are read, which saves time."""

import errno
import fcntl
import mmap
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from virtune import shell
from virtune.model.errors import VirtuneError, words_of
from virtune.model.facts import (
    BusyFacts,
    ClaimKind,
    DiskFacts,
    FioFacts,
    HostFacts,
    KvmFacts,
    LibvirtFacts,
    LimitFacts,
    MemoryFacts,
    Pressure,
    QemuFacts,
    Residency,
    ScratchFacts,
    Unknown,
    VirtualizationFacts,
)
from virtune.probe import tree
from virtune.probe.claims import claims, open_devices
from virtune.probe.cpu import cpu_facts
from virtune.probe.devices import all_disks, backing_of, device_facts, node_number
from virtune.probe.images import cachestat
from virtune.probe.kernel import RECORDED, cpu_limit, io_limits, kernel_facts
from virtune.probe.programs import fio_facts, libvirt_facts, qemu_facts, said_of_itself

_GET_API_VERSION = 0xAE00
_CREATE_VM = 0xAE01


NOT_TRIED = Unknown("not tried: `virtune host guest build` does")


def kvm_facts(root: Path = tree.ROOT) -> KvmFacts:
    """Return the results of testing KVM."""
    exists = tree.exists("/dev/kvm", root)
    opens, version, creates = _try() if root == tree.ROOT else (RECORDED, RECORDED, RECORDED)
    return KvmFacts(
        exists=exists,
        opens=opens,
        api_version=version,
        creates_vm=creates,
        nested=_nested(root),
        boots_guest=NOT_TRIED,
        boot=NOT_TRIED,
        halt_poll_ns=tree.number("/sys/module/kvm/parameters/halt_poll_ns", root),
    )


def _try() -> tuple[bool | Unknown, int | Unknown, bool | Unknown]:
    try:
        device = os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        absent = Unknown("there is no /dev/kvm")
        return absent, absent, absent
    except OSError as error:
        closed = Unknown(f"/dev/kvm does not open: {words_of(error)}")
        return False, closed, closed
    try:
        return True, _ask(device, _GET_API_VERSION), _create(device)
    finally:
        os.close(device)


def _ask(device: int, request: int) -> int | Unknown:
    try:
        return fcntl.ioctl(device, request, 0)
    except OSError as error:
        return Unknown(f"/dev/kvm does not answer: {words_of(error)}")


def _create(device: int) -> bool | Unknown:
    made = _ask(device, _CREATE_VM)
    if isinstance(made, Unknown):
        return False
    os.close(made)
    return True


def _nested(root: Path) -> bool | Unknown:
    for module in ("kvm_intel", "kvm_amd"):
        text = tree.text(f"/sys/module/{module}/parameters/nested", root)
        if not isinstance(text, Unknown):
            return text in ("1", "Y")
    return Unknown("neither kvm_intel nor kvm_amd shows it")


_DMI = (
    ("QEMU", "qemu"),
    ("KVM", "kvm"),
    ("VMware", "vmware"),
    ("innotek", "virtualbox"),
    ("VirtualBox", "virtualbox"),
    ("Xen", "xen"),
    ("Amazon EC2", "amazon"),
    ("Google Compute", "google"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Virtual Machine", "hyper-v"),
)
"""Identifying strings in the firmware tables of virtual machines, the most specific first. Bare-metal instances of
clouds carry the cloud's name too, so the processor's hypervisor flag must agree.
"""


def virtualization_facts(root: Path = tree.ROOT) -> VirtualizationFacts:
    """Return the virtualization that this host runs in, by `systemd-detect-virt`, else by firmware and processor."""
    if root == tree.ROOT:
        asked = _detect("--vm"), _detect("--container")
        if asked[0] is not None and asked[1] is not None:
            return VirtualizationFacts(hypervisor=asked[0], container=asked[1], source="systemd-detect-virt")
    return VirtualizationFacts(hypervisor=_hypervisor(root), container=_container(root), source="/proc and /sys")


def _detect(kind: str) -> str | None:
    try:
        # it exits with 1 when it found none, and prints that
        answer = said_of_itself(shell.find("systemd-detect-virt"), kind, ok=(0, 1))
    except VirtuneError:
        return None
    return answer.strip() or None


def _hypervisor(root: Path) -> str | Unknown:
    named = tree.text("/sys/hypervisor/type", root)
    if not isinstance(named, Unknown) and named:
        return named
    said = [tree.text(f"/sys/class/dmi/id/{name}", root) for name in ("sys_vendor", "product_name", "board_vendor")]
    texts = [text for text in said if not isinstance(text, Unknown)]
    found = next((name for mark, name in _DMI if any(mark in text for text in texts)), None)
    flags = next((line for line in tree.lines("/proc/cpuinfo", root) if line.startswith("flags")), None)
    if flags is None:
        return found or Unknown("neither firmware nor /proc/cpuinfo says")
    if "hypervisor" not in flags.split():
        return "none"
    return found or "unnamed"


def _container(root: Path) -> str | Unknown:
    if tree.exists("/.dockerenv", root):
        return "docker"
    if tree.exists("/run/.containerenv", root):
        return "podman"
    manager = tree.text("/run/host/container-manager", root)
    if not isinstance(manager, Unknown):
        return manager
    groups = tree.text("/proc/1/cgroup", root)
    if isinstance(groups, Unknown):
        return groups
    return next((name for name in ("kubepods", "docker", "lxc") if name in groups), "none")


_TRIED_BYTES = 65536
_BLOCKS = (512, 4096)

_NVME = re.compile(r"nvme[0-9]+n[0-9]+")
"""A namespace; of one with several paths the kernel lists each path as well (`nvme0c1n1`), which has no node."""


def disk_facts(root: Path = tree.ROOT) -> tuple[DiskFacts, ...]:
    """Return every whole disk that has a size, with its claims."""
    opened = open_devices() if root == tree.ROOT else {}
    return tuple(
        DiskFacts(device=device_facts(name, root), claims=claims(f"/dev/{name.replace('!', '/')}", root, opened))
        for name in all_disks(root)
    )


def nvme_idle(root: Path = tree.ROOT) -> dict[str, bool | None]:
    """Return for every NVMe drive of this host whether nothing uses it and it holds nothing; None where that could
    not be checked.
    """
    names = [name for name in all_disks(root) if _NVME.fullmatch(name)]
    opened = open_devices() if names and root == tree.ROOT else {}
    return {name: _idle(f"/dev/{name}", root, opened) for name in names}


def _idle(node: str, root: Path, opened: Mapping[str, Sequence[str]]) -> bool | None:
    if node_number(node, root) is None:  # without its node nothing can be asked of it
        return None
    kinds = {claim.kind for claim in claims(node, root, opened)}
    return None if kinds == {ClaimKind.UNSEEN} else not kinds


def scratch_facts(directory: str | Path, root: Path = tree.ROOT) -> ScratchFacts:
    """Return the storage and capabilities of a directory for scratch files.

    For one that does not exist yet, the nearest existing directory above it is used; nothing is created.
    """
    backing = backing_of(directory, root)
    place = _existing(Path(directory)) if root == tree.ROOT else None
    size, free = _space(place) if place else (RECORDED, RECORDED)
    direct, block = _try_direct(place) if place else (RECORDED, RECORDED)
    return ScratchFacts(
        directory=str(directory),
        backing=backing,
        size_bytes=size,
        free_bytes=free,
        direct_io=direct,
        direct_block_bytes=block,
    )


def _existing(directory: Path) -> Path:
    place = directory.absolute()
    while not place.is_dir() and place != place.parent:
        place = place.parent
    return place


def _space(place: Path) -> tuple[int | Unknown, int | Unknown]:
    try:
        status = os.statvfs(place)
    except OSError as error:
        unknown = Unknown(f"{place}: {words_of(error)}")
        return unknown, unknown
    return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize


def _try_direct(place: Path) -> tuple[bool | Unknown, int | Unknown]:
    """Write with O_DIRECT, and check that the written data is not in the page cache."""
    try:
        descriptor = _nameless(place)
    except OSError as error:
        unknown = Unknown(f"no file could be made in {place}: {words_of(error)}")
        return (False if error.errno == errno.EINVAL else unknown), unknown
    try:
        buffer = mmap.mmap(-1, _TRIED_BYTES)
        os.pwrite(descriptor, buffer, 0)
        held = cachestat(f"/proc/self/fd/{descriptor}")
        if isinstance(held, Residency) and held.cached_bytes:
            return False, Unknown("O_DIRECT is taken, and goes through the page cache all the same")
        return True, _smallest_block(descriptor, buffer)
    except OSError as error:
        return False, Unknown(f"a write with O_DIRECT failed: {words_of(error)}")
    finally:
        os.close(descriptor)


def _nameless(place: Path) -> int:
    """Open an unnamed file, or one that is removed at once if the filesystem has no unnamed files."""
    try:
        return os.open(place, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            raise
    made, name = tempfile.mkstemp(prefix="virtune-probe-", dir=place)
    try:
        return os.open(name, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
    finally:
        os.close(made)
        Path(name).unlink()


def _smallest_block(descriptor: int, buffer: mmap.mmap) -> int | Unknown:
    for block in _BLOCKS:
        try:
            os.preadv(descriptor, [memoryview(buffer)[:block]], block)
        except OSError:
            continue
        return block
    return Unknown(f"O_DIRECT takes blocks of more than {_BLOCKS[-1]} bytes")


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
