# SPDX-License-Identifier: Apache-2.0
"""What there is here: the facts of this host, with warnings, and the knobs, with the installed QEMU's answers."""

from dataclasses import dataclass, replace
from pathlib import Path

from virtune import shell
from virtune.analyse.study.host_rules import judge_host
from virtune.bench.qemu.accelerator import last_tried
from virtune.model.facts import HostFacts
from virtune.model.knob import Answer, Knob, Layer
from virtune.model.knobs import KNOBS, matching
from virtune.model.remark import Remark
from virtune.probe.host import host_facts


def probe(scratch: Path) -> tuple[HostFacts, tuple[Remark, ...]]:
    """Return the facts of this host, and the warnings on them, the most severe first."""
    facts = host_facts(scratch)
    tried = last_tried(shell.cache_directory())
    if tried is not None:
        facts = replace(facts, kvm=replace(facts.kvm, boots_guest=tried.kvm, boot=tried.why))
    return facts, judge_host(facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Knobs, and by their ids each installed program's answer; `asked` is False if none was queried."""

    knobs: tuple[Knob, ...]
    answers: dict[str, tuple[Answer, ...]]
    asked: bool


def look(name: str | None, *, layer: Layer | None = None, ask: bool = True, emulator: str | None = None) -> Shown:
    """Choose knobs by name and layer, and query QEMU for them unless told not to; `emulator` is another emulator than
    the installed one.

    Raises PlanError for a name that means no knob.
    """
    from virtune.probe import qemu_knobs

    knobs = KNOBS if name is None else matching(name)
    chosen = tuple(knob for knob in knobs if layer is None or knob.layer is layer)
    emulators = qemu_knobs.EMULATORS if emulator is None else (emulator,)
    return Shown(knobs=chosen, answers=qemu_knobs.ask(chosen, emulators=emulators) if ask else {}, asked=ask)
