# SPDX-License-Identifier: Apache-2.0
"""The result of a search as text: the winner, its certainty, the cost, and the winner's configuration lines."""

from collections import Counter
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from virtune.model.gate import label_of
from virtune.model.metric import BY_ID
from virtune.model.search import Search
from virtune.model.standing import Place
from virtune.model.tuning import Confirmation, LimitState, Recommendation, Tuning
from virtune.model.units import format_bytes, format_seconds, format_share
from virtune.model.verdict import Verdict
from virtune.report.reproduce import AGAIN, tune_again
from virtune.report.text.layout import Paragraph
from virtune.report.text.search.tune_arms import arms_table
from virtune.report.text.study.arms import vm_cost_notes
from virtune.report.text.study.basis import checked_text, steadiness
from virtune.report.text.study.first_read import first_read_lines
from virtune.report.text.study.header import host_line
from virtune.report.text.study.notes import reading_notes
from virtune.report.text.words import count_text, difference_text, quantity, share_text
from virtune.report.view import SIMULATED_ONLY

_STYLE = {Recommendation.CHANGE: "green", Recommendation.KEEP: "cyan", Recommendation.UNDECIDED: "yellow"}

NAMES_SHOWN = 6
"""The most names in one sentence; of more only the number is given."""


def render(known: Tuning, facts: str = "") -> Group:
    """Lay out a search for a terminal: the answer, the arms, the cost, what was not ranked and why.

    `facts` are those of the host, as JSON.
    """
    parts: list[RenderableType] = [headline(known), Text("")]
    parts += [Paragraph(line, indent=2, hanging=2) for line in answer_lines(known)]
    parts += [Text(""), arms_table(known)]
    for title, lines in sections(known, facts):
        parts += _section(title, iter(lines))
    again = Text(
        f"  {tune_again(known.study)}", no_wrap=True, overflow="ignore"
    )  # one line, so that it can be pasted
    return Group(*parts, Text("\nto repeat it", style="bold"), Paragraph(Text(AGAIN, style="dim"), indent=2), again)


def sections(known: Tuning, facts: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the sections below the arms: a title and its lines; `facts` are those of the host, as JSON."""
    yield "measured", tuple(_measured(known, facts))
    yield "cost", tuple(_cost(known))
    yield "not ranked", tuple(_left_out(known))
    yield "warnings and notes", (*warnings(known), *vm_cost_notes(known.study), *reading_notes(known.study))


def warnings(known: Tuning) -> tuple[str, ...]:
    """Return the warnings on a search, without the notes on how to read its figures."""
    return (*(one.text for one in known.ramps), *known.notes)


def recommendation_line(known: Tuning) -> str:
    """Return the recommendation in one line."""
    match known.recommendation:
        case Recommendation.CHANGE:
            return f"change to {known.winner}: {known.why.text}"
        case Recommendation.KEEP:
            return f"keep the baseline: {known.why.text}"
        case Recommendation.UNDECIDED:
            return f"undecided: {known.why.text}"


def headline(known: Tuning) -> Text:
    """Name the search, its goal, and the number of its configurations."""
    study, search = known.study, _search(known)
    text = Text()
    text.append(f"{study.label} {study.id}", style="bold")
    text.append(f"  {SIMULATED_ONLY}" if study.simulated else "", style="yellow")
    text.append(f"  {search.mode}, {search.goal.words}")
    text.append("" if known.finished else f"  not finished: {known.phase.value}", style="yellow")
    workloads = ", ".join(workload.name for workload in study.workloads)
    text.append(
        f"\n{workloads}; {len(search.ranked)} configurations with durability `{search.promise}`"
        f": {search.promise.meaning}"
    )
    if search.tries is not None:
        text.append(f", {_tried(known)} of them tried (chosen by Optuna's TPE)")
    return text


def _measured(known: Tuning, facts: str) -> Iterator[str]:
    study = known.study
    span = f"target {study.target}" if study.target else f"span {format_bytes(study.span_bytes)}"
    each = f"{format_seconds(known.probed.slice_seconds)} (+ {format_seconds(study.ramp_seconds)} warm-up)"
    block = f"a block has one slice of each that is still compared, in random order (seed {study.seed})"
    yield f"a slice is one configuration for {each}; {block}; {span}"
    values = f"{BY_ID[study.metric].label} in the table: over all slices of a configuration"
    yield f"{values}; against the leader: within blocks that had both, so the two may disagree"
    yield from first_read_lines(study)
    yield host_line(study, facts)


def answer_lines(known: Tuning) -> Iterator[Text]:
    """Yield the result of a search: the winner, its certainty, and the recommendation."""
    metric, search = BY_ID[known.study.metric], _search(known)
    yield Text(recommendation_line(known), style=f"bold {_STYLE[known.recommendation]}")
    yield from _ahead(known)
    if known.tied:
        yield Text(f"the same within {share_text(known.study.margin)}: {_names(known.tied)}")
    yield from _limits(known)
    if (found := known.confirmation) is not None:
        line = Text(f"against the baseline, on fresh data: {metric.label} ")
        if found.ratio is None or found.ratio.confidence < 1 - search.error:
            line.append(f"undecided, {found.why.text}", style="yellow")
        else:
            style = {Verdict.BETTER: "green", Verdict.WORSE: "red"}.get(found.verdict, "yellow")
            line.append(difference_text(found.ratio), style=style)
            line.append(f" ({format_share(found.ratio.confidence)} confidence), {_starts(found)}")
            if found.winner is not None and found.baseline is not None:
                line.append(f": {quantity(metric, found.winner)} for {quantity(metric, found.baseline)}")
        yield line
        yield Text(_spread(known), style="yellow" if found.unstable else "")
    for soak in known.soaks:
        held = (
            "too few values to tell"
            if soak.ratio is None
            else f"last third {100 * (soak.ratio - 1):+.1f} % against the first"
        )
        yield Text(f"soak of {format_seconds(soak.seconds)}: {soak.arm}: {held}")


def _ahead(known: Tuning) -> Iterator[Text]:
    """Yield what has won, or is ahead so far, what the baseline is, and how far below the best it may be."""
    metric, winner = BY_ID[known.study.metric], known.winner
    if winner is not None:
        line = Text()
        # nobody has won where the search does not say which is the best
        line.append("winner  " if known.settled else "ahead so far  ", style="bold")
        line.append(winner, style=f"bold {'green' if known.settled else 'yellow'}")
        value = dict(known.values).get(winner)
        if value is not None:
            line.append(f"  {metric.label} {quantity(metric, value)}")
        yield line
        if known.settled:
            yield Text(f"settings  {_settings(known, winner)}")
    if winner != known.study.baseline:
        yield Text(f"baseline  {known.study.baseline}: {_settings(known, known.study.baseline)}")
    if winner is None:
        return
    yield Text(_distance(known))
    if known.finished and (rivals := known.rivals):
        words = f"the best is undecided: {_names(rivals)} may be better by more than"
        yield Text(f"{words} {share_text(known.study.margin)}", style="yellow")
    if winner != known.standing.leader:
        yield Text(f"{known.standing.leader} is faster but may break a limit", style="yellow")


def _distance(known: Tuning) -> str:
    search = _search(known)
    if known.distance is None:
        return "no bound yet on how far below the best it is"
    of = "" if search.tries is None else f" of the {_tried(known)} that were tried"
    sure = f"({format_share(1 - search.error)} confidence)"
    distance = f"{100 * known.distance:.1f} % below the best{of} {sure}"
    if known.standing.certified:
        return f"certified: at most {distance}"
    return f"no guarantee yet: it may be up to {distance}" + ("; block limit reached" if known.finished else "")


def _tried(known: Tuning) -> int:
    return len(known.standing.runners) + len(known.broken)


def _spread(known: Tuning) -> str:
    found = known.confirmation
    if found is None or found.spread is None or found.baseline_spread is None:
        return "spread between starts unknown"
    words = f"spread between starts: sd {share_text(found.spread)} (baseline {share_text(found.baseline_spread)})"
    if found.unstable and found.baseline_spread > found.spread / 2:
        return f"{words}: unstable; so is the baseline, so it may be the host"
    return f"{words}: unstable" if found.unstable else words


def _starts(found: Confirmation) -> str:
    """Describe what is new in each start: a test VM gets a new disk and keeps its machine."""
    if found.processes is None:
        return f"{found.pairs} starts each"
    if found.processes >= found.pairs:
        return f"{found.pairs} new processes each"
    where = "one process" if found.processes == 1 else f"{found.processes} processes"
    return f"{found.pairs} new disks each, in {where}"


def _limits(known: Tuning) -> Iterator[Text]:
    style = {LimitState.KEPT: "green", LimitState.BROKEN: "red", LimitState.OPEN: "yellow"}
    for check in known.checks:
        if check.arm != known.winner:
            continue
        metric = BY_ID[check.limit.metric]
        line = Text(f"limit {check.limit.text} under {check.workload}: ")
        line.append(
            check.state.value if check.state is not LimitState.OPEN else "undecided", style=style[check.state]
        )
        if check.value is not None:
            line.append(f", {quantity(metric, check.value)}")
        if check.low is not None and check.high is not None:
            line.append(f" [{quantity(metric, check.low)}, {quantity(metric, check.high)}]")
        yield line
    for text in known.confirmation.breaks if known.confirmation else ():
        yield Text(f"broken on fresh data: {text}", style="red")


def _cost(known: Tuning) -> Iterator[str]:
    search, standing = _search(known), known.standing
    words = f"measured {format_seconds(known.measured_seconds)} in {format_seconds(known.elapsed_seconds)}"
    grid = f"a full grid (5 x 60 s each) measures {format_seconds(search.grid_seconds)}"
    less = f", {known.speedup:.0f} times as long" if known.speedup is not None and known.speedup >= 1 else ""
    yield f"{words}; {grid}{less}"
    out = [one.out_after for one in standing.runners if one.out_after is not None]
    if out:
        when = f"{min(out)} to {max(out)}" if min(out) < max(out) else f"{min(out)}"
        yield f"{len(out)} eliminated after {when} of {count_text(standing.blocks, 'block')}"
    places = Counter(one.place for one in standing.runners)
    yield (
        f"{standing.blocks} blocks, {standing.slices} slices: {places[Place.ELIMINATED]} eliminated,"
        f" {places[Place.PARKED]} no better than the leader, {places[Place.OPEN]} undecided"
        + (f", {places[Place.FAILED]} failed" if places[Place.FAILED] else "")
    )
    each = known.probed.slice_seconds + known.beside_seconds
    for basis in known.basis:
        yield from steadiness(basis, known.study)
    yield checked_text(known.study)
    if known.repeated:
        yield f"{count_text(known.repeated, 'failed or disturbed trial')} repeated"
    yield from _disturbed(known)
    if standing.certified:
        yield "complete: more time gains nothing beyond the margin"
    elif standing.slices_left is not None:
        left = format_seconds(standing.slices_left * each * len(known.study.workloads))
        margin = share_text(known.study.margin)
        yield f"--mode certify: proving it within {margin} of the best needs about {left} more"


def _disturbed(known: Tuning) -> Iterator[str]:
    """Yield a line for each arm with invalid or failed attempts: how many and why, the worst arm first."""
    lost = [(sum(count for _, count in one.invalid) + one.failed, one) for one in known.attempts]
    bad = [one for count, one in sorted(lost, key=lambda pair: -pair[0]) if count]
    for one in bad[:NAMES_SHOWN]:
        why = [f"{label_of(cause)} {count}" for cause, count in one.invalid]
        why += [f"failed {one.failed}"] if one.failed else []
        yield f"disturbed trials of {one.arm}: {', '.join(why)}, of {one.attempts}"
    if len(bad) > NAMES_SHOWN:
        yield f"and disturbed trials of {len(bad) - NAMES_SHOWN} more configurations"


def _left_out(known: Tuning) -> Iterator[str]:
    search = _search(known)
    for apart in search.apart:
        how = "weaker" if apart.weaker else "stronger"
        yield f"{len(apart.names)} of {how} durability (`{apart.promise}`): {apart.words}: {_names(apart.names)}"
    for removed in search.removed:
        what = removed.what if removed.count is None else f"{removed.count}, e.g. {removed.what}"
        yield f"{what}: {removed.why}"


def _section(title: str, lines: Iterator[str]) -> list[RenderableType]:
    found = [Paragraph(line, indent=2, hanging=2) for line in lines]
    return [Text(f"\n{title}", style="bold"), *found] if found else []


def _settings(known: Tuning, name: str) -> str:
    settings = known.study.arm(name).settings
    return " ".join(f"--set {knob}={value}" for knob, value in settings) or "the rig's defaults"


def _names(names: tuple[str, ...]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _search(known: Tuning) -> Search:
    assert known.study.search is not None  # noqa: S101 - a Tuning is of a search
    return known.study.search
