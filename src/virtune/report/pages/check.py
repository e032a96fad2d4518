# SPDX-License-Identifier: Apache-2.0
"""A check as text: the host's noise, its minimum detectable effect, and advice."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from virtune.model.remark import SIMULATED
from virtune.model.result import Fitness, GateStanding, Neighbour
from virtune.model.text import format_bandwidth, format_count, format_ns, format_seconds, format_share
from virtune.model.verdict import Outcome, Verdict
from virtune.report.pages.evidence import drift_text
from virtune.report.pages.result import OF_OUTCOME, PASSED
from virtune.report.render.terminal import Paragraph, Table, heading, remarks_table, right, wide
from virtune.report.words import count_text, difference_text, share_text

_STYLE = {"invalid": "red", "warns": "yellow", "near": "cyan", "clear": "green"}


def render(fitness: Fitness, limit: float | None = None) -> RenderableType:
    """Lay out a check for a terminal; `limit` is the share of `--fail-if-noisier`."""
    parts: list[RenderableType] = [*limit_lines(fitness, limit), Paragraph(headline(fitness))]
    if rows := list(noise_rows(fitness)):
        parts += [heading("noise"), figures_table(rows)]
    if any(one.blocks for one in fitness.reaches):
        reaches = figures_table([*reach_rows(fitness), *slice_rows(fitness)])
        sure = Paragraph(Text(confidence_text(fitness), style="dim"), indent=2)
        parts += [heading("minimum detectable effect"), reaches, sure]
    if fitness.gates:
        parts += [heading("disturbances"), _gates(fitness.gates)]
    if fitness.neighbours is not None:
        parts += [heading("other processes meanwhile"), _neighbours(fitness.neighbours)]
    if fitness.advice:
        parts += [heading("what to do about it"), remarks_table(fitness.advice)]
    return Group(*parts)


def sentence(fitness: Fitness) -> str:
    simulated = any(one.id == SIMULATED.id for one in fitness.advice)
    whose = "SIMULATED, and not this host: " if simulated else ""
    if fitness.unfit:
        return f"{whose}NOT FIT: {'; '.join(fitness.unfit)}"
    smallest, surely = fitness.reach(5) or 0.0, fitness.most(5) or 0.0
    least, most = least_text(smallest), least_text(surely)
    loose = surely > _LOOSE * smallest and most != least
    by = f"; {fitness.trials} trials do not exclude that it takes {most}" if loose else ""
    return f"{whose}FIT: a 5-minute comparison of two arms detects differences of {least} and more (90 % power){by}"


_TIMES_MAX = 20
"""A check that has to be longer than this by its factor is not advised: the host is as noisy as the limit."""


def limit_lines(fitness: Fitness, limit: float | None) -> Iterator[RenderableType]:
    """Yield whether the limit on the noise is kept, as the exit code, by the figures that it is judged by; nothing
    where none was given.
    """
    if limit is not None:
        outcome = fitness.noisier(limit)
        told = f"{PASSED[outcome]}: --fail-if-noisier {limit:g}: {_limit_text(fitness, limit, outcome)}"
        yield Paragraph(Text(told, style=OF_OUTCOME[outcome]))


def _limit_text(fitness: Fitness, limit: float, outcome: Outcome) -> str:
    smallest, most = fitness.reach(5), fitness.most(5)
    if smallest is None or (outcome is Outcome.BREACHED and smallest <= limit):
        return "this host is NOT FIT"
    subject, surely = "the smallest difference that 5 minutes detect", least_text(most or smallest)
    if outcome is Outcome.HELD:
        return f"{subject} is at most {surely}"
    told = f"{subject} is {least_text(smallest)}"
    if outcome is Outcome.BREACHED:
        return told
    times = fitness.times_longer(limit)
    longer = times is not None and times <= _TIMES_MAX
    told += f", and {fitness.trials} trials do not exclude that it is {surely}"
    return told + (f"; a check {times} times as long (--seconds) tells, if the noise stays" if longer else "")


def least_text(share: float) -> str:
    """Write the smallest difference that is detected; no study detects one of `0.0 %`."""
    return format_share(max(share, 0.001), 1)


_LOOSE = 1.3
"""So much more is no longer the same answer."""


def headline(fitness: Fitness) -> Text:
    text = Text(sentence(fitness), style="bold red" if fitness.unfit else "bold green")
    text.append(f"\ncheck {fitness.study}", style="bold default")
    told = f"{fitness.trials} trials, {format_seconds(fitness.measured_seconds)} measured"
    told = f"  {fitness.workload} on rig={fitness.rig}, {told}"
    return text.append(told, style="not bold default")


def noise_rows(fitness: Fitness) -> Iterator[tuple[str, Text]]:
    if fitness.iops is not None:
        yield "IOPS", Text(format_count(fitness.iops))
    if fitness.windows_cv is not None and fitness.window_seconds is not None:
        window = format_ns(fitness.window_seconds * 1e9)
        yield "spread", Text(f"standard deviation {share_text(fitness.windows_cv)} of IOPS over {window} each")
    if fitness.correlation_seconds is not None:
        least = "at least " if fitness.correlation_open else ""
        yield (
            "autocorrelation",
            Text(f"IOPS closer than {least}{fitness.correlation_seconds:.2g} s resemble one another"),
        )
    if (drift := fitness.drift) is not None:
        style = "" if drift.low <= 0 <= drift.high else "yellow"
        yield "drift", Text(drift_text(drift).removeprefix("drift: "), style=style)
    if fitness.same is not None:
        yield "A/A test", _same(fitness)
    if fitness.earlier:
        yield "before", Text(earlier_text(fitness.earlier))


def earlier_text(earlier: Sequence[float | None]) -> str:
    """Say what five minutes detected by earlier checks: a host is not the same at every hour."""
    told = sorted(one for one in earlier if one is not None)
    ends = dict.fromkeys(least_text(one) for one in told[:1] + told[-1:])
    said = [f"found {' to '.join(ends)} in 5 min"] if told else []
    if silent := len(earlier) - len(told):
        said.append(f"{silent if told else ''} told nothing".strip())
    return f"{count_text(len(earlier), 'such check')} here {', '.join(said)}"


def _same(fitness: Fitness) -> Text:
    same = fitness.same
    if same is None or same.ratio is None:
        return Text("no undisturbed pair of trials")
    told = difference_text(same.ratio)
    if same.verdict in (Verdict.BETTER, Verdict.WORSE):
        return Text(f"a false difference, {told}: do not trust this host now", style="red")
    return Text(f"no false difference ({told})")


def reach_rows(fitness: Fitness) -> Iterator[tuple[str, Text]]:
    for one in fitness.reaches:
        pairs = f"{one.blocks} pairs of trials"
        few = Text(f"none: {pairs} are too few", style="yellow")
        found = few if one.smallest is None else Text(f"{least_text(one.smallest)} ({pairs})")
        yield f"in {one.minutes} min", found


def confidence_text(fitness: Fitness) -> str:
    return f"at {fitness.confidence:.3g} confidence; found 9 times in 10 by the end of such a comparison"


def slice_rows(fitness: Fitness) -> Iterator[tuple[str, Text]]:
    """Yield how long a trial should take, if that is known, and what other lengths cost."""
    best = fitness.best_seconds
    if best is None:
        return
    costs = ", ".join(
        f"{one.seconds:g} s {one.cost:.1f}x (standard deviation {share_text(one.sd)})"
        for one in fitness.slices
        if one.seconds != best
    )
    sd, pairs = next((one.sd, one.pairs) for one in fitness.slices if one.seconds == best)
    told = f"; longer for the same precision: {costs}" if costs else ""
    differ = f"two such trials differ with a standard deviation of {share_text(sd)}; {pairs} pairs"
    yield "best length of a trial", Text(f"--seconds {best:g} ({differ}){told}")


def _gates(standings: tuple[GateStanding, ...]) -> Table:
    table = Table(["cause", *right("usual", "worst", "warns above", "invalid above"), "state"], indent=2)
    clear = [one for one in standings if one.standing == "clear"]
    for one in sorted(standings, key=lambda one: list(_STYLE).index(one.standing)):
        if one.standing != "clear":
            numbers = (number(one.unit, value) for value in (one.median, one.worst, one.flag, one.invalid))
            table.add_row(one.label, *numbers, Text(one.standing, style=_STYLE[one.standing]))
    if clear:
        table.add_row(Text(f"{len(clear)} others", style="dim"), "", "", "", "", Text("clear", style="green"))
    return table


def number(unit: str, value: float | None) -> str:
    """Write a gate's reading; `-` for a limit that it lacks."""
    written = {"share": share_text, "C": "{:+.0f} C".format, "1/s": "{:.0f}/s".format, "s": "{:.2g} s".format}
    return "-" if value is None else written.get(unit, "{:g}".format)(value)


def _neighbours(found: tuple[Neighbour, ...]) -> RenderableType:
    if not found:
        return Paragraph(Text("none that ran all the time", style="green"), indent=2)
    return figures_table([(f"{one.name} ({one.pid})", Text(took_text(one))) for one in found])


def took_text(one: Neighbour) -> str:
    moved = "" if one.bandwidth_bps is None else f", {format_bandwidth(one.bandwidth_bps)} of disk I/O"
    return f"{one.cpus:.2f} CPUs{moved}"


def figures_table(rows: list[tuple[str, Text]]) -> Table:
    return Table(["", *wide("")], rows, indent=2)
