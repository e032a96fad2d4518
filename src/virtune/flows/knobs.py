# SPDX-License-Identifier: Apache-2.0
"""The verb `knobs`: the rows that are wanted, and what the installed QEMU says about them."""

from dataclasses import dataclass

from virtune.model.knob import Answer, Knob, Layer
from virtune.model.knobs import KNOBS, matching


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Knobs, and by their ids what each installed program answered; `asked` is off where nobody was asked."""

    knobs: tuple[Knob, ...]
    answers: dict[str, tuple[Answer, ...]]
    asked: bool


def look(name: str | None, *, layer: Layer | None = None, ask: bool = True, emulator: str | None = None) -> Shown:
    """Choose knobs by name and layer, and ask QEMU for them unless told not to; `emulator` is another than installed.

    Raises PlanError for a name that means no knob.
    """
    from virtune.probe import qemu_knobs

    knobs = KNOBS if name is None else matching(name)
    chosen = tuple(knob for knob in knobs if layer is None or knob.layer is layer)
    emulators = qemu_knobs.EMULATORS if emulator is None else (emulator,)
    return Shown(knobs=chosen, answers=qemu_knobs.ask(chosen, emulators=emulators) if ask else {}, asked=ask)
