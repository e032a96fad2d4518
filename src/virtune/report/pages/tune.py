# SPDX-License-Identifier: Apache-2.0
"""The result of a search as text: the winner, its certainty, the arms against the leader, the cost."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from virtune.model.metric import BY_ID
from virtune.model.remark import label_of
from virtune.model.text import format_bytes, format_seconds, format_share
from virtune.model.tuning import Confirmation, LimitState, Place, Recommendation, Runner, Tuning
from virtune.model.verdict import Interval, Verdict
from virtune.report.pages.evidence import checked_text, reading_notes, steadiness
from virtune.report.pages.study import first_read_lines, host_line, to_repeat, vm_cost_notes
from virtune.report.render.forest import axis, bar, reach_of
from virtune.report.render.terminal import Column, FirstThatFits, Paragraph, Table, paragraphs, right, section
from virtune.report.reproduce import tune_again
from virtune.report.view import SIMULATED_ONLY
from virtune.report.words import HOPELESS, change_words, count_text, difference_text, names_text, quantity, share_text

ROWS_MAX = 24
"""The most arms in a table; of more the best are shown."""

_PLACES = {
    Place.LEADER: (0, "leads", "bold green"),
    Place.PARKED: (1, "as good", "cyan"),
    Place.OPEN: (1, "open", "yellow"),
    Place.ELIMINATED: (3, "out", "dim"),
    Place.FAILED: (4, "failed", "red"),
}

STATE = "state (block)"
"""The head over where each configuration stands, with the block after which it was out."""


def live(known: Tuning, seconds_left: float | None) -> RenderableType:
    return Group(_state(known, seconds_left), arms_table(known))


def state_line(known: Tuning, seconds_left: float | None) -> str:
    return _state(known, seconds_left).plain


def arms_table(known: Tuning, most: int | None = None) -> RenderableType:
    """Lay out every arm with its interval against the leader, the best first, with numbers instead of too long names.

    At most `most` rows are shown, ROWS_MAX without it. A name holds only the settings in which the arms differ; the
    common ones are listed once below.
    """
    runners = _sorted(known)
    shown = runners[: most or ROWS_MAX]
    ends: list[float] = []
    for runner in shown:
        if (ratio := _ratio(runner)) is not None:  # of what is out the interval no longer matters
            told = runner.place is not Place.ELIMINATED and ratio.high <= ratio.low * HOPELESS
            ends += (ratio.low, ratio.high) if told else (ratio.estimate,)
    reach = reach_of(ends)
    rows = [(_PLACES[runner.place][2], runner.arm, _row(known, runner, reach)) for runner in shown]
    rows += [
        ("red", arm, (Text(_value(known, arm)), Text(""), Text(""), Text(_broken(after), style="red")))
        for arm, after in known.broken
    ]
    short, common = short_names([arm for _, arm, _ in rows])
    names = [Text(name, style=style) for name, (style, _, _) in zip(short, rows, strict=True)]
    cells = [row for _, _, row in rows]
    value = right(BY_ID[known.study.metric].label)
    columns: list[Column | str] = [*value, "against the leader", axis(reach, "leader"), STATE]
    head, number = "configuration", right("no.")
    named = Table([head, *columns], [(name, *row) for name, row in zip(names, cells, strict=True)])
    numbered = Table([*number, *columns], [(f"{place}", *row) for place, row in enumerate(cells, 1)])
    key = Table([*number, head], [(f"{place}", name) for place, name in enumerate(names, 1)], above=True)
    below: list[RenderableType] = []
    if common:
        below.append(Paragraph(Text(f"the same in all of these: {common}", style="dim")))
    if len(runners) > len(shown):
        below.append(Text(f"and {len(runners) - len(shown)} more behind these", style="dim"))
    return Group(FirstThatFits([named], [numbered, key], [numbered.only(0, 1, 2, 4), key]), *below)


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
    out = sum(runner.place in (Place.ELIMINATED, Place.FAILED) for runner in standing.runners) + len(known.broken)
    text = Text().append(known.phase.value, style="bold")
    text.append(f"  block {standing.blocks}, {out} of {_tried(known)} out")
    text.append("" if standing.leader is None else f", {standing.leader} leads")
    text.append("" if known.distance is None else f", at most {100 * known.distance:.1f} % below the best")
    if seconds_left is not None and not known.finished:
        text.append(f"  about {format_seconds(seconds_left)} left", style="dim")
    return text


def _sorted(known: Tuning) -> list[Runner]:
    def key(runner: Runner) -> tuple[int, float]:
        return _PLACES[runner.place][0], 0.0 if runner.against_leader is None else runner.against_leader.mean

    return sorted(known.standing.runners, key=key)


def standing_rows(known: Tuning) -> list[tuple[str, str, str, str]]:
    rows = [(one.arm, _value(known, one.arm), _told(one), _state_of(known, one)) for one in _sorted(known)]
    return rows + [(arm, _value(known, arm), "", _broken(after)) for arm, after in known.broken]


def runner_rows(known: Tuning) -> list[tuple[str, str, str, Interval | None]]:
    """Return each one's name, state, difference and ratio, the best first; the leader has no ratio."""
    told = ((one, one.place is not Place.LEADER and _sure(one)) for one in _sorted(known))
    return [(one.arm, _state_of(known, one), _told(one), _ratio(one) if sure else None) for one, sure in told]


def _row(known: Tuning, runner: Runner, reach: float) -> tuple[Text, ...]:
    ratio = _ratio(runner)
    drawn = "" if ratio is None else bar(ratio.low, ratio.estimate, ratio.high, reach)
    drawn = bar(1.0, 1.0, 1.0, reach) if runner.place is Place.LEADER else drawn
    styled = (Text(word, style=_PLACES[runner.place][2]) for word in (_told(runner), drawn, _state_of(known, runner)))
    return Text(_value(known, runner.arm)), *styled


def _told(runner: Runner) -> str:
    ratio = _ratio(runner)
    if runner.place is Place.LEADER or ratio is None:
        return ""
    return difference_text(ratio) if _sure(runner) else change_words(ratio.estimate)


def _sure(runner: Runner) -> bool:
    return runner.against_leader is not None and math.isfinite(runner.against_leader.radius)


def _state_of(known: Tuning, runner: Runner) -> str:
    """Return an arm's state in words; a parked arm is at most the margin better, so it equals the leader or is
    behind.
    """
    behind = runner.place is Place.PARKED and runner.arm not in known.tied
    word = "no better" if behind else _PLACES[runner.place][1]
    return word + (f" ({runner.out_after})" if runner.out_after is not None else "")


def _broken(after: int) -> str:
    return f"breaks a limit ({after})"


def _ratio(runner: Runner) -> Interval | None:
    """Return an arm as a ratio to the leader, None without a block that had both; what it has is ln of how much
    better the leader is.
    """
    found = runner.against_leader
    if found is None or not found.blocks:
        return None
    ends = (max(-700.0, min(700.0, -end)) for end in (found.mean, found.high, found.low))
    estimate, low, high = (math.exp(end) for end in ends)
    return Interval(estimate=estimate, low=low, high=high, confidence=0.0)


def _value(known: Tuning, arm: str) -> str:
    value = dict(known.values).get(arm)
    return "-" if value is None else quantity(BY_ID[known.study.metric], value)


_STYLE = {Recommendation.CHANGE: "green", Recommendation.KEEP: "cyan", Recommendation.UNDECIDED: "yellow"}

NAMES_SHOWN = 6
"""The most names in one sentence; of more only the number is given."""


def render(known: Tuning, facts: str = "") -> Group:
    """Lay out a search for a terminal; `facts` are those of the host, as JSON."""
    below = (part for title, lines in sections(known, facts) for part in section(title, lines))
    answer = paragraphs(answer_lines(known))
    return Group(
        headline(known), Text(""), *answer, Text(""), arms_table(known), *below, *to_repeat(tune_again(known.study))
    )


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
    words = {
        Recommendation.CHANGE: f"change to {known.winner}",
        Recommendation.KEEP: "keep the baseline",
        Recommendation.UNDECIDED: "undecided" if known.winner is None else f"undecided, {known.winner} ahead so far",
    }
    return f"{words[known.recommendation]}: {known.why.text}"


def headline(known: Tuning) -> Text:
    study, search = known.study, known.search
    workloads = ", ".join(workload.name for workload in study.workloads)
    promise = f"durability `{search.promise}`: {search.promise.words}"
    tried = "" if search.tries is None else f", {_tried(known)} of them tried (chosen by Optuna's TPE)"
    return Text.assemble(
        (f"{study.label} {study.id}", "bold"),
        (f"  {SIMULATED_ONLY}" if study.simulated else "", "yellow"),
        f"  {search.mode}, {search.goal.words}",
        ("" if known.finished else f"  not finished: {known.phase.value}", "yellow"),
        f"\n{study.words}" if study.words else "",
        f"\n{workloads}; {len(search.ranked)} configurations with {promise}{tried}",
    )


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


def trust(known: Tuning) -> str:
    return (
        f"{known.study.label} {known.study.id}: {count_text(_tried(known), 'configuration')} in"
        f" {format_seconds(known.elapsed_seconds)}"
        + ("" if known.finished else f", not finished: {known.phase.value}")
    )


def answer_lines(known: Tuning, *, brief: bool = False) -> Iterator[Text]:
    """Yield the result of a search; `brief` without what only confirms it."""
    metric, search = BY_ID[known.study.metric], known.search
    found = known.confirmation
    confirmed = found is not None and found.ratio is not None and known.recommendation is Recommendation.CHANGE
    first = recommendation_line(known)
    if brief and confirmed and found is not None and found.ratio is not None:
        first = f"change to {known.winner}: {metric.label} {difference_text(found.ratio)} against the baseline"
    yield Text(first, style=f"bold {_STYLE[known.recommendation]}")
    yield from _ahead(known, brief=brief)
    if known.tied:
        yield Text(f"the same within {share_text(known.study.margin)}: {names_text(known.tied, NAMES_SHOWN)}")
    yield from _limits(known)
    if found is not None and not (brief and confirmed):
        line = Text(f"against the baseline, on fresh data: {metric.label} ")
        if found.ratio is None or found.ratio.confidence < 1 - search.error:
            line.append(f"undecided, {found.why.text}", style="yellow")
        else:
            style = {Verdict.BETTER: "green", Verdict.WORSE: "red"}.get(found.verdict, "yellow")
            line.append(difference_text(found.ratio), style=style)
            line.append(f" ({format_share(found.ratio.confidence)} confidence)")
            line.append(f", {_starts(found)}")
            if found.winner is not None and found.baseline is not None:
                line.append(f": {quantity(metric, found.winner)} for {quantity(metric, found.baseline)}")
        yield line
    if found is not None and (found.unstable or not brief):
        yield Text(_spread(known), style="yellow" if found.unstable else "")
    for soak in known.soaks:
        held = "too few values to tell"
        if soak.ratio is not None:
            held = f"last third {change_words(soak.ratio)} against the first"
        yield Text(f"soak of {format_seconds(soak.seconds)}: {soak.arm}: {held}")


def _ahead(known: Tuning, *, brief: bool) -> Iterator[Text]:
    """Yield what has won, or is ahead so far, what the baseline is, and how far below the best it may be."""
    metric, winner = BY_ID[known.study.metric], known.winner
    if winner is not None:
        # nobody has won where the search does not say which is the best
        line = Text("winner  " if known.won else "ahead so far  ", style="bold")
        line.append(winner, style="green" if known.won else "yellow")
        value = dict(known.values).get(winner)
        line.append("" if value is None else f"  {metric.label} {quantity(metric, value)}", style="not bold")
        yield line.append(f"; {_distance(known, brief=True)}" if brief else "", style="not bold")
        if known.settled:
            yield Text(f"settings  {_settings(known, winner)}")
    if winner != known.study.baseline:
        yield Text(f"baseline  {known.study.baseline}: {_settings(known, known.study.baseline)}")
    if winner is None:
        return
    if not brief:
        yield Text(_distance(known))
    if known.finished and (rivals := known.rivals):
        words = f"the best is undecided: {names_text(rivals, NAMES_SHOWN)} may be better by more than"
        yield Text(f"{words} {share_text(known.study.margin)}", style="yellow")
    if winner != known.standing.leader:
        yield Text(f"{known.standing.leader} is faster but may break a limit", style="yellow")


def _distance(known: Tuning, *, brief: bool = False) -> str:
    search = known.search
    if known.distance is None:
        return "no bound yet on how far below the best it is"
    of = "" if search.tries is None else f" of the {_tried(known)} that were tried"
    sure = "" if brief else f" ({format_share(1 - search.error)} confidence)"
    distance = f"{100 * known.distance:.1f} % below the best{of}{sure}"
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
        state = "undecided" if check.state is LimitState.OPEN else check.state.value
        value = "" if check.value is None else f", {quantity(metric, check.value)}"
        if check.low is not None and check.high is not None:
            value += f" [{quantity(metric, check.low)}, {quantity(metric, check.high)}]"
        what = f"limit {check.limit.text} under {check.workload}: "
        yield Text.assemble(what, (state, style[check.state]), value)
    for text in known.confirmation.breaks if known.confirmation else ():
        yield Text(f"broken on fresh data: {text}", style="red")


def _cost(known: Tuning) -> Iterator[str]:
    search, standing = known.search, known.standing
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
    search = known.search
    for apart in search.apart:
        how = "weaker" if apart.weaker else "stronger"
        names = names_text(apart.names, NAMES_SHOWN)
        yield f"{len(apart.names)} of {how} durability (`{apart.promise}`): {apart.words}: {names}"
    for removed in search.removed:
        what = removed.what if removed.count is None else f"{removed.count}, e.g. {removed.what}"
        yield f"{what}: {removed.why}"


def _settings(known: Tuning, name: str) -> str:
    settings = known.study.arm(name).settings
    return " ".join(f"--set {knob}={value}" for knob, value in settings) or "the rig's defaults"
