# SPDX-License-Identifier: Apache-2.0
"""The arms of a search against its leader: intervals that shrink while it runs, in the terminal."""

import math
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from virtune.model.metric import BY_ID
from virtune.model.standing import Contrast, Place, Runner
from virtune.model.tuning import Tuning
from virtune.model.units import format_seconds
from virtune.model.verdict import Interval
from virtune.report.text.forest import axis, bar, reach_of
from virtune.report.text.layout import Column, FirstThatFits, Paragraph, Records
from virtune.report.text.words import HOPELESS, change_words, difference_text, quantity

ROWS_MAX = 24
"""The most arms in a table; of more the best are shown."""

_STYLE = {
    Place.LEADER: "bold green",
    Place.PARKED: "cyan",
    Place.OPEN: "yellow",
    Place.ELIMINATED: "dim",
    Place.FAILED: "red",
}

_WORD = {
    Place.LEADER: "leads",
    Place.PARKED: "as good",
    Place.OPEN: "open",
    Place.ELIMINATED: "out",
    Place.FAILED: "failed",
}


STATE = "state (block)"
"""The head over where each configuration stands, with the block after which it was out."""


def live(known: Tuning, seconds_left: float | None) -> RenderableType:
    """Lay out the present state of the race, for a terminal that is redrawn."""
    return Group(_state(known, seconds_left), arms_table(known))


def state_line(known: Tuning, seconds_left: float | None) -> str:
    """Return the state of a search in one line, for a log."""
    return _state(known, seconds_left).plain


def arms_table(known: Tuning, most: int | None = None) -> RenderableType:
    """Lay out every arm with its interval against the leader, the best first, with numbers instead of too long names.

    At most `most` rows are shown, ROWS_MAX without it. A name holds only the settings in which the arms differ; the
    common ones are listed once below.
    """
    runners = _sorted(known)
    shown = runners[: most or ROWS_MAX]
    reach = _reach(shown)
    rows: list[tuple[str, str, tuple[Text, ...]]] = [
        (_STYLE[runner.place], runner.arm, _row(known, runner, reach)) for runner in shown
    ]
    rows += [
        ("red", arm, (Text(_value(known, arm)), Text(""), Text(""), Text(_broken(after), style="red")))
        for arm, after in known.broken
    ]
    names, common = short_names([arm for _, arm, _ in rows])
    columns = [
        Column(title=BY_ID[known.study.metric].label, right=True),
        Column(title="against the leader"),
        Column(title=axis(reach, "leader")),
        Column(title=STATE),
    ]
    head, number = Column(title="configuration"), Column(title="no.", right=True)
    named: list[tuple[Text | str, ...]] = [
        (Text(name, style=style), *row) for name, (style, _, row) in zip(names, rows, strict=True)
    ]
    numbered: list[tuple[Text | str, ...]] = [(str(place), *row) for place, (_, _, row) in enumerate(rows, 1)]
    listed = [(f"{place}", Text(name, style=style)) for place, (name, (style, _, _)) in
              enumerate(zip(names, rows, strict=True), 1)]  # fmt: skip
    key = Records([number, head], listed, above=True)
    bare = Records([number, *columns[:2], columns[3]], [(*row[:3], row[4]) for row in numbered])
    below: list[RenderableType] = []
    if common:
        below.append(Paragraph(Text(f"the same in all of these: {common}", style="dim")))
    if len(runners) > len(shown):
        below.append(Text(f"and {len(runners) - len(shown)} more behind these", style="dim"))
    ways = ([Records([head, *columns], named)], [Records([number, *columns], numbered), key], [bare, key])
    return Group(FirstThatFits(*ways), *below)


def short_names(names: Sequence[str]) -> tuple[list[str], str]:
    """Return each name without the common settings, and those settings; `baseline` keeps its name."""
    parts = {name: name.split("+") for name in names if "=" in name}
    if len(parts) < 2:
        return list(names), ""
    first, *rest = parts.values()
    common = [part for part in first if all(part in one for one in rest)]
    short = {name: "+".join(part for part in own if part not in common) or name for name, own in parts.items()}
    return [short.get(name, name) for name in names], ", ".join(common)


def _state(known: Tuning, seconds_left: float | None) -> Text:
    standing = known.standing
    text = Text()
    text.append(known.phase.value, style="bold")
    done = sum(1 for runner in standing.runners if runner.place in (Place.ELIMINATED, Place.FAILED)) + len(
        known.broken
    )
    text.append(f"  block {standing.blocks}, {done} of {len(standing.runners) + len(known.broken)} out")
    if standing.leader is not None:
        text.append(f", {standing.leader} leads")
    if known.distance is not None:
        text.append(f", at most {100 * known.distance:.1f} % below the best")
    if seconds_left is not None and not known.finished:
        text.append(f"  about {format_seconds(seconds_left)} left", style="dim")
    return text


def _sorted(known: Tuning) -> list[Runner]:
    order = [Place.LEADER, Place.PARKED, Place.OPEN, Place.ELIMINATED, Place.FAILED]

    def key(runner: Runner) -> tuple[int, float]:
        place = 1 if runner.place is Place.OPEN else order.index(runner.place)
        return place, runner.against_leader.mean if runner.against_leader is not None else 0.0

    return sorted(known.standing.runners, key=key)


def _reach(runners: Sequence[Runner]) -> float:
    """Return the range of the axis to each side of the leader.

    It includes the intervals of the remaining arms, and the estimates of the eliminated ones, whose intervals no
    longer matter.
    """
    found = [(one.place, _ratio(c)) for one in runners if (c := one.against_leader) is not None and c.blocks]
    wild = [one for _, one in found if one.high > one.low * HOPELESS]
    ends = [
        end
        for place, one in found
        for end in ((one.estimate,) if place is Place.ELIMINATED or one in wild else (one.low, one.high))
    ]
    return reach_of(ends)


def standing_rows(known: Tuning) -> list[tuple[str, str, str, str]]:
    """Return a row for every configuration, the best first: its name, its metric, how it differs from the leader
    with the interval of that, and where it stands.
    """
    rows = [(one.arm, _value(known, one.arm), _told(one), _state_of(known, one)) for one in _sorted(known)]
    return rows + [(arm, _value(known, arm), "", _broken(after)) for arm, after in known.broken]


def runner_rows(known: Tuning) -> list[tuple[str, str, str, Interval | None]]:
    """Return of every configuration, the best first: its name, where it stands, how it differs from the leader in
    words, and the ratio behind these; None of the leader and of one without an interval.
    """
    return [(one.arm, _state_of(known, one), _told(one), _interval(one)) for one in _sorted(known)]


def _interval(runner: Runner) -> Interval | None:
    found = runner.against_leader
    told = runner.place is not Place.LEADER and found is not None and found.blocks and math.isfinite(found.radius)
    return _ratio(found) if found is not None and told else None


def _row(known: Tuning, runner: Runner, reach: float) -> tuple[Text, ...]:
    found, drawn = runner.against_leader, ""
    if runner.place is Place.LEADER:
        drawn = bar(1.0, 1.0, 1.0, reach)
    elif found is not None and found.blocks:
        ratio = _ratio(found)
        drawn = bar(ratio.low, ratio.estimate, ratio.high, reach)
    style = _STYLE[runner.place]
    state = Text(_state_of(known, runner), style=style)
    return Text(_value(known, runner.arm)), Text(_told(runner), style=style), Text(drawn, style=style), state


def _told(runner: Runner) -> str:
    """Write how a configuration differs from the leader."""
    found = runner.against_leader
    if runner.place is Place.LEADER or found is None or not found.blocks:
        return ""
    ratio = _ratio(found)
    return difference_text(ratio) if math.isfinite(found.radius) else change_words(ratio.estimate)


def _state_of(known: Tuning, runner: Runner) -> str:
    return _word(known, runner) + (f" ({runner.out_after})" if runner.out_after is not None else "")


def _broken(after: int) -> str:
    return f"breaks a limit ({after})"


def _ratio(found: Contrast) -> Interval:
    """Return an arm as a ratio to the leader; a Contrast is ln of how much better the leader is."""
    ends = (max(-700.0, min(700.0, -end)) for end in (found.mean, found.high, found.low))
    estimate, low, high = (math.exp(end) for end in ends)
    return Interval(estimate=estimate, low=low, high=high, confidence=0.0)


def _word(known: Tuning, runner: Runner) -> str:
    """Return an arm's state in words; a parked arm is at most the margin better, so it equals the leader or is
    behind.
    """
    if runner.place is Place.PARKED and runner.arm not in known.tied:
        return "no better"
    return _WORD[runner.place]


def _value(known: Tuning, arm: str) -> str:
    value = dict(known.values).get(arm)
    return "-" if value is None else quantity(BY_ID[known.study.metric], value)
