# SPDX-License-Identifier: Apache-2.0
"""Conditions as they are written after `--fail-if`: a metric, `>` or `<`, and a change in percent or a value."""

import re
from collections.abc import Sequence
from typing import Literal

from virtune.model.condition import Threshold
from virtune.model.errors import UsageError
from virtune.model.metric import ALIASES, BY_ID, FAMILIES, metric_id
from virtune.model.spelling import did_you_mean, quoted
from virtune.plan.goal import parse_value

LIMIT_MAX = 100_000.0
"""Percent. A greater change than this (thousandfold) is taken for a mistake."""

_CONDITION = re.compile(r"\s*(?P<metric>[\w.]{1,60})\s*(?P<relation>[<>])\s*(?P<value>\S.{0,39}?)\s*")
_CHANGE = re.compile(r"(?P<sign>[+-]?)\s*(?P<number>\d{1,8}(\.\d{0,8})?|\.\d{1,8})\s*%", re.ASCII)
_EXAMPLE = (
    "write `latency.p99 > +5%` or `iops < -3%` for a change against the baseline, `latency.p99 > 2ms` for a limit"
)


def parse_conditions(texts: Sequence[str]) -> tuple[Threshold, ...]:
    """Read conditions; raises UsageError with what is wrong and, where one is close, the metric that was meant."""
    found = tuple(parse_condition(text) for text in texts)
    twice = next((one.text for one in found if [other.text for other in found].count(one.text) > 1), None)
    if twice is not None:
        raise UsageError(f"the condition `{twice}` is given twice")
    return found


def parse_condition(text: str) -> Threshold:
    """Read one condition: a change in percent, or a value with its unit. Raises UsageError."""
    match = _CONDITION.fullmatch(text)
    change = None if match is None else _CHANGE.fullmatch(match["value"])
    if match is None or (change is None and not re.match(r"\d", match["value"], re.ASCII)):
        raise UsageError(f"not a condition: {quoted(text)}", hint=_EXAMPLE)
    metric = metric_id(match["metric"])
    if metric is None:
        guess = did_you_mean(match["metric"], (*BY_ID, *ALIASES))
        raise UsageError(f"no metric {quoted(match['metric'])}", hint=guess or f"one of {FAMILIES}")
    if not BY_ID[metric].compared:
        why = "it rises naturally with more I/O; use `cpu_per_io` instead"
        raise UsageError(f"{metric} is a share of time and cannot be compared", hint=why)
    relation: Literal["<", ">"] = "<" if match["relation"] == "<" else ">"
    if change is None:
        return _on_value(metric, relation, match["value"], text)
    return _on_change(metric, relation, change, text)


def _on_value(metric: str, relation: Literal["<", ">"], written: str, text: str) -> Threshold:
    value = parse_value(BY_ID[metric], written, text)
    said = "".join(written.split())
    return Threshold(metric=metric, relation=relation, limit=1.0, text=f"{metric} {relation} {said}", value=value)


def _on_change(metric: str, relation: Literal["<", ">"], match: re.Match[str], text: str) -> Threshold:
    number = float(match["number"])
    if not match["sign"] and number:
        hint = f"`{metric} {relation} {'-' if relation == '<' else '+'}{number:g}%`?"
        raise UsageError(f"{quoted(text)} does not say which way the change goes: write + or -", hint=hint)
    change = -number if match["sign"] == "-" else number
    if not -100 < change <= LIMIT_MAX:
        raise UsageError(f"a change cannot exceed {change:+g} %, so {quoted(text)} could never fail", hint=_EXAMPLE)
    return Threshold(
        metric=metric,
        relation=relation,
        limit=1 + change / 100,
        text=f"{metric} {relation} {f'{change:+.7f}'.rstrip('0').rstrip('.')}%",
    )
