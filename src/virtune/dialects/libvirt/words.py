# SPDX-License-Identifier: Apache-2.0
"""The words of libvirt's domain XML: for each knob its attribute or element, or why it has none (pure).

What writes a disk (`disk`), what changes one setting of a domain (`alter`), and what names the settings that a
text lacks all read these rows.
"""

from collections.abc import Mapping

from virtune.model.knob import Knob

DRIVER_ATTRIBUTES: Mapping[str, str] = {
    "disk.aio": "io",
    "disk.cache": "cache",
    "disk.discard": "discard",
    "disk.detect_zeroes": "detect_zeroes",
    "disk.copy_on_read": "copy_on_read",
    "disk.discard_no_unref": "discard_no_unref",
    "device.iothread": "iothread",
    "device.num_queues": "queues",
    "device.queue_size": "queue_size",
    "device.packed": "packed",
    "device.event_idx": "event_idx",
    "device.ioeventfd": "ioeventfd",
    "device.page_per_vq": "page_per_vq",
    "device.iommu_platform": "iommu",
    "device.ats": "ats",
    "device.werror": "error_policy",
    "device.rerror": "rerror_policy",
}
"""Attributes of a disk's `<driver>`."""

CONTROLLER_ATTRIBUTES: Mapping[str, str] = {
    "device.iothread": "iothread",
    "scsi.num_queues": "queues",
    "scsi.cmd_per_lun": "cmd_per_lun",
    "scsi.max_sectors": "max_sectors",
}
"""Attributes of a controller's `<driver>`."""

LIMITS: Mapping[str, str] = {
    "disk.throttle_iops": "total_iops_sec",
    "disk.throttle_bps": "total_bytes_sec",
    "disk.throttle_iops_read": "read_iops_sec",
    "disk.throttle_iops_write": "write_iops_sec",
    "disk.throttle_bps_read": "read_bytes_sec",
    "disk.throttle_bps_write": "write_bytes_sec",
    "disk.throttle_iops_max": "total_iops_sec_max",
    "disk.throttle_bps_max": "total_bytes_sec_max",
    "disk.throttle_iops_max_length": "total_iops_sec_max_length",
    "disk.throttle_bps_max_length": "total_bytes_sec_max_length",
    "disk.throttle_iops_size": "size_iops_sec",
    "disk.throttle_group": "group_name",
}
"""Elements of a disk's `<iotune>`."""

BLOCK_SIZES: Mapping[str, str] = {
    "device.physical_block_size": "physical_block_size",
    "device.discard_granularity": "discard_granularity",
}
"""Attributes of a disk's `<blockio>`."""

SCSI_MODELS: Mapping[str, str] = {
    "virtio-scsi-single": "virtio-scsi",
    "virtio-scsi-pci": "virtio-scsi",
    "lsi53c895a": "lsilogic",
    "mptsas1068": "lsisas1068",
    "megasas": "lsisas1078",
    "pvscsi": "vmpvscsi",
}
"""libvirt's names of QEMU's SCSI controllers."""

POLL_WORDS: Mapping[str, str] = {
    "iothread.poll_max_ns": "max",
    "iothread.poll_grow": "grow",
    "iothread.poll_shrink": "shrink",
}
"""Attributes of an IOThread's `<poll>`."""

POOL_WORDS: Mapping[str, str] = {
    "iothread.thread_pool_min": "thread_pool_min",
    "iothread.thread_pool_max": "thread_pool_max",
}
"""Attributes of a listed `<iothread>`."""

TUNED: Mapping[str, tuple[str, str]] = {
    "iothread.pin": ("iothreadpin", "iothread"),
    "vcpu.pin": ("vcpupin", "vcpu"),
    "emulator.pin": ("emulatorpin", ""),
    "iothread.scheduler": ("iothreadsched", "iothreads"),
    "emulator.scheduler": ("emulatorsched", ""),
}
"""Elements of `<cputune>` that pin or schedule something, and the attribute that says what."""

DISK_WORDS: Mapping[str, tuple[str, str]] = {
    **{knob: ("driver", word) for knob, word in DRIVER_ATTRIBUTES.items()},
    **{knob: (f"iotune/{word}", "") for knob, word in LIMITS.items()},
    **{knob: ("blockio", word) for knob, word in BLOCK_SIZES.items()},
    "device.rotation_rate": ("target", "rotation_rate"),
}
"""Where a disk has its settings: the way to an element, and the attribute of it; empty for its text."""

DOMAIN_WORDS: Mapping[str, tuple[str, str]] = {
    "iothread.count": ("iothreads", ""),
    "iothread.quota": ("cputune/iothread_quota", ""),
    "iothread.period": ("cputune/iothread_period", ""),
    "cpu.kvm_hidden": ("features/kvm/hidden", ""),
    "cpu.kvm_hint_dedicated": ("features/kvm/hint-dedicated", "state"),
    "cpu.kvm_poll_control": ("features/kvm/poll-control", "state"),
}
"""The same of the domain as a whole."""

OF_THE_DOMAIN = frozenset({"emulator.pin", "emulator.scheduler", *DOMAIN_WORDS})
OF_A_THREAD = frozenset({"iothread.pin", "iothread.scheduler", *POLL_WORDS, *POOL_WORDS})
OF_A_CONTROLLER = frozenset({"device.scsi_controller", *CONTROLLER_ATTRIBUTES} - {"device.iothread"})
OF_EITHER = frozenset({"device.iothread", "device.iothread_vq_mapping"})
OF_A_DISK = frozenset({"device.bus", "disk.cache_size", *DISK_WORDS})
_KNOWN = OF_THE_DOMAIN | OF_A_THREAD | OF_A_CONTROLLER | OF_EITHER | OF_A_DISK | {"vcpu.pin"}

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


def refusal(knob: str) -> str | None:
    """Return why domain XML cannot set a knob; None if it can."""
    return None if knob in _KNOWN else REFUSALS.get(knob, "it is not part of a domain's configuration")


def says(knob: Knob) -> str:
    """Return where domain XML has a knob, as it is written there."""
    of, (way, word) = "disk", DISK_WORDS.get(knob.id, ("", ""))
    if knob.id in CONTROLLER_ATTRIBUTES and not way:
        of, way, word = "controller", "driver", CONTROLLER_ATTRIBUTES[knob.id]
    if not way or way == "target":
        return knob.spelled.get("libvirt", "")
    *elements, last = (of, *way.split("/"))
    return "".join(f"<{element}>" for element in elements) + (f"<{last} {word}=>" if word else f"<{last}>")
