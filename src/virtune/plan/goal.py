# SPDX-License-Identifier: Apache-2.0
"""Goals and conditions read from words: `--maximize iops`, `--minimize latency.p99`, `--subject-to
'latency.p99<=1ms'`; after `--fail-if` a metric, `>` or `<`, and a change in percent or a value; after `virtune watch
--if` a metric, `>` or `<`, a value, and for how long.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from virtune.model.bottleneck import WatchRule
from virtune.model.errors import PlanError, UsageError
from virtune.model.metric import ALIASES, BY_ID, FAMILIES, Metric, metric_id
from virtune.model.search import Goal, Limit
from virtune.model.text import did_you_mean, parse_seconds, quoted
from virtune.model.verdict import Threshold

_CONDITION = re.compile(r"\s*(?P<metric>[\w.]{1,60})\s*(?P<relation>[<>])=?\s*(?P<value>[^\s=].{0,39}?)\s*", re.ASCII)
"""A metric, `<` or `>`, and a value: of measured values `<=` says the same as `<`."""

_VALUE = re.compile(r"(?P<number>[0-9]{1,15}(\.[0-9]{1,9})?)\s*(?P<unit>[A-Za-z%/]{0,6})", re.ASCII)

_TIME = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_RATE = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6}
_BYTES = {"B/s": 1.0, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "KiB/s": 1024.0, "MiB/s": 1024.0**2, "GiB/s": 1024.0**3}
_UNITS: Mapping[str, tuple[Mapping[str, float], str]] = {
    "ns": (_TIME, "1ms"),
    "s/io": ({"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}, "20us"),
    "1/io": ({"": 1.0}, "0.5"),
    "1/s": (_RATE, "50k"),
    "B/s": (_BYTES, "200MB/s"),
    "%": ({"%": 1.0}, "80%"),
}
"""For each base unit of a metric: the units allowed, each with its size in base units, and an example."""


def parse_goal(maximize: str | None, minimize: str | None, subject_to: Sequence[str]) -> Goal:
    """Read a goal; without words for it, more IOPS.

    Raises PlanError for a metric that is unknown, cannot be compared, or is better the other way round.
    """
    if maximize is not None and minimize is not None:
        raise PlanError("a search improves one metric", hint="the other one as a limit: `--subject-to`")
    if minimize is not None:
        metric = _improved(minimize, "lower")
    else:
        metric = BY_ID["iops"] if maximize is None else _improved(maximize, "higher")
    limits = tuple(parse_limit(text) for text in subject_to)
    names = [limit.metric for limit in limits]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PlanError(f"{twice} has two limits", hint="the narrower one says it all")
    return Goal(metric=metric.id, limits=limits)


def parse_limit(text: str) -> Limit:
    """Read `latency.p99<=1ms` or `iops>=50k`; raises PlanError with the values allowed."""
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise PlanError(
            f"not a limit: {quoted(text)}", hint="write METRIC<=VALUE or METRIC>=VALUE: 'latency.p99<=1ms'"
        )
    metric = _metric(found["metric"])
    value = parse_value(metric, found["value"], text)
    sense: Literal["<=", ">="] = "<=" if found["relation"] == "<" else ">="
    if (sense == "<=") != (metric.better == "lower"):
        other = ">=" if sense == "<=" else "<="
        raise PlanError(
            f"{metric.id} is better {metric.better}, so a limit of {sense} forbids what is good",
            hint=f"'{metric.id}{other}{found['value']}'",
        )
    return Limit(metric=metric.id, sense=sense, value=value, text="".join(text.split()))


def _improved(word: str, better: str) -> Metric:
    metric = _metric(word)
    if not metric.compared:
        raise PlanError(
            f"{metric.id} cannot be a goal: more of it at equal IOPS is bad, and natural at more IOPS",
            hint="cpu_per_io counts the same fairly",
        )
    if metric.better != better:
        verb = "minimize" if better == "higher" else "maximize"
        raise PlanError(f"{metric.id} is better {metric.better}", hint=f"`--{verb} {metric.id}`")
    return metric


def _metric(word: str) -> Metric:
    name = metric_id(word)
    if name is None:
        guess = did_you_mean(word.strip(), (*BY_ID, *ALIASES))
        raise PlanError(f"no metric {quoted(word.strip())}", hint=guess or f"one of {FAMILIES}")
    return BY_ID[name]


def parse_value(metric: Metric, text: str, whole: str) -> float:
    """Read a value of a metric with its unit (`2ms`, `50k`, `200MB/s`), in its base unit; `whole` is the text that
    contains it.

    Raises PlanError with the values allowed.
    """
    units, example = _UNITS[metric.unit]
    found = _VALUE.fullmatch(text)
    if found is None or found["unit"] not in units:
        known = ", ".join(unit or "no unit" for unit in units)
        raise PlanError(
            f"{quoted(whole)}: {quoted(text)} is not a value of {metric.id}", hint=f"write {example}; units: {known}"
        )
    value = float(f"{float(found['number']) * units[found['unit']]:.12g}")
    if value <= 0:
        raise PlanError(f"{quoted(whole)}: a limit of 0 can never be kept or broken")
    return value


LIMIT_MAX = 100_000.0
"""Percent. A greater change than this (thousandfold) is taken for a mistake."""

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
    of = _metric(match["metric"])
    if not of.compared:
        why = "it rises naturally with more I/O; use `cpu_per_io` instead"
        raise UsageError(f"{of.id} is a share of time and cannot be compared", hint=why)
    relation: Literal["<", ">"] = "<" if match["relation"] == "<" else ">"
    if change is None:
        value, said = parse_value(of, match["value"], text), "".join(match["value"].split())
        return Threshold(metric=of.id, relation=relation, limit=1.0, text=f"{of.id} {relation} {said}", value=value)
    number = float(change["number"])
    if not change["sign"] and number:
        hint = f"`{of.id} {relation} {'-' if relation == '<' else '+'}{number:g}%`?"
        raise UsageError(f"{quoted(text)} does not say which way the change goes: write + or -", hint=hint)
    number = -number if change["sign"] == "-" else number
    if not -100 < number <= LIMIT_MAX:
        raise UsageError(f"a change cannot exceed {number:+g} %, so {quoted(text)} could never fail", hint=_EXAMPLE)
    said = f"{number:+.7f}".rstrip("0").rstrip(".")
    return Threshold(metric=of.id, relation=relation, limit=1 + number / 100, text=f"{of.id} {relation} {said}%")


LIVE_METRICS = frozenset({
    "iops", "bandwidth", "latency.mean", "sync.mean", "oldest", "cpu_per_io",
    *(f"{way}.{what}" for way in ("read", "write") for what in ("iops", "bandwidth", "latency.mean")),
    *(name for name, one in BY_ID.items() if one.percent and (one.of == "sync" or one.of.endswith("latency"))),
})  # fmt: skip
"""What a rule may be about: what is seen of a running disk. `oldest` is for how long requests have waited and none
was completed.
"""

_OLDEST = Metric(id="oldest", label="oldest request", unit="ns", better="lower")
_RULE = re.compile(r"(?P<condition>.*?)(?:\s+for\s+(?P<time>.{1,40}))?")
_RULE_EXAMPLE = "write 'latency > 5ms for 1min', 'p99 > 20ms for 2min', 'iops < 100 for 30s' or 'oldest > 10s'"


def parse_rule(text: str) -> WatchRule:
    """Read a rule of `virtune watch`: a condition on a value, and for how long it must hold. Raises UsageError."""
    whole = _RULE.fullmatch(text)
    match = None if whole is None else _CONDITION.fullmatch(whole["condition"])
    if whole is None or match is None or not re.match(r"\d", match["value"], re.ASCII):
        raise UsageError(f"not a rule: {quoted(text)}", hint=_RULE_EXAMPLE)
    of = _OLDEST if match["metric"].lower() == "oldest" else _metric(match["metric"])
    if of.id not in LIVE_METRICS:
        raise UsageError(f"{of.id} is not seen of a running VM", hint=f"one of {', '.join(sorted(LIVE_METRICS))}")
    try:
        seconds = parse_seconds(whole["time"] or "0")
    except ValueError as error:
        raise UsageError(f"{quoted(text)}: {error}") from None
    value, said = parse_value(of, match["value"], text), "".join(match["value"].split())
    lasting = f" for {''.join(whole['time'].split())}" if whole["time"] else ""
    relation: Literal["<", ">"] = "<" if match["relation"] == "<" else ">"
    return WatchRule(metric=of.id, relation=relation, value=value, seconds=seconds,
                     text=f"{of.id} {relation} {said}{lasting}")  # fmt: skip
