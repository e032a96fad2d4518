# SPDX-License-Identifier: Apache-2.0
"""The verb `knobs`: the requested rows, and the installed QEMU's answers."""

from dataclasses import dataclass

from virtune.model.knob import Answer, Knob, Layer
from virtune.model.knobs import KNOBS, matching


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
