# SPDX-License-Identifier: Apache-2.0
"""The package that brings each program that virtune starts."""

from collections.abc import Mapping

PACKAGES: Mapping[str, str] = {
    "fio": "fio",
    "qemu-img": "qemu-utils",
    "qemu-storage-daemon": "qemu-system-common",
    "qemu-system-x86_64": "qemu-system-x86",
    "mke2fs": "e2fsprogs",
    "debugfs": "e2fsprogs",
    "mkfs.xfs": "xfsprogs",
    "rbd": "ceph-common",
    "virsh": "libvirt-clients",
    "ping": "iputils-ping",
    "ssh": "openssh-client",
    "ansible-inventory": "ansible-core",
}
"""The Debian or Ubuntu package of each program."""
