# SPDX-License-Identifier: Apache-2.0
"""The pictures of a fleet: a forest over hosts, a funnel, the ranks, and verdicts by hosts and questions."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from virtune.model import fleet
from virtune.model.metric import BY_ID
from virtune.model.study import Study
from virtune.model.text import format_share
from virtune.model.verdict import Interval, Verdict
from virtune.report.charts.audit import SEVERITY_COLOURS
from virtune.report.charts.chart import SHAPES, Chart, colour_scale, file_name, filled
from virtune.report.charts.forest import FOREST, LABEL, forest_row, forest_spec
from virtune.report.pages.fleet import TOO_FEW_HOSTS, names, rule_rows, verdict_words
from virtune.report.render.forest import axis_of
from virtune.report.words import TENFOLD, change_words, count_text, difference_text, limits_text

HOSTS_SHOWN = 60
"""The most rows that are readable: of more hosts the lowest and the highest, or the worst; the tables have all."""

_MEAN, _NEXT = "mean over hosts", "the next host"
_MARKS = {**SHAPES, _MEAN: "diamond", _NEXT: "stroke"}
_COLOURS = {"better": "#8fd6b0", "worse": "#ff9b8f", "same": "#cfd4da", "undecided": "#f3efe2"}
"""The text colours on these backgrounds, on a light and on a dark page."""

_STATE_SHAPES = {"like the others": "circle", "beyond its line": "square", "odd": "triangle-up"}
_STATE_COLOURS = {"like the others": "#0072b2", "beyond its line": "#e69f00", "odd": "#d55e00"}

_FACTORS = f"datum.value > {math.log(TENFOLD)} ? 'x' + format(exp(datum.value), ',.3r') : {LABEL}"
"""A label of an axis on which hosts may be far apart."""

LINE_MAX = math.log(TENFOLD)
"""A line of the funnel widens the axis to at most a factor of ten: a host of which nothing is known would hide the
others."""

_FLEET_CELL, _RANK_ROW, _FUNNEL_HEIGHT = 22, 18, 320


def fleet_charts(found: fleet.FleetReport) -> Iterator[Chart]:
    for effect in found.effects:
        if any(one.ratio for one in effect.verdicts):
            yield forest_of_hosts(effect, found.study)
    if len(found.effects) > 1:
        yield matrix(found.effects)
    for level in found.levels:
        if level.points:
            yield funnel_plot(level, found.study)
            yield rank_intervals(level)


def forest_of_hosts(effect: fleet.FleetEffect, study: Study) -> Chart:
    """Draw the difference on every host, the mean over hosts, and where the next host will be."""
    every = [(one.host, one.verdict.value, one.ratio) for one in effect.verdicts if one.ratio is not None]
    every.sort(key=lambda one: one[2].estimate)
    ends, pooled = _outermost(every), effect.pooled
    named = list[tuple[str, str, Interval]]()
    if pooled is not None:  # above the hosts, of which there may be many
        named.append((_MEAN, _MEAN, pooled.ratio))
        if (coming := pooled.next_ratio) is not None:
            named.append((_NEXT, _NEXT, coming))
    named += ends
    reach = math.log1p(axis_of(ratio for _, _, ratio in named))
    rows = []
    for name, word, ratio in named:
        said = f"{difference_text(ratio)}  {word}" if word in SHAPES else difference_text(ratio, TOO_FEW_HOSTS)
        rows.append(forest_row(name, word, ratio, reach, text=said))
    metric = BY_ID[study.metric]
    better = f"{metric.better} is better"
    spec = forest_spec(rows, reach, math.log1p(study.margin), f"difference in {metric.label}, {better}", _MARKS)
    return Chart(
        name=file_name(FOREST, f"{effect.workload}-{effect.candidate}"),
        title=f"{effect.candidate} against {study.baseline} ({effect.workload}): {verdict_words(effect)}",
        reading=(
            "The diamond is the mean over hosts, the line below it where a host that was not measured will be. Each"
            f" row below is a host: the mark is its difference in {metric.label} ({better}), the line its interval."
            f" Inside the grey band (±{format_share(study.margin)}) a difference is too small to matter."
            + _left_out(len(every) - len(ends))
        ),
        spec=spec,
        columns=("host", "verdict", "difference", "low", "high"),
        rows=tuple(
            (name, word, *(change_words(one) for one in (ratio.estimate, ratio.low, ratio.high)))
            for name, word, ratio in named
        ),
    )


def funnel_plot(level: fleet.FleetLevel, study: Study) -> Chart:
    """Draw each host's distance from the others over its standard error, within the limits of the funnel."""
    errors = {one.host: one.error for one in level.estimates}
    points = sorted(level.points, key=lambda one: errors[one.host])
    odd = [one.host for one in points if one.odd]
    reach = 1.15 * max(max(abs(one.distance), min(one.limit, LINE_MAX)) for one in points)
    rows = [
        {
            "host": one.host,
            "error": 100 * errors[one.host],
            "distance": one.distance,
            "low": -min(one.limit, reach),
            "high": min(one.limit, reach),
            "state": _state(one),
            "label": one.host if abs(one.distance) > one.limit else "",
        }
        for one in points
    ]
    states = {_state(one) for one in points}
    label = BY_ID[study.metric].label
    said = f"{', '.join(odd)} stand{'s' if len(odd) == 1 else ''} apart" if odd else "no host stands apart"
    return Chart(
        name=file_name("funnel", level.workload),
        title=f"{level.workload}: {said} in {label} of {level.arm}",
        reading=(
            "Each mark is a host: to the right those whose own rounds vary more, upwards those with more "
            f"{label} than the others. The line of a host is as far as noise and the variation between the others "
            "explain, 95 times in 100. A square is beyond its line, as some of many hosts are by chance; a triangle "
            "is odd although so many were looked at."
            + (" A line that ends at the edge goes on." if any(one.limit > reach for one in points) else "")
        ),
        spec=filled(
            "funnel", height=_FUNNEL_HEIGHT, rows=rows, domain=[-reach, reach], labels=_FACTORS,
            title=f"{label} against the other hosts",
            shapes=colour_scale(_STATE_SHAPES, states),
            colours=colour_scale(_STATE_COLOURS, states),
        ),
        columns=("host", "against the others", "limits", "standard error", "adjusted p"),
        rows=tuple(
            (one.host, change_words(one.ratio), limits_text(one.limit), format_share(errors[one.host], 1),
             f"{one.adjusted:.2g}")
            for one in points
        ),
    )  # fmt: skip


def rank_intervals(level: fleet.FleetLevel) -> Chart:
    """Draw the rank of each host with its interval: hosts whose intervals overlap are not told apart."""
    ranks = _outermost(sorted(level.ranks, key=lambda one: one.rank))
    rows = [{"host": one.host, "rank": one.rank, "low": one.low - 0.3, "high": one.high + 0.3} for one in ranks]
    first = next((f"{one.host} is" for one in level.ranks[:1] if one.low == one.high), "no host is certainly")
    return Chart(
        name=file_name("ranks", level.workload),
        title=f"{level.workload}: {first} the first",
        reading="Each line is the 95 % interval of a host's rank. Hosts whose lines overlap are not told apart."
        + _left_out(len(level.ranks) - len(ranks)),
        spec=filled("ranks", height=_RANK_ROW * len(rows), rows=rows, domain=[0.5, len(level.ranks) + 0.5]),
        columns=("host", "rank", "low", "high"),
        rows=tuple((one.host, f"{one.rank:.1f}", str(one.low), str(one.high)) for one in ranks),
    )  # fmt: skip


def matrix(effects: Sequence[fleet.FleetEffect]) -> Chart:
    """Draw the verdicts as a table: a row for each host, a column for each candidate under each workload."""
    rows: list[dict[str, str]] = []
    for effect in effects:
        rows += [
            {"host": one.host, "question": f"{effect.candidate}, {effect.workload}", "verdict": one.verdict.value,
             "text": "" if one.ratio is None else change_words(one.ratio.estimate)}
            for one in effect.verdicts
        ]  # fmt: skip
    worse = Counter(row["host"] for row in rows if row["verdict"] == Verdict.WORSE.value)
    drawn, left_out = _worst(rows, worse)
    return Chart(
        name="hosts",
        title=f"{count_text(len(rows), 'verdict')}, {worse.total()} of them worse" if worse else
              f"none of {count_text(len(rows), 'verdict')} is worse",
        reading="A row is a host, a column a candidate under a workload: the verdict and the difference there."
        + left_out,
        spec=filled(
            "cells", height=_FLEET_CELL * _hosts_in(drawn), rows=drawn, row="host", column="question",
            columns=list(dict.fromkeys(row["question"] for row in rows)), text="text",
            colour="verdict", colours=colour_scale(_COLOURS, (row["verdict"] for row in drawn)),
        ),
        columns=("host", "question", "verdict", "difference"),
        rows=tuple((row["host"], row["question"], row["verdict"], row["text"]) for row in rows),
    )  # fmt: skip


def rule_map(audits: Sequence[fleet.HostAudit]) -> Chart | None:
    """Draw hosts by rules, with the number of VMs concerned; None where fewer than two hosts have findings."""
    rows = rule_rows(audits)
    cells = [
        {"host": one.host.name, "rule": row.rule, "severity": row.severity.value, "count": str(count)}
        for one in audits for row in rows
        if (count := sum(any(each.rule.id == row.rule for each in vm.findings) for vm in one.audited))
    ]  # fmt: skip
    if _hosts_in(cells) < 2:
        return None
    drawn, left_out = _worst(cells, Counter(one["host"] for one in cells))
    worst = rows[0]
    return Chart(
        name="rules-by-hosts",
        title=f"{worst.rule} ({worst.name}) is found on {len(worst.hosts)} of {len(audits)} hosts",
        reading="A row is a host, a column a rule, the number how many of its VMs are concerned." + left_out,
        spec=filled(
            "cells", height=_FLEET_CELL * _hosts_in(drawn), rows=drawn, row="host", column="rule",
            columns=[row.rule for row in rows], text="count",
            colour="severity", colours=colour_scale(SEVERITY_COLOURS, (row.severity for row in rows)),
        ),
        columns=("host", "rule", "severity", "VMs"),
        rows=tuple((one["host"], one["rule"], one["severity"], one["count"]) for one in cells),
    )  # fmt: skip


def _outermost(rows: Sequence[Any]) -> Sequence[Any]:
    half = HOSTS_SHOWN // 2
    return rows if len(rows) <= HOSTS_SHOWN else [*rows[:half], *rows[-half:]]


Cell = dict[str, str]


def _worst(cells: Sequence[Cell], counts: Mapping[str, int]) -> tuple[list[Cell], str]:
    """Return the cells of the hosts that count most, the order of hosts kept, and what is said of the others."""
    hosts = list(dict.fromkeys(one["host"] for one in cells))
    shown = set(sorted(hosts, key=lambda host: -counts.get(host, 0))[:HOSTS_SHOWN])
    others = len(hosts) - len(shown)
    said = f" {count_text(others, 'more host')} in the table only." if others else ""
    return [one for one in cells if one["host"] in shown], said


def _hosts_in(cells: Sequence[Cell]) -> int:
    return len({one["host"] for one in cells})


def _left_out(count: int) -> str:
    return f" {count_text(count, 'host')} between these are in the tables only." if count else ""


def _state(one: fleet.FunnelPoint) -> str:
    return "odd" if one.odd else "beyond its line" if abs(one.distance) > one.limit else "like the others"


HISTORIES_SHOWN = 24
"""The most hosts that are readable below each other; those that changed come first."""

_BAND = 2.0
"""Half the width of the band around what is expected, in standard deviations between studies: 95 % lie in it."""


def history_charts(found: fleet.FleetHistory) -> Iterator[Chart]:
    """Draw the levels of each host over time, a picture for each workload."""
    for workload in dict.fromkeys(one.workload for one in found.hosts):
        yield _history_chart([one for one in found.hosts if one.workload == workload], found, workload)


def _history_chart(hosts: Sequence[fleet.HostHistory], found: fleet.FleetHistory, workload: str) -> Chart:
    drawn = sorted(hosts, key=lambda one: (one.host != found.reference, not one.changes))[:HISTORIES_SHOWN]
    judged = [one for one in hosts if one.judged]
    others = [one for one in judged if one.host != found.reference] or judged
    changed = sum(bool(one.changes) for one in others)
    metric = BY_ID[found.study.metric].label
    reading = (
        f"{metric} of {found.study.baseline}: a mark is a study. In the band lie 19 of 20 studies of a host that "
        "does not change, by how its own vary; a dashed line is a change that this does not explain."
    )
    if found.reference:
        reading += f" What {found.reference} did moves the bands of the others, and is no change of theirs."
    if unjudged := [one.host for one in hosts if not one.judged]:
        reading += f" Too few studies to say of {names(unjudged)}, which have no band."
    if len(hosts) > len(drawn):
        reading += f" {count_text(len(hosts) - len(drawn), 'more host')} in the table only."
    titles = {one.host: f"{one.host} (reference)" if one.host == found.reference else one.host for one in drawn}
    rows = [{"host": titles[one.host], **row} for one in drawn for row in _levels(one)]
    return Chart(
        name=file_name("history", workload),
        title=f"{workload}: {changed} of {count_text(len(others), 'host')} changed",
        reading=reading,
        spec=filled("history", rows=rows, hosts=[*titles.values()]),
        columns=("host", "begun (UTC)", metric, "change"),
        rows=tuple(
            (one.host, f"{level.begun:%Y-%m-%d %H:%M}", f"{level.level:,.0f}", _at(one, level))
            for one in hosts
            for level in one.levels
        ),
    )


def _at(one: fleet.HostHistory, level: fleet.HostEstimate) -> str:
    return next((change_words(change.ratio) for change in one.changes if change.begun == level.begun), "")


def _levels(one: fleet.HostHistory) -> Iterator[dict[str, Any]]:
    part, band = 0, _BAND * one.spread
    for level, expected in zip(one.levels, one.expected, strict=True):
        change = _at(one, level)
        part += bool(change)
        yield {
            "begun": level.begun.isoformat(), "value": level.level, "part": part,
            **({"expected": math.exp(expected), "low": math.exp(expected - band), "high": math.exp(expected + band)}
               if one.judged else {}),
            **({"change": change} if change else {}),
        }  # fmt: skip
