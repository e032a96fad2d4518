# SPDX-License-Identifier: Apache-2.0
"""The two guidelines of the study `nvme-scaling` (Hitachi, about 2016) as data: one for planning VMs, one for VMs in
operation.

Shares are relative to the drive's IOPS on bare metal, as its authors measured: 438k reads and 90k writes a second.
"""

import shlex
from collections.abc import Iterable
from dataclasses import replace

from virtune.model.bottleneck import Fork, Guideline, Leaf

_SOURCE = "study nvme-scaling (Hitachi, about 2016): KVM, virtio-blk, O_DIRECT, 4 KiB random, two NVMe drives"


_ADVISE, _DISK = "virtune advise ", "@vda="
_IOTHREAD = f"{_ADVISE}--set iothread.count=1 --set device.iothread{_DISK}1"


def _nodes(*nodes: Fork | Leaf) -> dict[str, Fork | Leaf]:
    return {node.id: node for node in nodes}


CONFIGURATION = Guideline(
    id="configuration",
    title="which structure, before a VM is built",
    source=_SOURCE,
    root="scale-out",
    nodes=_nodes(
        Fork(id="scale-out", text="can the work be spread over more VMs?", yes="structure-1", no="own"),
        Fork(id="own", text="may one VM have the drive for itself?", yes="structure-3", no="virtio"),
        Fork(id="virtio", text="does the guest use virtio-blk?", yes="structure-4", no="structure-2"),
        Leaf(
            id="structure-1",
            text="structure 1: many VMs, one job each",
            expected="0.79 of bare metal's reads, all of its writes, as measured with 16 VMs and virtio-blk",
            cost="every VM is one more to install, update and watch",
            written="--arm 'many:guests.count=4,machine.vcpus=1,machine.memory=512M'",
        ),
        Leaf(
            id="structure-2",
            text="structure 2: one large VM",
            expected="0.21 of bare metal's reads, 0.93 of its writes, as measured with virtio-blk and no IOThread",
            cost="none; virtio drivers in the guest would open structure 4",
            written="--arm 'one:machine.vcpus=4,machine.memory=2G'",
        ),
        Leaf(
            id="structure-3",
            text="structure 3: one VM with the drive passed through",
            expected="as bare metal, as measured with the drive passed through, without virtio-blk",
            cost="the drive is shared with no other VM, and the VM cannot be moved live",
            written="<hostdev mode='subsystem' type='pci' managed='yes'> with the drive's PCI address",
        ),
        Leaf(
            id="structure-4",
            text="structure 4: one VM, an IOThread for each disk",
            expected="0.78 of bare metal's reads (342k), 0.99 of its writes (89k), as measured with virtio-blk and an"
            " IOThread for each disk",
            cost="a setting for each disk, and a CPU for each IOThread",
            written=_IOTHREAD,
        ),
    ),
)

TUNING = Guideline(
    id="tuning",
    title="what is left to gain, in operation",
    source=_SOURCE,
    root="assigned",
    nodes=_nodes(
        Fork(id="assigned", text="does the VM have the drive for itself?", yes="is-limit", no="own"),
        Fork(id="own", text="may it have the drive for itself?", yes="assign", no="free"),
        Fork(id="free", text="is another drive free?", yes="spread", no="jobs"),
        Fork(id="jobs", text="does the VM do several I/Os at a time?", yes="iothreads", no="writes"),
        Fork(id="iothreads", text="do IOThreads serve its disks?", yes="iothread-limit", no="use-iothreads"),
        Fork(id="writes", text="are most of its I/Os writes?", yes="user", no="busy"),
        Fork(id="user", text="is the host's %usr above its %sys?", yes="scale-writes", no="write-limit"),
        Fork(id="busy", text="is the drive busy all of the time?", yes="read-limit", no="scale-reads"),
        Leaf(id="is-limit", text="the drive is the limit: nothing lies between it and the VM", limit=True, ours=True),
        Leaf(id="assign", text="assign the drive to the VM (passthrough)", expected="as bare metal"),
        Leaf(
            id="spread",
            text="spread the VM's block devices over the free drive",
            expected="two drives did 1.57 of one drive's reads and 2.75 of its writes",
        ),
        Leaf(
            id="use-iothreads",
            text="give each disk an IOThread",
            expected="from 0.21 to 0.78 of bare metal's reads",
            written=_IOTHREAD,
        ),
        Leaf(id="iothread-limit", text="this is the limit of one VM with IOThreads", limit=True),
        Leaf(id="scale-writes", text="more VMs do more writes: CPU time goes to the guests, not to the drive"),
        Leaf(id="write-limit", text="this is the limit of its writes: the kernel has more to do than the guests",
             limit=True),
        Leaf(id="read-limit", text="this is the limit of its reads: the drive is busy all of the time", limit=True),
        Leaf(id="scale-reads", text="more VMs do more reads: the drive has time left"),
    ),
)  # fmt: skip


def tuning_for(*, uri: str, vm: str, disk: str) -> Guideline:
    """Return the tuning guideline with commands for this disk of a libvirt's domain; without a libvirt there are
    none.
    """
    where = shlex.join(["--connect", uri, "--domain", vm])

    def own(node: Fork | Leaf) -> Fork | Leaf:
        if isinstance(node, Fork) or not node.written.startswith(_ADVISE):
            return node
        asked = node.written.removeprefix(_ADVISE).replace(_DISK, f"@{disk}=")
        return replace(node, written=f"{_ADVISE}{where} {asked}" if uri else "")

    return replace(TUNING, nodes={name: own(node) for name, node in TUNING.nodes.items()})


_WORDS = {"yes": True, "no": False}


def requirements(words: Iterable[str]) -> dict[str, tuple[bool, str]]:
    """Read `scale-out=no` and the like; raises ValueError with a sentence for an unknown question or answer."""
    known = {fork.id for fork in CONFIGURATION.forks}
    found: dict[str, tuple[bool, str]] = {}
    for word in words:
        name, _, answer = word.strip().partition("=")
        if name not in known or answer not in _WORDS:
            right = ", ".join(f"{fork.id}=yes" for fork in CONFIGURATION.forks)
            raise ValueError(f"not a requirement: {word!r} (write {right}, or =no)")
        found[name] = (_WORDS[answer], "")
    return found


def given_answers(words: Iterable[str]) -> dict[str, tuple[bool, str]]:
    """Read what nobody can see of a VM's drives: `own=yes`, and `free=no` or the drive that is free.

    Raises ValueError with a sentence for anything else.
    """
    found: dict[str, tuple[bool, str]] = {}
    for word in words:
        name, _, answer = word.strip().partition("=")
        drive = name == "free" and answer.startswith("/dev/")
        if name not in ("own", "free") or not (answer in _WORDS or drive):
            raise ValueError(f"not an answer: {word!r} (write own=yes or own=no, free=/dev/NAME or free=no)")
        found[name] = (drive or _WORDS[answer], f"{answer}, as was said" if drive else "as was said")
    return found
