# SPDX-License-Identifier: Apache-2.0
"""A configuration that was measured to be better, as changes of an existing VM's disk (pure): what it has that the
configuration beside it in the study had not. What a language cannot write it refuses itself, with the reason.
"""

from collections.abc import Iterator, Mapping

from virtune.advise.placement import Template, Threads
from virtune.model.domain import DomainDisk, SettingChange
from virtune.model.finding import LeftAlone, Subject
from virtune.model.knob import Knob
from virtune.model.knobs import TURNED
from virtune.model.reason import Reason, because
from virtune.model.stack import Stack, mapping_of, setting_of

_EXPORTED = {"export.num_queues": "device.num_queues", "export.iothread": "device.iothread"}
"""What a setting of an exported disk is called where a VM has the disk."""

_THREADS = ("device.iothread", "device.iothread_vq_mapping")
"""These name IOThreads, which have other numbers in each VM."""

_OF_THREADS = ("iothread.poll_max_ns", "iothread.thread_pool_max", "iothread.pin")
_OF_CONTROLLER = ("scsi.num_queues",)
_OF_VM = ("emulator.pin",)

_NO_SETTING = ("disk.export",)
"""What only says how the disk was loaded."""


def changes(subject: Subject, disk: DomainDisk, before: Stack, after: Stack, *, now: Mapping[str, str]) -> Template:
    """Return the changes that give a VM's disk what `after` has and `before` had not. `now` are the VM's settings by
    the ids of their knobs: one that is not as `before` had it is left alone, since its change was not measured.
    """
    turns: list[SettingChange] = []
    left: list[LeftAlone] = []
    threads = Threads(subject.domain)
    numbers = [str(number) for number in subject.domain.threads_of(disk)]
    differing = [knob for knob in TURNED if setting_of(before, knob) != setting_of(after, knob)]
    # an IOThread comes before what is said of it
    for knob in sorted(differing, key=lambda one: one.id in _OF_THREADS):
        if knob.id in _NO_SETTING:
            continue
        name, value = _EXPORTED.get(knob.id, knob.id), _value(knob, after)
        was = _value(knob, before)
        if name not in _THREADS and name in now and was is not None and now[name] not in (was, value):
            why = because(Reason.NOT_AS_MEASURED, knob=name, now=now[name], was=was)
            left.append(LeftAlone(at=disk.target, why=why))
            continue
        if name in _THREADS:
            asked = _asked_threads(after)
            numbers = [threads.take() for _ in asked] if len(numbers) != len(asked) else numbers
            value = _threads_value(name, asked, numbers) if value is not None else None
        places = list(_places(name, subject, disk, numbers))
        turns += (SettingChange(knob=name, at=at, value=value) for at in places)
        if not places:
            why = because(Reason.NOT_WRITABLE, refusal=f"{name}={value} is of an IOThread, and the disk has none")
            left.append(LeftAlone(at=disk.target, why=why))
    return Template(turns=(*threads.made(), *turns), left=tuple(left))


def _value(knob: Knob, stack: Stack) -> str | None:
    value = setting_of(stack, knob)
    if isinstance(value, bool):
        return "on" if value else "off"
    return None if value is None else str(int(value)) if isinstance(value, int) else value


def _asked_threads(stack: Stack) -> list[str]:
    """Return the queues of each IOThread that a measured disk had, empty for all in turn."""
    if stack.device.iothread_vq_mapping is not None:
        return [
            "" if not one.queues else f":{one.queues[0]}-{one.queues[-1]}"
            for one in mapping_of(stack.device.iothread_vq_mapping)
        ]
    return [""] if stack.in_iothread else []


def _threads_value(name: str, queues: list[str], numbers: list[str]) -> str | None:
    if not queues:
        return None
    if name == "device.iothread":
        return numbers[0]
    return "+".join(f"{number}{words}" for number, words in zip(numbers, queues, strict=True))


def _places(name: str, subject: Subject, disk: DomainDisk, threads: list[str]) -> Iterator[str]:
    if name in _OF_THREADS:
        yield from (f"iothread:{number}" for number in threads)
    elif name == "vcpu.pin":
        yield from (f"vcpu:{number}" for number in range(subject.domain.vcpus))
    elif name in _OF_CONTROLLER or (disk.bus == "scsi" and name.startswith("device.iothread")):
        yield f"scsi:{disk.controller}"
    else:
        yield "" if name in _OF_VM or not name.startswith(("disk.", "device.")) else disk.target
