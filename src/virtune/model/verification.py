# SPDX-License-Identifier: Apache-2.0
"""Verification: which settings of a stack a trial must verify, and which of them it did not.

Reports distinguish three cases: a setting was verified; it cannot be verified (QEMU shows it nowhere, or the process
may not be inspected), which is reported; or it could be verified and was not, and then the trial is invalid.
"""

from collections.abc import Iterable, Iterator, Sequence

from virtune.model.evidence import Check
from virtune.model.knob import Knob
from virtune.model.knobs import KNOBS
from virtune.model.remark import Remark
from virtune.model.remark_kinds import UNVERIFIED
from virtune.model.rig import RIGS
from virtune.model.stack import Stack, setting_of

ALWAYS = frozenset({"disk.aio", "disk.cache", "disk.format", "disk.backend", "disk.detect_zeroes", "disk.export"})
"""The settings that are verified for every stack, also at their default."""

_OPENS = frozenset({"disk.aio", "disk.cache", "disk.discard", "host.cache"})
"""The settings of opening an image; a disk without an image has none of them."""

_OF_ALL_GUESTS = ("guests.", "load.", "workload.")

LOAD_ENGINES = frozenset({"io_uring", "libaio"})
"""The engines of a load that leave a trace in its process. The others are plain system calls."""


def to_verify(stack: Stack) -> tuple[str, ...]:
    """Return the ids of the knobs that a trial of this stack must verify, in the order of the path."""
    rig = RIGS[stack.rig]
    return tuple(
        knob.id
        for knob in KNOBS
        if knob.place and knob.id in rig.applies and _asked(stack, knob) and why_unseen(stack, knob) is None
    )


def not_shown(stack: Stack) -> dict[str, str]:
    """Return why requested settings cannot be verified on this rig, by the ids of the knobs."""
    rig = RIGS[stack.rig]
    asked = (knob for knob in KNOBS if knob.place and knob.id in rig.applies and _asked(stack, knob))
    return {knob.id: why for knob in asked if (why := why_unseen(stack, knob)) is not None}


def not_shown_checks(stack: Stack, checks: Sequence[Check]) -> tuple[Check, ...]:
    """Return a check for each setting that this rig cannot verify and that is missing in `checks`."""
    said = {check.setting for check in checks}
    return tuple(
        Check(setting=knob, asked=_values(stack)[knob], found=None, proof=why, hidden=True)
        for knob, why in not_shown(stack).items()
        if knob not in said
    )


def why_unseen(stack: Stack, knob: Knob) -> str | None:
    """Say why a knob's value cannot be verified on the stack's rig; None when it can be."""
    return RIGS[stack.rig].why_unseen(knob.id, str(setting_of(stack, knob)))


def unverified(stack: Stack, checks: Sequence[Check]) -> tuple[str, ...]:
    """Return the settings, as `disk.aio=native`, that could be verified on this rig and were not.

    `checks` are all of the trial. A setting whose check is `hidden` is excused.
    """
    if not RIGS[stack.rig].made_here:
        return ()
    wanted = tuple(dict.fromkeys((*to_verify(stack), *_of_load(checks))))
    values = {check.setting: check.asked for check in checks} | _values(stack)
    missing: list[str] = []
    for guest in range(stack.guests):
        answered = {one.setting for one in checks if one.guest == guest and (one.found is not None or one.hidden)}
        # how many guests there are, and where their images lie, is said once
        own = (setting for setting in wanted if guest == 0 or not setting.startswith(_OF_ALL_GUESTS))
        missing += [f"{setting}={values[setting]}" for setting in own if setting not in answered]
    return tuple(dict.fromkeys(missing))


def unverified_remarks(stack: Stack, checks: Sequence[Check]) -> Iterator[Remark]:
    """Yield the remark that makes a trial invalid if a verifiable setting was not verified."""
    if missing := unverified(stack, checks):
        yield UNVERIFIED.remark(
            text=f"not verified: {', '.join(missing)} was requested, and nothing showed that it was what ran",
        )


def _asked(stack: Stack, knob: Knob) -> bool:
    value = setting_of(stack, knob)
    if stack.device.vfio_pci is not None:
        return value != setting_of(Stack(), knob)
    if stack.disk.backend == "null-co" and knob.id in _OPENS:
        return False
    if stack.disk.backend == "rbd" and knob.id in _OPENS - {"disk.cache"}:
        return False
    return knob.id in ALWAYS or value != setting_of(Stack(), knob)


def _values(stack: Stack) -> dict[str, str]:
    return {knob.id: _text(setting_of(stack, knob)) for knob in KNOBS if knob.place}


def _of_load(checks: Iterable[Check]) -> Iterable[str]:
    """The load's own settings that leave a trace: how it opened its file, and the engine where that does."""
    for check in checks:
        if check.setting == "load.direct" or (check.setting == "load.engine" and check.asked in LOAD_ENGINES):
            yield check.setting


def _text(value: object) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
