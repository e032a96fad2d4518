# SPDX-License-Identifier: Apache-2.0
"""The arms of a search against its leader: intervals that shrink while it runs, in the terminal."""

import math
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from virtune.model.metric import BY_ID
from virtune.model.result import Value
from virtune.model.standing import Place, Runner
from virtune.model.tuning import Tuning
from virtune.model.units import format_seconds
from virtune.report.text.result import value_text

AXIS_COLUMNS = 25
"""Odd, so that one column is the leader's."""

AXIS_LEAST = 0.05
"""The axis never shows less than this to either side: an interval of 0.1 % may look small."""

ROWS_MAX = 24
"""Arms beside one another on a page; of more the ones in front are shown."""

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


def live(known: Tuning, seconds_left: float | None) -> RenderableType:
    """Set the race as it stands, for a terminal that is drawn again and again."""
    return Group(_state(known, seconds_left), arms_table(known))


def state_line(known: Tuning, seconds_left: float | None) -> str:
    """Say in one line how a search stands, for a log."""
    return _state(known, seconds_left).plain


def arms_table(known: Tuning) -> Table:
    """Set every arm with its interval against the leader, the best first."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("configuration", overflow="ellipsis", no_wrap=True, max_width=40)
    table.add_column(BY_ID[known.study.metric].label, justify="right", no_wrap=True, min_width=6)
    runners = _sorted(known)
    shown = runners[:ROWS_MAX]
    reach = _reach(shown)
    scale = f"-{reach:.0%}"
    table.add_column(
        f"{scale}{'leader'.center(AXIS_COLUMNS - 2 * len(scale))}{f'+{reach:.0%}'}",
        no_wrap=True,
        min_width=AXIS_COLUMNS,
    )
    table.add_column("against the leader", justify="right", no_wrap=True, min_width=23)
    table.add_column("", no_wrap=True, min_width=9)
    for runner in shown:
        table.add_row(*_row(known, runner, reach))
    for arm, after in known.broken:
        table.add_row(
            Text(arm, style="dim"), _value(known, arm), "", "", Text(f"breaks a limit ({after})", style="red")
        )
    if len(runners) > len(shown):
        table.add_row(Text(f"and {len(runners) - len(shown)} more behind these", style="dim"))
    return table


def percent(log_ratio: float) -> str:
    """Write ln of a ratio as a signed percentage."""
    if not math.isfinite(log_ratio) or abs(log_ratio) > math.log(100):
        return "-" if log_ratio < 0 else "?"
    number = 100 * math.expm1(log_ratio)
    return f"{number:+.1f}" if abs(number) < 100 else f"{number:+.0f}"


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
        text.append(f"  about {format_seconds(seconds_left)} left at most", style="dim")
    return text


def _sorted(known: Tuning) -> list[Runner]:
    order = [Place.LEADER, Place.PARKED, Place.OPEN, Place.ELIMINATED, Place.FAILED]

    def key(runner: Runner) -> tuple[int, float]:
        place = 1 if runner.place is Place.OPEN else order.index(runner.place)
        return place, runner.against_leader.mean if runner.against_leader is not None else 0.0

    return sorted(known.standing.runners, key=key)


def _reach(runners: list[Runner]) -> float:
    """Return how far the axis reaches to each side of the leader, as a share.

    It holds the intervals of who is in the race, and the middle of who is out: those intervals no longer matter.
    """
    found = [(one.place, c) for one in runners if (c := one.against_leader) is not None and math.isfinite(c.radius)]
    ends = [abs(c.mean) if place is Place.ELIMINATED else max(abs(c.low), abs(c.high)) for place, c in found]
    widest = max(ends, default=AXIS_LEAST)
    for share in (0.05, 0.1, 0.2, 0.3, 0.5, 1.0):
        if math.expm1(min(widest, 1.0)) <= share:
            return share
    return 1.0


def _row(known: Tuning, runner: Runner, reach: float) -> Iterator[RenderableType]:
    style = _STYLE[runner.place]
    word = _word(known, runner) + (f" ({runner.out_after})" if runner.out_after is not None else "")
    yield Text(runner.arm, style=style)
    yield _value(known, runner.arm)
    yield Text(_bar(runner, reach), style=style)
    found = runner.against_leader
    if found is None or not math.isfinite(found.radius):
        yield Text(percent(-found.mean) + " %" if found is not None and found.blocks else "", style="dim")
    else:
        yield Text(f"{percent(-found.mean)} % [{percent(-found.high)}, {percent(-found.low)}]", style=style)
    yield Text(word, style=style)


def _word(known: Tuning, runner: Runner) -> str:
    """Say where an arm stands; who was parked is at most the margin better, and either as good or behind."""
    if runner.place is Place.PARKED and runner.arm not in known.tied:
        return "no better"
    return _WORD[runner.place]


def _bar(runner: Runner, reach: float) -> str:
    """Draw an arm's interval around its difference to the leader, to the right of the middle where it is better."""
    middle = AXIS_COLUMNS // 2
    cells = [" "] * AXIS_COLUMNS
    cells[middle] = "│"
    found = runner.against_leader
    if runner.place is Place.LEADER:
        cells[middle] = "●"
    elif found is not None and found.blocks:
        low, high = (_column(-end, reach) for end in (found.high, found.low))
        for column in range(low, high + 1):
            cells[column] = "─"
        cells[_column(-found.mean, reach)] = "●"
    return "".join(cells)


def _column(log_ratio: float, reach: float) -> int:
    share = math.expm1(max(-50.0, min(50.0, log_ratio))) / reach
    return round((max(-1.0, min(1.0, share)) + 1) / 2 * (AXIS_COLUMNS - 1))


def _value(known: Tuning, arm: str) -> Text:
    value = dict(known.values).get(arm)
    metric = BY_ID[known.study.metric]
    return Text(
        value_text(metric, None if value is None else Value(metric=metric.id, value=value, rounds=1, spread=None))
    )
