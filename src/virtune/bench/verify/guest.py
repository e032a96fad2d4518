# SPDX-License-Identifier: Apache-2.0
"""Verify the disk's settings inside the guest."""

from collections.abc import Iterator, Mapping

from virtune.model.evidence import Check
from virtune.model.stack import Stack, writes_through

_EVENT_IDX_BIT, _PACKED_BIT = 29, 34
"""VIRTIO_F_EVENT_IDX and VIRTIO_F_RING_PACKED (virtio 1.2, section 6)."""

_FEATURES = "the features that the guest's driver took, in its /sys/block/*/device"


def guest_checks(
    stack: Stack, seen: Mapping[str, str], *, vcpus: int, writes: bool, proof: str = "the guest's /sys/block"
) -> Iterator[Check]:
    """Compare the disk's properties in the guest with the request."""
    device = stack.device
    asked_cache = "write through" if writes_through(stack) else "write back"
    # Linux treats a write-protected SCSI disk as one without a cache
    told = writes or device.bus != "virtio-scsi"
    found_cache = seen.get("write_cache") if told else None
    yield Check(setting="guest.write_cache", asked=asked_cache, found=found_cache, proof=proof)
    queues = device.num_queues or device.scsi_num_queues or device.max_ioqpairs
    if queues is not None:
        # a guest makes no more queues than it has CPUs
        expected = str(min(queues, vcpus))
        yield Check(setting="guest.queues", asked=expected, found=seen.get("queues"), proof=f"{proof}/*/mq")
    features = seen.get("features", "")
    for name, asked, bit in (("packed", device.packed, _PACKED_BIT), ("event_idx", device.event_idx, _EVENT_IDX_BIT)):
        if asked is not None:
            took = ("on" if features[bit] == "1" else "off") if len(features) > bit else None
            yield Check(setting=f"guest.{name}", asked="on" if asked else "off", found=took, proof=_FEATURES)
    if device.queue_size is not None and "[none]" in seen.get("scheduler", ""):
        size, depth = str(device.queue_size), seen.get("nr_requests")
        yield Check(setting="guest.queue_size", asked=size, found=depth, proof=f"{proof}/*/queue/nr_requests")
    if device.bus == "ide":
        depth = seen.get("queue_depth")
        yield Check(setting="guest.queue_depth", asked="1", found=depth, proof=f"{proof}/*/device/queue_depth")
    for name, value in (
        ("logical_block_size", device.logical_block_size),
        ("physical_block_size", device.physical_block_size),
    ):
        if value is not None:
            yield Check(setting=f"device.{name}", asked=str(value), found=seen.get(name), proof=proof)
