# SPDX-License-Identifier: Apache-2.0
"""The end of a run in twelve lines: the finding, its picture, all that limits it, one line on the trials, one on the
host. The proof is in `virtune show`, with -v, and in the report.
"""

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from virtune.model.durability import Promise, durability_of
from virtune.model.evidence import DATA, DURABILITY, data_kept
from virtune.model.knob import Risk
from virtune.model.knobs import BY_ID as BY_KNOB
from virtune.model.metric import BY_ID
from virtune.model.published import PublishedStudy
from virtune.model.reason import Reason
from virtune.model.remark import EMULATED, GATE_BY_ID, SIMULATED, Weight, label_of
from virtune.model.result import Fitness, LoadSweep, Result
from virtune.model.rig import RIGS, UNKNOWN
from virtune.model.study import Arm, Study
from virtune.model.text import format_seconds, format_share
from virtune.model.tuning import Tuning
from virtune.model.verdict import Comparison, ThresholdResult, Verdict
from virtune.report.pages import check, evidence, sweep, tune
from virtune.report.pages import result as results
from virtune.report.pages.builtin import ending
from virtune.report.pages.study import host_words, not_verified, settings_of, unverifiable
from virtune.report.render import terminal
from virtune.report.render.forest import axis, axis_of
from virtune.report.view import ResultView, ViewRow, WorkloadView, view_of
from virtune.report.words import change_words, count_text, cut_text, names_text, share_text

LINES = 12

_IMPORTED_LINES = 8
"""The same of results that were measured elsewhere: of these no host and no trials are known."""

ROWS_LEAST, ROWS_SURE = 2, 6
"""The fewest arms that are shown, whatever else there is to say; where there are no more than so many, all are."""

NAMES, _PAIRS = 5, 2
"""The most names of arms, and of arms that are undecided, in one line."""

_COLUMNS = ("sync.mean", "latency.mean", "latency.p99", "cpu_per_io")
"""What is shown of each arm besides the metric of the verdicts. The latency has no flushes in it: of a load that
flushes an arm that leaves more to them looks faster by its latency alone, so they come first."""

_CLAUSE = 70
"""The most characters of a remark's first clause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """Parts in at most `most` lines: `head`, `limits` and `below` are never left out, the picture has as many rows as
    fit, and `more` stands where there is room. Where few rows do not fit, `short` stands in place of `limits` and
    `below`.
    """

    head: Sequence[RenderableType]
    picture: Callable[[int | None], list[RenderableType]] = lambda _: []
    rows: int = 0
    least: int = ROWS_LEAST
    limits: Sequence[RenderableType] = ()
    below: Sequence[RenderableType] = ()
    more: Sequence[RenderableType] = ()
    short: Sequence[RenderableType] = ()
    most: int = LINES

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = terminal.height_of(console, options)
        rows, drawn, rest = self.rows, self.picture(None), [*self.limits, *self.below]
        sure = bool(self.short) and rows <= ROWS_SURE
        least = rows if sure else self.least
        if sure and rows > ROWS_LEAST and height([*self.head, *drawn, *rest]) > self.most:
            rest = [*self.short]
        left = self.most - height([*self.head, *rest])
        while rows > least and height(drawn) > left:
            rows -= 1
            drawn = self.picture(rows)
        told: list[RenderableType] = []
        for part in self.more:
            if height([*told, part]) + height(drawn) <= left:
                told.append(part)
        for part in (*self.head, *drawn, *told, *rest):
            for line in console.render_lines(part, options, pad=False):
                yield from line
                yield Segment.line()


def of_result(
    result: Result, facts: str, rulings: Sequence[ThresholdResult] = (), authors: PublishedStudy | None = None
) -> Brief:
    """Return a comparison, a study or a single stack; `facts` are the host's, as JSON. A built-in study has its own
    table, however long, in place of the general one, with what its `authors` printed.
    """
    view, study, own = view_of(result), result.study, ending(result, authors, facts)
    shown = [one for one in view.workloads if not one.workload.probe and one.rows]
    words, told = meaning(result), [*results.condition_lines(result, rulings), *_beside_baseline(result)]
    alike = _not_compared(result)
    count, foot = terminal.paragraph(trust(result), "dim"), _line("next", following(result))
    named = {one.said for one in result.verdicts if one.verdict in (Verdict.BETTER, Verdict.WORSE)}
    said = {one.why for one in rulings}
    few = Text("; ").join(limits(result, said=said, short=True))
    return Brief(
        head=terminal.paragraphs(
            filter(None, (results.passed_line(rulings), finding(result, view), *beside(result))), indent=0
        ),
        picture=lambda most: own or _table(result, view, shown, most),
        rows=len(view.arms) if len(shown) == 1 else len(shown),
        least=max(ROWS_LEAST, 1 + len(named)),
        more=terminal.paragraphs(filter(None, (alike, study.words, words)), "dim", indent=0),
        limits=terminal.paragraphs([*told, *limits(result, said=said)], indent=0),
        below=[count, *([] if study.imported else [_line("host", host_words(study, facts))]), foot],
        short=()
        if study.imported or own
        else [*terminal.paragraphs(filter(None, [*told, few]), indent=0), count, foot],
        most=_IMPORTED_LINES if study.imported else LINES,
    )


def finding(result: Result, view: ResultView | None = None) -> Text:
    """What is sure first, and of each verdict the largest effects: the title of every output."""
    study, view = result.study, view or view_of(result)
    judged = [(one, list(one.against(study.metric, study.baseline).values())) for one in view.workloads]
    judged = [(one, found) for one, found in judged if found]
    text = Text()
    if not judged:
        return text.append(_figures(view) or "nothing was measured", style="bold")
    every = sorted((one for _, found in judged for one in found), key=_effect, reverse=True)
    told = _told(every, named=len(judged) == 1)
    if sum(len(words) for _, words in told) > _HEADLINE:
        told = _told(every, named=False)
    for verdict, words in told:
        style = results.STYLE[verdict]
        text.append("; " if text else "").append(f"{results.MARKS[verdict]} {words}", style=f"bold {style}")
    label = every[0].measured.label
    text.append(f" ({label} against {study.baseline})" if len(every) > 1 else f" ({label})")
    if weaker := _less_durable(study, every):
        text.append(f"; less durable: {names_text(weaker, NAMES)}", style="bold yellow")
    return text


def beside(result: Result) -> Iterator[Text]:
    """Yield a line on what the verdicts on the main metric hide, the largest differences first."""
    study, told = result.study, dict[tuple[str, str], list[Comparison]]()
    for one in sorted(result.beside, key=_effect, reverse=True):
        told.setdefault((one.candidate, one.workload), []).append(one)
    said = []
    for (arm, workload), found in told.items():
        where = f"{arm} under {workload}" if len(study.compared) > 1 else arm
        changes = (f"{one.measured.label} {results.change_text(one)} ({one.said})" for one in found)
        said.append(f"{where}: {', '.join(changes)}")
    if said:
        more = f"; and {len(said) - _PAIRS} more" if len(said) > _PAIRS else ""
        fixed = study.metric == "iops" and all(_is_as_asked(result, *one) for one in told)
        why = "; IOPS are those the job asks for" if fixed else ""
        yield Text(f"beside {results.judged_label(result)}: {'; '.join(said[:_PAIRS])}{more}{why}", style="yellow")


def _is_as_asked(result: Result, arm: str, name: str) -> bool:
    """Whether the rate of a workload is in its jobs, and this arm achieved it and is not told from the baseline."""
    study = result.study
    every = [one.load_of(load) for one in study.arms for load in study.compared if load.name == name]
    rated = all(job.get("rate_iops", job.get("rate", "")) for one in every for job in one)
    remarks = (one.remark.id for summary in result.arms if summary.workload == name for one in summary.remarks)
    apart = [one for one in result.verdicts if (one.candidate, one.workload) == (arm, name)]
    differs = any(one.verdict in (Verdict.BETTER, Verdict.WORSE) for one in apart)
    return rated and not differs and "rate-unmet" not in remarks


def _less_durable(study: Study, every: Sequence[Comparison]) -> list[str]:
    """Return the arms that are better than the baseline and promise less of what was written."""
    promised = durability_of(study.arm(study.baseline).stack).promise
    better = {one.candidate: study.arm(one.candidate).stack for one in every if one.verdict is Verdict.BETTER}
    made = ((name, stack) for name, stack in better.items() if stack.kind.made_here)
    return [name for name, stack in made if durability_of(stack).weaker_than(promised)]


def _beside_baseline(result: Result) -> Iterator[Text]:
    """Say what is decided of pairs without the baseline, which have no row of their own."""
    study, told = result.study, list[str]()
    for one in sorted(result.verdicts, key=lambda one: one.unsure):
        if one.baseline != study.baseline and one.metric == study.metric and one.verdict is not Verdict.UNDECIDED:
            alike = f"{one.candidate} {results.relation(one)} {one.baseline}"
            words = alike if one.verdict is Verdict.SAME else _told([one], named=True)[0][1]
            told.append(words + (f" under {one.workload}" if len(study.compared) > 1 else ""))
    if told:
        more = f"; and {len(told) - _PAIRS} more" if len(told) > _PAIRS else ""
        yield Text(f"also: {'; '.join(told[:_PAIRS])}{more}")


def _not_compared(result: Result) -> str:
    """Say that arms which are better, or worse, by themselves were not compared with one another."""
    study = result.study
    for verdict in (Verdict.BETTER, Verdict.WORSE):
        found = (one for one in result.verdicts if one.verdict is verdict and one.metric == study.metric)
        arms = [*dict.fromkeys(one.candidate for one in sorted(found, key=_effect, reverse=True))]
        if study.pairs == "baseline" and len(arms) > 1:
            command = shlex.join(("virtune", "compare", *(f"{study.id}:{name}" for name in arms[:2])))
            these = f"; by these rounds `{command}` does" if study.id and not study.imported else ""
            return f"{names_text(arms, NAMES)}: not compared with one another (`--pairs all` does{these})"
    return ""


_HEADLINE = 60
"""More characters are too many for one line: then only the arm with the largest effect is named."""


def _effect(one: Comparison) -> float:
    change = one.change if one.ratio is None else one.ratio.estimate
    return 0.0 if change is None or not change > 0 else max(change, 1 / change)


def _told(every: Sequence[Comparison], *, named: bool) -> list[tuple[Verdict, str]]:
    """Say of each verdict which arms have it, with their changes; without `named` how many pairs, and the largest
    effect.
    """
    if len(every) == 1:
        (one,) = every
        said = f"{one.candidate} {results.relation(one)} {one.baseline}"
        said += ": undecided" if one.verdict is Verdict.UNDECIDED else ""
        return [(one.verdict, ", ".join(filter(None, (said, results.change_text(one)))))]
    found = []
    for (_, _, verdict), same in _sure_first(every).items():
        names = [f"{one.candidate} {_percent(one)}".strip() for one in same]
        most = f", most {names[0]}" if verdict in (Verdict.BETTER, Verdict.WORSE) else ""
        where = f" under {same[0].workload}" if most and same[0].workload != every[-1].workload else ""
        short = f"{len(same)} of {len(every)} {same[0].said}{most}{where}"
        found.append((verdict, f"{same[0].said}: {', '.join(names)}" if named else short))
    return found


def _sure_first(every: Sequence[Comparison]) -> dict[tuple[bool, bool, Verdict], list[Comparison]]:
    """Group comparisons by what is said of them: verdicts that are sure, those that are less so, the undecided."""
    found: dict[tuple[bool, bool, Verdict], list[Comparison]] = {}
    for one in sorted(every, key=lambda one: [*Verdict].index(one.verdict)):
        found.setdefault((one.verdict is Verdict.UNDECIDED, one.unsure, one.verdict), []).append(one)
    return {key: found[key] for key in sorted(found, key=lambda key: key[:2])}


def _percent(one: Comparison) -> str:
    if one.verdict not in (Verdict.BETTER, Verdict.WORSE) or one.ratio is None:
        return ""
    return change_words(one.ratio.estimate)


def _figures(view: ResultView) -> str:
    """Say what a single stack did, where nothing is compared."""
    told = []
    for one in view.workloads:
        rows = (row for name in ("iops", "latency.mean", "latency.p99") if (row := one.row(name)) is not None)
        figures = [f"{row.label} {results.value_text(row.metric, row.cells[0].value)}" for row in rows]
        if figures and not one.workload.probe:
            told.append(f"{view.arms[0]} under {one.workload.name}: {', '.join(figures)}")
    return told[0] + (f" (and {count_text(len(told) - 1, 'workload')} more)" if told[1:] else "") if told else ""


_WHY = {
    Reason.TOO_FEW: "too few rounds",
    Reason.NOT_SETTLED: "could be none, could be more than {margin}",
    Reason.RARE_ROUNDS: "an arm is far off in a few of its rounds",
    Reason.DISTURBED_APART: "measured at different times, and disturbed in most of one",
    Reason.LASTING_LEVELS: "an arm changes its level for many rounds at a time",
}
"""Why a pair is not decided, in few words; other reasons are said as they are."""

_SHORT = {
    EMULATED.id: "under emulation (TCG): figures of the emulator, no VM's",
    SIMULATED.id: "simulated: no disk was measured",
    "kvm-without-hardware": "KVM without hardware virtualization: compare VMs with VMs only",
}
"""What limits all figures, in few words."""

_BUSY = ("cpu-wait", "steal", "foreign-io", "cpu-throttled")
"""The gates that say that others use this host."""


def limits(result: Result, *, said: Collection[str] = (), short: bool = False) -> Iterator[Text]:
    """Yield a line for each thing that undoes or limits a verdict, or a few words; no short form leaves one out, but
    for reasons that were `said` already.
    """
    study = result.study
    if wrong := not_verified(result):
        told = (f"{names_text(what, 2)} ({names_text(arms, 1)})" for what, arms in wrong.items())
        more = f" and in other ways {len(wrong) - 1} more times" if len(wrong) > 1 else ""
        yield Text(f"settings not verified: {next(told)}{more}", style="red")
    elif not study.imported and (unknown := _unknown(result)):
        yield Text(f"settings of {names_text(unknown, NAMES)} cannot be verified", style="yellow")
    elif varied := _varied(study.arms, hidden := unverifiable(result)):
        told = (f"{one} of {names_text(hidden[one], NAMES)}" for one in varied)
        yield Text(f"what is compared cannot be verified: {names_text([*told], 2)}", style="red")
    failures = [f"{summary.arm}: {reason}" for summary in result.arms for reason in summary.failures]
    if failures:
        yield Text(f"failed: {names_text(failures, 1)}", style="red")
    yield from (Text(line, style="yellow") for line in _unsure(result, said, short=short))
    if study.imported:
        yield Text(evidence.imported_limits(study), style="yellow")
        differ = [*evidence.imported_warnings(study), *(() if study.sources else evidence.other_options(study))]
        yield from (Text(cut_text(text, 150), style="yellow") for text in differ)
    if study.checked is not None and study.checked.verdict in (Verdict.BETTER, Verdict.WORSE):
        yield Text("`virtune host check` found a false difference on this host: distrust all verdicts", style="red")
    for text in evidence.drift_warnings(result):
        drift = text.partition(". ")[0]
        yield Text(_PROOF.sub("", drift) if short else drift, style="yellow")
    yield from (Text(f"{text}", style="yellow") for text in result.caveats)
    if promised := _durability(study.arms):
        yield Text(f"not equally durable, so a faster one may only do less: {promised}", style="yellow")
    yield from _disturbed(result, short=short)


_KEPT = {
    Promise.EVERY_WRITE: "every completed write survives a power cut",
    Promise.FLUSH: "only what was flushed survives a power cut",
    Promise.VOLATILE: "a host crash takes even that",
    Promise.NOTHING: "nothing is kept",
}
"""What a class of durability promises, the strongest first."""


def _durability(arms: Iterable[Arm]) -> str:
    """Say which arms promise what, where that is not the same; else nothing."""
    found: dict[Promise, list[str]] = {}
    for arm in arms:
        if arm.stack.kind.made_here:
            found.setdefault(durability_of(arm.stack).promise, []).append(arm.name)
    told = (f"{words} with {names_text(found[one], NAMES)}" for one, words in _KEPT.items() if one in found)
    return "; ".join(told) if len(found) > 1 else ""


def _unsure(result: Result, said: Collection[str], *, short: bool) -> Iterator[str]:
    """Say why pairs are undecided, each reason once, and what would undo a verdict, or look like it."""
    margin, why = format_share(result.study.margin, 0), dict[str, dict[str, None]]()
    few = dict[str, dict[str, None]]()
    for one in result.verdicts:
        if one.reason is Reason.FEW_ROUNDS:
            few.setdefault(one.why, {})[one.candidate] = None
        if one.unsure:
            then = one.why.rpartition(" is ")[2]
            yield f"perhaps: {one.candidate}: if an arm keeps a level for some rounds, the change is {then}"
        if one.verdict is Verdict.UNDECIDED:
            known = _WHY.get(one.reason)
            if one.reason is Reason.NOT_SETTLED and one.change is not None:
                known = "the runs are too few, or lie too far apart, to tell it from chance"
            words = one.why if known is None or one.closed else known.format(margin=margin)
            other = "" if one.baseline == result.study.baseline else f" against {one.baseline}"
            why.setdefault(words, {})[f"{one.candidate}{other}"] = None
    if few and short:
        yield "decided in few rounds: a second run tells"
    for words, arms in () if short else few.items():
        yield f"{names_text([*arms], _PAIRS)}: {words}"
    for words, arms in ((words, arms) for words, arms in why.items() if words not in said):
        yield f"undecided: {names_text([*arms], _PAIRS)}: {words}"


def _disturbed(result: Result, *, short: bool) -> Iterator[Text]:
    """Yield a line on the others that use this host, and one on all else that trials warn of."""
    busy, wrong, others = list[str](), list[str](), list[str]()
    for kind, (weight, text) in _kinds(result, counted=not short).items():
        (busy if kind in _BUSY else wrong if weight is Weight.INVALID else others).append(text)
    if busy:
        stays = "; too much to leave out" if any(one.arm is None for one in result.pardons) else ""
        yield Text(f"busy host: {', '.join(busy)}{stays}", style="yellow")
    for one in result.pardons:
        if one.arm is not None:
            so = "" if short else ": by the arm itself or by worse moments, so they count"
            how = f"in more trials of {one.arm} than of others{so}"
            if result.study.imported:
                how = f"in most trials of {one.arm}: too many to leave out"
            yield Text(f"{label_of(one.cause)} {how}", style="yellow")
    if wrong:
        yield Text("disturbed: ", style="red").append("; ".join(wrong), style="not bold default")
    if others:
        yield Text("warnings: ", style="yellow").append("; ".join(others), style="not bold default")


def _kinds(result: Result, *, counted: bool) -> dict[str, tuple[Weight, str]]:
    found: dict[str, tuple[Weight, str]] = {}
    for weight in (Weight.INVALID, Weight.WARNING):
        for kind, same in evidence.by_kind(result, weight).items():
            trials = sum(remark.rounds for _, remark in same)
            arms = {summary.arm for summary, _ in same}
            every = sum(one.rounds for one in result.arms if one.arm in arms)
            _, worst = max(same, key=lambda pair: pair[1].worst or 0.0)
            words = _SHORT.get(kind) or _clause(worst.remark.text)
            gate = GATE_BY_ID.get(kind)
            if gate is not None and gate.unit == "share" and worst.worst is not None:
                words = f"{gate.label} up to {share_text(worst.worst)}"
            if kind not in found:
                out = ", left out" if weight is Weight.INVALID and len(result.study.arms) > 1 else ""
                of = f" ({trials} of {count_text(every, 'trial')}{out})" if counted else ""
                found[kind] = weight, f"{words}{of}"
    return found


def _clause(text: str) -> str:
    return cut_text(next(part for part in _ENDS.split(text) if part), _CLAUSE)


_PROOF = re.compile(r" \[[^\]]*\]| \(compounded\)| while this was measured")
"""What stands behind a drift's estimate."""

_ENDS = re.compile(r"[:;] |\. |, which ")


def _varied(arms: Sequence[Arm], settings: Iterable[str]) -> list[str]:
    return [name for name in settings if len({dict(arm.settings).get(name) for arm in arms}) > 1]


def _unknown(result: Result) -> list[str]:
    return [arm for arm, mark, _ in settings_of(result) if mark == "?"]


def trust(result: Result) -> str:
    """Say in a line how many trials count, that settings were read back, and how sure the verdicts are."""
    study = result.study
    name = f"{study.label} {study.id}".strip() if study.id else "not stored"
    again = sum(map(evidence.repeats_of, result.arms))
    ran = result.trials_done + again
    used = sum(value.rounds for one in result.arms if (value := one.get(study.metric)) is not None)
    told = [f"{used} of {count_text(ran, 'run' if study.imported else 'trial')} count{'s' if ran == 1 else ''}"]
    told[0] += f" ({again} repeated others)" if again else ""
    if result.trials_done < (study.most_trials(finished=result.finished) or 0):
        told.append(f"{study.most_text(finished=result.finished)} were planned")
    hidden = unverifiable(result)
    if (study.sources or not study.imported) and not (study.simulated or not_verified(result) or _unknown(result)):
        shown = f"{names_text([*hidden], 2)}{', which --rig qemu reads back' if [*hidden] == ['disk.cache'] else ''}"
        told += [f"settings verified{f' (not {shown})' if hidden else ''}"]
    for setting in () if study.imported else (DATA, DURABILITY):
        if all(data_kept(one.in_force, setting) for one in result.arms):
            checks = ((one.arm, check) for one in result.arms for check in one.in_force if check.setting == setting)
            less = [f"{name}: {check.found}" for name, check in checks if check.found != "kept"]
            told.append(f"{setting} checked{f' ({names_text(less, 3)})' if less else ''}")
    if study.steadied and all(one.attained for one in study.steadied):
        written = "disks written in full and " if study.preconditioned else ""
        told.append(f"{written}loads steady before ({', '.join(dict.fromkeys(one.rule for one in study.steadied))})")
    if decided := sum(one.verdict is not Verdict.UNDECIDED for one in result.verdicts):
        only = " if nothing but the change differed between the runs" if study.imported else ""
        told.append(f"{'together ' if decided > 1 else ''}{format_share(study.confidence)} sure{only}")
    return f"{name}: {', '.join(told)}"


def meaning(result: Result) -> str:
    """Say what arms are that run QEMU's block layer without a VM; empty for others."""
    exports = [arm.name for arm in result.study.arms if arm.stack.kind.front == "export"]
    over = {arm.stack.export for arm in result.study.arms if arm.stack.kind.front == "export"}
    by = "; loaded over NBD, which is in its figures" if over == {"nbd"} else ""
    words = f"QEMU without a VM, which adds its kernel and exits{by}"
    return f"{names_text(exports, NAMES)}: {words}" if exports else ""


def following(result: Result) -> str:
    takes = (line for basis in result.basis for line in evidence.what_deciding_takes(result, basis))
    if line := next(takes, ""):
        return f"{line}; {_else(result.study) or '`virtune show`'}"
    return _EVERYTHING if result.study.id else "the same command with -v has every figure"


def _else(study: Study) -> str:
    """Say where to read what else decides where the arms differ in one knob alone, which may cost data."""
    settings = [dict(arm.settings) for arm in study.arms]
    varied = {name for one in settings for name in one if len({each.get(name) for each in settings}) > 1}
    knob = BY_KNOB.get(varied.pop()) if len(varied) == 1 else None
    return f"what else decides: `virtune host knobs {knob.id}`" if knob and knob.risk is Risk.DATA else ""


_EVERYTHING = "`virtune show` (every figure), `virtune show report --open` (pictures)"


def _table(result: Result, view: ResultView, shown: Sequence[WorkloadView], most: int | None) -> list[RenderableType]:
    """Return the rows with the verdicts: for one workload a row per arm, for several a row per workload."""
    study = result.study
    if len(shown) == 1:
        if study.imported and len(view.arms) == 2 and result.verdicts:
            return [results.forest(result, shown[0].workload)]
        return _arms(result, view, shown[0], _most(len(view.arms), most))
    most = _most(len(shown), most)
    if len(study.arms) > 1 and shown:
        return [results.matrix(result, most), *_more(len(shown), most, "workload")]
    if not shown:
        return []
    rows = [(one.workload.name, *_values(one, study.baseline, study.metric)) for one in shown[:most]]
    table = terminal.Table(["workload", *terminal.right(*_titles(shown[0], study.metric))], rows)
    return [table, *_more(len(shown), most, "workload")]


def _arms(result: Result, view: ResultView, one: WorkloadView, most: int | None) -> list[RenderableType]:
    study = result.study
    found = one.against(study.metric, study.baseline)
    told = [each.ratio for each in found.values() if each.ratio is not None and results.is_told(each)]
    reach = axis_of(told)
    changed = f"{BY_ID[study.metric].label} change" if found else ""
    drawn = axis(reach, "0") if told else ""
    table = terminal.Table([one.workload.name, "", changed, drawn, *terminal.right(*_titles(one, study.metric))])
    for arm in _kept(view.arms, study.baseline, found, most):
        verdict = found.get(arm)
        word = Text("" if len(view.arms) == 1 else "baseline")
        if verdict is not None:
            word = Text(f"{results.MARKS[verdict.verdict]} {verdict.said}", style=results.STYLE[verdict.verdict])
        change = "" if verdict is None else results.change_cell(verdict)
        cells = _values(one, arm, study.metric)
        table.add_row(Text(arm, style="bold"), word, change, results.bar_cell(verdict, reach), *cells)
    # the narrower, the fewer figures; the interval drawn stays longest
    last = len(table.columns)
    ways = [tuple(range(end)) for end in range(last, 4, -1)] + [(0, 1, 2, 3), (0, 1, 2, 4), (0, 1, 2)]
    fits = terminal.FirstThatFits(*([table.only(*(number for number in keep if number < last))] for keep in ways))
    return [fits, *_more(len(view.arms), most, "arm")]


def _kept(arms: Sequence[str], baseline: str, found: Mapping[str, Comparison], most: int | None) -> list[str]:
    """Return the arms that have a row, in their order: the baseline, those of the headline, and the first others."""
    decided = [one for one in found.values() if one.verdict in (Verdict.BETTER, Verdict.WORSE)]
    named = [baseline, *{one.said: one.candidate for one in sorted(decided, key=_effect)}.values()]
    kept = [*dict.fromkeys((*named, *arms))][:most]
    return [arm for arm in arms if arm in kept]


def _rows(one: WorkloadView, metric: str) -> list[ViewRow]:
    return [row for name in dict.fromkeys((metric, *_COLUMNS)) if (row := one.row(name)) is not None]


def _titles(one: WorkloadView, metric: str) -> list[str]:
    return [row.label for row in _rows(one, metric)]


def _values(one: WorkloadView, arm: str, metric: str) -> list[str]:
    cells = ((row.metric, {cell.arm: cell.value for cell in row.cells}.get(arm)) for row in _rows(one, metric))
    return [results.value_text(metric, value) for metric, value in cells]


def _most(count: int, most: int | None) -> int | None:
    """Return how many of `count` rows are shown: the line that says that one is left out would take its room."""
    return None if most is None or count <= most + 1 else most


def _more(count: int, most: int | None, word: str) -> list[RenderableType]:
    left = 0 if most is None else count - most
    return [Text(f"and {count_text(left, f'more {word}')}", style="dim")] if left > 0 else []


def _line(word: str, text: str) -> terminal.Paragraph:
    return terminal.paragraph(Text(f"{word}: ", style="bold").append(text, style="not bold dim"))


def of_search(known: Tuning, facts: str) -> Brief:
    study = known.study
    notes = of_slices(tune.warnings(known))
    limits_ = [Text("warnings: ", style="yellow").append("; ".join(notes), style="not bold default")] if notes else []
    where = "`virtune show` (its lines for a VM)" if known.settled else "`virtune show` (every figure)"
    return Brief(
        head=terminal.paragraphs(tune.answer_lines(known, brief=True), indent=0),
        picture=lambda most: [tune.arms_table(known, most)],
        rows=len(known.standing.runners) + len(known.broken),
        limits=terminal.paragraphs(limits_, indent=0),
        below=[
            terminal.paragraph(f"{tune.trust(known)}; {host_words(study, facts)}", "dim"),
            _line("next", f"{where}, `virtune show report --open` (pictures)"),
        ],
    )


def of_slices(notes: Sequence[str]) -> list[str]:
    """Return the first clause of each warning on a search, unless another said it, with how many slices it is of."""
    said: list[str] = []
    for note in notes:
        text, _, counted = note.rpartition(" (") if note.endswith(")") else (note, "", "")
        words = _SHORT[SIMULATED.id] if text.startswith(SIMULATED.id) else _clause(text)
        if not any(one.startswith(words) for one in said):
            said.append(words + (f" ({counted.partition(':')[0]})" if counted else ""))
    return said


def of_sweep(known: LoadSweep, result: Result, facts: str) -> Brief:
    study, result = known.study, sweep.without_saturation(result)
    rows, (first, *others) = len(known.points), sweep.answer_lines(known)
    named = study.sweep is not None and bool(study.sweep.loads)
    first = f"{study.arms[0].name}, {study.workloads[0].name}{'' if known.finished else ', not finished'}: {first}"

    def picture(most: int | None) -> list[RenderableType]:
        table = sweep.curve_table(known, result, most)
        places = {title: number for number, title in enumerate(table.titles)}
        keep = [places[one] for one in (*_CURVE, table.titles[-1]) if one in places]
        return [table.only(*keep), *_more(rows, most, "load")]

    return Brief(
        head=[
            *terminal.paragraphs(filter(None, (results.passed_line(known.rulings),)), indent=0),
            terminal.paragraph(first, "bold"),
            *terminal.paragraphs(others, indent=0),
        ],
        picture=picture,
        rows=rows,
        least=rows if named else ROWS_LEAST,
        limits=terminal.paragraphs(limits(result), indent=0),
        below=[
            terminal.paragraph(trust(result), "dim"),
            _line("host", host_words(study, facts)),
            _line("next", _EVERYTHING),
        ],
    )


_CURVE = ("offered", "achieved", "mean", "p99", "CPU per I/O")
"""The columns of a load beside its bar."""


def of_check(fitness: Fitness, limit: float | None = None) -> Brief:
    """Return a check; `limit` is the share of `--fail-if-noisier`."""
    found = ((one.minutes, one.smallest) for one in fitness.reaches if one.smallest is not None)
    told = [f"{check.least_text(smallest)} in {minutes} min" for minutes, smallest in found]
    further = ((share, fitness.minutes_for(share)) for share in _WANTED)
    told += [f"{format_share(share)} in about {format_seconds(60 * took)}" for share, took in further if took]
    noise = [f"{name} {text}" for name, text in check.noise_rows(fitness) if name in _NOISE]
    disturbed = [
        f"{one.label} up to {check.number(one.unit, one.worst)} ({_TELLS[one.standing]})"
        for one in fitness.gates
        if one.standing in _TELLS
    ]
    others = [f"{one.name} ({one.pid}) {check.took_text(one)}" for one in fitness.neighbours or ()]
    advice = [one.advice or one.text for one in fitness.advice]
    more = f" (and {len(advice) - 1} more: `virtune show`)" if advice[1:] else ""
    bare = RIGS.get(fitness.rig, UNKNOWN).front == "file"
    best = "" if fitness.best_seconds is None else f", best with --seconds {fitness.best_seconds:g}"
    parts = {
        "finds": "; ".join(told) + best if told else "",
        "noise": "; ".join(map(str, noise)),
        "disturbed by": names_text(disturbed, NAMES) if fitness.gates else "",
        "beside it ran": names_text(others, 2),
        "to do": advice[0] + more if advice else "",
    }
    return Brief(
        head=[*check.limit_lines(fitness, limit), terminal.paragraph(check.headline(fitness))],
        limits=[_line(word, text) for word, text in parts.items() if text],
        below=[_line("next", f"`virtune show` (every figure){_OTHER_RIG * bare}")],
    )


_OTHER_RIG = "; of QEMU's block layer, which `virtune compare` measures by default: --rig storage-daemon"

_WANTED = (0.05, 0.03)
"""The differences for which it is said how long a comparison takes, where a quarter of an hour does not find them."""

_TELLS = {
    "invalid": "too much for a trial to count",
    "warns": "a trial warns of it",
    "near": "near its limit",
}
"""What is said of a gate's worst reading, by how it stands."""

_NOISE = ("spread", "drift", "A/A test", "before")
"""The figures of noise that say whether a host is fit."""
