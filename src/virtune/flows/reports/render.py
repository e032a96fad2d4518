# SPDX-License-Identifier: Apache-2.0
"""The JSON document of a study, and the winner of a search as text: QEMU's command line, libvirt's disk element.

What a text says is not kept in a list that somebody must remember to extend: each of the winner's settings is taken
away in turn, and one whose absence changes no line is named beside the lines, with the reason.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields

from virtune.analyse.study.summarise import summarise
from virtune.dialects.libvirt import words as libvirt_words
from virtune.dialects.libvirt.disk import DiskXml, disk_xml
from virtune.dialects.qemu.guest import guest_arguments, guest_command_line, machine_arguments
from virtune.dialects.qemu.images import image_line
from virtune.flows.run.check import fitness
from virtune.flows.run.sweep import sweep_of
from virtune.flows.run.tune import tuning_of
from virtune.flows.stored.show import by_todays_method
from virtune.model.evidence import StudyRecord
from virtune.model.knob import Choice, Knob, Number, Size, Switch
from virtune.model.knobs import TURNED
from virtune.model.stack import Host, Kernel, Stack, setting_of, with_setting
from virtune.model.study import StudyKind
from virtune.model.tuning import Spelled, Tuning
from virtune.report.json.host import check_document
from virtune.report.json.result import result_document, sweep_document
from virtune.report.json.tune import tuning_document
from virtune.store.store import Store

IMAGE = "/path/to/disk.img"
"""A placeholder for the user's image: the measured one was a scratch image."""

_MEASURED = "a condition of the measurement, and no setting of a VM"
_CONDITIONS = "host.cache", "host.neighbour", "disk.during", "disk.place", "load.pin", "workload.iodepth"
_GUESTS = "virtune started so many test guests: each gets these lines"
_DISKS = "the lines are of one disk: each further one gets such lines, with names of its own"
_AFTER = "threads are pinned when they run: `taskset -cp CPUS THREAD`"
_EXPORT = "the daemon's export stood in for a guest's device"
_FSTAB = "the guest mounts so: /etc/fstab there"
_SYSCTL = "the host's kernel has it: a sysctl there"
_WHY: dict[str, str] = {
    **dict.fromkeys(_CONDITIONS, _MEASURED),
    **dict.fromkeys(("guests.count", "guests.idle", "guests.images", "guests.spread"), _GUESTS),
    **dict.fromkeys(("disks.count", "disks.iothreads", "disks.second"), _DISKS),
    **dict.fromkeys(("disk.export", "export.num_queues", "export.iothread"), _EXPORT),
    **dict.fromkeys((f"guest.{one.name}" for one in fields(Kernel)), "the guest's kernel has it: a udev rule there"),
    **dict.fromkeys((f"guest.{one.name}" for one in fields(Kernel) if one.name.startswith("mount_")), _FSTAB),
    **dict.fromkeys((f"host.{one.name}" for one in fields(Host)), "the host's kernel has it: a udev rule there"),
    **dict.fromkeys((f"host.{one.name}" for one in fields(Host) if one.name.startswith("dirty_")), _SYSCTL),
    "disk.filesystem": "the guest makes it",
    "guest.blk_poll_queues": "the guest's kernel has it: `options virtio_blk poll_queues=` in /etc/modprobe.d there",
    "guest.system": "what ran in the test guest",
    "host.cstate_latency": "tuned keeps it on the host, as force_latency",
    "memory.thp": "the host's kernel has it: transparent_hugepages= of tuned's [vm] there",
    "host.halt_poll_ns": "the host's KVM has it: `options kvm halt_poll_ns=` in /etc/modprobe.d there",
}
"""Why no program's lines can say a setting."""

_WHY_NOT_QEMU: dict[str, str] = {
    **dict.fromkeys(("vcpu.pin", "emulator.pin", "iothread.pin"), _AFTER),
    "machine.emulator": "it is the program that gets these lines",
}
_WHY_NOT_LIBVIRT: dict[str, str] = {
    "vcpu.pin": "`virtune apply advise --set vcpu.pin@vcpu:0=CPUS FILE` writes it, for each vCPU",
    "emulator.pin": "`virtune apply advise --set emulator.pin=CPUS FILE` writes it",
    "iothread.pin": "`virtune apply advise --set iothread.pin@iothread:1=CPUS FILE` writes it",
}


def spelled(known: Tuning) -> tuple[Spelled, ...]:
    """Write the winner for every program that can express it; nothing while none is recommended."""
    if known.winner is None or not known.settled:
        return ()
    study = known.study
    return spelled_stack(study.arm(known.winner).stack, target=study.target, size_bytes=study.span_bytes)


def spelled_stack(stack: Stack, *, target: str | None, size_bytes: int) -> tuple[Spelled, ...]:
    """Write a stack for every program that can express it, for a `target` of this host or an image to be made of
    `size_bytes`.
    """
    image, device = target or IMAGE, (target or "").startswith("/dev/")

    def qemu(one: Stack) -> str:
        disk = guest_arguments(one, image=image, size_bytes=size_bytes, block_device=device)
        return guest_command_line((*machine_arguments(one), *disk))

    def made(one: Stack) -> str:
        return image_line(one, image=image, size_bytes=size_bytes) or ""

    def libvirt(one: Stack) -> str:
        return _inside(disk_xml(one, image=image, block_device=device))

    memory = "-m and the size of memory0 are those of the guest that was measured: write your own in both"
    notes = (*lacking(stack, (qemu, made), _WHY_NOT_QEMU.get), *([memory] if stack.machine.places_memory else ()))
    found = [Spelled(program="qemu", title="QEMU command line", text=qemu(stack), notes=notes)]
    if line := made(stack):
        found.append(Spelled(program="qemu-img", title="an image of that layout", text=line))
    named = {"virtio-blk": "vd*[!0-9]", "nvme": "nvme*n*"}.get(stack.device.bus, "sd*[!0-9]")
    on_host = "a udev rule on the host, where DISK is the disk below the image"
    for program, title, text in (
        ("udev", "a udev rule in the guest, of all its disks of that kind", _udev_rule(named, stack.kernel.asked)),
        ("udev-on-host", on_host, _udev_rule("DISK", stack.host.of_disks)),
    ):
        found += [Spelled(program=program, title=title, text=text)] if text else []
    if dirty := [f"vm.{name} = {value}" for name, value in stack.host.asked.items() if name.startswith("dirty_")]:
        title = "a file in /etc/sysctl.d on the host, for all that runs there"
        found.append(Spelled(program="sysctl", title=title, text="\n".join(dirty)))
    title = "libvirt domain XML"
    try:
        xml = disk_xml(stack, image=image, block_device=device)
    except ValueError as error:
        return (*found, Spelled(program="libvirt", title=title, text="", notes=(str(error),)))
    left = lacking(stack, (libvirt, made), lambda knob: _WHY_NOT_LIBVIRT.get(knob) or libvirt_words.refusal(knob))
    return (*found, Spelled(program="libvirt", title=title, text=_inside(xml), notes=(*xml.notes, *left)))


def _udev_rule(named: str, asked: Mapping[str, str]) -> str:
    settings = "".join(f', ATTR{{queue/{name}}}="{value}"' for name, value in asked.items())
    disks = f'SUBSYSTEM=="block", ENV{{DEVTYPE}}=="disk", KERNEL=="{named}"'
    return f'ACTION=="add|change", {disks}{settings}' if settings else ""


def _inside(xml: DiskXml) -> str:
    inside = "\n".join(part for part in (xml.controller, xml.disk) if part)
    text = f"<!-- inside <devices> -->\n{inside}"
    return f"<!-- inside <domain>, beside <vcpu> -->\n{xml.domain}\n{text}" if xml.domain else text


def lacking(
    stack: Stack, writers: tuple[Callable[[Stack], str], ...], why: Callable[[str], str | None]
) -> Iterator[str]:
    """Name the settings of a stack on which no text depends: without them the configuration is not what was
    measured.
    """
    plain = Stack(rig=stack.rig, domain=stack.domain)
    for knob in TURNED:
        value = setting_of(stack, knob)
        if value == setting_of(plain, knob):
            continue
        others = [with_setting(stack, knob, other) for other in (setting_of(plain, knob), *_other(knob, value))]
        if not any(_differs(stack, other, write) for other in others for write in writers):
            reason = _WHY.get(knob.id) or why(knob.id) or "virtune has no words for it here"
            yield f"also measured with {knob.id}={knob.written(value)}, which these lines do not contain: {reason}"


def _differs(stack: Stack, other: Stack, write: Callable[[Stack], str]) -> bool:
    """Whether a text depends on what two stacks differ in; it does where only one of them can be written."""
    try:
        return write(other) != write(stack)
    except ValueError:
        return True


def _other(knob: Knob, value: str | int | bool | None) -> Iterator[str | int | bool]:  # noqa: FBT001
    """Yield another value of a knob: a writer may leave out the one that is the system's own default."""
    match knob.domain:
        case Choice(values=values):
            yield next(one for one in values if one != value)
        case Switch():
            yield not value
        case Number() | Size() if isinstance(value, int):
            yield value + 1


def study_document(store: Store, name: str) -> Mapping[str, object]:
    """Return what `virtune show NAME --json` writes."""
    return record_document(store, by_todays_method(store, name))


def record_document(store: Store, record: StudyRecord) -> Mapping[str, object]:
    """Return the document of a study that was read, with its figures by today's method."""
    match record.study.kind:
        case StudyKind.TUNE:
            known = tuning_of(store, record)
            return tuning_document(known, record.facts, spelled(known))
        case StudyKind.SWEEP:
            return sweep_document(sweep_of(store, record), summarise(record), facts=record.facts)
        case StudyKind.CHECK:
            return check_document(fitness(record))
        case _:
            return result_document(summarise(record), record)
