# SPDX-License-Identifier: Apache-2.0
"""The kernel: its release, the I/O interfaces that we may use, and the switches that affect I/O."""

import ctypes
import errno
import gzip
import os
import re
from pathlib import Path

from virtune.model.facts import IoUringFacts, KernelFacts, Unknown
from virtune.probe import tree

RECORDED = Unknown("a recorded machine cannot be tried")

_IO_URING_SETUP = 425
"""The number is the same on every architecture but alpha."""
_PARAMETER_BYTES = 120
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
        ksm_runs=_is_one("/sys/kernel/mm/ksm/run", root),
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


def _is_one(path: str, root: Path) -> bool | Unknown:
    found = tree.number(path, root)
    return found if isinstance(found, Unknown) else found == 1
