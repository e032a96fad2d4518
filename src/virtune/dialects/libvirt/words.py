# SPDX-License-Identifier: Apache-2.0
"""The words of libvirt's domain XML: for each knob its attribute or element, or why it has none (pure).

What writes a disk (`disk`), what changes one setting of a domain (`alter`), and what names the settings that a
text lacks all read these rows.
"""

from collections.abc import Mapping

from virtune.dialects.language import refusals_of
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

REFUSALS: Mapping[str, str] = refusals_of("libvirt")
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
