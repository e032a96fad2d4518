# SPDX-License-Identifier: Apache-2.0
"""Knobs of QEMU's I/O throttle (K61): limits on total, read and write rates, bursts, groups."""

from functools import partial

from virtune.model.knob import AskSchema, Change, Knob, Layer, Number, Risk, Size, Text
from virtune.model.knobs.domains import BYTES, COUNT, SECONDS
from virtune.model.knobs.sources import LIBVIRT_XML, QEMU_MAN, TRIED, code, documented, tried

_SLOW = "The wait is counted in rd/wr_total_time_ns and looks like a slow disk."
_knob = partial(
    Knob,
    number="K61",
    layer=Layer.BLOCK,
    change=Change.LIVE,
    risk=Risk.PERFORMANCE,
    risk_note=_SLOW,
)


def _ask(member: str) -> AskSchema:
    return AskSchema(command="object-add", member=f"limits.{member}", variant="throttle-group")


KNOBS: tuple[Knob, ...] = (
    _knob(
        id="disk.throttle_iops",
        domain=Number(low=1, high=10**9, unit="IOPS"),
        default="(no limit)",
        ask=_ask("iops-total"),
        what="The most I/Os a second, reads and writes together.",
        why="The first thing to look for on a cloud VM that is slow. Exclusive with limits on reads or writes alone.",
        spelled={
            "libvirt": "<iotune><total_iops_sec>, virsh blkdeviotune --live",
            "qemu": "-object throttle-group,x-iops-total= + -blockdev driver=throttle, QMP block_set_io_throttle",
            "proxmox": "iops=",
            "openstack": "flavor quota:disk_total_iops_sec",
            "cloud-hypervisor": "ops_size=, ops_refill_time=",
            "firecracker": "rate_limiter",
        },
        source=(
            tried(
                "live, by the QOM path /machine/peripheral/ID/virtio-backend; total and read or write are exclusive"
            ),
            documented(LIBVIRT_XML),
            code("QEMU, block accounting"),
        ),
        in_guest=Change.SWAP,
        place=("disk", "throttle_iops"),
    ),
    _knob(
        id="disk.throttle_bps",
        domain=Size(low=1, high=2**50),
        default="(no limit)",
        ask=_ask("bps-total"),
        what="The most bytes a second, reads and writes together.",
        why=(
            "QEMU's documentation calls 2 MB/s the safe minimum, for whole requests. Exclusive with limits "
            "on reads or writes alone."
        ),
        spelled={
            "libvirt": "<iotune><total_bytes_sec>, virsh blkdeviotune --live",
            "qemu": "-object throttle-group,x-bps-total= + -blockdev driver=throttle, QMP block_set_io_throttle",
            "proxmox": "mbps=",
            "openstack": "flavor quota:disk_total_bytes_sec",
            "cloud-hypervisor": "bw_size=, bw_refill_time=",
            "firecracker": "rate_limiter",
        },
        source=(
            tried("live, by the QOM path /machine/peripheral/ID/virtio-backend"),
            documented(QEMU_MAN),
            documented(LIBVIRT_XML),
        ),
        in_guest=Change.SWAP,
        place=("disk", "throttle_bps"),
    ),
    _knob(
        id="disk.throttle_iops_read",
        domain=COUNT,
        default="0",
        ask=_ask("iops-read"),
        what="The most reads a second; 0 no limit.",
        why="Exclusive with the limit on the sum.",
        spelled={
            "libvirt": "<iotune><read_iops_sec>",
            "qemu": "throttle-group x-iops-read=",
            "proxmox": "iops_rd=",
            "openstack": "flavor quota:disk_read_iops_sec",
        },
        source=(TRIED, documented(LIBVIRT_XML)),
        in_guest=Change.SWAP,
        place=("disk", "throttle_iops_read"),
    ),
    _knob(
        id="disk.throttle_iops_write",
        domain=COUNT,
        default="0",
        ask=_ask("iops-write"),
        what="The most writes a second; 0 no limit.",
        why="Exclusive with the limit on the sum.",
        spelled={
            "libvirt": "<iotune><write_iops_sec>",
            "qemu": "throttle-group x-iops-write=",
            "proxmox": "iops_wr=",
            "openstack": "flavor quota:disk_write_iops_sec",
        },
        source=(TRIED, documented(LIBVIRT_XML)),
        in_guest=Change.SWAP,
        place=("disk", "throttle_iops_write"),
    ),
    _knob(
        id="disk.throttle_bps_read",
        domain=Size(low=0, high=2**50),
        default="0",
        ask=_ask("bps-read"),
        what="The most bytes read a second; 0 no limit.",
        why="Exclusive with the limit on the sum.",
        spelled={
            "libvirt": "<iotune><read_bytes_sec>",
            "qemu": "throttle-group x-bps-read=",
            "proxmox": "mbps_rd=",
            "openstack": "flavor quota:disk_read_bytes_sec",
        },
        source=(TRIED, documented(LIBVIRT_XML)),
        in_guest=Change.SWAP,
        place=("disk", "throttle_bps_read"),
    ),
    _knob(
        id="disk.throttle_bps_write",
        domain=Size(low=0, high=2**50),
        default="0",
        ask=_ask("bps-write"),
        what="The most bytes written a second; 0 no limit.",
        why="Exclusive with the limit on the sum.",
        spelled={
            "libvirt": "<iotune><write_bytes_sec>",
            "qemu": "throttle-group x-bps-write=",
            "proxmox": "mbps_wr=",
            "openstack": "flavor quota:disk_write_bytes_sec",
        },
        source=(TRIED, documented(LIBVIRT_XML)),
        in_guest=Change.SWAP,
        place=("disk", "throttle_bps_write"),
    ),
    _knob(
        id="disk.throttle_iops_max",
        domain=COUNT,
        default="0",
        needs=("libvirt 1.2.11",),
        ask=_ask("iops-total-max"),
        what="How many I/Os a second a burst may reach; 0 no burst of its own.",
        why="A short measurement sees the burst and not the limit.",
        spelled={"libvirt": "<iotune><total_iops_sec_max>", "qemu": "throttle-group x-iops-total-max="},
        source=(documented(LIBVIRT_XML),),
    ),
    _knob(
        id="disk.throttle_bps_max",
        domain=BYTES,
        default="0",
        needs=("libvirt 1.2.11",),
        ask=_ask("bps-total-max"),
        what="How many bytes a second a burst may reach; 0 no burst of its own.",
        why="A short measurement sees the burst and not the limit.",
        spelled={"libvirt": "<iotune><total_bytes_sec_max>", "qemu": "throttle-group x-bps-total-max="},
        source=(documented(LIBVIRT_XML),),
    ),
    _knob(
        id="disk.throttle_iops_max_length",
        domain=SECONDS,
        default="1",
        needs=("libvirt 2.4",),
        ask=_ask("iops-total-max-length"),
        what="How long a burst of I/Os may last.",
        why="Measure for longer than this, or the limit is not seen.",
        spelled={"libvirt": "<iotune><total_iops_sec_max_length>", "qemu": "throttle-group x-iops-total-max-length="},
        source=(documented(LIBVIRT_XML),),
    ),
    _knob(
        id="disk.throttle_bps_max_length",
        domain=SECONDS,
        default="1",
        needs=("libvirt 2.4",),
        ask=_ask("bps-total-max-length"),
        what="How long a burst of bytes may last.",
        why="Measure for longer than this, or the limit is not seen.",
        spelled={"libvirt": "<iotune><total_bytes_sec_max_length>", "qemu": "throttle-group x-bps-total-max-length="},
        source=(documented(LIBVIRT_XML),),
    ),
    _knob(
        id="disk.throttle_iops_size",
        domain=BYTES,
        default="0",
        ask=_ask("iops-size"),
        what="From which size on one request counts as several; 0 each counts as one.",
        why="Keeps a guest from beating an IOPS limit with large requests.",
        spelled={"libvirt": "<iotune><size_iops_sec>", "qemu": "throttle-group x-iops-size="},
        source=(documented(LIBVIRT_XML),),
    ),
    _knob(
        id="disk.throttle_group",
        domain=Text(shape="name of the group"),
        default="(each disk its own)",
        needs=("libvirt 3.0; throttle filters 11.2",),
        ask=AskSchema(command="blockdev-add", member="throttle-group", variant="throttle"),
        what="Which disks share one limit.",
        why="A busy disk of the group slows the others.",
        spelled={
            "libvirt": "<iotune><group_name>",
            "qemu": "-object throttle-group,id= + -blockdev driver=throttle,throttle-group=",
        },
        source=(documented(LIBVIRT_XML),),
    ),
)
"""In the order of the knowledge base."""
