# SPDX-License-Identifier: Apache-2.0
"""Rules of the device, its queues, its threads and its limits: those of its configuration, and those that only its
running VM has.
"""

import itertools
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace

from virtune.advise.rule import below, measuring, rule, turn, version_of_machine
from virtune.dialects.libvirt.domain import limits_command
from virtune.model.domain import IOTHREAD_BUSES, Domain, DomainDisk, SettingChange
from virtune.model.finding import Seen, Subject
from virtune.model.stack import LIMITS, POLL_DEFAULT_NS


def limits_now(subject: Subject, disk: DomainDisk) -> dict[str, int]:
    """Return the limits that a disk has now: those of the running VM, if it runs and has the disk."""
    return (_live(subject, disk) or disk).rate_limits


def lifting(subject: Subject, disk: DomainDisk) -> str:
    """Return what gives a running VM the limits of its configuration, or none: a command where libvirt is known, else
    in words.
    """
    live = _live(subject, disk)
    command = None
    if subject.connect is not None and live is not None:
        command = limits_command(subject.connect, subject.domain.name, live, dict(disk.limits))
    does = f"brings back {told(disk.rate_limits)}" if disk.rate_limits else "lifts it"
    return f"a power-off {does}" if command is None else f"`{command}` {does}, and so does a power-off"


def told(limits: dict[str, int]) -> str:
    """Write limits: `total_iops_sec=150`."""
    return ", ".join(f"{name}={value}" for name, value in limits.items())


def _live(subject: Subject, disk: DomainDisk) -> DomainDisk | None:
    live = () if subject.running is None else subject.running.live.disks
    return next((one for one in live if one.target == disk.target), None)


_SCSI_DEFAULTS = (
    ("s390", "virtio-scsi"), ("ppc64 pseries", "ibmvscsi"), ("ppc64le pseries", "ibmvscsi"),
    ("aarch64 virt", "virtio-scsi"), ("armv7l virt", "virtio-scsi"), ("riscv64 virt", "virtio-scsi"),
    ("loongarch64 virt", "virtio-scsi"), ("x86_64", "lsilogic"), ("i686", "lsilogic"),
)  # fmt: skip
"""The SCSI controller that libvirt gives a machine unasked (qemuDomainDefaultSCSIControllerModel; its own tests)."""


@rule("R27")
def emulated_bus(_subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    if disk.bus in ("ide", "sata", "usb") and disk.device == "disk":
        yield Seen(
            seen=f"bus={disk.bus}",
            advice="virtio, once the guest has its driver",
            turns=turn(disk, "device.bus", "virtio"),
        )


@rule("R86")
def emulated_controller(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    model, written = scsi_model(subject.domain, disk)
    if model and not model.startswith("virtio"):
        how = f"its controller's model is {model}" + ("" if written else ", libvirt's default for this machine")
        yield Seen(seen=how, advice="virtio-scsi, once the guest has it")


def scsi_model(domain: Domain, disk: DomainDisk) -> tuple[str | None, bool]:
    """Return the model of a disk's SCSI controller, and whether it is written; None where it is none or unknown."""
    controller = domain.controller_of(disk) if disk.bus == "scsi" else None
    if disk.bus != "scsi" or (controller is None and domain.language != "libvirt"):
        return None, False
    if controller is not None and controller.model not in (None, "auto"):
        return controller.model, True
    machine, arch = domain.machine or "", domain.arch or "x86_64"
    return next((model for starts, model in _SCSI_DEFAULTS if f"{arch} {machine}".startswith(starts)), None), False


@rule("R28")
def emulated_nvme(_subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    if disk.bus == "nvme" and disk.opened_here:
        yield Seen(
            seen="bus=nvme, emulated",
            advice="compare with virtio, or with ioeventfd=on by qemu:override",
            turns=turn(disk, "device.bus", "virtio"),
        )


@rule("R29")
def idle_iothread(subject: Subject) -> Iterator[Seen]:
    used = subject.domain.threads_used | subject.domain.threads_elsewhere
    idle = [one.number for one in subject.domain.threads if one.number not in used]
    if not idle:
        return
    bare = [
        disk
        for disk in subject.disks
        if disk.bus in IOTHREAD_BUSES and not subject.domain.threads_of(disk) and disk.source.kind != "vhostuser"
    ]
    turns = tuple(
        SettingChange(knob="device.iothread", at=disk.target, value=str(number))
        for disk, number in zip(bare, idle, strict=False)
    )
    named = ", ".join(map(str, idle))
    one = len(idle) == 1
    yield Seen(
        seen=f"IOThread {named} is defined but no disk uses it"
        if one
        else f"IOThreads {named} are defined but no disk uses them",
        turns=turns,
        advice="name it on a virtio disk or a virtio-scsi controller, or remove it",
    )


_POLLED = ({"iothread.poll_max_ns": "0"}, {"iothread.poll_max_ns": str(POLL_DEFAULT_NS)})
_ON_AND_OFF = ({"export.iothread": "off"}, {"export.iothread": "on"})


@rule("R30")
def in_the_main_loop(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    domain = subject.domain
    numbers = {one.number for one in domain.threads}
    if numbers - domain.threads_used - domain.threads_elsewhere:
        return  # R29 says that they are there and idle
    if can_have_a_thread(domain, disk) and disk.opened_here and not domain.threads_of(disk):
        yield Seen(
            seen="no IOThread",
            advice=f"at depth 8 and more, compare with an IOThread {_whose(domain, disk)}",
            turns=_own_thread(domain, disk, numbers),
            measure=measuring(subject, disk, *_ON_AND_OFF, rig="vhost-user"),
        )


def can_have_a_thread(domain: Domain, disk: DomainDisk) -> bool:
    """Whether an IOThread can serve a disk: its bus, or its SCSI controller, is virtio."""
    return disk.bus in IOTHREAD_BUSES or (scsi_model(domain, disk)[0] or "").startswith("virtio")


def _whose(domain: Domain, disk: DomainDisk) -> str:
    """Say which part of the VM would have the IOThread: Proxmox gives one to a controller that has one disk."""
    if disk.bus != "scsi":
        return "of its own"
    if domain.language == "proxmox" and scsi_model(domain, disk)[0] != "virtio-scsi-single":
        return "of its own, for which scsihw must be virtio-scsi-single"
    return "for its controller" if domain.language != "proxmox" else "of its own"


def thread_place(domain: Domain, disk: DomainDisk) -> tuple[str, tuple[SettingChange, ...]]:
    """Return what names the IOThread of a disk, and what has to be changed first: the disk itself or, in libvirt and
    QEMU, its SCSI controller; empty where that is not written.
    """
    if disk.bus == "scsi" and domain.language in ("libvirt", "qemu"):
        return (f"scsi:{disk.controller}" if domain.controller_of(disk) is not None else ""), ()
    if disk.bus == "scsi" and scsi_model(domain, disk)[0] != "virtio-scsi-single":
        # Proxmox gives a thread to a controller that has one disk, and there is one model for all SCSI disks
        return disk.target, (SettingChange(knob="device.scsi_controller", value="virtio-scsi-single"),)
    return disk.target, ()


def _own_thread(domain: Domain, disk: DomainDisk, numbers: AbstractSet[int]) -> tuple[SettingChange, ...]:
    """One IOThread more."""
    at, first = thread_place(domain, disk)
    free = next(number for number in itertools.count(1) if number not in numbers)
    return (
        (
            *first,
            SettingChange(knob="iothread.count", value=str(len(numbers) + 1)),
            SettingChange(knob="device.iothread", at=at, value=str(free)),
        )
        if at
        else ()
    )


@rule("R33")
def mapping_on_qcow2(_subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    if len(disk.mapping) > 1 and disk.format == "qcow2":
        yield Seen(
            seen=f"{len(disk.mapping)} IOThreads on a qcow2 image",
            advice="expect no scaling of writes that allocate; raw or preallocated does",
        )


@rule("R34")
def one_queue_for_many(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    old = below(version_of_machine(subject.domain.machine, subject.host.qemu), (5, 2))
    few = disk.queues if disk.queues is not None else 1 if old else None
    if disk.bus == "virtio" and few is not None and 0 < few < subject.domain.vcpus and disk.opened_here:
        yield Seen(
            seen=f"{few} queue{'' if few == 1 else 's'} for {subject.domain.vcpus} vCPUs",
            advice="compare with one a vCPU",
            turns=turn(disk, "device.num_queues", str(subject.domain.vcpus)),
            # a clone for each vCPU, as each of them would submit to a queue of its own
            measure=measuring(
                subject,
                disk,
                {"export.num_queues": str(few)},
                {"export.num_queues": str(subject.domain.vcpus)},
                rig="vhost-user",
                load=f"randread-4k,numjobs={subject.domain.vcpus}",
            ),
        )


@rule("R38")
def old_machine_type(subject: Subject) -> Iterator[Seen]:
    version = version_of_machine(subject.domain.machine, subject.host.qemu)
    several = subject.domain.vcpus > 1
    disks = [disk for disk in subject.disks if disk.bus == "virtio"]
    one_queue = below(version, (5, 2)) and several and any(disk.queues is None for disk in disks)
    if one_queue or (below(version, (5, 0)) and any(disk.queue_size is None for disk in disks)):
        yield Seen(
            seen=f"machine type {subject.domain.machine}",
            advice="consider a newer one, or set queues and queue_size by hand",
        )


@rule("R39")
def polling_is_off(subject: Subject) -> Iterator[Seen]:
    used = subject.domain.threads_used
    for thread in subject.domain.threads:
        if thread.poll_max_ns == 0 and thread.number in used:
            served = next((one for one in subject.disks if thread.number in subject.domain.threads_of(one)), None)
            yield Seen(
                seen=f"IOThread {thread.number} polls 0 ns",
                advice=f"at depth 1 on flash, compare with {POLL_DEFAULT_NS} ns",
                turns=(
                    SettingChange(
                        knob="iothread.poll_max_ns", at=f"iothread:{thread.number}", value=str(POLL_DEFAULT_NS)
                    ),
                ),
                measure=measuring(subject, served, *_POLLED, rig="vhost-user") if served else None,
            )


@rule("R43")
def kvm_is_hidden(subject: Subject) -> Iterator[Seen]:
    if subject.domain.kvm_hidden and not subject.domain.host_devices:
        yield Seen(
            seen="KVM is hidden, and no host device is passed through",
            advice="show it",
            turns=(SettingChange(knob="cpu.kvm_hidden", value=None),),
        )


@rule("R47")
def limited_on_purpose(subject: Subject) -> Iterator[Seen]:
    theirs = subject.domain.disks if subject.domain.language == "vmx" else ()
    for disk in subject.disks or tuple(one for one in theirs if one.holds_data):
        yield from (replace(seen, at=disk) for seen in _limited(subject, disk))


def _limited(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    configured, now = disk.rate_limits, limits_now(subject, disk)
    when = "" if now == configured else " from the next start on" + ("" if now else ", and none now")
    if configured:
        advice = "keep it if it is meant; raise it if it is not, before other settings are compared"
        turns = tuple(
            SettingChange(knob=limit.knob, at=disk.target, value=None)
            for limit in LIMITS
            if limit.libvirt in configured
        )
        yield Seen(seen=f"{told(configured)}{when}", advice=advice, turns=turns, meant=True)
    if now and now != configured:
        advice = f"keep it if it is meant; {lifting(subject, disk)}"
        yield Seen(seen=f"{told(now)} on the running VM alone", advice=advice)
