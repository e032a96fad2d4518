# SPDX-License-Identifier: Apache-2.0
"""The verified settings of each arm: a line for it, or one per workload if these differ."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from virtune.model.evidence import UNDER_LOAD, Check
from virtune.model.remark_kinds import UNVERIFIED
from virtune.model.result import ArmSummary, Result
from virtune.model.study import Arm
from virtune.model.verification import unverified
from virtune.report.text.layout import Column, Records


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """The line of an arm under some of its workloads."""

    mark: str
    seen: tuple[str, ...]
    unseen: tuple[str, ...]
    hidden: tuple[str, ...]


_STYLES = {"ok": "green", "NOT": "red", "unverified": "red", "partly": "yellow", "?": "yellow"}


def verified(result: Result) -> list[RenderableType]:
    """List for each arm the verified settings, the unverified ones, and those that cannot be verified."""
    rows = []
    for arm in result.study.arms:
        lines = _lines(result, arm)
        for line, summaries in lines.items():
            name = Text(arm.name, style="bold")
            if len(lines) > 1:
                name.append(f"\n{', '.join(one.workload for one in summaries)}", style="not bold")
            rows.append((name, Text(line.mark, style=_STYLES[line.mark]), _words(line)))
    columns = (Column(title=""), Column(title=""), Column(title="", wraps=True, least=40))
    if not rows:
        return []
    title = Text("\nVerified settings", style="bold").append("  read back from what ran", style="not bold dim")
    return [title, Records(columns, rows, indent=2)]


def settings_of(result: Result) -> Iterator[tuple[str, str, str]]:
    """Yield for each arm its name, whether its settings were verified, and the settings in one line."""
    for arm in result.study.arms:
        lines = _lines(result, arm)
        for line, summaries in lines.items():
            where = f" ({', '.join(one.workload for one in summaries)})" if len(lines) > 1 else ""
            yield f"{arm.name}{where}", line.mark, _words(line).plain.replace("\n", "; ")


def not_verified(result: Result) -> dict[tuple[str, ...], list[str]]:
    """Return the settings that were not verified (or had another value), with their arms."""
    found: dict[tuple[str, ...], list[str]] = {}
    for arm in result.study.arms:
        wrong: dict[str, None] = {}
        for summary in (one for one in result.arms if one.arm == arm.name and one.in_force):
            wrong |= {f"{c.setting}={c.asked} is {c.found}": None for c in summary.in_force if c.agrees is False}
            wrong |= dict.fromkeys(unverified(arm.stack, summary.in_force))
        if wrong:
            found.setdefault(tuple(wrong), []).append(arm.name)
    return found


def all_checks(result: Result) -> RenderableType:
    """Lay out every check of every arm with its proof."""
    rows = []
    for arm in result.study.arms:
        for check in _checks_of(summary for summary in result.arms if summary.arm == arm.name):
            mark = {True: "ok", False: "NOT", None: "?"}[check.agrees]
            found = "cannot be verified" if check.found is None else check.found
            name = arm.name if arm.stack.guests == 1 else f"{arm.name}, guest {check.guest + 1}"
            rows.append((name, mark, f"{check.setting}={check.asked}", found, check.proof))
    titles = ("arm", "", "requested", "found")
    return Records([*(Column(title=title) for title in titles), Column(title="proof", wraps=True)], rows)


def _lines(result: Result, arm: Arm) -> dict[_Line, list[ArmSummary]]:
    found: dict[_Line, list[ArmSummary]] = {}
    for summary in result.arms:
        if summary.arm == arm.name and summary.in_force:
            found.setdefault(_line(arm, summary), []).append(summary)
    return found


def _line(arm: Arm, summary: ArmSummary) -> _Line:
    checks = summary.in_force
    seen = {check.setting: check for check in checks if check.found is not None}
    unseen = unverified(arm.stack, checks)
    named = {text.partition("=")[0] for text in unseen}
    hidden = [f"{one.setting}={one.asked}" for one in checks if one.setting not in {*seen, *named}]
    rejected = any(one.remark.id == UNVERIFIED.id for one in summary.remarks)
    mark = (
        "NOT"
        if any(check.agrees is False for check in checks)
        else "unverified"
        if unseen or rejected
        else "?"
        if not seen
        else "partly"
        if hidden
        else "ok"
    )
    words = (f"{name.removeprefix('disk.')}={one.found}" for name, one in seen.items() if _telling(one))
    return _Line(mark=mark, seen=tuple(words), unseen=unseen, hidden=tuple(dict.fromkeys(hidden)))


def _words(line: _Line) -> Text:
    said = [(", ".join(line.seen), "")]
    said.append((f"requested, and not seen: {', '.join(line.unseen)}" if line.unseen else "", "red"))
    said.append((f"requested, cannot be verified: {', '.join(line.hidden)}" if line.hidden else "", "yellow"))
    return Text("\n").join(Text(words, style=style) for words, style in said if words)


def _checks_of(summaries: Iterator[ArmSummary]) -> Sequence[Check]:
    """Every distinct check of an arm once, over its workloads; the checks of different guests are kept apart."""
    found = [check for summary in summaries for check in summary.in_force]
    return list(
        {(one.guest, one.setting, one.asked, one.found, UNDER_LOAD in one.proof): one for one in found}.values()
    )


def _telling(check: Check) -> bool:
    """Whether the line should show the check: the cache mode implies no-flush, and a default says little."""
    return check.setting != "cache.no-flush" and (check.setting, check.found) != ("disk.detect_zeroes", "off")
