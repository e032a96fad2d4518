# SPDX-License-Identifier: Apache-2.0
"""Advice for domains: the changes, their diff, and what is left alone; as text."""

from collections.abc import Iterator, Sequence

from virtune.model.domain import SettingChange
from virtune.model.knob import Risk
from virtune.model.text import printable

IN_FILES = "\t\r"
"""Control characters of configuration files that a diff keeps, because it could not be applied otherwise."""


def tag(way: str, risk: Risk) -> str:
    """Return what a change takes and risks: ` [power-off; risks data]`; empty for nothing."""
    said = [word for word in (way, f"risks {risk.value}" if risk is not Risk.NONE else "") if word]
    return f" [{'; '.join(said)}]" if said else ""


def lines(
    domain: str,
    turns: Sequence[tuple[SettingChange, str, Risk]],
    *,
    diff: str,
    left: Sequence[str],
    commands: Sequence[str] = (),
    warnings: Sequence[str] = (),
) -> Iterator[str]:
    """Yield the advice for one domain: each change with what it takes and what it risks."""
    if not turns:
        yield printable(f"{domain}: nothing to change")
    else:
        yield printable(f"{domain}: {len(turns)} change{'' if len(turns) == 1 else 's'}")
        for turn, way, risk in turns:
            place = f"@{turn.at}" if turn.at else ""
            value = "(removed)" if turn.value is None else turn.value
            yield printable(f"  {turn.knob}{place} = {value}  {tag(way, risk)}")
        yield from (printable(f"  warning: {warning}") for warning in warnings)
        if diff:
            yield from (printable(line, keep=IN_FILES) for line in diff.split("\n"))
        yield from (printable(f"  $ {command}") for command in commands)
    for because in left:
        yield printable(f"  left alone: {because}")
