# SPDX-License-Identifier: Apache-2.0
"""What a search says, for people: the winner, how sure that is, what it cost, and the lines that put it to use."""

from collections import Counter
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from virtune.model.metric import BY_ID
from virtune.model.result import Value
from virtune.model.search import Search
from virtune.model.standing import Place
from virtune.model.tuning import Confirmation, LimitState, Recommendation, Tuning
from virtune.model.units import format_bytes, format_seconds
from virtune.model.verdict import Verdict
from virtune.report.text.basis import checked_text, steadiness
from virtune.report.text.result import reading_notes, value_text
from virtune.report.text.tune_arms import arms_table
from virtune.report.text.words import difference_text

_STYLE = {Recommendation.CHANGE: "green", Recommendation.KEEP: "cyan", Recommendation.UNDECIDED: "yellow"}

NAMES_SHOWN = 6
"""Names in one sentence; of more the number is told."""


def render(known: Tuning) -> RenderableType:
    """Set a search for a terminal: the answer, the arms, what it cost, what was not ranked and why."""
    parts: list[RenderableType] = [_headline(known), Text("")]
    parts += [Padding(line, (0, 0, 0, 2)) for line in _answer(known)]
    parts += [Text(""), arms_table(known)]
    parts += _section("cost", _cost(known))
    parts += _section("not ranked", _left_out(known))
    parts += _section(
        "to beware of", iter((*(one.text for one in known.ramps), *known.notes, *reading_notes(known.study)))
    )
    return Group(*parts)


def recommendation_line(known: Tuning) -> str:
    """Say in one line what to do."""
    match known.recommendation:
        case Recommendation.CHANGE:
            return f"change to {known.winner}: {known.why}"
        case Recommendation.KEEP:
            return f"keep the baseline: {known.why}"
        case Recommendation.UNDECIDED:
            return f"undecided: {known.why}"


def _headline(known: Tuning) -> Text:
    study, search = known.study, _search(known)
    text = Text()
    text.append(f"tune {study.id}", style="bold")
    text.append(f"  {search.mode}, {search.goal.words}")
    text.append("" if known.finished else f"  not finished: {known.phase.value}", style="yellow")
    span = f"target {study.target}" if study.target else f"span {format_bytes(study.span_bytes)}"
    workloads = ", ".join(workload.name for workload in study.workloads)
    text.append(f"\n{workloads}; {len(search.ranked)} configurations that promise `{search.promise}`")
    if search.tries is not None:
        text.append(f", {_tried(known)} of them tried (proposed by Optuna's TPE)")
    each = f"{format_seconds(known.probed.slice_seconds)} (+ {format_seconds(study.ramp_seconds)} ramp)"
    text.append(f"\nslices of {each} in random blocks (seed {study.seed}), {span}")
    return text


def _answer(known: Tuning) -> Iterator[Text]:
    metric, search = BY_ID[known.study.metric], _search(known)
    if known.winner is not None:
        line = Text()
        line.append("winner  " if known.finished else "so far  ", style="bold")
        line.append(known.winner, style="bold green")
        value = dict(known.values).get(known.winner)
        if value is not None:
            line.append(f"  {metric.label} {_written(known, value)}")
        yield line
        yield Text(f"settings  {_settings(known, known.winner)}")
        yield Text(_distance(known))
        if known.finished and (rivals := known.rivals):
            words = f"which of them is best is undecided: {_names(rivals)} may be better by more than"
            yield Text(f"{words} {known.study.margin:.0%}", style="yellow")
        if known.winner != known.standing.leader:
            yield Text(f"{known.standing.leader} is faster, and may break a limit", style="yellow")
    if known.tied:
        yield Text(f"as good within {known.study.margin:.0%}: {_names(known.tied)}")
    yield from _limits(known)
    if (found := known.confirmation) is not None:
        line = Text(f"against the baseline, on fresh data: {metric.label} ")
        if found.ratio is None or found.ratio.confidence < 1 - search.error:
            line.append(found.why, style="yellow")
        else:
            style = {Verdict.BETTER: "green", Verdict.WORSE: "red"}.get(found.verdict, "yellow")
            line.append(difference_text(found.ratio), style=style)
            line.append(f" at {found.ratio.confidence:.3g}, {_starts(found)}")
            if found.winner is not None and found.baseline is not None:
                line.append(f": {_written(known, found.winner)} for {_written(known, found.baseline)}")
        yield line
        yield Text(_spread(known), style="yellow" if found.unstable else "")
    for soak in known.soaks:
        held = (
            "too few runs gave a value to say"
            if soak.ratio is None
            else f"last third {100 * (soak.ratio - 1):+.1f} % of the first"
        )
        yield Text(f"soak of {format_seconds(soak.seconds)}: {soak.arm}: {held}")
    yield Text(recommendation_line(known), style=f"bold {_STYLE[known.recommendation]}")


def _distance(known: Tuning) -> str:
    search = _search(known)
    if known.distance is None:
        return "how far below the best it is cannot be said yet"
    certain = "certified" if known.standing.certified else "stopped at its cap" if known.finished else "so far"
    of = "of them" if search.tries is None else f"of the {_tried(known)} that were tried"
    return f"at most {100 * known.distance:.1f} % below the best {of}, error <= {search.error:.0%} ({certain})"


def _tried(known: Tuning) -> int:
    return len(known.standing.runners) + len(known.broken)


def _spread(known: Tuning) -> str:
    found = known.confirmation
    if found is None or found.spread is None or found.baseline_spread is None:
        return "how its starts differ cannot be said"
    words = f"starts differ by {found.spread:.1%} (the baseline's by {found.baseline_spread:.1%})"
    if found.unstable and found.baseline_spread > found.spread / 2:
        return f"{words}: unstable, and the baseline is no calmer: it may be the host"
    return f"{words}: unstable" if found.unstable else words


def _starts(found: Confirmation) -> str:
    """Say what each measurement was begun with: a guest of ours gets its disk anew, and keeps its machine."""
    if found.processes is None:
        return f"{found.pairs} starts each"
    if found.processes >= found.pairs:
        return f"{found.pairs} new processes each"
    where = "one process" if found.processes == 1 else f"{found.processes} processes"
    return f"{found.pairs} disks made anew each, in {where}"


def _limits(known: Tuning) -> Iterator[Text]:
    style = {LimitState.KEPT: "green", LimitState.BROKEN: "red", LimitState.OPEN: "yellow"}
    for check in known.checks:
        if check.arm != known.winner:
            continue
        line = Text(f"limit {check.limit.text} under {check.workload}: ")
        line.append(check.state.value if check.state is not LimitState.OPEN else "not sure", style=style[check.state])
        if check.value is not None:
            line.append(f", {_of(check.limit.metric, check.value)}")
        if check.low is not None and check.high is not None:
            line.append(f" [{_of(check.limit.metric, check.low)}, {_of(check.limit.metric, check.high)}]")
        yield line
    for text in known.confirmation.breaks if known.confirmation else ():
        yield Text(f"on fresh data {text} is not kept", style="red")


def _cost(known: Tuning) -> Iterator[str]:
    search, standing = _search(known), known.standing
    words = f"measured {format_seconds(known.measured_seconds)}, elapsed {format_seconds(known.elapsed_seconds)}"
    grid = f"the classic grid measures {format_seconds(search.grid_seconds)} (5 x 60 s each)"
    less = f", {known.speedup:.0f} times as much" if known.speedup is not None and known.speedup >= 1 else ""
    yield f"{words}; {grid}{less}"
    out = [(one.out_after or 0, one.arm) for one in standing.runners if one.out_after is not None]
    if out:
        yield f"{len(out)} eliminated after {min(out)[0]} to {max(out)[0]} blocks of {standing.blocks}"
    places = Counter(one.place for one in standing.runners)
    yield (
        f"{standing.blocks} blocks, {standing.slices} slices: {places[Place.ELIMINATED]} eliminated,"
        f" {places[Place.PARKED]} no better than the leader, {places[Place.OPEN]} undecided"
        + (f", {places[Place.FAILED]} failed" if places[Place.FAILED] else "")
    )
    each = known.probed.slice_seconds + known.study.ramp_seconds + 0.45
    for basis in known.basis:
        yield ", ".join(steadiness(basis, known.study))
    yield checked_text(known.study)
    if known.repeated:
        yield f"{known.repeated} attempts failed or were spoiled, and ran again"
    yield from _spoiled(known)
    if standing.certified:
        yield "going on would gain nothing within the margin"
    elif standing.slices_left is not None:
        left = format_seconds(standing.slices_left * each * len(known.study.workloads))
        yield f"going on: a certificate of {known.study.margin:.0%} would take about {left} more (--mode certify)"


def _spoiled(known: Tuning) -> Iterator[str]:
    """Say of the arms of which some attempts do not count how many, and why; those that lost most come first."""
    lost = [(sum(count for _, count in one.invalid) + one.failed, one) for one in known.spoiled]
    bad = [one for count, one in sorted(lost, key=lambda pair: -pair[0]) if count]
    for one in bad[:NAMES_SHOWN]:
        why = [f"{cause} {count}" for cause, count in one.invalid] + ([f"failed {one.failed}"] if one.failed else [])
        yield f"spoiled of {one.arm}: {', '.join(why)}, of {one.attempts} attempts"
    if len(bad) > NAMES_SHOWN:
        yield f"and some of {len(bad) - NAMES_SHOWN} more"


def _left_out(known: Tuning) -> Iterator[str]:
    search = _search(known)
    for apart in search.apart:
        how = "weaker" if apart.weaker else "stronger"
        yield f"{len(apart.names)} {how} (`{apart.promise}`): {apart.words}: {_names(apart.names)}"
    for removed in search.removed:
        what = removed.what if removed.count is None else f"{removed.count} such as {removed.what}"
        yield f"{what}: {removed.why}"


def _section(title: str, lines: Iterator[str]) -> list[RenderableType]:
    found = [Padding(Text(line), (0, 0, 0, 2)) for line in lines]
    return [Text(f"\n{title}", style="bold"), *found] if found else []


def _settings(known: Tuning, name: str) -> str:
    settings = known.study.arm(name).settings
    return " ".join(f"--set {knob}={value}" for knob, value in settings) or "as the rig has it"


def _names(names: tuple[str, ...]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _written(known: Tuning, value: float) -> str:
    return _of(known.study.metric, value)


def _of(metric: str, value: float) -> str:
    return value_text(BY_ID[metric], Value(metric=metric, value=value, rounds=1, spread=None))


def _search(known: Tuning) -> Search:
    assert known.study.search is not None  # noqa: S101 - a Tuning is of a search
    return known.study.search
