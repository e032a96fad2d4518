# SPDX-License-Identifier: Apache-2.0
"""For every knob that virtune turns a value that is not the usual one, and stacks with and without it."""

import os
from collections.abc import Mapping
from dataclasses import replace

from virtune.model.knobs import BY_ID
from virtune.model.rig import RIGS
from virtune.model.stack import Stack, with_setting

QCOW2 = ("disk.format=qcow2",)
EXAMPLES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "disk.aio": ("native", ()),
    "disk.cache": ("unsafe", ()),
    "disk.discard": ("unmap", ()),
    "disk.detect_zeroes": ("on", ()),
    "disk.format": ("qcow2", ()),
    "disk.cluster_size": ("131072", QCOW2),
    "disk.extended_l2": ("on", QCOW2),
    "disk.l2_cache_size": ("1048576", QCOW2),
    "disk.preallocation": ("full", QCOW2),
    "disk.lazy_refcounts": ("on", QCOW2),
    "disk.backing_depth": ("2", QCOW2),
    "disk.data_file": ("on", QCOW2),
    "disk.encryption": ("luks", QCOW2),
    "disk.throttle_iops": ("500", ()),
    "disk.throttle_bps": ("1048576", ()),
    "disk.throttle_iops_read": ("500", ()),
    "disk.throttle_iops_write": ("500", ()),
    "disk.throttle_bps_read": ("1048576", ()),
    "disk.throttle_bps_write": ("1048576", ()),
    "disk.backend": ("null-co", ()),
    "disk.null_latency_ns": ("1000", ("disk.backend=null-co",)),
    "disk.rbd": ("vms", ("disk.backend=rbd",)),
    "disk.export": ("fuse", ()),
    "export.num_queues": ("2", ("disk.export=vhost-user-blk",)),
    "export.iothread": ("on", ("disk.export=fuse",)),
    "iothread.poll_max_ns": ("0", ("device.iothread=io1",)),
    "iothread.thread_pool_max": ("5", ("device.iothread=io1",)),
    "device.bus": ("virtio-scsi", ()),
    "device.logical_block_size": ("4096", ("device.physical_block_size=4096",)),
    "device.physical_block_size": ("4096", ()),
    "device.num_queues": ("2", ()),
    "device.queue_size": ("512", ()),
    "device.packed": ("on", ()),
    "device.event_idx": ("off", ()),
    "device.write_cache": ("off", ()),
    "device.iothread": ("iothread1", ()),
    "device.iothread_vq_mapping": ("io1+io2", ()),
    "scsi.num_queues": ("2", ("device.bus=virtio-scsi",)),
    "nvme.max_ioqpairs": ("8", ("device.bus=nvme",)),
    "machine.emulator": (os.path.realpath("/proc/self/exe"), ()),
    "machine.type": ("pc-q35-7.2", ()),
    "machine.cpu": ("qemu64", ()),
    "machine.vcpus": ("3", ()),
    "machine.memory": ("1G", ()),
    "guest.system": ("bare", ()),
    "memory.hugepages": ("2M", ()),
    "memory.numa": ("0", ()),
    "memory.thp": ("never", ()),
    "memory.ksm": ("off", ()),
    "guest.blk_poll_queues": ("1", ()),
    "guest.mount_noatime": ("on", ("disk.filesystem=xfs",)),
    "guest.mount_commit": ("30", ("disk.filesystem=ext4",)),
    "guest.mount_data": ("writeback", ("disk.filesystem=ext4",)),
    "guest.mount_barrier": ("off", ("disk.filesystem=ext4",)),
    "guest.scheduler": ("mq-deadline", ()),
    "guest.nr_requests": ("64", ()),
    "guest.rq_affinity": ("2", ()),
    "guest.nomerges": ("2", ()),
    "guest.read_ahead_kb": ("4096", ()),
    "guest.max_sectors_kb": ("64", ()),
    "vcpu.pin": ("0", ()),
    "emulator.pin": ("0", ()),
    "iothread.pin": ("0", ("device.iothread=io1",)),
    "guests.count": ("2", ()),
    "guests.idle": ("1", ()),
    "guests.images": ("on", ("guests.count=2",)),
    "guests.spread": ("/srv", ("guests.count=2",)),
    "disks.count": ("2", ()),
    "host.cache": ("warm", ()),
    "host.scheduler": ("mq-deadline", ()),
    "host.nr_requests": ("64", ()),
    "host.rq_affinity": ("2", ()),
    "host.nomerges": ("2", ()),
    "host.wbt_lat_usec": ("7000", ()),
    "host.read_ahead_kb": ("64", ()),
    "host.dirty_ratio": ("50", ()),
    "host.dirty_bytes": ("1G", ()),
    "host.dirty_background_ratio": ("5", ()),
    "host.dirty_background_bytes": ("512M", ()),
    "host.cstate_latency": ("20", ()),
    "host.halt_poll_ns": ("0", ()),
    "disk.place": ("scratch", ()),
    "host.neighbour": ("cpu", ()),
    "disk.during": ("backup", ()),
    "workload.iodepth": ("3", ()),
    "load.pin": ("0", ()),
    "disks.iothreads": ("on", ("disks.count=2", "device.iothread=io1")),
    "disk.filesystem": ("ext4", ()),
    "disks.second": ("throttle_iops=100", ("disks.count=2",)),
    "storage.vfio_pci": ("0000:01:00.0", ()),
}
"""For each knob a value that is not the usual one, and what it needs besides."""


def stack_with(rig: str, knob: str) -> tuple[Stack, Stack]:
    """The stack without and with the knob."""
    value, needs = EXAMPLES[knob]
    if (rig, knob) == ("storage-daemon", "iothread.poll_max_ns"):
        needs = ("disk.export=vhost-user-blk",)
    if (rig, knob) == ("libvirt", "device.bus"):
        value = "virtio-blk"  # the only one that leaves nothing behind
    row = RIGS[rig]
    base = replace(Stack(), rig=row.name, domain="web" if row.needs_where else None)
    for setting in needs:
        name, _, text = setting.partition("=")
        base = with_setting(base, BY_ID[name], BY_ID[name].read(text))
    return base, with_setting(base, BY_ID[knob], BY_ID[knob].read(value))
