# SPDX-License-Identifier: Apache-2.0
"""Knobs that cannot be set in libvirt's domain XML, and why not (pure)."""

from collections.abc import Mapping

_CONVERT = "the image itself must be made anew: `qemu-img convert` while the VM is off"
_NO_WORD = "QEMU has it, libvirt has no word for it"
_MACHINE = "virtune leaves the VM's machine as it is; `virsh edit` changes it"
_STORAGE = "it says where the image is, and virtune moves no image"
_MEMORY = "virtune leaves the VM's memory as it is; `virsh edit` changes {}"
_TEST_GUESTS = "it is how many guests of its own virtune starts to measure, and no setting of a domain"
_CGROUP = "it is a limit of the whole VM, by the kernel's cgroups: `virsh blkiotune` sets it"

REFUSALS: Mapping[str, str] = {
    "disk.format": _CONVERT,
    "disk.cluster_size": _CONVERT,
    "disk.extended_l2": _CONVERT,
    "disk.preallocation": _CONVERT,
    "disk.data_file": _CONVERT,
    "disk.encryption": _CONVERT,
    "disk.lazy_refcounts": "it is written in the image: `qemu-img amend -o lazy_refcounts=`",
    "disk.backing_chain": "it is in the images: `virsh blockcommit` and `virsh blockpull` shorten a chain",
    "disk.block_jobs": "a job is started, not set: `virsh blockcopy`, `blockcommit`, `blockpull`",
    "disk.l2_cache_size": "libvirt has one size for all metadata of a qcow2 image: set disk.cache_size",
    "disk.auto_read_only": "libvirt always sets it",
    "disk.backend": "a disk of a domain has an image",
    "disk.rbd": "it names the pool of virtune's own images; to move a VM's disk to Ceph is to copy its data",
    "disk.aio_max_batch": _NO_WORD,
    "iothread.aio_max_batch": _NO_WORD,
    "iothread.poll_weight": _NO_WORD,
    "device.request_merging": _NO_WORD,
    "device.indirect_desc": _NO_WORD,
    "device.seg_max_adjust": "libvirt has no word for it but `<qemu:override>`",
    "nvme.ioeventfd": _NO_WORD,
    "nvme.max_ioqpairs": _NO_WORD,
    "device.logical_block_size": "a disk that holds data is unreadable with another sector size",
    "device.write_cache": "libvirt derives it from the cache mode: set disk.cache",
    "device.scsi_passthrough": "it makes another disk of it for the guest; write device='lun' by hand",
    "device.share_rw": "two VMs on one disk need a filesystem made for that; write <shareable/> by hand",
    "machine.type": "another machine type changes the guest's devices; choose it by hand",
    **dict.fromkeys(("machine.emulator", "machine.cpu", "machine.vcpus", "machine.memory"), _MACHINE),
    **dict.fromkeys(("guests.count", "guests.idle", "guests.images"), _TEST_GUESTS),
    **dict.fromkeys(("disks.count", "disks.iothreads", "disks.second"), _TEST_GUESTS),
    "guests.spread": "it says where virtune puts the disks of its own guests, and is no setting of a domain",
    **dict.fromkeys(
        ("storage.kind", "storage.vhost_user_blk", "storage.vdpa", "storage.nvme_userspace", "storage.vfio_pci"),
        _STORAGE,
    ),
    "rbd.cache": "librbd takes it from the disk's cache mode: set disk.cache",
    "nfs.direct": "it is the disk's cache mode: set disk.cache",
    "memory.numa": _MEMORY.format("<numatune>"),
    "memory.hugepages": _MEMORY.format("<memoryBacking>, once the host has pages reserved"),
    "memory.locked": _MEMORY.format("<memoryBacking>"),
    "memory.swap": _MEMORY.format("<memballoon>"),
    "host.io_max": _CGROUP,
    "host.io_weight": _CGROUP,
}  # fmt: skip
"""Why a knob cannot be set here, for knobs of the VM and its surroundings."""


def why_not(knob: str) -> str:
    """Return why a knob cannot be set in domain XML."""
    return REFUSALS.get(knob, "it is not part of a domain's configuration")
