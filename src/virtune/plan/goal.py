# SPDX-License-Identifier: Apache-2.0
"""Goals read from words: `--maximize iops`, `--minimize latency.p99`, `--subject-to 'latency.p99<=1ms'`."""

import re
from collections.abc import Mapping, Sequence
from typing import Literal, cast

from virtune.model.errors import PlanError
from virtune.model.goal import Goal, Limit
from virtune.model.metric import ALIASES, BY_ID, FAMILIES, Metric, metric_id
from virtune.model.spelling import did_you_mean, quoted

_LIMIT = re.compile(r"\s*(?P<metric>[A-Za-z0-9_.]{1,40})\s*(?P<sense><=|>=|<|>|==?)\s*(?P<value>\S.{0,39})", re.ASCII)
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
    if maximize is None and minimize is None:
        metric = BY_ID["iops"]
    elif maximize is not None:
        metric = _improved(maximize, "higher")
    else:
        metric = _improved(cast("str", minimize), "lower")
    limits = tuple(parse_limit(text) for text in subject_to)
    _agree(limits)
    return Goal(metric=metric.id, limits=limits)


def parse_limit(text: str) -> Limit:
    """Read `latency.p99<=1ms` or `iops>=50k`; raises PlanError with the values allowed."""
    found = _LIMIT.fullmatch(text)
    if found is None or found["sense"] not in ("<=", ">="):
        raise PlanError(
            f"not a limit: {quoted(text)}", hint="write METRIC<=VALUE or METRIC>=VALUE: 'latency.p99<=1ms'"
        )
    metric = _metric(found["metric"])
    value = parse_value(metric, found["value"].strip(), text)
    sense = cast('Literal["<=", ">="]', found["sense"])
    if (sense == "<=") != (metric.better == "lower"):
        other = ">=" if sense == "<=" else "<="
        raise PlanError(
            f"{metric.id} is better {metric.better}, so a limit of {sense} forbids what is good",
            hint=f"'{metric.id}{other}{found['value'].strip()}'",
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


def _agree(limits: Sequence[Limit]) -> None:
    names = [limit.metric for limit in limits]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PlanError(f"{twice} has two limits", hint="the narrower one says it all")
