# SPDX-License-Identifier: Apache-2.0
"""Which package brings a program, in the words of this host's own package manager."""

import shlex
import shutil
from collections.abc import Iterable, Mapping

PACKAGES: Mapping[str, str] = {
    "fio": "fio",
    "qemu-img": "qemu-utils",
    "qemu-storage-daemon": "qemu-system-common",
    "qemu-system-x86_64": "qemu-system-x86",
    "mke2fs": "e2fsprogs",
    "debugfs": "e2fsprogs",
    "mkfs.xfs": "xfsprogs",
    "rbd": "ceph-common",
    "lvs": "lvm2",
    "pvs": "lvm2",
    "lvmconfig": "lvm2",
    "lvcreate": "lvm2",
    "lvremove": "lvm2",
    "virsh": "libvirt-clients",
    "ping": "iputils-ping",
    "ssh": "openssh-client",
    "ansible-inventory": "ansible-core",
    "ansible-playbook": "ansible-core",
    "zstd": "zstd",
}
"""The Debian or Ubuntu package of each program."""

_OF_ARCH: Mapping[str, str] = {
    "qemu-utils": "qemu-img",
    "qemu-system-common": "qemu-img",
    "ceph-common": "ceph",
    "libvirt-clients": "libvirt",
    "iputils-ping": "iputils",
    "openssh-client": "openssh",
}
"""Arch Linux's packages that have another name than Debian's."""

_SYSTEM = ("mke2fs", "debugfs", "mkfs.xfs", "lvs", "pvs", "lvmconfig", "lvcreate", "lvremove")
"""Programs that lie in /usr/sbin."""

_PROXMOX = "pve-qemu-kvm"
"""What brings all of QEMU on a Proxmox VE node. Debian's own would take its place, and the node's tools with it."""

_MANAGERS: Mapping[str, str] = {"apt-get": "install", "dnf": "install", "zypper": "install", "pacman": "-S"}
"""What each package manager calls it to install something."""

UNASKED: Mapping[str, tuple[str, ...]] = {
    # whatever would have to go for a package is worth more than the package
    "apt-get": ("--yes", "--no-install-recommends", "--no-remove"),
    "dnf": ("--assumeyes",),
    "zypper": ("--non-interactive",),
    "pacman": ("--noconfirm", "--needed"),
}
"""The options with which each asks nothing."""


def installing(programs: Iterable[str], manager: str | None = None) -> list[str]:
    """Return the command that installs what brings these programs; empty where no package manager is known, or where
    none of the programs has a package. `manager` is one of those that this host has, the first by default.
    """
    manager = manager or next(filter(shutil.which, _MANAGERS), "")
    named = dict.fromkeys(filter(None, (_named(one, manager) for one in programs)))
    return [manager, _MANAGERS[manager], *named] if manager and named else []


def hint_for(program: str) -> str:
    """Say how a program gets here: in Debian's words where no package manager is found."""
    command = installing([program]) or installing([program], "apt-get")
    return f"`{shlex.join(command)}` brings it" if command else "install it first"


def _named(program: str, manager: str) -> str:
    package = PACKAGES.get(program, "")
    if not package or not manager:
        return ""
    if manager in ("dnf", "zypper"):  # they find the package by the path of a program
        return f"/usr/{'sbin' if program in _SYSTEM else 'bin'}/{program}"
    if manager == "pacman":
        return _OF_ARCH.get(package, package)
    return _PROXMOX if package.startswith("qemu-") and shutil.which("pveversion") else package
