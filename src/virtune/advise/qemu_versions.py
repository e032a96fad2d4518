# SPDX-License-Identifier: Apache-2.0
"""Versions of QEMU: those in which io_uring is broken, and those whose defaults a machine type keeps."""

import re

from virtune.model.finding import Version

HANGS = ((7, 1), (10, 1))
"""All of these: a request is never completed. A distribution may carry the fix."""

CRAWLS_ON_AHCI = ((10, 2, 0), (10, 2, 1))
"""Up to 499 ms a request on IDE and SATA disks (a 128 MB read took 25.76 s, 1.30 s once fixed)."""

_FAMILIES = r"(?:pc|pc-i440fx|pc-q35|virt|s390-ccw-virtio|pseries|q35|i440fx)"
_UPSTREAM = re.compile(rf"{_FAMILIES}-(\d+)\.(\d+)(?:\.\d+)?(?:\+pve\d+)?")
"""QEMU's own, Proxmox's with its own revision behind it (`pc-q35-6.2+pve0`)."""

_OWN_NAME = re.compile(rf"(?:{_FAMILIES}-)?(rhel\d+\.\d+|[a-z]+)(?:\.\d+)?(?:-hpb|-maxcpus|-v\d)*")

_ALIASES = (None, "pc", "q35", "virt", "s390-ccw-virtio", "s390-ccw", "pseries", "ubuntu", "ubuntu-q35")
"""The newest type of the QEMU that starts it."""

_DISTRIBUTIONS: dict[str, Version] = {
    # RHEL, CentOS, Rocky, AlmaLinux, oVirt: hw_compat_rhel_* in the hw/core/machine.c of their qemu-kvm, each the
    # hw_compat_* of the version that the release was made from
    "rhel7.0": (1, 5), "rhel7.1": (2, 1), "rhel7.2": (2, 3), "rhel7.3": (2, 6), "rhel7.4": (2, 9), "rhel7.5": (2, 10),
    "rhel7.6": (2, 12), "rhel8.0": (3, 1), "rhel8.1": (4, 1), "rhel8.2": (4, 2), "rhel8.3": (5, 1), "rhel8.4": (5, 2),
    "rhel8.5": (6, 0), "rhel8.6": (6, 2), "rhel9.0": (6, 2), "rhel9.2": (7, 2), "rhel9.4": (8, 2), "rhel9.6": (9, 1),
    "rhel10.0": (9, 1),
    **dict.fromkeys((f"rhel6.{minor}" for minor in range(7)), (0, 12)),
    # Ubuntu: debian/patches/ubuntu/define-ubuntu-machine-types.patch; each is the version in that release
    "trusty": (2, 0), "utopic": (2, 1), "vivid": (2, 2), "wily": (2, 3), "xenial": (2, 5), "yakkety": (2, 6),
    "zesty": (2, 8), "artful": (2, 10), "bionic": (2, 11), "cosmic": (2, 12), "disco": (3, 1), "eoan": (4, 0),
    "focal": (4, 2), "groovy": (5, 0), "hirsute": (5, 2), "impish": (6, 0), "jammy": (6, 2), "kinetic": (7, 0),
    "lunar": (7, 2), "mantic": (8, 0), "noble": (8, 2), "oracular": (9, 0), "plucky": (9, 2),
}  # fmt: skip
"""The version of QEMU whose defaults a distribution's own machine type has."""


def version_of_machine(machine: str | None, qemu: Version | None = None) -> Version | None:
    """Return the version of QEMU whose defaults a machine type has (`pc-q35-7.2`, `pc-q35-rhel8.1.0`).

    A type without a version has those of the `qemu` that starts it. None where that or the name is unknown.
    """
    if machine in _ALIASES:
        return qemu
    if found := _UPSTREAM.fullmatch(machine or ""):
        return int(found[1]), int(found[2])
    own = _OWN_NAME.fullmatch(machine or "")
    return _DISTRIBUTIONS.get(own[1]) if own else None


def io_uring_hangs(version: Version) -> bool:
    """Whether io_uring hangs in a version of QEMU."""
    return version[:2] in HANGS


def io_uring_crawls_on_ahci(version: Version) -> bool:
    """Whether io_uring completes late on IDE and SATA disks in a version of QEMU."""
    return version[:3] in CRAWLS_ON_AHCI
