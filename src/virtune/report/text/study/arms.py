# SPDX-License-Identifier: Apache-2.0
"""What the arms of a study are: what runs each disk stack, with the settings that were asked for."""

from collections.abc import Iterator, Sequence

from virtune.model.study import Arm, Study

_ARMS_MAX = 12
"""The most arms whose settings are named in a line."""


def arm_lines(study: Study) -> Iterator[str]:
    """Yield a line for each way in which arms are run: their names and settings, and what it is."""
    groups: dict[str, list[Arm]] = {}
    for arm in study.arms:
        if arm.stack.kind.made_here:
            groups.setdefault(_what_runs(arm, study), []).append(arm)
    for what, arms in groups.items():
        shared = _shared(arms)
        names = [_named(arm, shared) for arm in arms[:_ARMS_MAX]]
        more = f" and {len(arms) - _ARMS_MAX} more" if len(arms) > _ARMS_MAX else ""
        word, verb = ("arms", "are") if len(arms) > 1 else ("arm", "is")
        told = f", each with {', '.join(shared)}" if shared else ""
        yield f"{word} {', '.join(names)}{more} {verb} {what}{told}"


def _what_runs(arm: Arm, study: Study) -> str:
    stack = arm.stack
    if study.target is not None and stack.kind.front == "file":
        return f"{study.target}, opened without QEMU"
    what = stack.kind.meaning(stack.export if stack.kind.front == "export" else None)
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
