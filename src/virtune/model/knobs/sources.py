# SPDX-License-Identifier: Apache-2.0
"""The sources of what virtune says of knobs, and how good their evidence is.

A line of evidence begins with its kind: `[T]` tried by hand, `[C]` read in source code or a commit, `[D]` official
documentation, `[P]` a patch or post by the feature's author (numbers are the author's), `[B]` a blog or vendor
note, `[U]` unverified: commonly said, but not proven.
"""

QEMU_MAN = "https://www.qemu.org/docs/master/system/qemu-manpage.html"
QEMU_QMP = "https://www.qemu.org/docs/master/interop/qemu-qmp-ref.html"
QEMU_9_0 = "https://www.qemu.org/2024/04/23/qemu-9-0-0/"
QEMU_10_0 = "https://www.qemu.org/2025/04/23/qemu-10-0-0/"
QEMU_10_2 = "https://www.qemu.org/2025/12/24/qemu-10-2-0/"
QEMU_11_0 = "https://www.qemu.org/2026/04/22/qemu-11-0-0/"
QEMU_DISKS = "https://www.qemu.org/2021/01/19/virtio-blk-scsi-configuration/"
QCOW2_CACHE = "https://gitlab.com/qemu-project/qemu/-/blob/master/docs/qcow2-cache.txt"
SCSI_MULTIQUEUE = "https://lore.kernel.org/qemu-devel/20250213180043.713434-1-stefanha@redhat.com/"
RING_FLAGS = "https://lore.kernel.org/qemu-devel/20250724204702.576637-1-stefanha@redhat.com/"
IO_URING_PLANS = "https://archive.fosdem.org/2020/schedule/event/vai_io_uring_in_qemu/"
LIBVIRT_XML = "https://libvirt.org/formatdomain.html"
LIBVIRT_NEWS = "https://libvirt.org/news.html"
VIRSH = "https://libvirt.org/manpages/virsh.html"
VIRT_INSTALL = "https://github.com/virt-manager/virt-manager (virtinst/devices/disk.py)"
PROXMOX_CODE = (
    "https://github.com/proxmox/qemu-server/blob/e6352be67f70042a7433a3a3c712b36d02f9f7cb/src/PVE/QemuServer/Drive.pm"
)
PROXMOX_MANUAL = "https://pve.proxmox.com/pve-docs/chapter-qm.html"
PROXMOX_CHANGES = "https://github.com/proxmox/pve-qemu/blob/master/debian/changelog"
KUBEVIRT = "https://kubevirt.io/user-guide/storage/disks_and_volumes/"
KUBEVIRT_CODE = "https://github.com/kubevirt/kubevirt (v1.9.0)"
NOVA_CONFIG = "https://docs.openstack.org/nova/latest/configuration/config.html"
NOVA_AIO_SPEC = "https://specs.openstack.org/openstack/nova-specs/specs/mitaka/implemented/libvirt-aio-mode.html"
NOVA_CODE = "https://opendev.org/openstack/nova (driver.py, _get_guest_iothread)"
NOVA_AIO_BUG = "https://bugs.launchpad.net/nova/+bug/1841363"
FIO = "https://fio.readthedocs.io/en/latest/fio_doc.html"
ZFS = "https://openzfs.github.io/openzfs-docs/Performance%20and%20Tuning/Workload%20Tuning.html"
CEPH = "https://docs.ceph.com/en/latest/rbd/qemu-rbd/"
XEN = "https://xenbits.xen.org/docs/unstable/man/xl-disk-configuration.5.html"
FIRECRACKER = "https://github.com/firecracker-microvm/firecracker/blob/main/docs/api_requests/block-io-engine.md"
FIRECRACKER_CACHE = "https://github.com/firecracker-microvm/firecracker/blob/main/docs/api_requests/block-caching.md"
CLOUD_HYPERVISOR = "https://github.com/cloud-hypervisor/cloud-hypervisor (docs, release-notes.md)"
BHYVE = "https://man.freebsd.org/cgi/man.cgi?query=bhyve_config&sektion=5"
BLOCKBRIDGE = "https://kb.blockbridge.com/technote/proxmox-aio-vs-iouring/"
RED_HAT_MAPPING = (
    "https://developers.redhat.com/articles/2024/09/05/scaling-virtio-blk-disk-io-iothread-virtqueue-mapping"
)

TRIED = "[T] QEMU 7.2.22, libvirt 9.0.0, kernel 6.18"
"""Tried by hand by virtune's authors, on the versions named."""


def tried(what: str) -> str:
    """Tried by hand; the text says what exactly."""
    return f"{TRIED}: {what}"


def code(where: str) -> str:
    """Read in the source code, or in the message of a commit, of the project itself."""
    return f"[C] {where}"


def documented(where: str) -> str:
    """Official documentation, a man page or release notes."""
    return f"[D] {where}"


def posted(where: str) -> str:
    """A patch or a post by the author of the feature; its numbers are the author's."""
    return f"[P] {where}"


def vendor(where: str) -> str:
    """A blog, a vendor's note or a forum."""
    return f"[B] {where}"


def unverified(what: str) -> str:
    """Commonly said, but not proven."""
    return f"[U] {what}"


def qemu_commit(digest: str) -> str:
    """A commit of QEMU as evidence."""
    return f"[C] https://gitlab.com/qemu-project/qemu/-/commit/{digest}"


def linux_commit(digest: str) -> str:
    """A commit of Linux as evidence."""
    return f"[C] Linux commit {digest}"
