# SPDX-License-Identifier: Apache-2.0
"""The result of a search as text: the winner, its certainty, the arms against the leader, the cost."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from virtune.model.gate import label_of
from virtune.model.metric import BY_ID
from virtune.model.search import Search
from virtune.model.standing import Contrast, Place, Runner
from virtune.model.tuning import Confirmation, LimitState, Recommendation, Tuning
from virtune.model.units import format_bytes, format_seconds, format_share
from virtune.model.verdict import Interval, Verdict
from virtune.report.pages.evidence import checked_text, reading_notes, steadiness
from virtune.report.pages.study import first_read_lines, host_line, vm_cost_notes
from virtune.report.render.forest import axis, bar, reach_of
from virtune.report.render.terminal import Column, FirstThatFits, Paragraph, Records
from virtune.report.reproduce import AGAIN, tune_again
from virtune.report.view import SIMULATED_ONLY
from virtune.report.words import HOPELESS, change_words, count_text, difference_text, quantity, share_text

ROWS_MAX = 24
"""The most arms in a table; of more the best are shown."""

_PLACE_STYLE = {
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
        (_PLACE_STYLE[runner.place], runner.arm, _row(known, runner, reach)) for runner in shown
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
    style = _PLACE_STYLE[runner.place]
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
