# SPDX-License-Identifier: Apache-2.0
"""What the arms of a study are: what runs each disk stack, with the settings that were asked for."""

from collections.abc import Iterator, Sequence

from virtune.model.machine import MEMORY
from virtune.model.study import Arm, Study
from virtune.model.units import format_bytes
from virtune.report.text.study.header import is_vm
from virtune.report.text.words import count_text

VM_COST = (
    "the figures include what the virtio queues cost, and not what a VM itself costs (its kernel, VM exits,"
    " interrupts)"
)
"""What the figures of a disk that is loaded through virtio queues without a VM have in them."""

_IN_A_VM = "this host is itself a VM, so that is this VM's own disk and not bare metal"

_ARMS_MAX = 12
"""The most arms whose settings are named in a line."""


def arm_lines(study: Study, facts: str = "") -> Iterator[str]:
    """Yield a line for each way in which arms are run: their names and settings, what it is, and what their figures
    have in them. `facts` are those of the host, as JSON.
    """
    groups: dict[str, list[Arm]] = {}
    for arm in study.arms:
        if arm.stack.kind.made_here:
            groups.setdefault(_what_runs(arm, study, facts), []).append(arm)
    for what, arms in groups.items():
        shared = _shared(arms)
        names = [_named(arm, shared) for arm in arms[:_ARMS_MAX]]
        more = f" and {len(arms) - _ARMS_MAX} more" if len(arms) > _ARMS_MAX else ""
        word, verb = ("arms", "are") if len(arms) > 1 else ("arm", "is")
        told = f", each with {', '.join(shared)}" if shared else ""
        stack = arms[0].stack
        told += f"; guests {guests}" if (guests := guest_words(arms)) else ""
        cost = f"; {VM_COST}" if stack.kind.front == "export" and stack.export == "vhost-user-blk" else ""
        yield f"{word} {', '.join(names)}{more} {verb} {what}{told}{cost}"


def guest_words(arms: Sequence[Arm]) -> str:
    """Say which vCPUs and which memory the guests of arms have; empty where virtune makes none."""
    guests: dict[str, list[str]] = {}
    for arm in arms:
        stack = arm.stack
        if stack.kind.own_guest:
            memory = format_bytes(stack.machine.memory or MEMORY)
            each = f"{count_text(stack.machine.cpus, 'vCPU')} and {memory}"
            guests.setdefault(each if stack.guests == 1 else f"{stack.guests} x {each} each", []).append(arm.name)
    if len(guests) < 2:
        return "".join(f"{'each ' if len(names) > 1 else ''}with {each}" for each, names in guests.items())
    return "; ".join(f"of {', '.join(names)} with {each}" for each, names in guests.items())


def vm_cost_notes(study: Study) -> Iterator[str]:
    """Yield the same of what virtio queues measure, where no line says what the arms are."""
    if any(arm.stack.kind.front == "export" and arm.stack.export == "vhost-user-blk" for arm in study.arms):
        yield f"loaded through virtio queues without a VM: {VM_COST}"


def _what_runs(arm: Arm, study: Study, facts: str) -> str:
    stack = arm.stack
    what = stack.kind.meaning(stack.export if stack.kind.front == "export" else None)
    if stack.kind.front == "file":
        what = what if study.target is None else f"{study.target}, opened without QEMU"
        return f"{what}; {_IN_A_VM}" if is_vm(facts) else what
    if stack.kind.own_guest:
        inside = "only the load runs in it, without an operating system"
        return f"{what}; {inside if stack.machine.is_bare else 'the load runs in it, in Linux'}"
    return f"{what} ({stack.domain})" if stack.domain else what


def _words(arm: Arm) -> list[str]:
    """Return its settings as words; what runs the stack is said beside them."""
    return [f"{name}={value}" for name, value in (*arm.settings, *arm.options) if name != "rig"]


def _shared(arms: Sequence[Arm]) -> list[str]:
    """Return the settings that all these arms have; those of a single arm stand behind its name."""
    if len(arms) == 1:
        return []
    every = [set(_words(arm)) for arm in arms]
    return [word for word in _words(arms[0]) if all(word in each for each in every)]


def _named(arm: Arm, shared: Sequence[str]) -> str:
    own = [words for words in _words(arm) if words not in shared]
    return f"{arm.name} ({', '.join(own)})" if own else arm.name
