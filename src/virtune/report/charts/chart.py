# SPDX-License-Identifier: Apache-2.0
"""The parts of every chart: a title that says what it shows, how to read it, its numbers, and its specification."""

import json
import pkgutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from textwrap import wrap
from typing import Any

from virtune.model.search import Limit
from virtune.model.study import Study
from virtune.model.text import printable

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d00", "#666666")
"""Okabe and Ito's colours, which most people with a colour vision deficiency tell apart; yellow is darkened."""

DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3), (4, 1), (1, 3), (10, 4), (3, 5))
"""A line style for each colour, so that arms can be told apart without colour."""

SHAPES = {"better": "triangle-up", "worse": "triangle-down", "same": "square", "undecided": "circle"}
"""The shape of each verdict, as the legend shows it."""

MOST_ARMS = 40

_MOST_CHARACTERS = 2000
"""Longer than any expression of ours; a user's name for an arm may be longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One picture.

    `name` is unique within a report and safe as a file's name; `title` says what the picture shows, `reading` how to
    read it; `columns` and `rows` are its numbers as a table, for readers who cannot see the chart.
    """

    name: str
    title: str
    reading: str
    spec: Mapping[str, Any]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def filled(picture: str, *, height: int | None = None, **values: Any) -> dict[str, Any]:
    """Return a picture's specification: what all have in common, and its template (`NAME.vl.json`) with these values.

    `"$name"` in the template is the value of that name. A layer whose own data are empty is left out.
    """
    room = {} if height is None else {"height": height}
    return {**_template("common"), **room, **_with(_template(picture), values)}


@cache
def _template(name: str) -> Any:
    return json.loads(pkgutil.get_data(__name__, f"{name}.vl.json") or b"")


def _with(part: Any, values: Mapping[str, Any]) -> Any:
    match part:
        case str():
            return _shown(values[part[1:]]) if part.startswith("$") else part
        case dict():
            return {key: _with(one, values) for key, one in part.items()}
        case list():
            found = [_with(one, values) for one in part]
            return [one for one in found if not (isinstance(one, dict) and one.get("data") == {"values": []})]
        case _:
            return part


def standing_alone(chart: Chart, foot: str) -> Chart:
    """Return a chart for a file of its own: its title above it, and below the title in small what it is of."""
    title = {
        "text": wrap(chart.title, _TITLE_CHARACTERS), "subtitle": wrap(foot, _FOOT_CHARACTERS), "anchor": "start",
        "fontSize": 14, "subtitleFontSize": 11, "subtitleColor": "#666666", "color": "currentColor", "offset": 12,
    }  # fmt: skip
    return replace(chart, spec={**chart.spec, "title": _shown(title)})


_TITLE_CHARACTERS, _FOOT_CHARACTERS = 84, 110
"""What is as wide as a chart, in letters of these sizes."""


def _shown(value: Any) -> Any:
    """Return a value whose texts are printable: a control character in an arm's name ends the renderer's process."""
    match value:
        case str():
            return printable(value, most=_MOST_CHARACTERS)
        case Mapping():
            return {_shown(key): _shown(one) for key, one in value.items()}
        case list() | tuple():
            return [_shown(one) for one in value]
        case _:
            return value


def legend_of(chart: Chart) -> tuple[tuple[str, str, str], ...]:
    """Return what each colour of a picture stands for, so that a page can say it in words above, and the style of its
    line, empty for an area; nothing where the picture labels its parts itself.
    """
    named = next(_legends(chart.spec), ())
    lines = "strokeDash" in json.dumps(chart.spec)
    return tuple((name, colour, _LINES[at % len(_LINES)] if lines else "") for at, (name, colour) in enumerate(named))


_LINES = ("solid", "dashed", "dotted", "dashed")
"""What is nearest to the first line styles in a style sheet."""


def _legends(part: Any) -> Iterator[tuple[tuple[str, str], ...]]:
    if isinstance(part, Mapping):
        if _is_legend(part) and all(str(one).startswith("#") for one in part["scale"]["range"]):
            yield tuple(zip(part["scale"]["domain"], part["scale"]["range"], strict=False))
        for one in part.values():
            yield from _legends(one)
    elif isinstance(part, list | tuple):
        for one in part:
            yield from _legends(one)


def _is_legend(part: Mapping[str, Any]) -> bool:
    """Whether a part of a specification draws a legend of arms or layers: of their colours or their line styles."""
    scale = part.get("scale")
    return part.get("legend") is not None and isinstance(scale, Mapping) and {"domain", "range"} <= set(scale)


def without_legend(part: Any) -> Any:
    """Return a specification without its title and its legends of arms and layers: a page says both in words."""
    if isinstance(part, Mapping):
        kept = {name: without_legend(one) for name, one in part.items()}
        return {**kept, "legend": None} if _is_legend(part) else kept
    return [without_legend(one) for one in part] if isinstance(part, list | tuple) else part


def colours_of(names: Sequence[str]) -> dict[str, Any]:
    """Return the colour scale that gives an arm one colour in all pictures of its study."""
    return {"domain": names, "range": [PALETTE[index % len(PALETTE)] for index in range(len(names))]}


def colour_scale(known: Mapping[Any, str], used: Iterable[str]) -> dict[str, Any]:
    """Return the scale of what is used of some words, in their order."""
    every = {*used}
    words = [one for one in known if one in every]
    return {"domain": words, "range": [known[one] for one in words]}


def scales_of(names: Sequence[str]) -> dict[str, Any]:
    """Return that scale and the one of line styles that goes with it, by their names in templates."""
    dashes = [DASHES[index % len(DASHES)] for index in range(len(names))]
    return {"colours": colours_of(names), "dashes": {"domain": names, "range": dashes}}


def latency_limits(study: Study) -> list[Limit]:
    """Return the limits on a latency that were asked for: of a sweep, and in conditions on a value."""
    found = [] if study.sweep is None or study.sweep.limit is None else [study.sweep.limit]
    found += [
        Limit(metric=one.metric, sense="<=", value=one.value, text=one.text)
        for one in study.conditions
        if one.value is not None and one.relation == ">"
    ]
    return [one for one in found if "latency." in one.metric and one.value > 0]


def file_name(kind: str, workload: str) -> str:
    """Return a chart's name that is safe as a file name, whatever the workload is called."""
    plain = "".join(character if character.isascii() and character.isalnum() else "-" for character in workload)
    return f"{kind}-{plain[:60].strip('-') or 'workload'}"


def axis_ticks(values: Sequence[float]) -> list[float]:
    """Return ticks 1, 2, 5 times powers of ten that cover positive values, for a logarithmic axis."""
    low, high = min(values), max(values)
    found, scale = [], 10.0**-12
    while scale <= high * 10:
        found += [step * scale for step in (1, 2, 5) if low / 2.5 <= step * scale <= high * 2.5]
        scale *= 10
    return found


def tens_of(values: Sequence[float]) -> list[float]:
    """Return the powers of ten among these ticks, or all of them where that leaves fewer than three."""
    ticks = axis_ticks(values)
    tens = [tick for tick in ticks if f"{tick:e}".startswith("1")]
    return tens if len(tens) > 2 else ticks
